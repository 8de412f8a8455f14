# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""deployment, deployment_switch and release_info: folders with a manifest written last, and the one that serves."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.cpufleet.vllm.plugins.modules import deployment, deployment_switch

from tests.support.run_module import run_module

FILES = [
    {"name": "vllm.service", "content": "[Service]\nExecStart=/bin/true\n"},
    {"name": "service.env", "content": "A=ü\n", "mode": "0600"},
]


def write(
    path: Path, check: bool = False, files: list[dict[str, str]] | None = None, **manifest: Any
) -> dict[str, Any]:
    chosen = FILES if files is None else files
    return run_module("deployment", check=check, path=path, manifest={"id": path.name, **manifest}, files=chosen)


def test_files_and_then_the_manifest_with_their_digests(tmp_path: Path) -> None:
    folder = tmp_path / "deployments" / "d1"
    first = write(folder)
    assert first["written"] == [f"{folder}/vllm.service", f"{folder}/service.env", f"{folder}/manifest.json"]
    assert (folder / "service.env").read_text() == "A=ü\n"
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in folder.iterdir()}
    assert modes == {"vllm.service": "0o644", "service.env": "0o600", "manifest.json": "0o644"}
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["id"], sorted(manifest["files"])) == ("d1", ["service.env", "vllm.service"])
    again = write(folder)
    assert (again["changed"], again["written"], again["diff"]) == (False, [], [])


def test_only_what_differs_is_written_and_shown(tmp_path: Path) -> None:
    folder = tmp_path / "d1"
    write(folder)
    (folder / "build.log").write_text("kept")
    (folder / "service.env").chmod(0o644)
    changed = write(folder, release="r2")
    assert changed["written"] == [f"{folder}/service.env", f"{folder}/manifest.json"]
    assert (folder / "service.env").stat().st_mode & 0o777 == 0o600
    assert '"release": "r2"' in changed["diff"][1]["after"]
    assert '"release"' not in changed["diff"][1]["before"]
    assert (folder / "build.log").read_text() == "kept"


def test_an_interrupted_writing_leaves_no_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = deployment.write_atomic

    def die(path: str, content: bytes, mode: int) -> None:
        if path.endswith("service.env"):
            raise KeyboardInterrupt
        original(path, content, mode)

    monkeypatch.setattr(deployment, "write_atomic", die)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "deployments" / "d1")
    state = run_module("release_info", root=tmp_path)["state"]
    assert (state["deployments"], state["unfinished"]) == ({}, [f"{tmp_path}/deployments/d1"])
    monkeypatch.undo()
    assert write(tmp_path / "deployments" / "d1")["written"][-1].endswith("manifest.json")


def test_check_mode_shows_and_writes_nothing(tmp_path: Path) -> None:
    planned = write(tmp_path / "d1", check=True)
    assert (planned["changed"], len(planned["diff"])) == (True, 3)
    assert not (tmp_path / "d1").exists()


def test_what_is_installed(tmp_path: Path) -> None:
    write(tmp_path / "deployments" / "d1", release="r1")
    write(tmp_path / "releases" / "r1", files=[], wheel="ab")
    (tmp_path / "releases" / "r2").mkdir()
    (tmp_path / "wheels" / "abc").mkdir(parents=True)
    (tmp_path / "wheels" / "abc" / "manifest.json").write_text('{"cut": ')
    (tmp_path / "models" / "0123456789ab" / "sub").mkdir(parents=True)
    (tmp_path / "models" / "0123456789ab" / "sub" / "model.safetensors.part").write_bytes(b"w" * 20)
    (tmp_path / "models" / "0123456789ab" / "config.json").write_bytes(b"c" * 10)
    (tmp_path / "models" / "0123456789ab.json").write_text("{}")
    (tmp_path / "current").symlink_to("deployments/d1")
    result = run_module("release_info", root=tmp_path)
    state = result["state"]
    assert (result["changed"], state["current"], state["releases"]) == (
        False,
        "d1",
        {"r1": {"id": "r1", "wheel": "ab"}},
    )
    assert (list(state["deployments"]), state["wheels"]) == (["d1"], {})
    # A model that is being fetched counts with what has come of it.
    assert state["models"] == {"0123456789ab": 30}
    assert state["unfinished"] == [f"{tmp_path}/releases/r2", f"{tmp_path}/wheels/abc"]


