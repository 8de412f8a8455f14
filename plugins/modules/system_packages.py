#!/usr/bin/python
# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: system_packages
short_description: Install distribution packages by the command line of apt or dnf
version_added: "0.1.0"
author:
  - The cpufleet maintainers (@cpufleet)
description:
  - Installs the packages that are missing, and nothing else. What is there is neither upgraded nor removed, unless
    O(newer) asks for it.
  - Waits for a package manager that is at work (the first minutes of a fresh VM), finishes half-configured packages,
    refreshes stale package lists only when something has to be installed, and never asks a question.
  - The command lines are used, since the Python bindings that the core modules need are missing on small images,
    and on EL8-class hosts belong to a Python that Ansible no longer drives.
extends_documentation_fragment:
  - cpufleet.vllm.attributes
attributes:
  diff_mode:
    support: full
    details:
      - The names of the packages that are missing.
options:
  name:
    description: The packages.
    type: list
    elements: str
    required: true
  optional:
    description:
      - Packages to install as well where the host's package sources have them. Those that they do not have are named in
        RV(unavailable).
    type: list
    elements: str
    default: []
  find:
    description:
      - Names of programs and libraries that packages bring, whose path RV(found) tells. What counts is the file that is
        there, whatever the package is called in this release of the distribution.
    type: list
    elements: str
    default: []
  manager:
    description: The package manager's family.
    type: str
    choices: [apt, dnf]
    required: true
  target_release:
    description:
      - An apt suite that the packages are to come from, such as one that M(cpufleet.vllm.package_suite) offers. What
        they need in a newer version than the host has moves with them, and nothing else.
    type: str
    default: ""
  newer:
    description:
      - Whether O(name) is to come in the version of O(target_release) where the host has an older one, as a libc that a
        wheel needs.
    type: bool
    default: false
  lock_timeout:
    description: Seconds to wait for another package manager to finish.
    type: int
    default: 600
"""

EXAMPLES = r"""
- name: Install a compiler
  cpufleet.vllm.system_packages:
    name:
      - g++
      - libnuma-dev
    manager: apt

- name: Install tcmalloc where the distribution has it, and learn where it is
  cpufleet.vllm.system_packages:
    name:
      - libnuma1
    optional:
      - libtcmalloc-minimal4
    find:
      - libtcmalloc_minimal.so.4
    manager: apt
"""

RETURN = r"""
installed:
  description: The packages that were missing and are installed now (or would be).
  returned: always
  type: list
  elements: str
unavailable:
  description: The packages of O(optional) that are missing and that the package sources do not have.
  returned: success
  type: list
  elements: str
found:
  description: The path of each file of O(find), V("") where it is not there.
  returned: success
  type: dict
  sample:
    libtcmalloc_minimal.so.4: /usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4
moved:
  description: The packages that were there and got another version from O(target_release).
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: The package.
      type: str
    old:
      description: The version that was there.
      type: str
    new:
      description: The version that is there now.
      type: str
