# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What git is told by the environment."""

from __future__ import annotations

from typing import Any, Callable

from ansible_collections.cpufleet.vllm.plugins.module_utils._source_git import git_rewrites
from ansible_collections.cpufleet.vllm.plugins.plugin_utils._guard import guarded


class FilterModule:
    """The filters of the collection about git."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return filter by name."""
        return {"git_rewrites": guarded(git_rewrites)}
