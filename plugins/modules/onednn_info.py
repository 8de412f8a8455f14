#!/usr/bin/python
# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: onednn_info
short_description: Describe a source of oneDNN or of the Arm Compute Library for a vLLM build
version_added: "0.1.0"
author:
  - The cpufleet maintainers (@cpufleet)
description:
  - Tells the version and the digest of the library's source that a vLLM build is to take instead of the one it would
    clone, so that both can be part of the wheel's identity.
  - Addresses are told apart and not asked.
extends_documentation_fragment:
  - cpufleet.vllm.attributes.info
options:
  source:
    description:
      - An unpacked source, an archive of one (any that Python's tarfile reads) as a path or an address, or a git
        address, with C(#tag) behind it where it is not to be the tag that the release pins.
    type: path
    required: true
  library:
    description: Which library it is, V(onednn) or V(acl) (the Arm Compute Library).
    type: str
    choices: [onednn, acl]
    default: onednn
  sha256:
    description: The digest that the archive must have. Needed for an archive's address.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Describe an archive
  cpufleet.vllm.onednn_info:
    source: /srv/sources/onednn-3.10.tar.gz
"""

RETURN = r"""
onednn:
  description: The source.
  returned: success
  type: dict
  contains:
    kind:
      description: V(folder), V(archive) or V(git).
      type: str
    path:
      description: The folder or archive; empty for an address.
      type: str
    url:
      description: The address of the repository or archive; empty for what is here.
      type: str
    tag:
      description: The tag behind the git address, empty where there is none.
      type: str
    version:
      description: The version of the library; empty for an address, which is not asked.
      type: str
    sha256:
      description: The digest of the archive, or of the names and contents in the folder; empty for git.
      type: str
"""

import os
import tarfile
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._io import folder_contents, read_text, sha256_file
from ansible_collections.cpufleet.vllm.plugins.module_utils._onednn import (
    LIBRARIES,
    as_address,
    described,
    folder_digest,
    library_version,
)

TOP = "CMakeLists.txt"


def describe(source: str, library: str, sha256: str) -> dict[str, Any]:
    """Return the description of ``source``."""
    found = as_address(source, sha256, library)
    if found:
        return found
    path = os.path.abspath(source)
    if os.path.isdir(path):
        version = library_version(read_text(os.path.join(path, TOP), default=""), path, library)
        return described("folder", path, version, folder_digest(folder_contents(path)))
    if not os.path.isfile(path):
        raise CpufleetError(
            f"There is no source of {LIBRARIES[library][0]} at {path}", f"Check vllm_source_build_{library}", path=path
        )
    digest = sha256_file(path)
    if sha256 not in ("", digest):
        raise CpufleetError(
            f"Refused {path}: its SHA-256 is {digest}, expected {sha256}",
            f"Correct vllm_source_build_{library}_sha256 or the file",
            path=path,
        )
    return described("archive", path, library_version(top_file(path), path, library), digest)


def top_file(path: str) -> str:
    """Return the text of CMakeLists.txt in the archive's top folder, "" where there is none."""
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                if member.isfile() and member.name.strip("./").count("/") == 1 and member.name.endswith(f"/{TOP}"):
                    stream = archive.extractfile(member)
                    return stream.read().decode("utf-8", "replace") if stream else ""
    except (OSError, tarfile.TarError) as error:
        raise CpufleetError(f"Cannot read the archive {path}: {error}", "Copy the file again", path=path) from error
    return ""


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "source": {"type": "path", "required": True},
            "library": {"type": "str", "default": "onednn", "choices": ["onednn", "acl"]},
            "sha256": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    try:
        found = describe(module.params["source"], module.params["library"], module.params["sha256"])
    except CpufleetError as error:
        module.fail_json(msg=str(error), **error.details)
    module.exit_json(changed=False, onednn=found)


if __name__ == "__main__":
    main()
