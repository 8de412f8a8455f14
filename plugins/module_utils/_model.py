# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""What a model folder holds: its shape from config.json, its weights in bytes, its files."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._model_shape import DTYPE_BYTES, kv_elements

__all__ = ("ModelInfo", "describe_model", "kv_bytes_per_token", "no_gguf")

WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".gguf")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json")


@dataclasses.dataclass(frozen=True)
class ModelInfo:
    """A model folder: sizes in bytes, ``context`` in tokens (0: not said), ``problems`` empty when it can be served."""

    path: str
    architecture: str
    model_type: str
    dtype: str
    context: int
    weights_bytes: int
    kv_bytes_per_token: int
    chat_template: bool
    problems: list[str]


def kv_bytes_per_token(config: dict[str, Any], element_bytes: int = 2) -> int:
    """Return the bytes one token occupies in the KV cache: key and value, every layer, ``element_bytes`` an element."""
    return kv_elements(config) * element_bytes


def describe_model(
    path: str, sizes: dict[str, int], config: dict[str, Any] | None, tokenizer: dict[str, Any] | None
) -> ModelInfo:
    """Describe the folder ``path`` from its file ``sizes`` (name to bytes) and its parsed JSON files."""
    config_found = config is not None
    shape = config or {}
    architectures = shape.get("architectures") or [""]
    dtype = str(shape.get("torch_dtype") or shape.get("dtype") or "")
    return ModelInfo(
        path=path,
        architecture=str(architectures[0]),
        model_type=str(shape.get("model_type") or ""),
        dtype=dtype,
        context=int(shape.get("max_position_embeddings") or 0),
        weights_bytes=_weights_bytes(sizes),
        kv_bytes_per_token=kv_bytes_per_token(shape, DTYPE_BYTES.get(dtype, 2)),
        chat_template=bool((tokenizer or {}).get("chat_template")) or "chat_template.jinja" in sizes,
        problems=_problems(path, sizes, config_found, architectures),
    )


def no_gguf(name: str, first: bytes) -> CpufleetError:
    """Return the error for a file that is called .gguf and begins with the bytes ``first``."""
    shown = first.lstrip()[:16].decode("utf-8", "replace")
    return CpufleetError(
        f"Refused {name}: it is no GGUF, whose first bytes are the letters GGUF, but begins with {shown!r}",
        "It may be a page that was saved in place of the file: fetch it again from its source",
        path=name,
    )


def _weights_bytes(sizes: dict[str, int]) -> int:
    """Sum one set of weights: a folder that has safetensors is not charged for its older .bin twins."""
    for suffix in WEIGHT_SUFFIXES:
        total = sum(size for name, size in sizes.items() if name.endswith(suffix))
        if total:
            return total
    return 0


def _problems(path: str, sizes: dict[str, int], config_found: bool, architectures: list[str]) -> list[str]:
    problems = []
    if not path:
        return ["model_serve_model is empty. Set it to a folder with config.json, the weights and the tokenizer."]
    if not sizes:
        return [f"the model folder {path} does not exist or is empty. Name a folder with config.json and the weights."]
    if not config_found:
        problems.append(
            f"the model folder {path} has no readable config.json. Copy the whole model repository into that folder, "
            "or correct model_serve_model."
        )
    elif not architectures[0]:
        problems.append(f"{os.path.join(path, 'config.json')} names no architecture. Restore the file from the source.")
    if not _weights_bytes(sizes):
        problems.append(f"the model folder {path} has no weights (*.safetensors). Copy them into that folder.")
    if not any(name in sizes for name in TOKENIZER_FILES):
        problems.append(
            f"the model folder {path} has no tokenizer ({', '.join(TOKENIZER_FILES)}). Copy it into that folder."
        )
    return problems
