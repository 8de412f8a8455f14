# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""A plan that was written down, held against the host as it is now: the same decisions, or what stands between."""

from __future__ import annotations

import json
from typing import Any, Iterator

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_build import usable_memory
from ansible_collections.cpufleet.vllm.plugins.module_utils._sizes import human

__all__ = ("VARIABLES", "plan_basis", "plan_match")

# The kernel keeps a little more or less for itself from one version to the next: that is no smaller machine.
MEMORY_TOLERANCE = 0.02
# Where a file lies does not matter, its digest does.
BY_DIGEST = (
    "model",
    "source",
    "sdist",
    "sha256",
    "archive",
    "archive_mirrors",
    "wheel",
    "wheel_sha256",
    "git_urls",
    "git_ref",
    "git_commit",
    "git_instead_of",
    "onednn",
    "onednn_location",
    "onednn_sha256",
    "acl",
    "acl_location",
    "acl_sha256",
    "torch_find_links",
)
# The variable behind each of plan_wishes.
VARIABLES = {
    "version": "vllm_version",
    "root": "vllm_root",
    "isa_class": "vllm_isa_class",
    "swap_file": "swap_file",
    "swap_size": "swap_size",
    "python": "toolchain_python",
    "allow_newer_suite": "toolchain_allow_newer_suite",
    "torch_version": "torch_cpu_version",
    "torch_find_links": "torch_cpu_find_links",
    "resolve_as_of": "torch_cpu_resolve_as_of",
    "source": "vllm_source_build_source",
    "sdist": "vllm_source_build_sdist",
    "archive": "vllm_source_build_archive",
    "archive_mirrors": "vllm_source_build_archive_mirrors",
    "wheel": "vllm_source_build_wheel",
    "wheel_sha256": "vllm_source_build_wheel_sha256",
    "git_urls": "vllm_source_build_git_urls",
    "git_ref": "vllm_source_build_git_ref",
    "git_commit": "vllm_source_build_git_commit",
    "git_instead_of": "vllm_source_build_git_instead_of",
    "sha256": "vllm_source_build_sha256",
    "onednn": "vllm_source_build_onednn",
    "onednn_location": "vllm_source_build_onednn_location",
    "onednn_sha256": "vllm_source_build_onednn_sha256",
    "acl": "vllm_source_build_acl",
    "acl_location": "vllm_source_build_acl_location",
    "acl_sha256": "vllm_source_build_acl_sha256",
    "jobs": "vllm_source_build_jobs",
    "platform_patch": "vllm_source_build_platform_patch",
    "known_fixes": "vllm_source_build_known_fixes",
    "model": "model_serve_model",
    "model_source": "model_serve_model_source",
    "dtype": "model_serve_dtype",
    "kv_cache_gib": "model_serve_kv_cache_gib",
    "max_model_len": "model_serve_max_model_len",
    "concurrency": "model_serve_concurrency",
    "force": "model_serve_force",
    "gate_expect": "model_serve_gate_expect",
    "address": "model_serve_address",
    "port": "model_serve_port",
    "unit": "model_serve_unit",
    "user": "vllm_user",
}
IDENTITY = "the identity of the wheel"
# Name, and where the value stands in a plan. What follows from an earlier line comes later.
DECISIONS = (
    ("Python", "python.version"),
    ("the interpreter", "python.path"),
    ("the compiler", "compiler.version"),
    ("the compiler's path", "compiler.cxx"),
    ("the ISA class", "isa_class"),
    ("torch", "torch.version"),
    ("the edits", "edits"),
    (IDENTITY, "wheel.identity"),
    ("the swap file", "swap.path"),
)


