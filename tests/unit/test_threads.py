# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which number of threads is taken from what was timed, and how the module keeps it; a real release is molecule's."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils import basic
from ansible_collections.cpufleet.vllm.plugins.module_utils._threads import PROBE, choose_count, spread, steps

from tests.support.run_module import run_module

CPUS = sorted(os.sched_getaffinity(0))


def told(read: list[float], multiply: list[float], others: float = 0.0) -> dict[str, Any]:
    rates = {"read": read, "multiply": multiply}
    numbered = {name: {str(count): rate for count, rate in enumerate(by, 1)} for name, by in rates.items()}
    return {"rates": numbered, "others": others, "seconds": 1.0}


@pytest.mark.parametrize(
    ("read", "multiply", "count"),
    [
        ([17.0, 33.0], [60, 118], 2),  # two cores
        ([17.0, 17.2], [60, 60], 1),  # one core that is sold as two
        ([17.0, 17.2], [60, 118], 2),  # one core reads all that the memory gives, but does not multiply as fast
        ([17.0, 33.0], [60, 61], 2),
        ([17.0, 33.0, 34.0, 33.9], [60, 118, 119, 117], 2),
        ([17.0, 16.0], [60, 50], 1),  # the second one is in the way
        ([17.0, 33.0, 30.0], [60, 118, 170], 3),  # no count is best at both
    ],
)
def test_fewest_threads_that_are_as_fast(read: list[float], multiply: list[float], count: int) -> None:
    found, reason = choose_count(told(read, multiply), 2)
    assert found == count
    assert reason.startswith(f"{count}, the fewest within 3 % of the best (1: {read[0]:.1f} GB/s and {multiply[0]}")


def test_what_was_timed_beside_other_work_decides_nothing() -> None:
    assert choose_count(told([17.0, 17.0], [60, 60], others=0.4), 2) == (
        2,
        "2 as planned: other work took 40 % of the CPUs while they were timed",
    )
    assert choose_count(told([17.0, 17.0], [60, 60], others=0.1), 2)[0] == 1


@pytest.mark.parametrize(
    ("allowed", "siblings", "order"),
    [
        ([0, 1], {}, [0, 1]),
        ([0, 1, 2, 3], {0: (0, 1), 1: (0, 1), 2: (2, 3), 3: (2, 3)}, [0, 2, 1, 3]),
        ([0, 1, 2, 3], {0: (0, 2), 1: (1, 3), 2: (0, 2), 3: (1, 3)}, [0, 1, 2, 3]),
        ([5, 1, 3], {1: (0, 1), 3: (2, 3), 5: (4, 5)}, [1, 3, 5]),
    ],
    ids=["unknown", "neighbours", "halves", "one half of each core"],
)
def test_every_core_gets_one_thread_before_any_gets_two(
    allowed: list[int], siblings: dict[int, tuple[int, ...]], order: list[int]
) -> None:
    assert spread(allowed, siblings) == order


@pytest.mark.parametrize(
    ("most", "counts"),
    [(1, [1]), (2, [1, 2]), (6, [1, 2, 3, 4, 5, 6]), (20, [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 20])],
)
def test_counts_that_are_timed(most: int, counts: list[int]) -> None:
    assert steps(most) == counts


def test_probe_is_python() -> None:
    compile(PROBE, "probe", "exec")


class Release:
    """Stands in for a release's Python: it tells figures that are given and counts how often it is asked."""

    def __init__(self, folder: Path) -> None:
        self.python = folder / "python"
        self.asked = folder / "asked"
        self.memory = folder / "threads.json"

    def tells(self, text: str, status: int = 0) -> None:
        """Set what it prints, and its exit status."""
        line = f"import sys; open({str(self.asked)!r}, 'a').write('x'); print({text!r}); sys.exit({status})"
        self.python.write_text(f"#!{sys.executable}\n{line}\n")
        self.python.chmod(0o755)

    def calibrate(self, check: bool = False, **given: Any) -> dict[str, Any]:
        """Run the module."""
        arguments = {"planned": 2, "usable": 2, **given}
        return run_module("thread_calibration", check=check, python=self.python, memory=self.memory, **arguments)

    def times(self) -> int:
        """Return how often it was asked."""
        return len(self.asked.read_text()) if self.asked.exists() else 0


@pytest.fixture
def release(tmp_path: Path) -> Release:
    found = Release(tmp_path)
    found.tells(json.dumps(told([17.0, 17.1], [60, 60])))
    return found


needs_two = pytest.mark.skipif(len(CPUS) < 2, reason="this machine has one CPU")


@needs_two
def test_second_run_times_nothing(release: Release) -> None:
    first, second = release.calibrate(), release.calibrate()
    assert (first["changed"], second["changed"], release.times()) == (True, False, 1)
    assert first["threads"] == second["threads"] == json.loads(release.memory.read_text())
    assert (first["threads"]["count"], first["threads"]["planned"], len(first["threads"]["cpus"])) == (1, 2, 1)
    assert first["threads"]["rates"]["read"] == {"1": 17.0, "2": 17.1}


@needs_two
def test_other_cpus_or_another_plan_are_timed_anew(release: Release) -> None:
    release.calibrate()
    document = json.loads(release.memory.read_text())
    document["key"]["model"] = "another CPU"
    release.memory.write_text(json.dumps(document))
    assert release.calibrate()["changed"]
    assert release.calibrate(planned=1)["changed"]
    assert release.times() == 3


def test_check_mode_times_and_writes_nothing(release: Release) -> None:
    result = release.calibrate(check=True)
    assert (result["changed"], result["threads"]["count"], release.times()) == (True, 2, 0)
    assert not release.memory.exists()


def test_one_cpu_needs_no_timing(release: Release) -> None:
    assert release.calibrate(planned=1, usable=1)["threads"]["reason"] == "1 as planned: not timed"
    assert release.times() == 0


@needs_two
@pytest.mark.parametrize(("text", "status"), [("Traceback", 1), ("no figures", 0), ("", 0)])
def test_where_nothing_can_be_timed_the_plan_stands(
    release: Release, text: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned: list[str] = []
    monkeypatch.setattr(basic.AnsibleModule, "warn", lambda _self, text: warned.append(text))
    release.tells(text, status)
    result = release.calibrate()
    assert (result["threads"]["count"], result["threads"]["reason"]) == (2, "2 as planned: not timed")
    (warning,) = warned
    assert warning.startswith(f"Cannot time threads with {release.python}: ")
    assert warning.endswith(f"The threads of the plan are taken; remove {release.memory} to try again.")
