#!/usr/bin/python
# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: model_lookup
short_description: Describe a model at its source before it is downloaded
version_added: "0.1.0"
author:
  - The cpufleet maintainers (@cpufleet)
description:
  - Lists the files of a model on a hub, resolves the revision to a commit, picks the files that a service needs, and
    reads C(config.json), the index and the heads of the weights with small requests. So a service can be planned
    before anything large is downloaded.
  - Of the weights safetensors are taken where there are any, and then no pickles. A GGUF is told by its first bytes.
  - The weights themselves are downloaded by M(cpufleet.vllm.model_fetch). Only an archive at an address has to be
    downloaded here, since nothing tells what is in it.
extends_documentation_fragment:
  - cpufleet.vllm.attributes
  - cpufleet.vllm.attributes.info
options:
  source:
    description:
      - Where the model is. V(huggingface) is the Hugging Face hub or a mirror of it, V(modelscope) is ModelScope,
        V(url) is the address of a GGUF file or of a tar archive of a model's folder.
    type: str
    choices: [huggingface, modelscope, url]
    required: true
  model:
    description: The repository as OWNER/NAME, or the address.
    type: str
    required: true
  revision:
    description:
      - A commit of the repository, which makes a later run find the same bytes, and without asking.
      - A branch or a tag is resolved to its commit each time. Empty for the hub's main branch.
    type: str
    default: ""
  endpoints:
    description: Addresses of the hub and of mirrors of it, in the order of asking. Empty for the hub's own.
    type: list
    elements: str
    default: []
  files:
    description:
      - Patterns such as V(*q4_0.gguf) for the weights to take. Needed where a repository has several forms of a GGUF.
      - Empty for the one set of weights that there is.
    type: list
    elements: str
    default: []
  sha256:
    description: The digest of what lies at the address; needed with O(source=url).
    type: str
    default: ""
  token:
    description:
      - A token of the hub, for models whose terms have to be accepted. It is sent over TLS to the hosts of O(endpoints)
        and not to where these send the download on to.
    type: str
    default: ""
  cache:
    description: A folder for what was read.
    type: path
    required: true
  timeout:
    description: Seconds without an answer after which the next address is asked.
    type: int
    default: 20
