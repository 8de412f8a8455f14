# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""The serving half of a plan: memory for weights and KV cache, and the port."""

from __future__ import annotations

from typing import Any

from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_build import usable_memory
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_notes import Notes
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan_release import (
    BIND,
    choose_threads,
    read_release,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._sizes import GIB, human, parse_count

__all__ = ("NO_SERVICE", "check_port", "choose_memory")

# Resident memory of an idle server beyond weights and KV cache, measured:
# 0.6.5 about 1.0 GiB, 0.28.0 and 0.32.0 about 1.8 GiB.
OVERHEAD_V0 = GIB
OVERHEAD_V1 = int(1.8 * GIB)
V0_GENERATIONS = ("D1", "D2", "D3")
KV_MAXIMUM_GIB = 4
WORKER_SLACK = 1.15
# The plan of a host that builds and serves nothing.
NO_SERVICE = {
    "weights_bytes": 0,
    "overhead_bytes": 0,
    "kv_cache_gib": 0,
    "max_model_len": 0,
    "memory_max_bytes": 0,
    "environment": {},
}
ANY_ADDRESS = ("0.0.0.0", "::", "*")  # noqa: S104 - compared with, not bound to


def choose_memory(
    host: dict[str, Any], source: dict[str, Any], model: dict[str, Any], wishes: dict[str, Any], notes: Notes
) -> dict[str, Any]:
    """Return weights, overhead, KV cache (whole GiB), context and memory limit; refuse what cannot fit."""
    for problem in model["problems"]:
        notes.refuse("model", problem)
    total = usable_memory(host)
    overhead = OVERHEAD_V0 if source["detection"] in V0_GENERATIONS else OVERHEAD_V1
    weights = int(model["weights_bytes"] * dtype_factor(model["dtype"], str(wishes["dtype"])))
    kv_gib = kv_cache(total - weights - overhead, str(wishes["kv_cache_gib"]))
    needed = weights + overhead + kv_gib * GIB
    figures = f"{human(weights)} of weights, {human(overhead)} for the engine and {kv_gib} GiB of KV cache"
    if needed > total and not model["problems"]:
        notes.refuse(
            "model_memory",
            f"the model needs {figures}, together {human(needed)}, and the host has {human(total)}. "
            "Choose a smaller model or a larger host; swap does not count for serving.",
        )
    notes.because("model", figures)
    return {
        "weights_bytes": weights,
        "overhead_bytes": overhead,
        "kv_cache_gib": kv_gib,
        "max_model_len": context(model, kv_gib, wishes),
        "memory_max_bytes": min(total, int(needed * WORKER_SLACK) + GIB // 2),
        "environment": thread_environment(host, source, notes),
    }


def thread_environment(host: dict[str, Any], source: dict[str, Any], notes: Notes) -> dict[str, str]:
    """Return the variables that let the engine compute on every core; newer releases keep one back by themselves."""
    threads = choose_threads(host["cpu"], read_release(source, host["cpu"]["isa_class"]))
    notes.because("threads", threads.reason)
    bound = threads.binding and threads.binding != (source.get("cpu_environment") or {}).get(BIND)
    return {"OMP_NUM_THREADS": str(threads.count), **({BIND: threads.binding} if bound else {})}


def kv_cache(spare: int, wish: str) -> int:
    """Return the KV cache in whole GiB, all that vLLM's variable takes: the wish, or half of what is spare."""
    if wish != "auto":
        return parse_count(wish, "model_serve_kv_cache_gib")
    return max(1, min(KV_MAXIMUM_GIB, spare // (2 * GIB)))


def dtype_factor(own: str, wish: str) -> float:
    """Return how much larger the weights get when they are served in another number format."""
    size = {"float32": 4, "float": 4, "float16": 2, "half": 2, "bfloat16": 2}
    return size[wish] / size[own] if wish in size and own in size else 1.0


def context(model: dict[str, Any], kv_gib: int, wishes: dict[str, Any]) -> int:
    """Return the context length in tokens: the wish, or as much of the model's own as one sequence may fill."""
    wish = str(wishes["max_model_len"])
    if wish != "auto":
        return parse_count(wish, "model_serve_max_model_len")
    own, per_token = int(model["context"]), int(model["kv_bytes_per_token"])
    fitting = kv_gib * GIB // per_token if per_token else own
    return int(min(own, fitting) // 16 * 16) if own else 0


def check_port(host: dict[str, Any], wishes: dict[str, Any], notes: Notes) -> None:
    """Refuse where something other than our own service listens on the wished-for address."""
    port, address = int(wishes["port"]), str(wishes["address"])
    for listener in host["listeners"]:
        same = listener["address"] in (address, *ANY_ADDRESS) or address in ANY_ADDRESS
        if listener["port"] != port or not same or is_ours(listener, wishes):
            continue
        who = listener["process"] or listener["unit"] or f"a process of user {listener['user']}"
        pid = f" (pid {listener['pid']})" if listener["pid"] else ""
        notes.refuse(
            "port",
            f"port {port} on {listener['address']} is in use by {who}{pid}. "
            "Stop it, or set model_serve_port to a free port.",
        )


def is_ours(listener: dict[str, Any], wishes: dict[str, Any]) -> bool:
    """Return whether the service itself listens; by its user where its unit cannot be seen."""
    if listener["pid"]:
        return bool(listener["unit"] == wishes["unit"])
    return bool(listener["user"] == wishes["user"])
