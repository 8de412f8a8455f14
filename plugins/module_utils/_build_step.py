# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""One step of a build that runs detached: start it, look at it, start it again where that helps, or take its result."""

from __future__ import annotations

import os
from typing import Any

from ansible_collections.cpufleet.vllm.plugins.module_utils._build_failure import Failure
from ansible_collections.cpufleet.vllm.plugins.module_utils._build_host import Build
from ansible_collections.cpufleet.vllm.plugins.module_utils._build_unit import retry_jobs
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError

__all__ = ("ARGUMENTS", "step")

# What every module that builds takes.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "identity": {"type": "str", "required": True},
    "source": {"type": "path", "required": True},
    "folder": {"type": "path", "required": True},
    "dest": {"type": "path", "required": True},
    "environment": {"type": "dict", "default": {}},
    "manifest": {"type": "dict", "default": {}},
    "ccache_dir": {"type": "path", "default": ""},
    "ccache_size": {"type": "str", "default": "2G"},
    "memory_max": {"type": "str", "default": ""},
    "attached": {"type": "bool", "default": False},
    "wait": {"type": "int", "default": 0},
    "progress_interval": {"type": "int", "default": 30},
}


def failed(build: Build, failure: Failure) -> CpufleetError:
    """Return the error that tells why the build failed."""
    retries = build.started().get("retries", [])
    again = f" also with {build.started()['jobs']} job(s)" if retries else ""
    remedy = failure.remedy
    for name, own in build.variables:
        remedy = remedy.replace(name, own)
    return CpufleetError(
        f"The build of {build.title} failed{again}, {failure.text}. The whole log is {build.log} on the host",
        remedy,
        kind=failure.kind,
        log=build.log,
        retries=retries,
    )


def start(build: Build, attached: bool, jobs: int) -> dict[str, Any]:
    """Start the build, or start it again where that helps; raise CpufleetError where it does not."""
    before = build.started()
    retries, notes = [], []
    if before:
        failure = build.failure()
        earlier = before.get("retries", [])
        again = retry_jobs(failure.kind, int(before.get("jobs", 0)), [one["kind"] for one in earlier])
        if again:
            retries = [*earlier, {"kind": failure.kind, "jobs": before["jobs"], "text": failure.text}]
            fewer = f" instead of {before['jobs']}" if again != before["jobs"] else ""
            notes = [f"goes on with {again} job(s){fewer}: {failure.text}"]
            jobs = again
        elif attached:
            raise failed(build, failure)
        elif failure.kind == "killed":
            retries = before.get("retries", [])
            jobs = int(before["jobs"]) if retries else jobs
            notes = [f"goes on where it stopped: {failure.text}"]
    build.start(jobs, retries, notes)
    return build.describe("running")


def step(build: Build, parameters: dict[str, Any], check_mode: bool) -> tuple[bool, dict[str, Any]]:
    """Bring the build one step on; return (changed, its state). ``parameters`` are those of the module."""
    manifest = build.finished()
    if manifest or check_mode:
        return not manifest, finished(build, manifest) if manifest else build.describe("planned")
    if parameters["wait"]:
        build.wait(parameters["wait"])
    with build.alone():
        active, memory = build.running()
        if active:
            return True, build.describe("running", memory)
        manifest = build.finished()
        if not manifest and build.end().status != 0:
            jobs = str(parameters["environment"].get("MAX_JOBS", ""))
            # What the release itself would take, said aloud so that half of it can be taken.
            number = int(jobs) if jobs.isdigit() else len(os.sched_getaffinity(0))
            return True, start(build, parameters["attached"], max(1, number))
        return True, finished(build, manifest or build.collect())


def finished(build: Build, manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a build whose result is there."""
    path = os.path.join(build.dest, str(manifest["file"]))
    done = {"phase": "done", "line": "done", "note": "", "log": build.log, build.product: path}
    return {**done, "sha256": manifest["sha256"], "requirements": manifest["requires"]}
