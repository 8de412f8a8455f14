# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Which sources of oneDNN a library that asks for some primitives alone can come to link, read from the sources.

oneDNN compiles the code of every primitive and switches off only the entries of its lists of implementations. What the
linker will take is followed here from those lists: a source reaches the headers that it includes, a header the
sources that keep its promises. The list of a primitive that is switched off reaches nothing. The answer is an upper
bound as far as the reading goes; whether it was enough is seen at the link.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ansible_collections.cpufleet.vllm.plugins.module_utils._cpp_names import Names, included, read_names

__all__ = ("Needed", "needed_sources")

ENGINE = "cpu/cpu_engine.cpp"
ENGINE_HEADER = "cpu/cpu_engine.hpp"
ARCHITECTURES = ("x64", "aarch64", "ppc64", "s390x", "rv64")
# The file that lists the implementations of a primitive; concat and sum have theirs without the word.
LIST = re.compile(r"cpu/(?:\w+/)?cpu_(?:(\w+)_list|(concat|sum))\.cpp$")
# Named by every class or namespace of oneDNN, so they tell nothing.
COMMON_OWNERS = frozenset(("pd_t", "std", "dnnl", "impl", "cpu", "x64", "utils"))


@dataclass(frozen=True)
class Needed:
    """``sources`` (paths below src, sorted) out of ``total``; ``reason`` says why nothing could be left out."""

    sources: tuple[str, ...]
    total: int
    reason: str = ""


def needed_sources(files: Mapping[str, str], primitives: tuple[str, ...], architecture: str = "x64") -> Needed:
    """Return what has to be compiled for ``primitives``.

    ``files`` maps paths below oneDNN's ``src`` (``common``, ``cpu``) to their texts.
    """
    sources = frozenset(path for path in files if path.endswith(".cpp") and _is_for(path, architecture))
    lists = {path: _primitive(path) for path in sources if _primitive(path)}
    unknown = [name for name in primitives if name != "reorder" and name not in lists.values()]
    if ENGINE not in sources or unknown:
        lacking = ", ".join(unknown) if ENGINE in sources else ENGINE
        return Needed(tuple(sorted(sources)), len(sources), f"this oneDNN is laid out in another way: no {lacking}")
    tree = _Tree(files, sources)
    # Where a primitive that is off is asked for by its name; the rest of oneDNN asks through the lists.
    never = {f"common/{name}.cpp" for name in lists.values() if name not in primitives}
    roots = {path for path in sources if path.startswith("common/")} | {ENGINE, *lists} | tree.unread()
    found: set[str] = set()
    waiting = sorted(roots)
    while waiting:
        path = waiting.pop()
        if path in found or path in never:
            continue
        found.add(path)
        off = path in lists and lists[path] not in primitives
        waiting.extend(tree.reached(ENGINE_HEADER, itself=True) if off else tree.reached(path))
    return Needed(tuple(sorted(found)), len(sources))


def _is_for(path: str, architecture: str) -> bool:
    others = [one for one in ARCHITECTURES if one != architecture]
    return not any(path.startswith(f"cpu/{one}/") for one in others)


def _primitive(path: str) -> str:
    """Return the primitive whose implementations a file lists; empty where it is no such file."""
    match = LIST.search(path)
    return (match.group(1) or match.group(2)) if match else ""


def _stem(path: str) -> str:
    return posixpath.splitext(path)[0]


class _Tree:
    """What includes what, and what keeps whose promises."""

    def __init__(self, files: Mapping[str, str], sources: frozenset[str]) -> None:
        self.files, self.sources = files, sources
        self.names: dict[str, Names] = {path: read_names(text) for path, text in files.items()}
        self.direct = {path: self._resolve(path) for path in files}
        self.headers: dict[str, frozenset[str]] = {}
        self.keepers = self._keepers()

    def unread(self) -> set[str]:
        """Return the sources that could not be read to their end: they are compiled whoever needs them."""
        return {path for path in self.sources if not self.names[path].whole}

    def reached(self, path: str, itself: bool = False) -> set[str]:
        """Return the sources that keep what the headers of ``path`` promise."""
        headers = self._headers(path) | ({path} if itself else frozenset())
        return {source for header in headers for source in self.keepers.get(header, ())}

    def _resolve(self, path: str) -> list[str]:
        beside = posixpath.dirname(path)
        found = []
        for name in included(self.files[path]):
            places = (posixpath.normpath(name), posixpath.normpath(posixpath.join(beside, name)))
            found += [place for place in places if place in self.files][:1]
        return found

    def _headers(self, path: str) -> frozenset[str]:
        """Return all that ``path`` includes, and what that includes."""
        if path not in self.headers:
            found: set[str] = set()
            waiting = list(self.direct.get(path, ()))
            while waiting:
                one = waiting.pop()
                if one not in found:
                    found.add(one)
                    waiting += self.direct[one]
            self.headers[path] = frozenset(found)
        return self.headers[path]

    def _keepers(self) -> dict[str, set[str]]:
        """Return, for every header, the sources that define what it declares or that have its name."""
        headers = [path for path in self.files if not path.endswith(".cpp")]
        declaring: dict[object, list[str]] = {}
        for header in headers:
            names = self.names[header]
            for name in (*names.classes, *names.declared, _stem(header)):
                declaring.setdefault(name, []).append(header)
        found: dict[str, set[str]] = {}
        for source in self.sources:
            names = self.names[source]
            for name in (*(names.owners - COMMON_OWNERS), *names.defined, _stem(source)):
                for header in declaring.get(name, ()):
                    found.setdefault(header, set()).add(source)
        return found
