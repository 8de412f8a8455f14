# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""python_environment: real virtual environments, real uv and pip, tiny wheels, no network."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.run_module import run_module
from tests.support.wheels import clean_environment, find_uv, offline, tiny_wheel


class Site:
    """A folder of wheels, a lock over them and an environment to be made."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.wheels, self.venv = folder, folder / "wheels", folder / "releases" / "venv"
        self.lock_file = folder / "lock.txt"
        for name in ("app", "lib", "other"):
            tiny_wheel(self.wheels, name)
        self.lock("app", "lib", "other")

    def lock(self, *names: str) -> None:
        """Lock the last wheel of each name."""
        lines = ["# cpufleet inputs: 00"]
        for name in names:
            wheel = max(self.wheels.glob(f"{name.replace('-', '_')}-*.whl"))
            digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
            lines.append(f"{name}=={wheel.name.split('-')[1]} \\\n    --hash=sha256:{digest}")
        self.lock_file.write_text("\n".join(lines) + "\n")

    def bring(self, check: bool = False, **arguments: Any) -> dict[str, Any]:
        given = {
            "path": self.venv,
            "python": sys.executable,
            "uv": find_uv(),
            "lock": self.lock_file,
            "find_links": [str(self.wheels)],
            **arguments,
        }
        return run_module("python_environment", check=check, **{key: value for key, value in given.items() if value})

    def installed(self) -> dict[str, str]:
        found = self.venv.glob("lib/python*/site-packages/*.dist-info")
        return dict(path.name.removesuffix(".dist-info").rsplit("-", 1) for path in found)

    def record(self, stage: str = "main") -> Path:
        return self.venv / ".cpufleet" / f"{stage}.json"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    for name in set(os.environ) - set(clean_environment(os.environ)):
        monkeypatch.delenv(name)
    for name, value in offline(tmp_path / "cache").items():
        monkeypatch.setenv(name, value)
    return Site(tmp_path)


def test_a_fresh_environment_holds_the_lock_and_a_second_run_changes_nothing(site: Site) -> None:
    first = site.bring()
    assert (first["changed"], first["reason"]) == (True, "the environment does not exist")
    assert site.installed() == {"app": "1.0", "lib": "1.0", "other": "1.0"}
    assert json.loads(site.record().read_text()) == {"inputs": first["inputs"]}
    assert first["environment_python"] == str(site.venv / "bin" / "python")
    second = site.bring()
    assert (second["changed"], second["reason"], second["inputs"]) == (False, "", first["inputs"])
    assert second["diff"]["before"] == second["diff"]["after"]


def test_another_lock_makes_it_anew(site: Site) -> None:
    site.bring()
    (site.venv / "left-over").write_text("")
    tiny_wheel(site.wheels, "lib", "1.1")
    site.lock("app", "lib")
    changed = site.bring()
    assert changed["reason"] == "its recorded inputs differ"
    assert site.installed() == {"app": "1.0", "lib": "1.1"}
    assert not (site.venv / "left-over").exists()


def remove_python(site: Site) -> None:
    (site.venv / "bin" / "python").unlink()


def break_python(site: Site) -> None:
    remove_python(site)
    (site.venv / "bin" / "python").write_text("#!/bin/sh\necho 'libpython3.so: cannot open' >&2\nexit 127\n")
    (site.venv / "bin" / "python").chmod(0o755)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (remove_python, "the environment was left half-made"),
        (lambda site: (site.venv / "pyvenv.cfg").unlink(), "the environment was left half-made"),
        (break_python, "its interpreter does not run: libpython3.so: cannot open"),
        (lambda site: site.record().unlink(), "the stage is not finished"),
        (lambda site: site.record().write_text('{"inp'), "the stage is not finished"),
        (lambda site: shutil.rmtree(site.venv), "the environment does not exist"),
    ],
    ids=["no python", "no configuration", "python does not run", "no record", "cut record", "gone"],
)
def test_what_was_left_half_made_is_repaired(site: Site, damage: Any, reason: str) -> None:
    site.bring()
    damage(site)
    repaired = site.bring()
    assert (repaired["changed"], repaired["reason"]) == (True, reason)
    assert site.installed() == {"app": "1.0", "lib": "1.0", "other": "1.0"}
    assert site.bring()["changed"] is False


def test_only_a_subset_and_then_the_rest_in_stages(site: Site) -> None:
    assert site.bring(stage="torch", only=["lib"])["changed"] is True
    assert site.installed() == {"lib": "1.0"}
    rest = site.bring(stage="vllm")
    assert (rest["changed"], rest["reason"]) == (True, "the stage is not finished")
    assert site.installed() == {"app": "1.0", "lib": "1.0", "other": "1.0"}
    assert [site.bring(stage="torch", only=["lib"])["changed"], site.bring(stage="vllm")["changed"]] == [False, False]


def test_a_change_outside_the_subset_does_not_count(site: Site) -> None:
    site.bring(only=["lib"])
    tiny_wheel(site.wheels, "other", "2.0")
    site.lock("app", "lib", "other")
    assert site.bring(only=["lib"])["changed"] is False


def test_a_wheel_file_beside_the_lock_is_pinned_by_its_own_digest(site: Site) -> None:
    built = tiny_wheel(site.folder / "built", "vllm", "0.6.5+cpu", requires=["nothing-that-is-installed"])
    first = site.bring(packages=[str(built)])
    assert site.installed() == {"app": "1.0", "lib": "1.0", "other": "1.0", "vllm": "0.6.5+cpu"}
    assert site.bring(packages=[str(built)])["changed"] is False
    tiny_wheel(site.folder / "built", "vllm", "0.6.5+cpu", build="again")
    again = site.bring(packages=[str(built)])
    assert (again["reason"], again["inputs"] != first["inputs"]) == ("its recorded inputs differ", True)


def test_a_requirement_beside_the_lock_is_refused(site: Site) -> None:
    failed = site.bring(packages=["six"])
    assert failed["msg"] == (
        f"Cannot install six into {site.venv}: it is neither a wheel file nor in the lock {site.lock_file}. "
        "Put it into the lock."
    )
    assert not site.venv.exists()


def test_a_wheel_that_is_not_what_the_lock_says_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(site.folder / "another-hosts-cache"))
    tiny_wheel(site.wheels, "lib", build="tampered")
    failed = site.bring()
    assert failed["failed"] is True
    assert failed["msg"].startswith(f"Cannot install packages into the environment {site.venv}: ")
    assert "Hash mismatch" in failed["msg"]
    assert not site.record().exists()


def test_what_failed_half_way_is_finished_by_the_next_run(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(site.folder / "another-hosts-cache"))
    good = (site.wheels / "lib-1.0-py3-none-any.whl").read_bytes()
    tiny_wheel(site.wheels, "lib", build="tampered")
    site.bring()
    (site.wheels / "lib-1.0-py3-none-any.whl").write_bytes(good)
    done = site.bring()
    assert (done.get("failed"), done["reason"]) == (None, "the stage is not finished")
    assert site.installed() == {"app": "1.0", "lib": "1.0", "other": "1.0"}


def torch(site: Site, cuda: str | None, *more: str) -> None:
    """Offer a package that says of itself what a torch of that kind says."""
    version = f"cuda = {cuda!r}\nhip = None\n"
    tiny_wheel(
        site.wheels,
        "torch",
        "2.5.1" if cuda else "2.5.1+cpu",
        modules={
            "torch/__init__.py": f"__version__ = {'2.5.1' if cuda else '2.5.1+cpu'!r}\nfrom . import version\n",
            "torch/version.py": version,
        },
    )
    for name in more:
        tiny_wheel(site.wheels, name)
    site.lock("torch", *more)


def test_a_cpu_torch_is_proven(site: Site) -> None:
    torch(site, None)
    assert site.bring(cpu_torch=True)["changed"] is True
    assert site.bring(cpu_torch=True)["changed"] is False


@pytest.mark.parametrize(
    ("cuda", "more", "problem"),
    [
        ("12.4", (), "torch 2.5.1 was built for CUDA 12.4"),
        (None, ("nvidia-cublas-cu12",), "CUDA packages came with it: nvidia-cublas-cu12"),
    ],
)
def test_another_torch_is_refused(site: Site, cuda: str | None, more: tuple[str, ...], problem: str) -> None:
    torch(site, cuda, *more)
    failed = site.bring(cpu_torch=True)
    assert failed["msg"] == (
        f"The torch in {site.venv} is not a CPU build: {problem}. Set torch_cpu_index_url to PyTorch's CPU index or "
        "torch_cpu_find_links to a folder with a +cpu wheel."
    )
    assert not site.record().exists()


def test_uv_itself_comes_by_the_environments_own_pip(site: Site) -> None:
    tiny_wheel(site.wheels, "uv", "0.9.9")
    site.venv = site.folder / "tools" / "uv"
    first = site.bring(uv=None, lock=None, packages=["uv==0.9.9"])
    assert first["changed"] is True
    assert site.installed()["uv"] == "0.9.9"
    assert site.bring(uv=None, lock=None, packages=["uv==0.9.9"])["changed"] is False


def test_check_mode_makes_nothing(site: Site) -> None:
    planned = site.bring(check=True, packages=["/not/yet/built.whl"])
    assert (planned["changed"], planned["reason"]) == (True, "the environment does not exist")
    assert not site.venv.exists()


def test_an_interpreter_that_is_missing_is_told(site: Site) -> None:
    failed = site.bring(python=site.folder / "python9")
    assert failed["msg"].startswith(f"Cannot make the virtual environment {site.venv}: ")
    assert failed["msg"].endswith("Check network, disk space and the package index of the host, and run again.")
