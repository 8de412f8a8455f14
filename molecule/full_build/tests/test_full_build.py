# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two releases of today that a host has compiled: how, what they detect and load, what they answered."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.plays import manifest, platform_of

ROOT = "/opt/vllm"
REPOSITORY = Path(__file__).resolve().parents[3]
MOLECULE = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
WISHES = yaml.safe_load((REPOSITORY / "roles/plan/vars/main.yml").read_text(encoding="utf-8"))["plan_wishes"]
REPORTS = {"report": "0.28.0", "newest": "0.32.0"}
EDITS = {"0.28.0": ["isa_limit"], "0.32.0": ["isa_limit", "slot-mapping-arguments"]}
LIBRARIES = {"avx2": "_C_AVX2.abi3.so", "avx512": "_C_AVX512.abi3.so"}
QUESTION = "What is the capital of France?"


@pytest.fixture(params=REPORTS)
def answer(request: pytest.FixtureRequest, host: Any) -> dict[str, Any]:
    """Return what the gate of one of the releases was answered."""
    file = MOLECULE / f"{request.param}.{host.backend.host}.json"
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return {**found, "version": REPORTS[request.param]}


def wheel_of(host: Any, answer: dict[str, Any]) -> dict[str, Any]:
    """Return the manifest of the wheel that a release was installed from."""
    name = host.backend.host
    return manifest(name, f"wheels/{manifest(name, 'releases/' + answer['release'])['wheel'][:12]}")


def test_the_first_is_the_default() -> None:
    assert f"default('{REPORTS['report']}')" in WISHES["version"]


def test_it_was_compiled_here_with_the_edits_that_it_needs(host: Any, answer: dict[str, Any]) -> None:
    wheel = wheel_of(host, answer)
    assert wheel["file"].startswith(f"vllm-{answer['version']}+cpu")
    assert wheel["inputs"]["edits"] == EDITS[answer["version"]]
    assert wheel["inputs"]["compiler"].startswith("g++ 14"), wheel["inputs"]
    assert wheel["took"]["cpu_seconds"] > 60
    print(answer["version"], wheel["took"], wheel["inputs"]["onednn"])


def test_it_detects_a_cpu_and_loads_the_library_of_its_class_alone(host: Any, answer: dict[str, Any]) -> None:
    platform = platform_of(host.backend.host, answer["release"], MOLECULE / "inventory")
    (isa,) = wheel_of(host, answer)["isa"]
    assert (platform["class"], platform["device_type"], platform["causes"]) == ("CpuPlatform", "cpu", [])
    assert platform["kernels"]["loaded"] == [LIBRARIES.get(isa, "_C.abi3.so")]


def test_its_gate_got_the_known_answer(answer: dict[str, Any]) -> None:
    print(f"{answer['version']}: {QUESTION} -> {answer['answer']}")
    assert "Paris" in answer["answer"]


def test_the_newest_serves(host: Any, ask: Callable[..., tuple[int, str]]) -> None:
    assert manifest(host.backend.host, "current")["release"].startswith("0.32.0-")
    status, told = ask(QUESTION)
    assert status == 200
    assert "Paris" in told
