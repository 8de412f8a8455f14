# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Count what a run with nothing to do costs: module executions and seconds, for each host.

    python benchmarks/no_change_run.py [--most-executions N] [--most-seconds N] -i INVENTORY [MORE]

Ansible says "Using module file" at verbosity 3 once for every module it executes, whoever asked for it. The inventory's
hosts must have been converged before; the script fails when anything changed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
EXECUTION = re.compile(r"^(?:<[^>]*> )?Using module file .*/(\w+)\.py$", re.MULTILINE)
RECAP = re.compile(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.MULTILINE)


def measure(arguments: list[str], playbook: str = "playbooks/site.yml") -> dict[str, object]:
    """Run the playbook once and return seconds, executions by module, and the recap by host."""
    started = time.monotonic()
    command = ["ansible-playbook", "-vvv", str(REPOSITORY / playbook), *arguments]
    # Molecule sends to the other stream what is counted here.
    plain = {**os.environ, "ANSIBLE_FORCE_COLOR": "0", "ANSIBLE_NOCOLOR": "1", "ANSIBLE_VERBOSE_TO_STDERR": "0"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY, env=plain)
    seconds = round(time.monotonic() - started, 1)
    executions = Counter(EXECUTION.findall(done.stdout))
    recap = {host: list(map(int, numbers)) for host, *numbers in RECAP.findall(done.stdout)}
    if len(recap) > 1:  # the controller only looked whether there are hosts
        recap.pop("localhost", None)
    output = done.stdout[-4000:] + done.stderr[-4000:]
    return {
        "seconds": seconds,
        "executions": dict(executions),
        "recap": recap,
        "status": done.returncode,
        "output": output,
    }


def main() -> int:
    """Print the figures; the last line is JSON. The limits are for each host."""
    parser = argparse.ArgumentParser(prog="benchmarks/no_change_run.py")
    parser.add_argument("--most-executions", type=int, default=0)
    parser.add_argument("--most-seconds", type=float, default=0)
    limits, arguments = parser.parse_known_args()
    result = measure(arguments)
    recap, executions = result["recap"], result["executions"]
    if result["status"] or not recap or any(sum(numbers) for numbers in recap.values()):
        print(f"{result['output']}\nno_change_run: the run failed or changed something: {recap}")
        return 1
    total = sum(executions.values())
    if not total:
        print(f"{result['output']}\nno_change_run: no execution was seen in the output, so none can be counted")
        return 1
    for module, count in sorted(executions.items(), key=lambda item: -item[1]):
        print(f"{count:4} {module}")
    print(f"{total} module executions on {len(recap)} host(s) in {result['seconds']} s")
    print(json.dumps({"executions": total, "hosts": len(recap), "seconds": result["seconds"]}))
    slow = limits.most_seconds and result["seconds"] > limits.most_seconds * len(recap)
    many = limits.most_executions and total > limits.most_executions * len(recap)
    if slow or many:
        print(f"no_change_run: more than {limits.most_executions} executions or {limits.most_seconds} s a host")
    return 1 if slow or many else 0


if __name__ == "__main__":
    sys.exit(main())
