# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Requirements files, pyproject.toml and metadata of a vLLM source, as lists of plain requirement lines."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any, Iterable

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._source_tree import SourceTree

__all__ = ("Requirement", "applies", "pyproject", "read_requirements", "split_requirement", "tidy")

NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(\[[^\]]*\])?\s*(.*)", re.S)


@dataclass(frozen=True)
class Requirement:
    """One requirement line and where it stands."""

    text: str
    file: str
    line: int

    @property
    def name(self) -> str:
        """The distribution's name as package indexes compare it."""
        return split_requirement(self.text)[0]


def tidy(line: str) -> str:
    """Return a requirement in one spelling: no blanks around operators, one before and after ``;`` and ``@``."""
    head, mark, marker = line.partition(";")
    if " @ " in head or re.match(r"\s*[\w.-]+\s*@", head):
        name, url = head.split("@", 1)
        head = f"{name.strip()} @ {url.strip()}"
    else:
        head = re.sub(r"\s*([,<>=!~]+)\s*", r"\1", head.strip())
    return f"{head} ; {' '.join(marker.split())}" if mark else head


def split_requirement(text: str) -> tuple[str, str, str]:
    """Return name, version specifier or address, and marker of a requirement."""
    head, _mark, marker = text.partition(" ; ") if " ; " in text else text.partition(";")
    match = NAME.match(head)
    if match is None:
        return "", head.strip(), marker.strip()
    return re.sub(r"[-_.]+", "-", match[1]).lower(), match[3].strip(), marker.strip()


def read_requirements(tree: SourceTree, path: str) -> tuple[list[Requirement], list[str], list[str]]:
    """Return the requirements of a file with the files it includes, the option lines, and the files read."""
    found: list[Requirement] = []
    options: list[str] = []
    read: list[str] = []
    _collect(tree, path, found, options, read)
    return found, options, read


def _collect(tree: SourceTree, path: str, found: list[Requirement], options: list[str], read: list[str]) -> None:
    text = tree.text(path)
    if text is None or path in read:
        return
    read.append(path)
    for number, line in enumerate(text.splitlines(), 1):
        content = re.sub(r"(^|\s)#.*", "", line).strip()
        include = re.fullmatch(r"(?:-r|--requirement)[\s=]+(\S+)", content)
        if include:
            folder = path.rpartition("/")[0]
            _collect(tree, _join(folder, include[1]), found, options, read)
        elif content.startswith("-"):
            options.append(content)
        elif content:
            found.append(Requirement(tidy(content), path, number))


def _join(folder: str, name: str) -> str:
    parts: list[str] = folder.split("/") if folder else []
    for part in name.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part not in (".", ""):
            parts.append(part)
    return "/".join(parts)


def applies(marker: str, machine: str, python: str = "3.12") -> bool:
    """Whether an environment marker holds on Linux with this machine type. Unfamiliar markers hold."""
    if not marker:
        return True
    values = {
        "platform_machine": machine,
        "platform_system": "Linux",
        "sys_platform": "linux",
        "os_name": "posix",
        "python_version": python,
        "python_full_version": python + ".0",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "extra": "",
    }
    try:
        return bool(_judge(ast.parse(marker.strip(), mode="eval").body, values))
    except (SyntaxError, KeyError, ValueError, TypeError):
        return True


def _judge(node: ast.expr, values: dict[str, str]) -> bool:
    if isinstance(node, ast.BoolOp):
        parts = (_judge(part, values) for part in node.values)
        return all(parts) if isinstance(node.op, ast.And) else any(parts)
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        raise ValueError(ast.dump(node))
    left, right = _side(node.left, values), _side(node.comparators[0], values)
    versions = any(isinstance(side, ast.Name) and "version" in side.id for side in (node.left, node.comparators[0]))
    a, b = (_numbers(left), _numbers(right)) if versions else (left, right)
    operator = type(node.ops[0])
    if operator is ast.In:
        return left in right
    if operator is ast.NotIn:
        return left not in right
    table = {ast.Eq: a == b, ast.NotEq: a != b, ast.Lt: a < b, ast.LtE: a <= b, ast.Gt: a > b, ast.GtE: a >= b}
    return bool(table[operator])


def _side(node: ast.expr, values: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return values[node.id]
    if isinstance(node, ast.Constant):
        return str(node.value)
    raise ValueError(ast.dump(node))


def _numbers(text: str) -> Any:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def pyproject(tree: SourceTree) -> dict[str, Any]:
    """Return pyproject.toml as a dictionary, empty where the tree has none."""
    text = tree.text("pyproject.toml")
    if text is None:
        return {}
    try:
        import tomllib as toml  # noqa: PLC0415 - the fallback decides which of the two there is
    except ImportError:
        try:
            import tomli as toml  # type: ignore[no-redef] # noqa: PLC0415
        except ImportError as error:
            raise CpufleetError(
                "Cannot read pyproject.toml: this Python has no TOML reader",
                "Run on Python 3.11 or newer, or install tomli for this Python",
            ) from error
    try:
        return dict(toml.loads(text))
    except toml.TOMLDecodeError as error:
        raise CpufleetError(
            f"Cannot read pyproject.toml of {tree.location}: {error}", "Restore the file", path="pyproject.toml"
        ) from error


def pin_of(requirements: Iterable[Requirement], name: str, machine: str) -> Requirement | None:
    """Return the requirement of that name which applies on a machine type."""
    for requirement in requirements:
        found, _specifier, marker = split_requirement(requirement.text)
        if found == name and applies(marker, machine):
            return requirement
    return None
