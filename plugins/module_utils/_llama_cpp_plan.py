# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""The plan of hosts that serve with llama-server: who builds it for whom, and how the model is served.

One build for each kind of CPU serves every host of it, since it asks for nothing but a C library that is not older.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._identity import digest
from ansible_collections.cpufleet.vllm.plugins.module_utils._llama_cpp import (
    choose_level,
    level_serves,
    release_name,
    server_inputs,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_compiler import choose_compiler, version_key
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_notes import Notes
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan import plan_serve
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan_types import (
    LLAMA_CPP,
    VLLM,
    Wish,
    candidate_from,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._sizes import GIB, human, parse_count

__all__ = ("Candidate", "choose_engine", "plan_llama_cpp", "release_misfits")

# The largest cc1plus seen, rounded up.
JOB_BYTES = int(1.2 * GIB)
# C++17 with std::filesystem in the library itself.
GCC_FLOOR = "9"
BUILD_MINUTES = 10
Plan = dict[str, Any]


@dataclass(frozen=True)
class Candidate:
    """One host: HostInfo, its releases and deployments, the model as ``model_info`` tells it, and the wishes."""

    host: dict[str, Any]
    state: dict[str, Any]
    model: dict[str, Any]
    wishes: dict[str, Any]


def plan_llama_cpp(
    hosts: dict[str, Candidate], archive: dict[str, Any], store: dict[str, Any], failed: dict[str, str]
) -> dict[str, Plan]:
    """Return the plan of every host by name.

    ``store`` holds the manifests that the controller keeps by release, ``failed`` why builds failed in this run.
    """
    plans = {name: plan_alone(here, archive, store) for name, here in hosts.items()}
    groups: dict[tuple[str, str, str], list[str]] = {}
    for name, plan in plans.items():
        if plan["release"]["source"] == "build":
            host = hosts[name].host
            libc = str((host.get("libc") or {}).get("kind", ""))
            groups.setdefault((host["arch"], libc, plan["isa_class"]), []).append(name)
    for names in groups.values():
        plans.update(elect(names, hosts, plans, failed))
    return plans


def plan_alone(here: Candidate, archive: dict[str, Any], store: dict[str, Any]) -> Plan:
    """Return the plan of one host as if it were the only one."""
    notes, host, wishes = Notes(), here.host, here.wishes
    level = find_level(host, wishes, notes)
    building = Notes()
    compiler = choose_compiler(host, {"gcc_floor": GCC_FLOOR, "gcc_floor_hard": True, "version": ""}, wishes, building)
    inputs = server_inputs(archive, str(wishes["version"]), host["arch"], level, f"g++ {compiler['version']}")
    release = find_release(here, level, inputs, store, notes) if level else {"source": "none", "id": ""}
    jobs = 0
    if release["source"] == "build":
        jobs = choose_jobs(host, wishes, notes)
        refuse_compiler(host, compiler, notes)
        notes.take(Notes(reasons=building.reasons))
    return {
        "version": str(wishes["version"]),
        "engine": LLAMA_CPP,
        "isa_class": level,
        "compiler": compiler,
        "release": {"builders": [], **release},
        "builder": release["source"] == "build",
        "serves": True,
        "jobs": jobs,
        "edits": [],
        "model": choose_model(here, notes),
        "minutes": BUILD_MINUTES if release["source"] == "build" else 1,
        "reasons": notes.reasons,
        "refused": notes.refused,
    }


def find_level(host: dict[str, Any], wishes: dict[str, Any], notes: Notes) -> str:
    """Return for which kind of CPU the host takes its server; refuse where there is none."""
    try:
        level = choose_level(host["arch"], host["cpu"]["flags"], str(wishes["isa_class"]))
    except CpufleetError as error:
        notes.refuse("isa", str(error))
        return ""
    why = "the strongest that this CPU has" if wishes["isa_class"] == "auto" else "vllm_isa_class says so"
    notes.because("isa_class", f"{level}: {why}")
    return level


def find_release(
    here: Candidate, level: str, inputs: dict[str, Any], store: dict[str, Any], notes: Notes
) -> dict[str, Any]:
    """Return the release that the host has, else one of the store that fits, else the one that has to be built.

    Another compiler makes no other server; everything else has to be the same.
    """
    for source, manifests in (("host", here.state.get("releases") or {}), ("store", store)):
        for name in sorted(manifests):
            found = manifests[name]
            if not same_but_compiler(found.get("inputs") or {}, inputs):
                continue
            lacking = release_misfits(here.host, level, found)
            if not lacking:
                where = "is on this host" if source == "host" else "was built once, and this host meets its needs"
                notes.because("release", f"{name} {where}")
                return {"source": source, "id": name, "identity": found["identity"], "inputs": found["inputs"]}
            notes.because("release", f"not {name}: {lacking[0]}")
    return {"source": "build", "id": release_name(inputs), "identity": digest(inputs), "inputs": inputs}


def same_but_compiler(found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Return whether two servers were made from the same source with the same options."""
    return {**found, "compiler": ""} == {**wanted, "compiler": ""}


def release_misfits(host: dict[str, Any], level: str, manifest: dict[str, Any]) -> list[str]:
    """Return what of the requirements of a built server ``host`` does not meet."""
    requires, libc = manifest.get("requires") or {}, host.get("libc") or {}
    if requires.get("machine") != host["arch"]:
        return [f"it is for {requires.get('machine') or 'nobody knows what'}, this host is {host['arch']}"]
    found = []
    built = (manifest.get("inputs") or {}).get("isa") or [""]
    if not level_serves(host["arch"], level, str(built[0])):
        found.append(f"it needs {built[0]}, this host takes {level}")
    own = str(libc.get("version") or host["os"].get("libc", ""))
    if str(libc.get("kind", "glibc")) != "glibc" or version_key(own) < version_key(str(requires.get("glibc", ""))):
        found.append(f"it needs GLIBC_{requires.get('glibc')}, this host has {libc.get('kind', 'glibc')} {own}")
    for prefix, key in (("GLIBCXX", "glibcxx"), ("CXXABI", "cxxabi")):
        need = str(requires.get(key) or "")
        if need and version_key(str(libc.get(key) or "")) < version_key(need):
            found.append(f"it needs {prefix}_{need}, this host has {libc.get(key) or 'none'}")
    return found


def choose_jobs(host: dict[str, Any], wishes: dict[str, Any], notes: Notes) -> int:
    """Return the number of parallel compile jobs; refuse where not even one has the memory it needs."""
    memory, cpus = host["memory"], int(host["cpu"]["usable_cpus"])
    swap = int(memory.get("swap_free_bytes") or 0)
    if memory.get("swap_limit_bytes") is not None:
        swap = min(swap, int(memory["swap_limit_bytes"]))
    room = int(memory["available_bytes"]) + swap
    wished = str(wishes["jobs"])
    most = cpus if wished == "auto" else parse_count(wished, "llama_cpp_jobs")
    jobs = min(most, room // JOB_BYTES)
    figures = f"{human(room)} of memory and swap, {human(JOB_BYTES)} a job, {cpus} CPU(s)"
    if jobs < 1:
        notes.refuse(
            "memory",
            f"building llama-server needs {human(JOB_BYTES)} for one compile job, the host has {figures}. "
            "Raise swap_size, stop what else runs there, or build on a larger host.",
        )
        return 0
    notes.because("jobs", f"{jobs}: {figures}")
    return int(jobs)


def refuse_compiler(host: dict[str, Any], compiler: dict[str, Any], notes: Notes) -> None:
    """Refuse a host that has no compiler and whose distribution is not known to have one."""
    if not compiler["version"]:
        system = host["os"]
        notes.refuse(
            "compiler",
            f"llama.cpp needs g++ {GCC_FLOOR} or newer, and neither the host nor the packages known of {system['id']} "
            f"{system['version']} have one. Install one, or build on another host.",
        )


def choose_model(here: Candidate, notes: Notes) -> dict[str, Any]:
    """Return how the model is served; refuse what is no GGUF or does not fit."""
    model, wishes = here.model, here.wishes
    candidates = [candidate_from(one) for one in model.get("candidates") or []]
    fitting = [one for one in candidates if one.form == "gguf"]
    if not fitting:
        problems = " ".join(model.get("problems") or [])
        notes.refuse(
            "model",
            f"llama-server serves GGUF files, and {model.get('path') or 'model_serve_model'} has none. "
            f"{problems or 'Name a folder with one, or serve this model with vLLM.'}",
        )
        return {"engine": LLAMA_CPP}
    wish = Wish(
        context=wished(wishes, "max_model_len"), concurrency=wished(wishes, "concurrency") or 1, engine=LLAMA_CPP
    )
    tried = [(plan_serve([one], here.host, None, wish), one) for one in fitting]
    plan, chosen = max(tried, key=lambda pair: (pair[0]["fits"], pair[0]["expected_tokens_per_s"]))
    notes.reasons.extend(plan["reasons"])
    forced = "" if plan["fits"] else str(plan["refusal"]["text"])
    if forced and not wishes["force"]:
        notes.refuse("model_memory", forced)
    kept = {key: value for key, value in plan.items() if key not in ("reasons", "refusal", "fits")}
    return {**kept, "kv_cache_gib": 0, "forced": forced, "file": relative(chosen.path, str(model.get("path", "")))}


def choose_engine(
    model: dict[str, Any], host: dict[str, Any], source: dict[str, Any], wishes: dict[str, Any]
) -> dict[str, str]:
    """Return the ``engine`` that serves the model best on the host, and the ``reason``."""
    candidates = [candidate_from(one) for one in model.get("candidates") or []]
    forms = {one.form for one in candidates}
    if forms == {"gguf"}:
        return {"engine": LLAMA_CPP, "reason": "the model is a GGUF, and vLLM has no kernels for that on a CPU"}
    if "gguf" not in forms:
        return {"engine": VLLM, "reason": "the model has no GGUF, which is all that llama.cpp serves"}
    if not source:
        return {"engine": VLLM, "reason": "a ready wheel is given, and nothing is known of its release to compare with"}
    wish = Wish(context=wished(wishes, "max_model_len"), concurrency=wished(wishes, "concurrency") or 1)
    plan = plan_serve(candidates, host, source, wish)
    reason = next(one["text"] for one in plan["reasons"] if one["decision"] == "engine")
    return {"engine": str(plan["engine"]), "reason": str(reason)}


def wished(wishes: dict[str, Any], key: str) -> int:
    """Return a number that the user set, 0 for auto."""
    text = str(wishes[key])
    return 0 if text == "auto" else parse_count(text, f"model_serve_{key}")


def relative(path: str, folder: str) -> str:
    """Return the name of a file below ``folder``, which may be told with or without a slash at its end."""
    start = folder.rstrip("/") + "/"
    return path[len(start) :] if path.startswith(start) else path.rpartition("/")[2]


def elect(
    names: list[str], hosts: dict[str, Candidate], plans: dict[str, Plan], failed: dict[str, str]
) -> dict[str, Plan]:
    """Return the plans of hosts that want the same build: one of them makes it, the others wait for it."""
    able = [name for name in names if not plans[name]["refused"] and name not in failed]
    order = sorted(able, key=lambda name: rank(name, hosts[name], plans[name]))
    if not order:
        told = "; ".join(f"{name}: {text}" for name, text in sorted(failed.items()) if name in names)
        return {name: without_builder(plans[name], told) for name in names}
    builder, built = order[0], plans[order[0]]["release"]
    libc = (hosts[builder].host.get("libc") or {}).get("version") or "of unknown version"
    reason = {
        "decision": "builder",
        "text": f"{builder}: glibc {libc}, the oldest of {len(able)} host(s) that can build",
    }
    found = {}
    for name in names:
        plan = plans[name]
        source = "build" if name == builder else "store"
        refused = [one for one in plan["refused"] if name == builder or one["code"] not in ("memory", "compiler")]
        found[name] = {
            **plan,
            "builder": name == builder,
            "jobs": plan["jobs"] if name == builder else 0,
            "release": {**built, "source": source, "builders": order},
            "reasons": [*plan["reasons"], reason],
            "refused": refused,
        }
    return found


def rank(name: str, here: Candidate, plan: Plan) -> tuple[Any, ...]:
    """Return what candidates are ordered by: a build under way, libc, processors, memory."""
    libc = version_key(str((here.host.get("libc") or {}).get("version") or ""))
    begun = plan["release"]["identity"][:12] in (here.state.get("building") or [])
    cpus, memory = int(here.host["cpu"]["usable_cpus"]), int(here.host["memory"]["total_bytes"])
    return (not begun, libc or (999,), -cpus, -memory, name)


def without_builder(plan: Plan, told: str) -> Plan:
    """Return the plan of a host that nobody can build for."""
    if plan["refused"] or not told:
        return plan
    refused = [{"code": "build", "text": f"no host is left that could build llama-server. {told}"}]
    return {**plan, "builder": False, "refused": refused}
