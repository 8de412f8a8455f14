# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""The first cause in a service's journal: what went wrong, not the wrapper that reports it at the end.

An engine that dies prints its own fault first; then every process above it prints one more traceback. So the lines
are read from the oldest on, a known fault wins over an unknown one, and wrappers are passed over.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Iterator, Sequence

from ansible_collections.cpufleet.vllm.plugins.module_utils._journal_causes import CAUSES, Known

__all__ = ("FirstCause", "first_cause", "message_of")

LINE_LIMIT = 400
COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# "(EngineCore_0 pid=12) ERROR 12-06 10:00:00 [core.py:390] text", 0.6's "ERROR 12-06 10:00:00 engine.py:366] text",
# and the HTTP server's "ERROR:    text".
PREFIX = re.compile(
    r"^(?:\([^()]*pid=\d+\)\s?)*"
    r"(?:(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)"
    r"(?::\s+|\s+\d\d-\d\d \d\d:\d\d:\d\d\s+(?:\[[^\]]*\]|[\w./]+:\d+\])\s?))?"
)
EXCEPTION = re.compile(
    r"^(?P<name>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Warning|NotFound))(?::|$)"
)
WRAPPERS = re.compile(
    r"Engine core initialization failed|Engine process failed to start|See (?:root cause|stack trace)"
    r"|EngineDeadError|AsyncEngineDeadError|MQEngineDeadError|EngineGenerateError|Worker failed with error"
    r"|^(?:SystemExit|KeyboardInterrupt|CancelledError|asyncio\.exceptions\.CancelledError)\b"
    r"|EngineCore (?:failed to start|encountered a fatal error)|Failed core proc|WorkerProc failed to start"
    r"|WorkerProc initialization failed|TaskGroup"
)
EXITED = re.compile(r"Main process exited, code=(?P<code>\w+), status=(?P<status>\S+)")


@dataclass(frozen=True)
class FirstCause:
    """Why a service failed: a stable ``code``, what it means, what to do, and the journal line that says so."""

    code: str
    text: str
    remedy: str
    line: str

    def sentence(self) -> str:
        """Return the cause as it stands in a message."""
        return f"{self.line}: {self.text}. {self.remedy}."

    def as_dict(self) -> dict[str, str]:
        """Return the cause for a module's result."""
        return asdict(self)


@dataclass(frozen=True)
class _Line:
    """One journal line without its prefix; ``final`` where it is the exception that ends a traceback."""

    text: str
    level: str
    final: bool


def message_of(line: str) -> tuple[str, str]:
    """Return the level ("" where none is told) and the text of one raw journal line."""
    plain = COLOUR.sub("", line).rstrip()
    match = PREFIX.match(plain)
    if match is None:
        return "", plain
    return match.group("level") or "", plain[match.end() :]


def first_cause(lines: Sequence[str]) -> FirstCause | None:
    """Return the first cause in ``lines`` (oldest first), or None where they tell of no fault."""
    parsed = list(_parse(lines))
    for rank in (1, 2):
        for line in parsed:
            for known in CAUSES:
                if known.rank == rank and _applies(known, line):
                    return FirstCause(known.code, known.text, known.remedy, _shorten(line.text))
    return _unknown(parsed)


def _parse(lines: Sequence[str]) -> Iterator[_Line]:
    """Yield the lines in order; the exception that ends a traceback is marked, unless it is a wrapper."""
    within = False
    for raw in lines:
        level, text = message_of(raw)
        final = False
        if "Traceback (most recent call last)" in text:
            within = True
        elif within and EXCEPTION.match(text):
            final, within = not WRAPPERS.search(text), False
        yield _Line(text, level, final)


def _applies(known: Known, line: _Line) -> bool:
    if line.level in ("DEBUG", "INFO", "WARNING") and not known.any_level:
        return False
    return known.pattern.search(line.text) is not None


def _unknown(lines: Sequence[_Line]) -> FirstCause | None:
    """Return the most telling line of a fault that is not in the table: an exception, an error, an exit status."""
    choices = (
        (line for line in lines if line.final),
        (line for line in lines if line.level in ("ERROR", "CRITICAL") and _tells(line.text)),
        (line for line in lines if EXITED.search(line.text) and "status=0" not in line.text),
    )
    for choice in choices:
        for line in choice:
            text = "The service failed for a reason that is not in the table of known causes"
            return FirstCause("unknown", text, "Read the journal of the unit from that line on", _shorten(line.text))
    return None


def _tells(text: str) -> bool:
    """Tell whether an ERROR line says more than that something failed: no wrapper, no frame of a traceback."""
    return bool(text.strip()) and not text.startswith((" ", "Traceback")) and not WRAPPERS.search(text)


def _shorten(text: str) -> str:
    text = text.strip()
    return text if len(text) <= LINE_LIMIT else text[: LINE_LIMIT - 3] + "..."
