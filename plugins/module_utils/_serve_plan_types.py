# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""What a plan of a service is made of: a candidate (weights and their shape), a wish, and a draft for one engine."""

from __future__ import annotations

import dataclasses
from typing import Any

from ansible_collections.cpufleet.vllm.plugins.module_utils._model_shape import ModelShape, Packing

__all__ = ("LLAMA_CPP", "VLLM", "Candidate", "Draft", "Wish", "candidate_from")

VLLM, LLAMA_CPP = "vllm", "llama_cpp"


@dataclasses.dataclass(frozen=True)
class Candidate:
    """Weights that may be served. ``form`` is safetensors or gguf.

    ``narrow_bytes`` and ``wide_bytes`` are what they take with 16- and 32-bit floats, ``read_bytes`` what one token
    reads of a GGUF; ``source`` says where the size comes from: header, index, or shape (counted, not seen).
    """

    name: str
    path: str
    form: str
    shape: ModelShape
    narrow_bytes: int
    wide_bytes: int
    read_bytes: int
    source: str

    @property
    def label(self) -> str:
        """Return the name with its quantization, as people write it."""
        told = self.shape.packing.method.lower() in self.name.lower() or not self.shape.packing.name
        return self.name if told and self.form != "gguf" else f"{self.name} {self.shape.packing.name}"


@dataclasses.dataclass(frozen=True)
class Wish:
    """What the user wants. 0 for ``context`` and ``kv_bytes`` and "auto" elsewhere leave the choice to the plan.

    ``whole_gib``: the KV cache is told by the variable, in whole GiB, even where the release takes bytes.
    """

    context: int = 0
    concurrency: int = 1
    engine: str = "auto"
    dtype: str = "auto"
    kv_bytes: int = 0
    whole_gib: bool = False


def candidate_from(document: dict[str, Any]) -> Candidate:
    """Return the candidate that ``dataclasses.asdict`` made ``document`` of: model_info hands them on as data."""
    shape = dict(document["shape"])
    shape["packing"] = Packing(**shape["packing"])
    return Candidate(**{**document, "shape": ModelShape(**shape)})


@dataclasses.dataclass(frozen=True)
class Draft:
    """One candidate on one engine. ``problems`` say why it cannot be; ``short`` is the memory that it lacks."""

    engine: str
    candidate: Candidate
    dtype: str
    weights: int
    overhead: int
    kv_per_token: int
    kv_bytes: int
    context: int
    sequences: int
    tokens_per_s: float
    problems: tuple[str, ...]
    short: int

    @property
    def needed(self) -> int:
        """Return the memory of the whole service."""
        return self.weights + self.overhead + self.kv_bytes

    @property
    def fits(self) -> bool:
        """Return whether nothing speaks against it."""
        return not self.problems and self.short <= 0
