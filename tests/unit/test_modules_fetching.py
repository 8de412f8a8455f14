# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""file_download and git_checkout: what is there already, check mode, and failures that leave nothing half made."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.file_server import FileServer, serving_files
from tests.support.git_server import make_repository
from tests.support.run_module import run_module

CONTENT = b"onednn" * 10_000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    with serving_files() as one:
        one.files["onednn.tar.gz"] = CONTENT
        yield one


def download(dest: Path, server: FileServer, *, check: bool = False, **more: Any) -> dict[str, Any]:
    given = {"urls": [server.url("onednn.tar.gz")], "sha256": SHA256, "dest": dest}
    return run_module("file_download", check=check, **{**given, **more})


def test_file_is_downloaded_once(tmp_path: Path, server: FileServer) -> None:
    dest = tmp_path / "new/onednn.tar.gz"
    assert download(dest, server, check=True) == {"changed": True, "url": ""}
    assert not dest.exists()
    assert download(dest, server) == {"changed": True, "url": server.url("onednn.tar.gz")}
    assert download(dest, server) == {"changed": False, "url": ""}
    assert dest.read_bytes() == CONTENT
    assert len(server.asked) == 1


def test_file_that_is_another_one_is_replaced(tmp_path: Path, server: FileServer) -> None:
    dest = tmp_path / "onednn.tar.gz"
    dest.write_bytes(b"older")
    assert download(dest, server)["changed"] is True
    assert dest.read_bytes() == CONTENT


def test_file_stays_where_the_download_fails(tmp_path: Path, server: FileServer) -> None:
    dest = tmp_path / "onednn.tar.gz"
    dest.write_bytes(b"older")
    failed = download(dest, server, urls=[server.url("none")])
    assert failed["msg"] == (
        f"Cannot download {server.url('none')}: HTTP Error 404: Not Found (tries: 1). "
        "Check the connection and proxy of this machine."
    )
    assert dest.read_bytes() == b"older"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    tree = tmp_path / "tree"
    (tree / "src").mkdir(parents=True)
    (tree / "src/a.cpp").write_text("int a;\n")
    (tree / "build.sh").write_text("#!/bin/sh\n")
    (tree / "build.sh").chmod(0o755)
    (tree / "link").symlink_to("src/a.cpp")
    make_repository(tree, tmp_path / "onednn.git", "v3.9")
    return tmp_path / "onednn.git"


def checkout(dest: Path, repository: Path, *, check: bool = False, **more: Any) -> dict[str, Any]:
    given = {"urls": [f"file://{repository}"], "ref": "v3.9", "dest": dest}
    return run_module("git_checkout", check=check, **{**given, **more})


def test_folder_is_made_once(tmp_path: Path, repository: Path) -> None:
    dest = tmp_path / "onednn"
    assert checkout(dest, repository, check=True) == {"changed": True, "url": "", "commit": ""}
    assert not dest.exists()
    first = checkout(dest, repository)
    assert (first["changed"], first["url"], len(first["commit"])) == (True, f"file://{repository}", 40)
    assert {path.name for path in dest.iterdir()} == {"src", "build.sh", "link"}
    assert (dest / "build.sh").stat().st_mode & 0o111
    assert (dest / "link").read_text() == "int a;\n"
    assert checkout(dest, repository) == {"changed": False, "url": "", "commit": ""}
    # What git needed is gone.
    assert not list(tmp_path.glob("onednn.tar*")) + list(tmp_path.glob("onednn.git.*"))


def test_nothing_is_left_where_the_reference_is_unknown(tmp_path: Path, repository: Path) -> None:
    dest = tmp_path / "onednn"
    assert checkout(dest, repository, ref="v9")["msg"] == (
        f"Cannot fetch v9: file://{repository} has no tag or branch v9. "
        "Check ref, commit and urls, and add an address that is not behind."
    )
    assert not dest.exists()


def test_commit_has_to_be_the_one_that_was_named(tmp_path: Path, repository: Path) -> None:
    failed = checkout(tmp_path / "onednn", repository, commit="1" * 40)
    assert failed["msg"].startswith(
        f"Refused the source v3.9: it has to be commit {'1' * 40}, but file://{repository} has"
    )
