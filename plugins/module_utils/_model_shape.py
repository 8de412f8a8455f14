# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""What a planner needs to know of a language model: its shape from config.json, counted in parameters and bytes."""

from __future__ import annotations

import dataclasses
from typing import Any

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError

__all__ = ("DTYPE_BYTES", "ModelShape", "Packing", "kv_elements", "packing", "served_bytes", "shape_of_config")

DTYPE_BYTES = {"float32": 4, "float": 4, "float16": 2, "half": 2, "bfloat16": 2}
# The name of a 4-bit format in config.json, to the name of the kernel family that serves it.
PACKED_FORMATS = {"pack-quantized": "gptq", "int-quantized": "int8_w8a8"}
WHOLE_MODEL_BITS = 16
# Families whose inner layer is two matrices; all others have a third that gates.
UNGATED = ("bloom", "falcon", "gpt2", "gpt_bigcode", "gpt_neox", "gptj", "mpt", "opt", "phi", "starcoder2")


@dataclasses.dataclass(frozen=True)
class Packing:
    """How the linear layers are quantized; ``method`` is empty where they are not, ``bits`` counts scales and zeros."""

    method: str = ""
    bits: int = WHOLE_MODEL_BITS
    bits_stored: float = float(WHOLE_MODEL_BITS)
    name: str = ""


@dataclasses.dataclass(frozen=True)
class ModelShape:
    """A decoder's shape. ``context`` and ``window`` are 0 where the file does not say, ``experts`` where it is dense.

    ``layer_parameters`` are the linear layers that a quantization packs, ``active_parameters`` those of them that one
    token passes, ``table_parameters`` the token table and the output head (one where they are tied).
    """

    architecture: str
    model_type: str
    dtype: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_size: int
    vocab: int
    context: int
    window: int
    tied: bool
    experts: int
    experts_used: int
    layer_parameters: int
    active_parameters: int
    table_parameters: int
    other_parameters: int
    kv_elements: int
    packing: Packing

    @property
    def parameters(self) -> int:
        """Return the number of weights as they are trained."""
        return self.layer_parameters + self.table_parameters + self.other_parameters

    @property
    def head_parameters(self) -> int:
        """Return the weights of the output head, which every token reads."""
        return self.vocab * self.hidden


