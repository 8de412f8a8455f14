# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter over model_serve_instances: several models on one host."""

from __future__ import annotations

from typing import Any, Callable

from ansible_collections.cpufleet.vllm.plugins.module_utils._instances import serve_instances
from ansible_collections.cpufleet.vllm.plugins.plugin_utils._guard import guarded


class FilterModule:
    """The filters of the collection over instances."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return filter by name."""
        return {"serve_instances": guarded(serve_instances)}
