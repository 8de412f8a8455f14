# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""source_fetch from a real git server with the real tree of 0.6.5, over bad links and from bad mirrors."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._source_git import tree_digest

from tests.support.git_server import GitServer, dead_port, git, make_repository, serving
from tests.support.run_module import run_module
from tests.support.trees import copy_tree, tree

VERSION = "0.6.5"
OTHER = "1" * 40
# What a repository does not say in the same words as a source distribution of the same tree.
DIFFERENT = {"source_kind"}
EVIDENCE_OF_VERSION = "version"


@pytest.fixture(scope="module")
def repositories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the repository and a mirror of an older state, without the tag."""
    root = tmp_path_factory.mktemp("repositories")
    make_repository(tree(VERSION), root / "vllm.git", f"v{VERSION}")
    old = copy_tree(VERSION, root / "old", ("setup.py", "vllm/*.py"))
    make_repository(old, root / "stale.git", "v0.6.4")
    return root


@pytest.fixture
def server(repositories: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitServer]:
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    with serving(repositories) as one:
        yield one


def commit_of(server: GitServer, name: str = "vllm.git") -> str:
    return git(server.root / name, "rev-parse", "HEAD")


def fetch(tmp_path: Path, urls: list[str], **more: Any) -> dict[str, Any]:
    given = {"version": VERSION, "cache": tmp_path / "cache", "source": "git", "git_urls": urls}
    return run_module("source_fetch", **{**given, **more})


def packs(server: GitServer) -> int:
    return len([one for one in server.requests if one.startswith("POST ")])


def test_tag_becomes_an_archive_like_a_source_distribution(tmp_path: Path, server: GitServer) -> None:
    result = fetch(tmp_path, [server.url("vllm.git")])
    archive, commit = result["source_archive"], commit_of(server)
    assert (archive["source"], archive["ref"], archive["commit"]) == ("git", "v0.6.5", commit)
    assert archive["tree"] == git(server.root / "vllm.git", "rev-parse", "HEAD^{tree}")
    assert archive["sha256"] == tree_digest(archive["tree"])
    assert archive["upload_time"] == "2024-12-17T22:56:41Z"
    assert archive["url"] == server.url("vllm.git")
    with tarfile.open(archive["path"]) as content:
        names = content.getnames()
        assert {member.mtime for member in content} == {315619200}
        listed = content.extractfile("vllm-0.6.5/vllm.egg-info/SOURCES.txt").read().decode().split("\n")
        assert b"Version: 0.6.5\n" in content.extractfile("vllm-0.6.5/PKG-INFO").read()
    assert {name.partition("/")[0] for name in names} == {"vllm-0.6.5"}
    assert "vllm/py.typed" in listed
    real = {str(path.relative_to(tree(VERSION))) for path in tree(VERSION).rglob("*") if path.is_file()}
    made = {"PKG-INFO", "vllm/_version.py"}
    packed = {name.partition("/")[2] for name in names}
    assert {name for name in real ^ packed if ".egg-info/" not in name} <= made


def test_facts_are_those_of_the_source_distribution(tmp_path: Path, server: GitServer) -> None:
    archive = fetch(tmp_path, [server.url("vllm.git")])["source_archive"]
    checkout = tmp_path / "checkout"
    git(tmp_path, "clone", "--quiet", "--branch=v0.6.5", str(server.root / "vllm.git"), str(checkout))
    wanted = run_module("source_info", path=tree(VERSION))["source"]
    for path, kind, where in ((archive["path"], "sdist", "PKG-INFO"), (str(checkout), "git", ".git:tag")):
        found = run_module("source_info", path=path)["source"]
        assert found["source_kind"] == kind
        assert found["evidence"][EVIDENCE_OF_VERSION].startswith(where)
        assert same(found) == same(wanted)


def same(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the facts that do not depend on what the tree came as."""
    kept = {key: value for key, value in facts.items() if key not in DIFFERENT}
    kept["evidence"] = {key: place for key, place in facts["evidence"].items() if key != EVIDENCE_OF_VERSION}
    return kept


def test_second_run_asks_nobody_and_gives_the_same(tmp_path: Path, server: GitServer) -> None:
    first = fetch(tmp_path, [server.url("vllm.git")])
    asked = len(server.requests)
    second = fetch(tmp_path, [server.url("vllm.git")])
    assert (first["downloaded"], second["downloaded"]) == (True, False)
    assert second["source_archive"] == first["source_archive"]
    assert len(server.requests) == asked


def test_line_that_is_cut_twice(tmp_path: Path, server: GitServer) -> None:
    clean = fetch(tmp_path / "clean", [server.url("vllm.git")])["source_archive"]
    server.cuts = 2
    archive = fetch(tmp_path, [server.url("vllm.git")])["source_archive"]
    assert server.was_cut == 2
    assert (archive["sha256"], archive["file_sha256"]) == (clean["sha256"], clean["file_sha256"])


def test_link_that_carries_no_whole_pack_gets_the_files_in_batches(tmp_path: Path, server: GitServer) -> None:
    server.limit = 1_500_000
    archive = fetch(tmp_path, [server.url("vllm.git")])["source_archive"]
    assert archive["commit"] == commit_of(server)
    assert server.was_cut >= 1
    assert packs(server) > 5


