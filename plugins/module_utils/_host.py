# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""HostInfo: everything that decisions about a host are made from, gathered in well under a second without root."""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from typing import Any

from ansible_collections.cpufleet.vllm.plugins.module_utils import _host_cpu as cpu
from ansible_collections.cpufleet.vllm.plugins.module_utils import _host_memory as memory
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._host_libs import (
    LibraryInfo,
    find_allocator,
    read_libraries,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._host_mounts import Mount, parse_mountinfo
from ansible_collections.cpufleet.vllm.plugins.module_utils._host_os import (
    libstdcxx_version,
    parse_os_release,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._host_probe import probe_host
from ansible_collections.cpufleet.vllm.plugins.module_utils._host_read import (
    Root,
    read_disk,
    read_gpus,
    read_listeners,
    read_virtualization,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._isa import isa_class
from ansible_collections.cpufleet.vllm.plugins.module_utils._swap_fstab import our_swap_paths

__all__ = ("gather_host",)


def gather_host(root_path: str = "/", paths: tuple[str, ...] = ("/", "/tmp")) -> dict[str, Any]:  # noqa: S108
    """Return HostInfo as plain data; ``paths`` are the places whose free space the caller wants to know."""
    root = Root(root_path)
    if not os.path.isdir(root.path):
        raise CpufleetError(
            f"Cannot read a host under {root_path}: it is not a folder",
            "Name the folder that holds the host's etc and proc, or leave root out for this machine",
            root=root_path,
        )
    mounts = parse_mountinfo(root.text("/proc/self/mountinfo") or root.text("/proc/1/mountinfo"))
    cpuinfo = root.text("/proc/cpuinfo")
    arch = os.uname().machine if root.live else _captured_arch(root, cpuinfo)
    processor = cpu.parse_cpuinfo(cpuinfo, _siblings(root))
    compilers, pythons = probe_host(root)
    libraries = read_libraries(root, arch)
    return {
        "os": {**asdict(parse_os_release(_os_release(root))), **_libraries(root, libraries)},
        "libc": asdict(libraries),
        "allocator": find_allocator(root, arch),
        "kernel": root.text("/proc/sys/kernel/osrelease").strip(),
        "arch": arch,
        "cpu": _cpu(root, processor, arch, mounts),
        "memory": _memory(root, mounts),
        "swap": _swap(root),
        "disks": {path: read_disk(root, path, mounts) for path in paths},
        "shm_free_bytes": read_disk(root, "/dev/shm", mounts)["free_bytes"] if root.exists("/dev/shm") else 0,  # noqa: S108
        "virtualization": read_virtualization(root, processor.flags),
        "compilers": compilers,
        "pythons": pythons,
        "gpus": read_gpus(root),
        "listeners": read_listeners(root),
        "systemd": root.exists("/run/systemd/system"),
        "clock": int(time.time()) if root.live else None,
        "uptime_s": _uptime(root),
    }


def _os_release(root: Root) -> str:
    return root.text("/etc/os-release") or root.text("/usr/lib/os-release")


def _captured_arch(root: Root, cpuinfo: str) -> str:
    return root.text("/proc/sys/kernel/arch").strip() or cpu.arch_of_cpuinfo(cpuinfo)


def _libraries(root: Root, read: LibraryInfo) -> dict[str, Any]:
    """Tell the newest symbols that the C and C++ run-time libraries offer: a ready wheel may want newer ones."""
    folders = ("/usr/lib/*-linux-gnu", "/usr/lib64")
    names = [name for folder in folders for name in root.glob(f"{folder}/libstdc++.so.6.0.*")]
    versions = [version for version in map(libstdcxx_version, names) if version]
    # A captured host may hold the names of its libraries without their bytes.
    newest = max(versions, key=lambda version: int(version.rpartition(".")[2]), default="")
    return {"libc": read.version, "libstdcxx": read.glibcxx or newest}


def _siblings(root: Root) -> dict[int, str]:
    pattern = "/sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list"
    return dict(enumerate(root.text(name) for name in root.glob(pattern)))


def _cpu(root: Root, processor: cpu.CpuInfo, arch: str, mounts: tuple[Mount, ...]) -> dict[str, Any]:
    verdict = isa_class(processor.flags, arch)
    allowed = sorted(os.sched_getaffinity(0)) if root.live else _captured_affinity(root)
    quotas = _quotas(root, mounts)
    numa = _numa(root)
    return {
        **asdict(processor),
        "flags": list(processor.flags),
        "isa_class": verdict.isa_class,
        "isa_reason": verdict.reason,
        "numa_nodes": max(1, len(numa)),
        "numa": numa,
        "usable_cpus": cpu.usable_cpus(processor.logical_cpus, allowed, quotas),
        "cpuset": list(allowed),
        "quota_cpus": min(quotas, default=None),
    }


def _captured_affinity(root: Root) -> list[int]:
    for line in root.text("/proc/self/status").splitlines():
        if line.startswith("Cpus_allowed_list:"):
            return list(cpu.parse_cpu_list(line.partition(":")[2]))
    return []


def _quotas(root: Root, mounts: tuple[Mount, ...]) -> list[float]:
    found = []
    for place in memory.cgroup_places(root.text("/proc/self/cgroup"), mounts):
        if place.controller == "all":
            quota = cpu.parse_cpu_quota(cpu_max=root.text(f"{place.folder}/cpu.max"))
        elif place.controller == "cpu":
            quota = cpu.parse_cpu_quota(
                quota_us=root.text(f"{place.folder}/cpu.cfs_quota_us"),
                period_us=root.text(f"{place.folder}/cpu.cfs_period_us"),
            )
        else:
            continue
        if quota:
            found.append(quota)
    return found


def _numa(root: Root) -> list[dict[str, Any]]:
    nodes = []
    for folder in root.glob("/sys/devices/system/node/node[0-9]*"):
        words = root.text(f"{folder}/meminfo").split()
        total = words[words.index("MemTotal:") + 1] if "MemTotal:" in words else "0"
        cpus = list(cpu.parse_cpu_list(root.text(f"{folder}/cpulist")))
        nodes.append({"id": int(folder.rpartition("node")[2]), "cpus": cpus, "total_bytes": int(total) * 1024})
    return sorted(nodes, key=lambda node: int(node["id"]))


def _memory(root: Root, mounts: tuple[Mount, ...]) -> dict[str, Any]:
    info = memory.parse_meminfo(root.text("/proc/meminfo"))
    places = memory.cgroup_places(root.text("/proc/self/cgroup"), mounts)
    levels = _levels(root, places)
    bound = memory.bound_memory(info, levels)
    return {
        "total_bytes": bound.total,
        "available_bytes": bound.available,
        "cgroup": memory.cgroup_version(places),
        "limit_bytes": bound.limit,
        "limit_source": bound.limit_source,
        "swap_limit_bytes": memory.bound_swap(info, levels),
        "swap_total_bytes": info.swap_total,
        "swap_free_bytes": info.swap_free,
    }


def _levels(root: Root, places: tuple[memory.CgroupPlace, ...]) -> list[memory.CgroupLevel]:
    # Limit, softer limit, usage, swap alone, memory and swap together.
    names = {
        "all": ("memory.max", "memory.high", "memory.current", "memory.swap.max", ""),
        "memory": ("memory.limit_in_bytes", "", "memory.usage_in_bytes", "", "memory.memsw.limit_in_bytes"),
    }
    levels = []
    for place in places:
        if place.controller not in names:
            continue
        wanted = names[place.controller]
        limit, high, usage, swap, together = (root.text(f"{place.folder}/{name}") if name else "" for name in wanted)
        source = f"cgroup v{place.version}: {place.folder}/{wanted[0]}"
        stat = root.text(f"{place.folder}/memory.stat")
        levels.append(memory.CgroupLevel(source, limit, high, usage, stat, swap, together))
    return levels


def _swap(root: Root) -> list[dict[str, Any]]:
    ours = our_swap_paths(root.text("/etc/fstab"))
    return [{**asdict(device), "ours": device.path in ours} for device in memory.parse_swaps(root.text("/proc/swaps"))]


def _uptime(root: Root) -> int | None:
    word = root.text("/proc/uptime").partition(".")[0]
    return int(word) if word.isdigit() else None
