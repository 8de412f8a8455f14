#!/usr/bin/python
# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: model_info
short_description: Describe a folder with a language model
version_added: "0.1.0"
author:
  - The cpufleet maintainers (@cpufleet)
description:
  - Reads C(config.json), the file sizes and the heads of the weights of a model folder, and makes the SHA-256 manifest
    of its files. A GGUF is told by its first bytes, whatever it is called.
  - Digests of files whose size and modification time did not change since the last call are taken from O(cache).
extends_documentation_fragment:
  - cpufleet.vllm.attributes
  - cpufleet.vllm.attributes.info
options:
  path:
    description: The model folder.
    type: path
    required: true
  digests:
    description: Whether to make the SHA-256 manifest.
    type: bool
    default: true
  cache:
    description:
      - A folder for remembered digests, made when it is missing.
      - Without it every file is read on every call.
    type: path
"""

EXAMPLES = r"""
- name: Describe a model folder
  cpufleet.vllm.model_info:
    path: /srv/models/SmolLM2-135M-Instruct
  register: described
"""

RETURN = r"""
model:
  description: What the folder holds.
  returned: always
  type: dict
  contains:
    path:
      description: The folder.
      type: str
    architecture:
      description: The first architecture that C(config.json) names.
      type: str
    model_type:
      description: The model type of C(config.json).
      type: str
    dtype:
      description: The number format of the weights.
      type: str
    context:
      description: The longest context in tokens, 0 where the file does not say.
      type: int
    weights_bytes:
      description: The size of the weights.
      type: int
    kv_bytes_per_token:
      description: What one token takes in the KV cache.
      type: int
    chat_template:
      description: Whether the folder has a chat template.
      type: bool
    problems:
      description: Why the folder cannot be served; empty when it can.
      type: list
      elements: str
    candidates:
      description:
        - What a service can be planned from, the weights beside C(config.json) and every GGUF with the true sizes that
          their heads tell.
        - Empty where they cannot be read, and in a folder with RV(model.problems).
      type: list
      elements: dict
    files:
      description: Name, size and SHA-256 of each file, sorted by name.
      type: list
      elements: dict
    sha256:
      description: The digest over RV(model.files).
      type: str
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._files import digest_files, list_files
from ansible_collections.cpufleet.vllm.plugins.module_utils._identity import digest
from ansible_collections.cpufleet.vllm.plugins.module_utils._model_read import describe_folder


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "digests": {"type": "bool", "default": True},
            "cache": {"type": "path"},
        },
        supports_check_mode=True,
    )
    path = module.params["path"]
    try:
        files = list_files(path)
        model = describe_folder(path, {name: status.st_size for name, status in files.items()})
        cache = "" if module.check_mode else module.params["cache"]
        memory = os.path.join(cache, digest(os.path.realpath(path))[:16] + ".json") if cache else ""
        wanted = module.params["digests"] and not model["problems"]
        entries = digest_files(path, files, memory) if wanted else []
    except CpufleetError as error:
        module.fail_json(msg=str(error), **error.details)
    module.exit_json(changed=False, model=dict(model, files=entries, sha256=digest(entries) if entries else ""))


if __name__ == "__main__":
    main()
