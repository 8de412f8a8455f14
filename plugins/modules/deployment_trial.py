#!/usr/bin/python
# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: deployment_trial
short_description: Start a deployment beside the one that serves, on a spare port
version_added: "0.1.0"
author:
  - The cpufleet maintainers (@cpufleet)
description:
  - Starts the unit that the deployment carries under another name, on a free port of the loopback, so that it can be
    asked before it takes the place of what serves. It is not restarted when it ends, is the first to be ended when
    memory runs out, and is gone after a restart of the host.
  - It is started only where O(unit) runs, and where memory holds both. That is the MemoryMax of the new one, what the
    running one and O(others) may still grow by up to their own, and 512 MiB.
extends_documentation_fragment:
  - cpufleet.vllm.attributes
options:
  root:
    description: The root folder of the installation.
    type: path
    default: /opt/vllm
  id:
    description: The deployment. Required when O(state=present).
    type: str
  unit:
    description: The name of the service without its suffix.
    type: str
    default: vllm
  others:
    description: Further services of the host, without their suffix, whose memory is left to them.
    type: list
    elements: str
    default: []
  state:
    description: Whether the trial is to run.
    type: str
    choices: [present, absent]
    default: present
"""

EXAMPLES = r"""
- name: Start a deployment beside the one that serves
  cpufleet.vllm.deployment_trial:
    id: 0123456789ab
  register: tried

- name: End the trial
  cpufleet.vllm.deployment_trial:
    state: absent
"""

RETURN = r"""
started:
  description: Whether the deployment was (or would be) started beside the other.
  returned: always
  type: bool
reason:
  description: Why it was not, else empty.
  returned: always
  type: str
url:
  description: The address of the trial, empty when it was not started.
  returned: always
  type: str
name:
  description: The name of its model, empty when it was not started.
  returned: always
  type: str
unit:
  description: The unit of the trial.
  returned: always
  type: str
"""

import os
import socket
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._host_memory import parse_meminfo
from ansible_collections.cpufleet.vllm.plugins.module_utils._io import read_json, read_text, write_atomic
from ansible_collections.cpufleet.vllm.plugins.module_utils._trial import room, trial_unit

# Gone after a restart of the host.
UNIT_FOLDER = "/run/systemd/system"
MEMINFO = "/proc/meminfo"


class Trial:
    """The reader and writer of the trial's unit."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.serving = f"{module.params['unit']}.service"
        self.unit = f"{module.params['unit']}-trial.service"
        self.path = os.path.join(UNIT_FOLDER, self.unit)
        self.folder = os.path.join(module.params["root"], "deployments", module.params["id"] or "")

    def systemctl(self, *words: str) -> tuple[int, str]:
        """Run systemctl and return status and output."""
        status, out, error = self.module.run_command(["systemctl", *words])
        return status, str(out + error).strip()

    def begin(self) -> dict[str, Any]:
        """Start it where both find room; return the result."""
        if self.systemctl("is-active", self.serving)[1] != "active":
            return self.result(reason=f"{self.serving} does not run")
        source = os.path.join(self.folder, self.serving)
        if self.module.check_mode and not os.path.exists(source):
            return self.result(reason="the deployment is not written yet")
        text = read_text(source)
        shown, *others = (
            self.systemctl("show", f"{unit}.service", "--property=MemoryMax", "--property=MemoryCurrent")[1]
            for unit in (self.module.params["unit"], *self.module.params["others"])
        )
        space = room(text, shown, parse_meminfo(read_text(MEMINFO)).available, others)
        if not space.fits:
            return self.result(reason=space.text())
        port = spare_port()
        name = str(read_json(os.path.join(self.folder, "manifest.json"))["name"])
        if not self.module.check_mode:
            write_atomic(self.path, trial_unit(text, port).encode(), 0o644)
            self.apply("daemon-reload")
            self.apply("restart", self.unit)
        return self.result(started=True, url=f"http://127.0.0.1:{port}", name=name)

    def result(self, started: bool = False, **values: str) -> dict[str, Any]:
        """Return a whole result."""
        told = {"reason": "", "url": "", "name": "", "unit": self.unit, **values}
        return {"changed": started, "started": started, **told}

    def apply(self, *words: str) -> None:
        """Run systemctl; raise CpufleetError when it fails."""
        status, text = self.systemctl(*words)
        if status:
            raise CpufleetError(
                f"systemctl {' '.join(words)} failed: {text}", f"See journalctl -u {self.unit} on the host"
            )

    def end(self) -> dict[str, Any]:
        """Stop it and remove its unit; return the result."""
        there = os.path.exists(self.path)
        if there and not self.module.check_mode:
            self.apply("stop", self.unit)
            os.unlink(self.path)
            self.apply("daemon-reload")
            self.systemctl("reset-failed", self.unit)
        return {**self.result(), "changed": there}


def spare_port() -> int:
    """Return a port of the loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "default": "/opt/vllm"},
            "id": {"type": "str"},
            "unit": {"type": "str", "default": "vllm"},
            "others": {"type": "list", "elements": "str", "default": []},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        },
        required_if=[("state", "present", ["id"])],
        supports_check_mode=True,
    )
    trial = Trial(module)
    try:
        result = trial.begin() if module.params["state"] == "present" else trial.end()
    except CpufleetError as error:
        module.fail_json(msg=str(error), **error.details)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
