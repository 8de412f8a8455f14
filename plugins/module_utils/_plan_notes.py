# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""What a planner says about its decisions: reasons, and refusals with what to do."""

from __future__ import annotations

import dataclasses

__all__ = ("Notes",)


@dataclasses.dataclass
class Notes:
    """Collected while one host is planned, so that everything impossible is told at once."""

    reasons: list[dict[str, str]] = dataclasses.field(default_factory=list)
    refused: list[dict[str, str]] = dataclasses.field(default_factory=list)

    def because(self, decision: str, text: str) -> None:
        """Record why ``decision`` came out as it did."""
        self.reasons.append({"decision": decision, "text": text})

    def refuse(self, code: str, text: str) -> None:
        """Record that this host cannot be served: ``code`` is stable, ``text`` says what is wrong and what to do."""
        self.refused.append({"code": code, "text": text})

    def take(self, others: Notes) -> None:
        """Add what ``others`` recorded."""
        self.reasons.extend(others.reasons)
        self.refused.extend(others.refused)