@pytest.mark.parametrize("target", ["", "deployments/gone"])
def test_nothing_serves(tmp_path: Path, target: str) -> None:
    if target:
        (tmp_path / "current").symlink_to(target)
    state = run_module("release_info", root=tmp_path)["state"]
    kinds: dict[str, Any] = {"releases": {}, "deployments": {}, "wheels": {}}
    assert state == {"current": "", "before": "", "building": [], "models": {}, "unfinished": [], **kinds}


# Keeps whether the unit runs and is enabled, and says how it was called.
SYSTEMCTL = """#!/bin/sh
echo "$*" >> "$CPUFLEET_TEST/calls"
case $1 in
  is-active) cat "$CPUFLEET_TEST/active" 2>/dev/null || { echo inactive; exit 3; };;
  is-enabled) cat "$CPUFLEET_TEST/enabled" 2>/dev/null || { echo disabled; exit 1; };;
  enable) echo enabled > "$CPUFLEET_TEST/enabled";;
  reset-failed) exit 1;;
  restart) [ -f "$CPUFLEET_TEST/broken" ] && { cat "$CPUFLEET_TEST/broken" >&2; exit 1; }
    echo active > "$CPUFLEET_TEST/active";;
esac
"""
APPLIED = ["daemon-reload", "enable vllm.service", "reset-failed vllm.service", "restart vllm.service"]


class Service:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.root, self.units = folder / "systemd", folder / "root", folder / "units"
        self.folder.mkdir()
        self.units.mkdir()
        (self.folder / "systemctl").write_text(SYSTEMCTL)
        (self.folder / "systemctl").chmod(0o755)
        monkeypatch.setenv("PATH", f"{self.folder}:{os.environ['PATH']}")
        monkeypatch.setenv("CPUFLEET_TEST", str(self.folder))
        monkeypatch.setattr(deployment_switch, "UNIT_FOLDER", str(self.units))
        for name in ("d1", "d2"):
            unit = {"name": "vllm.service", "content": f"[Service]\nExecStart=/bin/{name}\n"}
            write(self.root / "deployments" / name, files=[unit])

    def switch(self, name: str, check: bool = False) -> dict[str, Any]:
        return run_module("deployment_switch", check=check, root=self.root, id=name)

    def calls(self) -> list[str]:
        path = self.folder / "calls"
        lines = [line for line in path.read_text().splitlines() if not line.startswith("is-")] if path.exists() else []
        path.unlink(missing_ok=True)
        return lines

    def serves(self) -> tuple[str, str]:
        return os.readlink(self.root / "current"), (self.units / "vllm.service").read_text()


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Service:
    return Service(tmp_path, monkeypatch)


def test_the_first_deployment_is_installed_enabled_and_started(service: Service) -> None:
    result = service.switch("d1")
    assert (result["changed"], result["previous"], result["restarted"]) == (True, "", True)
    assert service.calls() == APPLIED
    assert service.serves() == ("deployments/d1", "[Service]\nExecStart=/bin/d1\n")
    again = service.switch("d1")
    assert (again["changed"], again["previous"], again["restarted"], service.calls()) == (False, "d1", False, [])


def test_forth_and_back(service: Service) -> None:
    service.switch("d1")
    service.calls()
    forth = service.switch("d2")
    assert (forth["previous"], service.serves()) == ("d1", ("deployments/d2", "[Service]\nExecStart=/bin/d2\n"))
    assert forth["diff"][0]["before"] == "[Service]\nExecStart=/bin/d1\n"
    assert forth["diff"][1] == {"before": "current -> d1\n", "after": "current -> d2\n"}
    back = service.switch("d1")
    assert (back["previous"], service.serves()[0], service.calls()) == ("d2", "deployments/d1", [*APPLIED, *APPLIED])
    assert sorted(os.listdir(service.root)) == ["current", "deployments", "served.json"]


