#!/usr/bin/python
# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: dependency_lock
short_description: Resolve requirements once into a hashed lock
version_added: "0.1.0"
author:
  - The cpufleet maintainers (@cpufleet)
description:
  - Resolves requirement lines with uv, as of a date where the index gives dates, into a file with SHA-256 digests.
  - A lock that was resolved from the same request is kept as it is, also when newer packages have been published since.
extends_documentation_fragment:
  - cpufleet.vllm.attributes
  - cpufleet.vllm.options.packages
options:
  dest:
    description: The lock file.
    type: path
    required: true
  uv:
    description: The uv command.
    type: path
    required: true
  requirements:
    description: Requirement lines.
    type: list
    elements: str
    required: true
  overrides:
    description: Requirement lines that replace every other demand for the same package.
    type: list
    elements: str
    default: []
  exclude:
    description: Names of packages that must not be in the lock whoever asks for them.
    type: list
    elements: str
    default: []
  python_version:
    description: The Python version to resolve for.
    type: str
    required: true
  exclude_newer:
    description: The last day (YYYY-MM-DD) whose uploads count; no limit when empty.
    type: str
    default: ""
  undated:
    description: Names of packages that come from an index without upload times.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Lock the dependencies of a release
  cpufleet.vllm.dependency_lock:
    dest: /opt/vllm/locks/0.6.5.txt
    uv: /opt/vllm/tools/uv/bin/uv
    requirements:
      - aiohttp
    overrides:
      - numpy<2
    python_version: "3.11"
    exclude_newer: "2024-12-25"
"""

RETURN = r"""
lock:
  description: The lock.
  returned: always
  type: dict
  contains:
    path:
      description: The lock file.
      type: str
    sha256:
      description: The digest of the lock file, empty where check mode could not resolve it.
      type: str
    versions:
      description: Version by package name.
      type: dict
"""

import http.client
import os
import tempfile

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import open_url
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._io import (
    make_temporary_folder,
    read_text,
    sha256_bytes,
    write_atomic,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._lock import (
    LockRequest,
    compile_arguments,
    complete_hashes,
    locked_versions,
    override_lines,
    recorded_inputs,
    with_inputs,
)

LISTS = ("requirements", "overrides", "exclude", "undated", "find_links", "index_urls")


def resolve(module: AnsibleModule, request: LockRequest) -> str:
    """Return the text of the lock that uv resolves for ``request``."""
    make_temporary_folder()
    with tempfile.TemporaryDirectory(prefix="cpufleet-lock-") as folder:
        requirements, overrides, output = (os.path.join(folder, name) for name in ("in.txt", "override.txt", "out.txt"))
        write_atomic(requirements, ("\n".join(request.requirements) + "\n").encode())
        write_atomic(overrides, ("\n".join(override_lines(request)) + "\n").encode())
        command = [module.params["uv"], *compile_arguments(request, requirements, overrides, output)]
        status, _out, error = module.run_command(command, cwd=folder)
        if status:
            raise CpufleetError(
                f"Cannot resolve the dependencies into {module.params['dest']}: {error.strip()[-2000:]}",
                "Check that this host reaches the package index and the PyTorch CPU index or wheel folder",
                command=command,
            )
        pages = [fetch_page(place) for place in request.find_links if place.startswith("http")]
        return with_inputs(complete_hashes(read_text(output), pages), request)


def fetch_page(url: str) -> str:
    """Return the text of a page of links."""
    try:
        return str(open_url(url, timeout=60).read().decode("utf-8", "replace"))
    except (OSError, http.client.HTTPException) as error:
        raise CpufleetError(f"Cannot read the page of links {url}: {error}", "Check torch_cpu_find_links") from error


def pins(text: str) -> str:
    """Return one line a package: the digests of a lock are not for reading."""
    return "".join(f"{name}=={version}\n" for name, version in sorted(locked_versions(text).items()))


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "dest": {"type": "path", "required": True},
            "uv": {"type": "path", "required": True},
            "requirements": {"type": "list", "elements": "str", "required": True},
            "overrides": {"type": "list", "elements": "str", "default": []},
            "exclude": {"type": "list", "elements": "str", "default": []},
            "python_version": {"type": "str", "required": True},
            "exclude_newer": {"type": "str", "default": ""},
            "undated": {"type": "list", "elements": "str", "default": []},
            "find_links": {"type": "list", "elements": "str", "default": []},
            "index_urls": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    dest = module.params["dest"]
    request = LockRequest(
        python_version=module.params["python_version"],
        exclude_newer=module.params["exclude_newer"],
        **{name: tuple(module.params[name]) for name in LISTS},
    )
    old = read_text(dest, default="")
    try:
        changed = recorded_inputs(old) != request.inputs()
        text = old
        if changed and not module.check_mode:
            text = resolve(module, request)
            os.makedirs(os.path.dirname(dest), mode=0o755, exist_ok=True)
            write_atomic(dest, text.encode(), 0o644)
    except CpufleetError as error:
        module.fail_json(msg=str(error), **error.details)
    known = not changed or not module.check_mode
    lock = {
        "path": dest,
        "sha256": sha256_bytes(text.encode()) if known else "",
        "versions": locked_versions(text) if known else {},
    }
    module.exit_json(changed=changed, lock=lock, diff={"before": pins(old), "after": pins(text) if known else ""})


if __name__ == "__main__":
    main()
