# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""What goes into the wheel of a plan: edits of the source, build switches, oneDNN."""

from __future__ import annotations

from typing import Any

from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_compiler import version_key
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_notes import Notes

__all__ = ("ISA_LIMIT", "PATCHES", "build_flags", "check_target", "choose_edits", "choose_onednn", "wheel_inputs")

# Generations whose x86 build makes one library, with what the build host's CPU has.
ONE_LIBRARY = ("I0", "I1", "I2", "I3")
# Generations that build every variant; source_fix limits them to the one that the class loads.
ALL_VARIANTS = ("I4", "I5")
ISA_LIMIT = "isa_limit"
# Made for one host's surroundings; a wheel that has them serves the others as well.
PATCHES = ("platform_patch", "config_patch")
# The words that tell a build of one library which class it is for, as far as the release knows them.
TARGET_SWITCHES: dict[str, dict[str, str]] = {
    # The tree compares with exactly this word.
    "avx2": {"VLLM_CPU_DISABLE_AVX512": "true", "VLLM_CPU_AVX2": "1"},
    "avx512": {"VLLM_CPU_AVX512": "1"},
    "avx512_bf16": {"VLLM_CPU_AVX512": "1", "VLLM_CPU_AVX512BF16": "1", "VLLM_CPU_AVX512VNNI": "1"},
    "amx": {
        "VLLM_CPU_AVX512": "1",
        "VLLM_CPU_AVX512BF16": "1",
        "VLLM_CPU_AVX512VNNI": "1",
        "VLLM_CPU_AMXBF16": "1",
    },
}
ARM = "neon"
NO_LIBRARY: dict[str, Any] = {"used": False, "record": "", "override": "", "given": {}, "repository": "", "ref": ""}
# The strongest class whose instructions such a build takes over from its host's CPU; no switch leaves them out.
TAKEN_IN = {"I0": "avx512_bf16", "I1": "avx512_bf16", "I2": "amx", "I3": "amx"}


def choose_edits(
    host: dict[str, Any],
    source: dict[str, Any],
    wishes: dict[str, Any],
    chosen: dict[str, Any],
    notes: Notes,
) -> list[str]:
    """Return the names of the edits to apply to the tree; ``chosen`` has the ISA classes and the torch."""
    policy, edits = str(wishes["platform_patch"]), []
    gpus = host.get("gpus") or []
    # To 0.7.2 a GPU that the driver reports wins over, or collides with, a wheel whose version says cpu.
    wrong = bool(gpus) and source["detection"] in ("D1", "D2")
    if policy == "always" or (policy == "auto" and wrong):
        edits += [*PATCHES]
        notes.because("edits", f"platform_patch and config_patch: policy {policy}, {len(gpus)} GPU(s) on the host")
    else:
        notes.because("edits", f"no platform_patch: policy {policy}; a wheel built for CPU is detected as it is here")
    if source["isa"]["generation"] in ALL_VARIANTS and host["arch"] == "x86_64" and any(chosen["isa"]):
        edits.append(ISA_LIMIT)
        built, classes = ", ".join(source["isa"]["targets"]), f"a CPU of class {' or '.join(chosen['isa'])}"
        notes.because("edits", f"{ISA_LIMIT}: of {built} only what {classes} loads is built")
    return edits + known_fixes(source, wishes, str(chosen["torch"]["version"]), notes)


def known_fixes(source: dict[str, Any], wishes: dict[str, Any], torch: str, notes: Notes) -> list[str]:
    """Return the names of the fixes that this release needs, as released or with a newer torch than its own."""
    names = []
    for fix in source.get("known_fixes") or []:
        first = fix.get("torch") or ""
        if not wishes["known_fixes"] or (first and version_key(torch) < version_key(first)):
            continue
        names.append(str(fix["name"]))
        why = f"with torch {first} and newer" if first else "as released"
        notes.because("edits", f"{fix['name']}: this release is broken on CPU {why}")
    return names


