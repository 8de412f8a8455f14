# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Who listens where: /proc/net/tcp and tcp6 in, ports out; and what a process's cgroup says about its unit."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

__all__ = ("Listener", "parse_listeners", "unit_of_cgroup")

_LISTEN = "0A"
_INODE_FIELD = 9


@dataclass(frozen=True)
class Listener:
    """A TCP socket in state LISTEN; ``inode`` leads to the process that holds it."""

    port: int
    address: str
    inode: int


def parse_listeners(text: str) -> tuple[Listener, ...]:
    """Read /proc/net/tcp or tcp6; addresses are the kernel's native-endian words, here little-endian."""
    listeners = []
    for line in text.splitlines():
        words = line.split()
        if len(words) <= _INODE_FIELD or words[3] != _LISTEN:
            continue
        address, _colon, port = words[1].rpartition(":")
        listeners.append(Listener(int(port, 16), _address(address), int(words[_INODE_FIELD])))
    return tuple(listeners)


def unit_of_cgroup(text: str) -> str:
    """Return the systemd service or scope in /proc/PID/cgroup; empty for a process of no unit."""
    for line in text.splitlines():
        for part in reversed(line.rpartition(":")[2].split("/")):
            if re.search(r"\.(service|scope)$", part):
                return part
    return ""


def _address(word: str) -> str:
    raw = b"".join(bytes.fromhex(word[i : i + 8])[::-1] for i in range(0, len(word), 8))
    return str(ipaddress.ip_address(raw))
