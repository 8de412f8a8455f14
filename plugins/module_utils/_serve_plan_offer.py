# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""What is nearest to a wish that does not fit: less of the same, or a model that does, each with its speed."""

from __future__ import annotations

import dataclasses
from typing import Any, Iterator

from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan_draft import Place, draft
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan_memory import HOST_RESERVE
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan_models import STARTERS, forms_of
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan_types import Draft, Wish
from ansible_collections.cpufleet.vllm.plugins.module_utils._sizes import human

__all__ = ("describe", "refusal")

OFFERED_CONTEXT = 8192
SMALLEST_CONTEXT = 1024
MOST_OFFERS = 3
NAMED_OFFERS = 2
# Slower than a person reads is no offer.
USEFUL_TOKENS_PER_S = 4.0


def refusal(refused: Draft, place: Place, wish: Wish) -> dict[str, Any]:
    """Return why ``refused`` cannot be, in numbers, and what can be instead."""
    found = [*less_of_the_same(refused, place, wish), *other_models(place, wish)][:MOST_OFFERS]
    return {"text": " ".join([*_why(refused, place), _instead(found)]), "alternatives": found}


def _why(refused: Draft, place: Place) -> Iterator[str]:
    for problem in refused.problems:
        yield f"{refused.candidate.label} cannot be served: {problem}."
    if refused.short > 0:
        requests = "1 request" if refused.sequences == 1 else f"{refused.sequences} requests at a time"
        yield (
            f"{refused.candidate.label} on {refused.engine} needs {human(refused.needed)} ({human(refused.weights)} "
            f"of weights, {human(refused.overhead)} for the engine, {human(refused.kv_bytes)} of KV cache for "
            f"{requests} of {refused.context} tokens); this host has {_had(place)}. Swap does not count for serving."
        )


def _had(place: Place) -> str:
    beside: dict[str, int] = place.host["memory"].get("beside") or {}
    others = "".join(f" and {human(size)} go to {name}" for name, size in beside.items())
    whole = place.total + sum(beside.values())
    return f"{human(whole)}, of which {human(HOST_RESERVE)} stay with the system{others}"


def _instead(found: list[dict[str, Any]]) -> str:
    if not found:
        return "No model of the list of starters fits on this host either: use a larger host."
    return f"On this host {'; or '.join(_offer(one) for one in found[:NAMED_OFFERS])}."


def _offer(one: dict[str, Any]) -> str:
    quantization = "" if one["quantization"] == "none" or not one["repository"] else f" {one['quantization']}"
    licence = f" ({one['licence']})" if one["licence"] else ""
    requests = "" if one["max_num_seqs"] == 1 else f", {one['max_num_seqs']} requests at a time,"
    return (
        f"engine {one['engine']} fits {one['model']}{quantization}{licence} with {one['max_model_len']} tokens of "
        f"context{requests} at about {one['expected_tokens_per_s']:g} tokens/s"
    )


def less_of_the_same(refused: Draft, place: Place, wish: Wish) -> list[dict[str, Any]]:
    """Return the same model with fewer requests at a time, or with a shorter context, where only memory is short."""
    limit = refused.candidate.shape.context
    too_long = limit and wish.context > limit
    if refused.problems and not (too_long and len(refused.problems) == 1):
        return []
    context = min(wish.context or refused.context, limit or refused.context)
    for sequences, tokens in smaller_wishes(refused.sequences, context):
        smaller = dataclasses.replace(wish, context=tokens, concurrency=sequences, kv_bytes=0)
        found = draft(refused.candidate, refused.engine, place, smaller)
        if found.fits:
            return [describe(found)]
    return []


def smaller_wishes(sequences: int, context: int) -> Iterator[tuple[int, int]]:
    """Yield requests and context, nearest first: fewer at a time, for the others wait; then shorter ones."""
    while sequences >= 1:
        yield sequences, context
        sequences //= 2
    while context >= SMALLEST_CONTEXT:
        context = context * 3 // 4 // 128 * 128
        yield 1, context


def other_models(place: Place, wish: Wish) -> list[dict[str, Any]]:
    """Return the largest starter for each engine and form that fits and is fast enough to read along."""
    best: dict[str, tuple[tuple[int, float], dict[str, Any]]] = {}
    for starter in STARTERS:
        for form in forms_of(starter):
            shape = form.candidate.shape
            context = min(wish.context or OFFERED_CONTEXT, shape.context)
            smaller = Wish(context=context, concurrency=wish.concurrency)
            found = draft(form.candidate, form.engine, place, smaller)
            if not found.fits or found.tokens_per_s < USEFUL_TOKENS_PER_S * found.sequences:
                continue
            rank = (shape.parameters, found.tokens_per_s)
            key = form.engine + form.quantization
            if key not in best or rank > best[key][0]:
                best[key] = (rank, describe(found, form.repository, form.licence, form.quantization))
    return [offer for _rank, offer in sorted(best.values(), key=lambda entry: entry[0], reverse=True)]


def describe(found: Draft, repository: str = "", licence: str = "", quantization: str = "") -> dict[str, Any]:
    """Return an alternative as plain data; ``repository`` is empty for the model that was asked about."""
    return {
        "engine": found.engine,
        "model": found.candidate.name,
        "repository": repository,
        "licence": licence,
        "quantization": quantization or found.candidate.shape.packing.name or "none",
        "parameters": found.candidate.shape.parameters,
        "weights_bytes": found.weights,
        "needed_bytes": found.needed,
        "max_model_len": found.context,
        "max_num_seqs": found.sequences,
        "expected_tokens_per_s": found.tokens_per_s,
    }
