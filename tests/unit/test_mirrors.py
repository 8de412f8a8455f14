# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Mirrors: who is asked for what, which answers are good enough, and mirror_info against small real servers."""

from __future__ import annotations

import base64
import datetime
import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._mirrors import (
    HOPS,
    MIRRORS,
    Want,
    mirror_candidates,
    netrc_text,
    verdict,
)

from scripts.lib import guards
from tests.support.run_module import run_module

REPOSITORY = Path(__file__).resolve().parents[2]
PASSWORD = "correct-horse"  # noqa: S105 - of a server that lives for one test
TODAY = datetime.date(2026, 11, 30)
WISH: dict[str, Any] = {
    "distribution": "debian",
    "codename": "bookworm",
    "uv": "0.13.9",
    "torch": "2.5.1+cpu",
    "python_tag": "cp311",
}
UV = '{"files": [{"filename": "uv-0.13.9-py3-none-any.whl", "upload-time": "2026-11-01T00:00:00Z"}]}'
TORCH = '<a href="torch-2.5.1%2Bcpu-cp311-cp311-linux_x86_64.whl">torch</a>'
RELEASE = "Suite: stable-updates\nDate: {:%a, %d %b %Y} 08:00:00 UTC\n"


def want(mirror: str, **urls: Any) -> Want:
    return Want(mirror=mirror, urls=urls, dated=True, **WISH)


