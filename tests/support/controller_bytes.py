# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Counts the bytes of files that a play moves between the controller and each host, module payloads apart.

Ansible names each file with -vvv just before it moves it. What it sends may be a temporary file that is gone soon
after, so its size is read as the line comes. What the controller writes on itself goes nowhere and is not counted:
such a file is often gone before its line is read.
"""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SENT = re.compile(r"^<([^>]+)> PUT (.+) TO (.+)$")
FETCHED = re.compile(r"^<([^>]+)> FETCH (.+) TO (.+)$")
PAYLOAD = re.compile(r"/AnsiballZ_\w+\.py$")
CONTROLLER = ("localhost", "127.0.0.1")


@dataclass
class Transfers:
    """What was sent to every host and fetched from it; ``unseen`` was gone before its size was read."""

    sent: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    fetched: dict[str, list[str]] = field(default_factory=dict)
    unseen: list[str] = field(default_factory=list)

    def read(self, line: str) -> None:
        """Count what ``line`` says."""
        sent, fetched = SENT.match(line), FETCHED.match(line)
        if sent and sent[1] in CONTROLLER:
            return
        if sent and not PAYLOAD.search(sent[3]):
            try:
                self.sent.setdefault(sent[1], []).append((sent[2], Path(sent[2]).stat().st_size))
            except FileNotFoundError:
                self.unseen.append(line)
        elif fetched:
            self.fetched.setdefault(fetched[1], []).append(fetched[3])

    def sent_to(self, host: str) -> int:
        """Return how many bytes of files went to ``host``."""
        return sum(size for _name, size in self.sent.get(host, []))

    def fetched_from(self, host: str) -> int:
        """Return how many bytes of files came from ``host``; to be asked while they are where they came to."""
        return sum(Path(name).stat().st_size for name in self.fetched.get(host, []))

    def table(self) -> dict[str, Any]:
        """Return the sums by host, and what could not be counted, for a JSON file."""
        return {"sent": {host: self.sent_to(host) for host in sorted(self.sent)}, "unseen": self.unseen}


class CountedPlay:
    """A play that runs with -vvv, its output going to a file, and its transfers being counted."""

    def __init__(self, command: Sequence[str], log: Path, **options: Any) -> None:
        self.transfers = Transfers()
        self.log = log
        self.process = subprocess.Popen(
            [*command, "-vvv"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            **options,
        )
        self._reader = threading.Thread(target=self._read, args=(self.process.stdout or (),))
        self._reader.start()

    def _read(self, lines: Iterable[str]) -> None:
        with self.log.open("w", encoding="utf-8") as stream:
            for line in lines:
                self.transfers.read(line.rstrip("\n"))
                stream.write(line)
                stream.flush()

    def wait(self) -> int:
        """Return the status of the play when it has ended and all is counted."""
        status = self.process.wait()
        self._reader.join()
        return status
