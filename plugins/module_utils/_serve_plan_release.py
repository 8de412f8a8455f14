# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""The rules of one vLLM release on one host, from SourceInfo: what it can serve, and how it has to be told."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from ansible_collections.cpufleet.vllm.plugins.module_utils._model_shape import ModelShape
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan_memory import KvRule
from ansible_collections.cpufleet.vllm.plugins.module_utils._sizes import GIB, MIB

__all__ = ("BIND", "KV_SPACE", "Release", "Threads", "choose_threads", "preloads", "read_release")

V0_DETECTIONS = ("D0", "D1", "D2", "D3")
BIND = "VLLM_CPU_OMP_THREADS_BIND"
KV_SPACE = "VLLM_CPU_KVCACHE_SPACE"
# The kernels take blocks of 16 or 128 tokens, by release and kernel; counting in the larger is right for both.
BLOCK = 128
PACKED_BITS = 4
PACKED_METHODS = ("awq", "gptq")
INTEL_OPENMP = "libiomp5.so"
# From here on prompts are logged only when that is asked for; the sources before all take the flag against it.
QUIET_FROM = (0, 10, 1)


@dataclasses.dataclass(frozen=True)
class Release:
    """``arguments`` is None where the source did not tell; ``methods`` are the quantizations with kernels here."""

    version: str
    kind: str
    detection: str
    arguments: frozenset[str] | None
    environment: dict[str, Any]
    kv_exact: bool
    kv_unset: str
    head_sizes: tuple[int, ...]
    experts: str
    nobind: bool
    sliding_window: bool
    methods: dict[str, str]
    all_methods: dict[str, dict[str, str]]
    ipex: bool
    intel_openmp: bool

    @property
    def logs_prompts(self) -> bool:
        """Return whether the release writes every prompt into the log unless it is told not to."""
        numbers = tuple(int(number) for number in re.findall(r"\d+", self.version)[:3])
        return bool(numbers) and numbers < QUIET_FROM

    def has(self, argument: str) -> bool:
        """Return whether the command line takes ``argument``; the ones asked for here are older than all releases."""
        return self.arguments is None or argument in self.arguments

    def kv_rule(self) -> KvRule:
        """Return how the KV cache is sized: by the byte with the argument, or in whole GiB by the variable."""
        return KvRule(unit=MIB if self.kv_exact else GIB, block=BLOCK, spare_blocks=1)

    def kv_reason(self) -> str:
        """Say how the KV cache is told, and what would happen without."""
        unset = {
            "4_gib": "4 GiB",
            "half_of_free": "half of the free memory",
            "share_of_total": "92 % of all memory",
        }.get(self.kv_unset, "a size of its own")
        zero = "the same" if self.environment.get(KV_SPACE, 0) == 0 else "nothing at all"
        way = "--kv-cache-memory-bytes" if self.kv_exact else f"{KV_SPACE}, which takes whole GiB"
        return f"by {way}; left alone vLLM {self.version} takes {unset}, and with the variable at 0 {zero}"

    def objections(self, shape: ModelShape, isa: str | None) -> list[str]:
        """Return why this release cannot serve ``shape`` on a CPU of class ``isa``."""
        if not isa:
            return ["no vLLM build runs on this CPU, which lacks AVX2 or is of another architecture"]
        found = self._packing(shape, isa)
        if self.head_sizes and shape.head_size not in self.head_sizes and not shape.model_type.startswith("deepseek"):
            sizes = ", ".join(map(str, self.head_sizes))
            found.append(
                f"vLLM {self.version} has CPU kernels for heads of {sizes}, the model's are of {shape.head_size}"
            )
        if shape.experts and self.experts == "none":
            found.append(f"vLLM {self.version} serves no mixture of experts on a CPU")
        if shape.experts and self.experts == "ipex" and not self.ipex:
            found.append(f"vLLM {self.version} serves a mixture of experts only with Intel's extension for PyTorch")
        return found

    def _packing(self, shape: ModelShape, isa: str) -> list[str]:
        pack = shape.packing
        if not pack.method:
            return []
        method = next((name for name in PACKED_METHODS if pack.method.startswith(name)), pack.method)
        way = self.methods.get(method)
        if way is None:
            able = [name for name, methods in self.all_methods.items() if method in methods]
            where = f"only for {', '.join(able)}; this CPU offers {isa}" if able else "for no CPU"
            return [f"vLLM {self.version} has kernels for {pack.name} {where}"]
        if way == "ipex" and not self.ipex:
            return [
                f"vLLM {self.version} runs {pack.name} only with Intel's extension for PyTorch, which it does not bring"
            ]
        if method in PACKED_METHODS and pack.bits != PACKED_BITS:
            return [f"vLLM {self.version} has CPU kernels for 4-bit weights, the model's have {pack.bits}"]
        return []


