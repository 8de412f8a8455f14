# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""What to ask git for, and what its answers mean: references, rewritten addresses, failures that pass or stay."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Mapping

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError

__all__ = (
    "Found",
    "Refusal",
    "Wish",
    "cause_of",
    "find_ref",
    "git_rewrites",
    "is_final",
    "patterns",
    "tree_digest",
    "unfetched",
)

COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
LONGEST_CAUSE = 300
# What git says where asking the same address again cannot help.
FINAL = re.compile(
    r"not found|does not appear to be a git repository|Authentication failed|could not read (Username|Password)"
    r"|Permission denied|access denied|unadvertised object|not our ref|couldn't find remote ref"
    r"|returned error: (401|403|404|410)|unable to find remote helper|transport '\w+' not allowed",
    re.IGNORECASE,
)
DISK_FULL = re.compile(r"No space left on device|Disk quota exceeded|File too large")


@dataclass(frozen=True)
class Wish:
    """What to fetch: addresses in the order of asking, tag, branch or commit, and the commit that it must be ("": any).

    ``variables`` names what the user can correct, for the messages.
    """

    urls: tuple[str, ...]
    ref: str
    commit: str
    variables: str


@dataclass(frozen=True)
class Found:
    """What an address has under the wished name: its kind (tag, branch, commit), full name and commit."""

    url: str
    kind: str
    name: str
    commit: str


@dataclass(frozen=True)
class Refusal:
    """Why an address did not serve: ``missing``, ``mismatch``, ``refused`` (these stay so) or ``failed``."""

    kind: str
    text: str


def patterns(ref: str) -> list[str]:
    """Return what to ask a server for so that ``find_ref`` can tell what ``ref`` is."""
    return [f"refs/tags/{ref}", f"refs/tags/{ref}^{{}}", f"refs/heads/{ref}"]


def find_ref(url: str, wish: Wish, listing: str) -> Found | Refusal:
    """Return what ``listing`` (git ls-remote) says ``wish.ref`` is at ``url``; a tag goes before a branch."""
    lines = [line.split("\t") for line in listing.splitlines() if "\t" in line]
    there = {name: commit for commit, name in lines}
    tag, peeled, branch = patterns(wish.ref)
    if tag in there:
        # Behind an annotated tag stands the commit.
        found = Found(url, "tag", tag, there.get(peeled, there[tag]))
    elif branch in there:
        found = Found(url, "branch", branch, there[branch])
    elif COMMIT.fullmatch(wish.ref):
        found = Found(url, "commit", wish.ref, wish.ref)
    else:
        return Refusal("missing", f"has no tag or branch {wish.ref}")
    if wish.commit and found.commit != wish.commit:
        return Refusal("mismatch", f"has {wish.ref} at commit {found.commit}")
    return found


def cause_of(error: str) -> str:
    """Return the line in which git says why it failed."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    told = [line for line in lines if line.startswith(("fatal: ", "error: ", "remote: "))]
    fatal = [line for line in told if line.startswith("fatal: ")]
    line = (fatal or told or lines or ["git says nothing"])[0]
    return re.sub(r"^(fatal|error|remote): ", "", line)[:LONGEST_CAUSE]


def is_final(error: str) -> bool:
    """Return whether asking again cannot help; raise CpufleetError where no address can help."""
    if DISK_FULL.search(error):
        raise CpufleetError(
            f"Cannot keep what git fetched: {cause_of(error)}",
            "Free space there or use another folder; what was fetched whole is kept",
        )
    return FINAL.search(error) is not None


def unfetched(wish: Wish, refusals: Mapping[str, Refusal], rounds: int, machine: str) -> CpufleetError:
    """Return the failure after every address has refused or failed."""
    told = "; ".join(f"{url} {one.text}" for url, one in refusals.items())
    kinds = {one.kind for one in refusals.values()}
    if "mismatch" in kinds:
        return CpufleetError(
            f"Refused the source {wish.ref}: it has to be commit {wish.commit}, but {told}",
            f"Correct {wish.variables}; where the commit is right, the tag was moved or a mirror serves something else",
        )
    if kinds == {"missing"}:
        return CpufleetError(
            f"Cannot fetch {wish.ref}: {told}",
            f"Check {wish.variables}, and add an address that is not behind",
        )
    return CpufleetError(
        f"Cannot fetch {wish.ref} with git (rounds: {rounds}): {told}",
        f"Check the connection and proxy of {machine}, and {wish.variables}",
    )


def git_rewrites(environment: Mapping[str, str], rewrites: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that make git take each address that begins with a key of ``rewrites`` from its value.

    Settings that ``environment`` has already are kept in front. No configuration file is touched.
    """
    settings = [
        (environment[f"GIT_CONFIG_KEY_{number}"], environment[f"GIT_CONFIG_VALUE_{number}"])
        for number in range(int(environment.get("GIT_CONFIG_COUNT") or 0))
    ]
    settings += [(f"url.{new}.insteadOf", old) for old, new in rewrites.items()]
    if not settings:
        return {}
    result = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings):
        result.update({f"GIT_CONFIG_KEY_{number}": str(key), f"GIT_CONFIG_VALUE_{number}": str(value)})
    # cargo's own git knows no such settings.
    return {**result, "CARGO_NET_GIT_FETCH_WITH_CLI": "true"}


def tree_digest(tree: str) -> str:
    """Return the digest by which a git tree counts as a source: the same from every mirror and packed by any zlib."""
    return hashlib.sha256(f"git tree {tree}\n".encode()).hexdigest()
