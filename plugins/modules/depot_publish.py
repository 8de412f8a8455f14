#!/usr/bin/python
# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: depot_publish
short_description: Publish files in the depot, whole and verified or not at all
version_added: "0.1.0"
author:
  - The cpufleet maintainers (@cpufleet)
description:
  - Runs on the depot. Takes files that were uploaded to it, or that lie there, verifies their SHA-256 where nobody can
    change them any more, and renames them into what is served. A reader sees the old file, the whole new one, or none.
  - The manifest is written after the files that it names, and C(index.json) after the manifest.
  - Without O(folder) only C(index.json) is brought up to date, as after something was removed by hand.
extends_documentation_fragment:
  - cpufleet.vllm.attributes
attributes:
  diff_mode:
    support: full
    details:
      - The names of the files that are published.
options:
  root:
    description: The root folder of the depot. What is served lies in C(public) below it.
    type: path
    required: true
  folder:
    description: Where the files go, such as V(wheels/0123456789ab).
    type: str
    default: ""
  files:
    description: The files.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name relative to O(folder).
        type: str
        required: true
      size:
        description: Size in bytes; it is not looked at.
        type: int
      sha256:
        description: The digest that it must have.
        type: str
        required: true
  source:
    description:
      - The folder on the depot that has the files under their names, and keeps them. Without it they are what was
        uploaded under their digests, and is moved.
    type: path
  manifest:
    description: What is written beside the files, last.
    type: dict
    default: {}
  manifest_name:
    description: The name of the manifest, relative to what is served; C(manifest.json) in O(folder) when empty.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Publish an uploaded wheel
  cpufleet.vllm.depot_publish:
    root: /srv/vllm-depot
    folder: wheels/0123456789ab
    files:
      - name: vllm-0.6.5+cpu-cp38-abi3-linux_x86_64.whl
        sha256: 0cafd6b3be45ede8f30b8c6dd70bc584f2d8d5d7e1098c3fdf6f5778237ac5fd
    manifest: "{{ wheel_manifest }}"
"""

RETURN = r"""
published:
  description: The names of the files that were missing or differed, relative to what is served.
  returned: success
  type: list
  elements: str
"""

import contextlib
import os
import shutil
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.cpufleet.vllm.plugins.module_utils._depot import (
    check_name,
    index_of,
    manifest_kind,
    stale_files,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._download import locked
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._files import digest_files, list_files
from ansible_collections.cpufleet.vllm.plugins.module_utils._identity import digest
from ansible_collections.cpufleet.vllm.plugins.module_utils._io import read_json, sha256_file, write_json

FILE_MODE = 0o644
FOLDER_MODE = 0o755


class Depot:
    """The reader and writer of a depot's folders."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.public = os.path.join(root, "public")
        self.staging = os.path.join(root, "staging")

    def stale(self, folder: str, files: list[dict[str, Any]], remember: bool) -> list[dict[str, Any]]:
        """Return the entries of ``files`` that are not in ``folder``. Digests of large files are remembered."""
        memory = os.path.join(self.root, "digests", digest(folder)[:16] + ".json") if remember else ""
        place = os.path.join(self.public, folder)
        wanted = {entry["name"] for entry in files}
        there = {name: status for name, status in list_files(place).items() if name in wanted}
        return stale_files(files, digest_files(place, there, memory))

    def take(self, entry: dict[str, Any], source: str | None) -> str:
        """Bring a file to where only root may write, and return that place."""
        staged = os.path.join(self.staging, entry["sha256"])
        given = os.path.join(source, entry["name"]) if source else os.path.join(self.root, "incoming", entry["sha256"])
        try:
            if source:
                shutil.copyfile(given, staged)
            else:
                os.replace(given, staged)
        except OSError as error:
            raise CpufleetError(
                f"Cannot publish {entry['name']} from {given}: {error.strerror}",
                "Check free space there" if source else "Upload it to the depot first",
                path=given,
            ) from error
        return staged

    def publish(self, folder: str, entry: dict[str, Any], source: str | None) -> None:
        """Verify one file and rename it into what is served."""
        target = os.path.join(self.public, folder, entry["name"])
        staged = self.take(entry, source)
        try:
            found = sha256_file(staged)
            if found != entry["sha256"]:
                raise CpufleetError(
                    f"Refused to publish {entry['name']}: its SHA-256 is {found}, expected {entry['sha256']}",
                    "Upload it again; what was served before is untouched",
                )
            settle(staged)
            make_folders(self.public, os.path.dirname(target))
            os.replace(staged, target)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(staged)

    def forget(self, entries: list[dict[str, Any]]) -> None:
        """Remove uploads that nothing is to be made of, such as a second one of what is served already."""
        for entry in entries:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self.root, "incoming", entry["sha256"]))

    def index(self) -> dict[str, Any]:
        """Return the index of what is served now."""
        names = [name for name in list_files(self.public) if manifest_kind(name)[0]]
        return index_of({name: read_json(os.path.join(self.public, name), default={}) for name in names})


