#!/usr/bin/python
# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: git_checkout
short_description: Put the files of one commit into a folder, over a bad link
version_added: "0.1.0"
author:
  - The cpufleet maintainers (@cpufleet)
description:
  - Fetches one commit, without its history, from the first of several addresses that has it, and puts its files into
    O(dest) as a whole or not at all. There is no repository in that folder.
  - A fetch that is cut is tried again. After a cut the files come in batches, so that a further cut costs one batch,
    and what came is kept for the next run.
  - A folder that is there already is kept as it is.
extends_documentation_fragment:
  - cpufleet.vllm.attributes
attributes:
  diff_mode:
    support: none
    details:
      - A source tree is too large to show.
requirements:
  - git 2.31
options:
  urls:
    description:
      - The addresses of the repository, in the order of asking. One that does not answer, lacks the reference, or has
        it at another commit than O(commit), is passed over.
    type: list
    elements: str
    required: true
  ref:
    description: A tag, a branch, or a commit by all its digits.
    type: str
    required: true
  commit:
    description: The commit that it must be.
    type: str
    default: ""
  dest:
    description: The folder to make.
    type: path
    required: true
  instead_of:
    description: What git is to put in place of the beginning of an address, as C(insteadOf) does.
    type: dict
    default: {}
  named_by:
    description: What messages tell the user to check, such as the names of variables.
    type: str
    default: ref, commit and urls
  timeout:
    description: Seconds without a byte after which a fetch is tried again.
    type: int
    default: 60
"""

EXAMPLES = r"""
- name: Put oneDNN where the build will look for it
  cpufleet.vllm.git_checkout:
    urls:
      - https://git.example.com/mirrors/oneDNN.git
      - https://github.com/oneapi-src/oneDNN.git
    ref: v3.10
    dest: /opt/vllm/build/0123456789ab/onednn
"""

RETURN = r"""
url:
  description: The address that had it; empty where nothing was fetched.
  returned: success
  type: str
commit:
  description: The commit; empty where nothing was fetched.
  returned: success
  type: str
"""

import os
import shutil

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.cpufleet.vllm.plugins.module_utils._download import check_address
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._git import Repository
from ansible_collections.cpufleet.vllm.plugins.module_utils._source_git import Found, Wish
from ansible_collections.cpufleet.vllm.plugins.module_utils._unpack import unpack_tar


def checkout(module: AnsibleModule) -> Found:
    """Make the folder and return what was fetched."""
    dest, wish = module.params["dest"], wished(module)
    store = dest + ".git"
    repository = Repository(store, module.params["instead_of"], module.params["timeout"], "the host")
    found = repository.fetch(wish)
    export = dest + ".tar"
    try:
        repository.export(found.commit, export, "tree")
        unpack_tar(export, dest)
    finally:
        if os.path.exists(export):
            os.unlink(export)
    shutil.rmtree(store, ignore_errors=True)
    return found


def wished(module: AnsibleModule) -> Wish:
    """Return what to fetch."""
    for url in module.params["urls"]:
        check_address(url, module.params["named_by"])
    urls, ref, commit, named_by = (module.params[key] for key in ("urls", "ref", "commit", "named_by"))
    return Wish(tuple(urls), ref, commit, named_by)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "urls": {"type": "list", "elements": "str", "required": True},
            "ref": {"type": "str", "required": True},
            "commit": {"type": "str", "default": ""},
            "dest": {"type": "path", "required": True},
            "instead_of": {"type": "dict", "default": {}},
            "named_by": {"type": "str", "default": "ref, commit and urls"},
            "timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    changed, url, commit = not os.path.isdir(module.params["dest"]), "", ""
    try:
        if changed and not module.check_mode:
            found = checkout(module)
            url, commit = found.url, found.commit
    except CpufleetError as error:
        module.fail_json(msg=str(error), **error.details)
    module.exit_json(changed=changed, url=url, commit=commit)


if __name__ == "__main__":
    main()
