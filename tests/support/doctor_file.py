# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The doctor as a module, and the table that it has to share with the collection."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from ansible_collections.cpufleet.vllm.plugins.module_utils._journal_causes import CAUSES

PATH = Path(__file__).resolve().parents[2] / "roles/model_serve/files/cpufleet_doctor.py"
WIDTH = 116


def load() -> ModuleType:
    """Return the doctor as a module."""
    spec = importlib.util.spec_from_file_location("cpufleet_doctor", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault("cpufleet_doctor", module)
    spec.loader.exec_module(module)
    return module


def journal_table() -> str:
    """Return the text of KNOWN as the collection's table has it."""
    lines = []
    for known in CAUSES:
        lines.append(f"= {known.code} {known.rank} {known.any_level:d}")
        for sign, text in (("~", known.pattern.pattern), ("+", known.text), (">", known.remedy)):
            lines += [f"{sign} {part}" for part in pieces(text)]
    return "\n".join(lines)


def pieces(text: str) -> list[str]:
    """Cut a text into pieces that fit on a line, none of which ends in a space or a backslash."""
    found = []
    while text:
        end = min(WIDTH, len(text))
        while end < len(text) and (text[end - 1] in " \\" or text[end] == " "):
            end -= 1
        found.append(text[:end])
        text = text[end:]
    return found
