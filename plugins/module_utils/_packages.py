# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Command lines of apt and dnf, and what their output means."""

from __future__ import annotations

import re

__all__ = ("explain_failure", "install_command", "missing_apt", "missing_rpm", "refresh_command", "repair_command")


def missing_apt(names: list[str], listing: str) -> list[str]:
    """Return which of ``names`` the ``dpkg-query`` listing (package, status, what it provides) does not hold."""
    present = set()
    for line in listing.splitlines():
        name, _space, rest = line.partition(" ")
        status, _space, provides = rest.partition(" ")
        if status == "installed":
            present.add(name)
            present.update(re.findall(r"([a-z0-9][a-z0-9+.-]+)(?: \([^)]*\))?", provides))
    return [name for name in names if name not in present]


def missing_rpm(names: list[str], listing: str) -> list[str]:
    """Return which of ``names`` ``rpm -q --whatprovides`` did not find."""
    absent = set(re.findall(r"^no package provides (\S+)$", listing, re.MULTILINE))
    return [name for name in names if name in absent]


def repair_command(manager: str) -> tuple[list[str], ...]:
    """Return the command that finishes half-configured packages, where the manager has one."""
    return (["dpkg", "--configure", "-a", "--force-confold"],) if manager == "apt" else ()


def refresh_command(manager: str, wait: int) -> list[str]:
    """Return the command that refreshes the package lists."""
    if manager == "apt":
        return ["apt-get", "-q", "-o", f"DPkg::Lock::Timeout={wait}", "-o", "Acquire::Retries=3", "update"]
    return ["dnf", "-q", "makecache"]


def install_command(manager: str, names: list[str], wait: int) -> list[str]:
    """Return the command that installs ``names``, waiting up to ``wait`` seconds for the lock."""
    if manager == "apt":
        options = [f"DPkg::Lock::Timeout={wait}", "Acquire::Retries=3", "Dpkg::Options::=--force-confold"]
        flags = [word for option in options for word in ("-o", option)]
        return ["apt-get", "-q", "-y", *flags, "install", "--no-install-recommends", *names]
    return ["dnf", "-y", "--setopt=install_weak_deps=False", "install", *names]


def explain_failure(command: list[str], output: str) -> tuple[str, str]:
    """Return problem and remedy for a failed command, from what it printed."""
    causes = (
        (
            r"Could not get lock (\S+)",
            "another package manager holds the lock {0}",
            "Wait for it, or end it, and run again",
        ),
        (r"Unable to locate package (\S+)", "the package {0} is unknown", "Check the host's package sources"),
        (
            r"(?:No match for argument|Unable to find a match): (\S+)",
            "the package {0} is unknown",
            "Check the repositories",
        ),
        (r"No space left on device", "the disk is full", "Free space on the root filesystem and run again"),
        (r"Temporary failure resolving '([^']+)'", "the name {0} does not resolve", "Check DNS and proxy of the host"),
        (
            r"Failed to fetch (\S+)",
            "a file could not be fetched",
            "Check the network, the mirror and the proxy of the host",
        ),
    )
    for pattern, cause, remedy in causes:
        match = re.search(pattern, output)
        if match:
            return f"{command[0]} failed: {cause.format(*match.groups())}", remedy
    tail = " | ".join(line for line in output.strip().splitlines()[-4:])
    return f"{command[0]} failed: {tail}", "Run the same command on the host to see the whole output"
