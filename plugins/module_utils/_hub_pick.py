# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Which files of a repository a service needs: one set of weights, and what belongs to them."""

from __future__ import annotations

import dataclasses
import fnmatch
import re
from typing import Callable, Sequence

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._hub import HubFile
from ansible_collections.cpufleet.vllm.plugins.module_utils._sizes import human

__all__ = ("INDEX", "Picked", "pick")

INDEX = "model.safetensors.index.json"
# What stands beside the weights: shape, tokenizer, template, licence. No code: it would not be run.
BESIDE = ("*.json", "*.jinja", "*.model", "*.tiktoken", "merges.txt", "vocab.txt", "LICENSE*", "LICENCE*")
NOT_BESIDE = ("*.index.json", "adapter_*", "onnx*", "model.json")
# Other weights, whichever are taken: pickles can run code when they are read.
WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".onnx")
PICKLED = (".bin", ".pt", ".pth", ".ckpt")
PICKLES = re.compile(r"pytorch_model(-\d{5}-of-\d{5})?\.bin")
SPLIT = re.compile(r"-\d{5}-of-(\d{5})\.gguf$")


@dataclasses.dataclass(frozen=True)
class Picked:
    """The files to have; ``weights`` are those of them whose heads tell what they are."""

    weights: tuple[HubFile, ...]
    beside: tuple[HubFile, ...]

    @property
    def files(self) -> list[HubFile]:
        """Return all of them, sorted by name."""
        return sorted(self.weights + self.beside, key=lambda file: file.name)


def pick(
    files: Sequence[HubFile], patterns: Sequence[str], indexed: Sequence[str], is_gguf: Callable[[HubFile], bool]
) -> Picked:
    """Return the files that a service needs.

    ``patterns`` are the user's, ``indexed`` the weights that the index names (none where there is no index);
    ``is_gguf`` tells by the first bytes of a file.
    """
    top = [file for file in files if "/" not in file.name]
    weights = _asked_for(files, patterns, is_gguf) if patterns else _chosen(top, indexed)
    if all(is_gguf(file) for file in weights):
        beside = [file for file in top if _matches(file, ("LICENSE*", "LICENCE*"))]
    else:
        beside = [file for file in top if _matches(file, BESIDE) and not _matches(file, NOT_BESIDE)]
        beside += [file for file in top if file.name == INDEX and indexed]
    names = {file.name for file in weights}
    return Picked(tuple(weights), tuple(file for file in beside if file.name not in names))


def _matches(file: HubFile, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(file.name, pattern) for pattern in patterns)


def _asked_for(files: Sequence[HubFile], patterns: Sequence[str], is_gguf: Callable[[HubFile], bool]) -> list[HubFile]:
    """Return what the user's patterns name."""
    for pattern in patterns:
        if not any(_matches(file, (pattern,)) for file in files):
            names = ", ".join(file.name for file in files if file.name.endswith(WEIGHTS)) or "none"
            raise CpufleetError(
                f"model_serve_model_files has {pattern!r}, which no file of the model matches",
                f"Weights there: {names}",
            )
    found = [file for file in files if _matches(file, patterns)]
    if any(file.name.endswith(".safetensors") for file in files):
        pickles = [file.name for file in found if file.name.endswith(PICKLED) and not is_gguf(file)]
        found = [file for file in found if file.name not in pickles]
    if not found:
        raise CpufleetError(
            f"model_serve_model_files names {', '.join(pickles)}, which can run code when they are read, and the model "
            "has the same weights as safetensors",
            "Name those, or leave model_serve_model_files out",
        )
    return found


def _chosen(top: Sequence[HubFile], indexed: Sequence[str]) -> list[HubFile]:
    """Return the one set of weights that there is to have; raise CpufleetError where there is none, or a choice."""
    if indexed:
        found = [file for file in top if file.name in indexed]
        missing = sorted(set(indexed) - {file.name for file in found})
        if missing:
            raise CpufleetError(
                f"The model's index names weights that the hub does not have: {', '.join(missing)}",
                "Choose another revision or source",
            )
        return found
    tensors = [file for file in top if file.name.endswith(".safetensors")]
    single = [file for file in tensors if file.name == "model.safetensors"]
    if single or tensors:
        return single or [file for file in tensors if not file.name.startswith("consolidated")] or tensors
    return _one_gguf(top) or [file for file in top if PICKLES.fullmatch(file.name)] or _none(top)


def _one_gguf(top: Sequence[HubFile]) -> list[HubFile]:
    found = [file for file in top if file.name.endswith(".gguf") and not file.name.startswith("mmproj")]
    sets = {SPLIT.sub("", file.name) for file in found}
    if len(sets) > 1:
        told = ", ".join(f"{file.name} ({human(file.size)})" for file in found)
        raise CpufleetError(
            f"The model comes in {len(sets)} forms: {told}",
            "Name one in model_serve_model_files, such as *q4_0.gguf or *Q4_K_M.gguf",
        )
    return found


def _none(top: Sequence[HubFile]) -> list[HubFile]:
    names = ", ".join(file.name for file in top) or "no file at its top"
    raise CpufleetError(
        f"The model has no weights that can be served (*.safetensors, *.gguf); it has {names}",
        "Choose another repository, or name the files in model_serve_model_files",
    )
