# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Which of the wheels that are there already serves a host: asked by requirements, not by identity."""

from __future__ import annotations

from typing import Any

from ansible_collections.cpufleet.vllm.plugins.module_utils._identity import digest
from ansible_collections.cpufleet.vllm.plugins.module_utils._isa import ISA_CLASSES, supports
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_compiler import NEWER_SUITES, NewerSuite
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_types import Situation
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_wheel import ISA_LIMIT, ONE_LIBRARY, PATCHES
from ansible_collections.cpufleet.vllm.plugins.module_utils._wheel_fit import misfits

__all__ = ("host_with_suite", "kind_of", "known_wheel", "passed_over")


def kind_of(here: Situation, plan: dict[str, Any]) -> str:
    """Return the digest of what two hosts must agree in to share a build; their ISA classes may differ."""
    given = here.archive.get("onednn") or {}
    shared = same_source(plan["wheel"]["inputs"])
    return digest([here.host["arch"], shared, given.get("sha256") or given.get("tag") or ""])


def same_source(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the inputs of a wheel that do not depend on who builds it and for which class."""
    keys = ("vllm_version", "source_sha256", "torch", "python_tag")
    fixes = sorted(set(inputs["edits"]) - {*PATCHES, ISA_LIMIT})
    return {"edits": fixes, **{key: inputs[key] for key in keys}}


def known_wheel(here: Situation, plan: dict[str, Any], store: dict[str, dict[str, Any]], lowest: str) -> dict[str, Any]:
    """Return ``source``, ``identity`` and ``inputs`` of a wheel that is on the host or in the store and serves it.

    ``lowest`` is the weakest class of the hosts that share the build: a release that makes one library is not taken
    for less than that. {} where there is none.
    """
    served = [entry.get("wheel", "") for entry in here.state.get("releases", {}).values() if in_use(here, entry)]
    for place, wheels in (("host", here.state.get("wheels") or {}), ("store", store.get("wheels") or {})):
        fitting = [manifest for manifest in wheels.values() if serves(manifest, here, plan, lowest)]
        for manifest in sorted(fitting, key=lambda one: preference(one, plan, served)):
            found = {"source": place, "identity": manifest["identity"], "inputs": manifest["inputs"]}
            return {**found, "runtime": runtime_packages(here, plan, manifest)}
    return {}


def runtime_packages(here: Situation, plan: dict[str, Any], manifest: dict[str, Any]) -> dict[str, Any]:
    """Return ``suite`` and ``packages`` that bring the newer libc that the wheel needs; {} where its own will do."""
    newer = newer_suite(here)
    if not newer or not misfits(here.host, plan["python"]["version"], manifest):
        return {}
    return {"suite": newer.suite, "packages": list(newer.runtime)}


def in_use(here: Situation, release: dict[str, Any]) -> bool:
    """Return whether the deployment that serves now is of ``release``."""
    current = here.state.get("deployments", {}).get(here.state.get("current", ""), {})
    return bool(current) and current.get("release") == release.get("id")


def preference(manifest: dict[str, Any], plan: dict[str, Any], served: list[str]) -> tuple[Any, ...]:
    """Return what wheels are ordered by: the one in use, the one this host would build, the strongest, the name."""
    identity = manifest["identity"]
    strength = max(map(ISA_CLASSES.index, manifest["inputs"]["isa"]), default=0)
    return identity not in served, identity != plan["wheel"]["identity"], -strength, identity


def serves(manifest: dict[str, Any], here: Situation, plan: dict[str, Any], lowest: str) -> bool:
    """Return whether the wheel was made of the same source and the host meets what it needs."""
    inputs, own = manifest.get("inputs") or {}, offered_class(here)
    if not manifest.get("file") or not inputs or same_source(inputs) != same_source(plan["wheel"]["inputs"]):
        return False
    if not own or not set(plan["edits"]) & set(PATCHES) <= set(inputs["edits"]):
        return False
    if here.source["isa"]["generation"] in ONE_LIBRARY:
        enough = all(supports(own, built) and supports(built, lowest) for built in inputs["isa"])
    else:
        library = here.source["isa"]["selection"]
        enough = library.get(own, own) in {library.get(built, built) for built in inputs["isa"]}
    onednn = plan["onednn"]["given"] and inputs["onednn"] != plan["onednn"]["record"]
    return enough and not onednn and not misfits(host_with_suite(here), plan["python"]["version"], manifest)


def passed_over(here: Situation, plan: dict[str, Any], store: dict[str, dict[str, Any]]) -> list[str]:
    """Return why wheels of the store that were made of the same source are not taken for the host."""
    texts = []
    for short, manifest in sorted((store.get("wheels") or {}).items()):
        if same_source(manifest.get("inputs") or plan["wheel"]["inputs"]) == same_source(plan["wheel"]["inputs"]):
            unmet = misfits(host_with_suite(here), plan["python"]["version"], manifest)
            texts += [f"{short} in the store is not taken: {text}" for text in unmet]
    return texts


def offered_class(here: Situation) -> str:
    """Return the class that the host is to be served with, whatever its own compiler could build."""
    wish = str(here.wishes["isa_class"])
    return str(here.host["cpu"]["isa_class"] or "") if wish == "auto" else wish


def host_with_suite(here: Situation) -> dict[str, Any]:
    """Return the host with the libc that it may take from its distribution's next release."""
    newer = newer_suite(here)
    return {**here.host, "libc": newer.libc} if newer else here.host


def newer_suite(here: Situation) -> NewerSuite | None:
    """Return the next release of the distribution, where its packages may be taken."""
    place = (here.host["os"]["id"], here.host["os"]["version"])
    return NEWER_SUITES.get(place) if here.wishes["allow_newer_suite"] else None
