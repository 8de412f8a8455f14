# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tiny model is the same bytes every time, and the files that models are made of are what they should be."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path

import pytest

from scripts.lib import bpe, smollm2, tiny_qwen2, weights

LICENSE = (Path(__file__).resolve().parents[2] / "LICENSE").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folders = (tmp_path_factory.mktemp("first"), tmp_path_factory.mktemp("second"))
    for folder in folders:
        tiny_qwen2.make(folder, LICENSE)
    return folders


def header(file: Path) -> dict[str, dict[str, list[int]]]:
    content = file.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    assert length % 8 == 0
    document: dict[str, dict[str, list[int]]] = json.loads(content[8 : 8 + length])
    return document


def test_tiny_model_is_the_same_bytes_twice(twice: tuple[Path, Path]) -> None:
    first, second = (weights.digests(folder) for folder in twice)
    assert first == second
    assert sorted(first) == [
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]


def test_tiny_model_is_the_same_bytes_on_every_machine(twice: tuple[Path, Path]) -> None:
    # Pinned: a change of these is a change of the model, and every reference answer is to be asked anew.
    known = weights.digests(twice[0])
    assert known["model.safetensors"] == "a8c46b77457e9b0ecc131892a4715e271d855b13ae3c58fbc88208f74e9c1201"
    assert known["tokenizer.json"] == "5d85b34d6027c02973aaa2cdeb3dbb29ccc949ef4f10ae3f2288b8750d12ca71"


def test_tiny_model_tensors_agree_with_its_config(twice: tuple[Path, Path]) -> None:
    config = json.loads((twice[0] / "config.json").read_text(encoding="utf-8"))
    tensors = header(twice[0] / "model.safetensors")
    shapes = {name: entry["shape"] for name, entry in tensors.items() if name != "__metadata__"}
    hidden, inner, vocabulary = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    head = hidden // config["num_attention_heads"]
    assert shapes["model.embed_tokens.weight"] == shapes["lm_head.weight"] == [vocabulary, hidden]
    assert shapes["model.layers.0.self_attn.k_proj.weight"] == [config["num_key_value_heads"] * head, hidden]
    assert shapes["model.layers.2.mlp.down_proj.weight"] == [hidden, inner]
    assert len(shapes) == config["num_hidden_layers"] * 12 + 3
    ends = [entry["data_offsets"][1] for name, entry in tensors.items() if name != "__metadata__"]
    assert max(ends) == 2 * sum(math.prod(shape) for shape in shapes.values())


def test_tiny_model_can_only_say_printable_ascii(twice: tuple[Path, Path]) -> None:
    file = twice[0] / "model.safetensors"
    content = file.read_bytes()
    start = 8 + struct.unpack("<Q", content[:8])[0] + header(file)["lm_head.weight"]["data_offsets"][0]
    row = 2 * tiny_qwen2.HIDDEN
    vocabulary = json.loads((twice[0] / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    for token, index in vocabulary.items():
        silent = content[start + index * row : start + (index + 1) * row] == bytes(row)
        spoken = token.replace("\u0120", " ")
        assert silent != (spoken.isascii() and spoken.isprintable()), token


def test_tokenizer_knows_every_byte_and_every_merge_result(twice: tuple[Path, Path]) -> None:
    model = json.loads((twice[0] / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    assert set(bpe.byte_alphabet()) <= set(model["vocab"])
    assert all(merge.replace(" ", "") in model["vocab"] for merge in model["merges"])


def test_byte_alphabet_is_the_usual_one() -> None:
    alphabet = bpe.byte_alphabet()
    assert len(set(alphabet)) == 256
    assert [alphabet[byte] for byte in (0x41, 0x20, 0x0A, 0x00, 0xAD)] == ["A", "\u0120", "\u010a", "\u0100", "\u0143"]


@pytest.mark.parametrize(
    ("text", "merges"),
    [
        ("aab aab aab", [("a", "a"), ("aa", "b"), ("\u0120", "aab")]),
        ("ab cd", [("a", "b"), ("c", "d"), ("\u0120", "cd")]),
        ("x", []),
    ],
)
def test_training_takes_the_most_frequent_pair_and_the_smaller_of_equals(
    text: str, merges: list[tuple[str, str]]
) -> None:
    assert bpe.train(text, 3) == merges


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (1.0, 0x3F80),
        (-2.0, 0xC000),
        (1.00390625, 0x3F80),  # halfway between two bf16 numbers: to even, down
        (1.01171875, 0x3F82),  # halfway: to even, up
        (1.005, 0x3F81),
        (0.0, 0x0000),
    ],
)
def test_bfloat16_rounds_to_nearest_even(value: float, word: int) -> None:
    assert weights.bfloat16([value]) == struct.pack("<H", word)


@pytest.mark.parametrize(
    ("gguf", "name"),
    [
        ("blk.7.attn_q.weight", "model.layers.7.self_attn.q_proj.weight"),
        ("blk.29.ffn_down.weight", "model.layers.29.mlp.down_proj.weight"),
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("output_norm.weight", "model.norm.weight"),
    ],
)
def test_gguf_names_become_those_of_transformers(gguf: str, name: str) -> None:
    assert smollm2.tensor_name(gguf) == name
