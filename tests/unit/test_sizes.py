# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sizes and counts as people write and read them."""

from __future__ import annotations

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._sizes import human, parse_count

MIB, GIB = 1 << 20, 1 << 30


@pytest.mark.parametrize(("value", "count"), [(1, 1), ("12", 12), (" 2 ", 2)])
def test_counts(value: str | int, count: int) -> None:
    assert parse_count(value, "jobs") == count


@pytest.mark.parametrize("value", [0, -1, "4.0", "", "many", "²"])
def test_what_is_not_a_count_is_refused(value: str | int) -> None:
    with pytest.raises(CpufleetError, match=r"which is not a whole number of 1 or more\. Set jobs to auto or to such"):
        parse_count(value, "jobs")


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 MiB"), (512 * MIB, "512 MiB"), (GIB - 1, "1024 MiB"), (GIB, "1.0 GiB"), (int(1.94 * GIB), "1.9 GiB")],
)
def test_sizes_for_people(size: int, text: str) -> None:
    assert human(size) == text
