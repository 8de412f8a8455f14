# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a model folder holds. The configurations were captured, see the fixtures' README."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._model import describe_model, kv_bytes_per_token

FIXTURES = Path(__file__).parent / "fixtures" / "model"
SIZES = {"config.json": 700, "model.safetensors": 269_060_552, "tokenizer.json": 2_000_000}


def config(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((FIXTURES / f"{name}.json").read_text())
    return document


def test_smollm2() -> None:
    model = describe_model("/m", {**SIZES, "chat_template.jinja": 300}, config("SmolLM2-135M-Instruct"), None)
    assert (model.architecture, model.model_type, model.dtype) == ("LlamaForCausalLM", "llama", "bfloat16")
    assert (model.context, model.weights_bytes, model.kv_bytes_per_token) == (8192, 269_060_552, 23_040)
    assert (model.chat_template, model.problems) == (True, [])


@pytest.mark.parametrize(
    ("shape", "element", "size"),
    [
        ({"num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 576}, 2, 23_040),
        ({"num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2, "hidden_size": 896}, 2, 12_288),
        ({"num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128}, 2, 114_688),
        ({"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64}, 4, 2 * 2 * 4 * 16 * 4),
        ({}, 2, 0),
    ],
    ids=["grouped heads", "qwen2 0.5B", "own head size", "float32, all heads", "unknown"],
)
def test_a_tokens_share_of_the_kv_cache(shape: dict[str, int], element: int, size: int) -> None:
    assert kv_bytes_per_token(shape, element) == size


def test_a_template_may_stand_in_the_tokenizers_configuration() -> None:
    assert describe_model("/m", SIZES, config("SmolLM2-135M-Instruct"), {"chat_template": "{{ x }}"}).chat_template
    assert not describe_model("/m", SIZES, config("SmolLM2-135M-Instruct"), {}).chat_template


def test_older_twins_of_the_weights_do_not_count() -> None:
    sizes = {**SIZES, "pytorch_model.bin": 500_000_000, "model-2.safetensors": 1000}
    assert describe_model("/m", sizes, config("SmolLM2-135M-Instruct"), None).weights_bytes == 269_061_552


NO_FILE = "the model folder /m does not exist or is empty. Name a folder with config.json and the weights."
NO_CONFIG = (
    "the model folder /m has no readable config.json. Copy the whole model repository into that folder, or correct "
    "model_serve_model."
)
NO_WEIGHTS = "the model folder /m has no weights (*.safetensors). Copy them into that folder."
NO_TOKENIZER = (
    "the model folder /m has no tokenizer (tokenizer.json, tokenizer.model, vocab.json, tekken.json). Copy it into "
    "that folder."
)


@pytest.mark.parametrize(
    ("sizes", "document", "problems"),
    [
        ({}, None, [NO_FILE]),
        (SIZES, None, [NO_CONFIG]),
        (SIZES, {}, ["/m/config.json names no architecture. Restore the file from the source."]),
        (SIZES, {"architectures": []}, ["/m/config.json names no architecture. Restore the file from the source."]),
        ({"config.json": 1, "tokenizer.json": 1}, {"architectures": ["X"]}, [NO_WEIGHTS]),
        ({"config.json": 1, "model.safetensors": 9}, {"architectures": ["X"]}, [NO_TOKENIZER]),
        ({"README.md": 1}, None, [NO_CONFIG, NO_WEIGHTS, NO_TOKENIZER]),
    ],
    ids=["empty", "no config", "empty config", "no architecture", "no weights", "no tokenizer", "another folder"],
)
def test_problems_are_told_all_at_once(sizes: dict[str, int], document: dict[str, Any], problems: list[str]) -> None:
    assert describe_model("/m", sizes, document, None).problems == problems
