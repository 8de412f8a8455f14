# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""The plan of a fleet: the fewest compiles that serve every host, who does them, and which wheel each host takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterable

from ansible_collections.cpufleet.vllm.plugins.module_utils._fleet_wheel import kind_of, known_wheel, passed_over
from ansible_collections.cpufleet.vllm.plugins.module_utils._isa import ISA_CLASSES, weakest
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan import plan_host
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_compiler import suite_libc, version_key
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_notes import Notes
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_types import Situation
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_wheel import ONE_LIBRARY

__all__ = ("Fleet", "fleet_of", "plan_again", "plan_fleet")

Plan = dict[str, Any]


@dataclass(frozen=True)
class Fleet:
    """All hosts of a run by name; ``builders`` are preferred, ``failed`` tells by host why its build failed.

    ``store`` holds the manifests of the wheels and of the locks that the controller keeps, by name.
    """

    hosts: dict[str, Situation]
    builders: tuple[str, ...]
    failed: dict[str, str]
    store: dict[str, dict[str, Any]]


def plan_fleet(fleet: Fleet) -> dict[str, Plan]:
    """Return the plan of every host, as ``plan_host`` does, with ``wheel`` decided for all of them together."""
    alone = {name: plan_host(here) for name, here in fleet.hosts.items()}
    kinds: dict[str, list[str]] = {}
    # What the user gave a wheel for has nobody to wait for.
    given = {name: idle(plan) for name, plan in alone.items() if fleet.hosts[name].archive.get("wheel")}
    for name in sorted(set(fleet.hosts) - set(given)):
        kinds.setdefault(kind_of(fleet.hosts[name], alone[name]), []).append(name)
    built = {name: plan for names in kinds.values() for name, plan in plan_kind(fleet, names, alone).items()}
    plans = {**given, **built}
    return resolve_locks(fleet, {name: plans[name] for name in fleet.hosts})


def plan_kind(fleet: Fleet, names: list[str], alone: dict[str, Plan]) -> dict[str, Plan]:
    """Return the plans of hosts that one wheel could serve, were they of one ISA class."""
    serving = [name for name in names if fleet.hosts[name].serves and alone[name]["isa_class"]]
    if not serving:
        return {name: idle(alone[name]) for name in names}
    source = fleet.hosts[serving[0]].source
    lowest = weakest(alone[name]["isa_class"] for name in serving)
    wheels = {name: known_wheel(fleet.hosts[name], alone[name], fleet.store, lowest) for name in serving}
    lacking = [name for name in serving if not wheels[name]]
    order = elect(fleet, names, lacking, build_classes(source, [alone[name]["isa_class"] for name in lacking]))
    plans = {}
    for name in names:
        if wheels.get(name):
            plans[name] = plan_host(fleet.hosts[name], {**wheels[name], "builders": []})
        elif order and (name in lacking or name == order[0][0]):
            plans[name] = with_builder(fleet, name, order)
        elif name in lacking:
            plans[name] = without_builder(fleet, alone[name])
        else:
            plans[name] = idle(alone[name])
    return plans


def build_classes(source: dict[str, Any], classes: list[str]) -> list[str]:
    """Return the classes that one build has to be for: a release that makes one library builds for the weakest host."""
    if not classes:
        return []
    if source["isa"]["generation"] in ONE_LIBRARY:
        return [weakest(classes)]
    return sorted(set(classes), key=ISA_CLASSES.index)


def elect(fleet: Fleet, names: list[str], lacking: list[str], isa: list[str]) -> list[tuple[str, Plan]]:
    """Return the hosts that can build for ``isa``, best first, each with its plan of doing so."""
    if not lacking:
        return []
    # A host that serves and has its wheel is left in peace, unless it was named a builder.
    able = [name for name in names if (name in lacking or name in fleet.builders) and name not in fleet.failed]
    plans = {name: plan_host(fleet.hosts[name], {"source": "build", "isa": isa, "builders": []}) for name in able}
    fitting = [name for name in able if plans[name]["builder"] and not plans[name]["refused"]]
    return [(name, plans[name]) for name in sorted(fitting, key=lambda name: rank(fleet, name, plans[name]))]


def rank(fleet: Fleet, name: str, plan: Plan) -> tuple[Any, ...]:
    """Return what candidates are ordered by: a build under way, the group of builders, libc, processors, memory."""
    here = fleet.hosts[name]
    libc = version_key(suite_libc(plan["compiler"]["suite"]) or str((here.host.get("libc") or {}).get("version") or ""))
    return (
        plan["wheel"]["identity"][:12] not in here.state.get("building", []),
        name not in fleet.builders,
        libc or (999,),
        -int(here.host["cpu"]["usable_cpus"]),
        -int(here.host["memory"]["total_bytes"]),
        name,
    )


