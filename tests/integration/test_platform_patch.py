# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""platform_patch over real vLLM trees: applied, idempotent, reverted byte for byte, foreign source left alone."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from tests.support.run_module import run_module, start_module
from tests.support.trees import copy_tree, tree
from tests.support.versions import GENERATIONS, each_version

PLATFORMS = "vllm/platforms/__init__.py"
ANCHORS = {"D1": "if is_tpu:", "D2": "def resolve_current_platform_cls_qualname() -> str:"}


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def install(version: str, installed: str, site: Path) -> Path:
    """Lay the package out as an installation does: the vllm folder beside its metadata, and no setup.py."""
    copy_tree(version, site, ["vllm/*.py", "vllm/config", "vllm/platforms", "vllm/utils", "vllm/triton_utils"])
    metadata = site / f"vllm-{installed}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.4\nName: vllm\nVersion: {installed}\n\nVersion: of the text\n")
    return site / "vllm"


@each_version()
def test_edit_of_a_source_tree(version: str, tmp_path: Path) -> None:
    root = copy_tree(version, tmp_path)
    before = contents(root)
    generation = GENERATIONS[version][0]
    force = generation == "D6"

    planned = run_module("platform_patch", check=True, path=root, force=force)
    assert contents(root) == before
    applied = run_module("platform_patch", path=root, force=force)
    assert applied == planned
    assert (applied["changed"], applied["status"], applied["generation"]) == (True, "applied", generation)
    after = contents(root)
    assert sorted(path for path in after if after[path] != before[path]) == sorted(applied["files"])
    assert PLATFORMS in applied["files"]
    assert f"--- a/{PLATFORMS}\n+++ b/{PLATFORMS}\n" in applied["diff"]["prepared"]
    assert "VLLM_CPU_ONLY" in applied["diff"]["prepared"]
    for path in applied["files"]:
        ast.parse(after[path])

    again = run_module("platform_patch", path=root)
    assert (again["changed"], again["status"], again["files"]) == (False, "applied", applied["files"])
    assert again["diff"] == {"prepared": ""}

    removed = run_module("platform_patch", path=root, state="absent")
    assert (removed["changed"], removed["status"]) == (True, "removed")
    assert sorted(removed["files"]) == sorted(applied["files"])
    assert contents(root) == before
    gone = run_module("platform_patch", path=root, state="absent")
    assert (gone["changed"], gone["status"], gone["files"]) == (False, "removed", [])


@each_version()
def test_altered_anchor_fails_and_leaves_the_tree(version: str, tmp_path: Path) -> None:
    root = copy_tree(version, tmp_path)
    anchor = ANCHORS.get(GENERATIONS[version][0], ANCHORS["D2"])
    file = root / PLATFORMS
    file.write_bytes(file.read_bytes().replace(anchor.encode(), anchor.encode() + b"  # mine"))
    before = contents(root)
    failure = run_module("platform_patch", path=root, force=True)
    assert failure["failed"]
    assert failure["path"] == PLATFORMS
    assert failure["anchor"] == anchor
    assert failure["msg"].startswith("Cannot apply the edit cpu-only-")
    assert f"{PLATFORMS}: its anchor '{anchor}' is not there" in failure["msg"]
    assert contents(root) == before


def test_shape_that_is_not_known_fails(tmp_path: Path) -> None:
    root = copy_tree("0.8.5", tmp_path)
    file = root / PLATFORMS
    file.write_bytes(file.read_bytes().replace(b"builtin_platform_plugins = {", b"plugins = {"))
    failure = run_module("platform_patch", path=root)
    assert failure["msg"].startswith("Cannot tell how this tree detects its platform: vllm/platforms/__init__.py has")
    assert (failure["path"], failure["anchor"]) == (PLATFORMS, "builtin_platform_plugins = {")


@each_version()
def test_installed_version_that_says_cpu_needs_no_edit(version: str, tmp_path: Path) -> None:
    package = install(version, f"{version}+cpu", tmp_path)
    before = contents(tmp_path)
    result = run_module("platform_patch", path=package)
    assert (result["changed"], result["status"], result["files"]) == (False, "not_needed", [])
    assert result["reason"].startswith(f"The installed version {version}+cpu already says cpu")
    assert ("use force there" in result["reason"]) == (GENERATIONS[version][0] in ("D1", "D2"))
    assert contents(tmp_path) == before
    forced = run_module("platform_patch", path=package, force=True)
    assert (forced["changed"], forced["status"]) == (True, "applied")
    kept = run_module("platform_patch", path=package)
    assert (kept["changed"], kept["status"]) == (False, "applied")


@each_version()
def test_installed_version_that_does_not_say_cpu(version: str, tmp_path: Path) -> None:
    package = install(version, version, tmp_path)
    result = run_module("platform_patch", path=package)
    if GENERATIONS[version][0] == "D6":
        assert result["status"] == "not_needed"
        assert "VLLM_TARGET_DEVICE=cpu" in result["reason"]
    else:
        assert (result["changed"], result["status"]) == (True, "applied")


def test_two_metadata_folders_of_which_one_does_not_say_cpu(tmp_path: Path) -> None:
    package = install("0.8.5", "0.8.5+cpu", tmp_path)
    other = tmp_path / "vllm-0.8.5.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Name: vllm\nVersion: 0.8.5\n")
    assert run_module("platform_patch", path=package)["status"] == "applied"