"""

import os
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._packages import (
    explain_failure,
    file_places,
    install_command,
    knows_command,
    lock_held,
    missing_apt,
    missing_rpm,
    moved_packages,
    refresh_command,
    repair_command,
    replaced_packages,
    simulate_command,
)

LOCK_POLL_S = 3
QUIET = {
    "DEBIAN_FRONTEND": "noninteractive",
    "NEEDRESTART_MODE": "a",
    "NEEDRESTART_SUSPEND": "1",
    "UCF_FORCE_CONFFOLD": "1",
    "LC_ALL": "C.UTF-8",
}


class Packages:
    """The reader and writer of one host's package database."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.manager: str = module.params["manager"]
        self.wait: int = module.params["lock_timeout"]
        self.deadline = time.monotonic() + self.wait
        self.unrefreshed = ""
        self.refreshed = False
        self.release: str = module.params["target_release"] if self.manager == "apt" else ""
        self.newer = bool(module.params["newer"] and self.release)

    def missing(self, names: list[str]) -> list[str]:
        """Return which of ``names`` are not installed, in order."""
        if not names:
            return []
        if self.manager == "apt":
            command = ["dpkg-query", "-W", "-f=${Package} ${db:Status-Status} ${Provides}\\n"]
            _status, out, _error = self.module.run_command(command)
            return missing_apt(names, out)
        _status, out, _error = self.module.run_command(["rpm", "-q", "--whatprovides", *names])
        return missing_rpm(names, out)

    def install(self, names: list[str]) -> list[dict[str, str]]:
        """Install ``names`` and return what else moved; raise CpufleetError with the package manager's own words."""
        self.prepare()
        moved = moved_packages(self.run(simulate_command(names, self.release), fatal=False)) if self.release else []
        self.run(install_command(self.manager, names, self.wait, self.release), fatal=True)
        return moved

    def prepare(self) -> None:
        """Finish what was cut off and refresh the package lists, once."""
        if self.refreshed:
            return
        self.refreshed = True
        for command in repair_command(self.manager):
            self.run(command, fatal=False)
        status, refreshed = self.attempt(refresh_command(self.manager, self.wait))
        # One broken source of many does no harm; but where a package is not found, it is the cause.
        self.unrefreshed = refreshed if status else ""

    def behind(self, names: list[str], check: bool) -> list[str]:
        """Return which of ``names`` are missing or older than in the suite; all where check mode cannot know."""
        command = simulate_command(names, self.release)
        status, output = self.attempt(command)
        if status and check:
            return names
        if status:
            self.prepare()
            output = self.run(command, fatal=True)
        return replaced_packages(names, output)

    def unavailable(self, names: list[str], may_refresh: bool) -> list[str]:
        """Return which of ``names`` the package sources do not have; lists that name one may only be old."""
        absent = [name for name in names if self.attempt(knows_command(self.manager, name))[0]]
        if absent and may_refresh and not self.refreshed:
            self.prepare()
            return self.unavailable(absent, may_refresh=False)
        return absent

    def run(self, command: list[str], fatal: bool) -> str:
        """Run one command and return what it printed; raise CpufleetError where that fails and is ``fatal``."""
        status, output = self.attempt(command)
        if status and fatal:
            problem, remedy = explain_failure(command, output)
            if self.unrefreshed and not lock_held(output):
                problem += f" (and {explain_failure(refresh_command(self.manager, self.wait), self.unrefreshed)[0]})"
            raise CpufleetError(problem, remedy, command=command)
        return output

    def attempt(self, command: list[str]) -> tuple[int, str]:
        """Run one command without questions, again while another process holds a lock; return status and output."""
        while True:
            status, out, error = self.module.run_command(command, environ_update={**os.environ, **QUIET})
            if not status or not lock_held(out + error) or time.monotonic() > self.deadline:
                return status, out + error
            time.sleep(LOCK_POLL_S)


def find_files(names: list[str]) -> dict[str, str]:
    """Return where each of ``names`` is, "" for one that is nowhere."""
    machine = os.uname().machine
    return {name: next(filter(os.path.exists, file_places(name, machine)), "") for name in names}


def bring(packages: Packages, wanted: list[str], check: bool) -> list[dict[str, str]]:
    """Install ``wanted`` and look whether they are there; return what else moved."""
    if not wanted or check:
        return []
    moved = packages.install(wanted)
    still = packages.behind(wanted, check) if packages.newer else packages.missing(wanted)
    if still:
        raise CpufleetError(
            f"Installed {', '.join(wanted)}, but {', '.join(still)} is still missing",
            "Look at the package manager's log on the host",
        )
    return moved


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "list", "elements": "str", "required": True},
            "optional": {"type": "list", "elements": "str", "default": []},
            "find": {"type": "list", "elements": "str", "default": []},
            "manager": {"type": "str", "choices": ["apt", "dnf"], "required": True},
            "target_release": {"type": "str", "default": ""},
            "newer": {"type": "bool", "default": False},
            "lock_timeout": {"type": "int", "default": 600},
        },
        supports_check_mode=True,
    )
    packages = Packages(module)
    names = module.params["name"]
    try:
        wanted = packages.behind(names, module.check_mode) if packages.newer else packages.missing(names)
        extra = packages.missing(module.params["optional"])
        if wanted and extra and not module.check_mode:
            packages.prepare()
        unavailable = packages.unavailable(extra, may_refresh=not module.check_mode)
        wanted += [name for name in extra if name not in unavailable]
        moved = bring(packages, wanted, module.check_mode)
    except CpufleetError as error:
        module.fail_json(msg=str(error), **error.details)
    module.exit_json(
        changed=bool(wanted),
        installed=wanted,
        unavailable=unavailable,
        found=find_files(module.params["find"]),
        moved=moved,
        diff={"before": "", "after": "".join(f"{name}\n" for name in wanted)},
    )


if __name__ == "__main__":
    main()
