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
  - A build whose compiler was killed for want of memory goes on once with half the jobs; C(retries) in the manifest
    says so.
  - A failure has a kind, found from the log and from the kernel's own record of what it killed. The kinds stand in
    U(https://github.com/cpufleet/ansible-collection-vllm/tree/main/docs/troubleshooting.md).
  - Where interpreter, torch or compiler became others since CMake configured the tree, the tree is made anew.
  - A proxy that O(environment) names in one spelling (C(http_proxy), C(HTTP_PROXY)) is given to the build in both.
  - The wheel and its manifest are put into O(dest) last and together, so a wheel with a manifest is a whole one.
  - An action plugin on the controller prints one line of progress every O(progress_interval) seconds.
extends_documentation_fragment:
  - cpufleet.vllm.attributes
  - cpufleet.vllm.options.build
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
  abi3:
    description:
      - Whether the extensions keep to Python's stable ABI, as RV(cpufleet.vllm.source_info#module:source.abi3) says.
        The wheel is then tagged so that every Python takes it.
    type: bool
    default: false
  uv:
    description: The uv command.
    type: path
    required: true
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
    note:
      description: What happened to the build that a person wants to know, such as a second start with half the jobs.
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

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.cpufleet.vllm.plugins.module_utils._build_host import Build
from ansible_collections.cpufleet.vllm.plugins.module_utils._build_step import ARGUMENTS, step
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            **ARGUMENTS,
            "python": {"type": "path", "required": True},
            "abi3": {"type": "bool", "default": False},
            "uv": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    try:
        changed, state = step(Build(module.params, module.run_command), module.params, module.check_mode)
    except CpufleetError as error:
        module.fail_json(msg=str(error), **error.details)
    after = f"{module.params['identity']}\n"
    module.exit_json(changed=changed, build=state, diff={"before": "" if changed else after, "after": after})


if __name__ == "__main__":
    main()
