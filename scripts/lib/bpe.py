# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Byte-level BPE: a small trainer, and tokenizer files that old and new transformers read alike.

The files are written by hand rather than by a library, whose own format changes from release to release.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts.lib.weights import write_json

# How Qwen2 cuts text into words; below, the same for ASCII as Python's re can say it, for the trainer.
QWEN2_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
WORDS = re.compile(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\nA-Za-z0-9]?[A-Za-z]+|[0-9]"
    r"| ?[^\sA-Za-z0-9]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
QWEN2 = {
    "normalizer": {"type": "NFC"},
    "pre_tokenizer": {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": QWEN2_WORDS}, "behavior": "Isolated", "invert": False},
            {**BYTE_LEVEL, "use_regex": False},
        ],
    },
}
SMOLLM2 = {
    "normalizer": None,
    "pre_tokenizer": {
        "type": "Sequence",
        "pretokenizers": [{"type": "Digits", "individual_digits": True}, {**BYTE_LEVEL, "use_regex": True}],
    },
}
PRINTABLE = (range(0x21, 0x7F), range(0xA1, 0xAD), range(0xAE, 0x100))


def byte_alphabet() -> list[str]:
    """Return the character that stands for each byte: itself where it can be seen, else one from U+0100 on."""
    visible = {code for codes in PRINTABLE for code in codes}
    hidden = [code for code in range(0x100) if code not in visible]
    return [chr(code) if code in visible else chr(0x100 + hidden.index(code)) for code in range(0x100)]


def train(text: str, merges: int) -> list[tuple[str, str]]:
    """Return the first ``merges`` byte-pair merges of ``text``; of equally frequent pairs the smaller one wins."""
    alphabet = byte_alphabet()
    counts = Counter(WORDS.findall(text))
    words = {tuple(alphabet[byte] for byte in word.encode()): count for word, count in sorted(counts.items())}
    learnt: list[tuple[str, str]] = []
    while len(learnt) < merges:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, count in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += count
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        learnt.append(best)
        words = {_merged(word, best): count for word, count in words.items()}
    return learnt


def _merged(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    merged: list[str] = []
    position = 0
    while position < len(word):
        if word[position : position + 2] == pair:
            merged.append(pair[0] + pair[1])
            position += 2
        else:
            merged.append(word[position])
            position += 1
    return tuple(merged)


def write_tokenizer(
    folder: Path, model: dict[str, Any], special: dict[str, int], splitting: dict[str, Any], config: dict[str, Any]
) -> None:
    """Write tokenizer.json, tokenizer_config.json and special_tokens_map.json into ``folder``.

    ``model`` from ``bpe_model``, ``special`` with the ids of special tokens, ``splitting`` one of QWEN2 and SMOLLM2,
    ``config`` with bos/eos/pad/unk tokens, chat_template and model_max_length.
    """
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": index, **_added(content)} for content, index in special.items()],
        **splitting,
        "post_processor": None,
        "decoder": {**BYTE_LEVEL, "use_regex": True},
        "model": model,
    }
    write_json(folder / "tokenizer.json", document)
    added = {str(index): _added(content) for content, index in sorted(special.items(), key=lambda item: item[1])}
    fixed = {
        "add_prefix_space": False,
        "added_tokens_decoder": added,
        "clean_up_tokenization_spaces": False,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    write_json(folder / "tokenizer_config.json", {**fixed, **config})
    names = ("bos_token", "eos_token", "pad_token", "unk_token")
    write_json(folder / "special_tokens_map.json", {name: config[name] for name in names if config.get(name)})


def bpe_model(tokens: Sequence[str], merges: Sequence[str]) -> dict[str, Any]:
    """Return tokenizer.json's model: ``tokens`` in the order of their ids, ``merges`` as "left right"."""
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "vocab": {token: index for index, token in enumerate(tokens)},
        "merges": list(merges),
    }


def _added(content: str) -> dict[str, Any]:
    return {
        "content": content,
        "lstrip": False,
        "normalized": False,
        "rstrip": False,
        "single_word": False,
        "special": True,
    }
