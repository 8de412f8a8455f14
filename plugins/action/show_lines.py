# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Print lines on the controller, whatever the output callback makes of results."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display


class ActionModule(ActionBase):  # type: ignore[misc]  # ansible-core ships no type information
    """Print the lines and run nothing anywhere."""

    TRANSFERS_FILES = False
    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return how many lines were printed."""
        super().run(tmp, task_vars)
        spec = {"lines": {"type": "list", "elements": "str", "required": True}}
        _result, arguments = self.validate_argument_spec(argument_spec=spec)
        display = Display()
        for line in arguments["lines"]:
            display.display(line)
        return {"changed": False, "shown": len(arguments["lines"])}
