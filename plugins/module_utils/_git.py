# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""One commit out of a git server, over a link that may cut, from the first of several addresses that has it.

The first try fetches the commit in one piece. After a cut the commit comes without its files, and the files in batches,
so that a further cut loses one batch only. A server that cannot do this sends everything at once again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Mapping

from ansible_collections.cpufleet.vllm.plugins.module_utils._download import ATTEMPTS, back_off
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._source_git import (
    Found,
    Refusal,
    Wish,
    cause_of,
    find_ref,
    git_rewrites,
    is_final,
    patterns,
    unfetched,
)

__all__ = ("Repository",)

BATCH = 500
SMALLEST_BATCH = 4
LONGEST_SECONDS = 3600
# Where git is told about another repository, as inside of a hook.
ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY")


class GitError(Exception):
    """git ended with an error; the text is what it wrote."""


class Repository:
    """A bare repository that only keeps what was fetched, at ``folder``."""

    def __init__(self, folder: str, rewrites: Mapping[str, str], timeout: int, machine: str) -> None:
        if shutil.which("git") is None:
            raise CpufleetError(f"There is no git on {machine}", "Install it, or use a source that is an archive")
        self.folder = folder
        self.machine = machine
        inherited = {name: value for name, value in os.environ.items() if name not in ELSEWHERE}
        self.environment = {
            **inherited,
            **git_rewrites(inherited, rewrites),
            "LC_ALL": "C",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_NO_LAZY_FETCH": "1",
        }
        stalled = [f"http.lowSpeedTime={timeout}", "http.lowSpeedLimit=1", "gc.auto=0", "protocol.version=2"]
        self.options = [word for setting in stalled for word in ("-c", setting)]

    def fetch(self, wish: Wish) -> Found:
        """Fetch the wished commit; raise CpufleetError where no address serves it."""
        if not os.path.isdir(os.path.join(self.folder, "objects")):
            self.local("init", "--quiet", "--bare", self.folder)
        left, refusals, rounds = list(wish.urls), {}, 0
        while left and rounds < ATTEMPTS:
            back_off(rounds)
            rounds += 1
            for url in list(left):
                answer = self.ask(url, wish, whole=rounds == 1)
                if isinstance(answer, Found):
                    return answer
                refusals[url] = answer
                if answer.kind != "failed":
                    left.remove(url)
        raise unfetched(wish, refusals, rounds, self.machine)

    def ask(self, url: str, wish: Wish, whole: bool) -> Found | Refusal:
        """Return what ``url`` gave, with all its files here, or why it did not."""
        try:
            found = find_ref(url, wish, self.git("ls-remote", url, *patterns(wish.ref)))
            if isinstance(found, Found) and not self.complete(found.commit):
                self.get(found, whole)
        except GitError as error:
            return Refusal("refused" if is_final(str(error)) else "failed", f"says: {cause_of(str(error))}")
        return found

    def get(self, found: Found, whole: bool) -> None:
        """Fetch one commit, then what is missing of its files."""
        place = f"+{found.name}:{self.place(found.commit)}"
        sparing = [] if whole else ["--filter=blob:none"]
        self.git("fetch", "--quiet", "--no-tags", "--depth=1", *sparing, found.url, place)
        if self.git("rev-parse", f"{self.place(found.commit)}^{{commit}}").strip() != found.commit:
            raise GitError(f"fatal: {found.name} moved while it was fetched")
        size, missing = BATCH, self.missing(found.commit)
        while missing:
            try:
                self.batch(found.url, missing[:size])
            except GitError as error:
                if size <= SMALLEST_BATCH or is_final(str(error)):
                    raise
                size //= 4
            missing = self.missing(found.commit)

    def batch(self, url: str, names: list[str]) -> None:
        """Fetch files by their names."""
        options = ["--quiet", "--no-tags", "--no-write-fetch-head", "--filter=blob:none", "--stdin"]
        # What is here already is not to be told: the server would take the files of known commits as known.
        self.git("-c", "fetch.negotiationAlgorithm=noop", "fetch", *options, url, told="\n".join(names) + "\n")

    def complete(self, commit: str) -> bool:
        """Return whether the commit and all its files are here."""
        try:
            return not self.missing(commit)
        except GitError:
            return False

    def missing(self, commit: str) -> list[str]:
        """Return the names of the objects below ``commit`` that are not here."""
        listing = self.git("rev-list", "--objects", "--missing=print", "--no-walk", self.place(commit))
        return [line[1:] for line in listing.splitlines() if line.startswith("?")]

    def place(self, commit: str) -> str:
        """Return the reference that keeps ``commit``."""
        return f"refs/cpufleet/{commit}"

    def tree(self, commit: str) -> str:
        """Return the id of the commit's tree."""
        return self.local("rev-parse", f"{commit}^{{tree}}").strip()

    def date(self, commit: str) -> str:
        """Return when the commit was made, in UTC, as ISO 8601."""
        shape = ["--no-patch", "--date=format-local:%Y-%m-%dT%H:%M:%SZ", "--format=%cd"]
        return self.local("show", *shape, commit).strip()

    def export(self, commit: str, path: str, top: str) -> None:
        """Write the files of the commit to the tar file ``path``, below the folder ``top``."""
        self.local("archive", "--format=tar", f"--prefix={top}/", f"--output={path}", commit)

    def local(self, *arguments: str) -> str:
        """Return what git writes where no server takes part."""
        try:
            return self.git(*arguments)
        except GitError as error:
            is_final(str(error))
            raise CpufleetError(
                f"Cannot use the repository {self.folder}: {cause_of(str(error))}",
                "Remove that folder, it holds nothing but what was fetched",
                path=self.folder,
            ) from error

    def git(self, *arguments: str, told: str = "") -> str:
        """Return what git writes; raise GitError where it fails."""
        command = ["git", *self.options, f"--git-dir={self.folder}", *arguments]
        try:
            done = subprocess.run(  # noqa: S603 - git, with addresses after its options
                command,
                env={**self.environment, "TZ": "UTC"},
                input=told,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=LONGEST_SECONDS,
                # Without a terminal ssh fails instead of waiting for a passphrase or a yes.
                start_new_session=True,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise GitError(f"fatal: git {arguments[0]} took longer than {LONGEST_SECONDS} s") from error
        if done.returncode:
            raise GitError(done.stderr)
        return done.stdout
