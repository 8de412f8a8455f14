# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""What the doctor said of a whole fleet as one table for people, the worst host first."""

from __future__ import annotations

import json
import textwrap
from typing import Any

__all__ = ("doctor_table", "doctor_verdict")

HEADINGS = ("host", "verdict", "cause", "service")
WORST_FIRST = ("UNREACHABLE", "UNKNOWN", "DEAD", "HUNG", "SWAPPING", "OVERLOADED", "SLOW", "MISCONFIGURED", "OK")
WIDTH = 118
LINES_KEPT = 300


def doctor_verdict(output: str, status: int) -> dict[str, Any]:
    """Read what the doctor printed on one host; where it printed no verdict, UNKNOWN with what it did print."""
    try:
        document = json.loads(output)
        causes = document["causes"]
        worst = causes[0] if causes and document["verdict"] != "OK" else {}
        return {
            "verdict": document["verdict"],
            "line": document["line"],
            "code": worst.get("code", ""),
            "unit": worst.get("unit", ""),
            "snapshot": document.get("snapshot", ""),
        }
    except (ValueError, KeyError, TypeError):
        said = " ".join(output.split())[:LINES_KEPT] or "no output"
        return {"verdict": "UNKNOWN", "line": f"the doctor failed with status {status}: {said}"}


def doctor_table(verdicts: dict[str, dict[str, Any]]) -> list[str]:
    """Return lines: one row a host, the worst first, then what was seen where it is not OK, and the next command."""
    told = {name: {"verdict": "UNREACHABLE", "line": "", **found} for name, found in verdicts.items()}
    order = sorted(told, key=lambda name: (WORST_FIRST.index(told[name]["verdict"]), name))
    rows = [HEADINGS]
    for name in order:
        found = told[name]
        rows.append((name, found["verdict"], found.get("code") or "-", found.get("unit") or "-"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    for name in order:
        found = told[name]
        if found["verdict"] != "OK":
            text = f"{name}: {found['line'] or 'could not be asked'}"
            lines += ["", *textwrap.wrap(text, WIDTH, subsequent_indent="    ", break_long_words=False)]
            lines += [f"    saved on the host: {found['snapshot']}"] if found.get("snapshot") else []
    return lines
