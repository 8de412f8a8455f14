#!/usr/bin/python

# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: config_patch
short_description: Keep the async output check of vLLM from raising
version_added: "0.1.0"
author:
  - The cpufleet maintainers (@cpufleet)
description:
  - Edits a vLLM source tree or an installed vLLM so that C(ModelConfig.verify_async_output_proc) no longer raises
    C(NotImplementedError) on a platform that does not implement C(is_async_output_supported); async output processing
    is switched off there instead. A platform that implements the hook is asked as before.
  - Only vLLM 0.6.5 to 0.10.2 ask the platform. Earlier releases cannot raise there and later ones do not have the
    method, so that RV(status) is V(not_needed) for them.
  - A file that does not look as expected is a failure that names the file and the anchor, and nothing is written.
  - The edit stands between two comments and carries what it replaced, so that O(state=absent) gives back the original,
    byte for byte, without a backup.
notes:
  - The platform that lacks the hook is the one that vLLM falls back to when it detects none. The edit removes that one
    error; it does not make vLLM detect a CPU. See M(cpufleet.vllm.platform_patch) for that.
extends_documentation_fragment:
  - cpufleet.vllm.attributes
  - cpufleet.vllm.options.edits
options:
  force:
    description:
      - Make the edit also where the installed version already says C(cpu).
      - It cannot be made in a release that does not ask the platform.
    type: bool
    default: false
seealso:
  - module: cpufleet.vllm.platform_patch
  - module: cpufleet.vllm.source_fix
"""

EXAMPLES = r"""
- name: Keep the async output check from raising
  cpufleet.vllm.config_patch:
    path: /opt/vllm/build/src/vllm-0.6.5

- name: Show what would be edited in an installed vLLM
  cpufleet.vllm.config_patch:
    path: /opt/vllm/venv/lib/python3.11/site-packages/vllm
  check_mode: true
  diff: true

- name: Give back the original file
  cpufleet.vllm.config_patch:
    path: /opt/vllm/build/src/vllm-0.6.5
    state: absent
"""

RETURN = r"""
status:
  description:
    - V(applied) when the edit is in place, V(removed) when it is out, V(not_needed) when there is nothing to edit.
  type: str
  returned: success
  sample: not_needed
reason:
  description: Why this is the status.
  type: str
  returned: success
  sample: This release has no verify_async_output_proc
generation:
  description:
    - V(A0) where the method does not exist, V(A1) where it asks no platform, V(A2) where it asks the platform.
  type: str
  returned: success
  sample: A0
files:
  description: The files that hold the edit, or that were given back, below the folder that holds C(vllm).
  type: list
  elements: str
  returned: success
  sample: ["vllm/config.py"]
backup_files:
  description: The copies that were made.
  type: list
  elements: str
  returned: changed and O(backup=true)
  sample: ["/opt/vllm/build/src/vllm-0.6.5/vllm/config.py.4242.2026-01-31@12:00:00~"]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.cpufleet.vllm.plugins.module_utils._edits_config import plan_config
from ansible_collections.cpufleet.vllm.plugins.module_utils._edits_run import ARGUMENTS, edit
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError


def main() -> None:
    module = AnsibleModule(
        argument_spec={**ARGUMENTS, "force": {"type": "bool", "default": False}}, supports_check_mode=True
    )
    force = module.params["force"]
    try:
        result = edit(module, lambda tree, wanted: plan_config(tree.read, tree.version, wanted=wanted, force=force))
    except CpufleetError as error:
        module.fail_json(msg=str(error), **error.details)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
