#!/usr/bin/python
# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: python_environment
short_description: Bring a virtual environment to a recorded state
version_added: "0.1.0"
author:
  - The cpufleet maintainers (@cpufleet)
description:
  - Makes a virtual environment and installs packages into it, in named stages. A finished stage is recorded in the
    environment by the digest of its inputs, written last, so that an interrupted stage is never taken for finished.
  - An environment whose interpreter does not run, or whose recorded inputs differ, is made anew.
extends_documentation_fragment:
  - cpufleet.vllm.attributes
  - cpufleet.vllm.options.packages
attributes:
  diff_mode:
    support: full
    details:
      - The stage's inputs before and after.
options:
  path:
    description: The folder of the environment.
    type: path
    required: true
  python:
    description: The interpreter to make it with.
    type: path
    required: true
  stage:
    description: The name under which the state is recorded.
    type: str
    default: main
  uv:
    description: The uv command; without it the environment's own pip installs (only meant for uv itself).
    type: path
  packages:
    description: Requirement lines or wheel files.
    type: list
    elements: str
    default: []
  lock:
    description: A hashed lock; every package that is installed must be in it.
    type: path
  only:
    description: Install only these packages of O(lock).
    type: list
    elements: str
    default: []
  cpu_torch:
    description: Whether to prove afterwards that torch is a CPU build and no C(nvidia-*) package came with it.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Install torch from the lock
  cpufleet.vllm.python_environment:
    path: /opt/vllm/releases/0.6.5-0123456789ab/venv
    python: /usr/bin/python3
    stage: torch
    uv: /opt/vllm/tools/uv/bin/uv
    lock: /opt/vllm/locks/0.6.5.txt
    only:
      - torch
    cpu_torch: true
"""

RETURN = r"""
environment_python:
  description: The environment's interpreter.
  returned: always
  type: str
inputs:
  description: The digest that the stage is recorded under.
  returned: always
  type: str
reason:
  description: Why something was done, empty when nothing was.
  returned: always
  type: str
"""

import json
import os
import shutil

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.cpufleet.vllm.plugins.module_utils._environment import (
    EnvironmentRequest,
    install_arguments,
    lock_subset,
    torch_problem,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._io import (
    make_temporary_folder,
    read_json,
    read_text,
    sha256_bytes,
    sha256_file,
    write_atomic,
    write_json,
)

TORCH_PROBE = """
import importlib.metadata as m, json, torch
names = sorted(str(d.metadata["Name"]).lower() for d in m.distributions())
print(json.dumps({"version": torch.__version__, "cuda": torch.version.cuda, "hip": torch.version.hip,
                  "nvidia": [n for n in names if n.startswith("nvidia-")]}))
