# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One release of each older ISA generation: compiled on a bare host, detected, and asked a question with known answer.

The newest generation, I5, is molecule/full_build. Two hours on 2 cores. ``-k 0.13.0`` runs one. What was seen is added
to builds.json in the cache, which ``python -m tests.full.test_builds`` prints as the table of docs/verification.md.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from scripts.lib import bench
from tests.support import plays, running

HOST = os.environ.get("CPUFLEET_HOST_PREFIX", "cpufleet") + "-builds"
QUESTION = "What is the capital of France?"
RESULTS = "builds.json"
COLUMNS = ("generation", "version", "isa", "compiler", "torch", "onednn", "wall", "cpu", "wheel", "platform", "answer")


@dataclass(frozen=True)
class Case:
    """One build: what is asked for, and what has to come of it."""

    generation: str
    version: str
    library: str
    edits: tuple[str, ...] = ()
    isa: str = "avx2"
    variables: dict[str, Any] = field(default_factory=dict)


NEWER = {"toolchain_allow_newer_suite": True}
CASES = (
    Case("I0", "0.6.5", "_C.abi3.so"),
    Case("I1", "0.11.0", "_C.abi3.so", ("torch-cpu-questions", "prefill-without-extension")),
    Case("I2", "0.13.0", "_C.abi3.so", ("torch-cpu-questions",)),
    Case("I3", "0.16.0", "_C.abi3.so", ("mla-bfloat16-fallback", "l2-cache-size", "torch-cpu-questions")),
    Case("I4", "0.17.1", "_C_AVX2.abi3.so", ("isa_limit", "l2-cache-size", "torch-cpu-questions"), variables=NEWER),
)


def variables(case: Case) -> dict[str, Any]:
    """Return the host's variables for ``case``."""
    return {
        **plays.variables(),
        "vllm_version": case.version,
        "vllm_isa_class": case.isa,
        # The avx2 code of old releases rounds bfloat16 so coarsely that a small model's answers change.
        "model_serve_dtype": "float32",
        "model_serve_model": str(bench.cache() / "models" / "smollm2"),
        "model_serve_name": "SmolLM2-135M-Instruct",
        "model_serve_gate_question": QUESTION,
        "model_serve_gate_expect": "Paris",
        **case.variables,
    }


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    """Start one bare host for all; a host that is there already is used and kept, so that a build can go on."""
    with running.bare_host(HOST) as name:
        yield name


def on_host(*command: str) -> str:
    """Return what ``command`` prints on the host."""
    return bench.run("docker", "exec", HOST, *command).stdout


def row(
    case: Case, answer: dict[str, Any], wheel: dict[str, Any], size: int, platform: dict[str, Any]
) -> dict[str, str]:
    """Return one line of the table of results."""
    loaded = ", ".join(platform["kernels"]["loaded"])
    return {
        "generation": case.generation,
        "version": case.version,
        "isa": case.isa,
        "compiler": wheel["inputs"]["compiler"],
        "torch": wheel["inputs"]["torch"],
        "onednn": wheel["inputs"]["onednn"].split(" ")[0] or "none",
        "wall": f"{wheel['took']['seconds'] / 60:.0f} min, {wheel['jobs']} job(s)",
        "cpu": f"{wheel['took']['cpu_seconds'] / 60:.0f} min",
        "wheel": f"{size / 1e6:.1f} MB",
        "platform": f"{platform['class']}, {loaded}",
        "answer": answer["answer"].strip().replace("\n", " "),
    }


def keep(found: dict[str, str]) -> None:
    """Add ``found`` to the results in the cache."""
    file = bench.cache() / RESULTS
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    known[f"{found['version']} {found['isa']}"] = found
    file.write_text(json.dumps(known, indent=2, ensure_ascii=False), encoding="utf-8")


@pytest.mark.full
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.version)
def test_release_is_compiled_detected_and_answers(case: Case, host: str, tmp_path: Path) -> None:
    given = {**variables(case), "vllm_wheel_store": str(tmp_path / "store")}
    log = bench.cache() / f"build-{case.version}.log"
    _changed, answer = plays.serve(HOST, given, tmp_path / "inventory.json", log)
    release = plays.manifest(HOST, f"releases/{answer['release']}")
    wheel = plays.manifest(HOST, f"wheels/{release['wheel'][:12]}")
    size = int(on_host("stat", "--format=%s", f"/opt/vllm/wheels/{release['wheel'][:12]}/{wheel['file']}"))
    platform = plays.platform_of(HOST, answer["release"], tmp_path / "inventory.json")
    keep(row(case, answer, wheel, size, platform))
    assert tuple(wheel["inputs"]["edits"]) == case.edits
    assert wheel["file"].startswith(f"vllm-{case.version}+cpu")
    assert (platform["class"], platform["device_type"], platform["causes"]) == ("CpuPlatform", "cpu", [])
    assert platform["kernels"]["loaded"] == [case.library]
    assert "Paris" in answer["answer"]


def table() -> list[str]:
    """Return the results in the cache as lines of Markdown."""
    known = json.loads((bench.cache() / RESULTS).read_text(encoding="utf-8"))
    rows = [[entry[column] for column in COLUMNS] for _name, entry in sorted(known.items(), key=order)]
    return [f"| {' | '.join(cells)} |" for cells in (COLUMNS, ["---"] * len(COLUMNS), *rows)]


def order(item: tuple[str, dict[str, str]]) -> tuple[str, str]:
    """Return what the table is sorted by."""
    return item[1]["generation"], item[1]["version"]


if __name__ == "__main__":
    sys.stdout.write("\n".join([*table(), ""]))
