# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""The compiler of a plan: one that is there, one of the distribution, or one of the distribution's next release."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_notes import Notes

__all__ = ("NEWER_SUITES", "choose_compiler", "limit_isa", "paired_compilers", "suite_libc", "version_key")


@dataclass(frozen=True)
class Offer:
    """A compiler that packages of the distribution bring."""

    version: str
    packages: tuple[str, str]
    cxx: str
    cc: str


def usual(version: str, cxx: str = "g++", cc: str = "gcc") -> Offer:
    """Return the compiler of packages that are called like their programs."""
    return Offer(version, (cxx, cc), f"/usr/bin/{cxx}", f"/usr/bin/{cc}")


def toolset(number: int, version: str) -> Offer:
    """Return a compiler of the RHEL family that lies beside the system's own."""
    name, folder = f"gcc-toolset-{number}", f"/opt/rh/gcc-toolset-{number}/root/usr/bin"
    return Offer(version, (f"{name}-gcc-c++", f"{name}-gcc"), f"{folder}/g++", f"{folder}/gcc")


# Newest first.
DISTRIBUTION_COMPILERS: dict[tuple[str, str], tuple[Offer, ...]] = {
    ("debian", "12"): (usual("12.2.0"),),
    ("debian", "13"): (usual("14.2.0"),),
    ("ubuntu", "22.04"): (usual("12.3.0", "g++-12", "gcc-12"), usual("11.4.0")),
    ("ubuntu", "24.04"): (usual("13.3.0"),),
}
# By the RHEL release that a distribution is built like. What the system calls gcc is too old for today's torch on 8.
EL_COMPILERS: dict[int, tuple[Offer, ...]] = {
    8: (toolset(13, "13.3.1"), toolset(12, "12.2.1")),
    9: (
        toolset(14, "14.2.1"),
        toolset(13, "13.3.1"),
        Offer("11.5.0", ("gcc-c++", "gcc"), "/usr/bin/g++", "/usr/bin/gcc"),
    ),
}


def offers(host: dict[str, Any]) -> tuple[Offer, ...]:
    """Return the compilers that the packages of this host's distribution bring, newest first."""
    system = host["os"]
    place = (system["id"], system["version"])
    return DISTRIBUTION_COMPILERS.get(place) or EL_COMPILERS.get(system.get("el_level") or 0, ())


@dataclass(frozen=True)
class NewerSuite:
    """A compiler that the distribution's next release brings to this one."""

    suite: str
    cxx: str
    cc: str
    version: str
    libc: dict[str, str]
    # What a host needs of the suite to run what was built with its compiler.
    runtime: tuple[str, ...] = ("libc6", "libstdc++6", "libgomp1")


NEWER_SUITES: dict[tuple[str, str], NewerSuite] = {
    ("debian", "12"): NewerSuite(
        "trixie", "g++-14", "gcc-14", "14.2.0", {"version": "2.41", "glibcxx": "3.4.33", "cxxabi": "1.3.15"}
    )
}
# The newest release whose build goes on with any g++, where the host's own compilers are too old for newer ones.
NEWEST_WITHOUT_FLOOR = "0.16.0"
# What a compiler that misses a release's soft floor leaves out of the build, and what is left.
SOFT_FLOOR_CLASS = {"avx512_bf16": "avx512", "amx": "avx512"}


def version_key(version: str) -> tuple[int, ...]:
    """Return the leading numbers of ``version`` for comparison: ``12.2.0`` gives (12, 2, 0)."""
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+", maxsplit=1)[0])[:4])


def suite_libc(suite: str) -> str:
    """Return the glibc version that the compiler of a newer suite brings with it, "" where none is taken."""
    return next((newer.libc["version"] for newer in NEWER_SUITES.values() if newer.suite == suite), "")


