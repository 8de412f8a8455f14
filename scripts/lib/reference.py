# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What transformers answers in float32, greedily: the independent oracle for a served model.

Needs the packages of scripts/requirements/reference.txt. ``python -m scripts.lib.reference FOLDER PROMPT...``
prints a JSON list; ``scripts/make_models.py --reference`` runs it in a venv that has them.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any


def expected_tokens(folder: Path, prompt: str, count: int = 16) -> dict[str, Any]:
    """Return the first ``count`` greedy tokens after ``prompt``: ids, text, and how clear each choice was.

    ``margin`` is the smallest distance between the best logit and the second one. Where it is far above float32's
    rounding (about 1e-5 here), another correct engine has to choose the same tokens.
    """
    torch: Any = import_module("torch")  # by name: the rest of this file is importable without it
    transformers: Any = import_module("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, local_files_only=True).float().eval()
    ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
    start = ids.shape[1]
    margin = float("inf")
    with torch.inference_mode():
        for _step in range(count):
            logits = model(ids).logits[0, -1]
            best, second = torch.topk(logits, 2).values.tolist()
            margin = min(margin, best - second)
            ids = torch.cat([ids, logits.argmax().reshape(1, 1)], dim=1)
    tokens = ids[0, start:].tolist()
    return {
        "prompt": prompt,
        "prompt_token_ids": ids[0, :start].tolist(),
        "token_ids": tokens,
        "text": tokenizer.decode(tokens, skip_special_tokens=True),
        "margin": round(margin, 6),
        "transformers": transformers.__version__,
        "torch": torch.__version__,
    }


def chat_prompt(folder: Path, question: str) -> str:
    """Return ``question`` as the model's own chat template puts it."""
    transformers: Any = import_module("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    messages = [{"role": "user", "content": question}]
    return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))


def main(arguments: list[str]) -> int:
    """Print the expected tokens of each prompt. "chat:..." goes through the model's chat template first."""
    folder, answers = Path(arguments[0]), []
    for asked in arguments[1:]:
        prompt = chat_prompt(folder, asked.removeprefix("chat:")) if asked.startswith("chat:") else asked
        answers.append({"asked": asked, **expected_tokens(folder, prompt)})
    print(json.dumps(answers, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
