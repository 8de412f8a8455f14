# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Heads of GGUF files: read to the byte, refused where the file is cut off, foreign or damaged."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._model_gguf import GgufHeader, parse_gguf, shape_of_gguf

from tests.support.gguf import KEYS, TENSORS, gguf


def parse(content: bytes, asked: list[tuple[int, int]] | None = None) -> GgufHeader:
    def fetch(start: int, length: int) -> bytes:
        if asked is not None:
            asked.append((start, length))
        return content[start : start + length]

    return parse_gguf(fetch, len(content), "/m/model.gguf")


def test_keys_and_tensors() -> None:
    header = parse(gguf())
    assert header.version == 3
    assert header.keys["general.architecture"] == "qwen2"
    assert header.lengths["tokenizer.ggml.tokens"] == 96
    assert [(tensor.name, tensor.kind, tensor.size) for tensor in header.tensors] == [
        ("token_embd.weight", "Q4_0", 96 * 64 * 18 // 32),
        ("blk.0.attn_q.weight", "Q4_0", 64 * 64 * 18 // 32),
        ("blk.0.attn_norm.weight", "F32", 64 * 4),
        ("output.weight", "Q8_0", 96 * 64 * 34 // 32),
    ]
    assert header.weights_bytes == sum(tensor.size for tensor in header.tensors)
    assert header.kind == "Q8_0"


def test_only_the_head_is_read() -> None:
    weights = 64 << 20
    content = gguf(tensors=[("token_embd.weight", (weights,), 24)], data=b"\0" * 10)
    asked: list[tuple[int, int]] = []

    def fetch(start: int, length: int) -> bytes:
        asked.append((start, length))
        return content[start : start + length]

    header = parse_gguf(fetch, len(content) + weights, "/m/model.gguf")
    assert header.weights_bytes == weights
    assert sum(length for _start, length in asked) <= 1 << 20


def test_shape() -> None:
    shape = shape_of_gguf(parse(gguf()), "/m/model.gguf")
    assert (shape.layers, shape.hidden, shape.heads, shape.kv_heads, shape.head_size) == (1, 64, 4, 2, 16)
    assert (shape.context, shape.vocab, shape.tied, shape.kv_elements) == (2048, 96, False, 2 * 1 * 2 * 16)
    assert shape.parameters == 96 * 64 * 2 + 64 * 64 + 64


def test_a_token_reads_one_row_of_the_table_and_its_own_experts() -> None:
    header = parse(gguf())
    assert header.read_for_a_token() == header.weights_bytes - header.tensors[0].size
    tied = parse(gguf(tensors=TENSORS[:-1]))
    assert tied.read_for_a_token() == tied.weights_bytes
    keys = {**KEYS, "qwen2.expert_count": 8, "qwen2.expert_used_count": 2}
    experts = parse(gguf(keys, [*TENSORS, ("blk.0.ffn_up_exps.weight", (64, 32, 8), 2)]))
    routed = 64 * 32 * 8 * 18 // 32
    assert experts.read_for_a_token() == header.read_for_a_token() + routed // 4
    shape = shape_of_gguf(experts, "/m/model.gguf")
    assert shape.layer_parameters - shape.active_parameters == 64 * 32 * 6


def test_heads_that_differ_by_layer_count_as_the_most() -> None:
    keys = {**KEYS, "qwen2.attention.head_count_kv": [0, 4, 2]}
    assert shape_of_gguf(parse(gguf(keys)), "/m/model.gguf").kv_heads == 4


def test_long_lists_are_counted_and_not_kept() -> None:
    keys = {**KEYS, "tokenizer.ggml.scores": [0.5] * 5000, "tokenizer.ggml.tokens": ["x"] * 5000}
    header = parse(gguf(keys))
    assert header.lengths["tokenizer.ggml.scores"] == header.lengths["tokenizer.ggml.tokens"] == 5000
    assert header.keys["tokenizer.ggml.scores"] is None
    assert header.keys["tokenizer.ggml.tokens"] is None


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"PK\x03\x04" + bytes(40), "Cannot read /m/model.gguf as GGUF: it does not begin with the letters GGUF."),
        (b"GGUF\x03", "Cannot read /m/model.gguf as GGUF: its head goes beyond its end at byte 5."),
        (
            b"GGUF" + struct.pack("<I", 1) + bytes(40),
            "Cannot read /m/model.gguf: it is of GGUF version 1, known are 2 and 3 for little-endian machines.",
        ),
        (
            b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0) + bytes(40),
            f"Cannot read /m/model.gguf as GGUF: it speaks of {1 << 60} entries.",
        ),
        (
            gguf(tensors=[("t", (32,), 99)]),
            "Cannot read /m/model.gguf as GGUF: tensor t is of the unknown type 99.",
        ),
    ],
    ids=["another kind", "short", "old", "absurd", "unknown tensor"],
)
def test_foreign_and_damaged_files(content: bytes, text: str) -> None:
    with pytest.raises(CpufleetError) as caught:
        parse(content)
    assert str(caught.value).startswith(text)


def test_a_file_that_is_cut_off_is_refused() -> None:
    whole = gguf()
    parse(whole)
    with pytest.raises(CpufleetError) as caught:
        parse(whole[:-1])
    assert str(caught.value) == (
        f"Cannot read /m/model.gguf as GGUF: it has {len(whole) - 1} bytes, its head speaks of {len(whole)}. "
        "Fetch it again and compare its SHA-256."
    )


def test_a_file_that_is_no_language_model_is_refused() -> None:
    keys: dict[str, Any] = {"general.architecture": "clip"}
    with pytest.raises(CpufleetError, match="names no layers, width or heads"):
        shape_of_gguf(parse(gguf(keys)), "/m/mmproj.gguf")