def choose_compiler(
    host: dict[str, Any], source: dict[str, Any], wishes: dict[str, Any], notes: Notes
) -> dict[str, Any]:
    """Return g++ and gcc of one version that meets the release's hard floor, or the packages that bring them."""
    floor = source["gcc_floor"] if source["gcc_floor_hard"] else ""
    pairs = paired_compilers(host["compilers"])
    for version, (cxx, cc) in sorted(pairs.items(), key=lambda item: version_key(item[0]), reverse=True):
        if not floor or version_key(version) >= version_key(floor):
            notes.because("compiler", f"{cxx} {version} is there" + (f" and meets the floor {floor}" if floor else ""))
            return found(cxx, cc, version, "host", [])
    place = (host["os"]["id"], host["os"]["version"])
    for offer in offers(host):
        if not floor or version_key(offer.version) >= version_key(floor):
            notes.because("compiler", f"the package {offer.packages[0]} of the distribution is {offer.version}")
            return found(offer.cxx, offer.cc, offer.version, "distribution", list(offer.packages))
    newer = NEWER_SUITES.get(place)
    if newer and floor and wishes["allow_newer_suite"]:
        notes.because(
            "compiler",
            f"the package {newer.cxx} {newer.version} of the newer suite {newer.suite}, pinned low: "
            f"toolchain_allow_newer_suite says so; packages that it needs newer, libc6 among them, move with it",
        )
        packages = [newer.cxx, newer.cc]
        compiler = found(f"/usr/bin/{newer.cxx}", f"/usr/bin/{newer.cc}", newer.version, "newer suite", packages)
        return {**compiler, "suite": newer.suite}
    refuse_compiler(host, source, notes)
    return found("", "", "", "none", [])


def found(cxx: str, cc: str, version: str, origin: str, packages: list[str]) -> dict[str, Any]:
    """Return a choice of compiler as it stands in the plan; ``suite`` is set where a newer one brings it."""
    return {"cc": cc, "cxx": cxx, "version": version, "from": origin, "packages": packages, "suite": ""}


def refuse_compiler(host: dict[str, Any], source: dict[str, Any], notes: Notes) -> None:
    """Say which compiler is needed, what the host and its distribution have, and what can be done."""
    floor = source["gcc_floor"] if source["gcc_floor_hard"] else ""
    place = (host["os"]["id"], host["os"]["version"])
    have = ", ".join(sorted(paired_compilers(host["compilers"]))) or "none"
    offered = ", ".join(offer.version for offer in offers(host))
    newer = NEWER_SUITES.get(place)
    ways = []
    if floor and newer:
        ways.append(
            f"Set toolchain_allow_newer_suite to true, which takes {newer.cxx} {newer.version} from the suite "
            f"{newer.suite} and with it a newer libc6;"
        )
    if floor and (have != "none" or offered):
        choose = "choose" if ways else "Choose"
        ways.append(
            f"{choose} vllm_version {NEWEST_WITHOUT_FLOOR}, the newest that this host can build, or an older one;"
        )
    ways.append(f"{'or use' if ways else 'Use'} another distribution release.")
    notes.refuse(
        "compiler",
        f"vLLM {source['version']} needs g++ {floor or 'of any version'}; the host has {have} and the packages of "
        f"{host['os']['id']} {host['os']['version']} offer {offered or 'nothing that is known here'}. "
        + " ".join(ways),
    )


def limit_isa(isa: str, source: dict[str, Any], compiler: dict[str, Any], notes: Notes) -> str:
    """Return the class that the build really has: some releases leave newer instructions out with an older g++."""
    floor = source["gcc_floor"]
    lower = SOFT_FLOOR_CLASS.get(isa)
    if not lower or not floor or source["gcc_floor_hard"] or not compiler["version"]:
        return isa
    if version_key(compiler["version"]) >= version_key(floor):
        return isa
    notes.because(
        "isa_class",
        f"{lower} instead of {isa}: with g++ {compiler['version']}, below {floor}, this release leaves the newer "
        "instructions out of its build",
    )
    return lower


def paired_compilers(compilers: list[dict[str, Any]]) -> dict[str, tuple[str, str]]:
    """Return (g++, gcc) by version where both are there in that version; the plain names win over versioned ones."""
    by_version: dict[str, dict[str, str]] = {}
    for entry in sorted(compilers, key=lambda entry: len(entry["path"]), reverse=True):
        by_version.setdefault(entry["version"], {})[entry["language"]] = entry["path"]
    return {
        version: (languages["c++"], languages["c"])
        for version, languages in by_version.items()
        if version and {"c", "c++"} <= set(languages)
    }
