# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""The services of one host planned together, one or several: wishes, ports, and the memory shared out among them."""

from __future__ import annotations

from typing import Any

from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_build import usable_memory
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_notes import Notes
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_serve import check_port, choose_memory
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_types import Situation
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_wishes import check_wishes
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan_memory import HOST_RESERVE

__all__ = ("check_ports", "check_services", "plan_services")

# What an instance is left at least that says nothing of its context.
SMALLEST_CONTEXT = 2048


def check_services(here: Situation, notes: Notes) -> None:
    """Refuse wishes of any service that no host can fulfil."""
    for name, (model, wishes) in here.services.items():
        own = Notes()
        check_wishes(here.source, model, wishes, own)
        notes.take(named(name, own))


def check_ports(here: Situation, notes: Notes) -> None:
    """Refuse a port that something else listens on, an instance that stays included; what this run stops is ours."""
    there = {str(entry.get("unit", "")) for entry in here.state.get("instances", {}).values()}
    staying = {wishes["unit"] for _model, wishes in here.services.values()}
    leaving = there - staying | ({here.wishes["unit"]} - staying if here.instances else set())
    for name, (_model, wishes) in here.services.items():
        own = Notes()
        check_port(here.host, wishes, own, leaving)
        notes.take(named(name, own))


def plan_services(host: dict[str, Any], here: Situation, notes: Notes) -> dict[str, Any]:
    """Return ``model``, the plan of the one service or the first, and ``instances``, those of several by name.

    ``host`` is ``here.host`` with the class that the wheel is loaded for.
    """
    if not here.instances:
        return {"model": choose_memory(host, here.source, here.model, here.wishes, notes), "instances": {}}
    least = {name: least_bytes(host, here, name) for name in here.services}
    total = usable_memory(host) - HOST_RESERVE
    planned: dict[str, dict[str, Any]] = {}
    order = sorted(here.services, key=lambda name: wishes_to_spread(here.services[name][1]))
    for place, name in enumerate(order):
        model, wishes = here.services[name]
        beside = {other: plan["memory_max_bytes"] for other, plan in planned.items()}
        left = total - sum(beside.values())
        later = {other: least[other] for other in order[place + 1 :]}
        # Where not all find room, those that come later are refused and not this one.
        if left - sum(later.values()) >= least[name]:
            beside.update(later)
        own = Notes()
        planned[name] = choose_memory(remaining(host, beside), here.source, model, wishes, own)
        notes.take(named(name, own))
    return {
        "model": planned[next(iter(here.services))],
        "instances": {
            name: {"unit": wishes["unit"], "port": int(wishes["port"]), "model": planned[name]}
            for name, (_model, wishes) in here.services.items()
        },
    }


def wishes_to_spread(wishes: dict[str, Any]) -> bool:
    """Return whether a service takes what memory there is, and so comes after those that say what they need."""
    return str(wishes["max_model_len"]) == "auto" and str(wishes["kv_cache_gib"]) == "auto"


def least_bytes(host: dict[str, Any], here: Situation, name: str) -> int:
    """Return the least that an instance can be planned with: its wishes, or a small context where it has none."""
    model, wishes = here.services[name]
    if wishes_to_spread(wishes):
        own = int(model["context"]) or SMALLEST_CONTEXT
        wishes = {**wishes, "max_model_len": min(SMALLEST_CONTEXT, own)}
    needed = choose_memory(host, here.source, model, {**wishes, "force": False}, Notes())["memory_max_bytes"]
    return int(needed)


def remaining(host: dict[str, Any], beside: dict[str, int]) -> dict[str, Any]:
    """Return ``host`` with the memory that the instances ``beside`` leave of it."""
    taken = {name: size for name, size in beside.items() if size}
    if not taken:
        return host
    left = max(0, usable_memory(host) - sum(taken.values()))
    memory = {**host["memory"], "total_bytes": left, "limit_bytes": None, "beside": taken}
    return {**host, "memory": memory}


def named(name: str, notes: Notes) -> Notes:
    """Return what was said of an instance with its name; of the only service as it is."""
    if not name:
        return notes
    return Notes(
        [{**entry, "decision": f"{name}: {entry['decision']}"} for entry in notes.reasons],
        [{**entry, "text": f"instance {name}: {entry['text']}"} for entry in notes.refused],
    )
