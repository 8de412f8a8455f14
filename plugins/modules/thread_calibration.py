#!/usr/bin/python
# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: thread_calibration
short_description: Time how many threads a host computes fastest with
version_added: "0.1.0"
author:
  - The cpufleet maintainers (@cpufleet)
description:
  - Times with the torch of a release how fast 1, 2 and more threads read memory, as decoding does, and multiply
    matrices, as reading a prompt does. Takes some seconds and 256 MiB.
  - What a cloud calls a CPU is often half a core, whose second half gains nothing; what gains, timing tells.
  - The result is kept in O(memory) and taken from there as long as the CPUs are the same. Remove the file to time
    again.
  - Where other work takes part of the CPUs meanwhile, the timing says nothing, and O(planned) is the result; so it is,
    with a warning, where nothing can be timed.
extends_documentation_fragment:
  - cpufleet.vllm.attributes
attributes:
  check_mode:
    details:
      - Nothing is timed; the result is what is kept in O(memory), else O(planned).
  diff_mode:
    support: none
    details:
      - What was timed is in the result.
options:
  python:
    description: The Python of a release, which has torch.
    type: path
    required: true
  planned:
    description: The threads of the plan.
    type: int
    required: true
  usable:
    description: The most threads to time; control groups may grant less time than there are CPUs.
    type: int
    required: true
  memory:
    description: The file that keeps the result.
    type: path
    required: true
"""

EXAMPLES = r"""
- name: Time the threads
  cpufleet.vllm.thread_calibration:
    python: /opt/vllm/releases/0123456789ab/venv/bin/python
    planned: 2
    usable: 2
    memory: /opt/vllm/releases/0123456789ab/threads.json
  register: timed
"""

RETURN = r"""
threads:
  description: How many threads to compute with, and the evidence.
  returned: always
  type: dict
  contains:
    count:
      description: The threads.
      type: int
      sample: 2
    cpus:
      description: The CPUs that they are put on, one of every core first.
      type: list
      elements: int
      sample: [0, 1]
    planned:
      description: The threads of the plan.
      type: int
      sample: 2
    reason:
      description: Why so many, with the figures.
      type: str
      sample: "2, the fewest within 3 % of the best (1: 17.0 GB/s and 60 Gflop/s, 2: 33.0 GB/s and 118 Gflop/s)"
    rates:
      description: RV(threads.rates) has by kind of work (C(read), C(multiply)) and count GB/s and Gflop/s.
      type: dict
    key:
      description: What the result holds for.
      type: dict
"""

import json
import os
import subprocess
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._host_cpu import parse_cpu_list
from ansible_collections.cpufleet.vllm.plugins.module_utils._io import read_json, read_text, write_json
from ansible_collections.cpufleet.vllm.plugins.module_utils._threads import PROBE, choose_count, spread, steps

LONGEST_S = 180
SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


def describe_cpus(planned: int, usable: int) -> tuple[dict[str, Any], list[int]]:
    """Return what a result holds for, and the CPUs in the order in which threads are put on them."""
    allowed = sorted(os.sched_getaffinity(0))
    siblings = {number: parse_cpu_list(read_text(SIBLINGS.format(number), default="")) for number in allowed}
    names = [
        line.partition(":")[2].strip()
        for line in read_text("/proc/cpuinfo", default="").splitlines()
        if line.startswith("model name")
    ]
    return {"allowed": allowed, "usable": usable, "planned": planned, "model": names[0] if names else ""}, spread(
        allowed, siblings
    )


def time_threads(python: str, memory: str, order: list[int], counts: list[int]) -> dict[str, Any]:
    """Return what the probe tells."""
    remedy = f"The threads of the plan are taken; remove {memory} to try again"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "OMP_", "LD_PRELOAD"))}
    command = [python, "-c", PROBE, json.dumps([order, counts])]
    try:
        done = subprocess.run(  # noqa: S603 - the interpreter is the caller's own argument
            command, capture_output=True, text=True, check=True, env=kept, cwd="/", timeout=LONGEST_S
        )
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no message"])[-1]
        raise CpufleetError(f"Cannot time threads with {python}: {last}", remedy) from error
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        raise CpufleetError(f"Cannot time threads with {python}: {error}", remedy) from error
    return found


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "python": {"type": "path", "required": True},
            "planned": {"type": "int", "required": True},
            "usable": {"type": "int", "required": True},
            "memory": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    python, planned, usable, memory = (module.params[name] for name in ("python", "planned", "usable", "memory"))
    try:
        key, order = describe_cpus(planned, usable)
        kept = read_json(memory, default={})
        if isinstance(kept, dict) and kept.get("key") == key:
            module.exit_json(changed=False, threads=kept)
        most = min(usable, len(order))
        count, reason, rates = planned, f"{planned} as planned: not timed", {}
        if most > 1 and not module.check_mode:
            try:
                told = time_threads(python, memory, order[:most], steps(most))
                (count, reason), rates = choose_count(told, planned), told["rates"]
            except CpufleetError as error:
                module.warn(str(error))
        threads = {"count": count, "cpus": sorted(order[:count]), "planned": planned, "reason": reason}
        result = {**threads, "rates": rates, "key": key}
        if not module.check_mode:
            write_json(memory, result)
    except CpufleetError as error:
        module.fail_json(msg=str(error), **error.details)
    module.exit_json(changed=True, threads=result)


if __name__ == "__main__":
    main()
