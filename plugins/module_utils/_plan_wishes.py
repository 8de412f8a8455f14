# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Wishes that no host can fulfil: found before any change, not when the last role comes to them."""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_notes import Notes

__all__ = ("check_wishes",)

HIGHEST_PORT = 65535


def check_wishes(source: dict[str, Any], model: dict[str, Any], wishes: dict[str, Any], notes: Notes) -> None:
    """Refuse a release without a CPU backend, and values of variables that can only fail later."""
    if not source["torch_cpu"] or not source["detection"]:
        notes.refuse(
            "source",
            f"the source of vLLM {source['version']} holds no CPU build that is known here: it names no torch for CPU. "
            "Choose a vllm_version from 0.6.3 on, in quotes where YAML would read a number.",
        )
    port = int(wishes["port"])
    if not 0 < port <= HIGHEST_PORT:
        notes.refuse("port", f"model_serve_port is {port}. Use a port from 1 to {HIGHEST_PORT}.")
    if not str(wishes["root"]).startswith("/"):
        notes.refuse(
            "wish", f"vllm_root is {wishes['root']}, which is not an absolute path. Use one such as /opt/vllm."
        )
    _check_context(model, str(wishes["max_model_len"]), notes)
    _check_pattern(str(wishes["gate_expect"]), notes)


def _check_context(model: dict[str, Any], wish: str, notes: Notes) -> None:
    longest = int(model["context"])
    if wish.isdecimal() and longest and int(wish) > longest:
        notes.refuse(
            "wish",
            f"model_serve_max_model_len is {wish}, but this model was made for {longest} tokens. "
            "Use that or less, or auto.",
        )


def _check_pattern(pattern: str, notes: Notes) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        notes.refuse(
            "wish",
            f"model_serve_gate_expect is {pattern!r}, which is not a regular expression: {error}. "
            "Correct it; a plain word such as Paris is one.",
        )
