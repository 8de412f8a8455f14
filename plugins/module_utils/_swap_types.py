# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""What a swap file is asked to be, what is there, and sizes and filesystems: the words that the swap planner uses."""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._host_memory import SwapDevice
from ansible_collections.cpufleet.vllm.plugins.module_utils._host_mounts import (
    MEMORY_FILESYSTEMS,
    NETWORK_FILESYSTEMS,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._sizes import MIB, human

__all__ = (
    "HEADER_BYTES",
    "LABEL",
    "FileState",
    "SwapHeader",
    "SwapRequest",
    "SwapState",
    "parse_header",
    "parse_size",
    "round_up",
    "unfit_filesystem",
)

PRIVATE_MODE = 0o600
LABEL = "cpufleet"  # written into the header, so that a file is known as ours even without its fstab entry
_UNITS = {"": MIB, "K": 1 << 10, "M": MIB, "G": 1 << 30, "T": 1 << 40}
_MAGIC = b"SWAPSPACE2"
_HIBERNATED = (b"S1SUSPEND\0", b"S2SUSPEND\0", b"ULSUSPEND\0", b"LINHIB0001")
_PAGE_SIZES = (4096, 16384, 65536)
_HEADER = struct.Struct("<III16s16s")
_HEADER_OFFSET = 1024
HEADER_BYTES = max(_PAGE_SIZES)


@dataclass(frozen=True)
class SwapHeader:
    """What mkswap wrote: the bytes it covers, its label, and whether a hibernated system is in there."""

    size_bytes: int
    label: str
    hibernated: bool = False


@dataclass(frozen=True)
class FileState:
    """A path where a swap file is or may be.

    ``active`` is its line in /proc/swaps; ``blank`` says that it holds nothing but zeros.
    """

    path: str
    exists: bool = False
    regular: bool = True
    size_bytes: int = 0
    allocated_bytes: int = 0
    mode: int = PRIVATE_MODE
    owner: int = 0
    header: SwapHeader | None = None
    blank: bool = False
    active: SwapDevice | None = None

    @property
    def has_holes(self) -> bool:
        return self.allocated_bytes < self.size_bytes

    @property
    def swap_bytes(self) -> int:
        """What is active, else what the header covers, in whole MiB with the header page included."""
        if self.active:
            return round_up(self.active.size_bytes)
        return round_up(self.header.size_bytes) if self.header else 0

    def is_whole(self, size: int) -> bool:
        """Whether this is a swap file of exactly ``size``, written to its end and formatted to its end."""
        written = bool(self.active) or not self.has_holes
        return round_up(self.size_bytes) == size == self.swap_bytes and written

    @property
    def is_ours(self) -> bool:
        return bool(self.header and self.header.label == LABEL)

    @property
    def is_private(self) -> bool:
        """Whether only root can read what was swapped out."""
        return self.mode == PRIVATE_MODE and self.owner == 0


@dataclass(frozen=True)
class SwapRequest:
    """``size_bytes`` None means auto: as much as RAM and other disk swap lack to ``auto_total``."""

    path: str
    size_bytes: int | None
    auto_total: int = 0
    priority: int | None = None
    fstab: bool = True
    activate: bool = True
    skip_unfit: bool = False


@dataclass(frozen=True)
class SwapState:
    """Everything the planner looks at; ``work`` is the file next to the target that an interrupted run leaves."""

    target: FileState
    work: FileState
    filesystem: str
    read_only: bool
    free_bytes: int
    memory_total: int
    memory_available: int
    swaps: tuple[SwapDevice, ...]
    fstab: str


def round_up(size: int, step: int = MIB) -> int:
    return -(-size // step) * step


def parse_size(value: str) -> int:
    """Return bytes, rounded up to MiB, of ``8G``, ``8192M``, ``1.5g``, ``8GiB``, ``4096B`` or a plain number of MiB."""
    match = re.match(r"^\s*(\d+(?:\.\d+)?)\s*(B|([KMGT]?)(?:I?B)?)\s*$", str(value).upper())
    if not match:
        raise CpufleetError(
            f"Cannot read {value!r} as the size of a swap file",
            "Write a number of MiB, or a number with B, K, M, G or T, such as 8G",
            size=str(value),
        )
    unit = 1 if match.group(2) == "B" else _UNITS[match.group(3)]
    size = round_up(math.ceil(float(match.group(1)) * unit))
    if size >= 1 << 44:
        raise CpufleetError(
            f"The size {value!r} is {human(size)}, more than a swap file can have",
            "Plain numbers are MiB, not bytes: write 8192 or 8G for 8 GiB",
            size=str(value),
        )
    return size


def parse_header(first_bytes: bytes) -> SwapHeader | None:
    """Read the head of a file (64 KiB are enough); None where there is no swap signature for any page size."""
    for page in _PAGE_SIZES:
        signature = first_bytes[page - len(_MAGIC) : page]
        if signature == _MAGIC or signature in _HIBERNATED:
            _version, last_page, _bad, _uuid, label = _HEADER.unpack_from(first_bytes, _HEADER_OFFSET)
            name = label.rstrip(b"\0").decode("ascii", "replace")
            return SwapHeader((last_page + 1) * page, name, signature != _MAGIC)
    return None


def unfit_filesystem(kind: str, read_only: bool = False) -> str:
    """Say why a filesystem cannot hold a swap file; empty where it can, or where only trying tells."""
    if kind in MEMORY_FILESYSTEMS:
        return f"{kind} keeps its files in memory itself"
    if kind in NETWORK_FILESYSTEMS:
        return f"{kind} is a network filesystem, which needs memory to write"
    if kind in {"overlay", "aufs", "ecryptfs", "zfs"}:
        return f"the kernel cannot map files on {kind} to disk blocks"
    if kind in {"fuse", "fuseblk"} or kind.startswith("fuse."):
        return f"{kind} is served by a process, which needs memory to write"
    if read_only or kind in {"squashfs", "erofs", "iso9660"}:
        return f"{kind} is mounted read-only here"
    return ""
