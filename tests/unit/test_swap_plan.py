# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the swap planner decides, what it refuses, and that any interruption of any plan is survived."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._host_memory import SwapDevice
from ansible_collections.cpufleet.vllm.plugins.module_utils._sizes import MIB
from ansible_collections.cpufleet.vllm.plugins.module_utils._swap_alloc import may_preallocate
from ansible_collections.cpufleet.vllm.plugins.module_utils._swap_plan import (
    Step,
    SwapPlan,
    plan_absent,
    plan_present,
    plan_recovery,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._swap_types import (
    SwapHeader,
    SwapRequest,
    parse_header,
    parse_size,
    unfit_filesystem,
)

from tests.support.swap_machine import GIB, PAGE, TARGET, WORK, KernelSaysNoError, Machine

FIT = "LABEL=root / ext4 defaults 0 1\n/swapfile none swap sw,x-cpufleet.swap 0 0\n"


def asked(size: int | None = 8 * GIB, **more: object) -> SwapRequest:
    return replace(SwapRequest(TARGET, size, auto_total=8 * GIB), **more)  # type: ignore[arg-type]


def words(plan: SwapPlan) -> list[str]:
    names = {TARGET: "file", WORK: "work", "": ""}
    return [f"{step.verb} {names[step.path]} {step.size_bytes // MIB or ''}".strip() for step in plan.steps]


def foreign(size: int = 2 * GIB, used: int | None = None) -> Machine:
    return Machine().put(TARGET, size, label="", used=used)


def ready(size: int = 8 * GIB, used: int = 0) -> Machine:
    return Machine(fstab=FIT).put(TARGET, size, used=used)


def with_file(machine: Machine, **more: object) -> Machine:
    machine.files[TARGET] = replace(machine.files[TARGET], **more)  # type: ignore[arg-type]
    return machine


CREATE = ["probe work", "allocate work 8192", "format work 8192", "rename work", "on file", "fstab"]
GROW = [
    *("allocate work 2048", "format work 2048", "on work"),
    *("off file", "allocate file 8192", "format file 8192", "on file"),
    *("off work", "remove work"),
]

PLANS: dict[str, tuple[Machine, SwapRequest, str, list[str]]] = {
    "nothing there": (Machine(), asked(), "created", CREATE),
    "all is well": (ready(), asked(), "none", []),
    "well, with another's entry": (
        Machine(fstab="/swapfile swap swap defaults 0 0\n").put(TARGET, 8 * GIB, label="", used=0),
        asked(),
        "none",
        [],
    ),
    "grow": (ready(2 * GIB, used=GIB), asked(), "grown", GROW),
    "grow another's": (foreign(used=GIB), asked(), "grown", [*GROW, "fstab"]),
    "shrink": (
        ready(8 * GIB, used=GIB),
        asked(2 * GIB),
        "shrunk",
        [
            *("allocate work 2048", "format work 2048", "on work"),
            *("off file", "format file 2048", "allocate file 2048", "on file", "off work", "remove work"),
        ],
    ),
    "grow without room for a bridge": (
        replace(ready(2 * GIB), disk=9 * GIB),
        asked(),
        "grown",
        ["off file", "allocate file 8192", "format file 8192", "on file"],
    ),
    "entry missing": (Machine().put(TARGET, 8 * GIB, used=0), asked(), "adopted", ["fstab"]),
    "no entry wanted": (Machine().put(TARGET, 8 * GIB, used=0), asked(fstab=False), "none", []),
    "not active, another's": (foreign(8 * GIB), asked(), "adopted", ["format file 8192", "on file", "fstab"]),
    "not active, ours": (replace(ready(), swaps={}), asked(), "finished", ["on file"]),
    "not active, other size": (
        foreign(),
        asked(),
        "grown",
        ["allocate file 8192", "format file 8192", "on file", "fstab"],
    ),
    "readable by all": (with_file(ready(), mode=0o644), asked(), "adopted", ["chmod file"]),
    "of another user": (with_file(ready(), owner=1000), asked(), "adopted", ["chmod file"]),
    "with holes": (with_file(replace(ready(), swaps={}), allocated_bytes=GIB), asked(), "replaced", CREATE[:-1]),
    "zeros, never formatted": (
        with_file(Machine().put(TARGET, GIB, label=None), blank=True),
        asked(),
        "replaced",
        CREATE,
    ),
    "half-written work file": (
        Machine().put(WORK, GIB, label=None),
        asked(),
        "finished",
        [step for step in CREATE if not step.startswith("probe")],
    ),
    "leftover beside a good file": (ready().put(WORK, GIB), asked(), "finished", ["remove work"]),
    "bridge left active": (ready().put(WORK, GIB, used=0), asked(), "finished", ["off work", "remove work"]),
    "killed with only the bridge active": (
        replace(ready(2 * GIB), swaps={}).put(WORK, 2 * GIB, used=GIB),
        asked(),
        "finished",
        ["allocate file 8192", "format file 8192", "on file", "off work", "remove work"],
    ),
    "killed with both active": (
        ready(2 * GIB, used=0).put(WORK, 2 * GIB, used=GIB),
        asked(),
        "grown",
        GROW[3:],
    ),
    "killed while formatting": (
        with_file(replace(ready(), swaps={}), header=None).put(WORK, 2 * GIB, used=0),
        asked(),
        "finished",
        ["format file 8192", "on file", "off work", "remove work"],
    ),
    "priority": (ready(), asked(priority=5), "adopted", ["off file", "on file", "fstab"]),
    "ready for the next boot only": (
        Machine(),
        asked(activate=False),
        "created",
        ["allocate work 8192", "format work 8192", "rename work", "fstab"],
    ),
    "ready already": (replace(ready(), swaps={}), asked(activate=False), "none", []),
    "nothing wanted": (ready(2 * GIB), asked(0), "none", []),
    "auto": (
        Machine(),
        asked(None),
        "created",
        [step.replace("8192", "4096") for step in CREATE],
    ),
    "auto never shrinks": (ready(), asked(None), "none", []),
    "auto with enough RAM": (Machine(memory_total=16 * GIB), asked(None), "none", []),
    "overlay, as a wish": (Machine(filesystem="overlay"), asked(skip_unfit=True), "skipped", []),
}


@pytest.mark.parametrize("name", PLANS)
def test_plan(name: str) -> None:
    machine, request, action, steps = PLANS[name]
    plan = plan_present(request, machine.state())
    assert (plan.action, words(plan)) == (action, steps)
    assert plan.reason
    assert plan.changed == bool(steps)


def test_auto_counts_disk_swap_and_not_zram() -> None:
    machine = Machine()
    machine.swaps["/dev/zram0"] = SwapDevice("/dev/zram0", "zram", 2 * GIB, 0, 100)
    machine.swaps["/dev/vda2"] = SwapDevice("/dev/vda2", "partition", 1 * GIB, 0, -2)
    plan = plan_present(asked(None), machine.state())
    assert plan.size_bytes == 3 * GIB
    assert plan.reason == (
        "/swapfile was created with 3.0 GiB: RAM 4.0 GiB and other disk swap 1.0 GiB against 8.0 GiB wanted"
    )


REFUSALS: dict[str, tuple[Machine, SwapRequest, str]] = {
    "overlay": (
        Machine(filesystem="overlay"),
        asked(),
        "Cannot put a swap file at /swapfile: the kernel cannot map files on overlay to disk blocks. "
        "Choose a path on a local disk with ext4, xfs or btrfs, or ask for no swap.",
    ),
    "other data": (
        Machine().put(TARGET, GIB, label=None),
        asked(),
        "Cannot make /swapfile a swap file: it holds other data than swap. Choose another path, or move it away.",
    ),
    "no file": (
        with_file(Machine().put(TARGET, 0, label=None), regular=False),
        asked(),
        "Cannot make /swapfile a swap file: it is not a regular file. Choose another path, or move it away.",
    ),
    "hibernated": (
        with_file(Machine().put(TARGET, GIB), header=SwapHeader(GIB, "", hibernated=True)),
        asked(),
        "Cannot make /swapfile a swap file: it holds a hibernated system. Choose another path, or move it away.",
    ),
    "disk too small": (
        Machine(disk=8 * GIB),
        asked(),
        "Cannot make /swapfile 8.0 GiB large: that takes 8.2 GiB on its filesystem, a reserve of 256 MiB included, and "
        "8.0 GiB is free. Free disk space, ask for less swap, or choose a path on another disk.",
    ),
    "too small for the bridge, memory full": (
        replace(ready(2 * GIB, used=GIB), disk=9 * GIB, memory_available=GIB),
        asked(),
        "Cannot make /swapfile 8.0 GiB large: that takes 8.2 GiB on its filesystem, a reserve of 256 MiB included, and "
        "7.0 GiB is free. Free disk space, ask for less swap, or choose a path on another disk.",
    ),
    "shrink below what is in use": (
        replace(ready(8 * GIB, used=4 * GIB), memory_available=GIB),
        asked(2 * GIB),
        "Cannot shrink /swapfile: 4.0 GiB of it is in use, and RAM and other swap have room for 3.0 GiB. "
        "Stop what uses the memory, then run again.",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusal(name: str) -> None:
    machine, request, text = REFUSALS[name]
    with pytest.raises(CpufleetError) as caught:
        plan_present(request, machine.state())
    assert str(caught.value) == text
    assert caught.value.details["path"] == TARGET


def test_absent_removes_ours_and_its_entry() -> None:
    plan = plan_absent(asked(), ready().state())
    assert (plan.action, words(plan)) == ("removed", ["off file", "remove file", "fstab"])
    assert (plan.previous_bytes, plan.size_bytes) == (8 * GIB, 0)
    assert plan.fstab == "LABEL=root / ext4 defaults 0 1\n"


def test_absent_removes_what_an_interrupted_run_left() -> None:
    plan = plan_absent(asked(), Machine().put(WORK, GIB, label=None).state())
    assert words(plan) == ["remove work"]


def test_absent_leaves_another_ones_file_alone() -> None:
    plan = plan_absent(asked(), foreign(used=0).state())
    assert (plan.action, plan.steps) == ("none", ())
    assert plan.reason == ("/swapfile was not made by this module and is left alone; remove it by hand if you mean to")


def test_absent_again_changes_nothing() -> None:
    assert not plan_absent(asked(), Machine().state()).changed


def test_absent_refuses_while_memory_has_no_room() -> None:
    machine = replace(ready(used=4 * GIB), memory_available=GIB)
    with pytest.raises(CpufleetError) as caught:
        plan_absent(asked(), machine.state())
    assert str(caught.value) == (
        "Cannot remove /swapfile: 4.0 GiB of it is in use, and RAM and other swap have room for 1.0 GiB. "
        "Stop what uses the memory, then run again."
    )


# --- interruptions: every plan, cut at every step, on a machine that forbids what Linux forbids ----------------------

JOURNEYS: dict[str, tuple[Callable[[], Machine], SwapRequest]] = {
    "create": (Machine, asked()),
    "grow": (lambda: ready(2 * GIB, used=GIB), asked()),
    "grow with full memory": (lambda: replace(ready(2 * GIB, used=2 * GIB - PAGE), memory_available=0), asked()),
    "grow another's": (lambda: foreign(used=GIB), asked()),
    "shrink": (lambda: ready(8 * GIB, used=GIB), asked(2 * GIB)),
    "shrink with full memory": (lambda: replace(ready(8 * GIB, used=GIB), memory_available=0), asked(2 * GIB)),
    "adopt": (lambda: foreign(8 * GIB), asked()),
    "resize inactive": (foreign, asked()),
    "shrink inactive": (lambda: foreign(8 * GIB), asked(2 * GIB)),
    "replace": (lambda: with_file(Machine().put(TARGET, GIB, label=None), blank=True), asked()),
    "priority": (ready, asked(priority=5)),
    "remove": (lambda: ready(used=GIB), asked(0)),
}


def plan_of(request: SwapRequest, machine: Machine) -> SwapPlan:
    """Plan; a request for 0 stands for absent here."""
    state = machine.state()
    return plan_absent(request, state) if request.size_bytes == 0 else plan_present(request, state)


def run(machine: Machine, plan: SwapPlan, steps: int | None = None) -> None:
    for step in plan.steps[:steps]:
        machine.run(step, plan)


def assert_done(machine: Machine, request: SwapRequest) -> None:
    assert WORK not in machine.files
    assert machine.active() == request.size_bytes
    assert (f"{TARGET} none swap" in machine.fstab) == bool(request.size_bytes)
    repriority = request.priority is not None
    assert repriority or not plan_of(request, machine).changed


@pytest.mark.parametrize("name", JOURNEYS)
def test_killed_at_any_step_the_next_run_converges_and_swap_is_never_lower(name: str) -> None:
    make, request = JOURNEYS[name]
    before, total = make().active(), len(plan_of(request, make()).steps)
    floor = 0 if name in {"priority", "remove"} else min(before, request.size_bytes or 0)
    for cut in range(total + 1):
        machine = make()
        in_use = machine.used()
        run(machine, plan_of(request, machine), cut)
        run(machine, plan_of(request, machine))
        assert_done(machine, request)
        assert machine.lowest_swap >= floor, f"killed before step {cut}"
        assert machine.used() <= in_use


@pytest.mark.parametrize("name", [name for name in JOURNEYS if name != "remove"])
def test_power_cut_at_any_step_boots_with_what_there_was_and_converges(name: str) -> None:
    make, request = JOURNEYS[name]
    started = make()
    booted = min(started.active(), request.size_bytes or 0) if f"{TARGET} none" in started.fstab else 0
    for cut in range(len(plan_of(request, started).steps) + 1):
        machine = make()
        run(machine, plan_of(request, machine), cut)
        machine.power_cut()
        assert machine.active() >= booted, f"cut before step {cut}"
        run(machine, plan_of(request, machine))
        assert_done(machine, request)


@pytest.mark.parametrize("name", [name for name in JOURNEYS if name not in {"remove", "priority", "replace"}])
def test_failure_at_any_step_is_undone(name: str) -> None:
    make, request = JOURNEYS[name]
    steps = plan_of(request, make()).steps
    # Once the file is active in its new size there is nothing to bring back: only the bridge is still to go.
    last = max(index for index, step in enumerate(steps) if step == Step("on", TARGET))
    for cut, failing in enumerate(steps[: last + 1]):
        machine = make()
        before, active = machine.state(), machine.active()
        plan = plan_of(request, machine)
        run(machine, plan, cut)
        for step in plan_recovery(before, machine.state()):
            machine.run(step, plan)
        assert machine.active() == active, f"{failing} failed"
        assert WORK not in machine.files
        assert (TARGET in machine.files) == before.target.exists
        assert machine.state().target.size_bytes == before.target.size_bytes


def test_killed_and_then_failing_keeps_the_bridge_that_holds_what_is_in_use() -> None:
    machine = ready(2 * GIB, used=GIB)
    run(machine, plan_of(asked(), machine), 4)
    before = machine.state()
    assert (before.target.active, before.work.active is not None) == (None, True)
    recovery = plan_recovery(before, before)
    assert recovery == ()
    assert machine.active() == 2 * GIB


def test_the_machine_forbids_what_linux_forbids() -> None:
    machine = ready()
    plan = plan_absent(asked(), machine.state())
    with pytest.raises(KernelSaysNoError):
        machine.run(plan.steps[1], plan)


# --- words -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ("8G", 8 * GIB),
        ("8g", 8 * GIB),
        ("8GiB", 8 * GIB),
        ("8 GB", 8 * GIB),
        ("8192M", 8 * GIB),
        ("8192", 8 * GIB),
        ("8388608K", 8 * GIB),
        ("8589934592B", 8 * GIB),
        ("8589934591B", 8 * GIB),
        ("1.5G", 1536 * MIB),
        ("0", 0),
        (" 64 ", 64 * MIB),
    ],
)
def test_sizes(value: str, size: int) -> None:
    assert parse_size(value) == size


@pytest.mark.parametrize("value", ["", "auto", "-1", "8X", "8GG", "G", "True", "8 gigs", "1e3"])
def test_sizes_that_are_none(value: str) -> None:
    with pytest.raises(CpufleetError) as caught:
        parse_size(value)
    assert str(caught.value) == (
        f"Cannot read {value!r} as the size of a swap file. "
        "Write a number of MiB, or a number with B, K, M, G or T, such as 8G."
    )


def test_bytes_taken_for_mebibytes_are_refused() -> None:
    with pytest.raises(CpufleetError) as caught:
        parse_size("8589934592")
    assert str(caught.value) == (
        "The size '8589934592' is 8388608.0 GiB, more than a swap file can have. "
        "Plain numbers are MiB, not bytes: write 8192 or 8G for 8 GiB."
    )


def header(page: int, signature: bytes, last_page: int, label: bytes) -> bytes:
    body = bytes(1024) + struct.pack("<III16s16s", 1, last_page, 0, b"u" * 16, label)
    return body.ljust(page - 10, b"\0") + signature + bytes(65536 - page)


@pytest.mark.parametrize("page", [4096, 16384, 65536])
def test_header_of_every_page_size(page: int) -> None:
    found = parse_header(header(page, b"SWAPSPACE2", 8 * GIB // page - 1, b"cpufleet"))
    assert found == SwapHeader(8 * GIB, "cpufleet")


def test_headers_that_are_special() -> None:
    hibernated = parse_header(header(4096, b"S1SUSPEND\0", 9, b""))
    assert hibernated is not None
    assert hibernated.hibernated
    assert parse_header(bytes(65536)) is None
    assert parse_header(b"") is None


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("ext4", ""),
        ("xfs", ""),
        ("btrfs", ""),
        ("f2fs", ""),
        ("tmpfs", "tmpfs keeps its files in memory itself"),
        ("nfs4", "nfs4 is a network filesystem, which needs memory to write"),
        ("9p", "9p is a network filesystem, which needs memory to write"),
        ("zfs", "the kernel cannot map files on zfs to disk blocks"),
        ("fuse.ossfs", "fuse.ossfs is a network filesystem, which needs memory to write"),
        ("fuseblk", "fuseblk is served by a process, which needs memory to write"),
        ("squashfs", "squashfs is mounted read-only here"),
    ],
)
def test_filesystems(kind: str, text: str) -> None:
    assert unfit_filesystem(kind) == text


def test_read_only_mount() -> None:
    assert unfit_filesystem("ext4", read_only=True) == "ext4 is mounted read-only here"


@pytest.mark.parametrize(
    ("kind", "kernel", "answer"),
    [
        ("ext4", "6.1.0-18-amd64", True),
        ("ext4", "5.7.2", False),
        ("ext4", "3.10.0-1160.el7", True),
        ("xfs", "4.18.0-553.el8", True),
        ("xfs", "3.10.0-1160.el7", False),
        ("btrfs", "6.12.0", False),
        ("ext3", "6.1.0", False),
        ("xfs", "odd", False),
    ],
)
def test_preallocation_only_where_it_makes_no_holes(kind: str, kernel: str, answer: bool) -> None:
    assert may_preallocate(kind, kernel) is answer
