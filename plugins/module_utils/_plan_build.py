# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""The building half of a plan: ISA class, Python, compiler, torch, edits, parallel jobs."""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.cpufleet.vllm.plugins.module_utils._isa import supports
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_notes import Notes
from ansible_collections.cpufleet.vllm.plugins.module_utils._sizes import GIB, human, parse_count

__all__ = (
    "choose_compiler",
    "choose_edits",
    "choose_isa",
    "choose_jobs",
    "choose_python",
    "choose_torch",
    "job_bytes",
    "predict_minutes",
    "usable_memory",
    "version_key",
    "wheel_inputs",
)

# Generations whose x86 build reads the build host's flags and makes one library.
ONE_LIBRARY = ("I0", "I1", "I2", "I3")
# The largest cc1plus seen while building: 1.77 GiB for 0.6.5 (g++ 12.2, avx2). Later releases were not measured yet.
JOB_BYTES = {"I0": int(1.8 * GIB)}
JOB_BYTES_UNMEASURED = 3 * GIB
# Processor minutes of one build, measured on 2 cores of an AMD EPYC: 0.6.5 and 0.28.0.
BUILD_MINUTES = {"I0": 5, "I5": 56}
BUILD_MINUTES_UNMEASURED = 30
INSTALL_MINUTES = 3
# What the distribution's own packages bring: package of g++, package of gcc, version, newest first.
DISTRIBUTION_COMPILERS: dict[tuple[str, str], tuple[tuple[str, str, str], ...]] = {
    ("debian", "12"): (("g++", "gcc", "12.2.0"),),
    ("debian", "13"): (("g++", "gcc", "14.2.0"),),
    ("ubuntu", "22.04"): (("g++-12", "gcc-12", "12.3.0"), ("g++", "gcc", "11.4.0")),
    ("ubuntu", "24.04"): (("g++", "gcc", "13.3.0"),),
}


def version_key(version: str) -> tuple[int, ...]:
    """Return the leading numbers of ``version`` for comparison: ``12.2.0`` gives (12, 2, 0)."""
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+", maxsplit=1)[0])[:4])


def choose_isa(host: dict[str, Any], wishes: dict[str, Any], notes: Notes) -> str:
    """Return the ISA class to build for: the host's own, or the wished-for one when the host can run it."""
    own, wish = host["cpu"]["isa_class"], str(wishes["isa_class"])
    if not own:
        notes.refuse(
            "isa",
            f"the CPU {host['cpu']['model'] or host['arch']} cannot run vLLM: {host['cpu']['isa_reason']}. "
            "Use a host whose CPU has AVX2, or serve a GGUF model with another engine there.",
        )
        return ""
    if wish == "auto":
        notes.because("isa_class", f"{own}: {host['cpu']['isa_reason']}")
        return str(own)
    if not supports(own, wish):
        notes.refuse(
            "isa",
            f"vllm_isa_class is {wish} but this CPU offers {own}: the service would die of an illegal instruction. "
            f"Set vllm_isa_class to {own} or to auto.",
        )
    notes.because("isa_class", f"{wish}: vllm_isa_class says so; the CPU offers {own}")
    return wish


def in_range(version: str, source: dict[str, Any]) -> bool:
    """Return whether Python ``version`` satisfies the release's ``python_requires`` and its CMake list."""
    key = version_key(version)[:2]
    for operator, bound in re.findall(r"(>=|<=|<|>)\s*([\d.]+)", source["python_requires"]):
        limit = version_key(bound)[:2]
        fits = {">=": key >= limit, "<=": key <= limit, "<": key < limit, ">": key > limit}[operator]
        if not fits:
            return False
    listed = source.get("python_supported") or []
    return not listed or ".".join(map(str, key)) in listed


