# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""dependency_lock with the real uv over a folder of tiny wheels, without network."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.run_module import run_module
from tests.support.wheels import clean_environment, find_uv, offline, tiny_wheel


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Offer app, which wants lib and triton."""
    for name in set(os.environ) - set(clean_environment(os.environ)):
        monkeypatch.delenv(name)
    for name, value in offline(tmp_path / "cache").items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "wheels"
    tiny_wheel(folder, "app", requires=["lib>=1", "triton", "Typing.Thing"])
    tiny_wheel(folder, "lib", "1.0")
    tiny_wheel(folder, "triton", "3.0")
    tiny_wheel(folder, "typing-thing", "0.1")
    return folder


def lock(wheels: Path, check: bool = False, **arguments: Any) -> dict[str, Any]:
    given = {
        "dest": wheels.parent / "locks" / "app.txt",
        "uv": find_uv(),
        "requirements": ["app"],
        "python_version": "3.11",
        "find_links": [str(wheels)],
        **arguments,
    }
    return run_module("dependency_lock", check=check, **given)


def text(wheels: Path) -> str:
    return (wheels.parent / "locks" / "app.txt").read_text()


def test_a_lock_names_every_package_with_its_digest(wheels: Path) -> None:
    result = lock(wheels)
    assert result["changed"] is True
    assert result["lock"]["versions"] == {"app": "1.0", "lib": "1.0", "triton": "3.0", "typing-thing": "0.1"}
    assert text(wheels).count("--hash=sha256:") == 4
    assert str(wheels) not in text(wheels)
    assert (wheels.parent / "locks" / "app.txt").stat().st_mode & 0o777 == 0o644
    assert result["diff"] == {"before": "", "after": "app==1.0\nlib==1.0\ntriton==3.0\ntyping-thing==0.1\n"}


def test_the_same_request_keeps_the_lock_though_newer_packages_came(wheels: Path) -> None:
    first = lock(wheels)
    tiny_wheel(wheels, "lib", "1.1")
    second = lock(wheels)
    assert (second["changed"], second["lock"]) == (False, first["lock"])


@pytest.mark.parametrize(
    "change",
    [{"requirements": ["app", "lib"]}, {"overrides": ["lib<2"]}, {"python_version": "3.12"}, {"exclude": ["triton"]}],
)
def test_another_request_is_resolved_anew(wheels: Path, change: dict[str, Any]) -> None:
    first = lock(wheels)
    tiny_wheel(wheels, "lib", "1.1")
    second = lock(wheels, **change)
    assert (second["changed"], second["lock"]["versions"]["lib"]) == (True, "1.1")
    assert second["lock"]["sha256"] != first["lock"]["sha256"]


def test_an_excluded_package_is_not_in_the_lock_whoever_asks_for_it(wheels: Path) -> None:
    assert lock(wheels, exclude=["triton"])["lock"]["versions"] == {"app": "1.0", "lib": "1.0", "typing-thing": "0.1"}


def test_an_override_wins_over_every_other_demand(wheels: Path) -> None:
    tiny_wheel(wheels, "lib", "0.5")
    assert lock(wheels, overrides=["lib<1"])["lock"]["versions"]["lib"] == "0.5"


def test_the_same_inputs_give_the_same_bytes(wheels: Path, tmp_path: Path) -> None:
    first = lock(wheels)
    again = lock(wheels, dest=tmp_path / "elsewhere" / "lock.txt")
    assert (again["changed"], again["lock"]["sha256"]) == (True, first["lock"]["sha256"])


def test_a_failed_resolution_keeps_the_old_lock(wheels: Path) -> None:
    lock(wheels)
    before = text(wheels)
    failed = lock(wheels, requirements=["app", "missing"])
    assert failed["failed"] is True
    assert failed["msg"].startswith(f"Cannot resolve the dependencies into {wheels.parent}/locks/app.txt: ")
    assert "missing" in failed["msg"]
    assert failed["msg"].endswith(
        "Check that this host reaches the package index and the PyTorch CPU index or wheel folder."
    )
    assert text(wheels) == before


def test_a_lock_that_does_not_say_what_it_came_from_is_resolved_again(wheels: Path) -> None:
    first = lock(wheels)
    path = wheels.parent / "locks" / "app.txt"
    path.write_text(text(wheels).partition("\n")[2])
    again = lock(wheels)
    assert (again["changed"], again["lock"]["sha256"]) == (True, first["lock"]["sha256"])


def test_check_mode_resolves_nothing(wheels: Path) -> None:
    planned = lock(wheels, check=True)
    assert (planned["changed"], planned["lock"]["sha256"], planned["lock"]["versions"]) == (True, "", {})
    assert not (wheels.parent / "locks").exists()
    known = lock(wheels)["lock"]
    assert lock(wheels, check=True)["lock"] == known
