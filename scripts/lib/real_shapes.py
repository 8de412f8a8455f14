# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Models with random weights in the shapes of real ones: ``python -m scripts.lib.real_shapes NAME FOLDER``.

What a service takes and how fast it is depends on shapes, formats and the size of the vocabulary, not on what a model
says. The numbers are those of each model's published config.json. ``-awq`` has 4-bit weights as AWQ packs them,
``-q4_0`` is a GGUF in llama.cpp's Q4_0.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from scripts.lib.bpe import QWEN2, bpe_model, byte_alphabet, write_tokenizer
from scripts.lib.weights import write_json

# By name: they are in the environment that scripts/make_models.py makes, not in the one that this is checked in.
np: Any = import_module("numpy")
gguf: Any = import_module("gguf")

SEED = 7
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"
GROUP = 128
BITS = 4
CHUNK = 1 << 24
BLOCK_Q4_0, BYTES_Q4_0 = 32, 18
BLOCK_Q8_0, BYTES_Q8_0 = 32, 34


@dataclass(frozen=True)
class Shape:
    """A decoder: Qwen2's, or with experts that of IBM's Granite 3."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    inner: int
    vocab: int
    tied: bool
    context: int = 32768
    experts: int = 0
    used: int = 0

    @property
    def head(self) -> int:
        """Return the size of an attention head."""
        return self.hidden // self.heads


SHAPES = {
    "qwen2-0.5b": Shape(896, 24, 14, 2, 4864, 151936, tied=True),
    "qwen2-1.5b": Shape(1536, 28, 12, 2, 8960, 151936, tied=True),
    "qwen2-7b": Shape(3584, 28, 28, 4, 18944, 152064, tied=False),
    "granite-moe-1b": Shape(1024, 24, 16, 8, 512, 49155, tied=True, context=4096, experts=32, used=8),
}
MODELS = tuple(
    f"{name}{suffix}"
    for name, shape in SHAPES.items()
    for suffix in (("",) if shape.experts else ("", "-awq", "-q4_0"))
)


def tokens_of(count: int) -> tuple[list[str], list[str]]:
    """Return ``count`` tokens and the merges that lead to them: all bytes, all pairs of them, then triples."""
    alphabet = byte_alphabet()
    tokens, merges = list(alphabet), []
    for left in alphabet:
        for right in alphabet:
            tokens.append(left + right)
            merges.append(f"{left} {right}")
    for pair in tokens[256:]:
        for right in alphabet:
            if len(tokens) >= count:
                return tokens[:count], merges[: count - 256]
            tokens.append(pair + right)
            merges.append(f"{pair} {right}")
    raise ValueError(count)


def tokenizer(folder: Path, vocab: int) -> None:
    """Write a tokenizer with as many tokens as the model's own has, for it takes memory too."""
    tokens, merges = tokens_of(vocab - len(SPECIAL))
    special = {token: len(tokens) + index for index, token in enumerate(SPECIAL)}
    config = {
        "bos_token": None,
        "chat_template": TEMPLATE,
        "eos_token": SPECIAL[2],
        "model_max_length": 32768,
        "pad_token": SPECIAL[0],
        "unk_token": None,
    }
    write_tokenizer(folder, bpe_model(tokens, merges), special, QWEN2, config)


