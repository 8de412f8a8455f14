# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Kill a run at every step, cut the power, fill the disk: a second run converges, with never less swap than before.

Never is what a thread saw that looked at /proc/swaps all the time, in the run that was interrupted and in the next.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

COLLECTION = Path(__file__).resolve().parents[3]
HOME = "/opt/interruptions"
PACKAGE = f"{HOME}/ansible_collections/cpufleet/vllm/plugins"
MIB = 1 << 20
# Sizes in MiB before and after, and how many steps lie between them: fewer would mean that kills went untested.
CASES = [(0, 96, 6), (32, 96, 9), (96, 32, 9), (64, 0, 3)]


@pytest.fixture(scope="module", autouse=True)
def program(host: Any) -> None:
    """Put the module's own code where the host's Python finds it."""
    host.run_expect([0], f"mkdir -p {PACKAGE}")
    for source in ("plugins/module_utils", "molecule/swap/files/interruptions.py"):
        command = ["docker", "cp", str(COLLECTION / source), f"{host.backend.host}:{PACKAGE}/"]
        subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(scope="module")
def disk(host: Any) -> Callable[[str], str]:
    """Return a function that gives the folder of a disk of its own with such a filesystem."""
    made: dict[str, str] = {}

    def give(filesystem: str) -> str:
        if filesystem not in made:
            made[filesystem] = f"/mnt/{filesystem}"
            script = COLLECTION / "molecule/swap/files/small_disk.py"
            command = [sys.executable, script, host.backend.host, filesystem, "640", made[filesystem]]
            subprocess.run(command, check=True)
        return made[filesystem]

    return give


def interrupt(host: Any, before: int, after: int, fault: str, folder: str = "/var/swap") -> list[dict[str, Any]]:
    script = f"{PACKAGE}/interruptions.py {folder}/{host.backend.host}-cut {before} {after} {fault}"
    return [json.loads(line) for line in host.check_output(f"PYTHONPATH={HOME} python3 {script}").splitlines()]


def assert_converged(row: dict[str, Any], size: int) -> None:
    assert (row["end_active"], row["end_size"], row["end_work"]) == (size * MIB, size * MIB, False), row
    assert row["looks"] > 2, "nobody looked while the runs were at work"
    assert (row["end_modes"], row["end_entries"]) == ((["0o600"], 1) if size else ([], 0)), row
    assert row["third"] == "none", row


@pytest.mark.parametrize(("before", "after", "steps"), CASES)
def test_killed_at_every_step_the_second_run_converges(host: Any, before: int, after: int, steps: int) -> None:
    rows = interrupt(host, before, after, "step")
    assert len(rows) == steps + 1
    assert [bool(row["told"]) for row in rows] == [False] * steps + [True]
    for row in rows:
        assert row["then_active"] >= min(before, after) * MIB, row
        assert row["lowest"] >= min(before, after) * MIB, row
        assert set(row["then_modes"]) <= {"0o600"}, row
        assert_converged(row, after)


@pytest.mark.parametrize(("before", "after", "steps"), CASES[1:3])
def test_power_cut_at_every_step_boots_with_swap(host: Any, before: int, after: int, steps: int) -> None:
    rows = interrupt(host, before, after, "power")
    assert len(rows) == steps + 1
    for row in rows:
        assert row["boot_active"] >= min(before, after) * MIB, row
        assert row["lowest"] >= min(before, after) * MIB, row
        assert_converged(row, after)


@pytest.mark.parametrize("written", [0, 4, 28, 60])
def test_killed_while_writing_the_half_file_is_finished(host: Any, written: int) -> None:
    (row,) = interrupt(host, 0, 64, f"written:{written}")
    assert (row["told"], row["then_active"]) == ("", 0)
    assert row["then_size"] == 0, "a file under its own name is complete or not there"
    assert (row["then_work"], row["then_modes"]) == (True, ["0o600"])
    assert row["second"] == "finished"
    assert_converged(row, 64)


@pytest.mark.parametrize("before", [0, 32])
def test_disk_that_fills_up_leaves_what_was(host: Any, before: int) -> None:
    (row,) = interrupt(host, before, 96, "limit:40")
    assert row["told"].startswith(f"failed: Cannot allocate /var/swap/{host.backend.host}-cut")
    assert row["told"].endswith("File too large. What there was before has been brought back.")
    assert (row["then_active"], row["then_size"], row["then_work"]) == (before * MIB, before * MIB, False)
    assert row["second"] == ("grown" if before else "created")
    assert_converged(row, 96)


# Blocks are reserved on ext4; on ext3, where that cannot be, zeros are written.
@pytest.mark.parametrize("filesystem", ["ext4", "ext3"])
@pytest.mark.parametrize("before", [0, 32])
def test_disk_that_something_else_fills_meanwhile_leaves_what_was(
    host: Any, disk: Callable[[str], str], filesystem: str, before: int
) -> None:
    folder = disk(filesystem)
    (row,) = interrupt(host, before, 96, "full:40", folder)
    assert row["told"].startswith(f"failed: Cannot allocate {folder}/{host.backend.host}-cut")
    assert row["told"].endswith("No space left on device. What there was before has been brought back.")
    assert (row["then_active"], row["then_size"], row["then_work"]) == (before * MIB, before * MIB, False)
    assert row["lowest"] >= before * MIB
    assert row["second"] == ("grown" if before else "created")
    assert_converged(row, 96)


@pytest.mark.parametrize("filesystem", ["xfs", "btrfs"])
@pytest.mark.parametrize(("before", "after", "steps"), [CASES[1], CASES[2]])
def test_other_filesystems_take_the_same_steps(
    host: Any, disk: Callable[[str], str], filesystem: str, before: int, after: int, steps: int
) -> None:
    """The kernel itself refuses swap with holes on xfs, and on btrfs what is copied on write or compressed."""
    rows = interrupt(host, before, after, "step", disk(filesystem))
    assert len(rows) == steps + 1
    for row in rows:
        assert row["lowest"] >= min(before, after) * MIB, row
        assert_converged(row, after)
