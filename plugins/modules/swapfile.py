#!/usr/bin/python
# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: swapfile
short_description: Manage a swap file, active now and at boot
version_added: "0.1.0"
description:
  - Creates, grows, shrinks, adopts or removes one swap file and its entry in C(/etc/fstab).
  - A file in use is resized behind a second one, so that there is never less swap than before. After an interruption at
    any point the next run goes on from what it finds, and after a failure what there was before is brought back.
  - The file has no holes, is readable by root only from its first byte, and is formatted only when it is complete.
  - Other swap (partitions, compressed memory, other files) and other lines of fstab are never touched.
  - Whether the kernel accepts a swap file is found by trying with 1 MiB. Where it refuses, as in many containers,
    nothing is changed and RV(action) is V(skipped).
  - Needs root, C(mkswap) of util-linux, and a Linux kernel.
author:
  - The cpufleet maintainers (@cpufleet)
extends_documentation_fragment:
  - cpufleet.vllm.attributes
attributes:
  check_mode:
    details:
      - Whether the kernel accepts a swap file is not tried in check mode.
options:
  path:
    description:
      - The swap file. Its folder must exist, on a local disk.
      - While the file is made or resized there is a second one next to it, with C(.cpufleet-new) added to its name.
    type: path
    default: /swapfile
  size:
    description:
      - Size of the file, as a number of MiB or with a unit (V(8G), V(8192M), V(8192),
        V(8589934592B)), rounded up to MiB.
      - With V(auto) the file is as large as RAM and other swap on disk lack to O(auto_total). It is never shrunk then.
        Compressed memory (zram) does not count.
      - With V(0) no swap file is needed, and one that is there is left alone.
    type: str
    default: auto
  auto_total:
    description:
      - What RAM and swap together must reach when O(size=auto).
    type: str
    default: 8G
  state:
    description:
      - V(absent) removes the file and its entry in fstab, if this module made or adopted the file. Others are left
        alone.
    type: str
    choices: [present, absent]
    default: present
  priority:
    description:
      - Priority of the swap file, from 0 to 32767. The kernel chooses one when this is left out.
    type: int
  fstab:
    description:
      - Whether to keep the file's entry in C(/etc/fstab).
    type: bool
    default: true
  activate:
    description:
      - Whether to activate the file now. With V(false) a new file is only made ready for the next boot, as when an
        image is baked.
    type: bool
    default: true
  unfit:
    description:
      - What to do where the filesystem of O(path) cannot hold a swap file, such as zfs, overlay, tmpfs or a network
        filesystem.
      - With V(skip) nothing is changed and RV(action) is V(skipped).
    type: str
    choices: [fail, skip]
    default: fail
notes:
  - Two runs on one folder wait for each other.
"""

EXAMPLES = r"""
- name: Have 8 GiB of swap
  cpufleet.vllm.swapfile:
    size: 8G

- name: Have what this host lacks to 16 GiB of RAM and swap, on the data disk
  cpufleet.vllm.swapfile:
    path: /data/swapfile
    auto_total: 16G

- name: Remove the swap file again
  cpufleet.vllm.swapfile:
    state: absent
"""

RETURN = r"""
action:
  description:
    - What was done, or would be done in check mode.
    - V(created), V(grown), V(shrunk), V(removed) and V(none) say what they mean.
    - V(adopted) is an existing swap file that was put in order (active, mode, priority, fstab) without resizing.
    - V(finished) is work that an interrupted run had begun.
    - V(replaced) is a file that was no usable swap file, such as one with holes.
    - V(skipped) is swap that cannot be had here; RV(reason) says why.
  returned: success
  type: str
  sample: created
reason:
  description: Why RV(action) is what it is.
  returned: success
  type: str
  sample: "/swapfile was created with 8.0 GiB"
size_bytes:
  description: Size of the swap file now, V(0) without one.
  returned: success
  type: int
  sample: 8589934592
previous_bytes:
  description: Size before, V(0) without one.
  returned: success
  type: int
  sample: 0
