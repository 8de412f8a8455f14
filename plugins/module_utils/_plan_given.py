# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""A ready wheel in a plan: nothing is compiled for it, and nothing can be done to a host that it does not fit."""

from __future__ import annotations

from typing import Any

from ansible_collections.cpufleet.vllm.plugins.module_utils._fleet_wheel import host_with_suite, runtime_packages
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_notes import Notes
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_types import Situation
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_wheel import PATCHES
from ansible_collections.cpufleet.vllm.plugins.module_utils._wheel_fit import misfits

__all__ = ("given_wheel",)


def given_wheel(here: Situation, build: dict[str, Any], notes: Notes) -> dict[str, Any]:
    """Return ``source``, ``identity`` and ``inputs`` of the wheel that the user gave; {} where none was given.

    ``build`` is what would be built instead, whose choices of Python and torch hold here too. Every requirement that
    the host does not meet is refused.
    """
    manifest = here.archive.get("wheel") or {}
    if not manifest:
        return {}
    if build["python"]["version"]:  # that there is none is told already
        unmet = misfits(host_with_suite(here), build["python"]["version"], manifest, build["torch"]["version"])
        for text in unmet:
            notes.refuse("wheel", f"{manifest['file']} does not run here. {text}")
    lacking = [name for name in PATCHES if name in build["edits"]]
    if lacking:
        notes.refuse(
            "wheel",
            f"{manifest['file']} would be taken for one of a GPU on this host, which {' and '.join(lacking)} prevent "
            "in "
            "what is built from source. Set vllm_source_build_source to sdist, or "
            "vllm_source_build_platform_patch to never.",
        )
    origin = manifest["url"] or "a file of the controller"
    served = ", ".join(manifest["isa"]) or "CPUs that it does not name"
    notes.because("wheel", f"{manifest['file']} as {manifest['distribution']} from {origin}, for {served}")
    if manifest["inputs"]["edits"]:
        notes.because("edits", f"{', '.join(manifest['inputs']['edits'])}: packed into the wheel on the controller")
    there = manifest["identity"][:12] in here.state.get("wheels", {})
    wheel = {"identity": manifest["identity"], "inputs": manifest["inputs"]}
    return {**wheel, "source": "host" if there else "given", "runtime": runtime_packages(here, build, manifest)}
