# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""What a reading of a vLLM source works with: the tree as it is, the tree as released, parsed files, and a notebook."""

from __future__ import annotations

import ast
from typing import Any

from ansible_collections.cpufleet.vllm.plugins.module_utils import _source_cmake as cmake
from ansible_collections.cpufleet.vllm.plugins.module_utils import _source_python as python
from ansible_collections.cpufleet.vllm.plugins.module_utils._edits import BEGIN, revert_edit
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._source_tree import SourceTree

__all__ = ("Reading",)


class Reading:
    """One tree being read. Files are read and parsed once; what is not recognised is noted and never raised.

    Edits of this collection are taken out before a file is parsed, so that a patched tree has the facts of its release;
    ``as_is`` asks for the file as it lies there.
    """

    def __init__(self, tree: SourceTree) -> None:
        self.tree = tree
        self.unknown: list[str] = []
        self.evidence: dict[str, str] = {}
        self.edits: list[str] = []
        self._texts: dict[str, str | None] = {}
        self._python: dict[tuple[str, bool], ast.Module | None] = {}
        self._cmake: dict[str, list[cmake.Command]] = {}

    def text(self, path: str) -> str | None:
        """Return a file as the release has it."""
        if path not in self._texts:
            content = self.tree.read(path)
            self._texts[path] = None if content is None else self._released(path, content)
        return self._texts[path]

    def _released(self, path: str, content: bytes) -> str:
        lines = (BEGIN.match(line) for line in content.splitlines(keepends=True)) if b">>> cpufleet." in content else ()
        for name in dict.fromkeys(match[2].decode() for match in lines if match):
            try:
                content = revert_edit(content, name, path)
                self.edits.append(name)
            except CpufleetError as error:
                self.note(error.problem)
        return content.decode("utf-8-sig", "replace").replace("\r\n", "\n")

    def python(self, path: str, as_is: bool = False) -> ast.Module | None:
        """Return the syntax tree of a Python file, None where it is missing; one that does not parse is noted."""
        key = (path, as_is)
        if key not in self._python:
            text = self.tree.text(path) if as_is else self.text(path)
            self._python[key] = python.parse(text)
            if text is not None and self._python[key] is None:
                self.note(f"{path} is not Python that this Python can parse")
        return self._python[key]

    def cmake(self, path: str) -> list[cmake.Command]:
        """Return the commands of a CMake file, none where it is missing."""
        if path not in self._cmake:
            self._cmake[path] = cmake.parse(self.text(path) or "")
        return self._cmake[path]

    def note(self, text: str) -> None:
        """Remember something that was not recognised."""
        if text not in self.unknown:
            self.unknown.append(text)

    def saw(self, fact: str, path: str, line: Any) -> None:
        """Remember where a fact was read."""
        self.evidence[fact] = f"{path}:{line}"
