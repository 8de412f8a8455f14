# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Known fixes and the ISA limit together, as one set of changes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ansible_collections.cpufleet.vllm.plugins.module_utils._edits import (
    FileChange,
    Outcome,
    has_edit,
    plan_present,
    remove,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._edits_fixes import FIXES, applicable_fixes
from ansible_collections.cpufleet.vllm.plugins.module_utils._edits_isa import isa_generation, plan_isa
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ansible_collections.cpufleet.vllm.plugins.module_utils._edits import Reader
    from ansible_collections.cpufleet.vllm.plugins.module_utils._edits_fixes import KnownFix

__all__ = ("plan_source",)


def plan_source(
    reader: Reader, fixes: Sequence[str] | None, isa: Sequence[str] | None, *, wanted: bool = True
) -> tuple[Outcome, list[dict[str, str]]]:
    """Plan the named ``fixes`` (None: all that are needed) and the limit to ``isa`` (None: leave the variants alone).

    Returns the outcome of the whole and one record of name, status and reason for each part.
    """
    names = _names(fixes, isa, wanted)
    needed = {fix.name: fix for fix in applicable_fixes(reader)}
    tree = _Edited(reader)
    parts: list[tuple[str, Outcome]] = []
    for fix, _test in FIXES:
        if fix.name in names:
            parts.append((fix.name, tree.take(_plan_fix(tree.read, fix, fix.name in needed, wanted))))
    if isa is not None or (not wanted and fixes is None):
        parts.append(("isa-limit", tree.take(plan_isa(tree.read, isa or [], wanted=wanted))))
    records = [{"name": name, "status": part.status, "reason": part.reason} for name, part in parts]
    whole = _merge([part for _name, part in parts], records, isa_generation(reader))
    return replace(whole, changes=tree.changes()), records


class _Edited:
    """The tree as the parts planned so far leave it: two parts may edit the same file."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.after: dict[str, bytes] = {}

    def read(self, path: str) -> bytes | None:
        return self.after[path] if path in self.after else self.reader(path)

    def take(self, part: Outcome) -> Outcome:
        self.after.update({change.path: change.after for change in part.changes})
        return part

    def changes(self) -> tuple[FileChange, ...]:
        pairs = ((path, self.reader(path) or b"", after) for path, after in self.after.items())
        return tuple(FileChange(path, before, after) for path, before, after in pairs if before != after)


def _names(fixes: Sequence[str] | None, isa: Sequence[str] | None, wanted: bool) -> set[str]:
    known = [fix.name for fix, _test in FIXES]
    if fixes is None:
        return set() if isa is not None and not wanted else set(known)
    unknown = [name for name in fixes if name not in known]
    if unknown:
        raise CpufleetError(
            f"There is no fix named {unknown[0]}", f"Name one of {', '.join(known)}", fix=unknown[0], known=known
        )
    return set(fixes)


def _plan_fix(reader: Reader, fix: KnownFix, needed: bool, wanted: bool) -> Outcome:
    if not wanted:
        return remove(reader, [(edit.path, edit.name) for edit in fix.edits], "")
    started = any(has_edit(reader(edit.path) or b"", edit.name) for edit in fix.edits)
    if not needed and not started:
        return Outcome("not_needed", f"This tree does not have the fault; {fix.releases} does", "")
    changes = plan_present(reader, fix.edits)
    return Outcome("applied", fix.symptom, "", tuple(dict.fromkeys(edit.path for edit in fix.edits)), changes)


def _merge(parts: Sequence[Outcome], records: Sequence[dict[str, str]], generation: str) -> Outcome:
    """One outcome of several, without its changes."""
    order = ("applied", "removed", "not_needed")
    status = min((part.status for part in parts), key=order.index, default="not_needed")
    told = [f"{record['name']}: {record['reason']}" for record in records if record["status"] == status]
    files = tuple(dict.fromkeys(path for part in parts for path in part.files))
    return Outcome(status, "; ".join(told) or "No edit was asked for", generation, files)
