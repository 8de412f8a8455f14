# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""managed_python with the real uv and archives that are made here, over HTTP and from a folder."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support import pythons
from tests.support.run_module import run_module

UV = Path(sys.executable).parent / "uv"
VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder that is laid out as a mirror of Pythons."""
    folder = tmp_path_factory.mktemp("mirror")
    assert pythons.make_mirror(folder) == VERSION
    return folder


class Web:
    """Serves a folder and notes what was asked for."""

    def __init__(self, folder: Path) -> None:
        self.asked: list[str] = []
        asked = self.asked

        class Handler(SimpleHTTPRequestHandler):
            def log_message(self, *_arguments: Any) -> None:
                asked.append(self.path)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def web(mirror: Path) -> Iterator[Web]:
    """Give the mirror over HTTP."""
    server = Web(mirror)
    yield server
    server.server.shutdown()
    server.server.server_close()


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mirror: Path) -> None:
    """Keep uv to what is here: the digest of the archive that was just made, no retries, a cache of its own."""
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "UV_PYTHON_INSTALL_MIRROR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS_JSON_URL", str(mirror / "downloads.json"))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")


def have(folder: Path, *mirrors: str, **more: Any) -> dict[str, Any]:
    return run_module(
        "managed_python", **{"path": folder, "version": VERSION, "uv": UV, "mirrors": list(mirrors), **more}
    )


def test_python_comes_from_the_mirror_and_makes_environments(tmp_path: Path, web: Web) -> None:
    result = have(tmp_path / "pythons", web.url)
    interpreter = tmp_path / "pythons" / VERSION / "bin" / f"python{VERSION}"
    assert (result["changed"], result["interpreter"], result["mirror"]) == (True, str(interpreter), web.url)
    command = [
        interpreter,
        "-c",
        "import platform, sysconfig; print(platform.python_version(), sysconfig.get_path('include'))",
    ]
    version, include = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert version == platform.python_version()
    assert include.startswith(str(tmp_path / "pythons"))
    environment = tmp_path / "venv"
    subprocess.run([UV, "venv", "--quiet", "--no-project", "--python", interpreter, environment], check=True)
    assert subprocess.run([environment / "bin/python", "-c", "import json"], check=False).returncode == 0


def test_a_second_run_changes_nothing_and_asks_nobody(tmp_path: Path, web: Web) -> None:
    have(tmp_path / "pythons", web.url)
    asked = len(web.asked)
    result = have(tmp_path / "pythons", "http://127.0.0.1:9")
    assert (result["changed"], result["mirror"], len(web.asked)) == (False, "", asked)


def test_mirror_may_be_a_folder_and_a_bad_one_is_passed_over(tmp_path: Path, mirror: Path) -> None:
    result = have(tmp_path / "pythons", "http://127.0.0.1:9", f"file://{tmp_path}", f"file://{mirror}")
    assert result["mirror"] == f"file://{mirror}"


def test_mirror_in_the_environment_is_tried_alone(
    tmp_path: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_PYTHON_INSTALL_MIRROR", f"file://{mirror}")
    assert have(tmp_path / "pythons", "http://127.0.0.1:9")["mirror"] == f"file://{mirror}"


def test_an_archive_that_was_tampered_with_is_refused(
    tmp_path: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(mirror, copy)
    archive = next((copy / pythons.DATE).iterdir())
    archive.write_bytes(archive.read_bytes()[:-1] + b"x")
    monkeypatch.setenv("UV_PYTHON_INSTALL_MIRROR", f"file://{copy}")
    result = have(tmp_path / "pythons")
    assert result["failed"]
    assert "Hash mismatch" in result["msg"]
    assert not (tmp_path / "pythons" / VERSION).exists()


def test_one_that_no_longer_runs_is_replaced(tmp_path: Path, mirror: Path) -> None:
    first = have(tmp_path / "pythons", f"file://{mirror}")
    os.unlink(os.path.realpath(first["interpreter"]))
    result = have(tmp_path / "pythons", f"file://{mirror}")
    assert result["changed"] is True, result
    assert os.access(result["interpreter"], os.X_OK)


def test_without_any_that_has_it_all_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "none.json").write_text("{}")
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS_JSON_URL", str(tmp_path / "none.json"))
    result = have(tmp_path / "pythons", "http://127.0.0.1:9")
    assert result["msg"].startswith(
        f"uv cannot install Python {VERSION} into {tmp_path}/pythons: http://127.0.0.1:9: error: "
    )
    assert "; from where uv is configured to: error: " in result["msg"]
    assert result["msg"].endswith(
        "Name a mirror that has it in toolchain_mirror_urls.python, or install a Python on the host and set "
        "toolchain_python to system."
    )


def test_mirror_takes_the_place_of_what_uv_knows(tmp_path: Path, web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UV_PYTHON_DOWNLOADS_JSON_URL")
    monkeypatch.setenv("UV_PYTHON_INSTALL_MIRROR", web.url)
    assert have(tmp_path / "pythons", version="3.12")["failed"]
    assert [path for path in web.asked if "/cpython-3.12." in path], web.asked


def test_check_mode_installs_nothing(tmp_path: Path) -> None:
    assert have(tmp_path / "pythons", check=True)["changed"] is True
    assert not (tmp_path / "pythons").exists()


@pytest.mark.parametrize("version", ["3", "3.12.1", "../3.12"])
def test_version_has_two_parts(tmp_path: Path, version: str) -> None:
    words = f"{version!r} is no Python version of two parts. Write it as 3.12."
    assert have(tmp_path, version=version)["msg"] == words
