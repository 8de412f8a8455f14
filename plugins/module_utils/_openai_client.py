# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Ask an OpenAI-compatible server over HTTP: through no proxy, with one deadline, and never telling the key."""

from __future__ import annotations

import http.client
import socket
import time
from dataclasses import dataclass
from typing import Callable
from urllib.parse import urlsplit

from ansible_collections.cpufleet.vllm.plugins.module_utils._completion import (
    Answer,
    Event,
    EventParser,
    error_text,
    listed_models,
    read_event,
    redact,
    request_body,
    summarise,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError

__all__ = ("Client", "NotReadyError", "Wish")

PIECE = 1 << 16
BODY_LIMIT = 1 << 20
STATUS_OK = 200
STATUS_LOADING = 503
STATUS_REFUSED = (401, 403)


class NotReadyError(CpufleetError):
    """The server does not answer yet, or says that it is still loading."""


class TransportError(CpufleetError):
    """The connection broke, or nothing came before the deadline."""


@dataclass(frozen=True)
class Wish:
    """What to ask for: a chat (``messages``) or a plain completion (``prompt``)."""

    messages: tuple[object, ...] = ()
    prompt: str = ""
    max_tokens: int = 32
    temperature: float = 0.0


class Client:
    """A client of the server at ``url`` (with or without /v1 at its end); ``key`` is sent, and never told."""

    def __init__(self, url: str, key: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise CpufleetError(f"The address {url!r} is not usable", "Give one such as http://127.0.0.1:8000", url=url)
        self.url = url.rstrip("/")
        self._parts = parts
        base = parts.path.rstrip("/")
        self._base = base[: -len("/v1")] if base.endswith("/v1") else base
        self._key = key
        self._clock = clock

    def models(self, deadline: float) -> list[str]:
        """Return the models that the server lists; raise NotReadyError while it does not answer."""
        try:
            connection, sock = self._connect(deadline)
            try:
                response = self._send(connection, sock, deadline, "GET", "/v1/models")
                body = self._body(response, sock, deadline)
            finally:
                connection.close()
        except TransportError as error:
            raise NotReadyError(error.problem) from error
        if response.status == STATUS_LOADING:
            raise NotReadyError(f"The server at {self.url} says that it is not ready: {error_text(body)}")
        self._check_status(response.status, body, "/v1/models")
        return listed_models(body)

    def ask(self, model: str, wish: Wish, deadline: float) -> Answer:
        """Return the streamed answer to ``wish``; raise when there is none before ``deadline``."""
        path = "/v1/chat/completions" if wish.messages else "/v1/completions"
        body = request_body(model, wish.messages, wish.prompt, wish.max_tokens, wish.temperature)
        connection, sock = self._connect(deadline)
        try:
            asked_at = self._clock()
            response = self._send(connection, sock, deadline, "POST", path, body)
            if response.status != STATUS_OK:
                self._check_status(response.status, self._body(response, sock, deadline), path)
            return summarise(self._stream(response, sock, deadline), asked_at)
        finally:
            connection.close()

    def _connect(self, deadline: float) -> tuple[http.client.HTTPConnection, socket.socket]:
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(str(self._parts.hostname), self._parts.port, timeout=self._left(deadline))
        try:
            connection.connect()
        except OSError as error:
            raise TransportError(f"Nothing answers at {self.url}: {error}") from error
        sock: socket.socket = connection.sock
        return connection, sock

    def _send(
        self,
        connection: http.client.HTTPConnection,
        sock: socket.socket,
        deadline: float,
        method: str,
        path: str,
        body: bytes | None = None,
    ) -> http.client.HTTPResponse:
        headers = {"Accept": "application/json, text/event-stream", "Connection": "close"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        try:
            sock.settimeout(self._left(deadline))
            connection.request(method, self._base + path, body, headers)
            return connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise self._broken(path, error) from error

    def _stream(
        self, response: http.client.HTTPResponse, sock: socket.socket, deadline: float
    ) -> list[tuple[float, Event]]:
        parser, events = EventParser(), []
        while True:
            piece = self._read(response, sock, deadline)
            now = self._clock()
            events += [(now, read_event(data)) for data in parser.feed(piece)]
            if not piece or (events and (events[-1][1].done or events[-1][1].error)):
                return events

    def _body(self, response: http.client.HTTPResponse, sock: socket.socket, deadline: float) -> str:
        body = b""
        while len(body) < BODY_LIMIT:
            piece = self._read(response, sock, deadline)
            if not piece:
                break
            body += piece
        return body.decode("utf-8", "replace")

    def _read(self, response: http.client.HTTPResponse, sock: socket.socket, deadline: float) -> bytes:
        # Since Python 3.13 a response that is read to its announced end closes the socket by itself.
        if response.isclosed():
            return b""
        try:
            sock.settimeout(self._left(deadline))
            return response.read1(PIECE)
        except (OSError, http.client.HTTPException) as error:
            raise self._broken("the answer", error) from error

    def _left(self, deadline: float) -> float:
        left = deadline - self._clock()
        if left <= 0:
            raise TransportError(f"The time is up before the server at {self.url} answered", url=self.url)
        return left

    def _broken(self, what: str, error: Exception) -> TransportError:
        if isinstance(error, socket.timeout):
            return TransportError(f"The server at {self.url} takes connections but does not finish {what} in time")
        cause = redact(str(error), self._key) or type(error).__name__
        return TransportError(f"The server at {self.url} broke the connection during {what}: {cause}")

    def _check_status(self, status: int, body: str, path: str) -> None:
        if status in STATUS_REFUSED:
            raise CpufleetError(
                f"The server at {self.url} refuses the API key with status {status}",
                "Compare the key in api_key_file with the one that the service was started with",
                status=status,
            )
        if status != STATUS_OK:
            text = redact(error_text(body), self._key)
            raise CpufleetError(
                f"The server at {self.url} answers {path} with status {status}: {text or 'no text'}", status=status
            )
