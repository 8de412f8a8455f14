#!/usr/bin/python
# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: source_fetch
short_description: Fetch the source of a release of vLLM or llama.cpp into a cache
version_added: "0.1.0"
author:
  - The cpufleet maintainers (@cpufleet)
description:
  - V(sdist) asks the package index that uv is configured with for address, SHA-256 and upload time of a release's
    source distribution, and downloads it.
  - V(git) fetches one commit, without its history, from the first of several addresses that has it. After a cut the
    files come in batches, so that a further cut costs one batch.
  - V(archive) takes a C(.tar.gz) or C(.zip) of the tree, downloaded from the first of several addresses or already
    there.
  - Everything ends as one file in O(cache) in the shape of a source distribution. What a repository or a code host's
    archive lacks of that, C(PKG-INFO) and C(SOURCES.txt), is added, since setuptools takes version and data files from
    there.
  - Downloads are resumed and tried again, and verified. Runs on the controller, whose proxies and git settings count.
  - What is verified and in the cache is used without asking anybody again, except that a branch is asked for its
    commit.
extends_documentation_fragment:
  - cpufleet.vllm.attributes
  - cpufleet.vllm.options.release
  - cpufleet.vllm.options.download
attributes:
  check_mode:
    support: partial
    details:
      - The cache on the controller is filled in check mode too, since the plan is made from the source.
      - No host is touched.
  diff_mode:
    support: none
    details:
      - A cache has nothing to show.
requirements:
  - git 2.31 for O(source=git)
options:
  package:
    description:
      - What is fetched. V(llama-cpp-python) is the package whose source distribution holds the source of llama.cpp;
        with O(source=git) and O(source=archive) it is the tree of llama.cpp itself, and O(git_ref) has to name a tag.
    type: str
    choices: [vllm, llama-cpp-python]
    default: vllm
  version:
    description: The release.
    type: str
    required: true
  cache:
    description: The cache folder, made when it is missing.
    type: path
    required: true
  source:
    description: Where the source comes from.
    type: str
    choices: [sdist, git, archive]
    default: sdist
  path:
    description:
      - A source distribution (O(source=sdist)) or archive (O(source=archive)) that is already on the controller.
    type: path
  sha256:
    description:
      - The digest that the file must have. For V(sdist) the index's own when empty.
      - Needed for an archive that is downloaded.
    type: str
    default: ""
  urls:
    description:
      - The addresses of the archive, in the order of asking. One that fails or serves other bytes is passed over.
    type: list
    elements: str
    default: []
  git_urls:
    description:
      - The addresses of the repository, in the order of asking. One that does not answer, lacks the tag, or has it at
        another commit than O(git_commit), is passed over.
    type: list
    elements: str
    default: []
  git_ref:
    description: A tag, a branch, or a commit by all its digits; the tag C(v<version>) when empty.
    type: str
    default: ""
  git_commit:
    description: The commit that it must be.
    type: str
    default: ""
  git_instead_of:
    description: What git is to put in place of the beginning of an address, as C(insteadOf) does.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Fetch the source of vLLM 0.6.5
  cpufleet.vllm.source_fetch:
    version: "0.6.5"
    cache: ~/.cache/cpufleet/sources
  delegate_to: localhost

- name: Fetch it from a repository of one's own, else from vLLM's
  cpufleet.vllm.source_fetch:
    version: "0.6.5"
    cache: ~/.cache/cpufleet/sources
    source: git
    git_urls:
      - https://git.example.com/mirrors/vllm.git
      - https://github.com/vllm-project/vllm.git
  delegate_to: localhost

- name: Fetch what llama-server is built from
  cpufleet.vllm.source_fetch:
    package: llama-cpp-python
    version: "0.3.36"
    cache: ~/.cache/cpufleet/sources
  delegate_to: localhost