def plan_basis(
    host: dict[str, Any],
    archive: dict[str, Any],
    model: dict[str, Any],
    wishes: dict[str, Any],
    instances: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return what a plan was decided from, as far as a later run has to find it again."""
    models = [f"{entry['model']['sha256']} ({name})" for name, entry in (instances or {}).items()]
    own = {
        f"model_serve_instances.{name}.{key}": str(value)
        for name, entry in (instances or {}).items()
        for key, value in sorted(entry["wishes"].items())
        if key not in BY_DIGEST and value != wishes.get(key)
    }
    return {
        "arch": host["arch"],
        "os": f"{host['os']['id']} {host['os']['version'].partition('.')[0]}".strip(),
        "usable_cpus": int(host["cpu"]["usable_cpus"]),
        "memory_bytes": usable_memory(host),
        "disks": {path: disk["mount"] for path, disk in sorted(host["disks"].items())},
        "source_sha256": archive["sha256"],
        "model_sha256": ", ".join(models) if models else model["sha256"],
        "wishes": {**{key: str(value) for key, value in sorted(wishes.items()) if key not in BY_DIGEST}, **own},
    }


def plan_match(fresh: dict[str, Any], written: str, name: str) -> dict[str, Any]:
    """Return the plan for host ``name`` as the plan file's text ``written`` says, held against the ``fresh`` one.

    What the host no longer matches is added to ``refused``, and stands in ``differs`` one by one.
    """
    try:
        planned = read_plan(written, name)
    except CpufleetError as error:
        return refuse(fresh, [], str(error))
    if planned["refused"]:
        differs = [f"it was impossible already: {entry['text']}" for entry in planned["refused"]]
    else:
        differs = list(differences(planned, fresh))
    if not differs:
        # What hangs on memory that is free just now stays as it was written.
        kept = {"jobs": planned["jobs"] if fresh["builder"] else 0, "model": planned["model"]}
        kept["instances"] = planned.get("instances", {})
        swap = {**fresh["swap"], "size_bytes": planned["swap"]["size_bytes"]}
        return {**fresh, **kept, "swap": swap, "differs": []}
    text = (
        f"the host does not match the plan in plan_file: {'; '.join(differs)}. "
        "Put that back, or make a new plan with plan_output."
    )
    return refuse(fresh, differs, text)


def refuse(fresh: dict[str, Any], differs: list[str], text: str) -> dict[str, Any]:
    """Return the plan with ``text`` as one more reason not to apply it."""
    return {**fresh, "differs": differs, "refused": [*fresh["refused"], {"code": "plan_file", "text": text}]}


def read_plan(written: str, name: str) -> dict[str, Any]:
    """Return the plan of host ``name`` in the text of a plan file."""
    again = "Make a new plan with plan_output"
    try:
        plans = json.loads(written)["hosts"]
        planned: dict[str, Any] | None = plans.get(name)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CpufleetError("plan_file does not hold plans as plan_output writes them", again) from error
    if planned is None:
        raise CpufleetError(
            f"plan_file has no plan for {name}, only for {', '.join(sorted(plans)) or 'no host'}",
            f"{again}, or leave the host out with --limit",
        )
    if "basis" not in planned:
        raise CpufleetError(f"plan_file does not say what the plan for {name} was decided from", again)
    return planned


def differences(planned: dict[str, Any], fresh: dict[str, Any]) -> Iterator[str]:
    """Yield what stands in the way of applying ``planned``; other settings explain everything that follows."""
    then, now = planned["basis"], fresh["basis"]
    settings = list(changed_settings(then["wishes"], now["wishes"]))
    yield from settings or changed_ground(then, now)
    if not settings:
        yield from changed_decisions(planned, fresh)


def changed_settings(then: dict[str, str], now: dict[str, str]) -> Iterator[str]:
    """Yield the variables that were set otherwise when the plan was made."""
    for key in sorted(set(then) | set(now)):
        if then.get(key) != now.get(key):
            yield f"{VARIABLES.get(key, key)} is {now.get(key, 'unknown')}, planned with {then.get(key, 'none')}"


def changed_ground(then: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """Yield what the host, the source and the model no longer are."""
    for key, what in (
        ("arch", "the architecture"),
        ("os", "the operating system"),
        ("source_sha256", "the SHA-256 of the source"),
        ("model_sha256", "the SHA-256 of the model"),
    ):
        if now[key] != then[key]:
            yield f"{what} is {now[key]}, planned with {then[key]}"
    if now["usable_cpus"] < then["usable_cpus"]:
        yield f"the host may use {now['usable_cpus']} CPU(s), planned with {then['usable_cpus']}"
    if now["memory_bytes"] < then["memory_bytes"] * (1 - MEMORY_TOLERANCE):
        yield f"the host has {human(now['memory_bytes'])} of memory, planned with {human(then['memory_bytes'])}"
    for path, mount in then["disks"].items():
        if now["disks"].get(path, mount) != mount:
            yield f"{path} is on the filesystem at {now['disks'][path]}, planned on that at {mount}"


def changed_decisions(planned: dict[str, Any], fresh: dict[str, Any]) -> Iterator[str]:
    """Yield what would be done otherwise now, and what there is no longer room for."""
    found = [(what, at(planned, path), at(fresh, path)) for what, path in DECISIONS]
    other = [entry for entry in found if entry[1] != entry[2]]
    for what, then, now in other:
        # The digest alone says nothing where what went into it is named already.
        if what != IDENTITY or len(other) == 1:
            yield f"{what} is {shown(now)}, planned is {shown(then)}"
    if fresh["builder"] and not planned["builder"]:
        yield "the wheel that was on the host is gone, it would be compiled"
    elif fresh["builder"] and fresh["jobs"] < planned["jobs"]:
        yield f"free memory and swap are enough for {fresh['jobs']} compile job(s), planned are {planned['jobs']}"


def at(plan: dict[str, Any], path: str) -> Any:
    """Return the value at the dotted ``path``."""
    value: Any = plan
    for key in path.split("."):
        value = value[key]
    return value


def shown(value: Any) -> str:
    """Return a value of a plan as people read it."""
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value) or "none"
