# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""What safetensors files say of themselves: the header of each file, and the index over several."""

from __future__ import annotations

import dataclasses
import json
import os
import struct
from typing import Any

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._io import file_size, read_json, read_range

__all__ = ("SafetensorsSize", "header_size", "parse_header", "read_index", "read_safetensors")

INDEX = "model.safetensors.index.json"
LENGTH_BYTES = 8
# The format itself allows no longer header.
LONGEST_HEADER = 100_000_000
FLOATS = ("F64", "F32", "F16", "BF16")
FLOAT_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}


@dataclasses.dataclass(frozen=True)
class SafetensorsSize:
    """Bytes of all tensors; ``float_elements`` are those that a change of the number format changes."""

    total_bytes: int
    float_elements: int
    float_bytes: int
    complete: bool

    def served(self, element_bytes: int) -> int:
        """Return the bytes with every floating-point tensor in ``element_bytes``; packed integers stay."""
        return self.total_bytes - self.float_bytes + self.float_elements * element_bytes


def header_size(first: bytes, path: str) -> int:
    """Return the length of the header from a file's first eight bytes."""
    length = struct.unpack("<Q", first)[0] if len(first) == LENGTH_BYTES else 0
    if not 2 <= length <= LONGEST_HEADER:  # noqa: PLR2004 - an empty JSON object
        raise CpufleetError(
            f"Cannot read {path}: it does not begin as a safetensors file", "Fetch the file again", path=path
        )
    return int(length)


def parse_header(header: bytes, path: str, file_bytes: int) -> SafetensorsSize:
    """Return the sizes in a header; raise CpufleetError where the file is shorter or longer than the header says."""
    try:
        document = json.loads(header)
        tensors = {name: entry for name, entry in document.items() if name != "__metadata__"}
        spans = [(entry["data_offsets"][0], entry["data_offsets"][1], entry["dtype"]) for entry in tensors.values()]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise CpufleetError(f"Cannot read the header of {path}: {error}", "Fetch the file again", path=path) from error
    end = max((stop for _start, stop, _kind in spans), default=0)
    expected = LENGTH_BYTES + len(header) + end
    if file_bytes != expected:
        raise CpufleetError(
            f"Cannot use {path}: it has {file_bytes} bytes, its header speaks of {expected}",
            "The file is cut off or damaged: fetch it again",
            path=path,
            expected_bytes=expected,
            bytes=file_bytes,
        )
    floats = [(stop - start, FLOAT_BYTES[kind]) for start, stop, kind in spans if kind in FLOATS]
    return SafetensorsSize(
        total_bytes=sum(stop - start for start, stop, _kind in spans),
        float_elements=sum(size // element for size, element in floats),
        float_bytes=sum(size for size, _element in floats),
        complete=True,
    )


def read_index(document: dict[str, Any], path: str) -> tuple[int, list[str]]:
    """Return the total bytes and the file names that an index names."""
    names = sorted(set((document.get("weight_map") or {}).values()))
    total = int((document.get("metadata") or {}).get("total_size") or 0)
    if not names or not total:
        raise CpufleetError(
            f"Cannot read {path}: it names no files or no total size", "Restore it from the model's source", path=path
        )
    return total, names


def read_safetensors(folder: str, names: list[str]) -> SafetensorsSize | None:
    """Return the true size of a folder's safetensors; from the index alone where the files are not there yet."""
    index = os.path.join(folder, INDEX)
    if not os.path.exists(index):
        found = sorted(name for name in names if name.endswith(".safetensors"))
        return _sum([_read_file(os.path.join(folder, name)) for name in found]) if found else None
    total, wanted = read_index(read_json(index), index)
    missing = [name for name in wanted if name not in names]
    if len(missing) == len(wanted):
        return SafetensorsSize(total, 0, 0, complete=False)
    if missing:
        raise CpufleetError(
            f"Cannot use the model in {folder}: of its {len(wanted)} weight files these are missing: "
            f"{', '.join(missing)}",
            "Copy or fetch the whole model",
            path=folder,
            missing=missing,
        )
    return _sum([_read_file(os.path.join(folder, name)) for name in wanted])


def _read_file(path: str) -> SafetensorsSize:
    length = header_size(read_range(path, 0, LENGTH_BYTES), path)
    return parse_header(read_range(path, LENGTH_BYTES, length), path, file_size(path))


def _sum(parts: list[SafetensorsSize]) -> SafetensorsSize:
    return SafetensorsSize(
        total_bytes=sum(part.total_bytes for part in parts),
        float_elements=sum(part.float_elements for part in parts),
        float_bytes=sum(part.float_bytes for part in parts),
        complete=all(part.complete for part in parts),
    )
