#!/usr/bin/python
# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: wheel_build
short_description: Build the vLLM wheel detached from the connection
version_added: "0.1.0"
author:
  - The cpufleet maintainers (@cpufleet)
description:
  - Starts the build as a transient systemd unit, or attaches to the one that runs, and waits for its end.
    Losing the connection or the controller does not end a build; running again attaches to it.
  - After a kill or a reboot the build goes on where it was, since its folder is kept and ninja knows what is done.
  - The wheel and its manifest are put into O(dest) last and together, so a wheel with a manifest is a whole one.
  - An action plugin on the controller prints one line of progress every O(progress_interval) seconds.
extends_documentation_fragment:
  - cpufleet.vllm.attributes
attributes:
  diff_mode:
    support: full
    details:
      - The wheel's manifest.
options:
  identity:
    description: The identity of the wheel; 64 hex digits over all that goes in.
    type: str
    required: true
  source:
    description: The unpacked (and edited) source tree. It is built in place.
    type: path
    required: true
  folder:
    description: The folder for log and state of the build.
    type: path
    required: true
  dest:
    description: The folder that receives the wheel and C(manifest.json).
    type: path
    required: true
  python:
    description: The interpreter of the build environment.
    type: path
    required: true
  uv:
    description: The uv command.
    type: path
    required: true
  environment:
    description: Environment variables of the build.
    type: dict
    default: {}
  manifest:
    description: What else goes into the wheel's manifest.
    type: dict
    default: {}
  attached:
    description: Set by the action plugin on every call after the first; a failure is then reported, not started again.
    type: bool
    default: false
  progress_interval:
    description: Seconds between two lines of progress.
    type: int
    default: 15
"""

EXAMPLES = r"""
- name: Build the wheel
  cpufleet.vllm.wheel_build:
    identity: "{{ identity }}"
    source: /opt/vllm/build/0123456789ab/source
    folder: /opt/vllm/build/0123456789ab
    dest: /opt/vllm/wheels/0123456789ab
    python: /opt/vllm/build/0123456789ab/venv/bin/python
    uv: /opt/vllm/tools/uv/bin/uv
    environment:
      VLLM_TARGET_DEVICE: cpu
      MAX_JOBS: "2"
"""

RETURN = r"""
build:
  description: The build.
  returned: always
  type: dict
  contains:
    phase:
      description: V(done), V(running), V(failed), or V(planned) in check mode.
      type: str
    line:
      description: The progress in one line.
      type: str
    log:
      description: The log on the host.
      type: str
    wheel:
      description: The wheel, when it is done.
      type: str
    sha256:
      description: The wheel's digest, when it is done.
      type: str
    requirements:
      description: What the wheel demands of a host, when it is done.
      type: dict