def config_of(shape: Shape, awq: bool) -> dict[str, Any]:
    """Return config.json."""
    found: dict[str, Any] = {
        "architectures": ["GraniteMoeForCausalLM" if shape.experts else "Qwen2ForCausalLM"],
        "attention_dropout": 0.0,
        "bos_token_id": shape.vocab - 3,
        "eos_token_id": shape.vocab - 1,
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "initializer_range": 0.02,
        "intermediate_size": shape.inner,
        "max_position_embeddings": shape.context,
        "model_type": "granitemoe" if shape.experts else "qwen2",
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads,
        "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0,
        "tie_word_embeddings": shape.tied,
        "torch_dtype": "float16" if awq else "bfloat16",
        "use_cache": True,
        "vocab_size": shape.vocab,
    }
    if shape.experts:
        experts = {"num_local_experts": shape.experts, "num_experts_per_tok": shape.used, "attention_bias": False}
        scales = {"embedding_multiplier": 12.0, "logits_scaling": 6.0, "residual_multiplier": 0.22}
        return {**found, **experts, **scales, "attention_multiplier": 1 / shape.head, "rope_scaling": None}
    found.update({"max_window_layers": shape.layers, "sliding_window": None, "use_sliding_window": False})
    if awq:
        packing = {"bits": BITS, "group_size": GROUP, "quant_method": "awq", "version": "gemm", "zero_point": True}
        found["quantization_config"] = packing
    return found


def linears(shape: Shape) -> Iterator[tuple[str, int, int]]:
    """Yield name, outputs and inputs of the linear layers of one decoder layer that a packing packs."""
    attention = shape.heads * shape.head, shape.kv_heads * shape.head
    yield "self_attn.q_proj", attention[0], shape.hidden
    yield "self_attn.k_proj", attention[1], shape.hidden
    yield "self_attn.v_proj", attention[1], shape.hidden
    yield "self_attn.o_proj", shape.hidden, attention[0]
    if not shape.experts:
        yield "mlp.gate_proj", shape.inner, shape.hidden
        yield "mlp.up_proj", shape.inner, shape.hidden
        yield "mlp.down_proj", shape.hidden, shape.inner


def layer(shape: Shape, prefix: str, awq: bool) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Yield name, format and shape of the tensors of one decoder layer."""
    plain = "F16" if awq else "BF16"
    yield f"{prefix}.input_layernorm.weight", plain, (shape.hidden,)
    yield f"{prefix}.post_attention_layernorm.weight", plain, (shape.hidden,)
    for name, rows, columns in linears(shape):
        if awq:
            yield f"{prefix}.{name}.qweight", "I32", (columns, rows * BITS // 32)
            yield f"{prefix}.{name}.qzeros", "I32", (columns // GROUP, rows * BITS // 32)
            yield f"{prefix}.{name}.scales", "F16", (columns // GROUP, rows)
        else:
            yield f"{prefix}.{name}.weight", plain, (rows, columns)
        if name[-6:] in ("q_proj", "k_proj", "v_proj") and not shape.experts:
            yield f"{prefix}.{name}.bias", plain, (rows,)
    if shape.experts:
        place = f"{prefix}.block_sparse_moe"
        yield f"{place}.router.layer.weight", plain, (shape.experts, shape.hidden)
        yield f"{place}.input_linear.weight", plain, (shape.experts, 2 * shape.inner, shape.hidden)
        yield f"{place}.output_linear.weight", plain, (shape.experts, shape.hidden, shape.inner)


def tensors(shape: Shape, awq: bool) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Yield name, format and shape of every tensor."""
    plain = "F16" if awq else "BF16"
    yield "model.embed_tokens.weight", plain, (shape.vocab, shape.hidden)
    for number in range(shape.layers):
        yield from layer(shape, f"model.layers.{number}", awq)
    yield "model.norm.weight", plain, (shape.hidden,)
    if not shape.tied:
        yield "lm_head.weight", plain, (shape.vocab, shape.hidden)


def numbers(source: Any, kind: str, count: int, norm: bool) -> bytes:
    """Return ``count`` random numbers of a format; those of a normalisation are 1."""
    if kind == "I32":
        return bytes(source.bytes(4 * count))
    values = np.ones(count, np.float32) if norm else source.standard_normal(count, np.float32) * np.float32(0.02)
    if kind == "F16":
        return bytes(np.abs(values).astype(np.float16).tobytes())
    return bytes((values.view(np.uint32) >> 16).astype(np.uint16).tobytes())


