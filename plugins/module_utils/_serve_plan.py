# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""The plan of a service on one host: engine, memory, how it is told, how fast; or why not, and what instead.

Everything is decided from data: candidates (weights with their shape), HostInfo, SourceInfo and a wish.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_notes import Notes
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan_draft import (
    Place,
    draft,
    engine_kind,
    read_place,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan_memory import HOST_RESERVE, OVERHEADS
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan_models import q4_candidate
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan_offer import refusal
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan_release import (
    BIND,
    KV_SPACE,
    Release,
    Threads,
    preloads,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan_speed import (
    MEASURED_ON,
    ready_seconds,
    tokens_per_s,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan_types import (
    LLAMA_CPP,
    VLLM,
    Candidate,
    Draft,
    Wish,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._sizes import human

__all__ = ("plan_serve",)

# Within this the engines count as equally fast, and vLLM is taken: it is what the collection is about.
AS_FAST = 1.05
OFFERS_OF_A_CHANGE = 1.5


def plan_serve(
    candidates: list[Candidate], host: dict[str, Any], source: dict[str, Any] | None, wish: Wish
) -> dict[str, Any]:
    """Return the plan as plain data; the names are those that RETURN of the module serve_plan documents."""
    if not candidates:
        raise CpufleetError("Cannot plan a service: there is no model", "Name a folder, a GGUF file or a config.json")
    if wish.concurrency < 1 or wish.context < 0:
        raise CpufleetError(
            f"Cannot plan for {wish.concurrency} requests of {wish.context} tokens",
            "Name one request or more, and leave the context out or above 0",
        )
    place = read_place(host, source, wish.whole_gib)
    notes = Notes()
    chosen = choose(candidates, place, wish, notes)
    threads = place.threads(chosen.engine)
    explain(chosen, place, wish, threads, notes)
    return {
        "fits": chosen.fits,
        "engine": chosen.engine,
        "weights_bytes": chosen.weights,
        "overhead_bytes": chosen.overhead,
        "kv_bytes_per_token": chosen.kv_per_token,
        "kv_bytes": chosen.kv_bytes,
        "max_model_len": chosen.context,
        "max_num_seqs": chosen.sequences,
        "dtype": chosen.dtype,
        "threads": threads.count,
        "thread_binding": threads.binding,
        "environment": environment(chosen, place.release, threads),
        "arguments": arguments(chosen, place.release, threads),
        "preload": preloads(place.release, place.host) if chosen.engine == VLLM else [],
        "memory_max_bytes": chosen.needed,
        "expected_tokens_per_s": chosen.tokens_per_s,
        "reasons": notes.reasons,
        "refusal": {"text": "", "alternatives": []} if chosen.fits else refusal(chosen, place, wish),
    }


def choose(candidates: list[Candidate], place: Place, wish: Wish, notes: Notes) -> Draft:
    """Return the fastest draft that fits; where none does, the one that comes nearest."""
    drafts = [draft(candidate, engine_for(candidate, wish), place, wish) for candidate in candidates]
    fitting = [one for one in drafts if one.fits]
    streams = "one request at a time" if wish.concurrency == 1 else f"{wish.concurrency} requests at a time"
    if not fitting:
        best = min(drafts, key=lambda one: (len(one.problems), one.short))
        notes.because("engine", f"{best.engine} comes nearest for {streams}, and does not do")
        return best
    fastest = max(fitting, key=lambda one: one.tokens_per_s)
    close = [one for one in fitting if one.engine == VLLM and one.tokens_per_s * AS_FAST >= fastest.tokens_per_s]
    best = max(close, key=lambda one: one.tokens_per_s) if close else fastest
    others = [f"{one.engine} {one.candidate.label} {one.tokens_per_s:g} tokens/s" for one in fitting if one is not best]
    lacking = [f"{one.engine} lacks {human(one.short)}" for one in drafts if not one.problems and one.short > 0]
    against = [f"not {one.engine}: {one.problems[0]}" for one in drafts if one.problems]
    if best.candidate.form == "gguf" and not [one for one in drafts if one.engine == VLLM]:
        against.append("not vllm: it has no kernels for GGUF on a CPU")
    notes.because("engine", "; ".join([_speed(best, streams), *others, *lacking, *against]))
    return best


def _speed(best: Draft, streams: str) -> str:
    return f"{best.engine} for {streams}: about {best.tokens_per_s:g} tokens/s"


def engine_for(candidate: Candidate, wish: Wish) -> str:
    """Return the engine wished for, or the one that serves such weights."""
    if wish.engine != "auto":
        return wish.engine
    return LLAMA_CPP if candidate.form == "gguf" else VLLM


def explain(chosen: Draft, place: Place, wish: Wish, threads: Threads, notes: Notes) -> None:
    """Say why every number is what it is."""
    kind = engine_kind(chosen.engine, place)[0]
    shape, release = chosen.candidate.shape, place.release
    seen = {"header": "in the files' own headers", "index": "as the index says"}
    notes.because(
        "weights_bytes",
        f"{human(chosen.weights)} {seen.get(chosen.candidate.source, 'counted from the shape')}, in "
        f"{shape.packing.name or chosen.dtype}",
    )
    measured = OVERHEADS[kind].measured
    basis = f"from measurements of {measured}" if measured else "an estimate, not measured"
    notes.because(
        "overhead_bytes", f"{human(chosen.overhead)} for the engine's processes and the longest prompts, {basis}"
    )
    if chosen.engine == VLLM and release is not None:
        notes.because("kv_bytes", release.kv_reason())
    else:
        notes.because("kv_bytes", f"{chosen.sequences} slot(s) of {chosen.context} tokens, allocated at the start")
    notes.because("max_model_len", context_reason(chosen, wish))
    notes.because("threads", threads.reason)
    notes.because("memory_max_bytes", memory_reason(chosen, place))
    notes.because("expected_tokens_per_s", f"from the memory bandwidth and rates measured on {MEASURED_ON}")
    notes.because("ready", f"about {ready_seconds(kind, shape, chosen.weights)} s from the start to the first answer")
    if chosen.engine == VLLM:
        notes.because("eager", "compiling took 63 to 93 s a start instead of 17 and made no token faster (0.32.0)")
        early = " and ".join(preloads(place.release, place.host)) or "nothing; libtcmalloc_minimal is not on the host"
        notes.because("preload", f"{early}. With both libraries the first token came after 0.096 s, else 0.115")
        advise(chosen, place, wish, notes)


def context_reason(chosen: Draft, wish: Wish) -> str:
    """Say where the context comes from."""
    own, window = chosen.candidate.shape.context, chosen.candidate.shape.window
    tail = f"; attention looks back {window} tokens" if window and window < chosen.context else ""
    if wish.context:
        return f"{chosen.context} tokens, as wished for{tail}"
    if chosen.context == own:
        return f"{own} tokens, the model's own context{tail}"
    return f"{chosen.context} of the model's {own or 'unsaid'} tokens, what memory and release allow{tail}"


def memory_reason(chosen: Draft, place: Place) -> str:
    """Say what the memory limit is made of, and of how much."""
    memory = place.host["memory"]
    bound = f", bounded by {memory['limit_source']}" if memory.get("limit_bytes") and memory.get("limit_source") else ""
    beside = " and ".join(memory.get("beside") or {})
    bound += f", which is what {beside} leave" if beside else ""
    return (
        f"{human(chosen.needed)} of {human(place.total)}{bound}; {human(HOST_RESERVE)} stay with the system, "
        "and swap does not count"
    )


def advise(chosen: Draft, place: Place, wish: Wish, notes: Notes) -> None:
    """Say so where the same model as a 4-bit GGUF would be much faster."""
    if chosen.candidate.form == "gguf" or wish.engine == VLLM:
        return
    q4 = q4_candidate(chosen.candidate.name, chosen.candidate.shape)
    count = place.threads(LLAMA_CPP).count
    speed = tokens_per_s(LLAMA_CPP, q4.shape, count, chosen.sequences, 2, q4.read_bytes)
    if speed > OFFERS_OF_A_CHANGE * chosen.tokens_per_s:
        notes.because("faster", f"the same model as a 4-bit GGUF on llama_cpp would give about {speed:.0f} tokens/s")


def environment(chosen: Draft, release: Release | None, threads: Threads) -> dict[str, str]:
    """Return the variables of the service, of those that the release knows."""
    found = {"OMP_NUM_THREADS": str(threads.count)}
    if chosen.engine == LLAMA_CPP or release is None:
        return {} if chosen.engine == LLAMA_CPP else found
    if not release.kv_exact and KV_SPACE in release.environment:
        found[KV_SPACE] = str(chosen.kv_bytes >> 30)
    if threads.binding and BIND in release.environment and threads.binding != release.environment[BIND]:
        found[BIND] = threads.binding
    if release.detection == "D6":
        found["VLLM_TARGET_DEVICE"] = "cpu"
    return found


def arguments(chosen: Draft, release: Release | None, threads: Threads) -> list[str]:
    """Return the words of the command line that the plan decides, of those that the release knows."""
    if chosen.engine == LLAMA_CPP:
        slots, count = str(chosen.sequences), str(threads.count)
        whole = str(chosen.context * chosen.sequences)
        return ["--ctx-size", whole, "--parallel", slots, "--threads", count, "--threads-batch", count]
    values = {"dtype": chosen.dtype, "max_model_len": chosen.context, "max_num_seqs": chosen.sequences}
    words = [word for name, value in values.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    if release is None or release.has("enforce_eager"):
        words.append("--enforce-eager")
    if release is None:
        return words
    if release.logs_prompts:
        words.append("--disable-log-requests")
    if release.kv_exact:
        words += ["--kv-cache-memory-bytes", str(chosen.kv_bytes)]
    if chosen.candidate.shape.window and not release.sliding_window and release.has("disable_sliding_window"):
        words.append("--disable-sliding-window")
    return words
