# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""A model folder, read: what it holds, what a service can be planned from, and why it cannot be served."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._io import read_bytes, read_range
from ansible_collections.cpufleet.vllm.plugins.module_utils._model import describe_model, no_gguf
from ansible_collections.cpufleet.vllm.plugins.module_utils._model_gguf import MAGIC
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan_read import read_candidates
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan_types import Candidate

__all__ = ("describe_folder",)

FIRST_BYTES = 24


def describe_folder(path: str, sizes: dict[str, int]) -> dict[str, Any]:
    """Return what the model folder ``path`` holds; ``sizes`` are its files. Weights are read as far as their heads."""
    config = _load_json(os.path.join(path, "config.json"))
    tokenizer = _load_json(os.path.join(path, "tokenizer_config.json"))
    model = dataclasses.asdict(describe_model(path, sizes, config, tokenizer))
    if os.path.isfile(path):
        model["problems"] = [f"{path} is a file. Name the folder that it lies in."]
    found, unread = _candidates(path, sizes)
    packed = [candidate for candidate in found if candidate.form == "gguf"]
    if unread and (not model["problems"] or _only_gguf(sizes, config)):
        model["problems"] = [unread]
    elif config is None and packed:
        model.update(_of_gguf(packed[0]))
    model["candidates"] = [] if model["problems"] else [dataclasses.asdict(candidate) for candidate in found]
    return model


def _load_json(path: str) -> dict[str, Any] | None:
    """Return the object in ``path``, or None where it is missing, unreadable or not an object."""
    try:
        document = json.loads(read_bytes(path))
    except (CpufleetError, ValueError):
        return None
    return document if isinstance(document, dict) else None


def _only_gguf(sizes: dict[str, int], config: dict[str, Any] | None) -> bool:
    return config is None and any(name.endswith(".gguf") for name in sizes)


def _candidates(path: str, sizes: dict[str, int]) -> tuple[list[Candidate], str]:
    """Return what can be planned from, and what is wrong with weights that are there."""
    try:
        for name in sorted(sizes):
            first = read_range(os.path.join(path, name), 0, FIRST_BYTES) if name.endswith(".gguf") else MAGIC
            if not first.startswith(MAGIC):
                raise no_gguf(os.path.join(path, name), first)
        return (read_candidates(path) if sizes else []), ""
    except CpufleetError as error:
        return [], str(error)


def _of_gguf(candidate: Candidate) -> dict[str, Any]:
    """Return the description of a folder that holds a GGUF and no config.json: it has the tokenizer in itself."""
    shape = candidate.shape
    return {
        "architecture": shape.architecture,
        "model_type": shape.model_type,
        "context": shape.context,
        "weights_bytes": candidate.narrow_bytes,
        "kv_bytes_per_token": shape.kv_elements * 2,
        "problems": [],
    }
