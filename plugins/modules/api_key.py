#!/usr/bin/python
# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: api_key
short_description: Keep the API key of a service in files that only root reads
version_added: "0.1.0"
author:
  - The cpufleet maintainers (@cpufleet)
description:
  - Makes an API key when there is none, or keeps the one that is given, in O(path)/C(api_key), and as an environment
    file for systemd in O(path)/C(api_key.env). Both have mode 0600 from their first byte; the folder has 0700.
  - The key is in no result, diff or log.
extends_documentation_fragment:
  - cpufleet.vllm.attributes
attributes:
  diff_mode:
    support: none
    details:
      - A secret is not shown.
options:
  path:
    description: The folder.
    type: path
    required: true
  value:
    description: The key; one is made when this is empty and none is there.
    type: str
  variable:
    description: The environment variable that the service reads.
    type: str
    default: VLLM_API_KEY
"""

EXAMPLES = r"""
- name: Make an API key
  cpufleet.vllm.api_key:
    path: /opt/vllm/secrets
"""

RETURN = r"""
api_key_file:
  description: The file that holds the key.
  returned: always
  type: str
environment_file:
  description: The environment file for systemd.
  returned: always
  type: str
"""

import os
import re
import secrets

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._io import read_text, write_atomic

FILE_MODE = 0o600
FOLDER_MODE = 0o700
# What RFC 6750 lets a Bearer token hold; all of it stands unquoted in an environment file.
TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")


def mode_of(path: str) -> int:
    """Return the permission bits of ``path``, -1 where it is missing."""
    return os.stat(path).st_mode & 0o777 if os.path.exists(path) else -1


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "value": {"type": "str", "no_log": True},
            "variable": {"type": "str", "default": "VLLM_API_KEY"},
        },
        supports_check_mode=True,
    )
    folder = module.params["path"]
    raw, environment = os.path.join(folder, "api_key"), os.path.join(folder, "api_key.env")
    try:
        old = read_text(raw, default="").strip()
        key = module.params["value"] or old or secrets.token_urlsafe(32)
        if not TOKEN.fullmatch(key):
            raise CpufleetError(
                "The API key holds a character that no Bearer token may hold",
                "Use letters, digits and the characters - . _ ~ + / = only",
            )
        wanted = {raw: f"{key}\n", environment: f"{module.params['variable']}={key}\n"}
        stale = [p for p, text in wanted.items() if read_text(p, default="") != text or mode_of(p) != FILE_MODE]
        changed = bool(stale) or mode_of(folder) != FOLDER_MODE
        if changed and not module.check_mode:
            os.makedirs(folder, mode=FOLDER_MODE, exist_ok=True)
            os.chmod(folder, FOLDER_MODE)
            for path in stale:
                write_atomic(path, wanted[path].encode(), FILE_MODE)
    except CpufleetError as error:
        module.fail_json(msg=str(error), **error.details)
    module.exit_json(changed=changed, api_key_file=raw, environment_file=environment)


if __name__ == "__main__":
    main()
