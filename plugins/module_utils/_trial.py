# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""A deployment beside the one that serves: whether memory holds both, and the unit that starts it on a spare port."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError

__all__ = ("Room", "memory_limit", "room", "trial_unit")

MIB = 1 << 20
# What stays free for everything else on the host.
RESERVE = 512 * MIB
# Whom the kernel ends first when that was not enough: the trial, and not what serves.
FIRST_TO_GO = 500


@dataclass(frozen=True)
class Room:
    """Bytes: the limit of the new one, what those that serve may still grow by, and what is available now."""

    need: int
    growth: int
    available: int

    @property
    def fits(self) -> bool:
        """Tell whether both find room; a unit without a limit tells no need, so that nobody knows."""
        return 0 < self.need <= self.available - self.growth - RESERVE

    def text(self) -> str:
        """Say why not."""
        if not self.need:
            return "its unit has no MemoryMax, so nobody knows what it takes"
        wanted = (self.need + self.growth + RESERVE) // MIB
        return f"both together would take {wanted} MiB more, and {self.available // MIB} MiB are available"


def memory_limit(unit: str) -> int:
    """Return the bytes of a unit's MemoryMax, 0 where it has none in bytes."""
    found = re.findall(r"^MemoryMax=(\d+)\s*$", unit, re.MULTILINE)
    return int(found[-1]) if found else 0


def room(unit: str, shown: str, available: int, others: Sequence[str] = ()) -> Room:
    """Return the room for ``unit`` beside the services of which ``systemctl show`` printed ``shown`` and ``others``."""
    return Room(memory_limit(unit), sum(map(growth, (shown, *others))), available)


def growth(shown: str) -> int:
    """Return what the service of which ``systemctl show`` printed ``shown`` may still grow by, 0 where nobody knows."""
    values = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    limit, used = (values.get(name, "") for name in ("MemoryMax", "MemoryCurrent"))
    known = limit.isdigit() and used.isdigit() and int(limit) < 1 << 60 and int(used) < 1 << 60
    return max(0, int(limit) - int(used)) if known else 0


def trial_unit(unit: str, port: int) -> str:
    """Return the unit that starts the same on a spare port of the loopback, once, and never at boot."""
    command = re.compile(r"^(ExecStart=.*?) --port \S+(.*)$", re.MULTILINE)
    if not command.search(unit):
        raise CpufleetError("The unit of the deployment names no port", "Write the deployment again")
    text = command.sub(rf"\1 --port {port}\2", unit)
    text = re.sub(r"^(ExecStart=.*?) --host \S+", r"\1 --host 127.0.0.1", text, flags=re.MULTILINE)
    text = re.sub(r"^Restart=.*$", "Restart=no", text, flags=re.MULTILINE)
    text = re.sub(r"^OOMScoreAdjust=.*$", f"OOMScoreAdjust={FIRST_TO_GO}", text, flags=re.MULTILINE)
    return text.partition("[Install]")[0].rstrip() + "\n"
