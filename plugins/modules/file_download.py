#!/usr/bin/python
# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: file_download
short_description: Download a file of known digest, over a bad link
version_added: "0.1.0"
author:
  - The cpufleet maintainers (@cpufleet)
description:
  - Downloads a file from the first of several addresses that serves it whole and with the right digest. A download that
    is cut goes on where it was, also in the next run.
  - M(ansible.builtin.get_url) starts anew after a cut and knows one address only.
extends_documentation_fragment:
  - cpufleet.vllm.attributes
  - cpufleet.vllm.options.download
attributes:
  diff_mode:
    support: none
    details:
      - The digest says everything.
options:
  urls:
    description: The addresses, in the order of asking. One that fails or serves other bytes is passed over.
    type: list
    elements: str
    required: true
  sha256:
    description: The digest that the file must have.
    type: str
    required: true
  dest:
    description: The file to make. One with another digest is replaced.
    type: path
    required: true
"""

EXAMPLES = r"""
- name: Download an archive of oneDNN
  cpufleet.vllm.file_download:
    urls:
      - https://files.example.com/onednn-3.10.tar.gz
    sha256: 0cafd6b3be45ede8f30b8c6dd70bc584f2d8d5d7e1098c3fdf6f5778237ac5fd
    dest: /opt/vllm/cache/onednn-3.10.tar.gz
"""

RETURN = r"""
url:
  description: The address that had it; empty where nothing was downloaded.
  returned: success
  type: str
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.cpufleet.vllm.plugins.module_utils._download import check_address, download, locked
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._io import sha256_file


def fetch(module: AnsibleModule) -> str:
    """Make the file and return the address that had it, "" where it came in the meantime."""
    dest, sha256, urls = (module.params[key] for key in ("dest", "sha256", "urls"))
    for url in urls:
        check_address(url, "urls")
    folder = os.path.dirname(dest)
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise CpufleetError(f"Cannot make {folder}: {error.strerror}", path=folder) from error
    with locked(folder):
        if there(dest, sha256):
            return ""
        url = download(urls, dest + ".part", sha256, module.params["timeout"], "this machine")
        # Whatever the umask: it is read by the users of services.
        os.chmod(dest + ".part", 0o644)
        os.replace(dest + ".part", dest)
    return url


def there(dest: str, sha256: str) -> bool:
    """Return whether the file is there already."""
    return os.path.isfile(dest) and sha256_file(dest) == sha256


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "urls": {"type": "list", "elements": "str", "required": True},
            "sha256": {"type": "str", "required": True},
            "dest": {"type": "path", "required": True},
            "timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    url = ""
    try:
        changed = not there(module.params["dest"], module.params["sha256"])
        if changed and not module.check_mode:
            url = fetch(module)
    except CpufleetError as error:
        module.fail_json(msg=str(error), **error.details)
    module.exit_json(changed=changed, url=url)


if __name__ == "__main__":
    main()
