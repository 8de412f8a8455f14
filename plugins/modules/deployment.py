#!/usr/bin/python
# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: deployment
short_description: Write a release's or deployment's folder, its manifest last
version_added: "0.1.0"
author:
  - The cpufleet maintainers (@cpufleet)
description:
  - Writes files into O(path) and then C(manifest.json). A folder with a manifest is therefore a whole one.
  - What else is in the folder stays.
extends_documentation_fragment:
  - cpufleet.vllm.attributes
options:
  path:
    description: The folder.
    type: path
    required: true
  manifest:
    description: The manifest; the digests of O(files) are added to it as C(files).
    type: dict
    required: true
  files:
    description: The files.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name relative to O(path).
        type: str
        required: true
      content:
        description: The text.
        type: str
        required: true
      mode:
        description: Permissions, as octal text.
        type: str
        default: "0644"
"""

EXAMPLES = r"""
- name: Write a release's manifest
  cpufleet.vllm.deployment:
    path: /opt/vllm/releases/0.6.5-0123456789ab
    manifest:
      version: 0.6.5
"""

RETURN = r"""
written:
  description: The files that were (or would be) written.
  returned: always
  type: list
  elements: str
"""

import json
import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._io import read_text, sha256_bytes, write_atomic


def wanted_files(parameters: dict[str, Any]) -> list[tuple[str, bytes, int]]:
    """Return (path, content, mode) in the order of writing, the manifest last."""
    found = []
    digests = {}
    for entry in parameters["files"]:
        content = entry["content"].encode()
        digests[entry["name"]] = sha256_bytes(content)
        found.append((os.path.join(parameters["path"], entry["name"]), content, int(entry["mode"], 8)))
    document = {**parameters["manifest"], "files": digests} if digests else parameters["manifest"]
    text = json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    return [*found, (os.path.join(parameters["path"], "manifest.json"), text.encode(), 0o644)]


def differs(path: str, content: bytes, mode: int) -> bool:
    """Return whether ``path`` has other bytes or permissions."""
    if not os.path.exists(path):
        return True
    return os.stat(path).st_mode & 0o777 != mode or read_text(path).encode("utf-8", "surrogateescape") != content


def main() -> None:
    """Run the module."""
    entry = {
        "name": {"type": "str", "required": True},
        "content": {"type": "str", "required": True},
        "mode": {"type": "str", "default": "0644"},
    }
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "manifest": {"type": "dict", "required": True},
            "files": {"type": "list", "elements": "dict", "default": [], "options": entry},
        },
        supports_check_mode=True,
    )
    try:
        stale = [item for item in wanted_files(module.params) if differs(*item)]
        diff = [
            {
                "before_header": path,
                "after_header": path,
                "before": read_text(path, default=""),
                "after": content.decode(),
            }
            for path, content, _mode in stale
        ]
        if stale and not module.check_mode:
            os.makedirs(module.params["path"], mode=0o755, exist_ok=True)
            for path, content, mode in stale:
                write_atomic(path, content, mode)
    except CpufleetError as error:
        module.fail_json(msg=str(error), **error.details)
    module.exit_json(changed=bool(stale), written=[path for path, _content, _mode in stale], diff=diff)


if __name__ == "__main__":
    main()
