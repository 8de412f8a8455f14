# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""What a build log says of how far the build is, and when it will probably be done."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ("Progress", "Sample", "cpu_seconds", "progress", "progress_line", "remember", "steps")

# Steps of fetching a dependency (CMake's FetchContent) are counted apart and come before the first compiled file.
STEP = re.compile(r"^\[(\d+)/(\d+)\](?!.*-populate')", re.MULTILINE)
# Files differ a hundredfold in cost and stand together by kind: only the last minutes tell how fast it goes now.
WINDOW_S = 300.0
# One or two steps are no pace.
FEWEST = 3


@dataclass(frozen=True)
class Sample:
    """How many steps were done at a time (seconds since the epoch)."""

    time: float
    step: int


@dataclass(frozen=True)
class Progress:
    """Steps done and in all (0 while CMake configures), and the seconds that are probably left (-1: unknown)."""

    step: int
    total: int
    eta_s: int


def steps(log: str) -> tuple[int, int]:
    """Return the steps done and in all by the last line of ``log`` that counts; (0, 0) before the first."""
    found = STEP.findall(log)
    return (int(found[-1][0]), int(found[-1][1])) if found else (0, 0)


def remember(samples: list[Sample], now: float, log: str) -> list[Sample]:
    """Return ``samples`` with what ``log`` says now: those of the last minutes, and the newest of before.

    Configuring is no compiling, so the clock starts with the last look that saw no step; and it starts anew where the
    counter does, as with a second run of ninja.
    """
    step, total = steps(log)
    if not total or not samples:
        return [Sample(now, step)] if not samples or not samples[-1].step else samples
    known = samples if step >= samples[-1].step else [Sample(samples[-1].time, 0)]
    known = [*known, Sample(now, step)] if step > known[-1].step else known
    old = [sample for sample in known if sample.time < now - WINDOW_S and sample.step <= step - FEWEST]
    return [*old[-1:], *known[len(old) :]]


def progress(log: str, samples: list[Sample], now: float) -> Progress:
    """Return how far ``log`` has come; what is left goes at the pace of ``samples``."""
    step, total = steps(log)
    done = step - samples[0].step if samples else 0
    if done <= 0:
        return Progress(step, total, 0 if total and step == total else -1)
    return Progress(step, total, int((now - samples[0].time) / done * (total - step)))


def progress_line(found: Progress, memory_bytes: int) -> str:
    """Return one line for a person, such as ``231/493 47 % ETA 18 min, 1.9 GiB``."""
    memory = f", {memory_bytes / 2**30:.1f} GiB" if memory_bytes else ""
    if not found.total:
        # Until the first step ends, ninja says nothing of how many there are.
        return "configuring, then the first steps" + memory
    left = f"ETA {max(1, round(found.eta_s / 60))} min" if found.eta_s >= 0 else "ETA unknown"
    percent = 100 if found.step == found.total else min(99, round(found.step * 100 / found.total))
    return f"{found.step}/{found.total} {percent} % {left}{memory}"


def cpu_seconds(times: str) -> int:
    """Return the processor seconds of all that a shell started, from what its ``times`` printed; 0 where it did not."""
    children = re.findall(r"(\d+)m([\d.]+)s", times)[2:4]
    return round(sum(int(minutes) * 60 + float(seconds) for minutes, seconds in children))
