# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which deployment is the one before, and what pruning removes: tables, then real folders through the module."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._deployments import (
    Deployment,
    before,
    next_served,
    read_served,
    surplus,
)
from ansible_collections.cpufleet.vllm.plugins.modules import deployment_prune

from tests.support.run_module import run_module

A, B, C = "a" * 12, "b" * 12, "c" * 12


@pytest.mark.parametrize(
    ("served", "current", "target", "expected"),
    [
        ([], "", "d1", ["d1"]),
        (["d1"], "d1", "d2", ["d1", "d2"]),
        ([], "d1", "d2", ["d1", "d2"]),
        (["d1", "d2"], "d2", "d2", ["d1", "d2"]),
        (["d1", "d2", "d3"], "d3", "d2", ["d1", "d2"]),
        (["d1", "d2", "d3"], "d3", "d1", ["d1"]),
        (["d1", "d2", "d3"], "d2", "d4", ["d1", "d2", "d4"]),
        (["d1"], "d9", "d2", ["d1", "d9", "d2"]),
        ([f"d{number}" for number in range(30)], "d29", "d30", [f"d{number}" for number in range(11, 31)]),
    ],
)
def test_what_has_served(served: list[str], current: str, target: str, expected: list[str]) -> None:
    assert next_served(served, current, target) == expected


def made(*names: str, **more: float) -> list[Deployment]:
    """Return deployments of the names, each written later than the one before."""
    return [Deployment(name, f"r-{name}", A, more.get(name, float(index))) for index, name in enumerate(names)]


@pytest.mark.parametrize(
    ("current", "served", "there", "expected"),
    [
        ("d2", ["d1", "d2"], ["d1", "d2"], "d1"),
        ("d2", ["d1", "d2", "d3"], ["d1", "d2", "d3"], "d1"),
        ("d3", ["d1", "d2", "d3"], ["d1", "d3"], "d1"),
        ("d1", ["d1"], ["d1", "d2"], ""),
        ("d9", ["d1", "d2"], ["d1", "d2", "d9"], "d2"),
        ("d2", ["d9", "d2"], ["d1", "d2"], ""),
        ("d2", [], ["d1", "d2", "d3"], "d1"),
        ("d1", [], ["d1", "d2"], ""),
        ("d1", [], [], ""),
    ],
)
def test_the_one_before(current: str, served: list[str], there: list[str], expected: str) -> None:
    assert before(current, served, made(*there)) == expected


@pytest.mark.parametrize("document", [None, [], {}, {"served": "d1"}, "text"])
def test_a_file_that_is_none_is_empty(document: Any) -> None:
    assert read_served(document) == []


PRUNED: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("nothing is too many", {"keep": 5}, ()),
    ("all are kept", {"keep": 0}, ()),
    ("the oldest go", {"keep": 2}, ("d1", "d2")),
    ("one is not enough for the two that stay", {"keep": 1}, ("d1", "d2")),
    ("the running one stays, however old", {"keep": 2, "current": "d1", "previous": ""}, ("d2", "d3")),
    ("so does the one before it", {"keep": 2, "current": "d1", "previous": "d2"}, ("d3", "d4")),
    ("and one that a unit starts", {"keep": 2, "named": ["d1"]}, ("d2",)),
    ("nothing that is known serves", {"keep": 1, "current": "d9"}, ()),
    ("nothing serves", {"keep": 1, "current": ""}, ()),
]


@pytest.mark.parametrize(("more", "gone"), [case[1:] for case in PRUNED], ids=[case[0] for case in PRUNED])
def test_what_goes(more: dict[str, Any], gone: tuple[str, ...]) -> None:
    values = {"current": "d4", "previous": "d3", "named": [], **more}
    found = surplus(made("d1", "d2", "d3", "d4"), **values)
    assert found.deployments == gone
    assert found.releases == tuple(f"r-{name}" for name in gone)
    assert found.models == ()


