# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""What a service takes beside weights and KV cache, and how large the KV cache gets."""

from __future__ import annotations

import dataclasses

from ansible_collections.cpufleet.vllm.plugins.module_utils._model_shape import ModelShape
from ansible_collections.cpufleet.vllm.plugins.module_utils._sizes import GIB, MIB

__all__ = ("HOST_RESERVE", "OVERHEADS", "KvRule", "batch_tokens", "fit_context", "kv_needed", "overhead_bytes")

# What an idle Debian 12 with systemd, sshd and Ansible's Python keeps.
HOST_RESERVE = 256 * MIB
SMALLEST_CONTEXT = 2048
KV_AUTO = 4 * GIB
PROMPT_TOKENS = 2048


@dataclasses.dataclass(frozen=True)
class Overhead:
    """``processes``: interpreter, torch and libraries of all processes. ``vocabulary``: of each token of the tokenizer.

    ``activations``: copies of a layer's input and inner width that are alive while a prompt is read. ``repacks``:
    weights are repacked for oneDNN when they are loaded, and those of the token table and the head are kept besides.
    """

    processes: int
    vocabulary: int
    activations: float
    repacks: bool
    measured: str


OVERHEADS = {
    "v0": Overhead(800 * MIB, 1500, 1.5, repacks=False, measured="0.6.5"),
    "v1": Overhead(1490 * MIB, 1500, 1.5, repacks=True, measured="0.28.0"),
    "llama_cpp": Overhead(28 * MIB, 400, 1.0, repacks=False, measured="llama-cpp-python 0.3.36"),
}
# The memory allocator keeps what repacking frees, unless a matrix is too large for its own pool.
POOLED_BYTES = 32 * MIB


@dataclasses.dataclass(frozen=True)
class KvRule:
    """How an engine takes the size of its KV cache: ``unit`` bytes at a time, in blocks of ``block`` tokens."""

    unit: int
    block: int
    spare_blocks: int


def batch_tokens(kind: str, context: int, sequences: int) -> int:
    """Return how many prompt tokens one step reads at most: v0 takes whole prompts, the others cut them."""
    most = max(context, PROMPT_TOKENS) if kind == "v0" else PROMPT_TOKENS // (4 if kind == "llama_cpp" else 1)
    return min(most, context * sequences)


def overhead_bytes(kind: str, shape: ModelShape, context: int, sequences: int, element: int) -> int:
    """Return what the service takes beside weights and KV cache when its longest prompts are read."""
    overhead = OVERHEADS[kind]
    width = 3 * shape.intermediate + 4 * shape.hidden
    wide = 4 if kind == "llama_cpp" else element
    batch = batch_tokens(kind, context, sequences)
    prompt = batch * width * wide * overhead.activations
    if kind == "llama_cpp":
        # Which of its slot's tokens each token of the step may see, 16 bits each.
        prompt += batch * context * 2
    # Logits in the model's format, in float32, sorted, and as probabilities.
    logits = sequences * shape.vocab * 16
    again = repacked_bytes(shape, element) if overhead.repacks else 0
    return int(overhead.processes + overhead.vocabulary * shape.vocab + prompt + logits + again)


def repacked_bytes(shape: ModelShape, element: int) -> int:
    """Return what repacking leaves behind: a second copy of the tables, and the pool that small matrices came from."""
    tables = shape.table_parameters * element
    if shape.packing.method or 2 * shape.intermediate * shape.hidden * element > POOLED_BYTES:
        return tables
    return tables + shape.layer_parameters * element


def kv_needed(rule: KvRule, per_token: int, context: int, sequences: int) -> int:
    """Return the KV cache for ``sequences`` requests of ``context`` tokens at the same time."""
    blocks = -(-context // rule.block) * sequences + rule.spare_blocks
    return -(-blocks * rule.block * per_token // rule.unit) * rule.unit


def fit_context(rule: KvRule, per_token: int, own: int, sequences: int, spare: int) -> int:
    """Return the longest context up to the model's ``own`` whose KV cache leaves half of what is spare."""
    budget = max(min(KV_AUTO, spare // 2), rule.unit)
    floor = min(own, SMALLEST_CONTEXT)
    budget = max(budget, kv_needed(rule, per_token, floor, sequences))
    if not per_token or kv_needed(rule, per_token, own, sequences) <= budget:
        return own
    blocks = budget // rule.unit * rule.unit // (rule.block * per_token) - rule.spare_blocks
    return max(floor, blocks // sequences * rule.block)
