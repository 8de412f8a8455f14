# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Gives a swap file its blocks: never a hole, 0600 from the first byte, little page cache, resumable."""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import re
import struct
from typing import Callable

from ansible_collections.cpufleet.vllm.plugins.module_utils._sizes import MIB

__all__ = ("allocate", "fill", "is_blank", "may_preallocate")

CHUNK = 4 * MIB
SYNC_EVERY = 64 * MIB
REPORT_EVERY = 1024 * MIB
_ZEROS = bytes(CHUNK)
_FS_IOC_GETFLAGS = 0x80086601
_FS_IOC_SETFLAGS = 0x40086602
_FS_NOCOW = 0x00800000


def may_preallocate(filesystem: str, kernel: str) -> bool:
    """Whether preallocated extents are no holes to swapon: ext4 always but for one kernel, xfs since 4.18."""
    match = re.match(r"^(\d+)\.(\d+)", kernel)
    version = (int(match.group(1)), int(match.group(2))) if match else (0, 0)
    if filesystem == "ext4":
        return version != (5, 7)
    return filesystem == "xfs" and version >= (4, 18)


def allocate(path: str, size: int, filesystem: str, log: Callable[[str], None]) -> bool:
    """Make ``path`` exactly ``size`` bytes of real blocks, keeping what it has; whether it was preallocated."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
        status = os.fstat(descriptor)
        begin = status.st_size
        if status.st_blocks * 512 < begin:  # cut short by a crash before its blocks were written
            begin = 0
        if begin == 0:
            os.ftruncate(descriptor, 0)
            if filesystem == "btrfs":
                _forbid_copy_on_write(descriptor)
        if begin >= size:
            os.ftruncate(descriptor, size)
        elif may_preallocate(filesystem, platform.release()) and _preallocate(descriptor, begin, size):
            return True
        else:
            _write_zeros(descriptor, path, begin, size, log)
        os.fsync(descriptor)
        return False
    finally:
        os.close(descriptor)


def fill(path: str, log: Callable[[str], None]) -> None:
    """Write zeros over the whole file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _write_zeros(descriptor, path, 0, os.fstat(descriptor).st_size, log)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_blank(path: str) -> bool:
    """Whether the file holds only zeros; stops at the first other byte."""
    with open(path, "rb") as stream:
        for chunk in iter(lambda: stream.read(CHUNK), b""):
            if chunk != _ZEROS[: len(chunk)]:
                return False
    return True


def _write_zeros(descriptor: int, path: str, begin: int, end: int, log: Callable[[str], None]) -> None:
    """Write in pieces that reach the disk and leave the page cache: a small host must not lose its cache to this."""
    place = begin
    while place < end:
        count = os.pwrite(descriptor, _ZEROS[: min(CHUNK, end - place)], place)
        place += count
        if place % SYNC_EVERY < count:
            os.fdatasync(descriptor)
            os.posix_fadvise(descriptor, 0, place, os.POSIX_FADV_DONTNEED)
        if place % REPORT_EVERY < count:
            log(f"{path}: {place // MIB} of {end // MIB} MiB written")


def _preallocate(descriptor: int, begin: int, end: int) -> bool:
    """Let the filesystem reserve the blocks; False where it cannot. Too little space is an error as with writing."""
    try:
        os.posix_fallocate(descriptor, begin, end - begin)
    except OSError as error:
        if error.errno not in {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}:
            raise
        return False
    os.fsync(descriptor)
    return True


def _forbid_copy_on_write(descriptor: int) -> None:
    """Set the flag that chattr +C sets; btrfs honours it on an empty file only."""
    buffer = bytearray(struct.pack("l", 0))
    fcntl.ioctl(descriptor, _FS_IOC_GETFLAGS, buffer)
    flags = struct.unpack("l", buffer)[0] | _FS_NOCOW
    fcntl.ioctl(descriptor, _FS_IOC_SETFLAGS, struct.pack("l", flags))
