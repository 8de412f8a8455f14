# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What pyproject.toml tells pytest, for ansible-test, which reads another configuration."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

REPOSITORY = str(Path(__file__).resolve().parents[2])
if REPOSITORY not in sys.path:
    sys.path.append(REPOSITORY)


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark of the long tests known."""
    config.addinivalue_line("markers", "full: takes longer than the CI set allows; run by scripts/test --full")
