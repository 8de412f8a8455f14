# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The swap that the role made, as the kernel and the files tell it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

SIZE = 160 << 20  # what side_effect.yml asked for last
PAGE = 4096
FSTAB = Path(__file__).parent.parent / "files" / "fstab"


@pytest.fixture
def swap(host: Any) -> str:
    return f"/var/swap/{host.backend.host}"


def active(host: Any, path: str) -> dict[str, int]:
    """Return the active bytes of the swap file and of what may lie next to it, by path."""
    lines = host.file("/proc/swaps").content_string.splitlines()[1:]
    words = (line.split() for line in lines)
    return {word[0]: int(word[2]) * 1024 for word in words if word[0].startswith(path)}


def test_swap_is_active_with_its_whole_size_and_nothing_else_is(host: Any, swap: str) -> None:
    assert active(host, swap) == {swap: SIZE - PAGE}


def test_file_is_private_whole_and_without_holes(host: Any, swap: str) -> None:
    file = host.file(swap)
    assert (file.mode, file.user, file.group, file.size) == (0o600, "root", "root", SIZE)
    assert int(host.check_output(f"stat -c %b {swap}")) * 512 >= SIZE


def test_nothing_is_left_behind(host: Any, swap: str) -> None:
    assert host.file("/var/swap").listdir() == [host.backend.host]
    assert not host.file("/on-overlay").exists


def test_foreign_lines_of_fstab_are_kept_byte_for_byte(host: Any, swap: str) -> None:
    foreign = FSTAB.read_text(encoding="utf-8").replace("SWAPFILE", swap)
    assert host.file("/etc/fstab").content_string == f"{foreign}\n{swap} none swap sw,x-cpufleet.swap 0 0\n"


def test_there_was_never_less_swap_than_the_smaller_size(host: Any) -> None:
    seen = [int(line) for line in host.file("/run/swap-seen").content_string.split()]
    assert {65532, 196604, 131068, 163836} <= set(seen), "the watcher missed a size: it proves nothing"
    assert min(seen) == 65532
    first_shrunk = seen.index(196604)
    assert min(seen[first_shrunk:]) >= 131064


def test_swappiness_file_sorts_last_and_holds_the_value(host: Any) -> None:
    file = host.file("/etc/sysctl.d/99-zz-cpufleet-swap.conf")
    assert (file.mode, file.content_string) == (0o644, "vm.swappiness = 10\n")
    names = [Path(path).name for path in host.check_output("ls /etc/sysctl.d/*.conf /usr/lib/sysctl.d/*.conf").split()]
    assert sorted(names)[-1] == "99-zz-cpufleet-swap.conf"


def test_boot_activates_it_by_fstab(host: Any, swap: str) -> None:
    # systemd leaves swap alone in a container; a machine's boot does what this does.
    host.run_expect([0], f"swapoff {swap}")
    host.run_expect([0], "swapon --all")
    assert active(host, swap) == {swap: SIZE - PAGE}