"""

import contextlib
import glob
import os
import shutil
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.cpufleet.vllm.plugins.module_utils._build_log import (
    classify,
    cpu_seconds,
    progress,
    progress_line,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._io import (
    read_bytes,
    read_json,
    read_text,
    sha256_bytes,
    sha256_file,
    write_atomic,
    write_json,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._systemd import environment_file
from ansible_collections.cpufleet.vllm.plugins.module_utils._wheel import wheel_requirements

# The status is renamed into place after the log is complete: a status file means a finished command.
WRAPPER = 'cd "$1"; shift; "$@" >build.log 2>&1; echo $? >status.part; times >times; mv status.part status'


class Build:
    """The reader and writer of one build on this host."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        parameters = module.params
        self.folder: str = parameters["folder"]
        self.dest: str = parameters["dest"]
        self.unit = f"cpufleet-build-{parameters['identity'][:12]}.service"
        self.log = os.path.join(self.folder, "build.log")
        self.status_file = os.path.join(self.folder, "status")
        self.started_file = os.path.join(self.folder, "started.json")
        self.environment_file = os.path.join(self.folder, "build.env")

    def finished(self) -> dict[str, object]:
        """Return the manifest of the finished wheel, {} where there is none or its bytes are not those recorded."""
        manifest = read_json(os.path.join(self.dest, "manifest.json"), default={})
        wheel = os.path.join(self.dest, str(manifest.get("file", "")))
        whole = manifest.get("identity") == self.module.params["identity"] and os.path.isfile(wheel)
        return manifest if whole and sha256_file(wheel) == manifest["sha256"] else {}

    def running(self) -> tuple[bool, int]:
        """Return whether the unit runs, and its memory in bytes."""
        command = ["systemctl", "show", self.unit, "-p", "ActiveState,MemoryCurrent"]
        _status, out, _error = self.module.run_command(command)
        fields = dict(line.partition("=")[::2] for line in out.splitlines())
        memory = fields.get("MemoryCurrent", "")
        active = fields.get("ActiveState") in ("active", "activating", "deactivating", "reloading")
        return active, int(memory) if memory.isdigit() and int(memory) < 1 << 60 else 0

    def took(self) -> dict[str, int]:
        """Return how long the last start of the build ran, and the processor time that it took (0: not known)."""
        since = float(read_json(self.started_file, default={"time": 0})["time"])
        ended = os.path.getmtime(self.status_file) if os.path.exists(self.status_file) else since
        cpu = cpu_seconds(read_text(os.path.join(self.folder, "times"), default=""))
        return {"seconds": round(ended - since), "cpu_seconds": cpu}

    def exit_status(self) -> int | None:
        """Return the exit status of a build that ended by itself."""
        text = read_text(self.status_file, default="").strip()
        return int(text) if text.isdigit() else None

    def interrupted(self) -> bool:
        """Return whether a build was started that did not come to its end."""
        return os.path.exists(self.started_file) and self.exit_status() is None

    def start(self) -> None:
        """Start the build as a unit of its own."""
        parameters = self.module.params
        for path in (self.status_file, self.log):
            if os.path.exists(path):
                os.replace(path, path + ".old")
        shutil.rmtree(os.path.join(self.folder, "dist"), ignore_errors=True)
        write_json(self.started_file, {"time": time.time(), "identity": parameters["identity"]})
        command = ["systemd-run", "--quiet", "--collect", f"--unit={self.unit}", f"--working-directory={self.folder}"]
        command += ["--property=Nice=5", "--property=OOMScoreAdjust=500", "--property=KillMode=control-group"]
        # Not --setenv: an index or proxy URL may hold a password, and a unit's own settings are for all to read.
        write_atomic(self.environment_file, environment_file(parameters["environment"]).encode(), 0o600)
        command += [f"--property=EnvironmentFile={self.environment_file}"]
        command += ["/bin/sh", "-c", WRAPPER, "build", self.folder, parameters["uv"], "build", "--wheel"]
        command += [
            "--no-build-isolation",
            "--python",
            parameters["python"],
            "--out-dir",
            os.path.join(self.folder, "dist"),
        ]
        status, out, error = self.module.run_command([*command, parameters["source"]])
        if status:
            raise CpufleetError(
                f"Cannot start the build as {self.unit}: {(error or out).strip()}",
                "The host must run systemd; check systemctl --failed on it",
            )

    def collect(self) -> dict[str, object]:
        """Put the built wheel and its manifest into the destination and return the manifest."""
        wheels = glob.glob(os.path.join(self.folder, "dist", "*.whl"))
        if len(wheels) != 1:
            self.forget()
            raise CpufleetError(
                f"The build left {len(wheels)} wheels in {self.folder}/dist instead of one",
                f"Run again; the log is {self.log}",
            )
        name, content = os.path.basename(wheels[0]), read_bytes(wheels[0])
        os.makedirs(self.dest, mode=0o755, exist_ok=True)
        write_atomic(os.path.join(self.dest, name), content, 0o644)
        manifest = {
            **self.module.params["manifest"],
            "identity": self.module.params["identity"],
            "file": name,
            "sha256": sha256_bytes(content),
            "requires": wheel_requirements(name, content),
            "took": self.took(),
        }
        write_json(os.path.join(self.dest, "manifest.json"), manifest, 0o644)
        self.forget()
        shutil.rmtree(os.path.join(self.folder, "dist"))
        return manifest

    def forget(self) -> None:
        """Remove the traces of a build that ended: the next call starts one where the wheel is gone again."""
        for path in (self.status_file, self.started_file):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def fail(self, status: int | None) -> CpufleetError:
        """Return the error that tells why the build failed."""
        failure = classify(read_text(self.log, default=""), status)
        return CpufleetError(
            f"The build of vLLM failed, {failure.text}. The whole log is {self.log} on the host",
            failure.remedy,
            kind=failure.kind,
            log=self.log,
        )

    def describe(self, phase: str, memory: int = 0) -> dict[str, object]:
        """Return the state of the build for the caller."""
        since = float(read_json(self.started_file, default={"time": time.time()})["time"])
        found = progress(read_text(self.log, default=""), time.time() - since)
        return {"phase": phase, "line": progress_line(found, memory), "log": self.log}


def step(build: Build, attached: bool, check_mode: bool) -> tuple[bool, dict[str, object]]:
    """Bring the build one step on; return (changed, its state)."""
    manifest = build.finished()
    changed = False
    if not manifest:
        if check_mode:
            return True, build.describe("planned")
        active, memory = build.running()
        if active:
            return True, build.describe("running", memory)
        status = build.exit_status()
        if status != 0 and not attached:
            line = {"line": "goes on after an interruption"} if build.interrupted() else {}
            build.start()
            return True, {**build.describe("running"), **line}
        if status != 0:
            raise build.fail(status)
        manifest, changed = build.collect(), True
    wheel = os.path.join(build.dest, str(manifest["file"]))
    done = {"phase": "done", "line": "done", "log": build.log, "wheel": wheel}
    return changed, {**done, "sha256": manifest["sha256"], "requirements": manifest["requires"]}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "identity": {"type": "str", "required": True},
            "source": {"type": "path", "required": True},
            "folder": {"type": "path", "required": True},
            "dest": {"type": "path", "required": True},
            "python": {"type": "path", "required": True},
            "uv": {"type": "path", "required": True},
            "environment": {"type": "dict", "default": {}},
            "manifest": {"type": "dict", "default": {}},
            "attached": {"type": "bool", "default": False},
            "progress_interval": {"type": "int", "default": 15},
        },
        supports_check_mode=True,
    )
    try:
        changed, state = step(Build(module), module.params["attached"], module.check_mode)
    except CpufleetError as error:
        module.fail_json(msg=str(error), **error.details)
    after = f"{module.params['identity']}\n"
    module.exit_json(changed=changed, build=state, diff={"before": "" if changed else after, "after": after})


if __name__ == "__main__":
    main()
