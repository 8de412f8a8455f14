# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""What a wheel on a server holds, before it is downloaded: the list at its end, by a few requests for parts of it."""

from __future__ import annotations

import http.client
import io
import re
import zipfile
from http import HTTPStatus

from ansible.module_utils.urls import open_url

__all__ = ("remote_names",)

BUFFER = 1 << 16


def remote_names(url: str, timeout: int) -> list[str]:
    """Return the names in the archive at ``url``; empty where the server gives no parts or no such archive."""
    try:
        with zipfile.ZipFile(io.BufferedReader(RemoteFile(url, timeout), BUFFER)) as archive:
            return archive.namelist()
    except (OSError, http.client.HTTPException, zipfile.BadZipFile):
        return []  # the download itself tells what is wrong


class RemoteFile(io.RawIOBase):
    """A file on a server that can be read in parts."""

    def __init__(self, url: str, timeout: int) -> None:
        super().__init__()
        self.url = url
        self.timeout = timeout
        self.place = 0
        self.size = 0
        self.part(0, 0)

    def part(self, first: int, last: int) -> bytes:
        """Return the bytes from ``first`` to ``last``; OSError where the server answers with something else."""
        answer = open_url(self.url, headers={"Range": f"bytes={first}-{last}"}, timeout=self.timeout, decompress=False)
        total = re.search(r"/(\d+)$", answer.headers.get("Content-Range") or "")
        if answer.getcode() != HTTPStatus.PARTIAL_CONTENT or not total:
            answer.close()
            raise OSError("the server gives no parts")
        self.size = int(total[1])
        return bytes(answer.read())

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move, and return the new place."""
        self.place = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.place, io.SEEK_END: self.size}[whence]
        return self.place

    def tell(self) -> int:
        """Return the place."""
        return self.place

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # narrower than any buffer
        """Fill ``buffer`` from the place on, and return how much that was."""
        last = min(self.place + len(buffer), self.size) - 1
        if last < self.place:
            return 0
        content = self.part(self.place, last)
        buffer[: len(content)] = content
        self.place += len(content)
        return len(content)
