# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""What the CPU is and how much of it may be used: /proc/cpuinfo, sysfs and cgroup texts in, dataclasses out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, Mapping

__all__ = (
    "CpuInfo",
    "arch_of_cpuinfo",
    "parse_cpu_list",
    "parse_cpu_quota",
    "parse_cpuinfo",
    "usable_cpus",
)

_IMPLEMENTERS = {
    "0x41": "ARM",
    "0x48": "HiSilicon",
    "0x61": "Apple",
    "0x6d": "Microsoft",
    "0x70": "Phytium",
    "0xc0": "Ampere",
}
_PARTS = {
    ("0x41", "0xd08"): "Cortex-A72",
    ("0x41", "0xd0b"): "Cortex-A76",
    ("0x41", "0xd0c"): "Neoverse-N1",
    ("0x41", "0xd40"): "Neoverse-V1",
    ("0x41", "0xd49"): "Neoverse-N2",
    ("0x41", "0xd4f"): "Neoverse-V2",
    ("0x48", "0xd01"): "Kunpeng-920",
}


@dataclass(frozen=True)
class CpuInfo:
    """``flags`` holds what *all* CPUs have; ``cores`` are physical cores that are online."""

    model: str
    vendor: str
    flags: tuple[str, ...]
    logical_cpus: int
    cores: int
    threads_per_core: int
    sockets: int


def parse_cpuinfo(text: str, siblings: Mapping[int, str] | None = None) -> CpuInfo:
    """Read /proc/cpuinfo.

    ``siblings`` holds sysfs ``thread_siblings_list`` by CPU, for machines whose cpuinfo has no core ids.
    """
    blocks = _processor_blocks(text)
    logical = max(1, len(blocks))
    first = blocks[0] if blocks else {}
    cores = _physical_cores(blocks, siblings or {}, logical)
    sockets = len({block["physical id"] for block in blocks if "physical id" in block}) or 1
    return CpuInfo(
        model=_model(first, text),
        vendor=first.get("vendor_id") or _IMPLEMENTERS.get(first.get("CPU implementer", ""), ""),
        flags=_common_flags(blocks),
        logical_cpus=logical,
        cores=cores,
        threads_per_core=max(1, logical // cores),
        sockets=sockets,
    )


def arch_of_cpuinfo(text: str) -> str:
    """Name the architecture from the shape of /proc/cpuinfo, for a captured host that cannot be asked."""
    fields = {line.partition(":")[0].strip() for line in text.splitlines()}
    if "CPU implementer" in fields:
        return "aarch64"
    if "flags" in fields and "vendor_id" in fields:
        return "x86_64"
    if "cpu" in fields and "POWER" in text:
        return "ppc64le"
    if "isa" in fields and "hart" in fields:
        return "riscv64"
    return "loongarch64" if "Loongson" in text else "unknown"


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Expand a kernel CPU list such as ``0-3,8,10-11``; anything that is not one gives an empty tuple."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        first, _dash, last = part.strip().partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            continue
        cpus.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(cpus))


def parse_cpu_quota(cpu_max: str = "", quota_us: str = "", period_us: str = "") -> float | None:
    """Return the CPUs' worth of time that a cgroup grants: v2 ``cpu.max`` or the v1 pair; None without a limit."""
    words = cpu_max.split() if cpu_max.strip() else [quota_us.strip(), period_us.strip()]
    if len(words) != 2 or not all(word.isdigit() for word in words) or int(words[1]) == 0:  # noqa: PLR2004 quota, period
        return None
    return int(words[0]) / int(words[1])


def usable_cpus(logical: int, allowed: Iterable[int], quotas: Iterable[float]) -> int:
    """Return how many CPUs this process may keep busy: affinity and cpuset first, then time quotas rounded down."""
    count = len(set(allowed)) or logical
    for quota in quotas:
        count = min(count, int(quota))
    return max(1, count)


def _processor_blocks(text: str) -> list[dict[str, str]]:
    blocks = []
    for chunk in text.replace("\r", "").split("\n\n"):
        pairs = (line.partition(":") for line in chunk.splitlines() if ":" in line)
        block = {name.strip(): value.strip() for name, _colon, value in pairs}
        if "processor" in block:
            blocks.append(block)
    return blocks


def _common_flags(blocks: list[dict[str, str]]) -> tuple[str, ...]:
    sets = [frozenset((block.get("flags") or block.get("Features") or "").split()) for block in blocks]
    return tuple(sorted(frozenset.intersection(*sets))) if sets else ()


def _physical_cores(blocks: list[dict[str, str]], siblings: Mapping[int, str], logical: int) -> int:
    pairs = {(block.get("physical id", "0"), block["core id"]) for block in blocks if "core id" in block}
    if pairs:
        return len(pairs)
    groups = {parse_cpu_list(value) for value in siblings.values()} - {()}
    return min(logical, len(groups)) if groups else logical


def _model(first: dict[str, str], text: str) -> str:
    for name in ("model name", "Model Name", "cpu", "Processor"):
        if first.get(name):
            return " ".join(first[name].split())
    implementer, part = first.get("CPU implementer", ""), first.get("CPU part", "")
    if (implementer, part) in _PARTS:
        return _PARTS[implementer, part]
    for line in text.splitlines():
        if line.startswith(("Hardware", "Model")):
            return line.partition(":")[2].strip()
    return f"Arm implementer {implementer} part {part}" if implementer else "unknown"
