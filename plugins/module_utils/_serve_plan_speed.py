# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""How fast an engine decodes, from the memory bandwidth and from rates that were measured.

All rates were measured on one machine, 2 cores of an AMD EPYC with avx512_bf16, on 2026-11-30: read bandwidth with one
and two threads; vLLM 0.32.0 (v1; bf16 and AWQ, 0.5B and 7B shapes) and 0.6.5 (v0, built for avx2); llama.cpp as in
llama-cpp-python 0.3.36 (Q4_0, same shapes). docs/serve-plan.md holds the figures beside what this model says of them.
"""

from __future__ import annotations

import dataclasses

from ansible_collections.cpufleet.vllm.plugins.module_utils._model_shape import ModelShape

__all__ = ("MEASURED_ON", "RATES", "bandwidth", "ready_seconds", "tokens_per_s")

MEASURED_ON = "2 cores of an AMD EPYC (avx512_bf16), 33 GB/s"
ONE_THREAD = 17e9
TWO_THREADS = 33e9
# Nothing larger was measured, and a memory bus is shared: more threads are not counted.
MOST_THREADS = 4
# Loading packed 4-bit weights repacks them: 177 s for the 7B shape in 0.32.0.
PACKED_LOAD = 35e6
PLAIN_LOAD = 300e6


@dataclasses.dataclass(frozen=True)
class Rates:
    """``step_s``: what every step costs beside memory. Rates are weights per second and thread.

    ``packed``: 4-bit weights unpacked for one token. ``batch`` and ``packed_batch``: for each further token of a step.
    """

    step_s: float
    bandwidth_share: float
    packed: float
    batch: float
    packed_batch: float
    start_s: float


RATES = {
    "v0": Rates(step_s=0.050, bandwidth_share=1.0, packed=5.3e9, batch=110e9, packed_batch=45e9, start_s=10),
    "v1": Rates(step_s=0.0235, bandwidth_share=1.0, packed=5.3e9, batch=110e9, packed_batch=45e9, start_s=17),
    "llama_cpp": Rates(step_s=0.005, bandwidth_share=0.90, packed=0.0, batch=34e9, packed_batch=34e9, start_s=2),
}


def bandwidth(threads: int) -> float:
    """Return the bytes a second that ``threads`` cores read."""
    if threads <= 1:
        return ONE_THREAD
    return TWO_THREADS / 2 * min(threads, MOST_THREADS)


def tokens_per_s(kind: str, shape: ModelShape, threads: int, streams: int, element: int, read_bytes: int) -> float:
    """Return the tokens a second of all ``streams`` together, at short context.

    ``kind`` is v0, v1 or llama_cpp; ``read_bytes`` is what one token reads of a GGUF, ``element`` the bytes of a float.
    """
    rates = RATES[kind]
    cores, share = min(threads, MOST_THREADS), touched(shape, streams)
    speed = bandwidth(threads) * rates.bandwidth_share
    if kind == "llama_cpp":
        seconds = read_bytes * share / speed
    elif shape.packing.method and shape.packing.bits < 8:  # noqa: PLR2004 - eight-bit weights go through oneDNN
        unpacking = shape.active_parameters * share / (rates.packed * cores)
        seconds = unpacking + shape.head_parameters * element / speed
    else:
        layer = shape.packing.bits_stored / 8 if shape.packing.method else element
        seconds = (shape.active_parameters * share * layer + shape.head_parameters * element) / speed
    batch = rates.packed_batch if shape.packing.method else rates.batch
    more = (streams - 1) * (shape.active_parameters + shape.head_parameters) / (batch * cores)
    return streams / (seconds + rates.step_s + more)


def touched(shape: ModelShape, streams: int) -> float:
    """Return how much more of the layers several streams read than one: they are sent to different experts."""
    if not shape.experts or not shape.experts_used:
        return 1.0
    one = shape.experts_used / shape.experts
    routed = (shape.layer_parameters - shape.active_parameters) / (1 - one) if one < 1 else 0.0
    common = shape.layer_parameters - routed
    return (common + routed * (1 - (1 - one) ** streams)) / shape.active_parameters


def ready_seconds(kind: str, shape: ModelShape, weights: int) -> int:
    """Return about how long it takes from the start to the first answer."""
    packed = kind != "llama_cpp" and bool(shape.packing.method)
    return int(RATES[kind].start_s + weights / (PACKED_LOAD if packed else PLAIN_LOAD))
