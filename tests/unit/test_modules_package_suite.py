# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""package_suite on a folder that stands for /etc/apt: written, kept, removed, never offered without its pin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.cpufleet.vllm.plugins.modules import package_suite

from tests.support.run_module import run_module


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("sources.list.d", "preferences.d"):
        (tmp_path / name).mkdir()
    (tmp_path / "sources.list").write_text("deb http://mirror.example.com/debian bookworm main\n")
    (tmp_path / "sources.list.d/other.list").write_text("deb http://other.example.com/apt stable main\n")
    monkeypatch.setattr(package_suite, "APT", str(tmp_path))
    monkeypatch.setattr(package_suite, "own_codename", lambda: "bookworm")
    return tmp_path


def suite(state: str = "present", check: bool = False) -> dict[str, Any]:
    return run_module("package_suite", check=check, suite="trixie", state=state)


def everything(apt: Path) -> dict[str, str]:
    return {str(path.relative_to(apt)): path.read_text() for path in apt.rglob("*") if path.is_file()}


def test_it_is_offered_kept_and_removed(apt: Path) -> None:
    before = everything(apt)
    planned = suite(check=True)
    assert (planned["changed"], everything(apt)) == (True, before)
    result = suite()
    assert result == planned
    pin, sources = apt / "preferences.d/cpufleet-trixie", apt / "sources.list.d/cpufleet-trixie.sources"
    assert result["files"] == [str(pin), str(sources)]
    assert "URIs: http://mirror.example.com/debian\nSuites: trixie\n" in sources.read_text()
    assert (pin.stat().st_mode & 0o777, sources.stat().st_mode & 0o777) == (0o644, 0o644)
    assert suite()["changed"] is False
    assert suite("absent")["changed"] is True
    assert everything(apt) == before
    assert suite("absent")["changed"] is False


def test_a_moved_mirror_is_followed(apt: Path) -> None:
    suite()
    (apt / "sources.list").write_text("deb http://nearer.example.com/debian bookworm main\n")
    assert suite()["files"] == [str(apt / "sources.list.d/cpufleet-trixie.sources")]


def test_the_pin_is_there_before_the_suite_and_goes_after_it(apt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    real_write, real_unlink = package_suite.write_atomic, package_suite.os.unlink
    monkeypatch.setattr(package_suite, "write_atomic", lambda *a: (order.append(a[0]), real_write(*a)))
    suite()
    monkeypatch.setattr(package_suite.os, "unlink", lambda path: (order.append(path), real_unlink(path)))
    suite("absent")
    assert [Path(path).parent.name for path in order] == [
        "preferences.d",
        "sources.list.d",
        "sources.list.d",
        "preferences.d",
    ]


def test_what_cannot_be_is_told(apt: Path) -> None:
    (apt / "sources.list").write_text("")
    assert suite()["msg"].startswith("Cannot add the suite trixie: no source file of this host names bookworm main")
    assert run_module("package_suite", suite="../x")["msg"] == (
        "'../x' is no codename of a suite. Name one such as trixie."
    )