file:
  description: The swap file, links in its folder resolved.
  returned: success
  type: str
  sample: /swapfile
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._sizes import human
from ansible_collections.cpufleet.vllm.plugins.module_utils._swap_host import SwapHost, SwapRefusedError
from ansible_collections.cpufleet.vllm.plugins.module_utils._swap_plan import (
    SwapPlan,
    plan_absent,
    plan_present,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._swap_types import (
    SwapRequest,
    SwapState,
    parse_size,
)

MAX_PRIORITY = 32767


def request_of(params: dict[str, Any], path: str) -> SwapRequest:
    priority = params["priority"]
    if priority is not None and not 0 <= priority <= MAX_PRIORITY:
        raise CpufleetError(f"The swap priority {priority} is out of range", f"Use a number from 0 to {MAX_PRIORITY}")
    return SwapRequest(
        path=path,
        size_bytes=None if params["size"] == "auto" else parse_size(params["size"]),
        auto_total=parse_size(params["auto_total"]),
        priority=priority,
        fstab=params["fstab"],
        activate=params["activate"],
        skip_unfit=params["unfit"] == "skip",
    )


def make_plan(state_wanted: str, request: SwapRequest, state: SwapState) -> SwapPlan:
    return plan_absent(request, state) if state_wanted == "absent" else plan_present(request, state)


def carry_out(host: SwapHost, wanted: str, request: SwapRequest) -> tuple[SwapPlan, SwapState]:
    """Plan anew behind the lock, apply, and look again: what is left to do then is a failure."""
    host.lock()
    before = host.read()
    plan = make_plan(wanted, request, before)
    host.apply(plan, before)
    left = make_plan(wanted, request, host.read())
    if left.changed:
        raise CpufleetError(
            f"{request.path} is not as it should be after all steps were done: {left.reason}",
            "Look at /proc/swaps and fstab, then run again",
            path=request.path,
        )
    return plan, before


def difference(plan: SwapPlan, state: SwapState, fstab: str) -> list[dict[str, str]]:
    path = state.target.path
    parts = [
        {
            "before_header": path,
            "after_header": path,
            "before": f"swap file of {human(plan.previous_bytes)}\n" if plan.previous_bytes else "",
            "after": f"swap file of {human(plan.size_bytes)}\n" if plan.size_bytes else "",
        }
    ]
    if plan.fstab != state.fstab:
        parts.append({"before_header": fstab, "after_header": fstab, "before": state.fstab, "after": plan.fstab})
    return parts


def run(module: AnsibleModule) -> dict[str, Any]:
    host = SwapHost(module.params["path"], module.log)
    if os.geteuid() != 0:
        raise CpufleetError(f"Cannot manage {host.path}: root is needed", "Add become: true", path=host.path)
    request = request_of(module.params, host.path)
    host.priority = request.priority
    state = host.read()
    plan = make_plan(module.params["state"], request, state)
    action, reason, changed = plan.action, plan.reason, plan.changed
    if plan.changed and not module.check_mode:
        try:
            plan, state = carry_out(host, module.params["state"], request)
            action, reason, changed = plan.action, plan.reason, plan.changed
        except SwapRefusedError as error:
            action, reason, changed = "skipped", str(error), False
    return {
        "changed": changed,
        "action": action,
        "reason": reason,
        "file": host.path,
        "previous_bytes": plan.previous_bytes,
        "size_bytes": plan.previous_bytes if action == "skipped" else plan.size_bytes,
        **({"diff": difference(plan, state, host.fstab)} if changed else {}),
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "default": "/swapfile"},
            "size": {"type": "str", "default": "auto"},
            "auto_total": {"type": "str", "default": "8G"},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "priority": {"type": "int"},
            "fstab": {"type": "bool", "default": True},
            "activate": {"type": "bool", "default": True},
            "unfit": {"type": "str", "choices": ["fail", "skip"], "default": "fail"},
        },
        supports_check_mode=True,
    )
    try:
        result = run(module)
    except CpufleetError as error:
        module.fail_json(msg=str(error), **error.details)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
