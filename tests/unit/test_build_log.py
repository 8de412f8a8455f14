# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a build log says of how far the build is, and when it will be done. The logs were captured."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._build_log import (
    Progress,
    Sample,
    cpu_seconds,
    progress,
    progress_line,
    remember,
    steps,
)

FIXTURES = Path(__file__).parent / "fixtures" / "build_log"


def log(name: str) -> str:
    return (FIXTURES / f"{name}.log").read_text()


def at(step: int, total: int) -> str:
    return f"-- configured\n[{step}/{total}] Building CXX object x.o\n" if step else "-- configuring\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (log("done-0.6.5").partition("[1/8]")[0], (0, 0)),
        (log("done-0.6.5").partition("[3/8]")[0], (2, 8)),
        (log("done-0.6.5"), (8, 8)),
        (log("ninja-resumed"), (5, 5)),  # counts what was left, not what had been done before
        (log("network-cmake").partition("Cloning")[0], (0, 0)),  # fetching oneDNN is no compiling
        ("", (0, 0)),
    ],
)
def test_steps(text: str, expected: tuple[int, int]) -> None:
    assert steps(text) == expected


def watched(*looks: tuple[float, int], total: int = 100) -> list[Sample]:
    """Return what is remembered after looking at these times and steps."""
    samples: list[Sample] = []
    for now, step in looks:
        samples = remember(samples, now, at(step, total))
    return samples


def test_configuring_is_no_compiling() -> None:
    assert watched((0, 0), (15, 0), (30, 0)) == [Sample(30, 0)]
    assert progress(at(2, 100), watched((0, 0), (30, 0), (50, 2)), 50) == Progress(2, 100, 980)


def test_what_is_left_goes_at_the_pace_of_the_last_minutes() -> None:
    slow_then_quick = watched((0, 0), (600, 10), (650, 20), (700, 30), (1000, 80), total=100)
    assert slow_then_quick == [Sample(650, 20), Sample(700, 30), Sample(1000, 80)]
    assert progress(at(80, 100), slow_then_quick, 1000).eta_s == 116  # since the start it would be 250
    quick_then_slow = watched((0, 0), (10, 50), (20, 90), (200, 91), (400, 92), (600, 93), total=100)
    assert progress(at(93, 100), quick_then_slow, 600).eta_s == 1353  # since the start it would be 45
    few = watched((0, 0), (30, 1), (400, 2), total=8)
    assert progress(at(2, 8), few, 400).eta_s == 1200  # two steps are no pace of their own


def test_a_step_that_takes_long_slows_the_pace_while_it_runs() -> None:
    samples = watched((0, 0), (60, 2), total=8)
    assert [progress(at(2, 8), samples, now).eta_s for now in (60, 120)] == [180, 360]


def test_a_step_longer_than_the_window_leaves_a_pace() -> None:
    samples = watched((0, 0), (30, 1), (60, 4), (500, 4), (900, 4), total=8)
    assert progress(at(4, 8), samples, 900).eta_s == 1160  # from the first step on: three in 870 s


def test_a_look_without_a_new_step_is_not_remembered() -> None:
    assert watched((0, 0), (10, 1), (20, 1), (30, 1)) == [Sample(0, 0), Sample(10, 1)]


def test_a_counter_that_starts_anew_starts_the_clock_anew() -> None:
    samples = watched((0, 0), (100, 50), (130, 3))
    assert samples == [Sample(100, 0), Sample(130, 3)]
    assert progress(at(3, 9), samples, 130) == Progress(3, 9, 60)


def test_attached_to_late_it_does_not_guess() -> None:
    assert progress(at(50, 100), watched((500, 50)), 500) == Progress(50, 100, -1)
    assert progress(at(100, 100), watched((500, 100)), 500) == Progress(100, 100, 0)


@pytest.mark.parametrize(
    ("found", "memory", "line"),
    [
        (Progress(0, 0, -1), 0, "configuring, then the first steps"),
        (Progress(0, 0, -1), 3 << 29, "configuring, then the first steps, 1.5 GiB"),
        (Progress(231, 493, 1080), 2040109465, "231/493 47 % ETA 18 min, 1.9 GiB"),
        (Progress(8, 8, 0), 0, "8/8 100 % ETA 1 min"),
        (Progress(0, 8, -1), 0, "0/8 0 % ETA unknown"),
        (Progress(492, 493, 30), 0, "492/493 99 % ETA 1 min"),
    ],
)
def test_progress_for_people(found: Progress, memory: int, line: str) -> None:
    assert progress_line(found, memory) == line


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0m0.001234s 0m0.002345s\n64m12.500000s 2m0.750000s\n", 3973),  # dash
        ("0m0,000s", 0),
        ("", 0),
    ],
)
def test_processor_seconds_of_what_a_shell_started(text: str, seconds: int) -> None:
    assert cpu_seconds(text) == seconds