def choose_python(host: dict[str, Any], source: dict[str, Any], wishes: dict[str, Any], notes: Notes) -> dict[str, Any]:
    """Return the newest interpreter of the host that the release takes."""
    found = sorted(host["pythons"], key=lambda entry: version_key(entry["version"]), reverse=True)
    fitting = [entry for entry in found if in_range(entry["version"], source)]
    wanted = source["python_requires"]
    if source.get("python_supported"):
        wanted += f" (its CMake takes {', '.join(source['python_supported'])})"
    if not fitting:
        seen = ", ".join(entry["version"] for entry in found) or "none"
        notes.refuse(
            "python",
            f"vLLM {source['version']} needs Python {wanted}, the host has {seen}, and toolchain_python is "
            f"{wishes['python']}, which brings no other one. Install a Python in that range on the host, or choose a "
            "vllm_version that takes the one it has.",
        )
        return {"path": "", "version": "", "from": "none", "packages": []}
    best = fitting[0]
    missing = [name for name, there in (("venv", best["venv"]), ("headers", best["headers"])) if not there]
    notes.because("python", f"{best['path']} {best['version']} is in the range {wanted}")
    return {"path": best["path"], "version": best["version"], "from": "system", "missing": missing}


def choose_compiler(host: dict[str, Any], source: dict[str, Any], notes: Notes) -> dict[str, Any]:
    """Return g++ and gcc of one version that meets the release's hard floor, or the packages that bring them."""
    floor = source["gcc_floor"] if source["gcc_floor_hard"] else ""
    pairs = paired_compilers(host["compilers"])
    for version, (cxx, cc) in sorted(pairs.items(), key=lambda item: version_key(item[0]), reverse=True):
        if not floor or version_key(version) >= version_key(floor):
            notes.because("compiler", f"{cxx} {version} is there" + (f" and meets the floor {floor}" if floor else ""))
            return {"cc": cc, "cxx": cxx, "version": version, "from": "host", "packages": []}
    known = DISTRIBUTION_COMPILERS.get((host["os"]["id"], host["os"]["version"]), ())
    for cxx, cc, version in known:
        if not floor or version_key(version) >= version_key(floor):
            notes.because("compiler", f"the package {cxx} of the distribution is {version}")
            paths = {"cc": f"/usr/bin/{cc}", "cxx": f"/usr/bin/{cxx}"}
            return {**paths, "version": version, "from": "distribution", "packages": [cxx, cc]}
    have = ", ".join(sorted(pairs)) or "none"
    offered = ", ".join(version for _cxx, _cc, version in known) or "nothing that is known here"
    notes.refuse(
        "compiler",
        f"vLLM {source['version']} needs g++ {floor or 'of any version'}; the host has {have} and the packages of "
        f"{host['os']['id']} {host['os']['version']} offer {offered}. "
        + ("Choose vllm_version 0.16.0 or older, or" if floor else "Use")
        + " another distribution release.",
    )
    return {"cc": "", "cxx": "", "version": "", "from": "none", "packages": []}


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


def choose_torch(source: dict[str, Any], wishes: dict[str, Any], notes: Notes) -> dict[str, Any]:
    """Return the torch to build and run with: the release's own pin unless the user overrides it."""
    pin, wish = str(source["torch_cpu"]), str(wishes["torch_version"])
    if wish in ("auto", "", pin):
        notes.because("torch", f"{pin} is the release's own pin")
        return {"version": pin, "pin": pin, "overridden": False}
    notes.because("torch", f"{wish}: torch_cpu_version overrides the release's pin {pin}")
    return {"version": wish, "pin": pin, "overridden": True}


def choose_edits(host: dict[str, Any], source: dict[str, Any], wishes: dict[str, Any], notes: Notes) -> list[str]:
    """Return the names of the edits to apply to the tree."""
    policy, edits = str(wishes["platform_patch"]), []
    gpus = host.get("gpus") or []
    # To 0.7.2 a GPU that the driver reports wins over, or collides with, a wheel whose version says cpu.
    wrong = bool(gpus) and source["detection"] in ("D1", "D2")
    if policy == "always" or (policy == "auto" and wrong):
        edits += ["platform_patch", "config_patch"]
        notes.because("edits", f"platform_patch and config_patch: policy {policy}, {len(gpus)} GPU(s) on the host")
    else:
        notes.because("edits", f"no platform_patch: policy {policy}; a wheel built for CPU is detected as it is here")
    fixes = [str(fix["name"]) for fix in source.get("known_fixes") or []] if wishes["known_fixes"] else []
    for name in fixes:
        notes.because("edits", f"{name}: this release is broken on CPU as released")
    return edits + fixes


