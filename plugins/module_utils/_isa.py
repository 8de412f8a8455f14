# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""ISA classes: what a CPU offers to a vLLM build, and which builds it can run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError

__all__ = ("ISA_CLASSES", "IsaVerdict", "classes_for", "isa_class", "supports", "weakest")

# Weakest first. Each class asks for what vLLM and torch compile in for it, so a host that lacks one flag of a class
# (a hypervisor mask, Knights Landing) falls to the class below instead of dying with SIGILL.
_LADDERS: dict[str, tuple[tuple[str, frozenset[str]], ...]] = {
    "x86_64": (
        ("avx2", frozenset({"avx2", "fma", "f16c"})),
        ("avx512", frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl"})),
        ("avx512_bf16", frozenset({"avx512_bf16", "avx512_vnni"})),
        ("amx", frozenset({"amx_tile", "amx_bf16", "amx_int8"})),
    ),
    "aarch64": (
        # The Arm build targets armv8.2-a with fp16 and dot product; a Cortex-A72 has neither.
        ("neon", frozenset({"asimd", "atomics", "asimdhp", "asimddp"})),
        ("neon_bf16", frozenset({"bf16"})),
    ),
}
_ARCH_NAMES = {"amd64": "x86_64", "arm64": "aarch64"}

ISA_CLASSES: tuple[str, ...] = tuple(name for ladder in _LADDERS.values() for name, _flags in ladder)


@dataclass(frozen=True)
class IsaVerdict:
    """``isa_class`` is None where no vLLM build can run; ``reason`` says what decided."""

    isa_class: str | None
    reason: str


def isa_class(flags: Iterable[str], arch: str) -> IsaVerdict:
    """Return the strongest class whose flags, and those of all weaker classes, the CPU has."""
    name = _ARCH_NAMES.get(arch, arch)
    ladder = _LADDERS.get(name)
    if ladder is None:
        return IsaVerdict(None, f"{arch} is not an architecture that is served here: x86_64 or aarch64 is needed")
    have = frozenset(flags)
    reached: str | None = None
    for rung, wanted in ladder:
        missing = sorted(wanted - have)
        if missing:
            return _stopped(reached, rung, missing)
        reached = rung
    return IsaVerdict(reached, f"the CPU has all flags of {reached}")


def _stopped(reached: str | None, rung: str, missing: list[str]) -> IsaVerdict:
    lacking = ", ".join(missing)
    if reached is None:
        return IsaVerdict(None, f"the CPU lacks {lacking}, which every vLLM CPU build needs ({rung})")
    return IsaVerdict(reached, f"the CPU has all flags of {reached}; {rung} would need {lacking}")


def classes_for(arch: str) -> tuple[str, ...]:
    """Return the classes of ``arch``, weakest first; empty for an architecture that is not served."""
    return tuple(name for name, _flags in _LADDERS.get(_ARCH_NAMES.get(arch, arch), ()))


def supports(host_class: str | None, wanted: str) -> bool:
    """Whether code built for ``wanted`` runs on a host of ``host_class``."""
    ladder = _ladder_of(wanted)
    return host_class in ladder and ladder.index(str(host_class)) >= ladder.index(wanted)


def weakest(classes: Iterable[str]) -> str:
    """Return the class that all hosts of ``classes`` can run; raise CpufleetError where there is none."""
    found = sorted(set(classes))
    if not found:
        raise CpufleetError("Cannot choose an ISA class: no host was given", "Name at least one host")
    ladder = _ladder_of(found[0])
    strangers = [name for name in found if name not in ladder]
    if strangers:
        raise CpufleetError(
            f"Cannot choose one ISA class for {', '.join(found)}: they are of different architectures",
            "Build once for each architecture",
            classes=found,
        )
    return min(found, key=ladder.index)


def _ladder_of(name: str) -> tuple[str, ...]:
    for arch in _LADDERS:
        if name in classes_for(arch):
            return classes_for(arch)
    raise CpufleetError(f"Unknown ISA class {name!r}", f"Use one of: {', '.join(ISA_CLASSES)}", isa_class=name)
