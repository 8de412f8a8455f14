# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""How much memory a process may use: meminfo, bounded by the cgroups that it lives in; swap devices by kind."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from typing import Iterable

from ansible_collections.cpufleet.vllm.plugins.module_utils._host_mounts import Mount, unescape

__all__ = (
    "CgroupLevel",
    "CgroupPlace",
    "MemInfo",
    "MemoryBound",
    "SwapDevice",
    "bound_memory",
    "bound_swap",
    "cgroup_places",
    "cgroup_version",
    "parse_meminfo",
    "parse_swaps",
)

KIB = 1024
# What cgroup v1 says without a limit is near 2**63.
UNLIMITED = 1 << 62


@dataclass(frozen=True)
class MemInfo:
    """Bytes of /proc/meminfo."""

    total: int
    available: int
    swap_total: int
    swap_free: int


@dataclass(frozen=True)
class CgroupPlace:
    """A folder whose files limit this process: ``version`` 1 or 2, ``controller`` memory, cpu or (v2) all."""

    version: int
    controller: str
    folder: str


@dataclass(frozen=True)
class CgroupLevel:
    """The texts of one cgroup folder; a missing file is an empty text.

    ``swap`` is memory.swap.max of v2, ``together`` is memory.memsw.limit_in_bytes of v1: memory and swap in one.
    """

    source: str
    limit: str = ""
    high: str = ""
    usage: str = ""
    stat: str = ""
    swap: str = ""
    together: str = ""


@dataclass(frozen=True)
class MemoryBound:
    """``limit`` is None, and ``limit_source`` empty, where nothing below MemTotal binds."""

    total: int
    available: int
    limit: int | None
    limit_source: str


@dataclass(frozen=True)
class SwapDevice:
    """One line of /proc/swaps; ``kind`` is file, partition or zram."""

    path: str
    kind: str
    size_bytes: int
    used_bytes: int
    priority: int


def parse_meminfo(text: str) -> MemInfo:
    """Read /proc/meminfo; kernels before 3.14 have no MemAvailable, so free plus page cache stands in."""
    fields = {name: int(value) * KIB for name, value in re.findall(r"^(\w+):\s+(\d+)", text, re.MULTILINE)}
    guess = fields.get("MemFree", 0) + fields.get("Buffers", 0) + fields.get("Cached", 0)
    return MemInfo(
        total=fields.get("MemTotal", 0),
        available=fields.get("MemAvailable", min(guess, fields.get("MemTotal", 0))),
        swap_total=fields.get("SwapTotal", 0),
        swap_free=fields.get("SwapFree", 0),
    )


def cgroup_places(proc_self_cgroup: str, mounts: Iterable[Mount]) -> tuple[CgroupPlace, ...]:
    """Return the folders from the process's own cgroups up to their mount points, innermost first."""
    own_v2, own_v1 = _own_paths(proc_self_cgroup)
    places: list[CgroupPlace] = []
    for mount in mounts:
        if mount.filesystem == "cgroup2" and own_v2 is not None:
            places += [CgroupPlace(2, "all", folder) for folder in _upwards(mount, own_v2)]
        elif mount.filesystem == "cgroup":
            for controller in ("memory", "cpu", "cpuset"):
                if controller in mount.super_options and controller in own_v1:
                    folders = _upwards(mount, own_v1[controller])
                    places += [CgroupPlace(1, controller, folder) for folder in folders]
    return tuple(places)


def cgroup_version(places: Iterable[CgroupPlace]) -> int:
    """Return the version of the cgroups that limit memory, 0 without any; a hybrid host limits memory by version 1."""
    found = {place.version for place in places if place.controller in ("memory", "all")}
    return min(found, default=0)


def bound_memory(info: MemInfo, levels: Iterable[CgroupLevel]) -> MemoryBound:
    """Bound MemTotal and MemAvailable by every level's limit; page cache that can be dropped counts as free."""
    limit: int | None = None
    source = ""
    available = info.available
    for level in levels:
        found = [value for value in (_limit(level.limit, info.total), _limit(level.high, info.total)) if value]
        if not found:
            continue
        bound = min(found)
        if limit is None or bound < limit:
            limit, source = bound, level.source
        available = min(available, max(0, bound - _working_set(level)))
    return MemoryBound(info.total, available, limit, source)


def bound_swap(info: MemInfo, levels: Iterable[CgroupLevel]) -> int | None:
    """Return how much swap this process may come to use, None where no cgroup limits it."""
    found = []
    for level in levels:
        if level.swap.strip().isdecimal():
            found.append(int(level.swap))
        if level.together.strip().isdecimal() and int(level.together) < UNLIMITED:
            memory = int(level.limit) if level.limit.strip().isdecimal() else info.total
            found.append(max(0, int(level.together) - min(memory, info.total)))
    return min(found, default=None)


def parse_swaps(text: str) -> tuple[SwapDevice, ...]:
    """Read /proc/swaps, whose columns are KiB and whose paths have octal escapes."""
    devices = []
    for line in text.splitlines():
        words = line.split()
        if len(words) != 5 or not words[2].isdigit():  # noqa: PLR2004 the header is no device
            continue
        # The mark of an unlinked file stays in the path: whatever has that name now is another file.
        path = unescape(words[0])
        size, used, priority = (int(word) for word in words[2:])
        devices.append(SwapDevice(path, _kind(path, words[1]), size * KIB, used * KIB, priority))
    return tuple(devices)


def _kind(path: str, word: str) -> str:
    if re.match(r"^/dev/zram\d+$", path):
        return "zram"
    return "file" if word == "file" else "partition"


def _own_paths(text: str) -> tuple[str | None, dict[str, str]]:
    unified: str | None = None
    by_controller: dict[str, str] = {}
    for line in text.splitlines():
        number, _colon, rest = line.partition(":")
        controllers, _colon, path = rest.partition(":")
        if number == "0" and not controllers:
            unified = path
        for controller in controllers.split(","):
            by_controller[controller] = path
    return unified, by_controller


def _upwards(mount: Mount, own: str) -> list[str]:
    """List the folders of ``own`` and its parents below the mount; the mount itself is always one of them."""
    root = mount.root.rstrip("/")
    if root and (own == root or own.startswith(root + "/")):
        own = own[len(root) :]
    # Seen from another cgroup namespace the path is outside the mount; only the mount itself can be read then.
    inside = "" if ".." in own.split("/") else own.strip("/")
    folders = []
    while inside:
        folders.append(posixpath.join(mount.point, inside))
        inside = posixpath.dirname(inside)
    return [*folders, mount.point]


def _limit(text: str, total: int) -> int | None:
    """Read one limit; ``max``, v1's sentinel near 2**63 and whatever is not below MemTotal are no limit."""
    word = text.strip()
    return int(word) if word.isdigit() and (total == 0 or int(word) < total) else None


def _working_set(level: CgroupLevel) -> int:
    usage = int(level.usage) if level.usage.strip().isdigit() else 0
    match = re.search(r"^total_inactive_file (\d+)", level.stat, re.MULTILINE) or re.search(
        r"^inactive_file (\d+)", level.stat, re.MULTILINE
    )
    return max(0, usage - (int(match.group(1)) if match else 0))
