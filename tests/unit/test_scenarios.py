# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Molecule calls a scenario without tests successful: here it is a failure, as is one that CI leaves out."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import yaml

from scripts.lib import suite

REPOSITORY = Path(__file__).resolve().parents[2]
SCENARIOS = sorted(file.parent for file in (REPOSITORY / "molecule").glob("*/molecule.yml"))


def count_tests(folder: Path) -> int:
    """Return how many test functions that take a host the files in ``folder``/tests define."""
    found = 0
    for file in (folder / "tests").glob("test_*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found += any(argument.arg == "host" for argument in node.args.args)
    return found


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda folder: folder.name)
def test_every_scenario_has_tests(scenario: Path) -> None:
    assert count_tests(scenario), (
        f"molecule/{scenario.name} has no test that looks at a host. Add tests/test_*.py there, or remove the scenario."
    )


def test_a_folder_that_is_no_scenario_is_named() -> None:
    strays = [
        folder.name
        for folder in sorted((REPOSITORY / "molecule").iterdir())
        if folder.is_dir() and folder.name not in ("shared", "__pycache__", "resources")
        if not (folder / "molecule.yml").exists()
    ]
    assert not strays, f"molecule/{strays} have no molecule.yml, so nothing runs them. Add it, or remove the folders."


def test_the_suite_runs_every_scenario_and_the_whole_chain_before_what_takes_its_wheel() -> None:
    listed = suite.scenarios(REPOSITORY)
    assert sorted(listed) == [folder.name for folder in SCENARIOS]
    assert listed[-2:] == ["default", "model_serve"]


def test_both_reach_one_store_and_only_the_chain_empties_it() -> None:
    stores = {}
    for name in ("default", "model_serve"):
        settings = yaml.safe_load((REPOSITORY / "molecule" / name / "molecule.yml").read_text(encoding="utf-8"))
        stores[name] = settings["provisioner"]["inventory"]["group_vars"]["vllm_hosts"]["vllm_wheel_store"]
    assert set(stores.values()) == {"${CPUFLEET_STORE}"}
    (first, *_more) = yaml.safe_load((REPOSITORY / "molecule/default/prepare.yml").read_text(encoding="utf-8"))
    assert first["tasks"][0]["ansible.builtin.file"]["state"] == "absent"
    assert not (REPOSITORY / "molecule/model_serve/prepare.yml").exists()


@pytest.mark.parametrize("name", ["swap", "toolchain"])
def test_what_needs_no_torch_runs_on_debian_13_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str]] = []
    monkeypatch.setenv("CPUFLEET_IMAGE", "")
    monkeypatch.setattr(suite.image, "ensure", lambda *_arguments: seen.append(("ensured", suite.image.name())))
    monkeypatch.setattr(suite, "molecule", lambda scenario: seen.append((scenario, suite.image.name())))
    (tier,) = [tier for tier in suite.tiers() if tier.name == f"molecule:{name}@13"]
    assert (tier.hosts, tier.full) == (True, False)
    tier.run()
    assert seen == [("ensured", "cpufleet/debian:13"), (name, "cpufleet/debian:13")]
    assert suite.image.name() == "cpufleet/debian:12"


def test_scenarios_are_found_by_listing(tmp_path: Path) -> None:
    for name in ("default", "model_serve", "swap", "zeta"):
        (tmp_path / "molecule" / name).mkdir(parents=True)
        (tmp_path / "molecule" / name / "molecule.yml").touch()
    (tmp_path / "molecule" / "shared").mkdir()
    assert suite.scenarios(tmp_path) == ["swap", "zeta", "default", "model_serve"]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def test_a(host): ...", 1),
        ("def test_a(): ...", 0),
        ("def helper(host): ...", 0),
        ("class TestX:\n    def test_a(self, host): ...", 1),
    ],
)
def test_the_guard_can_fail(tmp_path: Path, source: str, found: int) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_x.py").write_text(source, encoding="utf-8")
    assert count_tests(tmp_path) == found