- name: Fetch an archive of the tree
  cpufleet.vllm.source_fetch:
    version: "0.6.5"
    cache: ~/.cache/cpufleet/sources
    source: archive
    urls:
      - https://files.example.com/vllm-0.6.5.tar.gz
    sha256: 0cafd6b3be45ede8f30b8c6dd70bc584f2d8d5d7e1098c3fdf6f5778237ac5fd
  delegate_to: localhost
"""

RETURN = r"""
downloaded:
  description: Whether something was downloaded now.
  returned: success
  type: bool
source_archive:
  description: The verified source.
  returned: success
  type: dict
  contains:
    source:
      description: V(sdist), V(git) or V(archive).
      type: str
    path:
      description: The file to unpack.
      type: str
    file_sha256:
      description: The digest of that file.
      type: str
    sha256:
      description:
        - The digest by which the source counts in a wheel's identity. For V(sdist) and V(archive) that of the file as
          it was fetched; for V(git) one over the id of the tree, whatever packed it.
      type: str
    upload_time:
      description:
        - The date of the source (ISO 8601), as of which dependencies are resolved; empty where nothing says it.
        - When the index received it, the commit was made, or the newest file in the archive changed.
      type: str
    url:
      description: Where it came from.
      type: str
    ref:
      description: The tag, branch or commit that was asked for; empty for the others.
      type: str
    commit:
      description: The commit; empty where none is known.
      type: str
    tree:
      description: The id of the commit's tree; empty for the others.
      type: str
