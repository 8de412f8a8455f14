# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long an edit takes: each module on a copy of each release, applied and taken out again; the worst is printed.

Run from the root of a clone: ``PYTHONPATH=.:.ansible/collections .venv/bin/python benchmarks/edit_seconds.py``.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from tests.support.run_module import run_module
from tests.support.trees import VERSIONS_FULL, copy_tree

WISHED = 0.3
MODULES: dict[str, dict[str, Any]] = {
    "platform_patch": {"force": True},
    "config_patch": {},
    "source_fix": {"isa": ["avx2"]},
}


def seconds(name: str, **arguments: Any) -> float:
    started = time.perf_counter()
    result = run_module(name, **arguments)
    if result.get("failed"):
        raise SystemExit(f"{name}: {result['msg']}")
    return time.perf_counter() - started


def main() -> None:
    for name, arguments in MODULES.items():
        worst = (0.0, "", "")
        for version in VERSIONS_FULL:
            with tempfile.TemporaryDirectory() as folder:
                root = copy_tree(version, Path(folder))
                worst = max(worst, (seconds(name, path=root, **arguments), version, "present"))
                worst = max(worst, (seconds(name, path=root, state="absent"), version, "absent"))
        taken, version, state = worst
        print(f"{name}: at most {taken:.3f} s ({version}, {state}); wished: {WISHED} s; ratio {taken / WISHED:.2f}")


if __name__ == "__main__":
    main()
