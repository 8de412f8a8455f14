# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Wait for a build with one line of progress every so often, through connection losses."""

from __future__ import annotations

import time
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

display = Display()

# A build outlives a connection; only a host that stays away this long ends the waiting, never the build.
PATIENCE_S = 600
POLL_S = 5


class ActionModule(ActionBase):  # type: ignore[misc]  # ansible-core ships no type information
    """Run the module until the build is done or has failed."""

    TRANSFERS_FILES = False
    MODULE = "cpufleet.vllm.wheel_build"

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Start or attach, then poll; the result is that of the last call."""
        super().run(tmp, task_vars)
        variables = task_vars or {}
        result = self._execute_module(module_name=self.MODULE, task_vars=variables)
        self._told: list[str] = []
        lost_since = 0.0
        while not result.get("failed") and result.get("build", {}).get("phase") == "running":
            self._show(result["build"], variables)
            try:
                result = self._poll(variables, result)
                lost_since = 0.0
            except AnsibleConnectionFailure as error:
                lost_since = lost_since or time.monotonic()
                if time.monotonic() - lost_since > PATIENCE_S:
                    raise
                display.warning(f"connection lost while the build goes on, trying again: {error}")
                time.sleep(POLL_S)
        return result

    def _show(self, build: dict[str, Any], variables: dict[str, Any]) -> None:
        """Print how far the build is; where its log is and what happened to it only once."""
        host = variables.get("inventory_hostname", "host")
        for text in (f"log: {build['log']}", build.get("note", "")):
            if text and text not in self._told:
                self._told.append(text)
                display.display(f"[{host}] {text}")
        display.display(f"[{host}] {build['line']}")

    def _poll(self, variables: dict[str, Any], last: dict[str, Any]) -> dict[str, Any]:
        # The module waits on the host, so that there is one call for each line of progress and none comes late.
        interval = max(1, int(self._task.args.get("progress_interval", 30)))
        arguments = {**self._task.args, "attached": True, "wait": interval}
        result: dict[str, Any] = self._execute_module(
            module_name=self.MODULE, module_args=arguments, task_vars=variables
        )
        if result.get("unreachable"):
            raise AnsibleConnectionFailure(str(result.get("msg", "unreachable")))
        # Whoever waited for a build sees a change, also when its last step only picked up the result.
        result["changed"] = bool(result.get("changed") or last.get("changed"))
        return result
