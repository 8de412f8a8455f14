# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a host can run a wheel: each requirement met and missed, with the exact words."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._wheel_fit import (
    misfits,
    python_fits,
    range_fits,
)

HOST: dict[str, Any] = json.loads((Path(__file__).parent / "fixtures" / "plan" / "host-debian12.json").read_text())
ALL = {"avx2": "_C_AVX2", "avx512": "_C_AVX512", "avx512_bf16": "_C", "amx": "_C"}
#: As 0.17 ships it: what a plain AVX512 CPU would die of.
LOADS_TOO_MUCH = {**ALL, "avx512": "_C"}
ELSE = "or use a wheel made for such hosts."


def host(isa: str | None = "avx512_bf16", arch: str = "x86_64", **libc: str) -> dict[str, Any]:
    made = copy.deepcopy(HOST)
    made["arch"] = arch
    made["cpu"]["isa_class"] = isa
    made["libc"] = {"kind": "glibc", "version": "2.36", "glibcxx": "3.4.30", "cxxabi": "1.3.13", **libc}
    return made


def manifest(isa: tuple[str, ...] = ("avx512_bf16",), **requires: Any) -> dict[str, Any]:
    asked = {
        "python_tag": "cp38-abi3",
        "platform": "manylinux_2_28_x86_64",
        "python_requires": "<3.15,>=3.11",
        "machine": "x86_64",
        "needed": ["libc.so.6", "libstdc++.so.6", "libtorch_cpu.so"],
        "glibc": "2.27",
        "glibcxx": "3.4.21",
        "cxxabi": "1.3.11",
        "libraries": ["_C", "_C_AVX2", "_C_AVX512"],
    }
    kept = {key: value for key, value in {**asked, **requires}.items() if value is not None}
    return {"requires": kept, "isa": list(isa), "inputs": {"torch": "2.13.0+cpu"}}


def test_a_wheel_that_fits() -> None:
    assert misfits(host(), "3.11", manifest(), "2.13.0+cpu") == []
    assert misfits(host(), "3.11.2", manifest()) == []
    assert misfits(host(), "3.11", manifest(glibc="2.4", glibcxx="3.4.9")) == []
    # Of several platforms any one will do.
    several = "manylinux_2_39_x86_64.manylinux_2_28_x86_64"
    assert misfits(host(), "3.11", manifest(glibc=None, platform=several)) == []
    old = "manylinux2014_x86_64"
    assert misfits(host(version="2.17"), "3.11", manifest(glibc=None, platform=old)) == []
    assert len(misfits(host(version="2.12"), "3.11", manifest(glibc=None, platform=old))) == 1


@pytest.mark.parametrize(
    ("seen", "wheel", "text"),
    [
        (
            host("neon", "aarch64"),
            manifest(),
            f"architecture: the wheel is for x86_64, this host is aarch64. Build on a host that is aarch64, {ELSE}",
        ),
        (
            host("neon", "aarch64"),
            manifest(machine=None),
            f"architecture: the wheel is for x86_64, this host is aarch64. Build on a host that is aarch64, {ELSE}",
        ),
        (
            host("avx2"),
            manifest(("avx512",)),
            f"ISA: the wheel needs avx512, this host's CPU offers avx2. Build for avx2, {ELSE}",
        ),
        (
            host(None),
            manifest(("avx2",)),
            "ISA: the wheel needs avx2, this host's CPU offers less than any build needs. "
            f"Build for another CPU, {ELSE}",
        ),
        (
            host(),
            manifest(()),
            "ISA: the wheel does not say for which CPUs it was made. Ask its maker, and set vllm_isa_class to that "
            "class; a wrong one ends the service with an illegal instruction.",
        ),
        (
            host(),
            manifest(glibc="2.38"),
            f"libc: the wheel needs GLIBC_2.38, this host has 2.36. Build on a host with glibc 2.36 or older, {ELSE}",
        ),
        (
            host(),
            manifest(glibc=None, platform="manylinux_2_39_x86_64"),
            f"libc: the wheel needs GLIBC_2.39, this host has 2.36. Build on a host with glibc 2.36 or older, {ELSE}",
        ),
        (
            host(kind="musl", version=""),
            manifest(),
            "libc: the wheel needs the GNU C library, this host has musl. Use another wheel.",
        ),
        (
            host(),
            manifest(platform="musllinux_1_2_x86_64", glibc=None),
            "libc: the wheel needs musl, this host has the GNU C library. Use another wheel.",
        ),
        (
            host(),
            manifest(glibcxx="3.4.32"),
            "libstdc++: the wheel needs GLIBCXX_3.4.32, this host's libstdc++6 offers 3.4.30. "
            f"Build with a g++ as old as this host's distribution has, {ELSE}",
        ),
        (
            host(),
            manifest(cxxabi="1.3.15"),
            "libstdc++: the wheel needs CXXABI_1.3.15, this host's libstdc++6 offers 1.3.13. "
            f"Build with a g++ as old as this host's distribution has, {ELSE}",
        ),
        (
            host(),
            manifest(python_tag="cp312-cp312"),
            "Python: the wheel is for cp312-cp312, this host would run it with 3.11. "
            f"Install such a Python or set toolchain_python to uv, {ELSE}",
        ),
        (
            host(),
            manifest(python_requires=">=3.12"),
            "Python: the wheel needs >=3.12, this host would run it with 3.11. "
            f"Install such a Python or set toolchain_python to uv, {ELSE}",
        ),
        (
            host(),
            {**manifest(), "inputs": {"torch": "2.11.0+cpu"}},
            "torch: the wheel was built against 2.11.0+cpu, this release gets 2.13.0+cpu. "
            f"Set torch_cpu_version to auto, {ELSE}",
        ),
        (
            host(),
            manifest(needed=["libc.so.6", "libcudart.so.13", "libtorch_cuda.so"]),
            "torch: the wheel is a GPU build, it needs libcudart.so.13. Use a wheel for CPU, or build one.",
        ),
    ],
)
def test_what_does_not_fit_is_told(seen: dict[str, Any], wheel: dict[str, Any], text: str) -> None:
    assert misfits(seen, "3.11", wheel, "2.13.0+cpu") == [text]


