# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""The one error type of the planners: what was done, to what, why it failed, and what to do."""

from __future__ import annotations

from typing import Any

__all__ = ("CpufleetError",)


class CpufleetError(Exception):
    """A failure told as action + object + cause, then the remedy.

    ``details`` holds structured keys (``path``, ``anchor``, ``limit`` ...) that a module returns beside the text.
    """

    def __init__(self, problem: str, remedy: str = "", **details: Any) -> None:
        self.problem = problem.rstrip(".")
        self.remedy = remedy.rstrip(".")
        self.details = details
        super().__init__(str(self))

    def __str__(self) -> str:
        parts = [self.problem, self.remedy] if self.remedy else [self.problem]
        return " ".join(part + "." for part in parts)
