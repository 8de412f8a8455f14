#!/usr/bin/python
# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: bundle_manifest
short_description: Write the manifest and the bill of materials of a bundle
version_added: "0.1.0"
author:
  - The cpufleet maintainers (@cpufleet)
description:
  - Lists every file of a bundle with size, SHA-256, source and licence, in C(manifest.json) for installing from it and
    in C(bom.cdx.json), which is CycloneDX.
  - The same files and facts give the same two documents.
extends_documentation_fragment:
  - cpufleet.vllm.attributes
attributes:
  diff_mode:
    support: none
    details:
      - The documents are long; RV(bundle.id) says whether they are the same.
requirements:
  - cyclonedx-python-lib >= 11.6
options:
  path:
    description: The folder of the bundle.
    type: path
    required: true
  facts:
    description: What the manifest says about the bundle as a whole. C(version) is the release of vLLM.
    type: dict
    required: true
  packed:
    description: The files in the packed archive, as RV(cpufleet.vllm.bundle_pack#module:files).
    type: list
    elements: dict
    required: true
  sources:
    description: By the beginning of a path, C(source) and C(licence) of the files that lie in the bundle as they are.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Write the manifest
  cpufleet.vllm.bundle_manifest:
    path: /srv/bundles/vllm-0.6.5
    facts:
      version: 0.6.5
    packed: "{{ packed.files }}"
    sources:
      source/:
        source: pkg:pypi/vllm@0.6.5
        licence: Apache-2.0
"""

RETURN = r"""
bundle:
  description: The manifest, without its files.
  returned: success
  type: dict
  contains:
    id:
      description: The digest over the facts and all files.
      type: str
files:
  description: How many files it lists.
  returned: success
  type: int
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule, missing_required_lib
from ansible_collections.cpufleet.vllm.plugins.module_utils._bundle import bundle_manifest
from ansible_collections.cpufleet.vllm.plugins.module_utils._bundle_bom import MISSING, bill_of_materials
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._files import digest_files, list_files
from ansible_collections.cpufleet.vllm.plugins.module_utils._io import read_json, read_text, write_atomic, write_json

MANIFEST = "manifest.json"
BILL = "bom.cdx.json"
MODE = 0o644
UNKNOWN = {"source": "", "licence": "NOASSERTION"}


def plain_files(path: str, sources: dict[str, dict[str, str]]) -> list[dict[str, Any]]:
    """Return the entries of the files that lie in the bundle as they are."""
    entries = []
    there = {name: status for name, status in list_files(path).items() if name not in (MANIFEST, BILL)}
    for found in digest_files(path, there, ""):
        known = [start for start in sources if found["name"].startswith(start)]
        facts = sources[max(known, key=len)] if known else UNKNOWN
        shape = {"path": found["name"], "name": os.path.basename(found["name"]), "version": "", **UNKNOWN, **facts}
        entries.append({**shape, "size": found["size"], "sha256": found["sha256"]})
    return entries


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "facts": {"type": "dict", "required": True},
            "packed": {"type": "list", "elements": "dict", "required": True},
            "sources": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    if MISSING:
        module.fail_json(msg=missing_required_lib("cyclonedx-python-lib"), exception=MISSING)
    path, packed = module.params["path"], module.params["packed"]
    try:
        inside = [{**file, "path": f"packages.tar/{file['path']}"} for file in packed]
        manifest = bundle_manifest(module.params["facts"], inside + plain_files(path, module.params["sources"]))
        bill = bill_of_materials(manifest)
        paths = os.path.join(path, MANIFEST), os.path.join(path, BILL)
        changed = read_json(paths[0], default={}) != manifest or read_text(paths[1], default="") != bill
        if changed and not module.check_mode:
            write_atomic(paths[1], bill.encode(), MODE)
            # Last, since it says that the rest is whole.
            write_json(paths[0], manifest, MODE)
    except CpufleetError as error:
        module.fail_json(msg=str(error), **error.details)
    short = {key: value for key, value in manifest.items() if key != "files"}
    module.exit_json(changed=changed, bundle=short, files=len(manifest["files"]))


if __name__ == "__main__":
    main()
