# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""The serving half of a plan: how the model is served, or why it cannot be, and the port."""

from __future__ import annotations

from typing import Any, Collection

from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_build import usable_memory
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_notes import Notes
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan import plan_serve
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan_memory import HOST_RESERVE
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan_types import VLLM, Wish, candidate_from
from ansible_collections.cpufleet.vllm.plugins.module_utils._sizes import GIB, parse_count

__all__ = ("NO_SERVICE", "check_port", "choose_memory")

# The plan of a host that builds and serves nothing, and of one whose model cannot be planned.
NO_SERVICE: dict[str, Any] = {
    "engine": "",
    "weights_bytes": 0,
    "overhead_bytes": 0,
    "kv_cache_gib": 0,
    "max_model_len": 0,
    "max_num_seqs": 0,
    "dtype": "",
    "threads": 0,
    "thread_binding": "",
    "memory_max_bytes": 0,
    "environment": {},
    "arguments": [],
    "preload": [],
    "expected_tokens_per_s": 0.0,
    "forced": "",
}
WEAKEST_ISA = "avx2"
UNKNOWN_SHAPE = (
    "the description of the model says nothing of its shape, as those in an older depot. Run the playbook "
    "cpufleet.vllm.depot again."
)
ANY_ADDRESS = ("0.0.0.0", "::", "*")  # noqa: S104 - compared with, not bound to


def choose_memory(
    host: dict[str, Any], source: dict[str, Any], model: dict[str, Any], wishes: dict[str, Any], notes: Notes
) -> dict[str, Any]:
    """Return how the model is served; refuse what cannot be, unless ``wishes["force"]`` makes that a warning.

    ``host["cpu"]["isa_class"]`` is the class that the wheel is loaded for.
    """
    wish = read_wish(model, wishes)
    for problem in model["problems"]:
        notes.refuse("model", problem)
    if model["problems"]:
        return NO_SERVICE
    if not model.get("candidates"):
        notes.refuse("model", UNKNOWN_SHAPE)
        return NO_SERVICE
    # A CPU that runs no build is refused elsewhere; whether memory is enough is told all the same.
    able = {**host, "cpu": {**host["cpu"], "isa_class": host["cpu"]["isa_class"] or WEAKEST_ISA}}
    plan = plan_serve([candidate_from(one) for one in model["candidates"]], able, source, wish)
    notes.reasons.extend(plan["reasons"])
    told = refuse(plan, host, wishes, notes)
    same = {key: plan[key] for key in NO_SERVICE if key in plan}
    return {**same, "kv_cache_gib": plan["kv_bytes"] >> 30, "forced": told}


def read_wish(model: dict[str, Any], wishes: dict[str, Any]) -> Wish:
    """Return what the variables ask for; a context that the model was not made for is refused elsewhere."""
    context, kv_gib = (
        0 if str(wishes[key]) == "auto" else parse_count(str(wishes[key]), f"model_serve_{key}")
        for key in ("max_model_len", "kv_cache_gib")
    )
    longest = int(model["context"])
    return Wish(
        context=min(context, longest) if longest else context,
        concurrency=parse_count(str(wishes["concurrency"]), "model_serve_concurrency"),
        # Hosts of the other engine have a plan of their own.
        engine=VLLM,
        dtype=str(wishes["dtype"]),
        kv_bytes=kv_gib * GIB,
        whole_gib=True,
    )


def refuse(plan: dict[str, Any], host: dict[str, Any], wishes: dict[str, Any], notes: Notes) -> str:
    """Refuse a plan that does not fit; where the user forces it, return the reason instead."""
    text = str(plan["refusal"]["text"])
    if plan["fits"]:
        return ""
    if wishes["force"]:
        notes.because("forced", f"model_serve_force goes on in spite of this: {text}")
        return text
    too_large = plan["memory_max_bytes"] + HOST_RESERVE > usable_memory(host)
    notes.refuse("model_memory" if too_large else "model", text)
    return ""


def check_port(host: dict[str, Any], wishes: dict[str, Any], notes: Notes, leaving: Collection[str] = ()) -> None:
    """Refuse where something other than our own service listens on the wished-for address.

    ``leaving`` are units of ours that this run stops before.
    """
    port, address = int(wishes["port"]), str(wishes["address"])
    for listener in host["listeners"]:
        same = listener["address"] in (address, *ANY_ADDRESS) or address in ANY_ADDRESS
        if listener["port"] != port or not same or is_ours(listener, wishes, leaving):
            continue
        who = listener["process"] or listener["unit"] or f"a process of user {listener['user']}"
        pid = f" (pid {listener['pid']})" if listener["pid"] else ""
        notes.refuse(
            "port",
            f"port {port} on {listener['address']} is in use by {who}{pid}. "
            "Stop it, or set model_serve_port to a free port.",
        )


def is_ours(listener: dict[str, Any], wishes: dict[str, Any], leaving: Collection[str]) -> bool:
    """Return whether the service itself listens; by its user where its unit cannot be seen."""
    if listener["pid"]:
        return bool(listener["unit"] == wishes["unit"] or listener["unit"] in leaving)
    return bool(listener["user"] == wishes["user"])
