# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""What systemd says of a unit, and whether waiting for it still makes sense."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ("PROPERTIES", "UnitState", "hopeless", "journal_command", "parse_unit", "show_command")

PROPERTIES = ("LoadState", "ActiveState", "SubState", "Result", "NRestarts", "InvocationID")
JOURNAL_LINES = "5000"
RESTARTS = 2


@dataclass(frozen=True)
class UnitState:
    """A unit as ``systemctl show`` tells it."""

    load: str
    active: str
    sub: str
    result: str
    restarts: int
    invocation: str


def show_command(unit: str) -> list[str]:
    """Return the command that prints the properties of ``unit``."""
    return ["systemctl", "show", unit, *(f"--property={name}" for name in PROPERTIES)]


def journal_command(unit: str, invocation: str) -> list[str]:
    """Return the command that prints the journal of ``unit``: of one start, or (without an id) the newest lines.

    systemd's own lines about a start carry its id in another field than the service's own.
    """
    command = ["journalctl", "--no-pager", "--quiet", "--output=cat", f"--lines={JOURNAL_LINES}"]
    if invocation:
        return [*command, f"_SYSTEMD_INVOCATION_ID={invocation}", "+", f"INVOCATION_ID={invocation}"]
    return [*command, f"--unit={unit}", "--boot"]


def parse_unit(text: str) -> UnitState:
    """Return the state that ``systemctl show`` printed; what an old systemd does not print is empty."""
    values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    restarts = values.get("NRestarts", "")
    return UnitState(
        values.get("LoadState", ""),
        values.get("ActiveState", ""),
        values.get("SubState", ""),
        values.get("Result", ""),
        int(restarts) if restarts.isdigit() else 0,
        values.get("InvocationID", ""),
    )


def hopeless(first: UnitState, now: UnitState) -> str:
    """Return why waiting makes no sense any more, or an empty string; ``first`` is the state when waiting began."""
    if now.load in ("not-found", "bad-setting", "masked"):
        return f"systemd has no usable unit of that name ({now.load})"
    if now.active == "failed":
        return f"it has failed ({now.result})"
    if now.active == "inactive":
        return "it is stopped"
    if now.restarts - first.restarts >= RESTARTS:
        return f"systemd restarted it {now.restarts - first.restarts} times while it was waited for"
    return ""
