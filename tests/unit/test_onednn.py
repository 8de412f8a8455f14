# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""onednn_info over folders, archives and git addresses; the sources are small ones written here."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._onednn import folder_digest

from tests.support.run_module import run_module

CMAKE = (
    'cmake_minimum_required(VERSION 3.13)\nset(PROJECT_VERSION "3.7.2")\nproject(DNNL VERSION "${PROJECT_VERSION}")\n'
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "oneDNN-3.7.2"
    (root / "src/cpu").mkdir(parents=True)
    (root / "CMakeLists.txt").write_text(CMAKE)
    (root / "src/CMakeLists.txt").write_text("set(PROJECT_VERSION 9.9)\n")
    (root / "src/cpu/a.cpp").write_text("int a;\n")
    return root


def test_a_folder_is_told_by_its_contents(folder: Path) -> None:
    first = run_module("onednn_info", source=str(folder))["onednn"]
    assert (first["kind"], first["version"], first["path"]) == ("folder", "3.7.2", str(folder))
    (folder / ".git").mkdir()
    (folder / ".git/HEAD").write_text("ref")
    assert run_module("onednn_info", source=str(folder))["onednn"] == first
    (folder / "src/cpu/a.cpp").write_text("int b;\n")
    assert run_module("onednn_info", source=str(folder))["onednn"]["sha256"] != first["sha256"]


@pytest.mark.parametrize("mode", ["gz", "xz"])
def test_an_archive_is_told_by_its_bytes(folder: Path, tmp_path: Path, mode: str) -> None:
    path = tmp_path / f"onednn.tar.{mode}"
    with tarfile.open(path, "w:gz" if mode == "gz" else "w:xz") as archive:
        archive.add(folder, arcname=f"./{folder.name}" if mode == "gz" else folder.name)
    found = run_module("onednn_info", source=str(path))["onednn"]
    assert (found["kind"], found["version"], len(found["sha256"])) == ("archive", "3.7.2", 64)


@pytest.mark.parametrize(
    ("source", "url", "tag"),
    [
        ("https://mirror.example.com/oneDNN.git", "https://mirror.example.com/oneDNN.git", ""),
        ("https://mirror.example.com/oneDNN.git#v3.10", "https://mirror.example.com/oneDNN.git", "v3.10"),
        ("git@code.example.com:ml/oneDNN.git#v3.9", "git@code.example.com:ml/oneDNN.git", "v3.9"),
        ("file:///srv/git/onednn", "file:///srv/git/onednn", ""),
    ],
)
def test_a_git_address_is_not_asked(source: str, url: str, tag: str) -> None:
    found = run_module("onednn_info", source=source)["onednn"]
    assert found == {"kind": "git", "url": url, "tag": tag, "path": "", "version": "", "sha256": ""}


def test_the_address_of_an_archive_needs_a_digest() -> None:
    url, sha256 = "https://files.example.com/v3.10.tar.gz", "ab" * 32
    found = run_module("onednn_info", source=url, sha256=sha256)["onednn"]
    assert found == {"kind": "archive", "url": url, "tag": "", "path": "", "version": "", "sha256": sha256}
    assert run_module("onednn_info", source=url, library="acl")["msg"] == (
        f"Cannot verify {url}: an archive that is downloaded needs a digest. "
        "Set vllm_source_build_acl_sha256 to its SHA-256."
    )


def test_the_arm_compute_library_is_told_by_its_own_words(tmp_path: Path) -> None:
    root = tmp_path / "acl"
    root.mkdir()
    (root / "CMakeLists.txt").write_text("project(\n  ArmCompute\n  VERSION 52.6.0\n  LANGUAGES CXX\n)\n")
    assert run_module("onednn_info", source=str(root), library="acl")["onednn"]["version"] == "52.6.0"
    (root / "CMakeLists.txt").write_text(CMAKE)
    assert run_module("onednn_info", source=str(root), library="acl")["msg"].startswith(
        f"{root} is no source of the Arm Compute Library: its CMakeLists.txt sets no project(ArmCompute VERSION ...). "
    )


def test_an_archive_with_another_digest_is_refused(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "onednn.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(folder, arcname=folder.name)
    message = run_module("onednn_info", source=str(path), sha256="0" * 64)["msg"]
    assert message.startswith(f"Refused {path}: its SHA-256 is ")
    assert message.endswith(f"expected {'0' * 64}. Correct vllm_source_build_onednn_sha256 or the file.")


def test_what_is_no_onednn_is_refused(folder: Path, tmp_path: Path) -> None:
    missing = run_module("onednn_info", source=str(tmp_path / "none"))
    assert missing["msg"] == f"There is no source of oneDNN at {tmp_path}/none. Check vllm_source_build_onednn."
    (folder / "CMakeLists.txt").write_text("project(x)\n")
    assert run_module("onednn_info", source=str(folder))["msg"] == (
        f"{folder} is no source of oneDNN: its CMakeLists.txt sets no PROJECT_VERSION. "
        "Point vllm_source_build_onednn at an unpacked source of it, at its archive, or at a git address."
    )
    torn = tmp_path / "torn.tar.gz"
    torn.write_bytes(b"no archive")
    assert run_module("onednn_info", source=str(torn))["msg"].startswith(f"Cannot read the archive {torn}: ")


def test_the_order_in_which_a_folder_is_read_does_not_matter() -> None:
    files = [("src/b.cpp", "22"), ("a.cpp", "11")]
    assert (
        folder_digest(files) == folder_digest(reversed(files)) != folder_digest([("a.cpp", "22"), ("src/b.cpp", "11")])
    )