def settle(path: str) -> None:
    """Make a file root's own, readable to all, and safe on the disk."""
    if os.geteuid() == 0:
        os.chown(path, 0, 0)
    os.chmod(path, FILE_MODE)
    with open(path, "rb") as stream:
        os.fsync(stream.fileno())


def make_folders(base: str, path: str) -> None:
    """Make the folders between ``base`` and ``path``, whatever the umask."""
    if os.path.isdir(path) or path == base:
        return
    make_folders(base, os.path.dirname(path))
    os.mkdir(path)
    os.chmod(path, FOLDER_MODE)


def write_stale(path: str, document: dict[str, Any], check: bool) -> bool:
    """Write ``document`` where the file at ``path`` says something else; return whether it does."""
    changed = bool(read_json(path, default={}) != document)
    if changed and not check:
        write_json(path, document, FILE_MODE)
    return changed


def run(module: AnsibleModule) -> tuple[bool, list[str]]:
    """Publish what is asked for; return whether anything changed, and which files."""
    parameters, check = module.params, module.check_mode
    depot, folder = Depot(parameters["root"]), parameters["folder"]
    manifest_name = parameters["manifest_name"] or folder + "/manifest.json"
    if not folder:
        return write_stale(os.path.join(depot.public, "index.json"), depot.index(), check), []
    check_name(folder)
    check_name(manifest_name)
    stale = depot.stale(folder, parameters["files"], not check)
    if not check:
        for entry in stale:
            depot.publish(folder, entry, parameters["source"])
        depot.forget(parameters["files"] if not parameters["source"] else [])
        make_folders(depot.public, os.path.dirname(os.path.join(depot.public, manifest_name)))
    changed = write_stale(os.path.join(depot.public, manifest_name), parameters["manifest"], check)
    if not check:
        changed |= write_stale(os.path.join(depot.public, "index.json"), depot.index(), check)
    return changed or bool(stale), [f"{folder}/{entry['name']}" for entry in stale]


def main() -> None:
    """Run the module."""
    entry = {
        "name": {"type": "str", "required": True},
        "size": {"type": "int"},
        "sha256": {"type": "str", "required": True},
    }
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "folder": {"type": "str", "default": ""},
            "files": {"type": "list", "elements": "dict", "default": [], "options": entry},
            "source": {"type": "path"},
            "manifest": {"type": "dict", "default": {}},
            "manifest_name": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    try:
        if module.check_mode or not os.path.isdir(os.path.join(module.params["root"], "staging")):
            changed, published = run(module)
        else:
            # Two builders may publish at once, and both write the index.
            with locked(os.path.join(module.params["root"], "staging")):
                changed, published = run(module)
    except CpufleetError as error:
        module.fail_json(msg=str(error), **error.details)
    except OSError as error:
        module.fail_json(
            msg=f"Cannot write to the depot {module.params['root']}: {error.strerror}. Run the role depot."
        )
    diff = {"before": "", "after": "".join(f"{name}\n" for name in published)}
    module.exit_json(changed=changed, published=published, diff=diff)


if __name__ == "__main__":
    main()
