# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Which names a C++ file defines and declares at namespace scope, read without a compiler.

Good enough to say which source a header's promises are kept in: bodies are passed over, macros are not expanded, and a
file whose braces do not pair (``#if`` with a brace in each branch) is told apart, so that nothing is decided from it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ("Names", "included", "read_names")

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
# Comments, texts, characters, and whatever the preprocessor eats.
NOISE = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*",
    re.DOTALL | re.MULTILINE,
)
MARK = re.compile(r"[{};]")
NAMESPACE = re.compile(r"\bnamespace\s+([\w:]+)\s*$")
LINKAGE = re.compile(r"\bextern\s*$")
BRACKETED = re.compile(r"<[^<>;{}()]*>")
FUNCTION = re.compile(r"((?:\w+\s*::\s*)*)(~?\w+|operator\s*[^\s\w(]+|operator\s*\(\s*\))\s*\(")
INSTANCE = re.compile(r"template\s+(?:struct|class)\s+(?:\w+::)*(\w+)")
CLASS = re.compile(r"\b(?:struct|class|union)\s+(?:\w+_API\s+)?(\w+)\s*(?:final\s*)?(?::.*)?$", re.DOTALL)
VARIABLE = re.compile(r"((?:\w+\s*::\s*)*)(\w+)\s*(?:\[[^\]]*\]\s*)*(?:=.*)?$", re.DOTALL)
# Seen by this file alone, another name for what is elsewhere, or a type without a linker's symbol.
PASSED_OVER = re.compile(
    r"(?:template\s*)?(?:inline\s+)?(?:static\b|using\b|typedef\b|namespace\b|(?:struct|class|union|enum)\b[^()=]*$)"
)
WORD = re.compile(r"\w+")
STATEMENTS = frozenset(("if", "for", "while", "switch", "return", "static_assert"))
WORDS_BEFORE_BRACKETS = frozenset(("sizeof", "alignas", "decltype", "noexcept", "void", "bool", "int", "defined"))
NOT_FUNCTIONS = STATEMENTS | WORDS_BEFORE_BRACKETS


@dataclass(frozen=True)
class Names:
    """What a file says at namespace scope; functions and variables as (namespace, name).

    ``owners`` are the classes (and namespaces) whose members are defined here, ``defined`` what has its body here,
    ``classes`` the classes that are described here, ``declared`` what is promised. ``whole`` is False where the file
    could not be read to its end.
    """

    owners: frozenset[str]
    defined: frozenset[tuple[str, str]]
    classes: frozenset[str]
    declared: frozenset[tuple[str, str]]
    whole: bool


def included(text: str) -> list[str]:
    """Return what a file includes with quotes, as it is written."""
    return INCLUDE.findall(text)


def read_names(text: str) -> Names:
    """Return the names of one file."""
    found, whole = _statements(NOISE.sub(" ", text))
    owners: set[str] = set()
    defined: set[tuple[str, str]] = set()
    classes: set[str] = set()
    declared: set[tuple[str, str]] = set()
    for namespace, statement, body in found:
        flat = _without_brackets(statement)
        instance, described = INSTANCE.match(statement), CLASS.search(flat)
        if instance:
            owners.add(instance.group(1))
        elif body and described and "(" not in flat:
            classes.add(described.group(1))
        else:
            owner, name, kind = _member(flat, body)
            if owner:
                owners.update(WORD.findall(owner))
            elif name:
                (defined if kind == "defined" else declared).add((namespace, name))
    return Names(frozenset(owners), frozenset(defined), frozenset(classes), frozenset(declared), whole)


def _member(flat: str, body: bool) -> tuple[str, str, str]:
    """Return owner, name and whether a function or variable is defined or declared; empty where it is neither."""
    if PASSED_OVER.match(flat):
        return "", "", ""
    call = FUNCTION.search(flat)
    if call and call.group(2) not in NOT_FUNCTIONS:
        # An explicit instantiation has no body of its own.
        made = body or flat.startswith("template")
        return call.group(1), call.group(2), "defined" if made else "declared"
    variable = None if call else VARIABLE.search(flat)
    if variable:
        return variable.group(1), variable.group(2), "declared" if flat.startswith("extern") else "defined"
    return "", "", ""


def _statements(text: str) -> tuple[list[tuple[str, str, bool]], bool]:
    """Return (namespace, statement, whether a body follows) of all at namespace scope, and whether braces pair."""
    found: list[tuple[str, str, bool]] = []
    spaces: list[str] = []
    depth = start = 0
    for mark in MARK.finditer(text):
        sign = mark.group()
        if depth:
            depth += {"{": 1, "}": -1, ";": 0}[sign]
            start = mark.end()
            continue
        statement = text[start : mark.start()].strip()
        start = mark.end()
        opened = NAMESPACE.search(statement) if sign == "{" else None
        if opened or (sign == "{" and LINKAGE.search(statement)):
            spaces.append(opened.group(1) if opened else "")
            continue
        if statement or sign == "{":
            found.append(("::".join(filter(None, spaces)), statement, sign == "{"))
        if sign == "{":
            depth = 1
        elif sign == "}" and not spaces:
            return found, False
        elif sign == "}":
            spaces.pop()
    return found, not depth and not spaces


def _without_brackets(text: str) -> str:
    """Return the text without what stands in angle brackets."""
    while True:
        shorter = BRACKETED.sub("", text)
        if shorter == text:
            return text
        text = shorter
