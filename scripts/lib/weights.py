# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write model folders: a safetensors file in bf16, and JSON that is the same bytes every time."""

from __future__ import annotations

import hashlib
import json
import struct
import sys
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Tensor:
    """One bf16 tensor: its name, shape, and little-endian bytes."""

    name: str
    shape: tuple[int, ...]
    data: bytes


def bfloat16(values: Iterable[float]) -> bytes:
    """Return ``values`` as little-endian bf16, rounded to nearest, ties to even."""
    words = array("I", array("f", values).tobytes())
    rounded = array("H", ((word + 0x7FFF + (word >> 16 & 1)) >> 16 for word in words))
    if sys.byteorder == "big":
        rounded.byteswap()
    return rounded.tobytes()


def write_safetensors(path: Path, tensors: Iterable[Tensor]) -> None:
    """Write ``tensors`` to ``path`` in the safetensors layout: header length, JSON header, data."""
    kept = list(tensors)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for tensor in kept:
        end = offset + len(tensor.data)
        header[tensor.name] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        for tensor in kept:
            stream.write(tensor.data)


def write_json(path: Path, document: Any) -> None:
    """Write ``document`` as JSON with a final newline."""
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def digests(folder: Path) -> dict[str, str]:
    """Return the sha256 of every file in ``folder``."""
    found = {}
    for file in sorted(folder.iterdir()):
        with file.open("rb") as stream:
            found[file.name] = hashlib.file_digest(stream, "sha256").hexdigest()
    return found
