# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The one writer: old bytes or new bytes, never a mixture; modes, links and full disks."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils import _io
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError

from tests.support.run_module import COLLECTIONS

MODULE = "ansible_collections.cpufleet.vllm.plugins.module_utils._io"


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_a_new_file_is_readable_and_a_given_mode_is_taken(tmp_path: Path) -> None:
    _io.write_atomic(str(tmp_path / "plain"), b"x")
    _io.write_atomic(str(tmp_path / "secret"), b"x", 0o600)
    assert (mode(tmp_path / "plain"), mode(tmp_path / "secret")) == (0o644, 0o600)
    assert names(tmp_path) == ["plain", "secret"]


def test_the_mode_of_a_file_that_is_there_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "script"
    path.write_bytes(b"old")
    path.chmod(0o750)
    _io.write_atomic(str(path), b"new")
    assert (path.read_bytes(), mode(path)) == (b"new", 0o750)
    _io.write_atomic(str(path), b"new", 0o600)
    assert mode(path) == 0o600


def test_a_secret_is_never_readable_for_a_moment(tmp_path: Path) -> None:
    old = os.umask(0)
    seen: list[int] = []
    replace = os.replace

    def look(source: str, target: str) -> None:
        seen.append(mode(Path(source)))
        replace(source, target)

    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "replace", look)
            _io.write_atomic(str(tmp_path / "key"), b"x", 0o600)
    finally:
        os.umask(old)
    assert seen == [0o600]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "real", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to("real")
    _io.write_atomic(str(link), b"new")
    assert (link.is_symlink(), os.readlink(link), target.read_bytes()) == (True, "real", b"new")


def test_a_full_disk_leaves_the_original(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    script = f"from {MODULE} import write_atomic\nwrite_atomic({str(path)!r}, b'x' * 100_000)\n"
    limit = (50_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(COLLECTIONS), "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
        capture_output=True,
        check=False,
        text=True,
    )
    assert (
        f"Cannot write {path}: File too large; the original is untouched. "
        "Check free space and permissions of the folder."
    ) in done.stderr
    assert (path.read_bytes(), names(tmp_path)) == (b"old", ["file"])


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(CpufleetError) as failed:
        _io.write_atomic(str(tmp_path / "none" / "file"), b"")
    assert str(failed.value) == (
        f"Cannot write {tmp_path}/none/file: No such file or directory; the original is untouched. "
        "Check free space and permissions of the folder."
    )
    assert failed.value.details == {"path": f"{tmp_path}/none/file"}


def test_all_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [tmp_path / name for name in "abc"]
    for path in paths:
        path.write_bytes(b"old")
    replace = os.replace

    def fail_on_c(source: str, target: str) -> None:
        if target.endswith("/c"):
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", fail_on_c)
    with pytest.raises(CpufleetError, match="No space left on device"):
        _io.write_all({str(path): b"new" for path in paths})
    assert [path.read_bytes() for path in paths] == [b"old"] * 3
    monkeypatch.setattr(os, "replace", replace)
    _io.write_all({str(path): b"new" for path in paths})
    assert [path.read_bytes() for path in paths] == [b"new"] * 3
    assert names(tmp_path) == ["a", "b", "c"]


def test_documents(tmp_path: Path) -> None:
    path = str(tmp_path / "document.json")
    _io.write_json(path, {"b": "ü", "a": [1]}, 0o600)
    assert Path(path).read_text() == '{\n  "a": [\n    1\n  ],\n  "b": "ü"\n}\n'
    assert _io.read_json(path) == {"a": [1], "b": "ü"}


def test_documents_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "document.json"
    assert _io.read_json(str(path), default={}) == {}
    with pytest.raises(CpufleetError, match=r"Cannot read .*: No such file or directory\. Check that the file exists"):
        _io.read_json(str(path))
    path.write_text('{"a": ')
    assert _io.read_json(str(path), default={}) == {}
    with pytest.raises(CpufleetError, match=r"Cannot parse .* as JSON: .* Restore the file or remove it"):
        _io.read_json(str(path))


def test_text_keeps_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a\xff\n")
    assert _io.read_text(str(path)).encode("utf-8", "surrogateescape") == b"a\xff\n"
    assert _io.read_text(str(tmp_path / "none"), default="x") == "x"


def test_digests(tmp_path: Path) -> None:
    content = b"x" * ((1 << 20) + 1)
    (tmp_path / "file").write_bytes(content)
    assert _io.sha256_file(str(tmp_path / "file")) == _io.sha256_bytes(content)
    with pytest.raises(CpufleetError, match=r"Cannot read .*/none: No such file or directory"):
        _io.sha256_file(str(tmp_path / "none"))


def test_a_backup_keeps_content_and_mode(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o640)
    backup = Path(_io.backup_file(str(path), ".1"))
    assert (backup.name, backup.read_bytes(), mode(backup)) == ("file.1", b"old", 0o640)
    with pytest.raises(CpufleetError, match=r"Cannot back up .*/none to .*/none\.1: No such file or directory"):
        _io.backup_file(str(tmp_path / "none"), ".1")
