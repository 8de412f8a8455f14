# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""source_fetch of archives of the real tree of 0.6.5, from a real HTTP server over bad links and from bad mirrors."""

from __future__ import annotations

import hashlib
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.file_server import FileServer, serving_files
from tests.support.git_server import dead_port, git, make_repository
from tests.support.run_module import run_module
from tests.support.trees import sdist, tree

VERSION = "0.6.5"
KINDS = {"folder.tar.gz": "vllm-0.6.5/", "nested.tar.gz": "a/b/", "flat.tar.gz": "", "folder.zip": "vllm-0.6.5/"}


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Make what a code host packs of the repository: no PKG-INFO, the commit in a comment, its date on every file."""
    root = tmp_path_factory.mktemp("archives")
    make_repository(tree(VERSION), root / "vllm.git", "v0.6.5")
    for name, prefix in KINDS.items():
        git(root / "vllm.git", "archive", f"--prefix={prefix}", f"--output={root / name}", "v0.6.5")
    return {name: (root / name).read_bytes() for name in KINDS}


@pytest.fixture
def server(archives: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    with serving_files() as one:
        one.files.update(archives)
        yield one


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def fetch(tmp_path: Path, server: FileServer, name: str = "folder.tar.gz", **more: Any) -> dict[str, Any]:
    given = {"version": VERSION, "cache": tmp_path / "cache", "source": "archive"}
    given.update(urls=[server.url(name)], sha256=digest(server.files[name]))
    return run_module("source_fetch", **{**given, **more})


def facts(path: str | Path) -> dict[str, Any]:
    found = run_module("source_info", path=path)["source"]
    del found["source_kind"], found["evidence"]
    return dict(found)


@pytest.mark.parametrize("name", KINDS)
def test_archive_gets_the_shape_of_a_source_distribution(tmp_path: Path, server: FileServer, name: str) -> None:
    archive = fetch(tmp_path, server, name)["source_archive"]
    assert archive["sha256"] == digest(server.files[name]) != archive["file_sha256"]
    assert archive["upload_time"][:10] in ("2024-12-17", "2024-12-18")  # a zip has no time zone
    with tarfile.open(archive["path"]) as content:
        tops = {entry.partition("/")[0] for entry in content.getnames()}
        assert "vllm-0.6.5/vllm.egg-info/SOURCES.txt" in content.getnames()
    assert tops == {"vllm-0.6.5"}
    assert facts(archive["path"]) == facts(tree(VERSION))
    again = fetch(tmp_path, server, name)
    assert (again["downloaded"], again["source_archive"]) == (False, archive)


def test_commit_in_the_archive_is_recorded(tmp_path: Path, server: FileServer) -> None:
    assert len(fetch(tmp_path, server)["source_archive"]["commit"]) == 40
    assert fetch(tmp_path, server, "folder.zip")["source_archive"]["commit"] == ""


def test_source_distribution_is_taken_as_it_is(tmp_path: Path, server: FileServer) -> None:
    server.files["own"] = sdist(VERSION).read_bytes()
    archive = fetch(tmp_path, server, "own")["source_archive"]
    assert archive["sha256"] == archive["file_sha256"] == digest(server.files["own"])
    local = fetch(tmp_path, server, path=sdist(VERSION), sha256="")["source_archive"]
    assert (local["path"], local["sha256"]) == (str(sdist(VERSION)), archive["sha256"])


def test_file_on_the_controller_is_not_asked_for(tmp_path: Path, server: FileServer) -> None:
    path = tmp_path / "own.zip"
    path.write_bytes(server.files["folder.zip"])
    archive = fetch(tmp_path, server, path=path, sha256="")["source_archive"]
    assert archive["sha256"] == digest(path.read_bytes())
    assert facts(archive["path"])["version"] == VERSION
    assert "expected " + "0" * 64 in fetch(tmp_path, server, path=path, sha256="0" * 64)["msg"]
    assert (server.asked, path.exists()) == ([], True)


def test_line_that_is_cut_twice_is_resumed(tmp_path: Path, server: FileServer) -> None:
    server.faults = ["cut", "cut"]
    result = fetch(tmp_path, server)
    assert result["source_archive"]["sha256"] == digest(server.files["folder.tar.gz"])
    half = len(server.files["folder.tar.gz"]) // 2
    assert [wanted for _name, wanted in server.asked][:2] == ["", f"bytes={half}-"]
    assert len(server.asked) == 3


def test_download_that_ends_early_without_a_word(tmp_path: Path, server: FileServer) -> None:
    server.files["mirror"] = server.files["folder.tar.gz"]
    urls = [server.url("folder.tar.gz"), server.url("mirror")]
    # Once is bad luck, twice is that address, and in the end it is told.
    for number, faults in enumerate((["truncated"], ["truncated"] * 2)):
        server.faults = faults
        assert fetch(tmp_path / str(number), server, urls=urls)["source_archive"]["url"] == urls[number]
    server.faults = ["truncated"] * 4
    failed = fetch(tmp_path / "again", server, urls=urls)
    part = tmp_path / "again/cache" / f"archive-{digest(server.files['folder.tar.gz'])[:12]}.part"
    assert failed["msg"].startswith(f"Refused {part}: its SHA-256 is ")
    assert not part.exists()


def test_stale_mirror_and_a_dead_one_are_passed_over(tmp_path: Path, server: FileServer) -> None:
    server.files["stale"] = b"an older file"
    dead = f"http://127.0.0.1:{dead_port()}/vllm.tar.gz"
    urls = [server.url("missing"), server.url("stale"), dead, server.url("folder.tar.gz")]
    archive = fetch(tmp_path, server, urls=urls)["source_archive"]
    assert archive["url"] == urls[3]


def test_half_a_file_of_another_mirror_does_not_spoil_a_good_one(tmp_path: Path, server: FileServer) -> None:
    part = tmp_path / "cache" / f"archive-{digest(server.files['folder.tar.gz'])[:12]}.part"
    part.parent.mkdir()
    part.write_bytes(b"something else")
    assert fetch(tmp_path, server)["source_archive"]["sha256"] == digest(server.files["folder.tar.gz"])


def test_all_addresses_down(tmp_path: Path, server: FileServer) -> None:
    dead = [f"http://127.0.0.1:{dead_port()}/{number}" for number in range(2)]
    message = fetch(tmp_path, server, urls=dead)["msg"]
    assert message.startswith(f"Cannot download {dead[0]}: ")
    assert f"; {dead[1]}: " in message
    assert message.endswith("(tries: 5). Check the connection and proxy of the controller.")


def test_download_without_a_digest_is_refused(tmp_path: Path, server: FileServer) -> None:
    assert fetch(tmp_path, server, sha256="")["msg"] == (
        f"Cannot verify {server.url('folder.tar.gz')}: an archive that is downloaded needs a digest. "
        "Set vllm_source_build_sha256 to its SHA-256."
    )
    assert server.asked == []


def test_other_bytes_are_removed(tmp_path: Path, server: FileServer) -> None:
    message = fetch(tmp_path, server, sha256="0" * 64)["msg"]
    assert message.startswith(f"Refused {tmp_path}/cache/archive-000000000000.part: its SHA-256 is ")
    assert list((tmp_path / "cache").iterdir()) == []


def test_full_disk_is_told_at_once(tmp_path: Path, server: FileServer) -> None:
    part = tmp_path / "cache" / f"archive-{digest(server.files['folder.tar.gz'])[:12]}.part"
    part.parent.mkdir()
    part.symlink_to("/dev/full")
    assert fetch(tmp_path, server)["msg"] == (
        f"Cannot write {part}: No space left on device. "
        "Free space there or use another folder; what is there already is kept and gone on from."
    )
    assert len(server.asked) == 1


def test_archive_of_something_else(tmp_path: Path, server: FileServer) -> None:
    path = tmp_path / "other.zip"
    with zipfile.ZipFile(path, "w") as content:
        content.writestr("other/setup.py", "")
    assert fetch(tmp_path, server, path=path, sha256="")["msg"] == (
        f"Cannot take {path} as the source of vLLM: it has no folder with setup.py and vllm/__init__.py. "
        "Use an archive of the whole tree."
    )
    path.write_bytes(server.files["folder.tar.gz"][:100_000])
    assert fetch(tmp_path, server, path=path, sha256="")["msg"].startswith(f"Cannot read {path} as an archive")