@pytest.mark.parametrize(("file", "text"), [("active", "failed"), ("active", "inactive"), ("enabled", "disabled")])
def test_a_service_that_is_down_or_would_not_come_back_is_started(service: Service, file: str, text: str) -> None:
    service.switch("d1")
    service.calls()
    (service.folder / file).write_text(f"{text}\n")
    assert (service.switch("d1")["changed"], service.calls()) == (True, APPLIED)


def test_a_unit_that_someone_edited_is_put_back(service: Service) -> None:
    service.switch("d1")
    (service.units / "vllm.service").write_text("edited")
    assert service.switch("d1")["changed"] is True
    assert service.serves()[1] == "[Service]\nExecStart=/bin/d1\n"


def test_a_restart_that_fails_names_the_cause_and_what_served_before(service: Service) -> None:
    service.switch("d1")
    (service.folder / "broken").write_text("Unit vllm.service has a bad unit file setting.\n")
    failed = service.switch("d2")
    assert failed["msg"] == (
        "systemctl restart vllm.service failed: Unit vllm.service has a bad unit file setting. "
        "See journalctl -u vllm.service on the host."
    )
    assert failed["previous"] == "d1"


def test_an_interrupted_switch_is_finished_by_the_next_run(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service.switch("d1")
    replace = os.replace

    def die_after_the_link(source: str, target: str) -> None:
        replace(source, target)
        if target.endswith("/current"):
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", die_after_the_link)
    with pytest.raises(KeyboardInterrupt):
        service.switch("d2")
    monkeypatch.setattr(os, "replace", replace)
    service.calls()
    # Everything on the disk says d2 and the unit is active, but what runs is still d1.
    assert service.serves()[0] == "deployments/d2"
    assert (service.switch("d2")["restarted"], service.calls()) == (True, APPLIED)
    assert service.switch("d2")["changed"] is False


def test_a_deployment_that_is_not_there_is_refused(service: Service) -> None:
    service.switch("d1")
    failed = service.switch("d9")
    assert failed["msg"].startswith(
        f"There is no deployment d9 with a unit vllm.service in {service.root}/deployments. Name one of d1"
    )
    assert service.serves()[0] == "deployments/d1"


def test_a_deployment_whose_release_or_model_is_gone_is_refused(service: Service) -> None:
    service.switch("d1")
    for needed, name in (({"release": "r9"}, "releases/r9"), ({"model": str(service.root / "gone")}, "gone")):
        write(service.root / "deployments/d2", files=[{"name": "vllm.service", "content": "[Service]\n"}], **needed)
        failed = service.switch("d2")
        assert failed["msg"] == (
            f"The deployment d2 cannot serve: {service.root}/{name} is missing. "
            "Name another one, or run the playbook site.yml."
        )
    assert service.serves()[0] == "deployments/d1"


def test_what_has_served_is_recorded(service: Service) -> None:
    for name, expected in (("d1", ["d1"]), ("d2", ["d1", "d2"]), ("d2", ["d1", "d2"]), ("d1", ["d1"])):
        service.switch(name)
        assert json.loads((service.root / "served.json").read_text()) == {"served": expected}


def test_check_mode_changes_nothing_also_where_nothing_is_yet(service: Service) -> None:
    planned = service.switch("d9", check=True)
    assert (planned["changed"], planned["restarted"], service.calls()) == (True, True, [])
    assert not (service.root / "current").exists()


def test_a_build_that_was_begun_is_named_until_it_ends(tmp_path: Path) -> None:
    (tmp_path / "build/0123456789ab").mkdir(parents=True)
    (tmp_path / "build/fedcba987654").mkdir()
    (tmp_path / "build/0123456789ab/started.json").write_text("{}")
    assert run_module("release_info", root=tmp_path)["state"]["building"] == ["0123456789ab"]


def test_a_store_has_wheels_and_locks(tmp_path: Path) -> None:
    (tmp_path / "locks/a").mkdir(parents=True)
    (tmp_path / "locks/a/manifest.json").write_text('{"sha256": "ab"}')
    state = run_module("release_info", root=tmp_path, kinds=["wheels", "locks"])["state"]
    assert (state["locks"], state["wheels"]) == ({"a": {"sha256": "ab"}}, {})
    assert "releases" not in state
