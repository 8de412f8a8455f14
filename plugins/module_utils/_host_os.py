# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Which operating system a host runs: os-release text in, id, version and package family out."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

__all__ = ("OsInfo", "libstdcxx_version", "parse_os_release")

# Own map: Ansible reports some of these under their own name and then skips every RedHat task.
_FAMILIES: dict[str, str] = {
    **dict.fromkeys(("debian", "ubuntu", "linuxmint", "raspbian", "kali", "pop", "deepin"), "debian"),
    **dict.fromkeys(
        (
            "rhel",
            "centos",
            "fedora",
            "rocky",
            "almalinux",
            "ol",
            "amzn",
            "alinux",
            "anolis",
            "openeuler",
            "opencloudos",
            "tencentos",
        ),
        "rpm",
    ),
    **dict.fromkeys(("sles", "suse", "opensuse", "opensuse-leap", "opensuse-tumbleweed"), "suse"),
}
# One ID for a Debian-based desktop and an rpm-based server: PLATFORM_ID exists on the rpm one only.
_TWO_FACED = frozenset({"uos", "kylin"})
# platform:el9 (RHEL, Rocky, AlmaLinux), al8 (Alibaba Cloud Linux 3), an8 (Anolis 8), ol9 (Oracle).
_EL_LEVEL = re.compile(r"^platform:(?:el|al|an|ol)(\d{1,2})(?:\.\d+)?$")


@dataclass(frozen=True)
class OsInfo:
    """``family`` is debian, rpm, suse or other; ``el_level`` is 8 for whatever is built like RHEL 8."""

    id: str
    version: str
    name: str
    codename: str
    family: str
    el_level: int | None


def parse_os_release(text: str) -> OsInfo:
    """Read os-release; empty or broken text gives id ``unknown`` and family ``other``."""
    values = _assignments(text)
    identifier = values.get("ID", "").lower() or "unknown"
    version = values.get("VERSION_ID", "")
    family = _family(identifier, values)
    return OsInfo(
        id=identifier,
        version=version,
        name=values.get("PRETTY_NAME") or values.get("NAME", ""),
        codename=values.get("VERSION_CODENAME", ""),
        family=family,
        el_level=_el_level(identifier, version, values) if family == "rpm" else None,
    )


def libstdcxx_version(library_name: str) -> str:
    """Return the highest GLIBCXX version of a ``libstdc++.so.6.0.N`` file: its name carries it."""
    match = re.search(r"libstdc\+\+\.so\.6\.0\.(\d+)$", library_name)
    return f"3.4.{match.group(1)}" if match else ""


def _assignments(text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for line in text.splitlines():
        name, sign, raw = line.strip().partition("=")
        if not sign or name.startswith("#"):
            continue
        try:
            values[name] = " ".join(shlex.split(raw))
        except ValueError:  # an unbalanced quote: take what is there
            values[name] = raw.strip("\"'")
    return values


def _family(identifier: str, values: dict[str, str]) -> str:
    if identifier in _FAMILIES:
        return _FAMILIES[identifier]
    for like in values.get("ID_LIKE", "").lower().split():
        if like in _FAMILIES:
            return _FAMILIES[like]
    if identifier in _TWO_FACED:
        return "rpm" if values.get("PLATFORM_ID", "").startswith("platform:") else "debian"
    return "other"


def _el_level(identifier: str, version: str, values: dict[str, str]) -> int | None:
    match = _EL_LEVEL.match(values.get("PLATFORM_ID", ""))
    if match:
        return int(match.group(1))
    major = version.partition(".")[0]
    if identifier in {"rhel", "centos", "rocky", "almalinux", "ol", "anolis"} and major.isdigit():
        return int(major)
    # Alibaba Cloud Linux 3 is built like RHEL 8, 2 like RHEL 7.
    return {"2": 7, "3": 8}.get(major) if identifier == "alinux" else None
