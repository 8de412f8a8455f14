# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Carries out the steps of a swap plan on this machine, and reads the state that plans are made from."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
import subprocess
from typing import Callable

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._host_memory import (
    SwapDevice,
    parse_meminfo,
    parse_swaps,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._host_mounts import mount_of, parse_mountinfo
from ansible_collections.cpufleet.vllm.plugins.module_utils._io import read_text, write_atomic
from ansible_collections.cpufleet.vllm.plugins.module_utils._sizes import MIB
from ansible_collections.cpufleet.vllm.plugins.module_utils._swap_alloc import allocate, fill, is_blank
from ansible_collections.cpufleet.vllm.plugins.module_utils._swap_plan import Step, SwapPlan, plan_recovery
from ansible_collections.cpufleet.vllm.plugins.module_utils._swap_types import (
    HEADER_BYTES,
    LABEL,
    FileState,
    SwapState,
    parse_header,
)

__all__ = ("SwapHost", "SwapRefusedError")

# The verbs of steps that are no words for a person.
SAID = {"on": "switch on swap in", "off": "switch off swap in", "fstab": "write the fstab line of"}

FSTAB = "/etc/fstab"
WORK_SUFFIX = ".cpufleet-new"
_SWAP_FLAG_PREFER = 0x8000
_REFUSALS = frozenset({errno.EPERM, errno.EACCES, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})


class SwapRefusedError(CpufleetError):
    """The kernel would not activate a swap file that is in order: containers, some filesystems."""


class SwapHost:
    """One swap file's surroundings. ``log`` gets a line for each step and for the progress of long ones."""

    def __init__(self, path: str, log: Callable[[str], None], fstab: str = FSTAB) -> None:
        self.path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        self.work = self.path + WORK_SUFFIX
        self.fstab = fstab
        self.log = log
        self.priority: int | None = None
        self._preallocated: set[str] = set()
        self._lock: int | None = None

    def lock(self) -> None:
        """Wait for another run on the same folder: one whose connection broke may still be at work."""
        self._lock = os.open(os.path.dirname(self.path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.log(f"waiting for another run that works on {self.path}")
            fcntl.flock(self._lock, fcntl.LOCK_EX)

    def read(self) -> SwapState:
        folder = os.path.dirname(self.path)
        if not os.path.isdir(folder):
            raise CpufleetError(
                f"Cannot look for {self.path}: {folder} is not a folder",
                "Create the folder, or choose another path",
                path=self.path,
            )
        swaps = parse_swaps(read_text("/proc/swaps", ""))
        memory = parse_meminfo(read_text("/proc/meminfo", ""))
        mount = mount_of(folder, parse_mountinfo(read_text("/proc/self/mountinfo", "")))
        space = os.statvfs(folder)
        return SwapState(
            target=_file_state(self.path, swaps),
            work=_file_state(self.work, swaps),
            filesystem=mount.filesystem if mount else "unknown",
            read_only=bool(mount and "ro" in mount.options),
            free_bytes=space.f_bavail * space.f_frsize,
            memory_total=memory.total,
            memory_available=memory.available,
            swaps=swaps,
            fstab=read_text(self.fstab, ""),
        )

    def apply(self, plan: SwapPlan, before: SwapState) -> None:
        """Run the plan; where a step fails, bring back what there was and raise what failed."""
        try:
            for step in plan.steps:
                self._run(step, plan, before.filesystem)
        except CpufleetError as error:
            self._recover(before, plan, error)
            raise

    def _recover(self, before: SwapState, plan: SwapPlan, cause: CpufleetError) -> None:
        try:
            for step in plan_recovery(before, self.read()):
                self._run(step, plan, before.filesystem)
        except CpufleetError as error:
            raise CpufleetError(
                f"{cause.problem}; bringing back what there was failed too: {error.problem}",
                "Look at /proc/swaps and run again: the next run goes on from what it finds",
                path=self.path,
            ) from cause

    def _run(self, step: Step, plan: SwapPlan, filesystem: str) -> None:
        self.log(" ".join(str(word) for word in (step.verb, step.path, step.size_bytes or "") if word))
        try:
            if step.verb == "allocate":
                self._allocate(step, filesystem)
            elif step.verb == "format":
                _mkswap(step.path, step.size_bytes)
            elif step.verb == "fstab":
                write_atomic(self.fstab, plan.fstab.encode("utf-8", "surrogateescape"))
            else:
                self._run_simple(step, filesystem)
        except OSError as error:
            raise CpufleetError(
                f"Cannot {SAID.get(step.verb, step.verb)} {step.path}: {error.strerror}",
                "What there was before has been brought back",
                path=step.path,
                errno=error.errno,
            ) from error

    def _run_simple(self, step: Step, filesystem: str) -> None:
        if step.verb == "probe":
            self._probe(filesystem)
        elif step.verb == "on":
            self._on(step.path)
        elif step.verb == "off":
            _syscall("swapoff", step.path)
        elif step.verb == "rename":
            os.replace(step.path, self.path)
            if step.path in self._preallocated:
                self._preallocated.add(self.path)
            _sync_folder(self.path)
        elif step.verb == "remove":
            os.unlink(step.path)
        elif step.verb == "chmod":
            os.chown(step.path, 0, 0)
            os.chmod(step.path, 0o600)

    def _allocate(self, step: Step, filesystem: str) -> None:
        if allocate(step.path, step.size_bytes, filesystem, self.log):
            self._preallocated.add(step.path)

    def _probe(self, filesystem: str) -> None:
        """Try swap of 1 MiB before writing gigabytes: whether the kernel takes it is only found by trying."""
        self._allocate(Step("allocate", self.work, MIB), filesystem)
        _mkswap(self.work, MIB)
        self._on(self.work)
        _syscall("swapoff", self.work)

    def _on(self, path: str) -> None:
        flags = 0 if self.priority is None else _SWAP_FLAG_PREFER | (self.priority & 0x7FFF)
        try:
            _syscall("swapon", path, flags)
        except OSError as error:
            if error.errno == errno.EINVAL and path in self._preallocated:
                self._write_out(path)
                _syscall("swapon", path, flags)
                return
            if error.errno not in _REFUSALS:
                raise
            raise SwapRefusedError(
                f"The kernel refuses swap on {self.path}: {error.strerror}",
                "Give the host swap from outside, or more memory",
                path=self.path,
                errno=error.errno,
            ) from error

    def _write_out(self, path: str) -> None:
        """Replace preallocated extents by written ones: to some filesystems and kernels the former are holes."""
        self.log(f"{path} was preallocated and taken for one with holes: writing it out")
        self._preallocated.discard(path)
        fill(path, self.log)
        _mkswap(path, os.stat(path).st_size)


def _file_state(path: str, swaps: tuple[SwapDevice, ...]) -> FileState:
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return FileState(path)
    if not stat.S_ISREG(status.st_mode):
        return FileState(path, exists=True, regular=False)
    with open(path, "rb") as stream:
        header = parse_header(stream.read(HEADER_BYTES))
    # Swap is not kept apart between containers: the same path with more swap than the file has is another file.
    lines = [one for one in swaps if one.path == path and one.size_bytes <= status.st_size]
    active = max(lines, key=lambda one: one.size_bytes, default=None)
    return FileState(
        path=path,
        exists=True,
        size_bytes=status.st_size,
        allocated_bytes=status.st_blocks * 512,
        mode=status.st_mode & 0o7777,
        owner=status.st_uid,
        header=header,
        blank=header is None and active is None and is_blank(path),
        active=active,
    )


def _mkswap(path: str, size: int) -> None:
    """Format with the system's mkswap, which also labels the file for SELinux; it wants the size in KiB."""
    argv = ["mkswap", "-L", LABEL, path, str(size // 1024)]
    environment = {**os.environ, "LC_ALL": "C", "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"}
    try:
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    except FileNotFoundError:
        raise CpufleetError(
            f"Cannot format {path}: mkswap is missing", "Install the package util-linux", path=path
        ) from None
    if done.returncode:
        raise CpufleetError(f"Cannot format {path}: {done.stderr.strip()}", path=path)


def _syscall(name: str, path: str, *arguments: int) -> None:
    """Call swapon or swapoff itself: its errno says what a message of the commands would have to be parsed for."""
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(os.fsencode(path), *arguments):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), path)


def _sync_folder(path: str) -> None:
    descriptor = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
