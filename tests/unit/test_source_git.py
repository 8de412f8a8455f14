# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What git's answers mean. The failures were captured from git 2.39 against servers that were made to fail so."""

from __future__ import annotations

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._source_git import (
    Found,
    Refusal,
    Wish,
    cause_of,
    find_ref,
    git_rewrites,
    is_final,
    tree_digest,
    unfetched,
)

TAG, COMMIT, OTHER = "a" * 40, "b" * 40, "c" * 40
URL = "https://git.example.com/vllm.git"
CUT = """error: RPC failed; curl 56 Recv failure: Connection reset by peer
error: 4096 bytes of body are still expected
fetch-pack: unexpected disconnect while reading sideband packet
fatal: early EOF
fatal: fetch-pack: invalid index-pack output
"""
REFUSED = "fatal: unable to access 'http://127.0.0.1:9/vllm.git/': Failed to connect to 127.0.0.1 port 9: refused\n"
UNKNOWN = "fatal: repository 'http://127.0.0.1:8000/none.git/' not found\n"
ASKS = "fatal: could not read Username for 'https://git.example.com': terminal prompts disabled\n"


def wish(ref: str = "v0.6.5", commit: str = "") -> Wish:
    return Wish((URL,), ref, commit, "the variables")


@pytest.mark.parametrize(
    ("listing", "ref", "commit", "expected"),
    [
        (
            f"{TAG}\trefs/tags/v0.6.5\n{COMMIT}\trefs/tags/v0.6.5^{{}}\n",
            "v0.6.5",
            "",
            ("tag", "refs/tags/v0.6.5", COMMIT),
        ),
        (f"{COMMIT}\trefs/tags/v0.6.5\n", "v0.6.5", COMMIT, ("tag", "refs/tags/v0.6.5", COMMIT)),
        (f"{OTHER}\trefs/heads/v1\n{COMMIT}\trefs/tags/v1\n", "v1", "", ("tag", "refs/tags/v1", COMMIT)),
        (f"{COMMIT}\trefs/heads/main\n", "main", "", ("branch", "refs/heads/main", COMMIT)),
        ("", COMMIT, "", ("commit", COMMIT, COMMIT)),
    ],
    ids=["annotated tag", "plain tag", "a tag goes before a branch", "branch", "commit"],
)
def test_reference_is_found(listing: str, ref: str, commit: str, expected: tuple[str, str, str]) -> None:
    assert find_ref(URL, wish(ref, commit), listing) == Found(URL, *expected)


@pytest.mark.parametrize(
    ("listing", "commit", "expected"),
    [
        ("", "", Refusal("missing", "has no tag or branch v0.6.5")),
        (f"{OTHER}\trefs/tags/v0.6.5\n", COMMIT, Refusal("mismatch", f"has v0.6.5 at commit {OTHER}")),
    ],
)
def test_reference_is_refused(listing: str, commit: str, expected: Refusal) -> None:
    assert find_ref(URL, wish(commit=commit), listing) == expected


@pytest.mark.parametrize(
    ("error", "cause", "final"),
    [
        (CUT, "early EOF", False),
        (
            REFUSED,
            "unable to access 'http://127.0.0.1:9/vllm.git/': Failed to connect to 127.0.0.1 port 9: refused",
            False,
        ),
        (UNKNOWN, "repository 'http://127.0.0.1:8000/none.git/' not found", True),
        (ASKS, "could not read Username for 'https://git.example.com': terminal prompts disabled", True),
        ("", "git says nothing", False),
    ],
)
def test_cause(error: str, cause: str, final: bool) -> None:
    assert (cause_of(error), is_final(error)) == (cause, final)


def test_full_disk_ends_everything() -> None:
    with pytest.raises(CpufleetError, match=r"^Cannot keep what git fetched: write error: No space left on device\."):
        is_final("error: RPC failed\nfatal: write error: No space left on device\n")


def test_mismatch_is_told_before_what_else_failed() -> None:
    refusals = {"https://a.example.com": Refusal("failed", "says: x"), URL: Refusal("mismatch", "has v1 at commit 2")}
    assert str(unfetched(wish("v1", COMMIT), refusals, 5, "the host")) == (
        f"Refused the source v1: it has to be commit {COMMIT}, but https://a.example.com says: x; {URL} has v1 at "
        "commit 2. Correct the variables; where the commit is right, the tag was moved or a mirror serves something "
        "else."
    )


def test_failures_that_pass_ask_for_the_connection() -> None:
    refusals = {
        "https://a.example.com": Refusal("failed", "says: x"),
        URL: Refusal("missing", "has no tag or branch v1"),
    }
    assert str(unfetched(wish("v1"), refusals, 5, "the host")) == (
        f"Cannot fetch v1 with git (rounds: 5): https://a.example.com says: x; {URL} has no tag or branch v1. "
        "Check the connection and proxy of the host, and the variables."
    )


def test_rewrites_go_behind_what_is_set_already() -> None:
    before = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "http.proxy",
        "GIT_CONFIG_VALUE_0": "http://proxy.example.com",
    }
    assert git_rewrites(before, {"https://github.com/": "https://git.example.com/"}) == {
        "GIT_CONFIG_COUNT": "2",
        "GIT_CONFIG_KEY_0": "http.proxy",
        "GIT_CONFIG_VALUE_0": "http://proxy.example.com",
        "GIT_CONFIG_KEY_1": "url.https://git.example.com/.insteadOf",
        "GIT_CONFIG_VALUE_1": "https://github.com/",
        "CARGO_NET_GIT_FETCH_WITH_CLI": "true",
    }
    assert git_rewrites({}, {}) == {}


def test_tree_counts_by_its_id_alone() -> None:
    assert tree_digest(TAG) == "7c481720c5f0ddd13892208f55df2ca9c692bc89dab75b2a7122bc9059066b2d"
    assert tree_digest(TAG) != tree_digest(COMMIT)
