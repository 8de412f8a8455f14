# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The releases that tests over real trees run for, and what is to be expected of each."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.trees import VERSIONS_CI, VERSIONS_FULL

#: Detection and ISA generation, and that of verify_async_output_proc, read from the trees by hand.
GENERATIONS = {
    "0.6.3.post1": ("D1", "I0", "A1"),
    "0.6.5": ("D1", "I0", "A2"),
    "0.6.6.post1": ("D1", "I0", "A2"),
    "0.7.2": ("D2", "I0", "A2"),
    "0.7.3": ("D3", "I0", "A2"),
    "0.8.5": ("D4", "I0", "A2"),
    "0.9.2": ("D4", "I1", "A2"),
    "0.10.2": ("D4", "I1", "A2"),
    "0.11.2": ("D4", "I2", "A0"),
    "0.13.0": ("D4", "I2", "A0"),
    "0.16.0": ("D4", "I3", "A0"),
    "0.17.1": ("D4", "I4", "A0"),
    "0.18.1": ("D5", "I5", "A0"),
    "0.20.2": ("D5", "I5", "A0"),
    "0.22.1": ("D5", "I5", "A0"),
    "0.26.0": ("D5", "I5", "A0"),
    "0.28.0": ("D6", "I5", "A0"),
    "0.31.0": ("D6", "I5", "A0"),
    "0.32.0": ("D6", "I5", "A0"),
    "0.33.0": ("D6", "I5", "A0"),
}


def each_version(*keep: str) -> Any:
    """Parametrize a test with ``version``: all releases, or those that ``keep`` names, also by generation."""
    chosen = [version for version in VERSIONS_FULL if not keep or set(keep) & {version, *GENERATIONS[version]}]
    return pytest.mark.parametrize(
        "version",
        [pytest.param(version, marks=() if version in VERSIONS_CI else pytest.mark.full) for version in chosen],
    )
