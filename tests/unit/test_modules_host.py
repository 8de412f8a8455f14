# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""host_info and swapfile through their own main(); what needs a kernel that takes swap is tested in Molecule."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils import _swap_host
from ansible_collections.cpufleet.vllm.plugins.module_utils._host_mounts import Mount

from tests.support.run_module import run_module

FIXTURES = Path(__file__).parent / "fixtures" / "host"


def test_host_info_returns_the_host_and_changes_nothing() -> None:
    result = run_module("host_info", paths=["/", "/opt/no/such"])
    assert result["changed"] is False
    assert set(result["host"]["disks"]) == {"/", "/opt/no/such"}


def test_host_info_reads_another_root() -> None:
    result = run_module("host_info", root=FIXTURES / "memory" / "v2-container-limit-4g")
    assert result["host"]["memory"]["limit_bytes"] == 4 << 30


def test_host_info_refuses_a_root_that_is_not_there() -> None:
    result = run_module("host_info", root="/nowhere")
    assert result["failed"]
    assert result["msg"].startswith("Cannot read a host under /nowhere: it is not a folder.")
    assert result["root"] == "/nowhere"


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that counts as an ext4 disk, with an fstab of its own, for root."""
    fstab = tmp_path / "fstab"
    fstab.write_text("LABEL=root / ext4 defaults 0 1\n", encoding="utf-8")
    mount = Mount("/", "/", "ext4", "/dev/vda1", ("rw",), ("rw",))
    monkeypatch.setattr(_swap_host, "mount_of", lambda path, mounts: mount)
    monkeypatch.setattr(_swap_host.SwapHost.__init__, "__defaults__", (str(fstab),))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return tmp_path


def swapfile(disk: Path, **arguments: Any) -> dict[str, Any]:
    return run_module("swapfile", **{"check": True, "path": disk / "swapfile", **arguments})


@pytest.mark.parametrize("size", ["64M", "64", 64, "65536K", "67108864B"])
def test_swapfile_predicts_in_check_mode_and_changes_nothing(disk: Path, size: str | int) -> None:
    result = swapfile(disk, size=size)
    assert (result["action"], result["changed"], result["size_bytes"]) == ("created", True, 64 << 20)
    assert result["previous_bytes"] == 0
    assert [part["after_header"] for part in result["diff"]] == [f"{disk}/swapfile", f"{disk}/fstab"]
    assert result["diff"][1]["after"].endswith(f"{disk}/swapfile none swap sw,x-cpufleet.swap 0 0\n")
    assert [path.name for path in disk.iterdir()] == ["fstab"]
    assert "x-cpufleet" not in (disk / "fstab").read_text(encoding="utf-8")


def test_swapfile_that_nobody_needs(disk: Path) -> None:
    result = swapfile(disk, size="auto", auto_total="1M")
    assert (result["action"], result["changed"]) == ("none", False)
    assert result["reason"].startswith("No swap file is needed: RAM ")
    assert "diff" not in result


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"priority": 40000}, "The swap priority 40000 is out of range. Use a number from 0 to 32767."),
        (
            {"size": "lots"},
            "Cannot read 'lots' as the size of a swap file. "
            "Write a number of MiB, or a number with B, K, M, G or T, such as 8G.",
        ),
        (
            {"path": "/no/such/folder/swapfile"},
            "Cannot look for /no/such/folder/swapfile: /no/such/folder is not a folder. "
            "Create the folder, or choose another path.",
        ),
    ],
)
def test_swapfile_refuses(disk: Path, arguments: dict[str, Any], text: str) -> None:
    result = swapfile(disk, **arguments)
    assert (result["failed"], result["msg"]) == (True, text)


def test_swapfile_needs_root(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert swapfile(disk)["msg"] == f"Cannot manage {disk}/swapfile: root is needed. Add become: true."


def test_swapfile_that_the_kernel_refuses_is_skipped_without_a_trace(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str, path: str, *arguments: int) -> None:
        raise PermissionError(1, "Operation not permitted", path)

    monkeypatch.setattr(_swap_host, "_syscall", refuse)
    monkeypatch.setattr(_swap_host, "_mkswap", lambda path, size: None)
    result = swapfile(disk, size="64M", check=False)
    assert (result["action"], result["changed"], result["size_bytes"]) == ("skipped", False, 0)
    assert result["reason"] == (
        f"The kernel refuses swap on {disk}/swapfile: Operation not permitted. "
        "Give the host swap from outside, or more memory."
    )
    assert [path.name for path in disk.iterdir()] == ["fstab"]


def test_preallocation_taken_for_holes_is_written_out_and_tried_again(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that calls preallocated extents holes gets written ones."""
    calls: list[str] = []

    def once(name: str, path: str, *arguments: int) -> None:
        calls.append(name)
        if calls.count("swapon") == 1:
            raise OSError(22, "Invalid argument", path)

    monkeypatch.setattr(_swap_host, "_syscall", once)
    monkeypatch.setattr(_swap_host, "_mkswap", lambda path, size: calls.append("format"))
    monkeypatch.setattr(_swap_host, "allocate", lambda path, size, kind, log: bool(Path(path).write_bytes(b"x" * 10)))
    host = _swap_host.SwapHost(str(disk / "swapfile"), lambda line: None)
    host._probe("ext4")
    assert calls == ["format", "swapon", "format", "swapon", "swapoff"]
    assert (disk / "swapfile.cpufleet-new").read_bytes() == bytes(10)
