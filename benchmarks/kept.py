# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What long benchmarks measured, kept in the cache by machine and release, so that one that was ended goes on."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from scripts.lib import bench


def place() -> Path:
    """Return the folder of the benchmarks in the cache."""
    folder = bench.cache() / "benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def everything(name: str) -> dict[str, Any]:
    """Return what was measured by a benchmark, by key and row."""
    file = place() / f"{name}.json"
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else {}


def known(name: str, key: str) -> dict[str, Any]:
    """Return what was measured of one key, by row."""
    return dict(everything(name).get(key, {}))


def keep(name: str, key: str, row: str, figures: dict[str, Any]) -> None:
    """Add the figures of a row, with the day."""
    found = everything(name)
    found.setdefault(key, {})[row] = {**figures, "date": time.strftime("%Y-%m-%d")}
    (place() / f"{name}.json").write_text(json.dumps(found, indent=2), encoding="utf-8")
