#!/usr/bin/python
# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: deployment_switch
short_description: Make a deployment the one that serves
version_added: "0.1.0"
author:
  - The cpufleet maintainers (@cpufleet)
description:
  - Installs the unit file that the deployment carries, points C(current) at the deployment, and restarts the service
    when anything changed or when it does not run. The service is enabled, so that it comes back after a restart of the
    host.
  - A deployment whose release or model is gone is refused.
  - A switch that was interrupted is finished by the next call.
  - Switching back is the same call with the older deployment.
extends_documentation_fragment:
  - cpufleet.vllm.attributes
options:
  root:
    description: The root folder of the installation.
    type: path
    default: /opt/vllm
  id:
    description: The deployment.
    type: str
    required: true
  unit:
    description: The name of the service without its suffix.
    type: str
    default: vllm
"""

EXAMPLES = r"""
- name: Serve the new deployment
  cpufleet.vllm.deployment_switch:
    id: 0123456789ab
"""

RETURN = r"""
previous:
  description: The deployment that served before, empty where there was none.
  returned: always
  type: str
restarted:
  description: Whether the service was (or would be) restarted.
  returned: always
  type: bool
"""

import json
import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.cpufleet.vllm.plugins.module_utils._deployments import SERVED, next_served, read_served
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._io import read_bytes, read_json, read_text, write_atomic

UNIT_FOLDER = "/etc/systemd/system"


class Switch:
    """The reader and writer of one service's unit and ``current`` link."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.unit = f"{module.params['unit']}.service"
        self.unit_path = os.path.join(UNIT_FOLDER, self.unit)
        self.link = os.path.join(module.params["root"], "current")
        # There from the first change to the restart; it holds the id that served before.
        self.pending = self.link + ".pending"
        self.served = os.path.join(module.params["root"], SERVED)
        self.target = os.path.join("deployments", module.params["id"])
        self.source = os.path.join(module.params["root"], self.target, self.unit)

    def current(self) -> str:
        """Return the id that ``current`` points at."""
        return os.path.basename(os.readlink(self.link)) if os.path.islink(self.link) else ""

    def previous(self) -> str:
        """Return the id that served last: before a switch that was interrupted, where there was one."""
        return read_text(self.pending, default=self.current()).strip()

    def require(self) -> None:
        """Raise CpufleetError unless the deployment is there."""
        if not os.path.exists(self.source):
            folder = os.path.dirname(os.path.dirname(self.source))
            there = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
            raise CpufleetError(
                f"There is no deployment {self.module.params['id']} with a unit {self.unit} in {folder}",
                f"Name one of {', '.join(there)}" if there else "Run the playbook site.yml first",
                deployments=there,
            )
        manifest = read_json(os.path.join(os.path.dirname(self.source), "manifest.json"), default={})
        release, model = manifest.get("release"), manifest.get("model")
        needed = [os.path.join(self.module.params["root"], "releases", release)] if release else []
        for path in [*needed, *([model] if model else [])]:
            if not os.path.exists(path):
                raise CpufleetError(
                    f"The deployment {self.module.params['id']} cannot serve: {path} is missing",
                    "Name another one, or run the playbook site.yml",
                    path=path,
                )

    def systemctl(self, *words: str) -> tuple[int, str]:
        """Run systemctl and return status and output."""
        status, out, error = self.module.run_command(["systemctl", *words])
        return status, str(out + error).strip()

    def differences(self) -> tuple[bool, bool, bool]:
        """Return whether (unit file, link, running state) differ from what is wanted."""
        wanted = read_text(self.source, default="") if self.module.check_mode else read_text(self.source)
        unit = read_text(self.unit_path, default="") != wanted or not wanted
        link = self.current() != self.module.params["id"] or os.path.exists(self.pending)
        state = self.systemctl("is-active", self.unit)[1] not in ("active", "activating")
        return unit, link, state or self.systemctl("is-enabled", self.unit)[1] != "enabled"

    def apply(self, unit: bool) -> None:
        """Install the unit, move the link and restart."""
        if not os.path.exists(self.pending):
            write_atomic(self.pending, f"{self.current()}\n".encode())
        if unit:
            write_atomic(self.unit_path, read_bytes(self.source), 0o644)
        temporary = self.link + ".new"
        if os.path.lexists(temporary):
            os.unlink(temporary)
        os.symlink(self.target, temporary)
        os.replace(temporary, self.link)
        for words in (("daemon-reload",), ("enable", self.unit), ("reset-failed", self.unit), ("restart", self.unit)):
            status, text = self.systemctl(*words)
            if status and words[0] != "reset-failed":
                raise CpufleetError(
                    f"systemctl {' '.join(words)} failed: {text}",
                    f"See journalctl -u {self.unit} on the host",
                    previous=self.previous(),
                )
        served = next_served(read_served(read_json(self.served, default={})), self.previous(), self.module.params["id"])
        write_atomic(self.served, (json.dumps({"served": served}) + "\n").encode(), 0o644)
        os.unlink(self.pending)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "default": "/opt/vllm"},
            "id": {"type": "str", "required": True},
            "unit": {"type": "str", "default": "vllm"},
        },
        supports_check_mode=True,
    )
    switch = Switch(module)
    previous = switch.previous()
    try:
        if not module.check_mode:
            switch.require()
        unit, link, stopped = switch.differences()
        before, after = read_text(switch.unit_path, default=""), read_text(switch.source, default="")
        changed = unit or link or stopped
        if changed and not module.check_mode:
            switch.apply(unit)
    except CpufleetError as error:
        module.fail_json(msg=str(error), **error.details)
    module.exit_json(
        changed=changed,
        previous=previous,
        restarted=changed,
        diff=[
            {"before_header": switch.unit_path, "after_header": switch.unit_path, "before": before, "after": after},
            {"before": f"current -> {previous}\n", "after": f"current -> {module.params['id']}\n"},
        ],
    )


if __name__ == "__main__":
    main()
