# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""One file from the first of several addresses that has it: resumed, tried again, and verified.

Proxies, certificates and netrc are those of the environment, as Ansible's own ``open_url`` reads them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import http.client
import os
import shutil
import time
import urllib.error
from http import HTTPStatus
from typing import Any, Callable, Dict, Iterator, Sequence
from urllib.parse import urlsplit

from ansible.module_utils.urls import open_url
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._io import git_sha1_file, sha256_file

__all__ = ("ATTEMPTS", "Ask", "ask_openly", "back_off", "check_address", "download", "locked", "verify")

# How an address is opened: address, headers, seconds.
Ask = Callable[[str, Dict[str, str], int], Any]
ATTEMPTS = 5
CHUNK = 1 << 18
LONGEST_WAIT = 20
GIT_DIGITS = 40
# So many bytes further than ever before: the connection is bad, but not in vain.
PROGRESS = 1 << 20
# Asking again does not help: wrong address, no permission, gone.
FINAL = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.GONE)


def back_off(tries: int) -> None:
    """Wait longer before each further try; not before the first."""
    if tries:
        time.sleep(min(2**tries, LONGEST_WAIT))


@contextlib.contextmanager
def locked(folder: str) -> Iterator[None]:
    """Hold ``folder`` against other processes that fetch into it, waiting while one does."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def check_address(url: str, variable: str) -> None:
    """Raise CpufleetError where an address holds a password, which would show in logs and manifests."""
    parts = urlsplit(url)
    if parts.password or (parts.username and parts.scheme in ("http", "https")):
        raise CpufleetError(
            f"{variable} has credentials in an address of {parts.hostname}, which would show in logs",
            "Put them into the netrc or into git's credential helper of the user who fetches",
        )


def ask_openly(url: str, headers: dict[str, str], timeout: int) -> Any:
    """Open an address as the environment says."""
    # Some mirrors declare the archive's own compression as that of the transfer: take the bytes as they are.
    return open_url(url, headers=headers, timeout=timeout, decompress=False)


def download(urls: Sequence[str], dest: str, expected: str, timeout: int, machine: str, ask: Ask = ask_openly) -> str:
    """Fetch a file with the digest ``expected`` into ``dest`` and return the address that had it.

    What is in ``dest`` is gone on from. An address that serves other bytes twice is passed over: the first time the
    file may have begun as that of another one, or ended early without a word.
    """
    left, wrong = list(urls), set()
    while True:
        url = fetch(left, dest, timeout, machine, ask)
        try:
            verify(dest, expected)
        except CpufleetError:
            if url in wrong:
                left.remove(url)
            if not left:
                raise
            wrong.add(url)
        else:
            return url


def fetch(urls: Sequence[str], dest: str, timeout: int, machine: str, ask: Ask = ask_openly) -> str:
    """Fetch the whole file from the first address that can; raise CpufleetError after ATTEMPTS rounds in vain."""
    tries, best, left, causes = 0, 0, list(urls), {}
    while left and tries < ATTEMPTS:
        back_off(tries)
        tries += 1
        for url in list(left):
            cause, passing = fetch_rest(url, dest, timeout, ask)
            if not cause:
                return url
            causes[url] = cause
            if not passing:
                left.remove(url)
        have = os.path.getsize(dest) if os.path.exists(dest) else 0
        if have >= best + PROGRESS:
            best, tries = have, 0
    told = "; ".join(f"{url}: {cause}" for url, cause in causes.items())
    raise CpufleetError(
        f"Cannot download {told} (tries: {tries})",
        f"Check the connection and proxy of {machine}",
        url=urls[0],
    )


def fetch_rest(url: str, dest: str, timeout: int, ask: Ask = ask_openly) -> tuple[str, bool]:
    """Fetch what ``dest`` lacks of ``url``; return why that failed ("" when it did not), and whether that may pass."""
    have = os.path.getsize(dest) if os.path.exists(dest) else 0
    headers = {"Range": f"bytes={have}-"} if have else {}
    try:
        answer = ask(url, headers, timeout)
        resumed = answer.getcode() == HTTPStatus.PARTIAL_CONTENT
        with open(dest, "ab" if resumed else "wb") as stream:
            shutil.copyfileobj(answer, stream, CHUNK)
    except urllib.error.HTTPError as error:
        whole = bool(have) and error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
        return "" if whole else str(error), error.code not in FINAL
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise CpufleetError(
                f"Cannot write {dest}: {error.strerror}",
                "Free space there or use another folder; what is there already is kept and gone on from",
                path=dest,
            ) from error
        return str(error) or type(error).__name__, True
    length = answer.headers.get("Content-Length")
    cut = length is not None and os.path.getsize(dest) < int(length) + (have if resumed else 0)
    return "the connection was cut" if cut else "", True


def verify(path: str, expected: str) -> None:
    """Raise CpufleetError, and remove the file, unless ``path`` has the digest ``expected``.

    That is a SHA-256, or the shorter SHA-1 by which git knows a file.
    """
    git = len(expected) == GIT_DIGITS
    found = git_sha1_file(path) if git else sha256_file(path)
    if found != expected:
        os.unlink(path)
        raise CpufleetError(
            f"Refused {path}: its {'git SHA-1' if git else 'SHA-256'} is {found}, expected {expected}. "
            "The file was removed",
            "Run again; if it happens twice, the mirror serves another file",
            path=path,
        )