def job_bytes(source: dict[str, Any]) -> int:
    """Return the memory that one compile job of this release may need."""
    return JOB_BYTES.get(source["isa"]["generation"], JOB_BYTES_UNMEASURED)


def usable_memory(host: dict[str, Any]) -> int:
    """Return the host's memory as far as its control groups let us have it."""
    total, limit = int(host["memory"]["total_bytes"]), host["memory"]["limit_bytes"]
    return min(total, int(limit)) if limit else total


def choose_jobs(
    host: dict[str, Any], source: dict[str, Any], swap: dict[str, Any], wishes: dict[str, Any], notes: Notes
) -> int:
    """Return the number of parallel compile jobs that processors and memory allow; refuse where not even one fits."""
    need, cpus = job_bytes(source), int(host["cpu"]["usable_cpus"])
    memory, wish = int(host["memory"]["available_bytes"]), str(wishes["jobs"])
    wished = cpus if wish == "auto" else parse_count(wish, "vllm_source_build_jobs")
    later = swap["free_bytes"] + swap["add_bytes"]
    fitting = (memory + later) // need
    figures = f"{human(memory)} of memory and {human(later)} of swap, {human(need)} a job, {cpus} CPU(s)"
    if fitting < 1:
        notes.refuse(
            "memory",
            f"building vLLM {source['version']} needs {human(need)} for one compile job, the host has {figures}. "
            "Raise swap_size, stop what else runs there, or build on a larger host.",
        )
        return 0
    jobs = int(min(cpus, fitting if wish == "auto" else wished))
    notes.because("jobs", f"{jobs}: {figures}")
    return jobs


def wheel_inputs(source: dict[str, Any], archive: dict[str, str], chosen: dict[str, Any]) -> dict[str, Any]:
    """Return all that goes into the wheel, for its identity."""
    version = version_key(chosen["python"]["version"] or "0.0")
    return {
        "vllm_version": source["version"],
        "source_sha256": archive["sha256"],
        "edits": chosen["edits"],
        "isa": [chosen["isa"]],
        "python_tag": f"cp{version[0]}{version[1]}",
        "torch": chosen["torch"]["version"],
        "compiler": f"g++ {chosen['compiler']['version']}",
        "onednn": onednn_tag(source, chosen["isa"]),
        "flags": build_flags(source, chosen["isa"]),
    }


def onednn_tag(source: dict[str, Any], isa: str) -> str:
    """Return the oneDNN tag that goes into the build, "" where the build takes none."""
    unused = source["isa"]["generation"] in ONE_LIBRARY and isa == "avx2"
    return "" if unused else str((source["onednn"] or {}).get("tag") or "")


def build_flags(source: dict[str, Any], isa: str) -> dict[str, str]:
    """Return the environment variables that decide what is built; how fast it is built is not among them."""
    flags = {"VLLM_TARGET_DEVICE": "cpu"}
    if source["isa"]["generation"] in ONE_LIBRARY and isa == "avx2":
        flags["VLLM_CPU_DISABLE_AVX512"] = "true"  # the tree compares with exactly this word
    return flags


def predict_minutes(source: dict[str, Any], jobs: int, built: bool, state: dict[str, Any]) -> int:
    """Return how many minutes the run will take, roughly."""
    if state.get("current") and built:
        return 1
    work = BUILD_MINUTES.get(source["isa"]["generation"], BUILD_MINUTES_UNMEASURED)
    return INSTALL_MINUTES + (0 if built else -(-work // max(1, jobs)))
