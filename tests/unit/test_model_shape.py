# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Shapes of known models: the weights counted from config.json are the weights that they have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._model_shape import (
    kv_elements,
    packing,
    served_bytes,
    shape_of_config,
)

CONFIGS = Path(__file__).parent / "fixtures" / "serve_plan" / "configs"


def config(name: str, **changes: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((CONFIGS / f"{name}.json").read_text())
    return {**document, **changes}


@pytest.mark.parametrize(
    ("name", "parameters", "kv_bytes"),
    [
        ("qwen2-0.5b", 494_032_768, 12_288),
        ("qwen2-1.5b", 1_543_714_304, 28_672),
        ("qwen2-7b", 7_615_616_512, 57_344),
        ("smollm2-135m", 134_515_008, 23_040),
        ("llama2-7b", 6_738_415_616, 524_288),
        ("mistral-7b", 7_241_732_096, 131_072),
        ("mixtral-8x7b", 46_702_792_704, 131_072),
    ],
)
def test_known_models_are_counted_to_the_weight(name: str, parameters: int, kv_bytes: int) -> None:
    shape = shape_of_config(config(name))
    assert (shape.parameters, 2 * shape.kv_elements) == (parameters, kv_bytes)
    assert served_bytes(shape, "bfloat16") == 2 * parameters
    assert served_bytes(shape, "float32") == 4 * parameters


@pytest.mark.parametrize(
    ("name", "billions", "active"),
    [
        ("qwen2-57b-a14b", 57.4, 14.2),
        ("mixtral-8x7b", 46.7, 12.9),
        ("phi-2", 2.8, 2.8),
        ("qwen3-0.6b", 0.6, 0.6),
        ("deepseek-v2-lite", 15.8, 2.4),
    ],
)
def test_families_are_counted_closely(name: str, billions: float, active: float) -> None:
    shape = shape_of_config(config(name))
    assert shape.parameters / 1e9 == pytest.approx(billions, rel=0.02)
    read = shape.active_parameters + shape.table_parameters + shape.other_parameters
    assert read / 1e9 == pytest.approx(active, rel=0.06)


def test_tied_tables_count_once() -> None:
    tied, untied = (shape_of_config(config("qwen2-0.5b", tie_word_embeddings=tie)) for tie in (True, False))
    assert untied.table_parameters == 2 * tied.table_parameters


@pytest.mark.parametrize(
    ("name", "changes", "window"),
    [
        ("mistral-7b", {}, 4096),
        ("mistral-7b", {"sliding_window": None}, 0),
        ("qwen2-7b", {}, 0),
        ("qwen2-7b", {"use_sliding_window": True}, 32768),
    ],
)
def test_window(name: str, changes: dict[str, Any], window: int) -> None:
    assert shape_of_config(config(name, **changes)).window == window


@pytest.mark.parametrize(
    ("name", "method", "bits", "stored", "gigabytes"),
    [
        ("qwen2-7b-awq", "awq", 4, 4.15625, 5.57),
        ("qwen2-1.5b-gptq", "gptq", 4, 4.15625, 1.15),
        ("qwen2-7b-gptq-int8", "gptq", 8, 8.1875, 8.86),
        ("qwen2-1.5b-w4a16", "gptq", 4, 4.15625, 1.15),
        ("qwen2-1.5b-w8a8", "int8_w8a8", 8, 8.0, 1.78),
        ("qwen2-1.5b", "", 16, 16.0, 3.09),
    ],
)
def test_packed_weights(name: str, method: str, bits: int, stored: float, gigabytes: float) -> None:
    shape = shape_of_config(config(name))
    assert (shape.packing.method, shape.packing.bits, shape.packing.bits_stored) == (method, bits, stored)
    assert served_bytes(shape, "bfloat16") / 1e9 == pytest.approx(gigabytes, abs=0.005)


def test_packing_of_another_kind_keeps_its_name() -> None:
    assert packing({"quant_method": "fp8"}).bits == 8
    assert packing({"quant_method": "compressed-tensors", "format": "float-quantized"}).method == (
        "compressed-tensors float-quantized"
    )


def test_a_model_that_also_sees_keeps_its_shape_below() -> None:
    inner = config("qwen2-0.5b")
    outer = {"architectures": ["SomeVisionModel"], "model_type": "some_vl", "text_config": inner}
    shape = shape_of_config(outer)
    assert (shape.architecture, shape.model_type, shape.layers) == ("SomeVisionModel", "some_vl", 24)


def test_layers_without_attention_keep_nothing() -> None:
    whole = config("qwen3-0.6b")
    kinds = ["linear_attention", "linear_attention", "linear_attention", "full_attention"] * 7
    assert kv_elements({**whole, "layer_types": kinds}) * 4 == kv_elements(whole)


def test_a_file_without_a_shape_is_refused() -> None:
    with pytest.raises(CpufleetError) as caught:
        shape_of_config({"model_type": "qwen2", "hidden_size": 896}, "/m/config.json")
    assert str(caught.value) == (
        "Cannot plan for the model of /m/config.json: it does not say num_hidden_layers, num_attention_heads. "
        "Restore the file from the model's source."
    )