def test_backup_keeps_the_original_beside_the_file(tmp_path: Path) -> None:
    root = copy_tree("0.6.5", tmp_path)
    original = (root / PLATFORMS).read_bytes()
    (backup,) = run_module("platform_patch", path=root, backup=True)["backup_files"]
    assert Path(backup).parent == (root / PLATFORMS).parent
    assert Path(backup).read_bytes() == original
    assert "backup_files" not in run_module("platform_patch", path=root, backup=True)


def test_path_without_vllm(tmp_path: Path) -> None:
    assert run_module("platform_patch", path=tmp_path)["msg"] == (
        f"Cannot find vLLM at {tmp_path}: there is no vllm/__init__.py. Point path at the root of a vLLM source tree "
        "or at the vllm folder of an installed package."
    )


TRANSFORMATIONS = {
    "crlf": lambda content: content.replace(b"\n", b"\r\n"),
    "latin-1 declared": lambda content: b"# -*- coding: latin-1 -*-\n# caf\xe9\n" + content,
    "not utf-8": lambda content: content + b"# caf\xe9 \xff\n",
}


@pytest.mark.parametrize("transform", TRANSFORMATIONS.values(), ids=TRANSFORMATIONS)
@pytest.mark.parametrize("version", ["0.6.5", "0.8.5"])
def test_bytes_of_the_file_are_kept(version: str, transform: Any, tmp_path: Path) -> None:
    root = copy_tree(version, tmp_path)
    file = root / PLATFORMS
    original = transform(file.read_bytes())
    file.write_bytes(original)
    assert run_module("platform_patch", path=root)["changed"]
    assert not run_module("platform_patch", path=root)["changed"]
    edited = file.read_bytes()
    assert edited != original
    assert all(line in edited for line in original.splitlines(keepends=True))
    assert run_module("platform_patch", path=root, state="absent")["changed"]
    assert file.read_bytes() == original


def test_symbolic_link_stays_a_link(tmp_path: Path) -> None:
    root = copy_tree("0.6.5", tmp_path / "tree")
    file, target = root / PLATFORMS, tmp_path / "elsewhere.py"
    original = file.read_bytes()
    file.rename(target)
    target.chmod(0o640)
    file.symlink_to(target)
    assert run_module("platform_patch", path=root)["changed"]
    assert file.is_symlink()
    assert b"VLLM_CPU_ONLY" in target.read_bytes()
    assert target.stat().st_mode & 0o777 == 0o640
    assert run_module("platform_patch", path=root, state="absent")["changed"]
    assert file.is_symlink()
    assert target.read_bytes() == original


# A process of its own is limited, or killed at one call; what it leaves must be the original or the whole edit.
FAULTS = {
    "no space": (
        "import errno, os\ndef full(*_): raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))\nos.fsync = full",
        False,
    ),
    "file size limit": (
        "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))",
        False,
    ),
    "killed before the rename": (
        "import os, signal\nos.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)",
        False,
    ),
    "killed after the rename": (
        "import os, signal\nrename = os.replace\n"
        "def replace(*paths):\n    rename(*paths)\n    os.kill(os.getpid(), signal.SIGKILL)\nos.replace = replace",
        True,
    ),
}


@pytest.mark.parametrize(("fault", "edited"), FAULTS.values(), ids=FAULTS)
def test_fault_leaves_the_original_or_the_whole_edit(fault: str, edited: bool, tmp_path: Path) -> None:
    root = copy_tree("0.6.5", tmp_path / "tree")
    whole = copy_tree("0.6.5", tmp_path / "whole")
    run_module("platform_patch", path=whole)
    original = (root / PLATFORMS).read_bytes()
    assert start_module("platform_patch", fault, path=root).returncode != 0
    assert (root / PLATFORMS).read_bytes() == ((whole / PLATFORMS).read_bytes() if edited else original)
    assert run_module("platform_patch", path=root)["changed"] is not edited
    assert (root / PLATFORMS).read_bytes() == (whole / PLATFORMS).read_bytes()


def test_read_only_tree_fails_and_says_so(tmp_path: Path) -> None:
    root = copy_tree("0.6.5", tmp_path)
    original = (root / PLATFORMS).read_bytes()
    # Root may write in any folder, so the process gives that right up, after it has imported what it needs.
    drop = (
        "import os\nfrom ansible_collections.cpufleet.vllm.plugins.modules import platform_patch\n"
        "os.geteuid() == 0 and (os.setgid(65534), os.setuid(65534))"
    )
    for folder in (tmp_path, *tmp_path.parents):
        if "pytest" in str(folder):
            folder.chmod(0o755)
    for path in root.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    answer = start_module("platform_patch", drop, path=root)
    assert answer.returncode != 0
    assert "Permission denied; the original is untouched" in answer.stdout
    assert (root / PLATFORMS).read_bytes() == original


def test_later_file_that_cannot_be_written_puts_the_earlier_back(tmp_path: Path) -> None:
    root = copy_tree("0.6.3.post1", tmp_path)
    before = contents(root)
    fault = (
        "import os\nrename = os.replace\n"
        "def replace(source, target):\n"
        "    if target.endswith('utils.py'): raise OSError(28, 'No space left on device')\n"
        "    rename(source, target)\nos.replace = replace"
    )
    answer = start_module("platform_patch", fault, path=root)
    assert answer.returncode != 0
    assert "utils.py: No space left on device" in answer.stdout
    assert contents(root) == before


def test_pristine_tree_of_the_cache_was_not_touched() -> None:
    assert b"cpufleet" not in (tree("0.6.5") / PLATFORMS).read_bytes()
