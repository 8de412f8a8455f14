# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""One candidate on one engine of one host, in numbers: what it needs, what it serves, and what speaks against it."""

from __future__ import annotations

import dataclasses
from typing import Any

from ansible_collections.cpufleet.vllm.plugins.module_utils._model_shape import DTYPE_BYTES, ModelShape
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan_memory import (
    HOST_RESERVE,
    KvRule,
    fit_context,
    kv_needed,
    overhead_bytes,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan_release import (
    Release,
    Threads,
    choose_threads,
    read_release,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan_speed import tokens_per_s
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan_types import LLAMA_CPP, Candidate, Draft, Wish
from ansible_collections.cpufleet.vllm.plugins.module_utils._sizes import MIB, human

__all__ = ("Place", "draft", "read_place")

LLAMA_KV = KvRule(unit=MIB, block=256, spare_blocks=0)
LLAMA_ARCHITECTURES = ("x86_64", "aarch64", "amd64", "arm64")
UNSAID_CONTEXT = 2048
# The step in which a context that does not fit is shortened.
SHORTER = 0.75


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a service is to run: HostInfo, the release (None: no vLLM is at hand), and memory without the reserve."""

    host: dict[str, Any]
    release: Release | None
    total: int

    @property
    def isa(self) -> str:
        """Return the ISA class, empty where no vLLM build runs."""
        return str(self.host["cpu"].get("isa_class") or "")

    @property
    def usable(self) -> int:
        """Return what a service may take; swap does not count, and the system keeps its share."""
        return self.total - HOST_RESERVE

    def threads(self, engine: str) -> Threads:
        """Return the threads of ``engine`` here."""
        return choose_threads(self.host["cpu"], None if engine == LLAMA_CPP else self.release)


def read_place(host: dict[str, Any], source: dict[str, Any] | None, whole_gib: bool = False) -> Place:
    """Return the place that HostInfo and SourceInfo describe, bounded by the host's control groups."""
    memory = host["memory"]
    total, limit = int(memory["total_bytes"]), memory.get("limit_bytes")
    isa = host["cpu"].get("isa_class")
    release = read_release(source, isa) if source else None
    if release is not None and whole_gib:
        release = dataclasses.replace(release, kv_exact=False)
    return Place(host, release, min(total, int(limit)) if limit else total)


def draft(candidate: Candidate, engine: str, place: Place, wish: Wish) -> Draft:
    """Return what ``candidate`` on ``engine`` would be at ``place``."""
    dtype = choose_dtype(candidate.shape, engine, place, wish)
    element = DTYPE_BYTES.get(dtype, 2)
    weights = candidate.wide_bytes if element > DTYPE_BYTES["bfloat16"] else candidate.narrow_bytes
    kind, rule = engine_kind(engine, place)
    per_token = candidate.shape.kv_elements * element
    context = choose_context(candidate.shape, engine, place, wish, weights, element)
    problems = [*objections(candidate, engine, place, wish)]
    if 0 < wish.kv_bytes < wish.context * per_token:
        problems.append(f"{human(wish.kv_bytes)} of KV cache hold less than one request of {wish.context} tokens")
    overhead = overhead_bytes(kind, candidate.shape, context, wish.concurrency, element)
    kv_bytes = wish.kv_bytes or kv_needed(rule, per_token, context, wish.concurrency)
    speed = tokens_per_s(
        kind, candidate.shape, place.threads(engine).count, wish.concurrency, element, candidate.read_bytes
    )
    return Draft(
        engine=engine,
        candidate=candidate,
        dtype=dtype,
        weights=weights,
        overhead=overhead,
        kv_per_token=per_token,
        kv_bytes=kv_bytes,
        context=context,
        sequences=wish.concurrency,
        tokens_per_s=round(speed, 1 if speed >= 1 else 2),
        problems=tuple(problems),
        short=weights + overhead + kv_bytes - place.usable,
    )


def engine_kind(engine: str, place: Place) -> tuple[str, KvRule]:
    """Return the kind of engine for the tables of figures, and the rule of its KV cache."""
    if engine == LLAMA_CPP:
        return LLAMA_CPP, LLAMA_KV
    if place.release is None:
        return "v1", KvRule(unit=MIB, block=128, spare_blocks=1)
    return place.release.kind, place.release.kv_rule()


def choose_dtype(shape: ModelShape, engine: str, place: Place, wish: Wish) -> str:
    """Return the number format to compute in: the wish, or 16 bits of the kind that the CPU is best at."""
    if engine == LLAMA_CPP:
        return "float16"
    if wish.dtype != "auto":
        return wish.dtype
    return "float16" if place.isa == "neon" else "bfloat16"


def objections(candidate: Candidate, engine: str, place: Place, wish: Wish) -> list[str]:
    """Return what speaks against this engine beside memory."""
    found = []
    shape, own = candidate.shape, candidate.shape.context
    if engine == LLAMA_CPP:
        if candidate.form != "gguf":
            found.append("llama.cpp serves GGUF files, these weights are safetensors")
        if place.host["arch"] not in LLAMA_ARCHITECTURES:
            found.append(f"llama.cpp is built here for x86_64 and aarch64, the host is {place.host['arch']}")
    elif candidate.form == "gguf":
        found.append("vLLM has no kernels for GGUF on a CPU")
    elif place.release is None:
        found.append("no source of vLLM was given to plan with")
    else:
        found.extend(place.release.objections(shape, place.isa))
    if own and wish.context > own:
        found.append(f"the model was made for a context of {own} tokens, {wish.context} are wished for")
    return found


def choose_context(shape: ModelShape, engine: str, place: Place, wish: Wish, weights: int, element: int) -> int:
    """Return the context in tokens: the wish, or what the model and the memory allow."""
    if wish.context:
        return wish.context
    kind, rule = engine_kind(engine, place)
    per_token = shape.kv_elements * element
    own = longest_context(shape, engine, place)
    if wish.kv_bytes and per_token:
        return min(own, max(1, wish.kv_bytes // (per_token * wish.concurrency) // rule.block) * rule.block)
    overhead = overhead_bytes(kind, shape, 1, wish.concurrency, element)
    context = fit_context(rule, per_token, own, wish.concurrency, place.usable - weights - overhead)
    while context > min(own, UNSAID_CONTEXT):
        overhead = overhead_bytes(kind, shape, context, wish.concurrency, element)
        if weights + overhead + kv_needed(rule, per_token, context, wish.concurrency) <= place.usable:
            break
        context = max(min(own, UNSAID_CONTEXT), int(context * SHORTER) // rule.block * rule.block)
    return context


def longest_context(shape: ModelShape, engine: str, place: Place) -> int:
    """Return the model's own context; its window where the release can serve it only without one."""
    own = shape.context or UNSAID_CONTEXT
    if shape.window and engine != LLAMA_CPP and place.release is not None and not place.release.sliding_window:
        return min(own, shape.window)
    return own
