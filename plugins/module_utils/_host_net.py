# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Who listens where: /proc/net/tcp and tcp6 in, ports out; and what a process's cgroup says about its unit."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

__all__ = ("Listener", "parse_listeners", "unit_of_cgroup", "user_name")

_LISTEN = "0A"
_UID_FIELD = 7
_INODE_FIELD = 9


@dataclass(frozen=True)
class Listener:
    """A TCP socket in state LISTEN; ``inode`` leads to the process that holds it, ``uid`` is its user."""

    port: int
    address: str
    inode: int
    uid: int


def parse_listeners(text: str) -> tuple[Listener, ...]:
    """Read /proc/net/tcp or tcp6; addresses are the kernel's native-endian words, here little-endian."""
    listeners = []
    for line in text.splitlines():
        words = line.split()
        if len(words) <= _INODE_FIELD or words[3] != _LISTEN:
            continue
        address, _colon, port = words[1].rpartition(":")
        numbers = int(words[_INODE_FIELD]), int(words[_UID_FIELD])
        listeners.append(Listener(int(port, 16), _address(address), *numbers))
    return tuple(listeners)


def unit_of_cgroup(text: str) -> str:
    """Return the systemd service or scope in /proc/PID/cgroup; empty for a process of no unit."""
    for line in text.splitlines():
        for part in reversed(line.rpartition(":")[2].split("/")):
            if re.search(r"\.(service|scope)$", part):
                return part
    return ""


def user_name(passwd: str, uid: int) -> str:
    """Return the name of ``uid`` in /etc/passwd, the number itself where it has none."""
    for line in passwd.splitlines():
        fields = line.split(":")
        if fields[2:3] == [str(uid)]:
            return fields[0]
    return str(uid)


def _address(word: str) -> str:
    raw = b"".join(bytes.fromhex(word[i : i + 8])[::-1] for i in range(0, len(word), 8))
    return str(ipaddress.ip_address(raw))
