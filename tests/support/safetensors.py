# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Small safetensors files, for the tests of what reads them."""

from __future__ import annotations

import json
import struct

__all__ = ("head", "safetensors")

WIDTHS = {"F32": 4, "BF16": 2, "F16": 2, "I32": 4}


def head(tensors: dict[str, tuple[str, int]]) -> tuple[bytes, int]:
    """Return the head of a file and the bytes of its weights; ``tensors`` are type and number of elements by name."""
    document: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (kind, count) in tensors.items():
        start, end = end, end + count * WIDTHS[kind]
        document[name] = {"dtype": kind, "shape": [count], "data_offsets": [start, end]}
    header = json.dumps(document).encode()
    return struct.pack("<Q", len(header)) + header, end


def safetensors(tensors: dict[str, tuple[str, int]], filling: bytes = b"\0") -> bytes:
    """Return a whole file with ``filling`` for weights."""
    first, size = head(tensors)
    return first + filling * size
