# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters over what a depot has."""

from __future__ import annotations

from typing import Any, Callable

from ansible_collections.cpufleet.vllm.plugins.module_utils._depot import depot_lacks
from ansible_collections.cpufleet.vllm.plugins.plugin_utils._guard import guarded


class FilterModule:
    """The filters of the collection that look at a depot."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return filter by name."""
        return {"depot_lacks": guarded(depot_lacks)}
