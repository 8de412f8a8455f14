# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host that the doctor is run on, from outside: every visit is timed and proven to have changed nothing."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

DOCTOR = "/usr/local/bin/cpufleet-doctor"
MARK = "/run/doctor-mark"
LIMIT_S = 20
STATUS = {"OK": 0, "DEAD": 10, "HUNG": 11, "SWAPPING": 12, "OVERLOADED": 13, "SLOW": 14, "MISCONFIGURED": 15}
# What a host writes by itself.
WRITES_ITSELF = (
    r"-path /proc -o -path /sys -o -path /run -o -path /dev -o -path /var/log -o -path /srv"
    r" -o -path '/tmp/systemd-private-*' -o -path '/var/lib/vllm'"
)
UNIT_STATE = "systemctl show {unit} --property=MainPID,ActiveState,NRestarts,ActiveEnterTimestamp 2>/dev/null"


@dataclass
class Said:
    """What the doctor said."""

    verdict: str
    line: str
    causes: list[dict[str, Any]]
    facts: dict[str, Any]
    seconds: float
    text: str

    @property
    def codes(self) -> list[str]:
        """Return the codes of all causes, the one that decides first."""
        return [cause["code"] for cause in self.causes]

    def cause(self, code: str) -> dict[str, Any]:
        """Return the cause with a code."""
        return next(cause for cause in self.causes if cause["code"] == code)


class DoctorHost:
    """Runs commands on a host by ``execute``, which takes a line for a shell and returns status and output."""

    def __init__(self, execute: Callable[[str], tuple[int, str]], unit: str = "vllm.service") -> None:
        self.execute = execute
        self.unit = unit

    def sh(self, command: str) -> str:
        """Run a command that has to succeed; return what it prints."""
        status, output = self.execute(command)
        assert status == 0, f"{command}: status {status}: {output}"
        return output.strip()

    def try_sh(self, command: str) -> str:
        """Run a command that may fail; return what it prints."""
        return self.execute(command)[1].strip()

    def until(self, command: str, seconds: float = 30) -> None:
        """Wait until a command succeeds."""
        deadline = time.monotonic() + seconds
        while self.execute(command)[0] != 0:
            assert time.monotonic() < deadline, f"not within {seconds} s: {command}"
            time.sleep(0.3)

    def doctor(self, arguments: str = "", steady: bool = True) -> Said:
        """Ask the doctor; fail where it takes too long or changes something; a ``steady`` service stays as it is."""
        before = self.try_sh(UNIT_STATE.format(unit=self.unit))
        self.sh(f"touch {MARK}; sleep 0.02")
        started = time.monotonic()
        status, output = self.execute(f"{DOCTOR} --json {arguments}")
        seconds = time.monotonic() - started
        document = json.loads(output)
        changed = self.sh(f"find / -xdev \\( {WRITES_ITSELF} \\) -prune -o -type f -newer {MARK} -print")
        assert changed == "", f"the doctor changed {changed}"
        assert not steady or self.try_sh(UNIT_STATE.format(unit=self.unit)) == before
        assert seconds < LIMIT_S, document["line"]
        assert status == STATUS[document["verdict"]]
        assert document["line"].split()[0].rstrip(":") == document["verdict"]
        return Said(document["verdict"], document["line"], document["causes"], document["facts"], seconds, output)

    def engine(self) -> int:
        """Return the process of the engine: the server's child that computes."""
        server = self.sh(f"systemctl show {self.unit} --property=MainPID --value")
        found = self.sh(f"pgrep -P {server} -f 'spawn_main|VLLM::EngineCore'")
        return int(found.split()[0])

    def main_pid(self) -> int:
        """Return the process of the server."""
        return int(self.sh(f"systemctl show {self.unit} --property=MainPID --value"))


def in_container(name: str) -> Callable[[str], tuple[int, str]]:
    """Return ``execute`` for a container."""

    def execute(command: str) -> tuple[int, str]:
        words = ["docker", "exec", name, "sh", "-c", command]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
        return done.returncode, done.stdout if done.returncode == 0 or done.stdout else done.stderr

    return execute


def by_testinfra(host: Any) -> Callable[[str], tuple[int, str]]:
    """Return ``execute`` for a host of testinfra."""

    def execute(command: str) -> tuple[int, str]:
        done = host.run("sh -c %s", command)
        return done.rc, done.stdout if done.rc == 0 or done.stdout else done.stderr

    return execute