def check_target(
    host: dict[str, Any], source: dict[str, Any], isa: str, compiler: dict[str, Any], notes: Notes
) -> None:
    """Refuse a class that this host's build would overshoot: the wheel would not run on a host of that class."""
    own = host["cpu"]["isa_class"]
    ladder = ("avx512", "avx512_bf16", "amx")
    strongest = TAKEN_IN.get(source["isa"]["generation"], "")
    if isa not in ladder or own not in ladder or not strongest or not compiler["version"]:
        return
    floor = source["gcc_floor"]
    if floor and version_key(compiler["version"]) < version_key(floor):
        return
    taken = min(own, strongest, key=ladder.index)
    if ladder.index(taken) > ladder.index(isa):
        notes.refuse(
            "isa",
            f"vllm_isa_class is {isa}, but vLLM {source['version']} takes over what the CPU of the building host "
            f"offers ({taken}) and has no switch to leave it out: the wheel would die of an illegal instruction on a "
            f"host of class {isa}. Set vllm_isa_class to {taken} or to avx2, or build on a host of class {isa}.",
        )


def choose_onednn(source: dict[str, Any], archive: dict[str, Any], isa: list[str], notes: Notes) -> dict[str, Any]:
    """Return whether the build takes oneDNN, what the wheel's identity says of it, and how the tree takes another one.

    ``archive["onednn"]`` and ``archive["acl"]`` describe what the user names; {} leaves the choice to the tree. The Arm
    Compute Library (``acl``) goes with the oneDNN of an aarch64 build.
    """
    arm, pinned = any(one.startswith(ARM) for one in isa), source["onednn"] or {}
    own = (pinned.get("aarch64") or {}) if arm else pinned
    if not own.get("tag") or not any(takes_onednn(source, one) for one in isa):
        return {**NO_LIBRARY, "acl": NO_LIBRARY}
    chosen = library("onednn", {**own, "override": pinned["override"]}, archive, notes)
    of_arm = source.get("arm_compute") or {}
    if not arm or of_arm.get("override") != "A2":
        return {**chosen, "acl": NO_LIBRARY}
    acl = library("acl", of_arm, archive, notes)
    return {**chosen, "record": f"{chosen['record']} acl {acl['record']}", "acl": acl}


def library(name: str, own: dict[str, Any], archive: dict[str, Any], notes: Notes) -> dict[str, Any]:
    """Return which source of a library is compiled: ``own`` as the release names it, or what the user names."""
    tag, given = str(own["tag"]), archive.get(name) or {}
    ref = str(given.get("tag") or tag)
    record = ref
    if given and given["kind"] != "git":
        version = f"v{given['version']} " if given["version"] else ""
        record = f"{version}sha256:{given['sha256']}"
    if given:
        notes.because(name, f"{record}: vllm_source_build_{name} says so; the release's own is {tag}")
    place = {"repository": str(own.get("repository") or ""), "ref": ref}
    return {"used": True, "record": record, "override": str(own["override"]), "given": given, **place}


def takes_onednn(source: dict[str, Any], isa: str) -> bool:
    """Return whether the build for ``isa`` compiles oneDNN."""
    if source["isa"]["generation"] == "I4":
        # Its AVX2 library, which plain AVX512 loads too, calls nothing of oneDNN; the ISA limit leaves it out.
        return isa in ("avx512_bf16", "amx")
    return not (source["isa"]["generation"] in ONE_LIBRARY and isa == "avx2")


def wheel_inputs(source: dict[str, Any], archive: dict[str, Any], chosen: dict[str, Any]) -> dict[str, Any]:
    """Return all that goes into the wheel, for its identity."""
    python = ".".join(map(str, version_key(chosen["python"]["version"] or "0.0")[:2]))
    return {
        "vllm_version": source["version"],
        "source_sha256": archive["sha256"],
        "edits": chosen["edits"],
        "isa": chosen["isa"],
        "python_tag": "abi3" if source.get("abi3") else f"cp{python.replace('.', '')}",
        "torch": chosen["torch"]["version"],
        "compiler": f"g++ {chosen['compiler']['version']}",
        "onednn": chosen["onednn"]["record"],
        "flags": build_flags(source, chosen["isa"][0]),
    }


def build_flags(source: dict[str, Any], isa: str) -> dict[str, str]:
    """Return the environment variables that decide what is built; how fast it is built is not among them."""
    flags = {"VLLM_TARGET_DEVICE": "cpu"}
    if source["isa"]["generation"] in ONE_LIBRARY:
        known = source["isa"]["switches"]
        flags.update({name: value for name, value in TARGET_SWITCHES.get(isa, {}).items() if name in known})
    return flags
