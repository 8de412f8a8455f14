# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters over plans: make one, hold it against a written one, show a fleet's, name what was built; and a netrc."""

from __future__ import annotations

from typing import Any, Callable

from ansible_collections.cpufleet.vllm.plugins.module_utils._identity import deployment_id, release_id
from ansible_collections.cpufleet.vllm.plugins.module_utils._lock import resolve_date
from ansible_collections.cpufleet.vllm.plugins.module_utils._mirrors import mirror_addresses, netrc_text
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan import plan_host as decide
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_match import plan_basis, plan_match
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_table import fleet_table
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_types import Situation
from ansible_collections.cpufleet.vllm.plugins.plugin_utils._guard import guarded


def plan_host(host: Any, source: Any, archive: Any, state: Any, model: Any, wishes: Any) -> dict[str, Any]:
    """Return the plan, and with it what it was decided from."""
    plan = decide(Situation(host, source, archive, state, model, wishes))
    return {**plan, "basis": plan_basis(host, archive, model, wishes)}


def netrc(urls: dict[str, Any], username: str, password: str) -> str:
    """Return a netrc for the hosts of ``urls``."""
    return netrc_text(urls, username, password)


class FilterModule:
    """The filters of the collection."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return filter by name."""
        functions = (
            deployment_id,
            fleet_table,
            mirror_addresses,
            netrc,
            plan_host,
            plan_match,
            release_id,
            resolve_date,
        )
        return {function.__name__: guarded(function) for function in functions}
