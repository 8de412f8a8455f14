# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Environments: their inputs, the installer's command line, and what counts as a CPU torch."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._environment import (
    EnvironmentRequest,
    install_arguments,
    lock_subset,
    torch_problem,
)

REQUEST = EnvironmentRequest(
    stage="torch",
    python="/usr/bin/python3.11",
    packages=(),
    files=("aa",),
    only=("torch",),
    find_links=(),
    index_urls=(),
)
LOCK = """# cpufleet inputs: 00
Jinja2==3.1.4 \\
    --hash=sha256:11 \\
    --hash=sha256:12
torch==2.5.1+cpu \\
    --hash=sha256:21
typing-extensions==4.12.2 \\
    --hash=sha256:31
"""


@pytest.mark.parametrize(
    "change",
    [{"stage": "vllm"}, {"python": "/usr/bin/python3.12"}, {"packages": ("six",)}, {"files": ("bb",)}, {"only": ()}],
)
def test_every_input_counts(change: dict[str, Any]) -> None:
    assert dataclasses.replace(REQUEST, **change).inputs() != REQUEST.inputs()


def test_the_place_of_the_files_does_not_count() -> None:
    elsewhere = dataclasses.replace(REQUEST, find_links=("/srv",), index_urls=("https://mirror.example.org",))
    assert elsewhere.inputs() == REQUEST.inputs()


@pytest.mark.parametrize(
    ("change", "lock", "words"),
    [
        (
            {},
            "/v/lock.txt",
            "install --quiet --python /v/bin/python --no-deps --require-hashes --requirement /v/lock.txt",
        ),
        (
            {"find_links": ("/srv",), "index_urls": ("https://cpu.example.org",), "packages": ("six",)},
            "",
            "install --quiet --python /v/bin/python --find-links /srv --extra-index-url https://cpu.example.org "
            "--index-strategy unsafe-best-match six",
        ),
        ({"packages": ("/w/vllm.whl",)}, "", "install --quiet --python /v/bin/python --no-deps /w/vllm.whl"),
        (
            {"packages": ("uv==0.9",), "index_urls": ("https://mirror.example.org",)},
            "",
            "install --quiet --extra-index-url https://mirror.example.org uv==0.9",
        ),
    ],
    ids=["lock", "packages", "wheel file", "uv by pip"],
)
def test_the_command_of_the_installer(change: dict[str, Any], lock: str, words: str) -> None:
    assert " ".join(install_arguments(dataclasses.replace(REQUEST, **change), "/v/bin/python", lock)) == words


def test_a_subset_of_a_lock_keeps_whole_entries() -> None:
    expected = (
        "Jinja2==3.1.4 \\\n    --hash=sha256:11 \\\n    --hash=sha256:12\n"
        "typing-extensions==4.12.2 \\\n    --hash=sha256:31\n"
    )
    assert lock_subset(LOCK, ("jinja2", "Typing.Extensions")) == expected
    assert lock_subset(LOCK, ()) == LOCK


CPU = {"version": "2.5.1+cpu", "cuda": None, "hip": None, "nvidia": []}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, ""),
        ({"version": "2.5.1", "cuda": "12.4"}, "torch 2.5.1 was built for CUDA 12.4"),
        ({"version": "2.5.1", "hip": "6.2"}, "torch 2.5.1 was built for ROCm 6.2"),
        (
            {"nvidia": ["nvidia-cublas-cu12", "nvidia-nccl-cu12"]},
            "CUDA packages came with it: nvidia-cublas-cu12, nvidia-nccl-cu12",
        ),
    ],
)
def test_what_is_no_cpu_torch(change: dict[str, Any], problem: str) -> None:
    assert torch_problem({**CPU, **change}) == problem
