#!/usr/bin/python
# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: source_unpack
short_description: Unpack a verified source archive as a whole or not at all
version_added: "0.1.0"
author:
  - The cpufleet maintainers (@cpufleet)
description:
  - Verifies the archive, unpacks it beside O(dest) without its top folder, and renames the result into place.
    An interrupted unpacking leaves nothing at O(dest).
  - A tree that is there already is kept, with its edits and its compiled objects.
extends_documentation_fragment:
  - cpufleet.vllm.attributes
attributes:
  diff_mode:
    support: none
    details:
      - A source tree is too large to show.
options:
  src:
    description: The archive (C(.tar.gz)) on the host.
    type: path
    required: true
  sha256:
    description: Its digest.
    type: str
    required: true
  dest:
    description: The folder to make.
    type: path
    required: true
"""

EXAMPLES = r"""
- name: Unpack the source
  cpufleet.vllm.source_unpack:
    src: /opt/vllm/build/0123456789ab/source.tar.gz
    sha256: 0cafd6b3be45ede8f30b8c6dd70bc584f2d8d5d7e1098c3fdf6f5778237ac5fd
    dest: /opt/vllm/build/0123456789ab/source
"""

RETURN = r"""
files:
  description: How many files were unpacked.
  returned: always
  type: int
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._io import sha256_file
from ansible_collections.cpufleet.vllm.plugins.module_utils._unpack import unpack_tar


def unpack(src: str, sha256: str, dest: str) -> int:
    """Unpack ``src`` to ``dest`` and return the number of files."""
    found = sha256_file(src)
    if found != sha256:
        raise CpufleetError(
            f"Refused to unpack {src}: its SHA-256 is {found}, expected {sha256}", "Copy the file again", path=src
        )
    return unpack_tar(src, dest)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "src": {"type": "path", "required": True},
            "sha256": {"type": "str", "required": True},
            "dest": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    changed, count = not os.path.isdir(module.params["dest"]), 0
    try:
        if changed and not module.check_mode:
            count = unpack(module.params["src"], module.params["sha256"], module.params["dest"])
    except CpufleetError as error:
        module.fail_json(msg=str(error), **error.details)
    module.exit_json(changed=changed, files=count)


if __name__ == "__main__":
    main()
