# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Time the planning of a fleet: every host's plan and the table; exits 1 where it takes LIMIT_S or longer.

Usage: python benchmarks/plan.py [HOSTS].

Compares with one host, so that the ratio tells whether a host more costs one host.
"""

from __future__ import annotations

import copy
import json
import sys
import time
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / ".ansible" / "collections"))

from ansible_collections.cpufleet.vllm.plugins.filter.fleet import FilterModule as Fleets  # noqa: E402 the path first
from ansible_collections.cpufleet.vllm.plugins.filter.plan import FilterModule as Plans  # noqa: E402 the path first

LIMIT_S = 5.0
FIXTURES = REPOSITORY / "tests" / "unit" / "fixtures" / "plan"
ARCHIVE = {"sha256": "0c" * 32, "upload_time": "2024-12-18T00:00:00Z", "url": ""}
STATE: dict[str, Any] = {"current": "", "releases": {}, "deployments": {}, "wheels": {}, "unfinished": []}
MODEL: dict[str, Any] = {**json.loads((FIXTURES / "model-smollm2.json").read_text()), "files": []}


def fleet(count: int) -> dict[str, dict[str, Any]]:
    """Return hosts of several kinds by name; every seventh one cannot be served."""
    captured = json.loads((FIXTURES / "host-debian12.json").read_text())
    hosts = {}
    for number in range(count):
        host = copy.deepcopy(captured)
        host["cpu"]["usable_cpus"] = 2 + number % 15
        host["memory"]["available_bytes"] = (2 + number % 64) << 30
        if number % 7 == 0:
            host["cpu"].update(isa_class=None, isa_reason="the CPU lacks avx2")
        hosts[f"vllm-{number:03}"] = host
    return hosts


def seconds(count: int, wishes: dict[str, Any]) -> tuple[float, int]:
    """Return the time that ``count`` hosts take, and how many of them are refused."""
    filters, hosts = {**Plans().filters(), **Fleets().filters()}, fleet(count)
    source = json.loads((FIXTURES / "source-0.6.5.json").read_text())
    start = time.perf_counter()
    shared = {"source": source, "archive": ARCHIVE, "state": STATE, "model": MODEL, "wishes": wishes}
    plans = filters["plan_fleet"]({name: {"host": host, **shared} for name, host in hosts.items()}, [], {}, {})
    lines = filters["fleet_table"](plans)
    spent = time.perf_counter() - start
    refused = sum(bool(plan["refused"]) for plan in plans.values())
    if len(lines) < count:
        raise AssertionError(f"the table has {len(lines)} lines for {count} hosts")
    return spent, refused


def main() -> int:
    """Print the figures."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    wishes = json.loads((FIXTURES / "wishes.json").read_text())
    one = min(seconds(1, wishes)[0] for _round in range(5))
    all_of_them, refused = seconds(count, wishes)
    print(
        f"plan: {count} hosts ({refused} refused) in {all_of_them:.3f} s, one host {one * 1000:.2f} ms, "
        f"{all_of_them / count / one:.2f} of one host each, limit {LIMIT_S} s, ratio {all_of_them / LIMIT_S:.3f}"
    )
    return 0 if all_of_them < LIMIT_S else 1


if __name__ == "__main__":
    sys.exit(main())
