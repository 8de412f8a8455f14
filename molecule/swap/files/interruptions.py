# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Interrupt runs of the swapfile module's own code on this host and write down, as JSON lines, what was found then.

Usage: interruptions.py PATH BEFORE AFTER FAULT. BEFORE and AFTER are sizes, 0 for no file. FAULT is step (a run killed
before each step in turn, until one ends by itself), power (the same, then all swap off and the file on again by its
header, as a boot does), written:N (killed after N MiB of writes), limit:N (files cannot grow beyond N MiB) or full:N
(something else fills the disk but for N MiB when the allocation begins). While a run is at work, a thread looks at the
swap there is.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from ansible_collections.cpufleet.vllm.plugins.module_utils import _swap_alloc, _swap_host
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._host_memory import parse_swaps
from ansible_collections.cpufleet.vllm.plugins.module_utils._sizes import MIB
from ansible_collections.cpufleet.vllm.plugins.module_utils._swap_plan import plan_absent, plan_present
from ansible_collections.cpufleet.vllm.plugins.module_utils._swap_types import SwapRequest, parse_size

MORE_STEPS_THAN_ANY_PLAN = 20
SAMPLE_S = 0.0005
FSTAB = Path("/etc/fstab")
FILLER = "filler"


def converge(path: str, size: str) -> str:
    """Do what the module does; return its action or its failure."""
    host = _swap_host.SwapHost(path, lambda line: None)
    host.lock()
    before = host.read()
    request = SwapRequest(host.path, parse_size(size))
    try:
        plan = plan_present(request, before) if request.size_bytes else plan_absent(request, before)
        host.apply(plan, before)
    except CpufleetError as error:
        return f"failed: {error}"
    return plan.action


def in_child(path: str, size: str, fault: str = "none") -> str:
    """Converge in a process of its own, as the module does; an empty answer is a killed process."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        build_in(fault)
        os.write(writer, converge(path, size).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return text


class Watched:
    """The least swap on a file that was seen, and how often was looked, while the block ran."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.seen: list[int] = []
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def watch(self) -> None:
        while not self.ended.wait(SAMPLE_S):
            self.seen.append(active(self.path))

    def __enter__(self) -> Watched:
        self.seen.append(active(self.path))
        self.thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.ended.set()
        self.thread.join()
        self.seen.append(active(self.path))


def build_in(fault: str) -> None:
    kind, _colon, number = fault.partition(":")
    if kind == "step":
        kill_at_call(_swap_host.SwapHost, "_run", int(number))
    elif kind == "written":
        _swap_alloc.may_preallocate = lambda filesystem, kernel: False
        kill_at_call(os, "pwrite", int(number) * MIB // _swap_alloc.CHUNK)
    elif kind == "limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(number) * MIB, resource.RLIM_INFINITY))
    elif kind == "full":
        fill_before_allocation(int(number) * MIB)


def kill_at_call(owner: Any, name: str, number: int) -> None:
    original, calls = getattr(owner, name), []

    def counted(*arguments: Any) -> Any:
        if len(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        calls.append(name)
        return original(*arguments)

    setattr(owner, name, counted)


def fill_before_allocation(left: int) -> None:
    original = _swap_host.SwapHost._allocate

    def filled(self: _swap_host.SwapHost, step: Any, filesystem: str) -> None:
        filler = Path(self.path).parent / FILLER
        # The trial with 1 MiB is no allocation yet.
        if step.size_bytes > MIB and not filler.exists():
            space = os.statvfs(filler.parent)
            with filler.open("wb") as stream:
                os.posix_fallocate(stream.fileno(), 0, space.f_bfree * space.f_frsize - left)
        original(self, step, filesystem)

    _swap_host.SwapHost._allocate = filled  # type: ignore[method-assign]


def active(path: str) -> int:
    """Return the swap on the file and on the one next to it, header pages added."""
    devices = parse_swaps(Path("/proc/swaps").read_text(encoding="utf-8"))
    return sum(one.size_bytes + resource.getpagesize() for one in devices if one.path.startswith(path))


def all_off(path: str) -> None:
    for name in (path, path + _swap_host.WORK_SUFFIX):
        with contextlib.suppress(OSError):
            _swap_host._syscall("swapoff", name)


def clear(path: str, fstab: bytes) -> None:
    all_off(path)
    for name in (path, path + _swap_host.WORK_SUFFIX):
        Path(name).unlink(missing_ok=True)
    Path(path).with_name(FILLER).unlink(missing_ok=True)
    FSTAB.write_bytes(fstab)


def look(path: str, moment: str) -> dict[str, Any]:
    file, work = Path(path), Path(path + _swap_host.WORK_SUFFIX)
    return {
        f"{moment}_active": active(path),
        f"{moment}_size": file.stat().st_size if file.exists() else 0,
        f"{moment}_modes": sorted({oct(one.stat().st_mode & 0o777) for one in (file, work) if one.exists()}),
        f"{moment}_work": work.exists(),
        f"{moment}_entries": FSTAB.read_text(encoding="utf-8").count(f"{path} none swap"),
    }


def one_round(path: str, sizes: tuple[str, str], fault: str, power_cut: bool) -> dict[str, Any]:
    before, after = sizes
    begun = in_child(path, before) if before != "0" else "absent"
    with Watched(path) as first:
        told = in_child(path, after, fault)
    row = {"fault": fault, "begun": begun, "told": told, **look(path, "then")}
    Path(path).with_name(FILLER).unlink(missing_ok=True)
    if power_cut:
        all_off(path)
        with contextlib.suppress(OSError):
            _swap_host._syscall("swapon", path, 0)
        row["boot_active"] = active(path)
    with Watched(path) as second:
        row["second"] = in_child(path, after)
    row.update({"lowest": min(first.seen + second.seen), "looks": len(first.seen + second.seen)})
    row.update(look(path, "end"))
    row["third"] = in_child(path, after)
    return row


def main() -> None:
    path, before, after, fault = sys.argv[1:5]
    stepwise = fault in {"step", "power"}
    faults = [f"step:{number}" for number in range(MORE_STEPS_THAN_ANY_PLAN)] if stepwise else [fault]
    fstab = FSTAB.read_bytes()
    try:
        for each in faults:
            clear(path, fstab)
            row = one_round(path, (before, after), each, power_cut=fault == "power")
            sys.stdout.write(json.dumps(row) + "\n")
            if stepwise and row["told"]:
                break
    finally:
        clear(path, fstab)


if __name__ == "__main__":
    main()
