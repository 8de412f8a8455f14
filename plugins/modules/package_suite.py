#!/usr/bin/python
# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: package_suite
short_description: Offer another suite of a Debian host's own archive, pinned low
version_added: "0.1.0"
author:
  - The cpufleet maintainers (@cpufleet)
description:
  - Writes a source file and a preferences file for another suite, with its updates and security suites as far as the
    host has those of its own. The address of the archive and its key are those of the host's own source files, so that
    a mirror stays the mirror.
  - Nothing is installed from that suite unless it is asked for by name, and then only what that needs.
  - Both files are of this module alone; no other file is touched.
extends_documentation_fragment:
  - cpufleet.vllm.attributes
options:
  suite:
    description: The codename of the suite.
    type: str
    required: true
  state:
    description: Whether the suite is to be offered. What was installed from it stays.
    type: str
    choices: [present, absent]
    default: present
"""

EXAMPLES = r"""
- name: Offer the packages of Debian 13 to a Debian 12
  cpufleet.vllm.package_suite:
    suite: trixie

- name: Offer them no longer
  cpufleet.vllm.package_suite:
    suite: trixie
    state: absent
"""

RETURN = r"""
files:
  description: The files that were written or removed, or would be.
  returned: success
  type: list
  elements: str
  sample: [/etc/apt/sources.list.d/cpufleet-trixie.sources, /etc/apt/preferences.d/cpufleet-trixie]
"""

import glob
import os
import re

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.cpufleet.vllm.plugins.module_utils._apt_suite import (
    parse_entries,
    preferences_text,
    second_suite,
    sources_text,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._io import read_text, write_atomic

APT = "/etc/apt"


def own_codename() -> str:
    """Return the codename of the running distribution."""
    match = re.search(r'^VERSION_CODENAME="?([\w-]+)', read_text("/etc/os-release", default=""), re.MULTILINE)
    return match[1] if match else ""


def wanted_files(suite: str, pin: str, sources: str) -> dict[str, str]:
    """Return the text of the files ``pin`` and ``sources`` by path."""
    places = [f"{APT}/sources.list", *glob.glob(f"{APT}/sources.list.d/*.list")]
    places += [path for path in glob.glob(f"{APT}/sources.list.d/*.sources") if path != sources]
    entries = parse_entries({path: read_text(path, default="") for path in places})
    offered = second_suite(entries, own_codename(), suite)
    return {pin: preferences_text(offered), sources: sources_text(offered)}


def carry_out(changed: dict[str, str]) -> None:
    """Write or remove the files so that the suite is never offered without its pin: ``changed`` has the pin first."""
    for path, text in changed.items():
        if text:
            write_atomic(path, text.encode(), 0o644)
    for path, text in reversed(list(changed.items())):
        if not text:
            os.unlink(path)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "suite": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        },
        supports_check_mode=True,
    )
    suite, present = module.params["suite"], module.params["state"] == "present"
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", suite):
        module.fail_json(msg=f"{suite!r} is no codename of a suite. Name one such as trixie.")
    pin, sources = f"{APT}/preferences.d/cpufleet-{suite}", f"{APT}/sources.list.d/cpufleet-{suite}.sources"
    before = {path: read_text(path, default="") for path in (pin, sources)}
    try:
        after = wanted_files(suite, pin, sources) if present else dict.fromkeys(before, "")
        changed = {path: text for path, text in after.items() if before[path] != text}
        if not module.check_mode:
            carry_out(changed)
    except CpufleetError as error:
        module.fail_json(msg=str(error), **error.details)
    diff = [
        {"before_header": path, "after_header": path, "before": before[path], "after": text}
        for path, text in changed.items()
    ]
    module.exit_json(changed=bool(changed), files=sorted(changed), diff=diff)


if __name__ == "__main__":
    main()
