# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""source_fetch against a real HTTP server that cuts connections; only the package index's answer is played."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._uv import find_uv

from tests.support.run_module import run_module

CONTENT = b"".join(hashlib.sha256(str(number).encode()).digest() for number in range(21_875))
SHA256 = hashlib.sha256(CONTENT).hexdigest()
NO_GIT = {"ref": "", "commit": "", "tree": ""}


class Mirror(ThreadingHTTPServer):
    """Serves CONTENT; each entry of ``faults`` spoils one request."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.faults: list[str] = []
        self.ranges: list[str] = []
        self.headers: dict[str, str] = {}
        self.resumes = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/vllm-0.6.5.tar.gz"


class Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Mirror

    def do_GET(self) -> None:
        wanted = self.headers.get("Range", "")
        self.server.ranges.append(wanted)
        fault = self.server.faults.pop(0) if self.server.faults else ""
        start = int(wanted[len("bytes=") : -1]) if wanted and self.server.resumes else 0
        self.close_connection = True
        if fault.isdecimal():
            self.send_error(int(fault))
            return
        if fault == "reset":
            return  # closed without a word
        if start >= len(CONTENT):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        if fault == "chunks":
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"30D40\r\n" + CONTENT[start : start + 100_000])
            return
        self.send_header("Content-Length", str(len(CONTENT) - start))
        self.end_headers()
        self.wfile.write(CONTENT[start : start + 200_000] if fault == "cut" else CONTENT[start:])

    def log_message(self, *_words: Any) -> None:
        pass


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    server = Mirror()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


class Index:
    """A uv that answers with one release at the mirror's address and counts how often it was asked."""

    def __init__(self, folder: Path, url: str, sha256: str = SHA256) -> None:
        self.uv, self.calls = folder / "uv", folder / "calls"
        self.answer = folder / "answer.toml"
        self.release(url, sha256)
        self.uv.write_text(
            f'#!/bin/sh\necho "$@" >> {self.calls}\n'
            'while [ "$1" != --output-file ]; do shift; done\n'
            f'grep -q "^vllm==0.6.5$" "$3" || {{ echo "no such release" >&2; exit 1; }}\ncp {self.answer} "$2"\n'
        )
        self.uv.chmod(0o755)

    def release(self, url: str, sha256: str) -> None:
        fields = f'url = "{url}", upload-time = 2024-12-18T00:02:57Z, size = 1, hashes = {{ sha256 = "{sha256}" }}'
        self.answer.write_text(f'[[packages]]\nname = "vllm"\nversion = "0.6.5"\nsdist = {{ {fields} }}\n')

    def asked(self) -> list[str]:
        return self.calls.read_text().splitlines() if self.calls.exists() else []


@pytest.fixture
def index(tmp_path: Path, mirror: Mirror) -> Index:
    folder = tmp_path / "index"
    folder.mkdir()
    return Index(folder, mirror.url)


def fetch(tmp_path: Path, index: Index, **arguments: Any) -> dict[str, Any]:
    given = {"version": "0.6.5", "cache": tmp_path / "cache", "uv": index.uv, **arguments}
    return run_module("source_fetch", **given)


def test_a_download_that_is_cut_twice_goes_on_where_it_was(tmp_path: Path, mirror: Mirror, index: Index) -> None:
    mirror.faults = ["cut", "cut"]
    result = fetch(tmp_path, index)
    assert mirror.ranges == ["", "bytes=200000-", "bytes=400000-"]
    assert (result["changed"], result["downloaded"]) == (False, True)
    archive = result["source_archive"]
    assert archive == {
        "source": "sdist",
        "path": str(tmp_path / "cache" / "vllm-0.6.5.tar.gz"),
        "file_sha256": SHA256,
        "sha256": SHA256,
        "upload_time": "2024-12-18T00:02:57Z",
        "url": mirror.url,
        **NO_GIT,
    }
    assert Path(archive["path"]).read_bytes() == CONTENT
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["vllm-0.6.5.json", "vllm-0.6.5.tar.gz"]
    (asked,) = index.asked()
    assert asked.startswith("pip compile --quiet --no-deps --python-version 3.11 --format pylock.toml --output-file ")


