# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Mounts: /proc/self/mountinfo in, the mount that holds a path out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Iterable

__all__ = ("MEMORY_FILESYSTEMS", "NETWORK_FILESYSTEMS", "Mount", "mount_of", "parse_mountinfo", "unescape")

MEMORY_FILESYSTEMS = frozenset({"tmpfs", "ramfs", "devtmpfs"})
NETWORK_FILESYSTEMS = frozenset(
    {
        "9p",
        "afs",
        "ceph",
        "cifs",
        "coda",
        "fuse.ossfs",
        "fuse.s3fs",
        "fuse.sshfs",
        "glusterfs",
        "fuse.glusterfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "smb3",
        "smbfs",
        "virtiofs",
    }
)
_FIELDS_BEFORE_DASH = 6
_FIELDS_AFTER_DASH = 3


@dataclass(frozen=True)
class Mount:
    """One line of mountinfo; ``root`` is the folder of the filesystem that is mounted at ``point``."""

    point: str
    root: str
    filesystem: str
    source: str
    options: tuple[str, ...]
    super_options: tuple[str, ...]


def parse_mountinfo(text: str) -> tuple[Mount, ...]:
    """Read mountinfo in its order; a line that is cut short is left out."""
    mounts = []
    for line in text.splitlines():
        before, dash, after = line.partition(" - ")
        left, right = before.split(), after.split(" ")
        if not dash or len(left) < _FIELDS_BEFORE_DASH or len(right) < _FIELDS_AFTER_DASH:
            continue
        mounts.append(
            Mount(
                point=unescape(left[4]),
                root=unescape(left[3]),
                filesystem=right[0],
                source=unescape(right[1]),
                options=tuple(left[5].split(",")),
                super_options=tuple(right[2].split(",")),
            )
        )
    return tuple(mounts)


def mount_of(path: str, mounts: Iterable[Mount]) -> Mount | None:
    """Return the mount that ``path`` (absolute, links resolved) lives on: longest point, last one mounted."""
    best: Mount | None = None
    for mount in mounts:
        prefix = mount.point.rstrip("/") + "/"
        holds = path == mount.point or path.startswith(prefix)
        if holds and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def unescape(text: str) -> str:
    """Undo the octal escapes of the kernel's and fstab's path fields (space, tab, newline, backslash)."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), text)
