# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""The candidates that lie in a place: a folder, a GGUF file, or a config.json with an index beside it. Heads only."""

from __future__ import annotations

import dataclasses
import os
import re
from typing import Any

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._io import file_size, read_json, read_range
from ansible_collections.cpufleet.vllm.plugins.module_utils._model_gguf import (
    MAGIC,
    GgufHeader,
    parse_gguf,
    shape_of_gguf,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._model_safetensors import read_safetensors
from ansible_collections.cpufleet.vllm.plugins.module_utils._model_shape import (
    ModelShape,
    served_bytes,
    shape_of_config,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan_types import Candidate

__all__ = ("read_candidates",)

PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


def read_candidates(path: str) -> list[Candidate]:
    """Return what can be served from ``path``: weights with config.json, and every GGUF, told by its first bytes."""
    if os.path.isdir(path):
        return _read_folder(path)
    if not os.path.isfile(path):
        raise CpufleetError(
            f"Cannot plan for the model {path}: it does not exist",
            "Name a folder with config.json, a GGUF file, or a config.json",
            path=path,
        )
    if read_range(path, 0, len(MAGIC)) == MAGIC:
        return [_read_gguf(path)]
    if path.endswith(".json"):
        return [_read_config(os.path.dirname(path) or ".", path)]
    raise CpufleetError(
        f"Cannot plan for the model {path}: it is neither a GGUF file nor a config.json",
        "Name a folder with config.json, a GGUF file, or a config.json",
        path=path,
    )


def _read_folder(folder: str) -> list[Candidate]:
    names = sorted(os.listdir(folder))
    config = os.path.join(folder, "config.json")
    found = [_read_config(folder, config)] if os.path.exists(config) else []
    for name in names:
        path, part = os.path.join(folder, name), PART.search(name)
        later = part is not None and int(part[1]) > 1
        if os.path.isfile(path) and not later and read_range(path, 0, len(MAGIC)) == MAGIC:
            found.append(_read_gguf(path))
    if not found:
        raise CpufleetError(
            f"Cannot plan for the model in {folder}: it holds neither a config.json nor a GGUF file",
            "Copy the whole model into that folder, or name another one",
            path=folder,
        )
    return found


def _read_config(folder: str, path: str) -> Candidate:
    document: Any = read_json(path)
    if not isinstance(document, dict):
        raise CpufleetError(
            f"Cannot read {path}: it is no JSON object", "Restore it from the model's source", path=path
        )
    shape = shape_of_config(document, path)
    name = os.path.basename(os.path.abspath(folder))
    size = read_safetensors(folder, sorted(os.listdir(folder)))
    if size is not None and size.complete:
        narrow, wide, source = size.served(2), size.served(4), "header"
    elif size is not None:
        narrow, wide, source = *_formats(shape, size.total_bytes), "index"
    else:
        total = _pickled(folder)
        narrow, wide = _formats(shape, total or served_bytes(shape, shape.dtype))
        source = "files" if total else "shape"
    return Candidate(name, folder, "safetensors", shape, narrow, wide, 0, source)


def _pickled(folder: str) -> int:
    """Return the size of weights in the older format, whose files do not tell their tensors."""
    names = [name for name in os.listdir(folder) if name.startswith("pytorch_model") and name.endswith(".bin")]
    return sum(file_size(os.path.join(folder, name)) for name in names)


def _formats(shape: ModelShape, total: int) -> tuple[int, int]:
    """Return the bytes with 16- and with 32-bit floats, of weights whose total is known in the format they are in."""
    change = served_bytes(shape, "float32") - served_bytes(shape, "bfloat16")
    return (total - change, total) if shape.dtype == "float32" else (total, total + change)


def _read_gguf(path: str) -> Candidate:
    header, part = _head(path), PART.search(path)
    for number in range(2, int(part[2]) + 1 if part else 2):
        later = _head(f"{path[: part.start()]}-{number:05}-of-{part[2]}.gguf" if part else "")
        header = dataclasses.replace(header, tensors=header.tensors + later.tensors)
    name, _dot, _suffix = os.path.basename(path).rpartition(".")
    weights = header.weights_bytes
    return Candidate(
        name or path, path, "gguf", shape_of_gguf(header, path), weights, weights, header.read_for_a_token(), "header"
    )


def _head(path: str) -> GgufHeader:
    return parse_gguf(lambda start, length: read_range(path, start, length), file_size(path), path)
