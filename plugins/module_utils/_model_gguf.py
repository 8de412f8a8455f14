# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""What a GGUF file says of itself. Only its head is read: keys, then name, shape and type of every tensor."""

from __future__ import annotations

import dataclasses
import struct
from typing import Any, Callable

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._model_shape import ModelShape, Packing

__all__ = ("MAGIC", "GgufHeader", "parse_gguf", "shape_of_gguf")

MAGIC = b"GGUF"
VERSIONS = (2, 3)
BLOCK = 1 << 20
LONGEST_TEXT = 1 << 24
MOST_ENTRIES = 1 << 24
KEPT_ENTRIES = 4096
TEXT, LIST = 8, 9
SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
# Weights in a block and bytes of a block, by the number of the tensor type.
TENSOR_TYPES = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 36),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
}
TABLES = ("token_embd.weight", "output.weight")


@dataclasses.dataclass(frozen=True)
class Tensor:
    """One tensor of the file."""

    name: str
    kind: str
    elements: int
    size: int
    offset: int


@dataclasses.dataclass(frozen=True)
class GgufHeader:
    """``keys`` without the long lists, of which ``lengths`` tells how long they are."""

    version: int
    keys: dict[str, Any]
    lengths: dict[str, int]
    tensors: tuple[Tensor, ...]

    @property
    def weights_bytes(self) -> int:
        """Return the bytes of all tensors."""
        return sum(tensor.size for tensor in self.tensors)

    @property
    def kind(self) -> str:
        """Return the tensor type that most of the bytes have, such as Q4_0."""
        sizes: dict[str, int] = {}
        for tensor in self.tensors:
            sizes[tensor.kind] = sizes.get(tensor.kind, 0) + tensor.size
        return max(sizes, key=lambda kind: sizes[kind], default="")

    def read_for_a_token(self) -> int:
        """Return the bytes that one token reads: everything, of the experts those it is sent to, of a table a row."""
        names = {tensor.name for tensor in self.tensors}
        arch = str(self.keys.get("general.architecture") or "")
        experts = int(self.keys.get(f"{arch}.expert_count") or 0)
        used = int(self.keys.get(f"{arch}.expert_used_count") or experts)
        total = 0
        for tensor in self.tensors:
            if tensor.name == TABLES[0] and TABLES[1] in names:
                continue
            share = used / experts if experts and "_exps." in tensor.name else 1
            total += int(tensor.size * share)
        return total


class Cursor:
    """A place in a file that moves forward; ``fetch`` gives bytes from a start on."""

    def __init__(self, fetch: Callable[[int, int], bytes], size: int, path: str) -> None:
        self.fetch, self.size, self.path = fetch, size, path
        self.position = self.start = 0
        self.block = b""

    def take(self, count: int) -> bytes:
        """Return the next ``count`` bytes."""
        if self.position + count > self.size:
            raise damaged(self.path, f"its head goes beyond its end at byte {self.size}")
        begin = self.position - self.start
        if not 0 <= begin <= begin + count <= len(self.block):
            self.block = self.fetch(self.position, max(BLOCK, count))
            self.start, begin = self.position, 0
        self.position += count
        return self.block[begin : begin + count]

    def number(self, layout: str) -> Any:
        """Return the next number."""
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]

    def count(self, most: int) -> int:
        """Return the next length, refusing one that no real file has."""
        found = int(self.number("<Q"))
        if found > most:
            raise damaged(self.path, f"it speaks of {found} entries")
        return found

    def text(self) -> str:
        """Return the next string."""
        return self.take(self.count(LONGEST_TEXT)).decode("utf-8", "replace")


def damaged(path: str, why: str) -> CpufleetError:
    """Return the error for a file that is no whole GGUF."""
    return CpufleetError(f"Cannot read {path} as GGUF: {why}", "Fetch it again and compare its SHA-256", path=path)


def parse_gguf(fetch: Callable[[int, int], bytes], size: int, path: str) -> GgufHeader:
    """Return the head of a GGUF of ``size`` bytes, read by ``fetch(start, length)``; ``path`` names it in errors."""
    cursor = Cursor(fetch, size, path)
    if cursor.take(4) != MAGIC:
        raise damaged(path, "it does not begin with the letters GGUF")
    version = int(cursor.number("<I"))
    if version not in VERSIONS:
        raise CpufleetError(
            f"Cannot read {path}: it is of GGUF version {version}, known are 2 and 3 for little-endian machines",
            "Convert the model again with a current llama.cpp",
            path=path,
        )
    tensor_count, key_count = cursor.count(MOST_ENTRIES), cursor.count(MOST_ENTRIES)
    keys: dict[str, Any] = {}
    lengths: dict[str, int] = {}
    for _number in range(key_count):
        name = cursor.text()
        keys[name] = _value(cursor, int(cursor.number("<I")), lengths, name)
    tensors = tuple(_tensor(cursor) for _number in range(tensor_count))
    _check_end(cursor, keys, tensors)
    return GgufHeader(version, keys, lengths, tensors)


