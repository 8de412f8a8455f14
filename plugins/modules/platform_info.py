#!/usr/bin/python
# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: platform_info
short_description: Tell what an installed vLLM makes of this machine
version_added: "0.1.0"
description:
  - Runs a probe with the Python of a virtual environment that holds vLLM 0.6.3 or newer, and returns which platform
    that vLLM detects and why, which kernel library it selects for this CPU, and whether the library loads and computes.
  - The release's own detectors are asked, in their own order; releases before 0.7.0 have none as functions, there
    their flags are read.
  - Every known reason for which vLLM does not run on the CPU has a stable code, see RV(platform.causes).
  - The probe starts in an empty folder and ignores E(PYTHONPATH), so that no source folder can take the place of the
    installed package.
extends_documentation_fragment:
  - cpufleet.vllm.attributes.info
author:
  - The cpufleet maintainers (@cpufleet)
options:
  python:
    description:
      - The interpreter of the virtual environment.
    type: path
    required: true
  environment:
    description:
      - Environment variables of the service, for example E(VLLM_TARGET_DEVICE).
      - Variables of vLLM and of Python in the module's own environment are not handed on.
    type: dict
    default: {}
  chdir:
    description:
      - The folder that the service starts in. It is only looked at for a source folder that would hide the package.
    type: path
  timeout:
    description:
      - How many seconds the probe may take. Importing torch and an old vLLM takes some seconds on an idle machine.
    type: int
    default: 300
notes:
  - The module fails only when the interpreter cannot be run. What is wrong with the installation is returned instead.
seealso:
  - module: cpufleet.vllm.source_info
"""

EXAMPLES = r"""
- name: Ask the installed vLLM which platform it detects
  cpufleet.vllm.platform_info:
    python: /opt/vllm/releases/0.6.5-0123456789ab/venv/bin/python
  register: __probe

- name: Ask with the environment of the service
  cpufleet.vllm.platform_info:
    python: /opt/vllm/current/venv/bin/python
    environment:
      VLLM_TARGET_DEVICE: cpu
    chdir: /var/lib/vllm
    timeout: 120
"""

RETURN = r"""
platform:
  description: What was found.
  returned: success
  type: dict
  contains:
    class:
      description: Name of the platform class, V(CpuPlatform) when all is well; null when none could be had.
      type: str
      sample: CpuPlatform
    device_type:
      description: The device type of that class.
      type: str
      sample: cpu
    version:
      description: Version of the distribution named V(vllm), in which most releases look for V(cpu); null without one.
      type: str
      sample: 0.6.5+cpu
    metadata_name:
      description: Name of the distribution that installed the package.
      type: str
      sample: vllm
    python:
      description: Version of the interpreter.
      type: str
      sample: 3.11.2
    package:
      description: Folder of the installed package.
      type: str
      sample: /opt/vllm/current/venv/lib/python3.11/site-packages/vllm
    detectors:
      description: Every detector of the release in the order in which it is asked.
      type: list
      elements: dict
      contains:
        name:
          description: Name of the detector.
          type: str
          sample: cpu
        verdict:
          description: Whether it says yes; null when the release did not ask it.
          type: bool
          sample: true
        reason:
          description: Why, in the words of the release where it has any.
          type: str
          sample: the version of the distribution "vllm" is 0.6.5+cpu, which contains "cpu"
    kernels:
      description: The kernel library that the release selects on this CPU.
      type: dict
      contains:
        selected:
          description: The module that the release asks for.
          type: str
          sample: vllm._C
        file:
          description: Its file in the package; null when it is missing.
          type: str
          sample: _C.abi3.so
        libraries:
          description: All kernel libraries in the package.
          type: list
          elements: str
          sample: [_C.abi3.so]
        loaded:
          description: Those that were in the memory of the probe after the release loaded its kernels.
          type: list
          elements: str
          sample: [_C.abi3.so]
        operators:
          description: Operators that were looked for, and whether each has a kernel for the CPU.
          type: dict
          sample: {silu_and_mul: true, rms_norm: true}
        loads:
          description: Whether the selected library loads and registers its operators.
          type: bool
          sample: true
        runs:
          description: Whether an operator computed the same as torch.
          type: bool
          sample: true
        error:
          description: Why not.
          type: str
          sample: null
    torch:
      description: Version and build of torch; empty when it cannot be imported.
      type: dict
      sample: {version: 2.5.1+cpu, cuda: null, hip: null, cpu_capability: AVX2}
    strays:
      description: Packages of a GPU installation in the environment.
      type: list
      elements: str
      sample: []
    dist_infos:
      description: Distributions that claim the package, in search order, with their name, version and path.
      type: list
      elements: dict
      sample: [{name: vllm, version: 0.6.5+cpu, path: /opt/venv/lib/python3.11/site-packages/vllm-0.6.5+cpu.dist-info}]
    shadowed_by:
      description: A folder that hides the installed package; null when there is none.
      type: str
      sample: null
    causes:
      description:
        - What is wrong, the root of the trouble first; empty when all is well.
        - The codes are V(not_installed), V(torch_missing), V(cuda_torch), V(stray_triton), V(stray_nvidia),
          V(several_dist_infos), V(wrong_metadata_name), V(source_folder_shadows), V(two_platforms),
          V(version_without_cpu), V(other_platform), V(kernels_missing), V(kernels_do_not_load), V(kernels_do_not_run)
          and V(import_failed).
      type: list
      elements: dict
      contains:
        code:
          description: A name that does not change between releases of the collection.
          type: str
          sample: version_without_cpu
        text:
          description: What was seen.
          type: str
        remedy:
          description: What to do.
          type: str
