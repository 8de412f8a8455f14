# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""What a completion request and its stream of answers mean: bodies, events, statistics, and whether it will do."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Sequence

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError

__all__ = (
    "Answer",
    "Event",
    "EventParser",
    "check_answer",
    "check_expect",
    "error_text",
    "listed_models",
    "read_event",
    "redact",
    "request_body",
    "summarise",
)

DONE = "[DONE]"
TEXT_LIMIT = 300


@dataclass(frozen=True)
class Event:
    """One event of a stream: the text it adds, whether it ends it, tokens counted so far (None: not told), a fault."""

    text: str = ""
    reasoning: str = ""
    finish_reason: str = ""
    tokens: int | None = None
    error: str = ""
    done: bool = False


@dataclass(frozen=True)
class Answer:
    """A whole answer: its text, how it ended, and how fast it came."""

    text: str
    finish_reason: str
    tokens: int
    ttft_s: float
    tokens_per_s: float


class EventParser:
    """Take the bytes of a server-sent event stream in pieces of any size; give the data of each whole event."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> list[str]:
        """Return the data of the events that ``piece`` completes."""
        lines = (self._rest + piece).split(b"\n")
        self._rest = lines.pop()
        found = []
        for raw in lines:
            line = raw.rstrip(b"\r").decode("utf-8", "replace")
            if line.startswith("data:"):
                value = line[len("data:") :]
                self._data.append(value[1:] if value.startswith(" ") else value)
            elif not line and self._data:
                found.append("\n".join(self._data))
                self._data = []
        return found


def request_body(model: str, messages: Sequence[Any], prompt: str, max_tokens: int, temperature: float) -> bytes:
    """Return the body of a streamed request: for a chat when ``messages`` are given, else for ``prompt``."""
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": max_tokens,
        "temperature": temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if messages:
        body["messages"] = list(messages)
    else:
        body["prompt"] = prompt
    return json.dumps(body).encode("utf-8")


def read_event(data: str) -> Event:
    """Return what one event says; text that is no JSON object is a fault of the server."""
    if data.strip() == DONE:
        return Event(done=True)
    try:
        document = json.loads(data)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        return Event(error=f"the stream holds what is not JSON: {_shorten(data)}")
    if document.get("error") or document.get("object") == "error":
        return Event(error=error_text(data))
    usage = document.get("usage") or {}
    choices = document.get("choices") or [{}]
    choice = choices[0]
    delta = choice.get("delta") or {}
    return Event(
        text=delta.get("content") or choice.get("text") or "",
        reasoning=delta.get("reasoning_content") or delta.get("reasoning") or "",
        finish_reason=choice.get("finish_reason") or "",
        tokens=usage.get("completion_tokens"),
    )


def summarise(events: Sequence[tuple[float, Event]], asked_at: float) -> Answer:
    """Return the answer that ``events`` (each with its time of arrival) make; times are in seconds of one clock.

    Speed is that of decoding: tokens after the first, over the time after the first. Where the server does not tell
    how many tokens it made, each piece of text counts as one.
    """
    told = [event for _at, event in events]
    errors = [event.error for event in told if event.error]
    if errors:
        raise CpufleetError(f"The server broke the answer off: {errors[0]}")
    pieces = [(at, event) for at, event in events if event.text or event.reasoning]
    reasons = [event.finish_reason for event in told if event.finish_reason]
    if not reasons and not any(event.done for event in told):
        raise CpufleetError("The stream ended before the answer was complete")
    counted = [event.tokens for event in told if event.tokens is not None]
    tokens = counted[-1] if counted else len(pieces)
    first, last = (pieces[0][0], pieces[-1][0]) if pieces else (asked_at, asked_at)
    text = "".join(event.text for event in told) or "".join(event.reasoning for event in told)
    speed = (tokens - 1) / (last - first) if tokens > 1 and last > first else 0.0
    return Answer(text, reasons[-1] if reasons else "", tokens, round(first - asked_at, 4), round(speed, 2))


def check_expect(expect: str) -> None:
    """Raise when ``expect`` is no regular expression."""
    try:
        re.compile(expect)
    except re.error as error:
        raise CpufleetError(
            f"The option expect is {expect!r}, which is no regular expression: {error}", "Correct the pattern"
        ) from error


def check_answer(text: str, expect: str) -> None:
    """Raise unless ``text`` says something and the pattern ``expect`` is found in it."""
    if not text.strip():
        raise CpufleetError("The model answered with no text", "Check that the model has a chat template", answer=text)
    if expect and not re.search(expect, text):
        raise CpufleetError(
            f"The model answered {_shorten(text)!r}, in which {expect!r} is not found",
            "The engine may compute wrongly: ask again by hand, or correct the expected pattern",
            answer=text,
        )


def listed_models(body: str) -> list[str]:
    """Return the names in the answer of /v1/models; raise where it is none."""
    try:
        entries = json.loads(body)["data"]
        return [str(entry["id"]) for entry in entries]
    except (ValueError, KeyError, TypeError) as error:
        raise CpufleetError(
            f"The answer to /v1/models is not a list of models: {_shorten(body)}",
            "Check that the address is that of an OpenAI-compatible server",
        ) from error


def error_text(body: str) -> str:
    """Return the message in an error answer of an OpenAI-compatible server, or the start of the answer."""
    try:
        document = json.loads(body)
    except ValueError:
        return _shorten(body)
    inner = document.get("error", document) if isinstance(document, dict) else document
    if isinstance(inner, dict):
        inner = inner.get("message") or inner.get("detail") or body
    return _shorten(str(inner))


def redact(text: str, secret: str) -> str:
    """Return ``text`` without ``secret``."""
    return text.replace(secret, "***") if secret else text


def _shorten(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= TEXT_LIMIT else text[: TEXT_LIMIT - 3] + "..."
