# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""The plan of one host: what a run would do there, with the numbers it was decided from. Changes and asks nothing."""

from __future__ import annotations

from typing import Any

from ansible_collections.cpufleet.vllm.plugins.module_utils._identity import wheel_identity
from ansible_collections.cpufleet.vllm.plugins.module_utils._isa import ISA_CLASSES, supports
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_build import (
    choose_isa,
    choose_jobs,
    choose_python,
    choose_torch,
    predict_minutes,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_compiler import choose_compiler, limit_isa
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_given import given_wheel
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_instances import (
    check_ports,
    check_services,
    plan_services,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_lock import choose_lock, lock_name
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_notes import Notes
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_serve import NO_SERVICE
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_space import check_disk, choose_swap, disk_needs
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_types import Situation
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_wheel import (
    check_target,
    choose_edits,
    choose_onednn,
    wheel_inputs,
)

__all__ = ("plan_host",)


def plan_host(here: Situation, wheel: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the plan for one host as plain JSON.

    ``wheel`` is what the fleet decided for this host: ``source`` (host, store, build), and for a build ``isa``, the
    classes to build for, else ``identity`` and ``inputs``; without it the host is planned alone. One that the user gave
    (``archive["wheel"]``) comes before all of that. The result's
    ``refused`` is empty when the host can do its part; every entry has ``code`` and ``text``.
    """
    host, source, wishes = here.host, here.source, here.wishes
    notes, building, given = Notes(), Notes(), wheel or {}
    if here.serves:
        check_services(here, notes)
    chosen = choose_ground(host, source, wishes, notes)
    chosen["lock"] = {**chosen["lock"], "name": lock_name(here, chosen), "sha256": "", "resolve": True}
    build = plan_build(here, {**chosen, "isa": given.get("isa") or [chosen["isa_class"]]}, building)
    taken = given_wheel(here, build, notes)
    if not taken:
        taken = given if given.get("source") in ("host", "store") else own_wheel(here.state, build, given)
    builder = taken["source"] == "build"
    if builder:
        notes.take(building)
    elif taken["source"] == "store":
        notes.because("wheel", f"{taken['identity'][:12]}: built once for the fleet, and this host meets its needs")
    swap = choose_swap(host, source, wishes, builder, notes)
    jobs = choose_jobs(host, source, swap, wishes, notes) if builder else 0
    isa = loaded_class(chosen["isa_class"], taken["inputs"]["isa"])
    loading = {**host, "cpu": {**host["cpu"], "isa_class": isa}}
    services = plan_services(loading, here, notes) if here.serves else {"model": NO_SERVICE, "instances": {}}
    disk = check_disk(host, disk_needs(here, swap, taken), notes)
    if here.serves:
        check_ports(here, notes)
    return {
        "version": source["version"],
        **build,
        "isa_class": isa,
        "edits": taken["inputs"]["edits"],
        "wheel": {"builders": [], **taken, "built": taken["source"] == "host"},
        "builder": builder,
        "serves": here.serves,
        "jobs": jobs,
        "swap": swap,
        "disk": disk,
        **services,
        "minutes": predict_minutes(source, jobs, not builder, here.state),
        "reasons": notes.reasons,
        "refused": notes.refused,
    }


def choose_ground(host: dict[str, Any], source: dict[str, Any], wishes: dict[str, Any], notes: Notes) -> dict[str, Any]:
    """Return what a host needs whether it builds or not: its class, an interpreter, torch and the lock."""
    chosen: dict[str, Any] = {"isa_class": choose_isa(host, wishes, notes)}
    chosen["python"] = choose_python(host, source, wishes, notes)
    chosen["torch"] = choose_torch(source, wishes, notes)
    chosen["lock"] = choose_lock(source, chosen["torch"], wishes, notes)
    return chosen


def plan_build(here: Situation, ground: dict[str, Any], notes: Notes) -> dict[str, Any]:
    """Return what this host would build with what, for the classes ``ground["isa"]``, and the wheel's identity."""
    host, source, archive, wishes = here.host, here.source, here.archive, here.wishes
    compiler = choose_compiler(host, source, wishes, notes)
    isa = sorted({limit_isa(one, source, compiler, notes) for one in ground["isa"]}, key=class_rank)
    for one in isa:
        check_target(host, source, one, compiler, notes)
    chosen = {**ground, "isa": isa, "compiler": compiler}
    chosen["edits"] = choose_edits(host, source, wishes, chosen, notes)
    chosen["onednn"] = choose_onednn(source, archive, isa, notes)
    inputs = wheel_inputs(source, archive, chosen)
    del chosen["isa"]
    return {**chosen, "wheel": {"identity": wheel_identity(inputs), "inputs": inputs}}


def own_wheel(state: dict[str, Any], build: dict[str, Any], wheel: dict[str, Any]) -> dict[str, Any]:
    """Return the wheel that this host builds, or has built."""
    there = build["wheel"]["identity"][:12] in state.get("wheels", {})
    return {**wheel, **build["wheel"], "source": "host" if there else "build"}


def class_rank(name: str) -> int:
    """Return the place of an ISA class among all, weakest first."""
    return ISA_CLASSES.index(name) if name in ISA_CLASSES else -1


def loaded_class(own: str, built: list[str]) -> str:
    """Return the strongest class of a wheel that a host of class ``own`` runs."""
    fitting = [name for name in built if name and own and supports(own, name)]
    return max(fitting, key=class_rank, default=own)
