# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Serve the torch wheels of some folders as a page of links; cut what is large until /run/line-is-good is there."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, unquote

LARGE = 32 << 20
CHUNK = 1 << 20
FOLDERS = [Path(name) for name in sys.argv[1:]]
WHEELS = {path.name: path for folder in FOLDERS if folder.is_dir() for path in folder.glob("torch-*.whl")}


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    value = hashlib.sha256()
    with path.open("rb") as stream:
        for chunk in iter(lambda: stream.read(CHUNK), b""):
            value.update(chunk)
    return value.hexdigest()


PAGE = "".join(f'<a href="{quote(name)}#sha256={digest(path)}">{name}</a>\n' for name, path in WHEELS.items()).encode()


class Handler(BaseHTTPRequestHandler):
    """Answers with the page, or with a wheel or a part of it."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, body: bool) -> None:
        """Send the whole or the range that was asked for."""
        path = WHEELS.get(unquote(self.path.lstrip("/")))
        if path is None:
            self.head(200 if self.path == "/" else 404, len(PAGE) if self.path == "/" else 0)
            if body and self.path == "/":
                self.wfile.write(PAGE)
            return
        size = path.stat().st_size
        first, last = self.wanted(size)
        part = "Range" in self.headers
        self.head(206 if part else 200, last - first + 1, f"bytes {first}-{last}/{size}" if part else "")
        if body:
            self.send(path, first, last - first + 1)

    def wanted(self, size: int) -> tuple[int, int]:
        """Return the first and the last byte that were asked for."""
        match = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if not match:
            return 0, size - 1
        if not match[1]:
            return size - int(match[2]), size - 1
        return int(match[1]), min(int(match[2] or size - 1), size - 1)

    def head(self, status: int, length: int, content_range: str = "") -> None:
        """Send the header lines."""
        self.send_response(status)
        self.send_header("Content-Type", "text/html" if self.path == "/" else "application/octet-stream")
        self.send_header("Content-Length", str(length))
        self.send_header("Accept-Ranges", "bytes")
        if content_range:
            self.send_header("Content-Range", content_range)
        self.end_headers()

    def send(self, path: Path, first: int, length: int) -> None:
        """Send a part of a file; cut a large one off while the line is bad."""
        bad = length > LARGE and not os.path.exists("/run/line-is-good")
        left = LARGE if bad else length
        with path.open("rb") as stream:
            stream.seek(first)
            while left > 0:
                chunk = stream.read(min(CHUNK, left))
                self.wfile.write(chunk)
                left -= len(chunk)
        if bad:
            self.log_message("cut off after %d bytes", LARGE)
            self.close_connection = True
            self.connection.close()


ThreadingHTTPServer(("127.0.0.1", 8098), Handler).serve_forever()
