#!/usr/bin/python

# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: source_fix
short_description: Cure known CPU faults of a vLLM release and limit the ISA variants it builds
version_added: "0.1.0"
author:
  - The cpufleet maintainers (@cpufleet)
description:
  - Applies the known fixes that a vLLM source tree or an installed vLLM needs. Whether one is needed is read from the
    files themselves, by a test of the fault, not from the version.
  - Limits the build of a source tree to the kernel libraries that the wanted ISA classes load (O(isa)). From 0.17.0
    every x86 build compiles two or three full sets of kernels, of which one machine loads one. The import rule is
    edited with it, so that each CPU loads the best library that is in the build and that it can run.
  - A file that does not look as expected is a failure that names the file and the anchor, and nothing is written. All
    files are checked before the first is written; where a later one cannot be written, the earlier ones are put back.
  - Every edit stands between two comments and carries what it replaced, so that O(state=absent) gives back the
    original, byte for byte, without a backup. What is named by O(fixes) and O(isa) is taken out then; everything where
    neither is given.
notes:
  - The fixes are C(slot-mapping-arguments), for 0.32.0, whose engine dies on the first request where Triton for CPUs is
    not installed, C(mla-bfloat16-fallback), for 0.16.0, which does not compile where AVX512-BF16 is off,
    C(l2-cache-size), for 0.14.0 to 0.19.1, which do not compile with torch 2.11 or newer,
    C(torch-cpu-questions), for 0.9.2 to 0.18.1, which do not start with such a torch, and C(prefill-without-extension),
    for 0.10.0 to 0.11.0, which die on the first request where Intel's extension for torch is missing.
  - A fix of C++ code in an installed package has no effect, and is not made there.
extends_documentation_fragment:
  - cpufleet.vllm.attributes
  - cpufleet.vllm.options.edits
options:
  fixes:
    description:
      - Names of the fixes. Without this option, all that the tree needs; with an empty list, none.
    type: list
    elements: str
  isa:
    description:
      - The ISA classes of the hosts that the build is for. Without this option the variants are left as they are.
      - Releases before 0.17.0 build one variant, for the CPU of the building machine, so that there is nothing to edit.
    type: list
    elements: str
    choices:
      - avx2
      - avx512
      - avx512_bf16
      - amx
      - neon
      - neon_bf16
seealso:
  - module: cpufleet.vllm.platform_patch
  - module: cpufleet.vllm.config_patch
"""

EXAMPLES = r"""
- name: Apply all fixes that the tree needs
  cpufleet.vllm.source_fix:
    path: /opt/vllm/build/src/vllm-0.32.0

- name: Build only what two kinds of host load
  cpufleet.vllm.source_fix:
    path: /opt/vllm/build/src/vllm-0.32.0
    isa:
      - avx2
      - avx512_bf16

- name: Apply one fix to an installed vLLM
  cpufleet.vllm.source_fix:
    path: /opt/vllm/venv/lib/python3.12/site-packages/vllm
    fixes:
      - slot-mapping-arguments
    backup: true

- name: Give back the original files
  cpufleet.vllm.source_fix:
    path: /opt/vllm/build/src/vllm-0.32.0
    state: absent
"""

RETURN = r"""
status:
  description:
    - V(applied) when any of the edits is in place, V(removed) when they are out, V(not_needed) when there is nothing to
      edit.
  type: str
  returned: success
  sample: applied
reason:
  description: Why this is the status.
  type: str
  returned: success
  sample: "slot-mapping-arguments: The engine dies on the first request"
generation:
  description:
    - How this tree builds for ISA variants, V(I0) to V(I5); empty for an installed package.
  type: str
  returned: success
  sample: I5
files:
  description: The files that hold the edits, or that were given back, below the folder that holds C(vllm).
  type: list
  elements: str
  returned: success
  sample: ["vllm/utils/cpu_triton_utils.py"]
edits:
  description: What was looked at.
  type: list
  elements: dict
  returned: success
  contains:
    name:
      description: Name of the fix, or V(isa-limit).
      type: str
      sample: slot-mapping-arguments
    status:
      description: V(applied), V(removed) or V(not_needed).
      type: str
      sample: applied
    reason:
      description: Why this is the status.
      type: str
      sample: The engine dies on the first request
backup_files:
  description: The copies that were made.
  type: list
  elements: str
  returned: changed and O(backup=true)
  sample: ["/opt/vllm/build/src/vllm-0.32.0/setup.py.4242.2026-01-31@12:00:00~"]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.cpufleet.vllm.plugins.module_utils._edits_isa import CLASSES
from ansible_collections.cpufleet.vllm.plugins.module_utils._edits_run import ARGUMENTS, carry_out, open_tree
from ansible_collections.cpufleet.vllm.plugins.module_utils._edits_source import plan_source
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **ARGUMENTS,
            "fixes": {"type": "list", "elements": "str"},
            "isa": {"type": "list", "elements": "str", "choices": list(CLASSES)},
        },
        supports_check_mode=True,
    )
    try:
        tree = open_tree(module.params["path"])
        wanted = module.params["state"] == "present"
        outcome, edits = plan_source(tree.read, module.params["fixes"], module.params["isa"], wanted=wanted)
        result = carry_out(tree, outcome, check=module.check_mode, backup=module.params["backup"])
    except CpufleetError as error:
        module.fail_json(msg=str(error), **error.details)
    module.exit_json(edits=edits, **result)


if __name__ == "__main__":
    main()