def test_link_that_is_cut_every_time_names_the_cause(tmp_path: Path, server: GitServer) -> None:
    server.limit = 900
    failed = fetch(tmp_path, [server.url("vllm.git")])
    assert failed["msg"].startswith(f"Cannot fetch v0.6.5 with git (rounds: 5): {server.url('vllm.git')} says: ")
    assert (
        "Check the connection and proxy of the controller, and vllm_version, vllm_source_build_git_ref" in failed["msg"]
    )
    assert not list((tmp_path / "cache").glob("*.tar.gz"))


def test_address_that_is_no_longer_listed_is_no_longer_believed(tmp_path: Path, server: GitServer) -> None:
    urls = [server.url("vllm.git")]
    fetch(tmp_path, [f"{urls[0]}/"])
    again = fetch(tmp_path, urls)
    assert (again["downloaded"], again["source_archive"]["url"]) == (True, urls[0])


def test_stale_mirror_and_a_dead_one_are_passed_over(tmp_path: Path, server: GitServer) -> None:
    dead = f"http://127.0.0.1:{dead_port()}/vllm.git"
    archive = fetch(tmp_path, [server.url("stale.git"), dead, server.url("vllm.git")])["source_archive"]
    assert (archive["url"], archive["commit"]) == (server.url("vllm.git"), commit_of(server))


def test_tag_that_no_mirror_has(tmp_path: Path, server: GitServer) -> None:
    failed = fetch(tmp_path, [server.url("stale.git"), server.url("vllm.git")], version="9.9.9")
    assert failed["msg"] == (
        f"Cannot fetch v9.9.9: {server.url('stale.git')} has no tag or branch v9.9.9; "
        f"{server.url('vllm.git')} has no tag or branch v9.9.9. Check vllm_version, vllm_source_build_git_ref, "
        "vllm_source_build_git_commit and vllm_source_build_git_urls, and add an address that is not behind."
    )
    assert len(server.requests) <= 4  # asked once each, since asking again does not help


def test_all_mirrors_down(tmp_path: Path, server: GitServer) -> None:
    dead = [f"http://127.0.0.1:{dead_port()}/vllm.git" for _number in range(2)]
    message = fetch(tmp_path, [*dead, server.url("none.git")])["msg"]
    assert message.startswith("Cannot fetch v0.6.5 with git (rounds: 5): ")
    assert message.count("Couldn't connect to server") + message.count("Connection refused") >= 2
    assert f"{server.url('none.git')} says: " in message
    assert len([one for one in server.requests if "/none.git/" in one]) == 1


def test_commit_is_verified(tmp_path: Path, server: GitServer) -> None:
    urls, commit = [server.url("vllm.git")], commit_of(server)
    failed = fetch(tmp_path, urls, git_commit=OTHER)
    assert failed["msg"] == (
        f"Refused the source v0.6.5: it has to be commit {OTHER}, but {urls[0]} has v0.6.5 at commit {commit}. "
        "Correct vllm_version, vllm_source_build_git_ref, vllm_source_build_git_commit and "
        "vllm_source_build_git_urls; where the commit is right, the tag was moved or a mirror serves something else."
    )
    assert fetch(tmp_path, urls, git_commit=commit)["source_archive"]["commit"] == commit
    # Also where the cache has the tag already.
    assert fetch(tmp_path, urls, git_commit=OTHER)["msg"].startswith("Refused the source v0.6.5")


@pytest.mark.parametrize("kind", ["branch", "commit"])
def test_branch_and_commit(tmp_path: Path, server: GitServer, kind: str) -> None:
    commit = commit_of(server)
    ref = "main" if kind == "branch" else commit
    archive = fetch(tmp_path, [server.url("vllm.git")], git_ref=ref)["source_archive"]
    assert (archive["commit"], archive["ref"]) == (commit, ref)
    asked = len(server.requests)
    again = fetch(tmp_path, [server.url("vllm.git")], git_ref=ref)["source_archive"]
    assert again == archive
    # A branch may have gone on, a commit cannot.
    assert (len(server.requests) > asked) == (kind == "branch")


def test_addresses_are_rewritten_without_a_configuration_file(tmp_path: Path, server: GitServer) -> None:
    archive = fetch(
        tmp_path,
        ["https://code.invalid/vllm-project/vllm.git"],
        git_instead_of={"https://code.invalid/vllm-project/": server.url("")},
    )["source_archive"]
    assert archive["commit"] == commit_of(server)
    assert "insteadOf" not in (tmp_path / "cache/vllm.git/config").read_text()


def test_proxy_of_the_environment_is_used(tmp_path: Path, server: GitServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{dead_port()}")
    monkeypatch.setitem(os.environ, "no_proxy", "")
    assert "Cannot fetch v0.6.5 with git" in fetch(tmp_path, [server.url("vllm.git")])["msg"]
    assert server.requests == []


def test_full_disk_is_told(tmp_path: Path, server: GitServer, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = tmp_path / "bin/git"
    stand_in.parent.mkdir()
    stand_in.write_text('#!/bin/sh\necho "fatal: write error: No space left on device" >&2\nexit 128\n')
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stand_in.parent}:{os.environ['PATH']}")
    assert fetch(tmp_path, [server.url("vllm.git")])["msg"] == (
        "Cannot keep what git fetched: write error: No space left on device. "
        "Free space there or use another folder; what was fetched whole is kept."
    )


def test_password_in_an_address_is_refused(tmp_path: Path) -> None:
    message = fetch(tmp_path, ["https://me:secret@git.example.com/vllm.git"])["msg"]
    assert message == (
        "vllm_source_build_git_urls has credentials in an address of git.example.com, which would show in logs. "
        "Put them into the netrc or into git's credential helper of the user who fetches."
    )
