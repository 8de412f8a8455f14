# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A real git server on a port of this machine: git http-backend behind HTTP, over a link that can be made bad."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.support import running

# What a source distribution has and the repository behind it has not.
MADE = ("PKG-INFO", "vllm.egg-info", "vllm/_version.py")
AUTHOR = {
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@example.com",
    "GIT_AUTHOR_DATE": "2024-12-17T23:56:41+0100",
    "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@example.com",
    "GIT_COMMITTER_DATE": "2024-12-17T23:56:41+0100",
    "GIT_CONFIG_GLOBAL": "/dev/null",
}


def git(folder: Path, *arguments: str) -> str:
    """Run git in ``folder`` and return what it writes."""
    command = ["git", "-C", str(folder), *arguments]
    done = subprocess.run(command, env={**os.environ, **AUTHOR}, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def make_repository(tree: Path, folder: Path, tag: str) -> str:
    """Commit ``tree`` to a new bare repository at ``folder``, with an annotated ``tag``, and return the commit."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--bare", "--initial-branch=main")
    git(folder, "config", "uploadpack.allowFilter", "true")
    return add_commit(tree, folder, tag)


def add_commit(tree: Path, folder: Path, tag: str) -> str:
    """Commit ``tree`` as it lies there, without what only a source distribution has."""
    work = [f"--git-dir={folder}", f"--work-tree={tree}"]
    out = [f":(exclude){name}" for name in MADE]
    git(tree, *work, "add", "--all", "--force", "--", ".", *out)
    git(tree, *work, "commit", "--quiet", "--message=tree")
    git(folder, "tag", "--annotate", f"--message={tag}", tag)
    return git(folder, "rev-parse", "HEAD")


class GitServer(ThreadingHTTPServer):
    """Serves the repositories below ``root``.

    ``cuts``: so many packs are cut in the middle. ``limit``: every answer is cut after so many bytes.
    """

    daemon_threads = True

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), Request)
        self.root = root
        self.cuts = 0
        self.limit = 0
        self.requests: list[str] = []
        self.was_cut = 0

    def url(self, name: str) -> str:
        """Return the address of a repository."""
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"


class Request(BaseHTTPRequestHandler):
    """One request, handed to git http-backend as a CGI program."""

    server: GitServer

    def do_GET(self) -> None:
        """Answer the question for references."""
        self.answer(b"")

    def do_POST(self) -> None:
        """Answer a wish for objects."""
        length = self.headers.get("Content-Length")
        self.answer(self.rfile.read(int(length)) if length else self.chunks())

    def chunks(self) -> bytes:
        """Return a body that comes in pieces."""
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def answer(self, body: bytes) -> None:
        """Run the program and pass its answer on, cut where the link is bad."""
        path, _mark, query = self.path.partition("?")
        self.server.requests.append(f"{self.command} {self.path}")
        variables = {
            "GIT_PROJECT_ROOT": str(self.server.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        done = subprocess.run(
            ["git", "http-backend"], input=body, env={**os.environ, **variables}, capture_output=True, check=False
        )
        head, _blank, content = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.end_headers()
        self.send(content, pack=b"packfile" in content[:2000])

    def send(self, content: bytes, pack: bool) -> None:
        """Send the answer, or its beginning."""
        limit = self.server.limit or len(content)
        if pack and self.server.cuts:
            self.server.cuts -= 1
            limit = len(content) // 2
        self.wfile.write(content[:limit])
        if limit < len(content):
            self.server.was_cut += 1
            # Closed as a broken link is: with a reset.
            self.wfile.flush()
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

    def log_message(self, *_words: Any) -> None:
        """Say nothing."""


@contextlib.contextmanager
def serving(root: Path) -> Iterator[GitServer]:
    """Serve what lies below ``root``."""
    server = GitServer(root)
    with running.serving(server):
        yield server


def dead_port() -> int:
    """Return a port at which nobody listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
