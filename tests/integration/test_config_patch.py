# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""config_patch over real vLLM trees, by what verify_async_output_proc then does."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.support.detection import detect
from tests.support.run_module import run_module
from tests.support.trees import copy_tree, tree
from tests.support.versions import GENERATIONS, each_version

HOOK = "        if not current_platform.is_async_output_supported(self.enforce_eager):"
REASONS = {
    "A0": "This release has no verify_async_output_proc",
    "A1": "verify_async_output_proc of this release asks no platform, so it cannot raise for a missing hook",
}


def config_file(root: Path) -> Path:
    package = root / "vllm" / "config" / "__init__.py"
    return package if package.exists() else root / "vllm" / "config.py"


@each_version()
def test_edit_of_a_source_tree(version: str, tmp_path: Path) -> None:
    root = copy_tree(version, tmp_path)
    file = config_file(root)
    original = file.read_bytes()
    generation = GENERATIONS[version][2]
    result = run_module("config_patch", path=root)
    assert result["generation"] == generation
    if generation in REASONS:
        assert (result["changed"], result["status"], result["reason"]) == (False, "not_needed", REASONS[generation])
        assert run_module("config_patch", path=root, force=True)["status"] == "not_needed"
        assert file.read_bytes() == original
        return
    assert (result["changed"], result["status"]) == (True, "applied")
    assert result["files"] == [str(file.relative_to(root))]
    assert "+        except NotImplementedError:\n" in result["diff"]["prepared"]
    ast.parse(file.read_bytes())
    assert not run_module("config_patch", path=root)["changed"]
    assert run_module("config_patch", path=root, state="absent")["changed"]
    assert file.read_bytes() == original


@each_version("A2")
def test_what_is_observed(version: str, tmp_path: Path) -> None:
    """The tree's own method, asked on the platform that the release falls back to when it detects none."""
    root = copy_tree(version, tmp_path)
    before = detect(root, version, fallback=tree(version), asynchronous=True)
    assert before.platform == "UnspecifiedPlatform"
    assert before.error.startswith("NotImplementedError")
    run_module("config_patch", path=root)
    after = detect(root, version, fallback=tree(version), asynchronous=True)
    assert (after.error, after.async_output) == ("", False)
    on_cpu = detect(root, f"{version}+cpu", fallback=tree(version), asynchronous=True)
    assert (on_cpu.platform, on_cpu.error, on_cpu.async_output) == ("CpuPlatform", "", False)


@pytest.mark.full
def test_release_that_asks_no_platform_does_not_raise() -> None:
    found = detect(tree("0.6.3.post1"), "0.6.3.post1", asynchronous=True)
    assert (found.platform, found.error, found.async_output) == ("UnspecifiedPlatform", "", False)


@each_version("A2")
def test_altered_anchor_fails_and_leaves_the_tree(version: str, tmp_path: Path) -> None:
    root = copy_tree(version, tmp_path)
    file = config_file(root)
    altered = file.read_bytes().replace(HOOK.encode(), HOOK.replace("enforce_eager", "eager").encode())
    file.write_bytes(altered)
    failure = run_module("config_patch", path=root)
    assert failure["failed"]
    assert (failure["path"], failure["anchor"]) == (str(file.relative_to(root)), HOOK)
    assert failure["msg"].startswith(f"Cannot apply the edit async-output-hook to {failure['path']}: its anchor")
    assert file.read_bytes() == altered


def test_installed_version_that_says_cpu_needs_no_edit(tmp_path: Path) -> None:
    copy_tree("0.6.5", tmp_path, ["vllm/*.py"])
    metadata = tmp_path / "vllm-0.6.5+cpu.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Name: vllm\nVersion: 0.6.5+cpu\n")
    result = run_module("config_patch", path=tmp_path / "vllm")
    assert (result["changed"], result["status"]) == (False, "not_needed")
    assert result["reason"] == (
        "The installed version 0.6.5+cpu already says cpu, and its CPU platform implements the hook"
    )
    assert run_module("config_patch", path=tmp_path / "vllm", force=True)["status"] == "applied"


def test_platform_and_config_edits_do_not_meet(tmp_path: Path) -> None:
    root = copy_tree("0.6.5", tmp_path)
    originals = {path: path.read_bytes() for path in root.rglob("*.py")}
    run_module("platform_patch", path=root)
    run_module("config_patch", path=root)
    run_module("platform_patch", path=root, state="absent")
    assert run_module("config_patch", path=root)["changed"] is False
    run_module("config_patch", path=root, state="absent")
    assert {path: path.read_bytes() for path in root.rglob("*.py")} == originals
