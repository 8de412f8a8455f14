#!/usr/bin/python
# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: bundle_pack
short_description: Pack downloaded wheels and distribution packages for hosts without network
version_added: "0.1.0"
author:
  - The cpufleet maintainers (@cpufleet)
description:
  - Describes the wheels in C(wheels) and the Debian packages in C(apt) below O(path) from their own metadata, writes a
    page of links and an index of packages, so that both folders can be installed from, and packs all into one file.
  - The same files give the same bytes.
extends_documentation_fragment:
  - cpufleet.vllm.attributes
attributes:
  check_mode:
    support: full
    details:
      - What is downloaded already is described, nothing is packed.
  diff_mode:
    support: none
    details:
      - The files are returned.
options:
  path:
    description: The folder that holds C(wheels) and C(apt).
    type: path
    required: true
  dest:
    description: The file to make.
    type: path
    required: true
  lock:
    description: The lock that the wheels are of, for messages.
    type: str
    required: true
  distribution:
    description: What the packages are of, such as V(debian).
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Pack what was downloaded
  cpufleet.vllm.bundle_pack:
    path: /opt/vllm/bundle/make
    dest: /opt/vllm/bundle/packages.tar
    lock: /opt/vllm/locks/0.6.5.txt
    distribution: debian
  register: packed
"""

RETURN = r"""
files:
  description: Path, size, SHA-256, name, version, licence and source of every file, sorted by path.
  returned: success
  type: list
  elements: dict
archive:
  description: Path, size and SHA-256 of the packed file.
  returned: success, not in check mode
  type: dict
"""

import os
import tarfile
import zipfile
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.cpufleet.vllm.plugins.module_utils._bundle import (
    deb_facts,
    only_wheels,
    package_stanza,
    wheel_facts,
    wheel_page,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._io import file_size, sha256_file, write_atomic

MODE = 0o644


def entry(path: str, name: str, facts: dict[str, str]) -> dict[str, Any]:
    """Return what the manifest says of the file ``name`` below ``path``."""
    file = os.path.join(path, name)
    return {"path": name, "size": file_size(file), "sha256": sha256_file(file), **facts}


def names_in(folder: str, ending: str = "") -> list[str]:
    """Return the names of the files in ``folder``, sorted."""
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return [name for name in names if os.path.isfile(os.path.join(folder, name)) and name.endswith(ending)]


def read_wheel(path: str) -> dict[str, str]:
    """Return the facts of a wheel."""
    try:
        with zipfile.ZipFile(path) as wheel:
            (name,) = [
                name for name in wheel.namelist() if name.count("/") == 1 and name.endswith(".dist-info/METADATA")
            ]
            return wheel_facts(wheel.read(name).decode("utf-8", "replace"))
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise CpufleetError(f"Cannot read the wheel {path}: {error}", "Remove it and run again", path=path) from error


class Packages:
    """The reader of Debian packages, by dpkg's own command."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module

    def control(self, path: str) -> str:
        """Return the control file of a package."""
        status, out, error = self.module.run_command(["dpkg-deb", "--field", path])
        if status:
            raise CpufleetError(
                f"Cannot read the package {path}: {error.strip()}", "Remove it and run again", path=path
            )
        return str(out)

    def copyright(self, path: str) -> str:
        """Return the text about licences in a package, or in the one beside it that its folder is a link to."""
        name = os.path.basename(path).split("_")[0]
        script = 'dpkg-deb --fsys-tarfile "$1" | tar -xO "./usr/share/doc/$2/copyright"'
        status, out, _error = self.module.run_command(["sh", "-c", script, "sh", path, name])
        if not status:
            return str(out)
        script = 'dpkg-deb --fsys-tarfile "$1" | tar -tv "./usr/share/doc/$2"'
        status, out, _error = self.module.run_command(["sh", "-c", script, "sh", path, name])
        link = str(out).strip().rpartition(" -> ")[2] if not status and " -> " in str(out) else ""
        beside = [file for file in names_in(os.path.dirname(path), ".deb") if link and file.startswith(f"{link}_")]
        return self.copyright(os.path.join(os.path.dirname(path), beside[0])) if beside else ""


def describe_wheels(module: AnsibleModule) -> list[dict[str, Any]]:
    """Return the entries of the wheels."""
    path = module.params["path"]
    folder = os.path.join(path, "wheels")
    names = [name for name in names_in(folder) if name != "index.html"]
    only_wheels(names, module.params["lock"])
    return [entry(path, f"wheels/{name}", read_wheel(os.path.join(folder, name))) for name in names]


def describe_packages(module: AnsibleModule) -> tuple[list[dict[str, Any]], str]:
    """Return the entries of the distribution's packages, and their index."""
    path, reader = module.params["path"], Packages(module)
    folder, entries, stanzas = os.path.join(path, "apt"), [], []
    for name in names_in(folder, ".deb"):
        file = os.path.join(folder, name)
        control = reader.control(file)
        facts = deb_facts(control, reader.copyright(file), module.params["distribution"])
        found = entry(path, f"apt/{name}", facts)
        entries.append(found)
        stanzas.append(package_stanza(control, name, found["size"], found["sha256"]))
    return entries, "\n".join(stanzas)


def pack(path: str, names: list[str], dest: str) -> None:
    """Pack the files ``names`` below ``path`` so that only their names and bytes count."""
    partial = dest + ".part"
    try:
        with tarfile.open(partial, "w", format=tarfile.GNU_FORMAT) as archive:
            for name in sorted(names):
                member = tarfile.TarInfo(name)
                member.size, member.mode = file_size(os.path.join(path, name)), MODE
                with open(os.path.join(path, name), "rb") as stream:
                    archive.addfile(member, stream)
        # Whatever the umask: it is fetched without root.
        os.chmod(partial, MODE)
        os.replace(partial, dest)
    except OSError as error:
        raise CpufleetError(f"Cannot write {dest}: {error.strerror}", "Free space there", path=dest) from error


def run(module: AnsibleModule) -> dict[str, Any]:
    """Describe, and unless in check mode pack; return what the module exits with."""
    path, dest = module.params["path"], module.params["dest"]
    wheels = describe_wheels(module)
    packages, index = describe_packages(module)
    files = sorted(wheels + packages, key=lambda file: str(file["path"]))
    if module.check_mode:
        return {"changed": True, "files": files}
    write_atomic(os.path.join(path, "wheels", "index.html"), wheel_page(wheels).encode(), MODE)
    write_atomic(os.path.join(path, "apt", "Packages"), index.encode(), MODE)
    before = sha256_file(dest) if os.path.exists(dest) else ""
    pack(path, [file["path"] for file in files] + ["wheels/index.html", "apt/Packages"], dest)
    archive = {"path": dest, "size": file_size(dest), "sha256": sha256_file(dest)}
    return {"changed": archive["sha256"] != before, "files": files, "archive": archive}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "dest": {"type": "path", "required": True},
            "lock": {"type": "str", "required": True},
            "distribution": {"type": "str", "required": True},
        },
        supports_check_mode=True,
    )
    try:
        result = run(module)
    except CpufleetError as error:
        module.fail_json(msg=str(error), **error.details)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
