# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A Qwen2 of a few megabytes with seeded random weights: the real architecture, for exactness.

Standard library only, and only arithmetic that is exact on every machine, so that the files are the same bytes
everywhere. It says nothing sensible, but always the same: every token it can emit is printable ASCII, so equal
texts are equal tokens.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from scripts.lib.bpe import QWEN2, bpe_model, byte_alphabet, train, write_tokenizer
from scripts.lib.weights import Tensor, bfloat16, write_json, write_safetensors

SEED = 20240615
HIDDEN = 256
HEAD = 64  # the smallest head that vLLM's CPU attention takes in every release
QUERY_HEADS = 4
KEY_HEADS = 2
INNER = 512
LAYERS = 3
MERGES = 509
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def make(folder: Path, text: str) -> None:
    """Write the model into ``folder``; its tokenizer is trained on ``text``."""
    merges = train(text, MERGES)
    tokens = byte_alphabet() + [left + right for left, right in merges]
    special = {token: len(tokens) + index for index, token in enumerate(SPECIAL)}
    vocabulary = len(tokens) + len(special)
    config = {
        "bos_token": None,
        "chat_template": CHAT_TEMPLATE,
        "eos_token": "<|im_end|>",
        "model_max_length": 2048,
        "pad_token": "<|endoftext|>",
        "unk_token": None,
    }
    model = bpe_model(tokens, [f"{left} {right}" for left, right in merges])
    write_tokenizer(folder, model, special, QWEN2, config)
    write_json(folder / "config.json", _config(vocabulary, special))
    generation = {"bos_token_id": None, "eos_token_id": special["<|im_end|>"], "pad_token_id": special["<|endoftext|>"]}
    write_json(folder / "generation_config.json", generation)
    speakable = [index < len(tokens) and _speakable(tokens[index]) for index in range(vocabulary)]
    write_safetensors(folder / "model.safetensors", _tensors(speakable))


def _speakable(token: str) -> bool:
    """Tell whether ``token`` is printable ASCII; the alphabet writes a space as U+0120."""
    return all(character == "\u0120" or "!" <= character <= "~" for character in token)


def _config(vocabulary: int, special: dict[str, int]) -> dict[str, object]:
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "eos_token_id": special["<|im_end|>"],
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "initializer_range": 0.02,
        "intermediate_size": INNER,
        "max_position_embeddings": 2048,
        "max_window_layers": LAYERS,
        "model_type": "qwen2",
        "num_attention_heads": QUERY_HEADS,
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": KEY_HEADS,
        "pad_token_id": special["<|endoftext|>"],
        "rms_norm_eps": 1e-06,
        "rope_theta": 10000.0,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": vocabulary,
    }


def _tensors(speakable: list[bool]) -> Iterator[Tensor]:
    """Yield the tensors. Scales keep the logits some units apart, so that rounding never decides the next token."""
    source = random.Random(SEED)  # noqa: S311 - wanted is a number that everyone can predict

    def matrix(name: str, rows: int, columns: int, scale: float) -> Tensor:
        values = (scale * (2.0 * source.random() - 1.0) for _index in range(rows * columns))
        return Tensor(f"{name}.weight", (rows, columns), bfloat16(values))

    def vector(name: str, size: int, centre: float, scale: float) -> Tensor:
        values = (centre + scale * (2.0 * source.random() - 1.0) for _index in range(size))
        return Tensor(name, (size,), bfloat16(values))

    yield matrix("model.embed_tokens", len(speakable), HIDDEN, 1.0)
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        yield vector(f"{prefix}.input_layernorm.weight", HIDDEN, 1.0, 0.25)
        for name, heads in (("q", QUERY_HEADS), ("k", KEY_HEADS), ("v", KEY_HEADS)):
            yield matrix(f"{prefix}.self_attn.{name}_proj", heads * HEAD, HIDDEN, 0.15)
            yield vector(f"{prefix}.self_attn.{name}_proj.bias", heads * HEAD, 0.0, 0.25)
        yield matrix(f"{prefix}.self_attn.o_proj", HIDDEN, QUERY_HEADS * HEAD, 0.15)
        yield vector(f"{prefix}.post_attention_layernorm.weight", HIDDEN, 1.0, 0.25)
        yield matrix(f"{prefix}.mlp.gate_proj", INNER, HIDDEN, 0.1)
        yield matrix(f"{prefix}.mlp.up_proj", INNER, HIDDEN, 0.1)
        yield matrix(f"{prefix}.mlp.down_proj", HIDDEN, INNER, 0.1)
    yield vector("model.norm.weight", HIDDEN, 1.0, 0.25)
    head = matrix("lm_head", len(speakable), HIDDEN, 0.5)
    row = 2 * HIDDEN
    rows = (head.data[index * row : (index + 1) * row] if kept else bytes(row) for index, kept in enumerate(speakable))
    yield Tensor(head.name, head.shape, b"".join(rows))
