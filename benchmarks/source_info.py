# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long source_info takes on real vLLM sources, beside Python's own parsing of the files that it parses.

Run ``.venv/bin/python benchmarks/source_info.py [version ...]``. Prints one line a source and, last, how the newest
tree compares with the goal of one second; exits 1 where that is missed. Each reading starts from nothing in a fresh
interpreter; medians of five.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.trees import sdist, tree  # noqa: E402 - the path has to be set first

GOAL_S = 1.0
ROUNDS = 5
MEASURE = """
import ast, json, sys, time
from ansible_collections.cpufleet.vllm.plugins.module_utils import _source_python
from ansible_collections.cpufleet.vllm.plugins.module_utils._source import read_source
texts = []
real = _source_python.parse
def parse(text):
    texts.append(text or "")
    return real(text)
_source_python.parse = parse
start = time.perf_counter()
read_source(sys.argv[1])
whole = time.perf_counter() - start
start = time.perf_counter()
for text in texts:
    ast.parse(text)
print(json.dumps([whole, time.perf_counter() - start]))
"""


def measure(path: Path) -> tuple[float, float]:
    """Return the medians of the seconds for the whole reading and for bare parsing of the same Python files."""
    command = [sys.executable, "-c", MEASURE, str(path)]
    environment = {"PYTHONPATH": str(ROOT / ".ansible" / "collections")}
    runs = [
        json.loads(subprocess.run(command, env=environment, check=True, capture_output=True).stdout)
        for _round in range(ROUNDS)
    ]
    return statistics.median(run[0] for run in runs), statistics.median(run[1] for run in runs)


def main() -> int:
    versions = sys.argv[1:] or ["0.6.5", "0.17.1", "0.33.0"]
    print(f"{'source':<24} {'source_info':>12} {'parsing':>10} {'ratio':>7}")
    newest = 0.0
    for version in versions:
        for path in (tree(version), sdist(version)):
            whole, parsing = measure(path)
            print(f"{path.name:<24} {whole:>10.3f} s {parsing:>8.3f} s {whole / parsing:>7.2f}")
            newest = whole if path.is_dir() else newest
    print(f"newest tree {newest:.3f} s, goal {GOAL_S:.1f} s: ratio {newest / GOAL_S:.2f}")
    return 0 if newest < GOAL_S else 1


if __name__ == "__main__":
    sys.exit(main())