def test_everything_is_told_at_once() -> None:
    wheel = manifest(("amx",), glibc="2.38", glibcxx="3.4.33", python_tag="cp39-cp39")
    assert [text.partition(":")[0] for text in misfits(host(), "3.11", wheel)] == ["ISA", "libc", "libstdc++", "Python"]


def test_the_cxx_library_is_told_once() -> None:
    assert len(misfits(host(), "3.11", manifest(glibcxx="3.4.33", cxxabi="1.3.15"))) == 1


@pytest.mark.parametrize(
    ("own", "selection", "kernels", "expected"),
    [
        ("avx2", ALL, ["_C", "_C_AVX2", "_C_AVX512"], ""),
        ("avx512", ALL, ["_C_AVX512"], ""),
        ("amx", ALL, ["_C"], ""),
        (
            "avx2",
            ALL,
            ["_C"],
            f"ISA: a CPU of class avx2 loads _C_AVX2, the wheel has only _C. Build for avx2 (vllm_isa_class), {ELSE}",
        ),
        # A stronger CPU does not load the weaker library: the ladder of the classes does not hold here.
        (
            "avx512_bf16",
            ALL,
            ["_C_AVX2"],
            "ISA: a CPU of class avx512_bf16 loads _C, the wheel has only _C_AVX2. "
            f"Build for avx512_bf16 (vllm_isa_class), {ELSE}",
        ),
        (
            "avx512",
            LOADS_TOO_MUCH,
            ["_C", "_C_AVX2"],
            "ISA: the wheel loads _C here, made for avx512_bf16, this host's CPU offers avx512. "
            f"Build for avx512, {ELSE}",
        ),
    ],
)
def test_a_library_that_is_picked_at_import(
    own: str, selection: dict[str, str], kernels: list[str], expected: str
) -> None:
    wheel = {**manifest(libraries=kernels), "selection": selection}
    assert misfits(host(own), "3.11", wheel) == ([expected] if expected else [])


def test_one_library_serves_stronger_cpus_too() -> None:
    one = dict.fromkeys(ALL, "_C")
    wheel = {**manifest(("avx2",), libraries=["_C"]), "selection": one}
    assert misfits(host("amx"), "3.11", wheel) == []


def test_facts_that_were_recorded_before_the_libraries_were_read() -> None:
    old = {key: value for key, value in host().items() if key != "libc"}
    assert misfits(old, "3.11", manifest()) == []
    assert [text.partition(":")[0] for text in misfits(old, "3.11", manifest(glibc="2.38", glibcxx="3.4.32"))] == [
        "libc",
        "libstdc++",
    ]


@pytest.mark.parametrize(
    ("tag", "fitting", "others"),
    [
        ("cp311-cp311", ["3.11", "3.11.2"], ["3.10", "3.12", ""]),
        ("cp38-abi3", ["3.8", "3.11", "3.14.1"], ["3.7", "2.7", "4.0"]),
        ("cp310.cp311-cp310.cp311", ["3.10", "3.11"], ["3.12"]),
        ("py3-none", ["3.8", "3.13"], ["2.7"]),
        ("py2.py3-none", ["3.11", "2.7"], ["4.0"]),
        ("py311-none", ["3.11", "3.12"], ["3.10"]),
        ("cp313-cp313t", [], ["3.13"]),
        ("pp310-pypy310_pp73", [], ["3.10"]),
    ],
)
def test_python_tags(tag: str, fitting: list[str], others: list[str]) -> None:
    assert [version for version in [*fitting, *others] if python_fits(tag, version)] == fitting


@pytest.mark.parametrize(
    ("bounds", "fitting", "others"),
    [
        ("<3.15,>=3.11", ["3.11", "3.14.2"], ["3.10.9", "3.15", "3.15.1"]),
        (">=3.9,!=3.9.7", ["3.9.6", "3.10"], ["3.9.7", "3.8"]),
        ("~=3.10", ["3.10", "3.12"], ["3.9", "4.0"]),
        ("==3.11.*", ["3.11.4"], ["3.12"]),
        ("<=3.12", ["3.12.4", "3.11"], ["3.13"]),
        (">3.9", ["3.10"], ["3.9.5"]),
    ],
)
def test_ranges(bounds: str, fitting: list[str], others: list[str]) -> None:
    assert [version for version in [*fitting, *others] if range_fits(bounds, version)] == fitting
