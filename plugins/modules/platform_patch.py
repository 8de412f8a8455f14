#!/usr/bin/python

# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: platform_patch
short_description: Make VLLM_CPU_ONLY decide the platform of vLLM
version_added: "0.1.0"
author:
  - The cpufleet maintainers (@cpufleet)
description:
  - Edits a vLLM source tree or an installed vLLM so that the environment variable E(VLLM_CPU_ONLY) truly selects the
    CPU platform. As released, no vLLM reads that variable.
  - With the edit in place and E(VLLM_CPU_ONLY) set to V(1), V(true), V(yes) or V(on), the CPU platform is selected and
    CUDA, ROCm, TPU, XPU, HPU, Neuron and OpenVINO stay off, whatever hardware is found and whatever the version says.
    With the variable unset, or set to anything else, vLLM detects its platform as it was released.
  - The edit is chosen by the way in which the tree at hand detects its platform (RV(generation)). Releases from 0.6.3
    to 0.33 are known. A file that does not look as expected is a failure that names the file and the anchor, and
    nothing is written.
  - Every edit stands between two comments and carries what it replaced, so that O(state=absent) gives back the
    original, byte for byte, without a backup.
notes:
  - The edit selects the platform. It does not bring the CPU kernels, which have to be in the build.
  - Releases from 0.17 warn that they do not know E(VLLM_CPU_ONLY). The warning is harmless, unless vLLM is started with
    C(--fail-on-environ-validation).
extends_documentation_fragment:
  - cpufleet.vllm.attributes
  - cpufleet.vllm.options.edits
options:
  force:
    description:
      - Make the edit also where it is not needed, that is where the installed version already says C(cpu), or where
        the release selects the CPU platform by E(VLLM_TARGET_DEVICE) at run time.
      - A build of 0.6.3 to 0.7.2 whose version says C(cpu) needs this on a host with a GPU.
    type: bool
    default: false
seealso:
  - module: cpufleet.vllm.config_patch
  - module: cpufleet.vllm.source_fix
"""

EXAMPLES = r"""
- name: Let VLLM_CPU_ONLY decide in a source tree
  cpufleet.vllm.platform_patch:
    path: /opt/vllm/build/src/vllm-0.6.5

- name: Edit an installed vLLM and keep the originals
  cpufleet.vllm.platform_patch:
    path: /opt/vllm/venv/lib/python3.11/site-packages/vllm
    backup: true

- name: Keep the GPU platforms off in a CPU build of 0.7.2 on a host with a GPU
  cpufleet.vllm.platform_patch:
    path: /opt/vllm/venv/lib/python3.11/site-packages/vllm
    force: true

- name: Give back the original files
  cpufleet.vllm.platform_patch:
    path: /opt/vllm/build/src/vllm-0.6.5
    state: absent
"""

RETURN = r"""
status:
  description:
    - V(applied) when the edit is in place, V(removed) when it is out, V(not_needed) when there is nothing to edit.
  type: str
  returned: success
  sample: applied
reason:
  description: Why this is the status.
  type: str
  returned: success
  sample: VLLM_CPU_ONLY=1 selects the CPU platform
generation:
  description:
    - The way in which this tree detects its platform, V(D1) to V(D6).
  type: str
  returned: success
  sample: D1
files:
  description: The files that hold the edit, or that were given back, below the folder that holds C(vllm).
  type: list
  elements: str
  returned: success
  sample: ["vllm/platforms/__init__.py"]
backup_files:
  description: The copies that were made.
  type: list
  elements: str
  returned: changed and O(backup=true)
  sample: ["/opt/vllm/build/src/vllm-0.6.5/vllm/platforms/__init__.py.4242.2026-01-31@12:00:00~"]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.cpufleet.vllm.plugins.module_utils._edits_platform import plan_platform
from ansible_collections.cpufleet.vllm.plugins.module_utils._edits_run import ARGUMENTS, edit
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError


def main() -> None:
    module = AnsibleModule(
        argument_spec={**ARGUMENTS, "force": {"type": "bool", "default": False}}, supports_check_mode=True
    )
    force = module.params["force"]
    try:
        result = edit(module, lambda tree, wanted: plan_platform(tree.read, tree.version, wanted=wanted, force=force))
    except CpufleetError as error:
        module.fail_json(msg=str(error), **error.details)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