class Server:
    """A mirror on this machine: pages by path, and what was asked with which headers."""

    def __init__(self, pages: dict[str, str], password: str = "") -> None:
        self.asked: dict[str, dict[str, str]] = {}
        wanted = "Basic " + base64.b64encode(f"fleet:{password}".encode()).decode()
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked[self.path] = dict(self.headers)
                page = pages.get(self.path)
                allowed = not password or self.headers.get("Authorization") == wanted
                self.send_response(401 if not allowed else 404 if page is None else 200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write((page or "").encode() if allowed else b"")

            def log_message(self, *_arguments: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    """Give a function that starts a mirror."""
    started: list[Server] = []

    def start(password: str = "", **pages: str) -> Server:
        started.append(Server(pages, password))
        return started[-1]

    yield start
    for server in started:
        server.server.shutdown()
        server.server.server_close()


def whole() -> dict[str, str]:
    """Return the pages of a mirror that has everything."""
    return {
        "/debian/dists/bookworm-updates/InRelease": RELEASE.format(datetime.datetime.now(datetime.timezone.utc)),
        "/simple/uv/": UV,
        "/whl/torch/": TORCH,
        "/links/": TORCH,
        "/hub/": "models",
        "/code/": "repositories",
    }


def ask(mirror: str = "custom", urls: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    result = run_module("mirror_info", mirror=mirror, urls=urls or {}, timeout=2, **{**WISH, **more})
    assert not result.get("failed"), result
    mirrors: dict[str, Any] = result["mirrors"]
    return mirrors


def test_every_hop_is_taken_from_a_mirror_that_has_it(serve: Callable[..., Server]) -> None:
    base = serve(**whole()).url
    found = ask(
        urls={
            "apt": f"{base}/debian",
            "index": f"{base}/simple/",
            "torch": f"{base}/whl",
            "hub": f"{base}/hub",
            "code": f"{base}/code",
            "python": f"{base}/pythons",
        }
    )
    assert list(found["hops"]) == list(HOPS)
    assert found["environment"] == {
        "PIP_INDEX_URL": f"{base}/simple",
        "UV_DEFAULT_INDEX": f"{base}/simple",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{base}/code/.insteadOf",
        "GIT_CONFIG_VALUE_0": "https://github.com/",
        "HF_ENDPOINT": f"{base}/hub",
    }
    assert (found["torch_index_urls"], found["torch_find_links"]) == ([f"{base}/whl"], [])
    assert found["pythons"] == [f"{base}/pythons"]
    assert found["apt_sources"].splitlines()[1:] == [
        f"deb {base}/debian bookworm main",
        f"deb {base}/debian bookworm-updates main",
        f"deb {base}/debian-security bookworm-security main",
    ]


def test_stale_silent_and_missing_mirrors_are_passed_over(serve: Callable[..., Server]) -> None:
    old = serve(**{**whole(), "/simple/uv/": UV.replace("0.13.9", "0.9.1")}).url
    empty, good = serve().url, serve(**whole()).url
    silent = "http://127.0.0.1:9"
    found = ask(urls={"index": [f"{old}/simple", f"{empty}/simple", f"{silent}/simple", f"{good}/simple"]})
    assert found["hops"] == {"index": {"mirror": "own", "url": f"{good}/simple"}}
    assert found["lines"][:3] == [
        f"index: {old}/simple is stale or not whole: it has no uv-0.13.9-",
        f"index: {empty}/simple answers 404 Not Found",
        f"index: {silent}/simple does not answer: [Errno 111] Connection refused",
    ]
    assert found["lines"][3].startswith(f"index: {good}/simple answered in 0.")


def test_without_a_good_mirror_what_is_configured_stays(serve: Callable[..., Server]) -> None:
    found = ask(urls={"index": f"{serve().url}/simple"})
    assert (found["hops"], found["environment"]) == ({}, {})
    assert found["lines"][-1] == "index: none of them; what the host is configured with is used"


def test_an_index_without_upload_times_serves_only_where_none_are_needed(serve: Callable[..., Server]) -> None:
    base = serve(**{"/simple/uv/": '<a href="uv-0.13.9-py3-none-any.whl">'}).url
    assert "gives no upload times" in ask(urls={"index": f"{base}/simple"})["lines"][0]
    assert "index" in ask(urls={"index": f"{base}/simple"}, dated=False)["hops"]


def test_an_index_of_cuda_builds_is_no_place_for_torch(serve: Callable[..., Server]) -> None:
    base = serve(**{"/whl/torch/": TORCH.replace("%2Bcpu", "")}).url
    assert ask(urls={"torch": f"{base}/whl"})["lines"][0].endswith("it has no torch-2.5.1+cpu-cp311-")


def test_torch_may_lie_on_a_page_of_links(serve: Callable[..., Server]) -> None:
    base = serve(**whole()).url
    found = ask(urls={"torch": f"links+{base}/links/"})
    assert (found["torch_index_urls"], found["torch_find_links"]) == ([], [f"{base}/links/"])


def test_an_archive_that_is_weeks_behind_is_stale(serve: Callable[..., Server]) -> None:
    page = RELEASE.format(datetime.datetime(2024, 1, 2))
    base = serve(**{"/debian/dists/bookworm-updates/InRelease": page}).url
    found = ask(urls={"apt": f"{base}/debian"})
    assert found["lines"][0] == f"apt: {base}/debian is stale: it is of 2024-01-02"
    assert found["apt_sources"] == ""


def test_password_goes_to_own_addresses_and_into_no_result(serve: Callable[..., Server]) -> None:
    server = serve(password=PASSWORD, **whole())
    answer = run_module(
        "mirror_info",
        mirror="custom",
        urls={"index": f"{server.url}/simple"},
        username="fleet",
        password=PASSWORD,
        **WISH,
    )
    assert answer["mirrors"]["hops"]["index"]["url"] == f"{server.url}/simple"
    assert PASSWORD not in str(answer)
    assert PASSWORD not in str(ask(urls={"index": f"{server.url}/simple"}))
    assert ask(urls={"index": f"{server.url}/simple"})["lines"][0].endswith("answers 401 Unauthorized")


def test_hosts_are_asked_at_once(serve: Callable[..., Server]) -> None:
    # An address that takes no connection costs its whole timeout: one after another these would take eight seconds.
    started = datetime.datetime.now()
    ask(urls=dict.fromkeys(("index", "torch", "hub", "code"), "http://203.0.113.1/x"))
    assert (datetime.datetime.now() - started).total_seconds() < 6


@pytest.mark.parametrize(
    ("urls", "words"),
    [
        (
            {"pip": "https://pip.example.com"},
            "toolchain_mirror_urls has pip, which nothing is downloaded by. "
            "Use the keys apt, index, torch, code, hub, python.",
        ),
        (
            {"index": "https://fleet:secret@pip.example.com/simple"},
            "toolchain_mirror_urls.index has credentials in its address, which would show in logs and process lists. "
            "Put them into toolchain_mirror_username and toolchain_mirror_password, from a vault.",
        ),
        ({"hub": "pip.example.com"}, "toolchain_mirror_urls.hub is no address. Write it with http:// or https://."),
    ],
)
def test_addresses_that_cannot_be_used_are_refused(urls: dict[str, str], words: str) -> None:
    with pytest.raises(CpufleetError) as refused:
        mirror_candidates(want("custom", **urls))
    assert str(refused.value) == words
    assert run_module("mirror_info", mirror="custom", urls=urls, **WISH)["msg"] == words


def test_own_addresses_are_asked_before_the_set() -> None:
    asked = [
        one for one in mirror_candidates(want("aliyun", index="https://pip.example.com/simple")) if one.hop == "index"
    ]
    assert [one.mirror for one in asked] == ["own", "aliyun"]


def test_none_asks_nobody_and_a_distribution_without_mirror_is_left_alone() -> None:
    assert mirror_candidates(want("none")) == []
    other = Want(mirror="aliyun", urls={}, dated=True, **{**WISH, "distribution": ""})
    assert "apt" not in {one.hop for one in mirror_candidates(other)}


def test_ubuntu_has_its_security_suite_in_the_same_archive(serve: Callable[..., Server]) -> None:
    page = RELEASE.format(datetime.datetime.now(datetime.timezone.utc))
    base = serve(**{"/ubuntu/dists/jammy-updates/InRelease": page}).url
    found = ask(urls={"apt": f"{base}/ubuntu"}, distribution="ubuntu", codename="jammy")
    assert found["apt_sources"].splitlines()[-1] == f"deb {base}/ubuntu jammy-security main universe"


@pytest.mark.parametrize("mirror", MIRRORS)
def test_a_set_names_every_hop_with_addresses_over_http(mirror: str) -> None:
    assert tuple(MIRRORS[mirror]) == HOPS
    for one in mirror_candidates(want(mirror)):
        assert urlsplit(one.url.replace("links+", "")).scheme in ("http", "https")
        assert verdict(one, "", TODAY) or not one.needs


def test_netrc_has_a_line_for_each_host() -> None:
    urls = {
        "index": ["https://a.example.com/x", "https://b.example.com:8443/y"],
        "torch": "links+https://a.example.com/z",
    }
    assert netrc_text(urls, "fleet", "pw") == (
        "machine a.example.com login fleet password pw\nmachine b.example.com login fleet password pw\n"
    )


def test_mirrors_are_named_in_one_file_only() -> None:
    addresses = [url for hops in MIRRORS.values() for urls in hops.values() for url in urls]
    hosts = {str(urlsplit(url.replace("links+", "")).hostname) for url in addresses}
    here = "plugins/module_utils/_mirrors.py"
    for name in guards.tracked(REPOSITORY):
        text = (REPOSITORY / name).read_bytes().decode("utf-8", "replace") if (REPOSITORY / name).is_file() else ""
        assert name == here or not [host for host in hosts if host in text], name


def test_uv_takes_the_password_of_a_private_index_from_the_netrc(serve: Callable[..., Server], tmp_path: Path) -> None:
    wheel = b"not opened: the digest stands in the page"
    digest = hashlib.sha256(wheel).hexdigest()
    link = f"/files/tiny-1.0-py3-none-any.whl#sha256={digest}"
    page = f'<!DOCTYPE html><a href="{link}" data-dist-info-metadata="true">tiny</a>'
    metadata = "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n"
    server = serve(password=PASSWORD, **{"/simple/tiny/": page, "/files/tiny-1.0-py3-none-any.whl.metadata": metadata})
    urls = {"index": f"{server.url}/simple"}
    (tmp_path / "netrc").write_text(netrc_text(urls, "fleet", PASSWORD))
    (tmp_path / "in.txt").write_text("tiny\n")
    uv = Path(sys.executable).parent / "uv"
    command = [uv, "pip", "compile", "--quiet", "--generate-hashes", "--no-cache", "--no-header", tmp_path / "in.txt"]
    environment = {"PATH": os.environ["PATH"], "UV_DEFAULT_INDEX": urls["index"]}
    refused = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert refused.returncode != 0
    environment["NETRC"] = str(tmp_path / "netrc")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert digest in done.stdout, done.stderr
    assert PASSWORD not in done.stdout + done.stderr


@pytest.mark.parametrize("password", ["correct horse", 'a"b', "a#b", "a\\b"])
def test_password_that_no_netrc_can_hold_is_refused(password: str) -> None:
    with pytest.raises(CpufleetError) as refused:
        netrc_text({"index": "https://pip.example.com/simple"}, "fleet", password)
    assert str(refused.value) == (
        "toolchain_mirror_username or toolchain_mirror_password has a blank, a quote, a # or a backslash in it, which "
        "a netrc cannot hold. Use another password for the mirror."
    )
