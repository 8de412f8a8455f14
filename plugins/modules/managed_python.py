#!/usr/bin/python
# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: managed_python
short_description: Have a Python that uv brings
version_added: "0.1.0"
author:
  - The cpufleet maintainers (@cpufleet)
description:
  - Installs a CPython with uv into a folder of its own and names it by a link that stays the same when the last part of
    its version changes. The system's own Python is not touched.
  - Mirrors are tried in order, then what uv is configured with. uv verifies the archive by a digest that it knows, so
    that a mirror can fail but not cheat. A E(UV_PYTHON_INSTALL_MIRROR) in the environment is tried alone.
  - One that is there and runs is kept, also when uv knows a newer one.
extends_documentation_fragment:
  - cpufleet.vllm.attributes
options:
  path:
    description: The folder of the Pythons.
    type: path
    required: true
  version:
    description: The wanted version, with two parts.
    type: str
    required: true
  uv:
    description: The uv command.
    type: path
    required: true
  mirrors:
    description: Addresses or C(file://) folders laid out as the releases of python-build-standalone.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Have a Python 3.12
  cpufleet.vllm.managed_python:
    path: /opt/vllm/tools/python
    version: "3.12"
    uv: /opt/vllm/tools/uv/bin/uv
"""

RETURN = r"""
interpreter:
  description: The interpreter, by its lasting name.
  returned: always
  type: str
  sample: /opt/vllm/tools/python/3.12/bin/python3.12
mirror:
  description: The mirror that it came from; empty for what uv is configured with, or where nothing was installed.
  returned: always
  type: str
"""

import glob
import os
import re

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError

CONFIGURED = ""
MIRROR = "UV_PYTHON_INSTALL_MIRROR"


class Python:
    """One managed Python of a host."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.folder: str = module.params["path"]
        self.version: str = module.params["version"]
        self.link = os.path.join(self.folder, self.version)
        self.interpreter = os.path.join(self.link, "bin", f"python{self.version}")

    def runs(self, interpreter: str) -> bool:
        """Return whether ``interpreter`` is there and runs."""
        if not os.access(interpreter, os.X_OK):
            return False
        status, _out, _error = self.module.run_command([interpreter, "-I", "-c", "import venv"])
        return bool(status == 0)

    def install(self) -> str:
        """Install from the first mirror that has it, set the link, and return that mirror."""
        os.makedirs(self.folder, mode=0o755, exist_ok=True)
        own = os.environ.get(MIRROR)
        failures = []
        for mirror in [own] if own else [*self.module.params["mirrors"], CONFIGURED]:
            problem = self.fetch(mirror)
            if not problem:
                self.point()
                return mirror
            failures.append(f"{mirror or 'from where uv is configured to'}: {problem}")
        raise CpufleetError(
            f"uv cannot install Python {self.version} into {self.folder}: {'; '.join(failures)}",
            "Name a mirror that has it in toolchain_mirror_urls.python, or install a Python on the host and set "
            "toolchain_python to system",
        )

    def fetch(self, mirror: str) -> str:
        """Let uv install from ``mirror``; return why that failed, "" when it did not."""
        command = [self.module.params["uv"], "python", "install", "--no-bin", "--install-dir", self.folder]
        if self.places():
            # uv would take one that is there for one that runs.
            command.append("--reinstall")
        environment = {"UV_PYTHON_DOWNLOADS": "manual", **({MIRROR: mirror} if mirror else {})}
        status, out, error = self.module.run_command([*command, f"cpython-{self.version}"], environ_update=environment)
        if not status:
            return "" if self.installed() else "uv says that it is there, but it does not run"
        words = " ".join((error or out).split())
        return words[max(0, words.find("error:")) :][:500]

    def places(self) -> list[str]:
        """Return the installations of the wanted version, newest first."""
        found = glob.glob(os.path.join(self.folder, f"cpython-{self.version}.*"))
        real = [name for name in found if not os.path.islink(name)]
        return sorted(real, key=lambda name: [int(part) for part in re.findall(r"\d+", name)], reverse=True)

    def installed(self) -> str:
        """Return the newest installation of the wanted version that runs, "" for none."""
        for place in self.places():
            if self.runs(os.path.join(place, "bin", f"python{self.version}")):
                return os.path.basename(place)
        return ""

    def point(self) -> None:
        """Set the lasting name to what is installed, in one step."""
        temporary = f"{self.link}.new"
        if os.path.lexists(temporary):
            os.unlink(temporary)
        os.symlink(self.installed(), temporary)
        os.replace(temporary, self.link)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "version": {"type": "str", "required": True},
            "uv": {"type": "path", "required": True},
            "mirrors": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    if not re.fullmatch(r"3\.\d+", module.params["version"]):
        module.fail_json(msg=f"{module.params['version']!r} is no Python version of two parts. Write it as 3.12.")
    python = Python(module)
    changed, mirror = not python.runs(python.interpreter), ""
    try:
        if changed and not module.check_mode:
            mirror = python.install()
    except CpufleetError as error:
        module.fail_json(msg=str(error), **error.details)
    diff = {"before": "" if changed else python.interpreter + "\n", "after": python.interpreter + "\n"}
    module.exit_json(changed=changed, interpreter=python.interpreter, mirror=mirror, diff=diff)


if __name__ == "__main__":
    main()
