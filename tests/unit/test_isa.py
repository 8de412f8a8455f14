# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ISA classes: order, what runs where, and the verdict on every kind of CPU that people have."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._host_cpu import arch_of_cpuinfo, parse_cpuinfo
from ansible_collections.cpufleet.vllm.plugins.module_utils._isa import (
    ISA_CLASSES,
    classes_for,
    isa_class,
    supports,
    weakest,
)

CPUINFO = Path(__file__).parent / "fixtures" / "host" / "cpuinfo"

VERDICTS = {
    "broadwell-1-core-2-threads": (
        "avx2",
        "the CPU has all flags of avx2; avx512 would need avx512bw, avx512dq, avx512f, avx512vl",
    ),
    "cascade-lake": ("avx512", "the CPU has all flags of avx512; avx512_bf16 would need avx512_bf16"),
    "genoa-firecracker": (
        "avx512_bf16",
        "the CPU has all flags of avx512_bf16; amx would need amx_bf16, amx_int8, amx_tile",
    ),
    "graviton-3": ("neon_bf16", "the CPU has all flags of neon_bf16"),
    "haswell-avx2-masked-on-one-cpu": (None, "the CPU lacks avx2, which every vLLM CPU build needs (avx2)"),
    "hygon-7285": ("avx2", "the CPU has all flags of avx2; avx512 would need avx512bw, avx512dq, avx512f, avx512vl"),
    "ice-lake": ("avx512", "the CPU has all flags of avx512; avx512_bf16 would need avx512_bf16"),
    "ivy-bridge-avx-only": (None, "the CPU lacks avx2, fma, which every vLLM CPU build needs (avx2)"),
    "knights-landing": ("avx2", "the CPU has all flags of avx2; avx512 would need avx512bw, avx512dq, avx512vl"),
    "kunpeng-920": ("neon", "the CPU has all flags of neon; neon_bf16 would need bf16"),
    "milan": ("avx2", "the CPU has all flags of avx2; avx512 would need avx512bw, avx512dq, avx512f, avx512vl"),
    "power9": (None, "ppc64le is not an architecture that is served here: x86_64 or aarch64 is needed"),
    "qemu64": (None, "the CPU lacks avx2, f16c, fma, which every vLLM CPU build needs (avx2)"),
    "raspberry-pi-4": (None, "the CPU lacks asimddp, asimdhp, atomics, which every vLLM CPU build needs (neon)"),
    "riscv64": (None, "riscv64 is not an architecture that is served here: x86_64 or aarch64 is needed"),
    "sapphire-rapids-amx": ("amx", "the CPU has all flags of amx"),
    "sapphire-rapids-amx-masked": (
        "avx512_bf16",
        "the CPU has all flags of avx512_bf16; amx would need amx_bf16, amx_int8, amx_tile",
    ),
    "yitian-710": ("neon_bf16", "the CPU has all flags of neon_bf16"),
}


@pytest.mark.parametrize("name", sorted(path.name for path in CPUINFO.iterdir()))
def test_verdict_on_every_cpu(name: str) -> None:
    text = (CPUINFO / name).read_text(encoding="utf-8")
    verdict = isa_class(parse_cpuinfo(text).flags, arch_of_cpuinfo(text))
    assert (verdict.isa_class, verdict.reason) == VERDICTS[name]


@pytest.mark.parametrize(
    ("host", "wanted", "answer"),
    [
        ("amx", "avx2", True),
        ("avx2", "avx2", True),
        ("avx2", "avx512", False),
        ("avx512", "avx512_bf16", False),
        ("avx512_bf16", "avx512", True),
        ("neon_bf16", "neon", True),
        ("neon", "neon_bf16", False),
        ("neon", "avx2", False),
        ("amx", "neon", False),
        (None, "avx2", False),
    ],
)
def test_what_runs_where(host: str | None, wanted: str, answer: bool) -> None:
    assert supports(host, wanted) is answer


def test_classes_are_ordered_weakest_first() -> None:
    assert ISA_CLASSES == ("avx2", "avx512", "avx512_bf16", "amx", "neon", "neon_bf16")
    assert classes_for("arm64") == ("neon", "neon_bf16")
    assert classes_for("amd64") == ("avx2", "avx512", "avx512_bf16", "amx")
    assert classes_for("s390x") == ()


def test_unknown_class_is_refused_with_the_known_ones() -> None:
    with pytest.raises(CpufleetError) as caught:
        supports("avx2", "avx10")
    assert str(caught.value) == (
        "Unknown ISA class 'avx10'. Use one of: avx2, avx512, avx512_bf16, amx, neon, neon_bf16."
    )


def test_weakest_of_a_fleet() -> None:
    assert weakest(["amx", "avx2", "avx512"]) == "avx2"
    assert weakest(["neon_bf16"]) == "neon_bf16"


@pytest.mark.parametrize(
    ("classes", "text"),
    [
        ([], "Cannot choose an ISA class: no host was given. Name at least one host."),
        (
            ["avx2", "neon"],
            "Cannot choose one ISA class for avx2, neon: they are of different architectures. "
            "Build once for each architecture.",
        ),
    ],
)
def test_weakest_refuses(classes: list[str], text: str) -> None:
    with pytest.raises(CpufleetError) as caught:
        weakest(classes)
    assert str(caught.value) == text
