# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A real HTTP server of files with ranges, whose answers can be spoiled one by one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support import running


class FileServer(ThreadingHTTPServer):
    """Serves ``files`` by name, a query included; ``moved`` are names that are answered with another address.

    With ``token`` set, only those who send it get anything. ``before`` is called with a name before its answer.
    Each entry of ``faults`` spoils one answer: ``cut`` (half of it, its whole length announced), ``truncated`` (half of
    it, no length announced), or a status.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.files: dict[str, Any] = {}
        self.sent = 0
        self.faults: list[str] = []
        self.asked: list[tuple[str, str]] = []
        self.moved: dict[str, str] = {}
        self.token = ""
        self.secrets: list[str] = []
        self.before: Callable[[str], None] = lambda _name: None

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
        self.server.secrets.append(self.headers.get("Authorization", ""))
        self.server.before(name)
        if self.server.token and self.server.secrets[-1] != f"Bearer {self.server.token}":
            self.send_error(401)
            return
        if name in self.server.moved:
            self.send_response(302)
            self.send_header("Location", self.server.moved[name])
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        fault = self.server.faults.pop(0) if self.server.faults else ""
        content = self.server.files.get(name)
        if fault.isdecimal() or content is None:
            self.send_error(int(fault or 404))
            return
        first, _dash, last = wanted[len("bytes=") :].partition("-")
        start, end = int(first or 0), int(last) + 1 if last else len(content)
        if start and start >= len(content):
            self.send_error(416)
            return
        rest = content[start:end]
        self.server.sent += len(rest)
        self.send_response(206 if wanted else 200)
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{start + len(rest) - 1}/{len(content)}")
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