def with_builder(fleet: Fleet, name: str, order: list[tuple[str, Plan]]) -> Plan:
    """Return the plan of a host that builds, or that waits for the first of ``order`` to have built."""
    builder, built = order[0]
    builders = [candidate for candidate, _plan in order]
    told = Notes()
    told.because("builder", election(fleet, order))
    for text in passed_over(fleet.hosts[name], built, fleet.store):
        told.because("wheel", text)
    if name == builder:
        plan = {**built, "wheel": {**built["wheel"], "builders": builders}}
    else:
        wheel = {key: built["wheel"][key] for key in ("identity", "inputs")}
        plan = plan_host(fleet.hosts[name], {**wheel, "source": "store", "builders": builders})
    return {**plan, "reasons": plan["reasons"] + told.reasons}


def election(fleet: Fleet, order: list[tuple[str, Plan]]) -> str:
    """Return why the first of ``order`` builds."""
    name, plan = order[0]
    host, how = fleet.hosts[name].host, "is in the group of builders" if name in fleet.builders else "can build"
    libc = (host.get("libc") or {}).get("version") or "of unknown version"
    text = f"{name}: it {how}, with glibc {libc} and {host['cpu']['usable_cpus']} CPU(s)"
    others = [candidate for candidate, _plan in order[1:]]
    text += f"; builds for {', '.join(plan['wheel']['inputs']['isa'])}"
    failed = [candidate for candidate in sorted(fleet.failed) if candidate in fleet.hosts]
    if failed:
        text += f"; the build on {', '.join(failed)} failed"
    return text + (f"; next: {', '.join(others)}" if others else "")


def without_builder(fleet: Fleet, alone: Plan) -> Plan:
    """Return the plan of a host that nobody can build for: its own reasons, and which builds failed."""
    if alone["refused"] or not fleet.failed:
        return alone
    told = Notes()
    tried = "; ".join(f"{name}: {text}" for name, text in sorted(fleet.failed.items()))
    told.refuse("build", f"no host is left that could build the wheel. {tried}")
    return {**alone, "refused": told.refused}


def idle(alone: Plan) -> Plan:
    """Return the plan of a host that has nothing to do for this wheel, or that cannot be served at all."""
    if alone["serves"]:
        return alone
    return {**alone, "builder": False, "jobs": 0, "disk": [], "refused": [], "minutes": 0}


def resolve_locks(fleet: Fleet, plans: dict[str, Plan]) -> dict[str, Plan]:
    """Return ``plans`` with one host each to resolve a lock that the store lacks; a builder does it on the way."""
    locks: dict[str, Any] = fleet.store.get("locks") or {}
    resolvers: dict[str, str] = {}
    for name in sorted(plans, key=lambda name: (not plans[name]["builder"], name)):
        if plans[name]["serves"] and not plans[name]["refused"]:
            resolvers.setdefault(plans[name]["lock"]["name"], name)
    return {
        name: {**plan, "lock": {**plan["lock"], **lock_of(name, plan, locks, resolvers)}}
        for name, plan in plans.items()
    }


def lock_of(name: str, plan: Plan, locks: dict[str, Any], resolvers: dict[str, str]) -> dict[str, Any]:
    """Return the digest of the stored lock, and whether this host has to resolve it."""
    stored = str(locks.get(plan["lock"]["name"], {}).get("sha256", ""))
    return {"sha256": stored, "resolve": not stored and resolvers.get(plan["lock"]["name"]) == name}


def plan_again(here: Situation, plan: Plan) -> Plan:
    """Return the plan of a host whose compilers, or other facts, changed on the way; its part in the fleet stays."""
    isa = plan["wheel"]["inputs"]["isa"]
    wheel = {"source": "build", "isa": isa} if plan["builder"] else plan["wheel"]
    again = plan_host(here, {**wheel, "builders": plan["wheel"]["builders"]})
    return {**again, "lock": plan["lock"]}


def fleet_of(
    inputs: dict[str, dict[str, Any]], builders: Iterable[str], failed: dict[str, str], store: dict[str, Any]
) -> Fleet:
    """Return the fleet from what Ansible holds: the fields of ``Situation`` by host."""
    return Fleet({name: Situation(**given) for name, given in inputs.items()}, tuple(builders), failed, store)
