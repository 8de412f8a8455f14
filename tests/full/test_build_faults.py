# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""vLLM 0.6.5 itself on a host that restarts, under a memory limit that four compilers exceed, and beside another torch.

Six CPU-minutes; the tests follow upon one another. The other faults are in tests/integration/test_wheel_build.py, on a
project that compiles in seconds.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.lib import bench
from tests.support.build_host import PLAIN, ROOT, UNITS, VENV, Build, BuildHost, kill, torch_pin, torch_source

# torch_bindings.cpp and cache.cpp take about 1.5 GiB each, what else is left then about 0.7: four at once do not fit
# into the limit, two do.
LIMIT = "2600M"
FLAGS = {"VLLM_CPU_DISABLE_AVX512": "true"}
FOUR = {"MAX_JOBS": "4"}
# The dependencies of its time; those that come with a torch of their own have no place beside the CPU build.
AS_OF = ("--exclude-newer", "2024-12-25")
STRAYS = ("triton", "torchvision", "xgrammar")
CCACHE = {"ccache_dir": f"{ROOT}/cache/ccache", "progress_interval": 15}


@pytest.fixture(scope="module")
def host() -> Iterator[BuildHost]:
    """Start a host with a compiler."""
    found = BuildHost("faults")
    found.prepare()
    yield found
    found.stop()


@pytest.fixture(scope="module")
def build(host: BuildHost, tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Put the source of the release on the host."""
    return host.real(tmp_path_factory.mktemp("faults") / "build", "0.6.5", FLAGS)


@pytest.mark.full
def test_a_real_build_survives_a_restart_and_a_memory_limit(build: Build) -> None:
    play = build.start(**CCACHE)
    before = build.wait_for(2, "attention.cpp.o", seconds=1200)
    kill(play)
    bench.restart_host(build.host.name)
    assert build.host.run(UNITS).strip() == ""

    out, status = build.play(memory_max=LIMIT, environment=FOUR, **CCACHE)
    assert status == 0, out[-6000:]
    assert "goes on where it stopped: " in out
    (note,) = re.findall(r"^\[\S+\] (goes on with 2 job\(s\) instead of 4: .*)$", out, re.MULTILINE)
    assert "the kernel killed cc1plus with " in note
    assert [(retry["kind"], retry["jobs"]) for retry in build.manifest()["retries"]] == [("memory", 4)]
    after = build.objects()
    assert len(after) == 7
    assert len({name for name, written in before.items() if after[name] == written}) >= 2
    assert build.manifest()["file"].startswith("vllm-0.6.5+cpu")


@pytest.mark.full
def test_another_folder_takes_it_all_from_the_compiler_cache(build: Build, host: BuildHost, tmp_path: Path) -> None:
    assert build.objects(), "the test before this one has to be run too"
    other = host.real(tmp_path / "other", "0.6.5", FLAGS)
    out, status = other.play(environment=FOUR, **CCACHE)
    assert status == 0, out[-6000:]
    took = other.manifest()["took"]
    assert took["ccache"]["hits"] >= 7
    assert took["ccache"]["misses"] == 0
    assert took["cpu_seconds"] < build.manifest()["took"]["cpu_seconds"] / 2


def platform(host: BuildHost) -> dict[str, Any]:
    """Return what platform_info says of the environment on the host."""
    command = [str(Path(sys.executable).parent / "ansible"), host.name, "-i", f"{host.name},"]
    command += ["-c", "community.docker.docker", "-e", "ansible_python_interpreter=/usr/bin/python3"]
    command += ["-m", "cpufleet.vllm.platform_info", "-a", f"python={VENV}/bin/python"]
    done = subprocess.run(
        command, cwd=bench.REPOSITORY, env={**os.environ, **PLAIN}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])["platform"]
    return found


# Another torch lacks names that this one has. One is taken away that the kernels want and torch itself does not.
TAKE_AWAY = """
import glob, subprocess
site = glob.glob("{venv}/lib/python*/site-packages")[0]
def wanted(*paths):
    out = subprocess.run(["nm", "-D", "--undefined-only", *paths], capture_output=True, text=True).stdout
    return {{line.split()[-1] for line in out.splitlines() if " U " in line}}
library = site + "/torch/lib/libtorch_cpu.so"
others = [site + "/torch/lib/libtorch_python.so"]
out = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True).stdout
there = {{line.split()[-1] for line in out.splitlines()}}
name = sorted(wanted(site + "/vllm/_C.abi3.so") & there - wanted(*others))[0]
content = open(library, "rb").read()
old = name.encode() + b"\\0"
assert old in content
open(library, "wb").write(content.replace(old, old[:-2] + b"Q\\0"))
print(name)
"""


@pytest.mark.full
def test_another_torch_than_the_wheel_was_built_against_is_named(build: Build, host: BuildHost) -> None:
    overrides = f"{torch_pin()}\\nnumpy<2\\nsetuptools<81\\n"
    host.run(f"printf '{overrides}' >/tmp/overrides.txt; cp {build.wheels}/*.whl /tmp/")
    uv = [f"{VENV}/bin/uv", "pip"]
    into = ["--quiet", "--python", f"{VENV}/bin/python"]
    host.install(
        *uv,
        "install",
        *into,
        *torch_source(),
        *AS_OF,
        "--override",
        "/tmp/overrides.txt",
        f"/tmp/{build.manifest()['file']}",
    )
    host.install(*uv, "uninstall", *into, *STRAYS)
    before = platform(host)
    assert (before["class"], before["causes"]) == ("CpuPlatform", [])
    script = TAKE_AWAY.format(venv=VENV)
    name = bench.run("docker", "exec", host.name, "python3", "-c", script).stdout.strip()
    after = platform(host)
    (cause,) = after["causes"]
    assert cause["code"] == "kernels_do_not_load"
    assert f"undefined symbol: {name}" in cause["text"]
    assert cause["remedy"].startswith("Install exactly the torch that the wheel was built against")
