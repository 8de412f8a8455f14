# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Time host_info's gathering on this machine; exits 1 where the slowest round takes a second or more.

Usage: python benchmarks/host_info.py [ROUNDS].

Each round is a new process, as on a host: nothing is warm but the disk.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

LIMIT_S = 1.0
COLLECTIONS = Path(__file__).resolve().parent.parent / ".ansible" / "collections"
GATHER = (
    "from ansible_collections.cpufleet.vllm.plugins.module_utils._host import gather_host; "
    "import json; print(json.dumps(gather_host()))"
)


def one_round() -> tuple[float, int]:
    """Return (seconds, bytes of the result) of one gathering, the interpreter's start included."""
    start = time.perf_counter()
    environment = {**os.environ, "PYTHONPATH": str(COLLECTIONS)}
    answer = subprocess.run([sys.executable, "-c", GATHER], env=environment, capture_output=True, check=True)
    seconds = time.perf_counter() - start
    json.loads(answer.stdout)
    return seconds, len(answer.stdout)


def main() -> int:
    rounds = [one_round() for _round in range(int(sys.argv[1]) if len(sys.argv) > 1 else 10)]
    times = sorted(seconds for seconds, _size in rounds)
    print(
        f"host_info: {len(times)} rounds, median {statistics.median(times):.3f} s, slowest {times[-1]:.3f} s, "
        f"result {rounds[0][1]} bytes, limit {LIMIT_S} s, ratio {times[-1] / LIMIT_S:.2f}"
    )
    return 0 if times[-1] < LIMIT_S else 1


if __name__ == "__main__":
    sys.exit(main())
