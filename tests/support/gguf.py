# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Small GGUF files, written from the published layout, for the tests of what reads them."""

from __future__ import annotations

import math
import struct
from typing import Any

__all__ = ("KEYS", "TENSORS", "gguf")

KEYS: dict[str, Any] = {
    "general.architecture": "qwen2",
    "qwen2.block_count": 1,
    "qwen2.context_length": 2048,
    "qwen2.embedding_length": 64,
    "qwen2.feed_forward_length": 128,
    "qwen2.attention.head_count": 4,
    "qwen2.attention.head_count_kv": 2,
    "qwen2.rope.freq_base": 10000.0,
    "tokenizer.ggml.tokens": [f"t{number}" for number in range(96)],
    "tokenizer.ggml.add_bos_token": False,
}
TENSORS: list[tuple[str, tuple[int, ...], int]] = [
    ("token_embd.weight", (64, 96), 2),
    ("blk.0.attn_q.weight", (64, 64), 2),
    ("blk.0.attn_norm.weight", (64,), 0),
    ("output.weight", (64, 96), 8),
]
SIZES = {0: (1, 4), 2: (32, 18), 8: (32, 34), 24: (1, 1)}
ALIGNMENT = 32


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def typed(value: Any) -> tuple[int, bytes]:
    """Return the type's number and the bytes of a value."""
    if isinstance(value, bool):
        return 7, struct.pack("<?", value)
    if isinstance(value, int):
        return 4, struct.pack("<I", value)
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    if isinstance(value, str):
        return 8, text(value)
    inner = typed(value[0])[0]
    return 9, struct.pack("<IQ", inner, len(value)) + b"".join(typed(entry)[1] for entry in value)


def padded(length: int) -> int:
    return -(-length // ALIGNMENT) * ALIGNMENT


def gguf(
    keys: dict[str, Any] | None = None,
    tensors: list[tuple[str, tuple[int, ...], int]] | None = None,
    data: bytes | None = None,
) -> bytes:
    """Return a GGUF of version 3 with zeros for weights, or with ``data`` in their place."""
    entries, shapes = KEYS if keys is None else keys, TENSORS if tensors is None else tensors
    head = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(entries))
    for name, value in entries.items():
        kind, content = typed(value)
        head += text(name) + struct.pack("<I", kind) + content
    offset = end = 0
    for name, dimensions, kind in shapes:
        block, size = SIZES.get(kind, (1, 1))
        head += text(name) + struct.pack(f"<I{len(dimensions)}QIQ", len(dimensions), *dimensions, kind, offset)
        end = offset + math.prod(dimensions) // block * size
        offset = padded(end)
    head += bytes(padded(len(head)) - len(head))
    return head + (bytes(end) if data is None else data)
