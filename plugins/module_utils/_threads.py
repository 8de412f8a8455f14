# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""How many threads a host computes fastest with, from what was timed there."""

from __future__ import annotations

from typing import Any, Iterable

__all__ = ("PROBE", "choose_count", "spread", "steps")

# Whoever is this much slower than the best is as fast: threads that gain nothing cost other work.
AS_FAST = 0.97
# Of each CPU, what others may take before their share decides instead of the threads.
MOST_OF_OTHERS = 0.15
EVERY_COUNT = 8

# Run by the release's Python. Decoding reads all weights for each token, which a matrix far larger than a cache times;
# reading a prompt multiplies matrices. Every count is timed twice, in turns, and its better time counts.
PROBE = """
import json, os, sys, time
import torch
order, steps = json.loads(sys.argv[1])
weights, vector = torch.ones(8192, 8192), torch.ones(8192)
square = torch.ones(1024, 1024)
work = {"read": (lambda: torch.mv(weights, vector), weights.nelement() * 4e-9),
        "multiply": (lambda: torch.mm(square, square), 2 * 1024**3 * 1e-9)}
def busy():
    with open("/proc/stat") as file:
        lines = [line.split() for line in file if line.startswith("cpu")]
    ours = {"cpu%d" % number for number in order}
    ticks = sum(int(word) for line in lines if line[0] in ours for word in line[1:4] + line[6:9])
    return ticks / os.sysconf("SC_CLK_TCK")
def rate(run, amount):
    begun, times = time.perf_counter(), 0
    while time.perf_counter() - begun < 0.15:
        run()
        times += 1
    return times * amount / (time.perf_counter() - begun)
def take(count):
    torch.set_num_threads(count)
    for run, _amount in work.values():
        run()
    for task in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(task), order[:count])
found = {name: {count: 0.0 for count in steps} for name in work}
begun, own, before = time.perf_counter(), sum(os.times()[:2]), busy()
for _round in range(2):
    for count in steps:
        take(count)
        for name, (run, amount) in work.items():
            found[name][count] = max(found[name][count], rate(run, amount))
spent = time.perf_counter() - begun
others = busy() - before - (sum(os.times()[:2]) - own)
print(json.dumps({"rates": found, "others": max(0.0, others) / spent / len(order), "seconds": spent}))
"""


def spread(allowed: Iterable[int], siblings: dict[int, tuple[int, ...]]) -> list[int]:
    """Return CPUs in the order in which threads are put on them: one of every core, then the second ones."""
    rank: dict[int, int] = {}
    taken: dict[tuple[int, ...], int] = {}
    for number in sorted(set(allowed)):
        core = siblings.get(number) or (number,)
        rank[number] = taken[core] = taken.get(core, 0) + 1
    return sorted(rank, key=lambda number: (rank[number], number))


def steps(most: int) -> list[int]:
    """Return the counts that are timed: each one up to 8, then by halves of a power of two, and ``most``."""
    found = list(range(1, min(most, EVERY_COUNT) + 1))
    size = EVERY_COUNT
    while size < most:
        found += [count for count in (size * 3 // 2, size * 2) if count <= most]
        size *= 2
    return sorted({*found, most})


def choose_count(told: dict[str, Any], planned: int) -> tuple[int, str]:
    """Return the fewest threads that are as fast as the most at reading and at multiplying, and why."""
    rates = {name: {int(count): float(rate) for count, rate in by.items()} for name, by in told["rates"].items()}
    read, multiply = rates["read"], rates["multiply"]
    if told["others"] > MOST_OF_OTHERS:
        share = round(100 * told["others"])
        return planned, f"{planned} as planned: other work took {share} % of the CPUs while they were timed"
    able = [
        count
        for count in sorted(read)
        if all(by[count] >= AS_FAST * max(by.values()) for by in rates.values()) or count == max(read)
    ]
    count = able[0]
    figures = ", ".join(f"{n}: {read[n]:.1f} GB/s and {multiply[n]:.0f} Gflop/s" for n in sorted(read))
    return count, f"{count}, the fewest within 3 % of the best ({figures})"
