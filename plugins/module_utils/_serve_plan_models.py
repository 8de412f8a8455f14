# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Models to start with, by size: what a plan offers where the wished-for one does not fit. Shapes, no downloads.

The shapes are those of the models' own config.json. Each is published under the licence named. ``gguf`` and ``awq``
name the repositories of the quantized forms, empty where there is none.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ansible_collections.cpufleet.vllm.plugins.module_utils._model_shape import (
    ModelShape,
    Packing,
    served_bytes,
    shape_of_config,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan_types import LLAMA_CPP, VLLM, Candidate

__all__ = ("STARTERS", "Form", "Starter", "forms_of", "q4_candidate")

# A Q4_0 file keeps 18 bytes for 32 weights, and its output head in 8.5 bits.
Q4_BITS = 4.5
Q4_HEAD_BITS = 8.5
QWEN = {"model_type": "qwen2", "vocab_size": 151936, "max_position_embeddings": 32768, "use_sliding_window": False}
LLAMA = {"model_type": "llama", "vocab_size": 49152, "max_position_embeddings": 8192, "tie_word_embeddings": True}


@dataclasses.dataclass(frozen=True)
class Starter:
    """One published model."""

    repository: str
    licence: str
    gguf: str
    awq: str
    config: dict[str, Any]

    @property
    def name(self) -> str:
        """Return the name without its owner."""
        return self.repository.partition("/")[2]


@dataclasses.dataclass(frozen=True)
class Form:
    """A starter in the form that one engine serves."""

    engine: str
    repository: str
    licence: str
    quantization: str
    candidate: Candidate


def _shape(hidden: int, layers: int, heads: int, kv_heads: int, intermediate: int) -> dict[str, int]:
    return {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": intermediate,
    }


TIED = {"tie_word_embeddings": True}
LARGE = {"vocab_size": 152064, "tie_word_embeddings": False}
APACHE = "Apache-2.0"
# The makers of SmolLM2 publish no 4-bit GGUF themselves.
SMALL_GGUF = "bartowski/SmolLM2-{}-Instruct-GGUF"


def _smol(size: str, shape: dict[str, int]) -> Starter:
    repository = f"HuggingFaceTB/SmolLM2-{size}-Instruct"
    return Starter(repository, APACHE, SMALL_GGUF.format(size), "", {**LLAMA, **shape})


def _qwen(size: str, tables: dict[str, Any], shape: dict[str, int]) -> Starter:
    repository = f"Qwen/Qwen2.5-{size}-Instruct"
    return Starter(repository, APACHE, f"{repository}-GGUF", f"{repository}-AWQ", {**QWEN, **tables, **shape})


STARTERS = (
    _smol("135M", _shape(576, 30, 9, 3, 1536)),
    _smol("360M", _shape(960, 32, 15, 5, 2560)),
    _qwen("0.5B", TIED, _shape(896, 24, 14, 2, 4864)),
    _qwen("1.5B", TIED, _shape(1536, 28, 12, 2, 8960)),
    _qwen("7B", LARGE, _shape(3584, 28, 28, 4, 18944)),
    _qwen("14B", LARGE, _shape(5120, 48, 40, 8, 13824)),
)
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128}


def forms_of(starter: Starter) -> list[Form]:
    """Return the forms in which ``starter`` can be served."""
    plain = shape_of_config({**starter.config, "torch_dtype": "bfloat16"})
    q4 = q4_candidate(starter.name, plain)
    found = [
        Form(VLLM, starter.repository, starter.licence, "none", _counted(starter.name, plain)),
        Form(LLAMA_CPP, starter.gguf, starter.licence, "Q4_0", q4),
    ]
    if starter.awq:
        packed = shape_of_config({**starter.config, "torch_dtype": "float16", "quantization_config": AWQ})
        counted = _counted(starter.name, packed)
        found.append(Form(VLLM, starter.awq, starter.licence, "AWQ 4-bit", counted))
    return found


def _counted(name: str, shape: ModelShape) -> Candidate:
    narrow, wide = served_bytes(shape, "bfloat16"), served_bytes(shape, "float32")
    return Candidate(name, "", "safetensors", shape, narrow, wide, 0, "shape")


def q4_candidate(name: str, shape: ModelShape) -> Candidate:
    """Return the GGUF that a 4-bit quantization of ``shape`` gives; the head is stored even where it is tied."""
    table = shape.vocab * shape.hidden
    layers = shape.layer_parameters * Q4_BITS / 8
    head = table * Q4_HEAD_BITS / 8
    whole = int(layers + table * Q4_BITS / 8 + head + 4 * shape.other_parameters)
    packed = dataclasses.replace(shape, packing=Packing("gguf", 4, Q4_BITS, "Q4_0"))
    read = int(shape.active_parameters * Q4_BITS / 8 + head)
    return Candidate(name, "", "gguf", packed, whole, whole, read, "shape")
