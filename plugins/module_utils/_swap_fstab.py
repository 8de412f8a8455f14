# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Edits one swap entry of fstab; every other byte of the file stays what it was."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ansible_collections.cpufleet.vllm.plugins.module_utils._host_mounts import unescape

__all__ = ("MARK", "has_entry", "our_swap_paths", "with_entry", "without_entry")

# util-linux and systemd leave options that begin with x- to others: the mark says whose line it is, without root.
MARK = "x-cpufleet.swap"

# Device, mount point, type, options: the options are group 3, with the bytes before them in group 1.
_ENTRY = re.compile(
    r"^(\s*(?P<device>[^\s#]\S*)\s+\S+\s+swap)(?:(\s+)(?P<options>\S+))?(?P<rest>(?:\s.*)?)$", re.DOTALL
)


@dataclass(frozen=True)
class _Entry:
    index: int
    match: re.Match[str]

    @property
    def options(self) -> list[str]:
        return (self.match.group("options") or "defaults").split(",")


def has_entry(text: str, path: str) -> bool:
    """Whether fstab has a swap entry for exactly ``path``."""
    return bool(_entries(text, path))


def our_swap_paths(text: str) -> frozenset[str]:
    """Return the paths whose swap entries carry our mark."""
    return frozenset(unescape(entry.match.group("device")) for entry in _entries(text, None) if MARK in entry.options)


def with_entry(text: str, path: str, priority: int | None = None, take_over: bool = False) -> str:
    """Return fstab with an entry that activates ``path`` at boot.

    An entry that does so already is kept byte for byte, whoever wrote it. One that does not (``noauto``, another
    priority than the one asked for) has its options changed and nothing else; so has one whose file becomes ours
    (``take_over``), for the mark.
    """
    entries = _entries(text, path)
    lines = text.split("\n")
    if not entries:
        options = ",".join(["sw", MARK, *([] if priority is None else [f"pri={priority}"])])
        gap = "" if not text or text.endswith("\n") else "\n"
        return f"{text}{gap}{_escape(path)} none swap {options} 0 0\n"
    first = entries[0]
    wanted = _options(first.options, priority, take_over)
    if wanted != first.options:
        head, space, rest = first.match.group(1), first.match.group(3) or " ", first.match.group("rest")
        lines[first.index] = f"{head}{space}{','.join(wanted)}{rest}"
    return "\n".join(lines)


def without_entry(text: str, path: str) -> str:
    """Return fstab without the swap entries for exactly ``path``."""
    gone = {entry.index for entry in _entries(text, path)}
    return "\n".join(line for index, line in enumerate(text.split("\n")) if index not in gone)


def _entries(text: str, path: str | None) -> list[_Entry]:
    found = []
    for index, line in enumerate(text.split("\n")):
        match = _ENTRY.match(line)
        if match and (path is None or unescape(match.group("device")) == path):
            found.append(_Entry(index, match))
    return found


def _options(options: list[str], priority: int | None, take_over: bool) -> list[str]:
    kept = [option for option in options if option != "noauto"] or ["sw"]
    if priority is not None and f"pri={priority}" not in kept:
        kept = [option for option in kept if not option.startswith("pri=")] + [f"pri={priority}"]
    return [*kept, MARK] if take_over and MARK not in kept else kept


def _escape(path: str) -> str:
    return "".join(f"\\{ord(char):03o}" if char in " \t\n\\" else char for char in path)