def test_a_second_call_asks_nobody(tmp_path: Path, mirror: Mirror, index: Index) -> None:
    first = fetch(tmp_path, index)
    second = fetch(tmp_path, index)
    assert (second["downloaded"], second["source_archive"]) == (False, first["source_archive"])
    assert (len(mirror.ranges), len(index.asked())) == (1, 1)


def test_what_an_earlier_run_left_is_resumed(tmp_path: Path, mirror: Mirror, index: Index) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "vllm-0.6.5.tar.gz.part").write_bytes(CONTENT[:123])
    assert fetch(tmp_path, index)["source_archive"]["sha256"] == SHA256
    assert mirror.ranges == ["bytes=123-"]


def test_a_whole_file_that_was_not_renamed_yet_is_taken(tmp_path: Path, mirror: Mirror, index: Index) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "vllm-0.6.5.tar.gz.part").write_bytes(CONTENT)
    assert fetch(tmp_path, index)["source_archive"]["sha256"] == SHA256
    assert mirror.ranges == ["bytes=700000-"]


def test_a_server_that_cannot_resume_starts_anew(tmp_path: Path, mirror: Mirror, index: Index) -> None:
    mirror.faults, mirror.resumes = ["cut"], False
    assert fetch(tmp_path, index)["source_archive"]["sha256"] == SHA256


@pytest.mark.parametrize("fault", ["reset", "chunks", "503", "429"])
def test_passing_faults_are_tried_again(tmp_path: Path, mirror: Mirror, index: Index, fault: str) -> None:
    mirror.faults = [fault]
    assert fetch(tmp_path, index)["source_archive"]["sha256"] == SHA256
    assert len(mirror.ranges) == 2


def test_a_mirror_that_calls_the_archive_an_encoding_does_not_spoil_it(
    tmp_path: Path, mirror: Mirror, index: Index
) -> None:
    mirror.headers = {"Content-Encoding": "gzip", "Content-Type": "application/x-tar"}
    assert fetch(tmp_path, index)["source_archive"]["sha256"] == SHA256


def test_other_bytes_are_refused_and_removed(tmp_path: Path, mirror: Mirror, index: Index) -> None:
    index.release(mirror.url, "0" * 64)
    failed = fetch(tmp_path, index)
    part = tmp_path / "cache" / "vllm-0.6.5.tar.gz.part"
    assert failed["msg"] == (
        f"Refused {part}: its SHA-256 is {SHA256}, expected {'0' * 64}. The file was removed. "
        "Run again; if it happens twice, the mirror serves another file."
    )
    assert list((tmp_path / "cache").iterdir()) == []


def test_the_users_digest_wins_over_the_indexs(tmp_path: Path, index: Index) -> None:
    assert f"expected {'1' * 64}" in fetch(tmp_path, index, sha256="1" * 64)["msg"]
    assert fetch(tmp_path, index, sha256=SHA256)["source_archive"]["sha256"] == SHA256


def test_a_cached_file_that_rotted_is_refused_and_fetched_anew(tmp_path: Path, index: Index) -> None:
    path = Path(fetch(tmp_path, index)["source_archive"]["path"])
    path.write_bytes(b"rotten")
    assert fetch(tmp_path, index)["msg"].startswith(f"Refused {path}: its SHA-256 is ")
    assert fetch(tmp_path, index)["source_archive"]["sha256"] == SHA256


def test_a_download_that_fails_every_time_names_the_last_cause(tmp_path: Path, mirror: Mirror, index: Index) -> None:
    mirror.faults = ["503"] * 9
    assert fetch(tmp_path, index)["msg"] == (
        f"Cannot download {mirror.url}: HTTP Error 503: Service Unavailable (tries: 5). "
        "Check the connection and proxy of the controller."
    )


def test_a_file_that_is_not_there_is_not_asked_for_five_times(tmp_path: Path, mirror: Mirror, index: Index) -> None:
    mirror.faults = ["404"] * 9
    assert fetch(tmp_path, index)["msg"].startswith(
        f"Cannot download {mirror.url}: HTTP Error 404: Not Found (tries: 1)."
    )
    assert len(mirror.ranges) == 1


