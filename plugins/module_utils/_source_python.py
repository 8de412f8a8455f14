# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""What Python files say, read with ``ast``: nothing is imported, and unknown expressions stay unknown.

The helpers answer None or nothing where a file is missing or does not parse, so that a tree newer than this
collection costs single facts and not the whole reading.
"""

from __future__ import annotations

import ast
from typing import Any, Callable, Iterator

__all__ = (
    "UNKNOWN",
    "assigned",
    "calls",
    "constants",
    "environment_defaults",
    "find_class",
    "find_function",
    "functions",
    "keyword",
    "mentions",
    "parse",
    "terminal_name",
)

#: The value of an expression that cannot be told without running it.
UNKNOWN = object()


def parse(text: str | None) -> ast.Module | None:
    """Return the syntax tree of a file, or None where it is missing or not Python that this Python knows."""
    if text is None:
        return None
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return None


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    """Yield every function and method below ``tree``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield node


def find_function(tree: ast.AST | None, name: str) -> ast.FunctionDef | None:
    """Return the first function or method of that name."""
    if tree is None:
        return None
    return next((node for node in functions(tree) if node.name == name), None)


def find_class(tree: ast.AST | None, name: str) -> ast.ClassDef | None:
    """Return the first class of that name."""
    if tree is None:
        return None
    return next((node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == name), None)


def terminal_name(node: ast.AST) -> str | None:
    """Return the last part of a name: ``c`` of ``a.b.c``."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def calls(tree: ast.AST | None, name: str) -> Iterator[ast.Call]:
    """Yield the calls of a function by the last part of its name."""
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Call) and terminal_name(node.func) == name:
            yield node


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """Return the value of a keyword argument."""
    return next((item.value for item in call.keywords if item.arg == name), None)


def constants(tree: ast.AST | None) -> Iterator[str]:
    """Yield every string constant below ``tree`` that is not a docstring."""
    if tree is None:
        return
    documentation = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.value


def mentions(tree: ast.AST | None, name: str) -> bool:
    """Whether a name, an attribute, an import or a whole string constant below ``tree`` is ``name``."""
    for node in ast.walk(tree) if tree is not None else ():
        if terminal_name(node) == name:
            return True
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            origin = getattr(node, "module", None) or ""
            if name in (origin, *(alias.name for alias in node.names)):
                return True
    return name in constants(tree)


def assigned(tree: ast.AST | None, name: str) -> ast.expr | None:
    """Return what a module or a class assigns to a name directly in its body."""
    for node in getattr(tree, "body", ()):
        if isinstance(node, ast.Assign) and any(terminal_name(target) == name for target in node.targets):
            return node.value
        if isinstance(node, ast.AnnAssign) and terminal_name(node.target) == name:
            return node.value
    return None


def environment_defaults(tree: ast.Module | None, prefix: str) -> dict[str, Any]:
    """Return the variables of ``vllm/envs.py`` that start with ``prefix``, each with its value when it is not set."""
    found: dict[str, Any] = {}
    for node in ast.walk(tree) if tree is not None else ():
        if not isinstance(node, ast.Dict):
            continue
        for key, value in zip(node.keys, node.values):
            if isinstance(key, ast.Constant) and str(key.value).startswith(prefix):
                found.setdefault(str(key.value), when_unset(value))
    return found


def when_unset(node: ast.expr) -> Any:
    """Evaluate an expression of ``envs.py`` as if no environment variable were set; UNKNOWN where it is unfamiliar."""
    if isinstance(node, ast.Lambda):
        return when_unset(node.body)
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.IfExp):
        return _conditional(node)
    if isinstance(node, ast.Call):
        return _called(node)
    return UNKNOWN


def _conditional(node: ast.IfExp) -> Any:
    """``a if "NAME" in os.environ else b`` is b."""
    test = node.test
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and terminal_name(test.comparators[0]) == "environ":
        if isinstance(test.ops[0], ast.In):
            return when_unset(node.orelse)
        if isinstance(test.ops[0], ast.NotIn):
            return when_unset(node.body)
    return UNKNOWN


def _called(node: ast.Call) -> Any:
    name = terminal_name(node.func)
    if name in ("getenv", "get"):
        return when_unset(node.args[1]) if len(node.args) > 1 else None
    if name not in ("int", "float", "str", "bool", "maybe_convert_int", "maybe_convert_bool") or len(node.args) != 1:
        return UNKNOWN
    value = when_unset(node.args[0])
    if value is UNKNOWN or value is None:
        return value
    convert: dict[str, Callable[[Any], Any]] = {
        "float": float,
        "str": str,
        "bool": bool,
        "maybe_convert_bool": lambda text: bool(int(text)),
    }
    try:
        return convert.get(name, int)(value)
    except (TypeError, ValueError):
        return UNKNOWN
