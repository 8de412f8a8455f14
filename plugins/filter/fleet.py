# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters over all hosts of a run: decide who builds and who takes which wheel."""

from __future__ import annotations

from typing import Any, Callable

from ansible_collections.cpufleet.vllm.plugins.module_utils import _fleet
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_match import plan_basis
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_types import Situation
from ansible_collections.cpufleet.vllm.plugins.plugin_utils._guard import guarded


def with_basis(here: Situation, plan: dict[str, Any]) -> dict[str, Any]:
    """Return the plan, and with it what it was decided from."""
    return {**plan, "basis": plan_basis(here.host, here.archive, here.model, here.wishes, here.instances)}


def plan_fleet(
    hosts: dict[str, Any], builders: list[str], failed: dict[str, str], store: dict[str, Any]
) -> dict[str, Any]:
    """Return the plan of every host by name."""
    fleet = _fleet.fleet_of(hosts, builders, failed, store)
    return {name: with_basis(fleet.hosts[name], plan) for name, plan in _fleet.plan_fleet(fleet).items()}


def plan_again(inputs: dict[str, Any], plan: dict[str, Any]) -> dict[str, Any]:
    """Return the plan of one host anew, its part in the fleet as it was."""
    here = Situation(**inputs)
    return with_basis(here, _fleet.plan_again(here, plan))


class FilterModule:
    """The filters of the collection that look at all hosts."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return filter by name."""
        return {function.__name__: guarded(function) for function in (plan_again, plan_fleet)}
