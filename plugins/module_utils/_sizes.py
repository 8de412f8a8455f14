# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Sizes as people write them, and as they like to read them."""

from __future__ import annotations

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError

__all__ = ("GIB", "MIB", "human", "parse_count")

MIB = 1 << 20
GIB = 1 << 30


def parse_count(value: str | int, variable: str) -> int:
    """Return ``value`` (text or number) as a number of 1 or more; ``variable`` names it in errors."""
    text = str(value).strip()
    if not text.isdecimal() or int(text) < 1:
        raise CpufleetError(
            f"{variable} is {value!r}, which is not a whole number of 1 or more",
            f"Set {variable} to auto or to such a number",
        )
    return int(text)


def human(size: float) -> str:
    """Return ``size`` bytes as ``1.9 GiB`` or ``512 MiB``."""
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / MIB:.0f} MiB"
