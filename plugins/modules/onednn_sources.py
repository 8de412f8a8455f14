#!/usr/bin/python
# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: onednn_sources
short_description: Write down which sources of oneDNN a build has to compile
version_added: "0.1.0"
author:
  - The cpufleet maintainers (@cpufleet)
description:
  - oneDNN compiles the code of all its primitives, whichever are switched on. Reads its source, without a compiler, and
    writes the list of the files that the switched-on primitives can come to need.
  - Where a build has found out that the list does not do, the file O(dest) with C(.lacks) at its end says so. It stays
    as long as the list is the same.
extends_documentation_fragment:
  - cpufleet.vllm.attributes
attributes:
  diff_mode:
    support: full
options:
  path:
    description: The unpacked source of oneDNN.
    type: path
    required: true
  dest:
    description: The file to write, one path below C(src) a line. Empty where all is compiled.
    type: path
    required: true
  primitives:
    description: The primitives that the build switches on.
    type: list
    elements: str
    default: [matmul, reorder]
  whole:
    description: Compile all.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Compile what vLLM links of oneDNN
  cpufleet.vllm.onednn_sources:
    path: /opt/vllm/build/0123456789ab/onednn
    dest: /opt/vllm/build/0123456789ab/onednn-sources.txt
"""

RETURN = r"""
count:
  description: How many files are compiled.
  returned: always
  type: int
total:
  description: How many there are.
  returned: always
  type: int
reason:
  description: Why all are compiled; empty where they are not.
  returned: always
  type: str
digest:
  description: SHA-256 over the paths and contents of the source.
  returned: always
  type: str
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._io import folder_contents, read_text, write_atomic
from ansible_collections.cpufleet.vllm.plugins.module_utils._onednn import folder_digest
from ansible_collections.cpufleet.vllm.plugins.module_utils._onednn_sources import Needed, needed_sources

PARTS = ("common", "cpu")
SUFFIXES = (".cpp", ".hpp", ".h")


def read_sources(path: str) -> dict[str, str]:
    """Return the C++ files of oneDNN by their paths below ``src``."""
    top, found = os.path.join(path, "src"), {}
    for part in PARTS:
        for folder, _below, names in os.walk(os.path.join(top, part)):
            for name in names:
                if name.endswith(SUFFIXES):
                    file = os.path.join(folder, name)
                    with open(file, encoding="utf-8", errors="replace") as stream:
                        found[os.path.relpath(file, top)] = stream.read()
    if not found:
        raise CpufleetError(
            f"Cannot read the sources of oneDNN: there are none in {top}",
            "Point vllm_source_build_onednn at an unpacked source of it, at its archive, or at a git address",
        )
    return found


def wanted(needed: Needed, whole: bool) -> str:
    """Return the content of the list."""
    if whole or needed.reason:
        return ""
    return "".join(f"{source}\n" for source in needed.sources)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "dest": {"type": "path", "required": True},
            "primitives": {"type": "list", "elements": "str", "default": ["matmul", "reorder"]},
            "whole": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    dest = module.params["dest"]
    try:
        needed = needed_sources(read_sources(module.params["path"]), tuple(module.params["primitives"]))
        digest = folder_digest(folder_contents(module.params["path"]))
        before, after = read_text(dest, default=""), wanted(needed, module.params["whole"])
        changed = before != after or not os.path.exists(dest)
        if changed and not module.check_mode:
            write_atomic(dest, after.encode(), 0o644)
            if os.path.exists(f"{dest}.lacks"):
                os.unlink(f"{dest}.lacks")
    except (CpufleetError, OSError) as error:
        module.fail_json(msg=str(error), **getattr(error, "details", {}))
    reason = "vllm_source_build_onednn_full is set" if module.params["whole"] else needed.reason
    module.exit_json(
        changed=changed,
        count=after.count("\n") or needed.total,
        total=needed.total,
        reason=reason,
        digest=digest,
        diff={"before": before, "after": after},
    )


if __name__ == "__main__":
    main()