"""

EXAMPLES = r"""
- name: Look at a model on a hub or its mirror
  cpufleet.vllm.model_lookup:
    source: huggingface
    model: Qwen/Qwen2.5-0.5B-Instruct
    endpoints: [https://hub.example.com, https://huggingface.co]
    cache: ~/.cache/cpufleet/models
  delegate_to: localhost
  register: found
"""

RETURN = r"""
model:
  description: As M(cpufleet.vllm.model_info) returns it for a folder, and where it can be had.
  returned: success
  type: dict
  contains:
    source:
      description: The source that was named.
      type: str
    revision:
      description: The commit; empty for an address.
      type: str
    problems:
      description: Why the model cannot be served; empty when it can.
      type: list
      elements: str
    files:
      description: Name, size and SHA-256 of each file that is needed, sorted by name.
      type: list
      elements: dict
    sha256:
      description: The digest over RV(model.files).
      type: str
    urls:
      description:
        - The addresses of each file by its name, in the order of asking; empty where RV(model.copy_from) has them.
      type: dict
    copy_from:
      description: A folder on this machine that has the files; empty where they are to be downloaded.
      type: str
    kept_in:
      description: The folder on this machine for M(cpufleet.vllm.model_fetch), where the hosts cannot download.
      type: str
"""

import os
from typing import Any, Sequence
from urllib.parse import unquote, urlsplit

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.cpufleet.vllm.plugins.module_utils._download import check_address, download, locked
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._files import digest_files, list_files
from ansible_collections.cpufleet.vllm.plugins.module_utils._hub import (
    ENDPOINTS,
    REVISIONS,
    HubFile,
    Listing,
    check_repository,
    file_url,
    is_commit,
    is_sha256,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._hub_pick import INDEX, pick
from ansible_collections.cpufleet.vllm.plugins.module_utils._hub_read import Source, ask_as, read_listing
from ansible_collections.cpufleet.vllm.plugins.module_utils._identity import digest
from ansible_collections.cpufleet.vllm.plugins.module_utils._io import read_json, sha256_file, write_json
from ansible_collections.cpufleet.vllm.plugins.module_utils._model_fetch import check_space, free_bytes
from ansible_collections.cpufleet.vllm.plugins.module_utils._model_gguf import MAGIC
from ansible_collections.cpufleet.vllm.plugins.module_utils._model_read import describe_folder
from ansible_collections.cpufleet.vllm.plugins.module_utils._model_safetensors import read_index
from ansible_collections.cpufleet.vllm.plugins.module_utils._unpack import unpack_tar

MACHINE = "this machine"
# What a description is made from; all other files count by their digest alone.
READ = ("config.json", "tokenizer_config.json", INDEX)
SHORT = 512
COMPRESSED = (b"\x1f\x8b", b"\xfd7zXZ\x00", b"BZh")
TAR_AT = 257
TAR = b"ustar"


class Finder:
    """The reader of one model, which keeps what it read."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given
        self.hub, self.model = str(given["source"]), str(given["model"])
        self.endpoints: list[str] = given["endpoints"] or ENDPOINTS.get(self.hub, [])
        for endpoint in self.endpoints:
            check_address(endpoint, "model_serve_model_endpoints")
        ask = ask_as(self.hub, given["token"] if self.hub != "url" else "", self.endpoints)
        self.source = Source(ask, given["timeout"])
        self.cache = os.path.join(given["cache"], "heads")

    def find(self) -> dict[str, Any]:
        """Return the description."""
        make(self.cache)
        with locked(self.cache):
            return self.find_file() if self.hub == "url" else self.find_repository()

    def find_repository(self) -> dict[str, Any]:
        """Return the description of a repository."""
        check_repository(self.model)
        revision = self.given["revision"] or REVISIONS[self.hub]
        known = self.known(revision) if is_commit(revision) else {}
        if not known:
            endpoint, listing = read_listing(self.hub, self.endpoints, self.model, revision, self.source)
            known = self.known(listing.commit) or self.read(endpoint, listing)
        endpoints = sorted(self.endpoints, key=lambda one: one != known["endpoint"])
        urls = {entry["name"]: self.urls(entry["name"], known["commit"], endpoints) for entry in known["files"]}
        return self.described(self.folder(known["commit"]), known["files"], urls=urls, revision=known["commit"])

    def folder(self, commit: str) -> str:
        """Return the folder for the heads of the files at ``commit``; it has the name of the model."""
        key = digest([self.hub, self.model, commit, self.given["files"]])[:12]
        return os.path.join(self.cache, key, self.model.partition("/")[2])

    def known(self, commit: str) -> dict[str, Any]:
        """Return what an earlier call read, {} where it is not whole."""
        folder = self.folder(commit)
        known: dict[str, Any] = read_json(folder + ".json", default={})
        there = {name: status.st_size for name, status in list_files(folder).items()}
        whole = known and there == {entry["name"]: entry["size"] for entry in known["files"]}
        return known if whole else {}

    def urls(self, name: str, commit: str, endpoints: Sequence[str]) -> list[str]:
        """Return the addresses of one file."""
        return [file_url(self.hub, endpoint, self.model, commit, name) for endpoint in endpoints]

    def read(self, endpoint: str, listing: Listing) -> dict[str, Any]:
        """Read what tells what the repository holds, and keep it."""
        folder = self.folder(listing.commit)
        make(folder)
        endpoints = sorted(self.endpoints, key=lambda one: one != endpoint)
        reader = Reader(self.source, folder, self.model, lambda name: self.urls(name, listing.commit, endpoints))
        index = [file for file in listing.files if file.name == INDEX and not self.given["files"]]
        indexed = read_index(read_json(reader.whole(index[0])), INDEX)[1] if index else []
        picked = pick(listing.files, self.given["files"], indexed, reader.is_gguf)
        reader.keep_only([file.name for file in picked.files])
        files = []
        for file in picked.files:
            sha256 = reader.head(file) if file in picked.weights else reader.beside(file)
            files.append({"name": file.name, "size": file.size, "sha256": sha256})
        known = {"commit": listing.commit, "endpoint": endpoint, "files": files}
        write_json(folder + ".json", known)
        return known

    def find_file(self) -> dict[str, Any]:
        """Return the description of what lies at an address: a GGUF, or an archive, which is fetched for that."""
        check_address(self.model, "model_serve_model")
        sha256, name = self.given["sha256"].lower(), os.path.basename(unquote(urlsplit(self.model).path))
        if not is_sha256(sha256) or not name or not self.model.startswith(("http://", "https://")):
            raise CpufleetError(
                f"Cannot take the model from {self.model} with the SHA-256 {sha256 or '(none)'}",
                "Set model_serve_model to the http(s) address of a file, and model_serve_model_sha256 to its 64 digits",
            )
        folder = os.path.join(self.cache, sha256[:12], name.partition(".")[0] or "model")
        file = HubFile(name, *self.size_and_digest(folder, name, sha256))
        if not file.size:
            return self.described(folder, digest_files(folder, list_files(folder), folder + ".json"), copy_from=folder)
        entry = {"name": name, "size": file.size, "sha256": sha256}
        return self.described(folder, [entry], urls={name: [self.model]})

    def size_and_digest(self, folder: str, name: str, sha256: str) -> tuple[int, str]:
        """See to the head of a GGUF and return its size; for an archive see to its files and return 0."""
        path = os.path.join(folder, name)
        if os.path.isdir(folder):
            return (os.path.getsize(path) if os.path.isfile(path) else 0), sha256
        first, size = self.source.read([self.model], 0, SHORT)
        if first.startswith(MAGIC) or name.endswith(".gguf"):
            partial = folder + ".partial"
            make(partial)
            self.source.write_head([self.model], os.path.join(partial, name), HubFile(name, size, sha256), self.model)
            os.rename(partial, folder)
            return size, sha256
        if not first.startswith(COMPRESSED) and first[TAR_AT : TAR_AT + len(TAR)] != TAR:
            shown = first.lstrip()[:16].decode("utf-8", "replace")
            raise CpufleetError(
                f"Refused {self.model}: it is neither a GGUF nor a tar archive, but begins with {shown!r}",
                "Name the file itself, not the page about it. Of other archives make one with tar",
            )
        self.fetch_archive(folder, size, sha256)
        return 0, sha256

    def fetch_archive(self, folder: str, size: int, sha256: str) -> None:
        """Download an archive and unpack it."""
        archive = folder + ".tar"
        make(os.path.dirname(folder))
        have = os.path.getsize(archive) if os.path.exists(archive) else 0
        check_space(os.path.dirname(folder), 2 * size - have, free_bytes(folder), "the archive and its files")
        download([self.model], archive, sha256, self.given["timeout"], MACHINE, self.source.ask)
        unpack_tar(archive, folder, flat=True)
        os.unlink(archive)

    def described(self, folder: str, files: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        """Return the description of ``folder``, in which large files may be no more than their heads."""
        found = describe_folder(folder, {entry["name"]: entry["size"] for entry in files})
        problems = [problem.replace(folder, self.model) for problem in found["problems"]]
        sha256 = digest(files)
        rest = {
            "problems": problems,
            "source": self.hub,
            "files": [] if problems else files,
            "sha256": "" if problems else sha256,
            "kept_in": os.path.join(self.given["cache"], "files", sha256[:12]),
        }
        return {**found, "urls": {}, "copy_from": "", "revision": "", **rest, **more}


class Reader:
    """What is read of one repository into a folder."""

    def __init__(self, source: Source, folder: str, model: str, urls: Any) -> None:
        self.source, self.folder, self.model, self.urls = source, folder, model, urls

    def whole(self, file: HubFile) -> str:
        """Fetch a small file and return its path."""
        path = os.path.join(self.folder, file.name)
        make(os.path.dirname(path))
        download(self.urls(file.name), path, file.digest, self.source.timeout, MACHINE, self.source.ask)
        return path

    def is_gguf(self, file: HubFile) -> bool:
        """Return whether a file is a GGUF; where its name already tells that is compared later, with its head."""
        if file.name.endswith((".gguf", ".safetensors")):
            return file.name.endswith(".gguf")
        return self.source.read(self.urls(file.name), 0, len(MAGIC))[0] == MAGIC

    def keep_only(self, names: Sequence[str]) -> None:
        """Remove what an earlier call for other files left."""
        for name in set(list_files(self.folder)) - set(names):
            os.unlink(os.path.join(self.folder, name))

    def head(self, file: HubFile) -> str:
        """Read the head of a file and return the SHA-256 of all of it."""
        if not is_sha256(file.digest):
            return sha256_file(self.whole(file))
        path = os.path.join(self.folder, file.name)
        make(os.path.dirname(path))
        self.source.write_head(self.urls(file.name), path, file, self.model)
        return file.digest

    def beside(self, file: HubFile) -> str:
        """Read a file that tells something, stand in for any other, and return its SHA-256."""
        if file.name in READ or not is_sha256(file.digest):
            return sha256_file(self.whole(file))
        path = os.path.join(self.folder, file.name)
        with open(path, "wb") as stream:
            stream.truncate(file.size)
        return file.digest


def make(folder: str) -> None:
    """Make a folder of the cache."""
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise CpufleetError(f"Cannot make {folder}: {error.strerror}", "Set plan_cache to a folder of yours") from error


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "source": {"type": "str", "choices": ["huggingface", "modelscope", "url"], "required": True},
            "model": {"type": "str", "required": True},
            "revision": {"type": "str", "default": ""},
            "endpoints": {"type": "list", "elements": "str", "default": []},
            "files": {"type": "list", "elements": "str", "default": []},
            "sha256": {"type": "str", "default": ""},
            "token": {"type": "str", "default": "", "no_log": True},
            "cache": {"type": "path", "required": True},
            "timeout": {"type": "int", "default": 20},
        },
        supports_check_mode=True,
    )
    given = module.params
    try:
        model = Finder(given).find()
    except CpufleetError as error:
        module.fail_json(msg=str(error), **error.details)
    except OSError as error:
        module.fail_json(msg=f"Cannot keep what was read in {given['cache']}: {error.strerror}. Free space there.")
    if model["revision"] and not is_commit(given["revision"]):
        module.warn(
            f"{given['model']} was taken at {model['revision']}, where {given['revision'] or 'its main branch'} is now"
            ". Set model_serve_model_revision to that to serve the same bytes in every later run"
        )
    module.exit_json(changed=False, model=model)


if __name__ == "__main__":
    main()