"""

import contextlib
import os
import tempfile

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.cpufleet.vllm.plugins.module_utils._download import check_address, download, locked, verify
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._git import Repository
from ansible_collections.cpufleet.vllm.plugins.module_utils._index import Archive, read_pylock
from ansible_collections.cpufleet.vllm.plugins.module_utils._io import (
    read_json,
    read_text,
    sha256_file,
    write_atomic,
    write_json,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._source_git import Wish, tree_digest
from ansible_collections.cpufleet.vllm.plugins.module_utils._source_pack import (
    LLAMA_CPP,
    VLLM,
    pack_source,
    read_packed,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._uv import find_uv

MACHINE = "the controller"
# What the user set to name the source: the release, and the beginning of the other variables.
VARIABLES = {"vllm": ("vllm_version", "vllm_source_build"), "llama-cpp-python": ("llama_cpp_version", "llama_cpp")}
TITLES = {"vllm": "vLLM", "llama-cpp-python": "llama-cpp-python"}
TREES = {"vllm": VLLM, "llama-cpp-python": LLAMA_CPP}


def ask_indexes(module: AnsibleModule, version: str) -> Archive:
    """Return what the first index says that has ``version`` and dates it; the configured one is asked last."""
    for index in module.params["indexes"]:
        with contextlib.suppress(CpufleetError):
            archive = ask_index(module, version, {"UV_DEFAULT_INDEX": index})
            if archive.upload_time:
                return archive
    return ask_index(module, version, {})


def ask_index(module: AnsibleModule, version: str, environment: dict[str, str]) -> Archive:
    """Return address, digest and date of the source distribution of ``version`` from the configured index."""
    with tempfile.TemporaryDirectory(prefix="cpufleet-index-") as folder:
        package = module.params["package"]
        chosen, prefix = VARIABLES[package]
        wish, answer = os.path.join(folder, "wish.txt"), os.path.join(folder, "pylock.toml")
        write_atomic(wish, f"{package}=={version}\n".encode())
        uv = find_uv(module.params["uv"], f"set {prefix}_sdist to a file")
        command = [uv, "pip", "compile", "--quiet", "--no-deps", "--python-version", "3.11"]
        command += ["--format", "pylock.toml", "--output-file", answer, wish]
        status, _out, error = module.run_command(command, cwd=folder, environ_update=environment)
        if status:
            raise CpufleetError(
                f"Cannot find {TITLES[package]} {version} on the package index: {error.strip()[-800:]}",
                f"Check {chosen} and the index that uv is configured with on the controller",
            )
        return read_pylock(read_text(answer), version, TITLES[package])


def described(source: str, path: str, **more: str) -> dict[str, str]:
    """Return the description of a source; what is not given is empty."""
    empty = dict.fromkeys(("sha256", "upload_time", "url", "ref", "commit", "tree"), "")
    return {**empty, "source": source, "path": path, "file_sha256": sha256_file(path), **more}


def known(path: str) -> dict[str, str]:
    """Return what the cache recorded at ``path`` where its file is there and whole, else {}."""
    record: dict[str, str] = read_json(path, default={})
    if not record or not os.path.isfile(record["path"]):
        return {}
    verify(record["path"], record.get("file_sha256") or record["sha256"])
    return described("sdist", **record) if "source" not in record else record


def fetch_sdist(module: AnsibleModule) -> tuple[dict[str, str], bool]:
    """Return the source distribution and whether it was downloaded now."""
    cache, version, wanted = (module.params[key] for key in ("cache", "version", "sha256"))
    if module.params["path"]:
        path, sha256 = local_file(module.params["path"], wanted)
        return described("sdist", path, sha256=sha256), False
    package = module.params["package"]
    record = os.path.join(cache, f"{package}-{version}.json")
    found = known(record)
    if found and wanted in ("", found["sha256"]):
        return found, False
    archive = ask_indexes(module, version)
    target = os.path.join(cache, f"{package}-{version}.tar.gz")
    digest = wanted or archive.sha256
    download([archive.url], target + ".part", digest, module.params["timeout"], MACHINE)
    os.replace(target + ".part", target)
    found = described("sdist", target, sha256=digest, upload_time=archive.upload_time, url=archive.url)
    write_json(record, found)
    return found, True


def fetch_git(module: AnsibleModule) -> tuple[dict[str, str], bool]:
    """Return one commit as an archive and whether it was fetched now."""
    cache, version, commit = (module.params[key] for key in ("cache", "version", "git_commit"))
    ref = module.params["git_ref"] or f"v{version}"
    kind, (chosen, prefix) = TREES[module.params["package"]], VARIABLES[module.params["package"]]
    variables = f"{chosen}, {prefix}_git_ref, {prefix}_git_commit and {prefix}_git_urls"
    wish = Wish(tuple(module.params["git_urls"]), ref, commit, variables)
    if not wish.urls:
        raise CpufleetError(f"There is no address to fetch {kind.title} from with git", f"Set {prefix}_git_urls")
    record = os.path.join(cache, f"{kind.name}-{version}-git-{tree_digest(ref)[:12]}.json")
    found = known(record)
    # A branch goes on; tags and commits stay, as far as who said so is still believed.
    if found and found["kind"] != "branch" and commit in ("", found["commit"]) and found["url"] in wish.urls:
        return found, False
    repository = Repository(
        os.path.join(cache, f"{kind.name}.git"), module.params["git_instead_of"], module.params["timeout"], MACHINE
    )
    there = repository.fetch(wish)
    tree = repository.tree(there.commit)
    target = os.path.join(cache, f"{kind.name}-{version}-{tree[:12]}.tar.gz")
    with tempfile.TemporaryDirectory(prefix=".export-", dir=cache) as folder:
        export = os.path.join(folder, "tree.tar")
        repository.export(there.commit, export, f"{kind.name}-{version}")
        pack_source(export, read_packed(export, kind), version, target, kind)
    more = {"url": there.url, "ref": ref, "commit": there.commit, "tree": tree, "kind": there.kind}
    found = described("git", target, sha256=tree_digest(tree), upload_time=repository.date(there.commit), **more)
    write_json(record, found)
    return found, True


def fetch_archive(module: AnsibleModule) -> tuple[dict[str, str], bool]:
    """Return an archive in the shape of a source distribution and whether it was downloaded now."""
    cache, version, wanted = (module.params[key] for key in ("cache", "version", "sha256"))
    downloaded, url = False, ""
    if module.params["path"]:
        path, sha256 = local_file(module.params["path"], wanted)
    else:
        path, url, downloaded = fetch_file(module)
        sha256 = wanted
    kind = TREES[module.params["package"]]
    name = os.path.join(cache, f"{kind.name}-{version}-{sha256[:12]}")
    found = known(name + ".json")
    if not found:
        packed = read_packed(path, kind)
        more = {"sha256": sha256, "commit": packed.commit, "upload_time": packed.date}
        if packed.plain:
            return described("archive", path, url=url, **more), downloaded
        pack_source(path, packed, version, name + ".tar.gz", kind)
        found = described("archive", name + ".tar.gz", **more)
        write_json(name + ".json", found)
    return {**found, "url": url}, downloaded


def fetch_file(module: AnsibleModule) -> tuple[str, str, bool]:
    """Return the archive in the cache, the address that had it, and whether it was downloaded now."""
    urls, wanted = module.params["urls"], module.params["sha256"]
    if not urls:
        raise CpufleetError("There is no archive to take the source from", "Set vllm_source_build_archive")
    if not wanted:
        raise CpufleetError(
            f"Cannot verify {urls[0]}: an archive that is downloaded needs a digest",
            "Set vllm_source_build_sha256 to its SHA-256",
        )
    target = os.path.join(module.params["cache"], f"archive-{wanted[:12]}")
    if os.path.isfile(target):
        verify(target, wanted)
        return target, str(read_text(target + ".url", default="")), False
    url = download(urls, target + ".part", wanted, module.params["timeout"], MACHINE)
    write_atomic(target + ".url", url.encode())
    os.replace(target + ".part", target)
    return target, url, True


def local_file(path: str, wanted: str) -> tuple[str, str]:
    """Return a file that the user named, and its digest."""
    found = sha256_file(path)
    if wanted not in ("", found):
        raise CpufleetError(
            f"Refused {path}: its SHA-256 is {found}, expected {wanted}",
            "Correct vllm_source_build_sha256 or the file",
            path=path,
        )
    return path, found


def fetch(module: AnsibleModule) -> tuple[dict[str, str], bool]:
    """Return the verified source and whether something was downloaded now."""
    for name, variable in (("urls", "vllm_source_build_archive"), ("git_urls", "vllm_source_build_git_urls")):
        for url in module.params[name]:
            check_address(url, variable)
    cache = module.params["cache"]
    try:
        os.makedirs(cache, exist_ok=True)
    except OSError as error:
        raise CpufleetError(
            f"Cannot make the cache {cache}: {error.strerror}", "Set plan_cache to a folder that you may write to"
        ) from error
    ways = {"sdist": fetch_sdist, "git": fetch_git, "archive": fetch_archive}
    # One play asks for every host at once, and all of them share the cache.
    with locked(cache):
        return ways[module.params["source"]](module)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "package": {"type": "str", "default": "vllm", "choices": ["vllm", "llama-cpp-python"]},
            "version": {"type": "str", "required": True},
            "cache": {"type": "path", "required": True},
            "source": {"type": "str", "default": "sdist", "choices": ["sdist", "git", "archive"]},
            "path": {"type": "path"},
            "sha256": {"type": "str", "default": ""},
            "indexes": {"type": "list", "elements": "str", "default": []},
            "urls": {"type": "list", "elements": "str", "default": []},
            "git_urls": {"type": "list", "elements": "str", "default": []},
            "git_ref": {"type": "str", "default": ""},
            "git_commit": {"type": "str", "default": ""},
            "git_instead_of": {"type": "dict", "default": {}},
            "uv": {"type": "path"},
            "timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    try:
        archive, downloaded = fetch(module)
    except CpufleetError as error:
        module.fail_json(msg=str(error), **error.details)
    # The controller's cache is no part of any host's state: a filled cache is not a change of the host.
    module.exit_json(changed=False, downloaded=downloaded, source_archive=archive)


if __name__ == "__main__":
    main()