def safetensors(path: Path, shape: Shape, awq: bool) -> None:
    """Write all tensors, a piece at a time, so that 7 billion numbers need no memory."""
    sizes = {"I32": 4, "F16": 2, "BF16": 2}
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset, listed = 0, list(tensors(shape, awq))
    for name, kind, dimensions in listed:
        end = offset + int(np.prod(dimensions)) * sizes[kind]
        header[name] = {"dtype": kind, "shape": list(dimensions), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    source = np.random.default_rng(SEED)
    with path.open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        for name, kind, dimensions in listed:
            left = int(np.prod(dimensions))
            while left:
                piece = min(left, CHUNK)
                stream.write(numbers(source, kind, piece, "norm" in name))
                left -= piece


def blocks(source: Any, rows: int, columns: int, size: int) -> Any:
    """Return random blocks of ``size`` bytes for 32 numbers each, led by a small scale in float16."""
    count = rows * columns // BLOCK_Q4_0
    data = np.frombuffer(source.bytes(count * size), np.uint8).reshape(count, size).copy()
    data[:, :2] = np.frombuffer(np.float16(0.002).tobytes(), np.uint8)
    return data.reshape(rows, columns // BLOCK_Q4_0 * size)


GGUF_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_keys(writer: Any, shape: Shape) -> None:
    """Write what llama.cpp reads of a Qwen2."""
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_freq_base(1000000.0)
    writer.add_layer_norm_rms_eps(1e-06)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)
    tokens, merges = tokens_of(shape.vocab - len(SPECIAL))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([*tokens, *SPECIAL])
    normal, control = gguf.TokenType.NORMAL, gguf.TokenType.CONTROL
    writer.add_token_types([normal] * len(tokens) + [control] * len(SPECIAL))
    writer.add_token_merges(merges)
    writer.add_bos_token_id(shape.vocab - 3)
    writer.add_eos_token_id(shape.vocab - 1)
    writer.add_add_bos_token(False)


def write_gguf(path: Path, shape: Shape) -> None:
    """Write the shape in Q4_0; the head and the token table in Q8_0, norms and biases in float32."""
    writer = gguf.GGUFWriter(path, "qwen2", use_temp_file=True)
    gguf_keys(writer, shape)
    source = np.random.default_rng(SEED)

    def quantized(name: str, rows: int, columns: int, kind: Any, size: int) -> None:
        writer.add_tensor(f"{name}.weight", blocks(source, rows, columns, size), raw_dtype=kind)

    four, eight = gguf.GGMLQuantizationType.Q4_0, gguf.GGMLQuantizationType.Q8_0
    quantized("token_embd", shape.vocab, shape.hidden, eight if shape.tied else four, 34 if shape.tied else 18)
    for number in range(shape.layers):
        for norm in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{number}.{norm}.weight", np.ones(shape.hidden, np.float32))
        for name, rows, columns in linears(shape):
            quantized(f"blk.{number}.{GGUF_NAMES[name]}", rows, columns, four, BYTES_Q4_0)
            if name[-6:] in ("q_proj", "k_proj", "v_proj"):
                writer.add_tensor(f"blk.{number}.{GGUF_NAMES[name]}.bias", np.zeros(rows, np.float32))
    writer.add_tensor("output_norm.weight", np.ones(shape.hidden, np.float32))
    if not shape.tied:
        quantized("output", shape.vocab, shape.hidden, eight, BYTES_Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make(name: str, folder: Path) -> None:
    """Write model ``name`` of MODELS into ``folder``."""
    base, awq, four = name.removesuffix("-awq").removesuffix("-q4_0"), name.endswith("-awq"), name.endswith("-q4_0")
    shape = SHAPES[base]
    if four:
        write_gguf(folder / f"{name}.gguf", shape)
        return
    write_json(folder / "config.json", config_of(shape, awq))
    write_json(folder / "generation_config.json", {"eos_token_id": shape.vocab - 1})
    tokenizer(folder, shape.vocab)
    safetensors(folder / "model.safetensors", shape, awq)


if __name__ == "__main__":
    make(sys.argv[1], Path(sys.argv[2]))
