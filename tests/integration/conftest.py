# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What several files of integration tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.build_host import BuildHost


@pytest.fixture(scope="session")
def build_host() -> Iterator[BuildHost]:
    """Start one host with a compiler for all builds by the module alone."""
    found = BuildHost("wheelbuild")
    found.prepare()
    yield found
    found.stop()