"""

import json
import os
import signal
import subprocess
import tempfile
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._platform_probe import (
    Findings,
    needs_second_run,
    parse_findings,
    plan_report,
    probe_environment,
    probe_source,
)


def run_probe(python: str, arguments: dict[str, Any], environment: dict[str, str], timeout: int) -> Findings:
    """Run the probe once in an empty folder and return what it told, also when it died or had to be stopped."""
    with tempfile.TemporaryDirectory(prefix="cpufleet-probe-") as folder:
        command = [python, "-I", "-B", "-c", probe_source(), json.dumps(arguments)]
        try:
            process = subprocess.run(  # noqa: S603 - the interpreter is the caller's own argument
                command,
                cwd=folder,
                env={"HOME": folder, **environment},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            told = (error.stdout or b"").decode("utf-8", "replace")
            return parse_findings(told, -signal.SIGALRM, f"the probe was stopped after {timeout} s")
        except OSError as error:
            raise CpufleetError(
                f"Cannot run {python}: {error.strerror}",
                "Name an interpreter in a virtual environment; a venv without one has to be made again",
                python=python,
            ) from error
    stderr = process.stderr.decode("utf-8", "replace")
    return parse_findings(process.stdout.decode("utf-8", "replace"), process.returncode, stderr)


def service_folders(environment: dict[str, str], chdir: str | None) -> list[str]:
    """Return the folders in which the service would look for modules before the venv."""
    entries = environment.get("PYTHONPATH", "").split(os.pathsep)
    return [entry for entry in (chdir, *entries) if entry]


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "python": {"type": "path", "required": True},
            "environment": {"type": "dict", "default": {}},
            "chdir": {"type": "path"},
            "timeout": {"type": "int", "default": 300},
        },
        supports_check_mode=True,
    )
    given = {str(key): str(value) for key, value in module.params["environment"].items()}
    arguments = {"folders": service_folders(given, module.params["chdir"]), "parts": False}
    try:
        environment = probe_environment(dict(os.environ), given)
        python, timeout = module.params["python"], module.params["timeout"]
        first = run_probe(python, arguments, environment, timeout)
        second = None
        if needs_second_run(first):
            second = run_probe(python, {**arguments, "parts": True}, environment, timeout)
        report = plan_report(first, second)
    except CpufleetError as error:
        module.fail_json(msg=str(error), **error.details)
    module.exit_json(changed=False, platform=report.to_result())


if __name__ == "__main__":
    main()
