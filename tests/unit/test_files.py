# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Digest manifests: what is listed, and when a remembered digest may be used again."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils import _files


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (folder / ".cache").mkdir()
    (folder / "b.bin").write_bytes(b"bb")
    (folder / "a.json").write_bytes(b"a")
    (folder / "sub" / "c").write_bytes(b"c")
    (folder / ".cache" / "hidden").write_bytes(b"h")
    (folder / ".hidden").write_bytes(b"h")
    (folder / "dangling").symlink_to("nowhere")
    return folder


def digests(folder: Path, memory: Path | str = "") -> dict[str, str]:
    entries = _files.digest_files(str(folder), _files.list_files(str(folder)), str(memory))
    return {entry["name"]: entry["sha256"] for entry in entries}


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_regular_files_sorted_by_name_without_hidden_ones(model: Path) -> None:
    assert list(digests(model).items()) == [("a.json", sha(b"a")), ("b.bin", sha(b"bb")), ("sub/c", sha(b"c"))]


def test_a_hubs_links_are_followed(model: Path, tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(b"weights")
    (model / "model.safetensors").symlink_to(tmp_path / "blob")
    files = _files.list_files(str(model))
    assert files["model.safetensors"].st_size == 7
    assert digests(model)["model.safetensors"] == sha(b"weights")


def test_a_missing_folder_has_no_files(tmp_path: Path) -> None:
    assert _files.list_files(str(tmp_path / "none")) == {}


def test_what_did_not_change_is_not_read_again(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    original = _files.sha256_file

    def count(path: str) -> str:
        read.append(os.path.relpath(path, model))
        return original(path)

    monkeypatch.setattr(_files, "sha256_file", count)
    memory = tmp_path / "memory" / "model.json"
    first = digests(model, memory)
    assert sorted(read) == ["a.json", "b.bin", "sub/c"]
    assert memory.stat().st_mode & 0o777 == 0o600
    read.clear()
    assert (digests(model, memory), read) == (first, [])
    (model / "a.json").write_bytes(b"z")  # same size, other content
    os.utime(model / "a.json", ns=(1, 1))
    assert (digests(model, memory)["a.json"], read) == (sha(b"z"), ["a.json"])
    read.clear()
    status = (model / "b.bin").stat()
    (model / "new").write_bytes(b"yy")
    os.utime(model / "new", ns=(status.st_atime_ns, status.st_mtime_ns))
    os.replace(model / "new", model / "b.bin")  # same size and time, another file
    assert (digests(model, memory)["b.bin"], read) == (sha(b"yy"), ["b.bin"])


@pytest.mark.parametrize("content", ["", "{", "{}"])
def test_a_damaged_memory_is_forgotten(model: Path, tmp_path: Path, content: str) -> None:
    memory = tmp_path / "memory.json"
    memory.write_text(content)
    assert digests(model, memory)["a.json"] == sha(b"a")
    assert digests(model, memory)["a.json"] == sha(b"a")
