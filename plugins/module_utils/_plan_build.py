# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""The building half of a plan: ISA class, Python, torch, parallel jobs, minutes."""

from __future__ import annotations

import re
import sys
from typing import Any

from ansible_collections.cpufleet.vllm.plugins.module_utils._isa import supports
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_compiler import version_key
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_notes import Notes
from ansible_collections.cpufleet.vllm.plugins.module_utils._sizes import GIB, human, parse_count

__all__ = (
    "choose_isa",
    "choose_jobs",
    "choose_python",
    "choose_torch",
    "job_bytes",
    "predict_minutes",
    "swap_limit",
    "usable_memory",
)

# The largest cc1plus seen while building for avx2: 0.6.5 1.77 GiB, 0.13.0 2.13 and 0.16.0 2.22 (all with g++ 12.2);
# 0.11.0 1.75, 0.17.1 2.32 and 0.28.0 2.56 (g++ 14.2); cpu_attn.cpp of 0.32.0 for AMX 2.84 (g++ 12.2).
JOB_BYTES = {
    "I0": int(1.8 * GIB),
    "I1": int(1.8 * GIB),
    "I2": int(2.2 * GIB),
    "I3": int(2.3 * GIB),
    "I4": int(2.4 * GIB),
    "I5": int(2.9 * GIB),
}
JOB_BYTES_UNMEASURED = 3 * GIB
# Processor minutes of one build, measured on 2 cores of an AMD EPYC, avx2, 2026-11-30.
BUILD_MINUTES = {"I0": 5, "I1": 5, "I2": 5, "I3": 5, "I4": 5, "I5": 56}
BUILD_MINUTES_UNMEASURED = 30
INSTALL_MINUTES = 3
# Versions that uv brings, the one that most releases of vLLM and torch have wheels for first.
MANAGED_PYTHONS = ("3.12", "3.11", "3.13", "3.10", "3.9")


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
    """Return the newest interpreter of the host that the release takes, or one that uv is to bring.

    ``tool`` is the interpreter of the host that uv itself is installed with.
    """
    found = sorted(host["pythons"], key=lambda entry: version_key(entry["version"]), reverse=True)
    fitting = [entry for entry in found if in_range(entry["version"], source)]
    wanted, wish = source["python_requires"], str(wishes["python"])
    if source.get("python_supported"):
        who = "the wheel" if source.get("source_kind") == "wheel" else "its CMake"
        wanted += f" ({who} takes {', '.join(source['python_supported'])})"
    seen = ", ".join(entry["version"] for entry in found) or "none"
    if fitting and wish != "uv":
        best = fitting[0]
        missing = [name for name, there in (("venv", best["venv"]), ("headers", best["headers"])) if not there]
        notes.because("python", f"{best['path']} {best['version']} is in the range {wanted}")
        tool = {"path": best["path"], "version": best["version"]}
        return {**tool, "from": "system", "missing": missing, "tool": tool}
    version = next((one for one in MANAGED_PYTHONS if in_range(one, source)), "")
    if not version or wish == "system" or not found:
        refuse_python(f"vLLM {source['version']} needs Python {wanted}, the host has {seen}", version, wish, notes)
        return {"path": "", "version": "", "from": "none", "missing": [], "tool": {"path": "", "version": ""}}
    why = "toolchain_python says so" if wish == "uv" else f"the host has {seen}, which is not in the range {wanted}"
    notes.because("python", f"{version}, brought by uv: {why}")
    tool = {"path": found[0]["path"], "version": found[0]["version"]}
    path = f"{wishes['root']}/tools/python/{version}/bin/python{version}"
    return {"path": path, "version": version, "from": "uv", "missing": [], "tool": tool}


def refuse_python(figures: str, version: str, wish: str, notes: Notes) -> None:
    """Say why neither host nor uv has a Python for the release; ``version`` is what uv would bring."""
    if not version:
        why, way = "uv brings none in that range", "Install one"
    elif wish == "system":
        why, way = "toolchain_python is system, which brings no other one", "Set toolchain_python to auto, install one"
    else:
        why, way = "uv, which brings one, is itself installed with one of the host", "Install one"
    notes.refuse(
        "python",
        f"{figures}, and {why}. {way} in that range on the host, or choose a vllm_version that takes the one it has.",
    )


def choose_torch(source: dict[str, Any], wishes: dict[str, Any], notes: Notes) -> dict[str, Any]:
    """Return the torch to build and run with: the release's own pin unless the user overrides it."""
    pin, wish = str(source["torch_cpu"]), str(wishes["torch_version"])
    if wish in ("auto", "", pin):
        notes.because("torch", f"{pin} is the release's own pin")
        return {"version": pin, "pin": pin, "overridden": False}
    notes.because("torch", f"{wish}: torch_cpu_version overrides the release's pin {pin}")
    return {"version": wish, "pin": pin, "overridden": True}


def job_bytes(source: dict[str, Any]) -> int:
    """Return the memory that one compile job of this release may need."""
    return JOB_BYTES.get(source["isa"]["generation"], JOB_BYTES_UNMEASURED)


def usable_memory(host: dict[str, Any]) -> int:
    """Return the host's memory as far as its control groups let us have it."""
    total, limit = int(host["memory"]["total_bytes"]), host["memory"]["limit_bytes"]
    return min(total, int(limit)) if limit else total


def swap_limit(host: dict[str, Any]) -> int:
    """Return how much swap the host's control groups let us use; what is recorded without that has no limit."""
    limit = host["memory"].get("swap_limit_bytes")
    return sys.maxsize if limit is None else int(limit)


def choose_jobs(
    host: dict[str, Any], source: dict[str, Any], swap: dict[str, Any], wishes: dict[str, Any], notes: Notes
) -> int:
    """Return the number of parallel compile jobs that processors and memory allow; refuse where not even one fits."""
    need, cpus = job_bytes(source), int(host["cpu"]["usable_cpus"])
    memory, wish = int(host["memory"]["available_bytes"]), str(wishes["jobs"])
    wished = cpus if wish == "auto" else parse_count(wish, "vllm_source_build_jobs")
    later = min(swap["free_bytes"] + swap["add_bytes"], swap_limit(host))
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


def predict_minutes(source: dict[str, Any], jobs: int, built: bool, state: dict[str, Any]) -> int:
    """Return how many minutes the run will take, roughly."""
    if state.get("current") and built:
        return 1
    work = BUILD_MINUTES.get(source["isa"]["generation"], BUILD_MINUTES_UNMEASURED)
    return INSTALL_MINUTES + (0 if built else -(-work // max(1, jobs)))