def test_a_release_that_the_index_does_not_know(tmp_path: Path, index: Index) -> None:
    assert fetch(tmp_path, index, version="9.9.9")["msg"] == (
        "Cannot find vLLM 9.9.9 on the package index: no such release. "
        "Check vllm_version and the index that uv is configured with on the controller."
    )


def test_a_file_that_the_user_names_is_not_asked_for(tmp_path: Path, index: Index) -> None:
    named = tmp_path / "own.tar.gz"
    named.write_bytes(CONTENT)
    digests = {"sha256": SHA256, "file_sha256": SHA256}
    expected = {"source": "sdist", "path": str(named), **digests, "upload_time": "", "url": "", **NO_GIT}
    assert fetch(tmp_path, index, path=named)["source_archive"] == expected
    assert fetch(tmp_path, index, path=named, sha256="2" * 64)["msg"] == (
        f"Refused {named}: its SHA-256 is {SHA256}, expected {'2' * 64}. Correct vllm_source_build_sha256 or the file."
    )
    assert fetch(tmp_path, index, path=tmp_path / "none")["msg"] == (
        f"Cannot read {tmp_path}/none: No such file or directory."
    )
    assert index.asked() == []
    assert named.exists()


def test_a_cache_that_cannot_be_made_is_told(tmp_path: Path, index: Index) -> None:
    (tmp_path / "file").write_text("")
    failed = fetch(tmp_path, index, cache=tmp_path / "file" / "cache")
    assert failed["msg"] == (
        f"Cannot make the cache {tmp_path}/file/cache: Not a directory. "
        "Set plan_cache to a folder that you may write to."
    )


def test_check_mode_fills_the_cache_too(tmp_path: Path, index: Index) -> None:
    given = {"version": "0.6.5", "cache": tmp_path / "cache", "uv": index.uv}
    assert run_module("source_fetch", check=True, **given)["source_archive"]["sha256"] == SHA256


def test_without_uv_the_index_cannot_be_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setitem(os.environ, "PATH", str(tmp_path))
    with pytest.raises(CpufleetError) as refused:
        find_uv(None, "set vllm_source_build_sdist to a file")
    assert str(refused.value) == (
        "Cannot find uv on the controller, which asks the package index. "
        "Install it beside Ansible (python -m pip install uv), or set vllm_source_build_sdist to a file."
    )


def test_the_record_of_the_cache_names_the_file(tmp_path: Path, index: Index) -> None:
    archive = fetch(tmp_path, index)["source_archive"]
    assert json.loads((tmp_path / "cache" / "vllm-0.6.5.json").read_text()) == archive


def test_mirrors_of_the_index_are_asked_first_and_passed_over(tmp_path: Path, index: Index) -> None:
    script = index.uv.read_text()
    seen = tmp_path / "seen"
    # The first mirror has no such release, the second gives no upload time, the third is good.
    index.uv.write_text(
        script.replace("#!/bin/sh\n", f'#!/bin/sh\necho "$UV_DEFAULT_INDEX" >> {seen}\n')
        .replace("while ", '[ "$UV_DEFAULT_INDEX" != https://one.example.com ] || exit 1\nwhile ')
        .replace(f'cp {index.answer} "$2"', f'cp {index.answer} "$2"; {tmp_path}/spoil "$2"')
    )
    spoil = tmp_path / "spoil"
    spoil.write_text(
        '#!/bin/sh\n[ "$UV_DEFAULT_INDEX" != https://two.example.com ] || sed -i "s/upload-time = [^,]*, //" "$1"\n'
    )
    spoil.chmod(0o755)
    mirrors = [f"https://{name}.example.com" for name in ("one", "two", "three", "four")]
    result = fetch(tmp_path, index, indexes=mirrors)
    assert result["source_archive"]["upload_time"] == "2024-12-18T00:02:57Z"
    assert seen.read_text().split() == mirrors[:3]


def test_configured_index_is_asked_last_and_may_give_no_upload_time(tmp_path: Path, index: Index) -> None:
    index.answer.write_text(index.answer.read_text().replace("upload-time = 2024-12-18T00:02:57Z, ", ""))
    result = fetch(tmp_path, index, indexes=["https://one.example.com"])
    assert result["source_archive"]["upload_time"] == ""
    assert len(index.asked()) == 2
