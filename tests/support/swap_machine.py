# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A stand-in for a kernel and a disk, strict about what Linux forbids with active swap; plans run on it in steps."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ansible_collections.cpufleet.vllm.plugins.module_utils._host_memory import SwapDevice
from ansible_collections.cpufleet.vllm.plugins.module_utils._sizes import MIB
from ansible_collections.cpufleet.vllm.plugins.module_utils._swap_fstab import our_swap_paths
from ansible_collections.cpufleet.vllm.plugins.module_utils._swap_plan import Step, SwapPlan
from ansible_collections.cpufleet.vllm.plugins.module_utils._swap_types import (
    LABEL,
    FileState,
    SwapHeader,
    SwapState,
)

GIB = 1 << 30
PAGE = 4096
TARGET = "/swapfile"
WORK = TARGET + ".cpufleet-new"


class KernelSaysNoError(Exception):
    """What Linux would answer with EPERM, ETXTBSY, EINVAL or ENOMEM."""


@dataclass
class Machine:
    """Files by path, each with its header, and the swap that is on."""

    memory_total: int = 4 * GIB
    memory_available: int = 3 * GIB
    disk: int = 100 * GIB
    filesystem: str = "ext4"
    fstab: str = "LABEL=root / ext4 defaults 0 1\n"
    files: dict[str, FileState] = field(default_factory=dict)
    swaps: dict[str, SwapDevice] = field(default_factory=dict)
    lowest_swap: int = 1 << 60

    def state(self) -> SwapState:
        taken = sum(one.allocated_bytes for one in self.files.values())
        return SwapState(
            target=self._file(TARGET),
            work=self._file(WORK),
            filesystem=self.filesystem,
            read_only=False,
            free_bytes=self.disk - taken,
            memory_total=self.memory_total,
            memory_available=self.memory_available,
            swaps=tuple(self.swaps.values()),
            fstab=self.fstab,
        )

    def _file(self, path: str) -> FileState:
        file = self.files.get(path, FileState(path))
        return replace(file, active=self.swaps.get(path))

    def put(self, path: str, size: int, label: str | None = LABEL, used: int | None = None) -> Machine:
        """Have a file: formatted with ``label`` (None: not), active with ``used`` bytes in it (None: not)."""
        header = None if label is None else SwapHeader(size, label)
        self.files[path] = FileState(path, True, size_bytes=size, allocated_bytes=size, header=header)
        if used is not None:
            self.swaps[path] = SwapDevice(path, "file", size - PAGE, used, -2)
        return self

    def run(self, step: Step, plan: SwapPlan) -> None:
        getattr(self, f"_{step.verb}")(step, plan)
        self.lowest_swap = min(self.lowest_swap, self.active())

    def active(self) -> int:
        return sum(one.size_bytes + PAGE for one in self.swaps.values() if one.path in (TARGET, WORK))

    def used(self) -> int:
        return sum(one.used_bytes for one in self.swaps.values())

    def power_cut(self) -> None:
        """Lose all swap, then boot: the entry in fstab is activated, which fails for a header larger than its file."""
        self.swaps.clear()
        if f"{TARGET} none swap" in self.fstab and TARGET in self.files:
            self._on(Step("on", TARGET), None)

    def _probe(self, step: Step, plan: SwapPlan) -> None:
        self.put(WORK, MIB)

    def _allocate(self, step: Step, plan: SwapPlan) -> None:
        self._refuse_active(step.path)
        file = self.files.get(step.path, FileState(step.path, True))
        self.files[step.path] = replace(file, size_bytes=step.size_bytes, allocated_bytes=step.size_bytes)
        if self.state().free_bytes < 0:
            raise KernelSaysNoError("ENOSPC")

    def _format(self, step: Step, plan: SwapPlan) -> None:
        self._refuse_active(step.path)
        file = self.files[step.path]
        if step.size_bytes > file.size_bytes:
            raise KernelSaysNoError("formatted beyond the end of the file")
        self.files[step.path] = replace(file, header=SwapHeader(step.size_bytes, LABEL), blank=False)

    def _on(self, step: Step, plan: SwapPlan | None) -> None:
        file = self.files[step.path]
        if file.header is None or file.header.size_bytes > file.size_bytes or file.has_holes:
            raise KernelSaysNoError("EINVAL")
        self._refuse_active(step.path)
        self.swaps[step.path] = SwapDevice(step.path, "file", file.header.size_bytes - PAGE, 0, -2)

    def _off(self, step: Step, plan: SwapPlan) -> None:
        device = self.swaps.pop(step.path)
        room = sum(one.size_bytes - one.used_bytes for one in self.swaps.values())
        if device.used_bytes > room + self.memory_available:
            self.swaps[step.path] = device
            raise KernelSaysNoError("ENOMEM")
        for path, other in self.swaps.items():
            moved = min(device.used_bytes, other.size_bytes - other.used_bytes)
            self.swaps[path] = replace(other, used_bytes=other.used_bytes + moved)
            device = replace(device, used_bytes=device.used_bytes - moved)
        self.memory_available -= device.used_bytes

    def _rename(self, step: Step, plan: SwapPlan) -> None:
        self._refuse_active(step.path)
        self._refuse_active(TARGET)
        self.files[TARGET] = replace(self.files.pop(step.path), path=TARGET)

    def _remove(self, step: Step, plan: SwapPlan) -> None:
        self._refuse_active(step.path)
        del self.files[step.path]

    def _chmod(self, step: Step, plan: SwapPlan) -> None:
        self.files[step.path] = replace(self.files[step.path], mode=0o600, owner=0)

    def _fstab(self, step: Step, plan: SwapPlan) -> None:
        self.fstab = plan.fstab

    def _refuse_active(self, path: str) -> None:
        if path in self.swaps:
            raise KernelSaysNoError(f"{path} is active")

    def is_marked(self) -> bool:
        return TARGET in our_swap_paths(self.fstab)
