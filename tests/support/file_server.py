# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A real HTTP server of files with ranges, whose answers can be spoiled one by one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support import running


class FileServer(ThreadingHTTPServer):
    """Serves ``files`` by name.

    Each entry of ``faults`` spoils one answer: ``cut`` (half of it, its whole length announced), ``truncated`` (half of
    it, no length announced), or a status.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.files: dict[str, bytes] = {}
        self.faults: list[str] = []
        self.asked: list[tuple[str, str]] = []

    def url(self, name: str) -> str:
        """Return the address of a file."""
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"


class Answer(BaseHTTPRequestHandler):
    """One answer."""

    server: FileServer

    def do_GET(self) -> None:
        """Send a file, or what is left of it from the range asked for."""
        wanted, name = self.headers.get("Range", ""), self.path[1:]
        self.server.asked.append((name, wanted))
        fault = self.server.faults.pop(0) if self.server.faults else ""
        content = self.server.files.get(name)
        if fault.isdecimal() or content is None:
            self.send_error(int(fault or 404))
            return
        start = int(wanted[len("bytes=") : -1]) if wanted else 0
        if start and start >= len(content):
            self.send_error(416)
            return
        rest = content[start:]
        self.send_response(206 if start else 200)
        if fault != "truncated":
            self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        self.wfile.write(rest[: len(rest) // 2] if fault in ("cut", "truncated") else rest)

    def log_message(self, *_words: Any) -> None:
        """Say nothing."""


@contextlib.contextmanager
def serving_files() -> Iterator[FileServer]:
    """Serve files until the block ends."""
    server = FileServer()
    with running.serving(server):
        yield server