def _value(cursor: Cursor, kind: int, lengths: dict[str, int], name: str) -> Any:
    if kind == TEXT:
        return cursor.text()
    if kind in SCALARS:
        return cursor.number(SCALARS[kind])
    if kind != LIST:
        raise damaged(cursor.path, f"key {name} is of the unknown type {kind}")
    inner, count = int(cursor.number("<I")), cursor.count(MOST_ENTRIES)
    lengths[name] = count
    if inner in SCALARS and count > KEPT_ENTRIES:
        _skip(cursor, struct.calcsize(SCALARS[inner]) * count)
        return None
    entries = [_value(cursor, inner, lengths, name) for _number in range(count)]
    lengths[name] = count
    return entries if count <= KEPT_ENTRIES else None


def _skip(cursor: Cursor, count: int) -> None:
    if cursor.position + count > cursor.size:
        raise damaged(cursor.path, f"its head goes beyond its end at byte {cursor.size}")
    cursor.position += count


def _tensor(cursor: Cursor) -> Tensor:
    name = cursor.text()
    elements = 1
    for _dimension in range(int(cursor.number("<I"))):
        elements *= int(cursor.number("<Q"))
    number, offset = int(cursor.number("<I")), int(cursor.number("<Q"))
    if number not in TENSOR_TYPES:
        raise damaged(cursor.path, f"tensor {name} is of the unknown type {number}")
    kind, block, size = TENSOR_TYPES[number]
    return Tensor(name, kind, elements, -(-elements // block) * size, offset)


def _check_end(cursor: Cursor, keys: dict[str, Any], tensors: tuple[Tensor, ...]) -> None:
    alignment = int(keys.get("general.alignment") or 32)
    data = -(-cursor.position // alignment) * alignment
    end = data + max((tensor.offset + tensor.size for tensor in tensors), default=0)
    if cursor.size < end:
        raise damaged(cursor.path, f"it has {cursor.size} bytes, its head speaks of {end}")


def shape_of_gguf(header: GgufHeader, path: str) -> ModelShape:
    """Return the shape of the model in a GGUF; raise CpufleetError where the keys that decide are missing."""
    arch = str(header.keys.get("general.architecture") or "")

    def key(name: str, default: int = 0) -> int:
        value = header.keys.get(f"{arch}.{name}", default)
        return int(max(value) if isinstance(value, list) and value else value or default)

    layers, hidden, heads = key("block_count"), key("embedding_length"), key("attention.head_count")
    if not (layers and hidden and heads):
        raise CpufleetError(
            f"Cannot plan for {path}: it names no layers, width or heads of a language model",
            "Name the model's own GGUF, not an adapter, a projector or a later part of a split one",
            path=path,
        )
    size, kv_heads = key("attention.key_length", hidden // heads), key("attention.head_count_kv", heads)
    tables = [tensor.elements for tensor in header.tensors if tensor.name in TABLES]
    whole, active, counted = _parameters(header, key("expert_count"), key("expert_used_count"))
    return ModelShape(
        architecture=arch,
        model_type=arch,
        dtype="",
        layers=layers,
        hidden=hidden,
        intermediate=key("feed_forward_length") or key("expert_feed_forward_length"),
        heads=heads,
        kv_heads=kv_heads,
        head_size=size,
        vocab=header.lengths.get("tokenizer.ggml.tokens") or key("vocab_size"),
        context=key("context_length"),
        window=key("attention.sliding_window"),
        tied=len(tables) < 2,  # noqa: PLR2004 - a table and a head
        experts=key("expert_count"),
        experts_used=key("expert_used_count"),
        layer_parameters=whole,
        active_parameters=active,
        table_parameters=sum(tables),
        other_parameters=counted - whole - sum(tables),
        kv_elements=layers * kv_heads * (size + key("attention.value_length", size)),
        packing=Packing("gguf", 4, 8 * header.weights_bytes / counted if counted else 0.0, header.kind),
    )


def _parameters(header: GgufHeader, experts: int, used: int) -> tuple[int, int, int]:
    """Return the linear weights of all layers, those that one token passes, and all weights of the file."""
    linear = [tensor for tensor in header.tensors if tensor.name.endswith(".weight") and tensor.name not in TABLES]
    whole = sum(tensor.elements for tensor in linear)
    routed = sum(tensor.elements for tensor in linear if "_exps." in tensor.name)
    active = whole - routed + (routed * used // experts if experts else 0)
    return whole, active, sum(tensor.elements for tensor in header.tensors)
