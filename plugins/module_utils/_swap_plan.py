# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Decides the steps from the swap file that is there to the one that is asked for.

Linux forbids to rename, unlink or write a swap file while it is active. So a file in use is resized in three moves: a
bridge as large as the file is made next to it and activated; the file itself is taken out, resized and put back; the
bridge is removed. There is no moment with less swap than before. The file keeps its old header, which stays valid for
the old size, until the new one is written: after a kill or a power cut at any point a boot activates at least what
there was, and the next run goes on from what it finds.
"""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._sizes import MIB, human
from ansible_collections.cpufleet.vllm.plugins.module_utils._swap_fstab import (
    our_swap_paths,
    with_entry,
    without_entry,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._swap_types import (
    FileState,
    SwapRequest,
    SwapState,
    round_up,
    unfit_filesystem,
)

__all__ = ("Step", "SwapPlan", "plan_absent", "plan_present", "plan_recovery", "wanted_size")

RESERVE = 256 * MIB  # left free on the filesystem: a full root breaks more than missing swap
HEADROOM = 64 * MIB  # RAM that must stay free after swap contents moved into it
AUTO_STEP = 256 * MIB


@dataclass(frozen=True)
class Step:
    """``verb``: probe, allocate, format, on, off, rename (to the target), remove, chmod or fstab."""

    verb: str
    path: str = ""
    size_bytes: int = 0


@dataclass(frozen=True)
class SwapPlan:
    """``steps`` in order; ``fstab`` is the whole new text; ``size_bytes`` what there will be."""

    action: str
    reason: str
    steps: tuple[Step, ...]
    previous_bytes: int
    size_bytes: int
    fstab: str

    @property
    def changed(self) -> bool:
        return bool(self.steps)


def wanted_size(request: SwapRequest, state: SwapState) -> tuple[int, str]:
    """Return the bytes to have and why. Auto never shrinks a file that is there."""
    if request.size_bytes is not None:
        return request.size_bytes, f"{human(request.size_bytes)} was asked for"
    own = {request.path, state.work.path}
    others = sum(one.size_bytes for one in state.swaps if one.kind != "zram" and one.path not in own)
    lacking = max(0, request.auto_total - state.memory_total - others)
    have = state.target.swap_bytes if state.target.exists else 0
    why = (
        f"RAM {human(state.memory_total)} and other disk swap {human(others)} "
        f"against {human(request.auto_total)} wanted"
    )
    return max(round_up(lacking, AUTO_STEP), have), why


def plan_present(request: SwapRequest, state: SwapState) -> SwapPlan:
    """Plan to have the file, active and in fstab. Raises CpufleetError for what cannot or must not be done."""
    target = state.target
    size, why = wanted_size(request, state)
    if size == 0:
        return _leave(state, "none", f"No swap file is needed: {why}")
    _refuse_foreign(target, work_is_ours=state.work.is_ours)
    _refuse_foreign(state.work, work_is_ours=True)
    unfit = unfit_filesystem(state.filesystem, state.read_only)
    if unfit and not target.active:
        return _unfit(request, state, unfit)
    steps, action, reason = _file_steps(request, state, size)
    if reason and request.size_bytes is None:
        reason = f"{reason}: {why}"
    if target.exists and not target.is_private and not any(step.verb == "rename" for step in steps):
        steps = [Step("chmod", target.path), *steps]
        action, reason = _first(action, reason, f"its mode was {target.mode:04o}, of user {target.owner}")
    fstab = with_entry(state.fstab, target.path, request.priority, bool(steps)) if request.fstab else state.fstab
    if fstab != state.fstab:
        steps = [*steps, Step("fstab")]
        action, reason = _first(action, reason, "its entry in fstab was missing or incomplete")
    _refuse_small_disk(state, steps, size)
    reason = reason or f"{target.path} has {human(size)} and is in order"
    return SwapPlan(action, reason, tuple(steps), _previous(target), size, fstab)


def plan_absent(request: SwapRequest, state: SwapState) -> SwapPlan:
    """Plan to have neither file nor fstab entry; a swap file that is not ours is left alone."""
    target, work = state.target, state.work
    marked = target.path in our_swap_paths(state.fstab)
    labelled = target.is_ours
    if target.exists and not (marked or labelled):
        reason = f"{target.path} was not made by this module and is left alone; remove it by hand if you mean to"
        return _leave(state, "none", reason)
    leaving = [one for one in (target, work) if one.active]
    _refuse_full_memory(state, leaving, "remove", 0)
    steps = [step for one in (target, work) if one.exists for step in _drop(one)]
    fstab = without_entry(state.fstab, target.path) if request.fstab and (marked or labelled) else state.fstab
    if fstab != state.fstab:
        steps.append(Step("fstab"))
    action, reason = ("removed", f"{target.path} was removed") if steps else ("none", f"{target.path} is absent")
    return SwapPlan(action, reason, tuple(steps), _previous(target), 0, fstab)


def plan_recovery(before: SwapState, now: SwapState) -> tuple[Step, ...]:
    """Return the steps from wherever a failed run stopped back to what there was before it."""
    old, target, work = before.target, now.target, now.work
    steps: list[Step] = []
    if old.exists and not target.active:
        size = old.swap_bytes if old.active else old.size_bytes
        if target.size_bytes != size:
            steps.append(Step("allocate", target.path, size))
        if old.swap_bytes and target.swap_bytes != old.swap_bytes:
            steps.append(Step("format", target.path, size))
        if old.active:
            steps.append(Step("on", target.path))
    if not old.exists and target.exists:
        steps += _drop(target)
    restored = bool(target.active or old.active)
    if work.exists and not (before.work.active and not restored):
        steps += _drop(work)
    return tuple(steps)


def _file_steps(request: SwapRequest, state: SwapState, size: int) -> tuple[list[Step], str, str]:
    """Return (steps, action, reason) for the file itself; fstab and mode come later."""
    target, work = state.target, state.work
    if target.active:
        return _active_steps(request, state, size)
    # No header beside a work file of ours: an earlier run was killed while it wrote the header.
    if target.exists and (target.header or (work.is_ours and not target.blank)) and not target.has_holes:
        steps = _inactive_steps(request, target, size)
        over = list(_drop(work)) if work.exists else []
        action, reason = _name_inactive(request, target, size, bool(over))
        return [*steps, *over], action if steps or over else "none", reason if steps or over else ""
    action, reason = "created", f"{target.path} was created with {human(size)}"
    if target.exists:
        what = "it has holes" if target.has_holes else "it is not formatted"
        action, reason = "replaced", f"{target.path} was replaced, since {what}"
    elif work.exists:
        action, reason = "finished", f"The allocation of {target.path}, begun by an interrupted run, was finished"
    probe = [] if work.exists or not request.activate else [Step("probe", work.path)]
    steps = [Step("off", work.path)] if work.active else []
    steps += [*probe, Step("allocate", work.path, size), Step("format", work.path, size)]
    steps += [Step("rename", work.path), *_on(request, target.path)]
    return steps, action, reason


def _inactive_steps(request: SwapRequest, target: FileState, size: int) -> list[Step]:
    """Put an inactive, formatted file in order where it is: there is no swap to lose."""
    whole = target.is_whole(size)
    # A file of ours that is whole only waits to be switched on; a foreign one gets our label while it can.
    steps = [] if whole and (target.is_ours or not request.activate) else _resize(target, size)
    return [*steps, *_on(request, target.path)]


def _resize(target: FileState, size: int) -> list[Step]:
    """Keep header and file so that the header never covers more than there is: a boot in between must succeed."""
    allocate, format_ = Step("allocate", target.path, size), Step("format", target.path, size)
    if target.size_bytes == size:
        return [format_]
    return [allocate, format_] if target.size_bytes < size else [format_, allocate]


def _name_inactive(request: SwapRequest, target: FileState, size: int, leftover: bool) -> tuple[str, str]:
    if leftover or (target.is_ours and target.is_whole(size)):
        return "finished", f"{target.path}, left behind by an interrupted run, was finished"
    if target.is_whole(size):
        return "adopted", f"{target.path} was there, of the right size, but not active"
    action = "grown" if target.size_bytes < size else "shrunk"
    return action, f"{target.path} went from {human(target.size_bytes)} to {human(size)}"


def _active_steps(request: SwapRequest, state: SwapState, size: int) -> tuple[list[Step], str, str]:
    target, work = state.target, state.work
    resize = not target.is_whole(size)
    repriority = request.priority is not None and target.active is not None
    repriority = repriority and target.active.priority != request.priority  # type: ignore[union-attr]
    if not resize and not repriority:
        if work.exists:
            return list(_drop(work)), "finished", f"What an interrupted run left next to {target.path} was removed"
        return [], "none", ""
    leaving = [one for one in (target, work) if one.active]
    _refuse_full_memory(state, leaving, "shrink", size)
    core = [Step("off", target.path)]
    if resize:
        core += _resize(target, size)
    core.append(Step("on", target.path))
    bridge = min(target.swap_bytes, size)
    steps = core if _may_go_without(state, bridge, size, resize) else _bridged(state, core, bridge)
    action, reason = "adopted", f"{target.path} was given priority {request.priority}"
    if resize:
        action = "grown" if target.swap_bytes < size else "shrunk"
        reason = f"{target.path} went from {human(target.swap_bytes)} to {human(size)}"
    if target.swap_bytes == size and resize:
        action, reason = "finished", f"The resizing of {target.path}, begun by an interrupted run, was finished"
    return steps, action, reason


def _bridged(state: SwapState, core: list[Step], size: int) -> list[Step]:
    work = state.work
    before: list[Step] = []
    if not (work.active and work.swap_bytes >= size):
        before = [Step("off", work.path)] if work.active else []
        before += [Step("allocate", work.path, size), Step("format", work.path, size), Step("on", work.path)]
    return [*before, *core, Step("off", work.path), Step("remove", work.path)]


def _may_go_without(state: SwapState, bridge: int, size: int, resize: bool) -> bool:
    """Whether the bridge can be left out: RAM holds what is in use, and the gap is short or the disk has no room."""
    if state.work.exists or not _memory_holds(state, _used([state.target]), excluding=[state.target]):
        return False
    growth = max(0, size - state.target.size_bytes)
    return not resize or state.free_bytes < bridge + growth + RESERVE


def _drop(file: FileState) -> tuple[Step, ...]:
    off = (Step("off", file.path),) if file.active else ()
    return (*off, Step("remove", file.path))


def _on(request: SwapRequest, path: str) -> list[Step]:
    return [Step("on", path)] if request.activate else []


def _previous(target: FileState) -> int:
    return target.swap_bytes or (target.size_bytes if target.exists else 0)


def _first(action: str, reason: str, otherwise: str) -> tuple[str, str]:
    return ("adopted", otherwise[0].upper() + otherwise[1:]) if action == "none" else (action, reason)


def _leave(state: SwapState, action: str, reason: str) -> SwapPlan:
    have = _previous(state.target)
    return SwapPlan(action, reason, (), have, have, state.fstab)


def _unfit(request: SwapRequest, state: SwapState, why: str) -> SwapPlan:
    """Refuse a filesystem: a failure, or a skip where swap there is only a wish."""
    problem = f"Cannot put a swap file at {request.path}: {why}"
    if request.skip_unfit:
        return _leave(state, "skipped", problem)
    raise CpufleetError(
        problem,
        "Choose a path on a local disk with ext4, xfs or btrfs, or ask for no swap",
        path=request.path,
        filesystem=state.filesystem,
    )


def _refuse_foreign(target: FileState, work_is_ours: bool) -> None:
    problem = ""
    if target.exists and not target.regular:
        problem = "it is not a regular file"
    elif target.header and target.header.hibernated:
        problem = "it holds a hibernated system"
    elif target.exists and target.header is None and not (target.active or target.blank or work_is_ours):
        problem = "it holds other data than swap"
    if problem:
        raise CpufleetError(
            f"Cannot make {target.path} a swap file: {problem}",
            "Choose another path, or move it away",
            path=target.path,
        )


def _used(files: list[FileState]) -> int:
    return sum(one.active.used_bytes for one in files if one.active)


def _memory_holds(state: SwapState, used: int, excluding: list[FileState]) -> bool:
    if used == 0:
        return True
    return used + HEADROOM <= state.memory_available + _other_free(state, excluding)


def _other_free(state: SwapState, excluding: list[FileState]) -> int:
    paths = {one.path for one in excluding}
    others = (one for one in state.swaps if one.path not in paths and one.kind != "zram")
    return sum(one.size_bytes - one.used_bytes for one in others)


def _refuse_full_memory(state: SwapState, leaving: list[FileState], verb: str, staying: int) -> None:
    """Refuse to take swap away whose contents fit nowhere; ``staying`` is the swap that takes its place."""
    used = _used(leaving)
    if used <= staying or _memory_holds(state, used - staying, leaving):
        return
    room = state.memory_available + _other_free(state, leaving) + staying
    raise CpufleetError(
        f"Cannot {verb} {state.target.path}: {human(used)} of it is in use, and RAM and other swap "
        f"have room for {human(room)}",
        "Stop what uses the memory, then run again",
        path=state.target.path,
        used_bytes=used,
        room_bytes=room,
    )


def _refuse_small_disk(state: SwapState, steps: list[Step], size: int) -> None:
    sizes = {state.target.path: state.target, state.work.path: state.work}
    needed = sum(
        max(0, step.size_bytes - sizes[step.path].allocated_bytes) for step in steps if step.verb == "allocate"
    )
    if needed == 0 or needed + RESERVE <= state.free_bytes:
        return
    raise CpufleetError(
        f"Cannot make {state.target.path} {human(size)} large: that takes {human(needed + RESERVE)} "
        f"on its filesystem, a reserve of {human(RESERVE)} included, and {human(state.free_bytes)} is free",
        "Free disk space, ask for less swap, or choose a path on another disk",
        path=state.target.path,
        needed_bytes=needed + RESERVE,
        free_bytes=state.free_bytes,
    )
