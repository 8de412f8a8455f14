# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What serve_plan plans against what services take: real shapes, three releases and llama-server, ten minutes each.

Three hours on 2 cores, with the builds. ``-k 0.6.5`` runs one release. Each is installed once by site.yml; wheels are
taken from the store in the cache. What was measured is printed by benchmarks/serve_plan.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from scripts.lib import bench
from tests.support import onednn, plays, running, trees

pytestmark = pytest.mark.full

HOST = os.environ.get("CPUFLEET_HOST_PREFIX", "cpufleet") + "-measured"
SECONDS = 600


@dataclass(frozen=True)
class Pair:
    """A release and a shape, and what is asked of it: tokens of a request, and requests at once."""

    release: str
    model: str
    context: int = 4096
    concurrency: int = 4

    def __str__(self) -> str:
        return f"{self.release}-{self.model}"


PAIRS = (
    Pair("0.6.5", "qwen2-0.5b"),
    Pair("0.6.5", "qwen2-1.5b"),
    Pair("0.28.0", "qwen2-0.5b"),
    Pair("0.28.0", "granite-moe-1b", context=2048),
    Pair("0.32.0", "qwen2-0.5b-awq"),
    Pair("0.32.0", "qwen2-1.5b"),
    # It reads some eleven tokens a second.
    Pair("0.32.0", "qwen2-7b-awq", context=2048, concurrency=2),
    Pair("llama_cpp", "qwen2-0.5b-q4_0"),
    Pair("llama_cpp", "qwen2-7b-q4_0", context=2048, concurrency=2),
)


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    """Start a bare host; one that is there already is used and kept."""
    with running.bare_host(HOST) as name:
        yield name


@pytest.fixture(scope="module")
def installed(host: str) -> dict[str, bool]:
    """Return what is installed on the host so far."""
    return {host: False}


def install(release: str) -> None:
    """Bring a release to the host by site.yml, serving the small real model, and stop the service."""
    model = "smollm2-gguf" if release == "llama_cpp" else "smollm2"
    given = {
        **plays.variables(),
        "vllm_wheel_store": str(bench.cache() / "measured-store"),
        "vllm_source_build_onednn": str(onednn.archive()),
        "toolchain_allow_newer_suite": True,
        "model_serve_model": str(bench.cache() / "models" / model),
        "model_serve_engine": "llama_cpp" if release == "llama_cpp" else "vllm",
    }
    if release == "llama_cpp":
        subprocess.run([sys.executable, "scripts/make_models.py", model], cwd=bench.REPOSITORY, check=True)
    else:
        given["vllm_version"] = release
    if release == "0.6.5":
        # An avx512 build of it clones oneDNN.
        given["vllm_isa_class"] = "avx2"
    folder = bench.cache() / "measured"
    plays.serve(HOST, given, folder / f"{release}.json", folder / f"{release}.log")
    bench.run("docker", "exec", HOST, "systemctl", "stop", "vllm")


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_the_peak_is_within_the_plan_and_the_plan_close_to_the_peak(
    pair: Pair, host: str, installed: dict[str, bool]
) -> None:
    """The benchmark ends with 1 where the plan is below the peak or 12 % above it, or where the service was killed."""
    if not installed.get(pair.release):
        install(pair.release)
        installed[pair.release] = True
    subprocess.run([sys.executable, "scripts/make_models.py", pair.model], cwd=bench.REPOSITORY, check=True)
    engine = ["--llama-cpp"] if pair.release == "llama_cpp" else ["--source", str(trees.sdist(pair.release))]
    command = [sys.executable, "benchmarks/serve_plan.py", *engine, "--container", host, "--seconds", str(SECONDS)]
    command += ["--context", str(pair.context), "--concurrency", str(pair.concurrency)]
    done = subprocess.run(
        [*command, str(bench.cache() / "models" / pair.model)],
        cwd=bench.REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    sys.stdout.write(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
