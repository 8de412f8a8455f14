# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""The plan of one host: what a run would do there, with the numbers it was decided from. Changes and asks nothing."""

from __future__ import annotations

from typing import Any

from ansible_collections.cpufleet.vllm.plugins.module_utils._identity import wheel_identity
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_build import (
    choose_isa,
    choose_jobs,
    choose_python,
    choose_torch,
    predict_minutes,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_compiler import choose_compiler, limit_isa
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_lock import choose_lock
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_notes import Notes
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_serve import check_port, choose_memory
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_space import check_disk, choose_swap, disk_needs
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_wheel import (
    check_target,
    choose_edits,
    choose_onednn,
    wheel_inputs,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_wishes import check_wishes

__all__ = ("plan_host",)


def plan_host(
    host: dict[str, Any],
    source: dict[str, Any],
    archive: dict[str, Any],
    state: dict[str, Any],
    model: dict[str, Any],
    wishes: dict[str, Any],
) -> dict[str, Any]:
    """Return the plan for one host as plain JSON.

    ``host`` is HostInfo, ``source`` SourceInfo, ``archive`` the verified source (sha256, upload_time, and onednn where
    one was given), ``state`` what ``release_info`` found, ``model`` what ``model_info`` found, ``wishes`` the user's
    variables. The result's ``refused`` is empty when the host can be served; every entry has ``code`` and ``text``.
    """
    notes = Notes()
    check_wishes(source, model, wishes, notes)
    build = plan_build(host, source, archive, wishes, notes)
    identity = build["wheel"]["identity"]
    built = identity[:12] in state.get("wheels", {})
    swap = choose_swap(host, source, wishes, notes)
    jobs = 0 if built else choose_jobs(host, source, swap, wishes, notes)
    memory = choose_memory(host, source, model, wishes, notes)
    needs = disk_needs(model, wishes, swap, state, identity)
    disk = check_disk(host, needs, notes)
    check_port(host, wishes, notes)
    return {
        "version": source["version"],
        **build,
        "wheel": {**build["wheel"], "built": built},
        "builder": not built,
        "jobs": jobs,
        "swap": swap,
        "disk": disk,
        "model": memory,
        "minutes": predict_minutes(source, jobs, built, state),
        "reasons": notes.reasons,
        "refused": notes.refused,
    }


def plan_build(
    host: dict[str, Any], source: dict[str, Any], archive: dict[str, Any], wishes: dict[str, Any], notes: Notes
) -> dict[str, Any]:
    """Return what is built with what, and the identity of the wheel that comes out."""
    wish = choose_isa(host, wishes, notes)
    python = choose_python(host, source, wishes, notes)
    compiler = choose_compiler(host, source, wishes, notes)
    isa = limit_isa(wish, source, compiler, notes)
    check_target(host, source, isa, compiler, notes)
    chosen: dict[str, Any] = {"isa_class": isa, "python": python, "compiler": compiler}
    chosen["torch"] = choose_torch(source, wishes, notes)
    chosen["lock"] = choose_lock(source, chosen["torch"], wishes, notes)
    chosen["edits"] = choose_edits(host, source, wishes, chosen, notes)
    chosen["onednn"] = choose_onednn(source, archive, isa, notes)
    inputs = wheel_inputs(source, archive, chosen)
    return {**chosen, "wheel": {"identity": wheel_identity(inputs), "inputs": inputs}}