def read_release(source: dict[str, Any], isa: str | None) -> Release:
    """Return the rules of the release that ``source`` describes."""
    serving: dict[str, Any] = source.get("serving") or {}
    known = serving.get("arguments")
    quantization: dict[str, dict[str, str]] = source.get("quantization") or {}
    requirements: list[str] = (source.get("requirements") or {}).get("cpu") or []
    detection = str(source.get("detection") or "")
    return Release(
        version=str(source.get("version") or "of this source"),
        kind=str(serving.get("engine") or ("v0" if detection in V0_DETECTIONS else "v1")),
        detection=detection,
        arguments=None if known is None else frozenset(known),
        environment=source.get("cpu_environment") or {},
        kv_exact=serving.get("kv_argument") == "used",
        kv_unset=str(serving.get("kv_unset") or ""),
        head_sizes=tuple(serving.get("head_sizes") or ()),
        experts=str(serving.get("experts") or "native"),
        nobind=bool(serving.get("nobind")),
        sliding_window=bool(serving.get("sliding_window", True)),
        methods=quantization.get(isa or "", {}),
        all_methods=quantization,
        ipex=any(line.startswith("intel_extension_for_pytorch") for line in requirements),
        intel_openmp=any(line.replace("_", "-").startswith("intel-openmp") for line in requirements),
    )


def preloads(release: Release | None, host: dict[str, Any]) -> list[str]:
    """Return what vLLM is to load first: the host's faster allocator by its path, the release's OpenMP by its name."""
    allocator = str(host.get("allocator") or "")
    brings = release is not None and release.intel_openmp and host["arch"] == "x86_64"
    return [*([allocator] if allocator else []), *([INTEL_OPENMP] if brings else [])]


@dataclasses.dataclass(frozen=True)
class Threads:
    """How many threads compute, where they are bound, and why."""

    count: int
    binding: str
    reason: str


def choose_threads(cpu: dict[str, Any], release: Release | None) -> Threads:
    """Return the threads for HostInfo's ``cpu``: one a core, bound as far as the release can and it helps."""
    usable, siblings = int(cpu["usable_cpus"]), int(cpu.get("threads_per_core") or 1)
    paired = siblings > 1 and usable > siblings
    count = usable // siblings if paired else usable
    why = f"{count} for {usable} usable CPU(s)" + (f", {siblings} of which share a core" if siblings > 1 else "")
    if release is None or BIND not in release.environment:
        return Threads(count, "", why)
    if release.environment[BIND] == "all":
        return Threads(
            count, "all", f"{why}; this release binds none by itself, and asking it to can fail in containers"
        )
    allowed = [int(number) for number in cpu.get("cpuset") or range(usable)]
    if not paired and len(allowed) == usable:
        return Threads(count, _ranges(allowed), f"{why}; upstream's auto would keep one back for the server")
    if release.nobind:
        return Threads(count, "nobind", f"{why}; the scheduler places them, for which CPUs are ours is not known")
    return Threads(usable, _ranges(allowed[:usable]), f"{usable} usable CPU(s); this release binds to named CPUs only")


def _ranges(numbers: list[int]) -> str:
    """Return CPU numbers as ``0-3,8``."""
    groups: list[list[int]] = []
    for number in sorted(numbers):
        if groups and number == groups[-1][-1] + 1:
            groups[-1].append(number)
        else:
            groups.append([number])
    return ",".join(str(group[0]) if len(group) == 1 else f"{group[0]}-{group[-1]}" for group in groups)
