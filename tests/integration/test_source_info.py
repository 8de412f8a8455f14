# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""SourceInfo of the real trees equals the expected facts, which were taken down by reading each release by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._edits_config import plan_config
from ansible_collections.cpufleet.vllm.plugins.module_utils._edits_isa import plan_isa
from ansible_collections.cpufleet.vllm.plugins.module_utils._edits_platform import plan_platform
from ansible_collections.cpufleet.vllm.plugins.module_utils._source import read_source

from tests.support.run_module import run_module
from tests.support.trees import copy_tree, sdist, tree
from tests.support.versions import each_version

EXPECTED = Path(__file__).parent / "expected"
SHOWN = ("source_kind", "requirements", "requirements_files", "edits", "unknown", "evidence")


def expected(version: str) -> dict[str, Any]:
    return dict(json.loads((EXPECTED / f"{version}.json").read_text()))


def part(found: Any, wanted: Any) -> Any:
    """Cut ``found`` down to the keys that ``wanted`` speaks of, at every depth; lists are compared whole."""
    if not isinstance(wanted, dict):
        return found
    return {key: part(found.get(key, "missing"), value) for key, value in wanted.items()}


@each_version()
def test_facts_equal_the_matrix(version: str) -> None:
    facts = run_module("source_info", path=tree(version))["source"]
    wanted = expected(version)
    assert part(facts, wanted) == wanted
    assert facts["cpu_environment"] == wanted["cpu_environment"]
    assert facts["unknown"] == []
    assert facts["edits"] == []


@each_version()
def test_requirements_are_complete_lines(version: str) -> None:
    facts = read_source(str(tree(version)))
    lines = facts.requirements["cpu"]
    assert any(line.startswith("torch==") for line in lines)
    assert any(line.startswith("transformers") for line in lines)
    assert not [line for line in lines + facts.requirements["build"] if line.startswith(("-", "#")) or " #" in line]
    assert {"cmake", "ninja"} <= {line.partition(">")[0] for line in facts.requirements["build"]}


@each_version()
def test_archive_tells_the_same_as_the_tree(version: str) -> None:
    from_tree, from_archive = read_source(str(tree(version))).to_result(), read_source(str(sdist(version))).to_result()
    assert (from_tree.pop("source_kind"), from_archive.pop("source_kind")) == ("tree", "sdist")
    assert from_archive == from_tree


@each_version()
def test_edited_tree_has_the_facts_of_its_release(version: str, tmp_path: Path) -> None:
    parts = ("*.toml", "*.txt", "*.py", "PKG-INFO", "cmake", "csrc/cpu", "requirements", "vllm")
    copy = copy_tree(version, tmp_path / "copy", parts)

    def reader(path: str) -> bytes | None:
        target = copy / path
        return target.read_bytes() if target.is_file() else None

    before = read_source(str(copy)).to_result()
    for plan in (
        lambda: plan_platform(reader, None, force=True),
        lambda: plan_config(reader, None),
        lambda: plan_isa(reader, ["avx2"]),
    ):
        for change in plan().changes:
            (copy / change.path).write_bytes(change.after)
    after = read_source(str(copy)).to_result()
    assert after["edits"]
    assert {name: before[name] for name in before if name not in (*SHOWN, "isa")} == {
        name: after[name] for name in after if name not in (*SHOWN, "isa")
    }
    assert after["isa"]["generation"] == before["isa"]["generation"]
    if before["isa"]["chosen_at"] == "import":
        assert after["isa"]["targets"] != before["isa"]["targets"]


@pytest.mark.parametrize(
    ("version", "names"),
    [
        ("0.32.0", ["slot-mapping-arguments"]),
        ("0.6.5", []),
        ("0.17.1", ["l2-cache-size", "torch-cpu-questions"]),
        ("0.8.5", []),
    ],
)
def test_known_fixes_are_reported(version: str, names: list[str]) -> None:
    assert [fix["name"] for fix in read_source(str(tree(version))).known_fixes] == names
