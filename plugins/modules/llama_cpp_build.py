#!/usr/bin/python
# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: llama_cpp_build
short_description: Build llama-server detached from the connection
version_added: "0.1.0"
author:
  - The cpufleet maintainers (@cpufleet)
description:
  - Compiles C(llama-server) of llama.cpp with CMake and ninja in a transient systemd unit, in the way in which
    M(cpufleet.vllm.wheel_build) builds a wheel. Running again attaches to a build that runs, goes on with one that was
    killed, and tries once with half the jobs where the compiler was killed for want of memory.
  - The server and its manifest are put into O(dest) last, so a folder with a manifest is a whole release. The manifest
    says which C library the server needs, read from the server itself.
  - An action plugin on the controller prints one line of progress every O(progress_interval) seconds.
extends_documentation_fragment:
  - cpufleet.vllm.attributes
  - cpufleet.vllm.options.build
attributes:
  diff_mode:
    support: full
    details:
      - The identity of what is built.
options:
  identity:
    description: The identity of the server; 64 hex digits over all that goes in.
    type: str
    required: true
  source:
    description: The unpacked source of llama.cpp, the folder with its C(CMakeLists.txt).
    type: path
    required: true
  folder:
    description: The folder for objects, log and state of the build.
    type: path
    required: true
  dest:
    description: The folder that receives C(bin/llama-server) and C(manifest.json).
    type: path
    required: true
  options:
    description: Options of CMake by name.
    type: dict
    default: {}
seealso:
  - module: cpufleet.vllm.wheel_build
"""

EXAMPLES = r"""
- name: Build llama-server
  cpufleet.vllm.llama_cpp_build:
    identity: "{{ identity }}"
    source: /opt/vllm/build/0123456789ab/source/vendor/llama.cpp
    folder: /opt/vllm/build/0123456789ab
    dest: /opt/vllm/releases/llama_cpp-0.3.36-0123456789ab
    options:
      BUILD_SHARED_LIBS: "OFF"
    environment:
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
    server:
      description: The server, when it is done.
      type: str
    sha256:
      description: The server's digest, when it is done.
      type: str
    requirements:
      description: What the server demands of a host, when it is done.
      type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.cpufleet.vllm.plugins.module_utils._build_step import ARGUMENTS, step
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._llama_cpp_build import ServerBuild


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            **ARGUMENTS,
            "options": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    try:
        changed, state = step(ServerBuild(module.params, module.run_command), module.params, module.check_mode)
    except CpufleetError as error:
        module.fail_json(msg=str(error), **error.details)
    after = f"{module.params['identity']}\n"
    module.exit_json(changed=changed, build=state, diff={"before": "" if changed else after, "after": after})


if __name__ == "__main__":
    main()
