#!/usr/bin/python
# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: model_store
short_description: Compare a model folder on a host with its manifest
version_added: "0.1.0"
author:
  - The cpufleet maintainers (@cpufleet)
description:
  - Tells which files of a manifest are missing from a folder or differ from it, by SHA-256.
  - Digests of files that did not change since the last call are remembered in O(memory).
extends_documentation_fragment:
  - cpufleet.vllm.attributes
  - cpufleet.vllm.options.model_files
attributes:
  diff_mode:
    support: none
    details:
      - The missing files are returned.
options:
  complete:
    description: Whether to fail when anything is missing or differs.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: See what has to be copied
  cpufleet.vllm.model_store:
    path: /opt/vllm/models/0123456789ab
    files: "{{ described.model.files }}"
    memory: /opt/vllm/models/0123456789ab.json
  register: stored
"""

RETURN = r"""
missing:
  description: The names of the files that are missing or differ.
  returned: always
  type: list
  elements: str
folders:
  description: The folders that hold files of the manifest, relative to O(path), parents first.
  returned: always
  type: list
  elements: str
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._files import digest_files, list_files


def main() -> None:
    """Run the module."""
    entry = {
        "name": {"type": "str", "required": True},
        "size": {"type": "int", "required": True},
        "sha256": {"type": "str", "required": True},
    }
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "files": {"type": "list", "elements": "dict", "required": True, "options": entry},
            "complete": {"type": "bool", "default": False},
            "memory": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    path, wanted = module.params["path"], module.params["files"]
    try:
        there = list_files(path)
        # A file of another size is not read: it differs already.
        same_size = {
            e["name"]: there[e["name"]] for e in wanted if e["name"] in there and there[e["name"]].st_size == e["size"]
        }
        memory = "" if module.check_mode else module.params["memory"]
        found = {e["name"]: e["sha256"] for e in digest_files(path, same_size, memory)}
        missing = [e["name"] for e in wanted if found.get(e["name"]) != e["sha256"]]
        if missing and module.params["complete"]:
            raise CpufleetError(
                f"The model in {path} does not match its manifest: {', '.join(missing)}",
                "Copy the files again from a source that you trust",
                missing=missing,
            )
    except CpufleetError as error:
        module.fail_json(msg=str(error), **error.details)
    folders = sorted({os.path.dirname(e["name"]) for e in wanted} - {""})
    module.exit_json(changed=False, missing=missing, folders=folders)


if __name__ == "__main__":
    main()
