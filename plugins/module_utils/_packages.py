# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Command lines of apt and dnf, and what their output means."""

from __future__ import annotations

import re

__all__ = (
    "explain_failure",
    "file_places",
    "install_command",
    "knows_command",
    "lock_held",
    "missing_apt",
    "missing_rpm",
    "moved_packages",
    "refresh_command",
    "repair_command",
    "replaced_packages",
    "simulate_command",
)

# apt-get waits for dpkg's lock but not for that of the lists, and dpkg itself waits for none.
LOCKED = re.compile(r"Could not get lock|lock was locked by another process|Unable to lock directory")
# Programs and libraries of distribution packages; the library folder of Debian's family has the architecture in it.
FOLDERS = ("/usr/bin", "/usr/lib/{machine}-linux-gnu", "/usr/lib64", "/usr/lib")
MOVED = re.compile(r"^Inst (\S+) \[([^\]]+)\] \((\S+)", re.MULTILINE)


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


def install_command(manager: str, names: list[str], wait: int, release: str = "") -> list[str]:
    """Return the command that installs ``names``, waiting up to ``wait`` seconds for the lock.

    ``release`` is an apt suite whose versions are taken for ``names`` and for what these need from it.
    """
    if manager == "apt":
        options = [f"DPkg::Lock::Timeout={wait}", "Acquire::Retries=3", "Dpkg::Options::=--force-confold"]
        flags = [word for option in options for word in ("-o", option)]
        suite = [f"--target-release={release}"] if release else []
        return ["apt-get", "-q", "-y", *flags, *suite, "install", "--no-install-recommends", *names]
    return ["dnf", "-y", "--setopt=install_weak_deps=False", "install", *names]


def knows_command(manager: str, name: str) -> list[str]:
    """Return the command that succeeds where the package sources have ``name`` and it can be installed."""
    if manager == "apt":
        return ["apt-get", "-q", "-s", "install", "--no-install-recommends", name]
    return ["dnf", "-q", "list", "--available", name]


def file_places(name: str, machine: str) -> list[str]:
    """Return where a program or library called ``name`` lies when a package of the distribution brought it."""
    return [f"{folder.format(machine=machine)}/{name}" for folder in FOLDERS]


def simulate_command(names: list[str], release: str) -> list[str]:
    """Return the command that tells what apt would do to install ``names`` from the suite ``release``."""
    return ["apt-get", "-q", "-s", f"--target-release={release}", "install", "--no-install-recommends", *names]


def moved_packages(simulation: str) -> list[dict[str, str]]:
    """Return name, old and new version of each package that is there and would get another version."""
    return [{"name": name, "old": old, "new": new} for name, old, new in MOVED.findall(simulation)]


def replaced_packages(names: list[str], simulation: str) -> list[str]:
    """Return which of ``names`` apt would install, or install in another version."""
    touched = set(re.findall(r"^Inst (\S+)", simulation, re.MULTILINE))
    return [name for name in names if name in touched]


def lock_held(output: str) -> bool:
    """Return whether a command gave up because another package manager is at work."""
    return LOCKED.search(output) is not None


def explain_failure(command: list[str], output: str) -> tuple[str, str]:
    """Return problem and remedy for a failed command, from what it printed."""
    causes = (
        (
            r"Could not get lock (\S+?)\.?(?:\s|$)",
            "another package manager holds the lock {0}",
            "Wait for it, or end it, and run again",
        ),
        (
            r"(\S+ \S+) lock was locked by another process with pid (\d+)",
            "process {1} holds the {0} lock",
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
