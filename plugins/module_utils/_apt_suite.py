# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""A second suite beside the host's own: from the same archive, in a file of its own, pinned low."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError

__all__ = ("Entry", "parse_entries", "preferences_text", "second_suite", "sources_text")

HEAD = "# Written by cpufleet.vllm.package_suite, which also removes it (state: absent).\n"
# As low as what is installed: nothing comes from there by itself, and what came gets its updates.
PRIORITY = 100
POCKETS = ("", "-updates", "-security")


@dataclass(frozen=True)
class Entry:
    """One archive with one suite, as a source file names it."""

    uri: str
    suite: str
    components: tuple[str, ...]
    signed_by: str = ""


def parse_entries(files: dict[str, str]) -> list[Entry]:
    """Return the binary archives that source files name; ``files`` is text by path (one-line or deb822 by its name)."""
    entries: list[Entry] = []
    for path, text in sorted(files.items()):
        entries += stanzas(text) if path.endswith(".sources") else one_lines(text)
    return entries


def one_lines(text: str) -> list[Entry]:
    """Return the entries of a file in the one-line style."""
    entries = []
    for line in text.splitlines():
        match = re.match(r"deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)\s*([^#]*)", line.strip())
        if match:
            options, uri, suite, components = match.groups()
            signed = re.search(r"signed-by=(\S+)", options or "", re.IGNORECASE)
            entries.append(Entry(uri, suite, tuple(components.split()), signed[1] if signed else ""))
    return entries


def stanzas(text: str) -> list[Entry]:
    """Return the entries of a deb822 file; a disabled stanza, and a key given in place, are passed over."""
    entries = []
    for stanza in re.split(r"\n\s*\n", re.sub(r"(?m)^#.*\n?", "", text)):
        fields = {
            name.lower(): value.strip() for name, value in re.findall(r"(?m)^([\w-]+):((?:.*)(?:\n\s+.+)*)", stanza)
        }
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() in ("no", "false"):
            continue
        signed = fields.get("signed-by", "")
        for uri in fields.get("uris", "").split():
            for suite in fields.get("suites", "").split():
                components = tuple(fields.get("components", "").split())
                entries.append(Entry(uri, suite, components, signed if signed.startswith("/") else ""))
    return entries


def second_suite(entries: list[Entry], own: str, other: str) -> list[Entry]:
    """Return the entries for the suite ``other`` from the archives that serve ``own``; main only."""
    found = []
    for pocket in POCKETS:
        for entry in entries:
            if entry.suite == own + pocket and "main" in entry.components:
                found.append(Entry(entry.uri, other + pocket, ("main",), entry.signed_by))
                break
    if not found or found[0].suite != other:
        raise CpufleetError(
            f"Cannot add the suite {other}: no source file of this host names {own} main",
            "Add the distribution's own archive to the host's package sources",
            suite=other,
        )
    return found


def sources_text(entries: list[Entry]) -> str:
    """Return the text of a deb822 source file."""
    parts = []
    for entry in entries:
        lines = [
            "Types: deb",
            f"URIs: {entry.uri}",
            f"Suites: {entry.suite}",
            f"Components: {' '.join(entry.components)}",
        ]
        lines += [f"Signed-By: {entry.signed_by}"] if entry.signed_by else []
        parts.append("\n".join(lines) + "\n")
    return HEAD + "\n".join(parts)


def preferences_text(entries: list[Entry]) -> str:
    """Return the text of a preferences file that keeps the suites from being preferred."""
    pins = [f"Package: *\nPin: release n={entry.suite}\nPin-Priority: {PRIORITY}\n" for entry in entries]
    return HEAD + "\n".join(pins)