def shape_of_config(document: dict[str, Any], where: str = "config.json") -> ModelShape:
    """Return the shape that a config.json describes; raise CpufleetError where keys that decide are missing."""
    config = _language_part(document, where)
    heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
    kv_heads = int(config.get("num_key_value_heads") or heads)
    head_size = int(config.get("head_dim") or hidden // heads)
    dense, active, norms = _layer_parameters(config, heads, kv_heads, head_size)
    layers, vocab = int(config["num_hidden_layers"]), int(config.get("vocab_size") or 0)
    tied = bool(config.get("tie_word_embeddings", False))
    return ModelShape(
        architecture=str((document.get("architectures") or [""])[0]),
        model_type=str(document.get("model_type") or ""),
        dtype=str(config.get("torch_dtype") or config.get("dtype") or "").replace("torch.", ""),
        layers=layers,
        hidden=hidden,
        intermediate=_widest(config),
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        vocab=vocab,
        context=int(config.get("max_position_embeddings") or 0),
        window=_window(config),
        tied=tied,
        experts=_experts(config),
        experts_used=int(config.get("num_experts_per_tok") or 0),
        layer_parameters=dense,
        active_parameters=active,
        table_parameters=vocab * hidden * (1 if tied else 2),
        other_parameters=norms + hidden,
        kv_elements=kv_elements(config),
        packing=packing(document.get("quantization_config") or config.get("quantization_config") or {}),
    )


def _language_part(document: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the keys of the language model; models that also see or hear keep them one level below."""
    config = {**document, **(document.get("text_config") or {})}
    missing = [key for key in ("hidden_size", "num_hidden_layers", "num_attention_heads") if not config.get(key)]
    if missing:
        raise CpufleetError(
            f"Cannot plan for the model of {where}: it does not say {', '.join(missing)}",
            "Restore the file from the model's source",
            path=where,
            missing=missing,
        )
    return config


def kv_elements(config: dict[str, Any]) -> int:
    """Return how many numbers one token keeps in the KV cache: key and value of every layer that has attention."""
    layers = int(config.get("num_hidden_layers") or 0)
    kinds = config.get("layer_types") or []
    if len(kinds) == layers:
        layers = sum(kind != "linear_attention" for kind in kinds)
    heads = int(config.get("num_attention_heads") or 0)
    hidden = int(config.get("hidden_size") or 0)
    if config.get("kv_lora_rank"):
        # Latent attention; a release without a kernel for it keeps full keys and values instead, so count those.
        key = int(config.get("qk_nope_head_dim") or 0) + int(config.get("qk_rope_head_dim") or 0)
        return 2 * layers * heads * key
    head_size = int(config.get("head_dim") or (hidden // heads if heads else 0))
    return 2 * layers * int(config.get("num_key_value_heads") or heads) * head_size


def _layer_parameters(config: dict[str, Any], heads: int, kv_heads: int, head_size: int) -> tuple[int, int, int]:
    """Return the linear weights of all layers, those that one token passes, and norms, routers and biases."""
    hidden, layers = int(config["hidden_size"]), int(config["num_hidden_layers"])
    attention = hidden * head_size * (2 * heads + 2 * kv_heads)
    biased = config.get("attention_bias") or str(config.get("model_type")) in ("qwen2", "qwen2_moe")
    small = 2 * hidden + (head_size * (heads + 2 * kv_heads) if biased else 0)
    width = int(config.get("intermediate_size") or 4 * hidden)
    experts = _experts(config)
    if not experts:
        linear = attention + (2 if str(config.get("model_type")) in UNGATED else 3) * hidden * width
        return layers * linear, layers * linear, layers * small
    expert = 3 * hidden * int(config.get("moe_intermediate_size") or width)
    shared_width = int(config.get("shared_expert_intermediate_size") or 0)
    shared = 3 * hidden * shared_width
    small += hidden * experts + (hidden if shared_width else 0)
    used = int(config.get("num_experts_per_tok") or 1)
    whole, active = attention + shared + experts * expert, attention + shared + used * expert
    return layers * whole, layers * active, layers * small


def _experts(config: dict[str, Any]) -> int:
    for key in ("num_experts", "num_local_experts", "n_routed_experts"):
        if config.get(key):
            return int(config[key])
    return 0


def _widest(config: dict[str, Any]) -> int:
    """Return the widest inner layer, which decides what a prompt needs while it is read."""
    if not _experts(config):
        return int(config.get("intermediate_size") or 0)
    expert = int(config.get("moe_intermediate_size") or config.get("intermediate_size") or 0)
    shared = int(config.get("shared_expert_intermediate_size") or 0)
    return max(expert * int(config.get("num_experts_per_tok") or 1), shared)


def _window(config: dict[str, Any]) -> int:
    """Return the sliding window in tokens; the Qwen families name one and switch it off."""
    return int(config.get("sliding_window") or 0) if config.get("use_sliding_window", True) else 0


def packing(config: dict[str, Any]) -> Packing:
    """Return how ``quantization_config`` packs the linear layers: AWQ, GPTQ, compressed-tensors, or by its own name."""
    method = str(config.get("quant_method") or "")
    if not method:
        return Packing()
    if method == "compressed-tensors":
        return _compressed_tensors(config)
    bits = int(config.get("bits") or config.get("w_bit") or (8 if "8" in method else 4))
    group = int(config.get("group_size") or config.get("q_group_size") or 128)
    return Packing(method, bits, _stored(bits, group), f"{method} {bits}-bit")


def _compressed_tensors(config: dict[str, Any]) -> Packing:
    layout = str(config.get("format") or "")
    groups = config.get("config_groups") or {}
    first: dict[str, Any] = next(iter(groups.values()), {}) if isinstance(groups, dict) else {}
    weights = first.get("weights") or {}
    bits = int(weights.get("num_bits") or 8)
    method = PACKED_FORMATS.get(layout, f"compressed-tensors {layout}".strip())
    group = int(weights.get("group_size") or 0)
    return Packing(method, bits, _stored(bits, group), f"compressed-tensors {layout} {bits}-bit")


def _stored(bits: int, group: int) -> float:
    """Return the bits of a weight with its share of the group's 16-bit scale and its zero."""
    return bits + (16 + bits) / group if group > 0 else float(bits)


def served_bytes(shape: ModelShape, dtype: str) -> int:
    """Return what the weights take when they are served in ``dtype``, counted from the shape alone."""
    element = DTYPE_BYTES.get(dtype, 2)
    layer = shape.packing.bits_stored / 8 if shape.packing.method else element
    return int(shape.layer_parameters * layer + (shape.table_parameters + shape.other_parameters) * element)