"""


class Environment:
    """The reader and writer of one virtual environment."""

    def __init__(self, module: AnsibleModule, request: EnvironmentRequest) -> None:
        self.module = module
        self.request = request
        self.path: str = module.params["path"]
        self.python = os.path.join(self.path, "bin", "python")
        self.record = os.path.join(self.path, ".cpufleet", request.stage + ".json")

    def state(self) -> tuple[str, str]:
        """Return (recorded inputs, why the environment is not usable)."""
        if not os.path.isdir(self.path):
            return "", "the environment does not exist"
        recorded = str(read_json(self.record, default={"inputs": ""}).get("inputs", ""))
        if not os.path.exists(os.path.join(self.path, "pyvenv.cfg")) or not os.path.exists(self.python):
            return recorded, "the environment was left half-made"
        status, _out, error = self.module.run_command([self.python, "-I", "-c", ""])
        return recorded, f"its interpreter does not run: {error.strip()[-200:]}" if status else ""

    def make(self) -> None:
        """Make an empty environment in place of whatever is there."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.makedirs(os.path.dirname(self.path), mode=0o755, exist_ok=True)
        uv = self.module.params["uv"]
        command = [uv, "venv", "--quiet", "--no-project", "--python"] if uv else []
        command += (
            [self.module.params["python"], self.path] if uv else [self.module.params["python"], "-m", "venv", self.path]
        )
        self.run(command, "make the virtual environment")

    def install(self) -> None:
        """Install what the request names and record the stage."""
        lock = ""
        if self.module.params["lock"]:
            lock = os.path.join(self.path, f".cpufleet-{self.request.stage}.txt")
            text = lock_subset(read_text(self.module.params["lock"]), self.request.only)
            write_atomic(lock, (text + self.hashed_files()).encode())
        uv = self.module.params["uv"]
        installer = [uv, "pip"] if uv else [self.python, "-m", "pip"]
        self.run(
            [*installer, *install_arguments(self.request, self.python, lock)], "install packages into the environment"
        )
        if self.module.params["cpu_torch"]:
            self.prove_torch()
        os.makedirs(os.path.dirname(self.record), exist_ok=True)
        write_json(self.record, {"inputs": self.request.inputs()})

    def hashed_files(self) -> str:
        """Return requirement lines with digests for the wheel files beside the lock."""
        return "".join(
            f"{path} --hash=sha256:{value}\n" for path, value in zip(self.request.packages, self.request.files)
        )

    def prove_torch(self) -> None:
        """Raise CpufleetError unless the environment's torch is a CPU build."""
        found = json.loads(self.run([self.python, "-I", "-c", TORCH_PROBE], "import torch"))
        problem = torch_problem(found)
        if problem:
            raise CpufleetError(
                f"The torch in {self.path} is not a CPU build: {problem}",
                "Set torch_cpu_index_url to PyTorch's CPU index or torch_cpu_find_links to a folder with a +cpu wheel",
                torch=found,
            )

    def run(self, command: list[str], action: str) -> str:
        """Return what ``command`` prints; raise CpufleetError naming ``action`` where it fails."""
        make_temporary_folder()
        status, out, error = self.module.run_command(command, cwd="/")
        if status:
            raise CpufleetError(
                f"Cannot {action} {self.path}: {(error or out).strip()[-1500:]}",
                "Check network, disk space and the package index of the host, and run again",
                command=command,
            )
        return str(out)


def build_request(module: AnsibleModule) -> EnvironmentRequest:
    """Return the request; files stand in it by their digests."""
    parameters, lock = module.params, module.params["lock"]
    wheels = [item for item in parameters["packages"] if item.startswith("/") and os.path.isfile(item)]
    strangers = [item for item in parameters["packages"] if lock and not item.startswith("/")]
    if strangers:
        raise CpufleetError(
            f"Cannot install {', '.join(strangers)} into {parameters['path']}: it is neither a wheel file nor in the "
            f"lock {lock}",
            "Put it into the lock",
        )
    digests = [sha256_file(item) for item in wheels]
    if lock and os.path.exists(lock):
        digests.append(sha256_bytes(lock_subset(read_text(lock), tuple(parameters["only"])).encode()))
    return EnvironmentRequest(
        stage=parameters["stage"],
        python=os.path.realpath(parameters["python"]),
        packages=tuple(parameters["packages"]),
        files=tuple(digests),
        only=tuple(parameters["only"]),
        find_links=tuple(parameters["find_links"]),
        index_urls=tuple(parameters["index_urls"]),
    )


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "python": {"type": "path", "required": True},
            "stage": {"type": "str", "default": "main"},
            "uv": {"type": "path"},
            "packages": {"type": "list", "elements": "str", "default": []},
            "lock": {"type": "path"},
            "only": {"type": "list", "elements": "str", "default": []},
            "find_links": {"type": "list", "elements": "str", "default": []},
            "index_urls": {"type": "list", "elements": "str", "default": []},
            "cpu_torch": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    try:
        request = build_request(module)
        environment = Environment(module, request)
        recorded, broken = environment.state()
        stale = bool(recorded) and recorded != request.inputs()
        reason = broken or ("its recorded inputs differ" if stale else "" if recorded else "the stage is not finished")
        if reason and not module.check_mode:
            if broken or stale:
                environment.make()
            environment.install()
    except CpufleetError as error:
        module.fail_json(msg=str(error), **error.details)
    module.exit_json(
        changed=bool(reason),
        environment_python=environment.python,
        inputs=request.inputs(),
        reason=reason,
        diff={"before": recorded + "\n", "after": request.inputs() + "\n"},
    )


if __name__ == "__main__":
    main()