def test_what_is_shared_stays_and_no_name_leads_elsewhere() -> None:
    deployments = [
        Deployment("d1", "r1", A, 1),
        Deployment("d2", "../../etc", "../" + A[:9], 2),
        Deployment("d3", "r2", B, 3),
        Deployment("d4", "r1", C, 4),
    ]
    found = surplus(deployments, "d4", "", [], 1)
    assert (found.deployments, found.releases, found.models) == (("d1", "d2", "d3"), ("r2",), (A, B))


class Root:
    """A root with four deployments, releases and models as roles leave them, and a folder of units."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path, self.units = folder / "root", folder / "units"
        self.units.mkdir()
        monkeypatch.setattr(deployment_prune, "UNIT_FOLDER", str(self.units))
        for index, (release, model) in enumerate((("r1", A), ("r1", B), ("r2", B), ("r3", C))):
            name = f"d{index + 1}"
            self.put(f"releases/{release}/manifest.json", "{}")
            self.put(f"releases/{release}/venv/bin/python", "")
            self.put(f"models/{model}/config.json", "{}")
            self.put(f"models/{model}.json", "{}")
            manifest = {"id": name, "release": release, "model_sha256": model + "f" * 52}
            self.put(f"deployments/{name}/manifest.json", json.dumps(manifest))
            os.utime(self.path / f"deployments/{name}/manifest.json", (index, index))
        (self.path / "current").symlink_to("deployments/d4")
        self.put("served.json", json.dumps({"served": ["d1", "d2", "d3", "d4"]}))

    def put(self, name: str, text: str) -> None:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def prune(self, check: bool = False, **options: Any) -> dict[str, Any]:
        return run_module("deployment_prune", check=check, root=self.path, **options)

    def names(self, kind: str) -> list[str]:
        return sorted(os.listdir(self.path / kind))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Root:
    return Root(tmp_path, monkeypatch)


def test_old_ones_go_with_what_only_they_needed(root: Root) -> None:
    planned = root.prune(check=True, keep=2)
    assert (planned["changed"], planned["deployments"], root.names("deployments")[0]) == (True, ["d1", "d2"], "d1")
    done = root.prune(keep=2)
    assert (done["deployments"], done["releases"], done["models"]) == (["d1", "d2"], ["r1"], [A])
    assert root.names("deployments") == ["d3", "d4"]
    assert root.names("releases") == ["r2", "r3"]
    assert root.names("models") == [B, f"{B}.json", C, f"{C}.json"]
    assert root.prune(keep=2)["changed"] is False


def test_the_one_before_is_kept_by_what_served_and_not_by_age(root: Root) -> None:
    root.put("served.json", json.dumps({"served": ["d1", "d4"]}))
    assert root.prune(keep=1)["deployments"] == ["d2", "d3"]


def test_what_a_unit_starts_is_kept_wherever_current_points(root: Root) -> None:
    (root.units / "other.service").write_text(f"EnvironmentFile={root.path}/deployments/d1/service.env\n")
    assert root.prune(keep=1)["deployments"] == ["d2"]


def test_what_no_manifest_names_is_left_alone(root: Root) -> None:
    root.put("deployments/unfinished/service.env", "")
    root.put("deployments/copied/manifest.json", '{"id": "d1"}')
    root.put("releases/by-hand/manifest.json", "{}")
    root.put(f"models/{'d' * 12}/config.json", "{}")
    root.prune(keep=1)
    assert root.names("deployments") == ["copied", "d3", "d4", "unfinished"]
    assert "by-hand" in root.names("releases")
    assert "d" * 12 in root.names("models")


def test_nothing_goes_while_a_switch_is_unfinished(root: Root) -> None:
    root.put("current.pending", "d1")
    assert root.prune(keep=1)["changed"] is False


def test_an_interrupted_removal_is_finished_by_the_next_call(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    remove = deployment_prune.remove

    def die_at_the_model(path: str) -> None:
        if "/models/" in path:
            raise KeyboardInterrupt
        remove(path)

    monkeypatch.setattr(deployment_prune, "remove", die_at_the_model)
    with pytest.raises(KeyboardInterrupt):
        root.prune(keep=2)
    assert (root.names("releases"), root.names("deployments")[0]) == (["r2", "r3"], "d1")
    monkeypatch.undo()
    monkeypatch.setattr(deployment_prune, "UNIT_FOLDER", str(root.units))
    assert root.prune(keep=2)["changed"] is True
    assert (root.names("deployments"), A in root.names("models")) == (["d3", "d4"], False)


def test_the_one_before_is_told(root: Root) -> None:
    assert run_module("release_info", root=root.path)["state"]["before"] == "d3"
    (root.path / "served.json").unlink()
    assert run_module("release_info", root=root.path)["state"]["before"] == "d3"
    root.put("served.json", json.dumps({"served": ["d4"]}))
    assert run_module("release_info", root=root.path)["state"]["before"] == ""


def beside(root: Root, name: str, *deployments: tuple[str, str, str]) -> Path:
    """Make an instance of the root with deployments of releases and models; the last one serves."""
    folder = root.path / "instances" / name
    for identity, release, model in deployments:
        manifest = {
            "id": identity,
            "release": release,
            "model_sha256": model + "f" * 52,
            "settings": {"unit": f"u-{name}"},
        }
        root.put(f"instances/{name}/deployments/{identity}/manifest.json", json.dumps(manifest))
    for shared in ("releases", "models"):
        (folder / shared).symlink_to(f"../../{shared}")
    (folder / "current").symlink_to(f"deployments/{deployments[-1][0]}")
    return folder


def test_what_another_service_of_the_host_needs_is_kept(root: Root) -> None:
    beside(root, "chat", ("e1", "r1", A))
    done = root.prune(keep=2)
    assert (done["deployments"], done["releases"], done["models"]) == (["d1", "d2"], [], [])
    folder = beside(root, "embed", ("e2", "r1", B), ("e3", "r3", C))
    for age, name in enumerate(("e2", "e3")):
        os.utime(folder / f"deployments/{name}/manifest.json", (age, age))
    done = run_module("deployment_prune", root=folder, keep=1)
    assert done["changed"] is False, "the one before stays"


def test_an_instance_that_is_retired_goes_with_what_only_it_needed(root: Root) -> None:
    folder = beside(root, "chat", ("e1", "r1", A), ("e2", "r9", "9" * 12))
    beside(root, "embed", ("e1", "r3", C))
    root.put("releases/r9/manifest.json", "{}")
    root.put(f"models/{'9' * 12}/config.json", "{}")
    (root.units / "u-chat.service").write_text(f"EnvironmentFile={folder}/deployments/e2/service.env\n")
    refused = run_module("deployment_prune", root=folder, retired=True)
    assert refused["msg"] == f"Units of this host start deployments below {folder}. Remove the units first."
    (root.units / "u-chat.service").unlink()
    done = run_module("deployment_prune", root=folder, retired=True)
    assert (done["deployments"], done["releases"], done["models"]) == (["e1", "e2"], ["r9"], ["9" * 12])
    assert root.names("instances") == ["embed"]
    assert root.names("releases") == ["r1", "r2", "r3"]
    assert root.names("deployments") == ["d1", "d2", "d3", "d4"]
    assert run_module("deployment_prune", root=folder, retired=True)["changed"] is False


def test_instances_are_told_with_what_they_serve(root: Root) -> None:
    assert "instances" not in run_module("release_info", root=root.path)["state"]
    folder = beside(root, "chat", ("e1", "r1", A))
    state = run_module("release_info", root=root.path)["state"]
    assert state["instances"] == {"chat": {"current": "e1", "unit": "u-chat.service"}}
    own = run_module("release_info", root=folder)["state"]
    assert (own["current"], list(own["models"])) == ("e1", [A, B, C])
