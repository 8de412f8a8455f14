# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Named, reversible edits of source files: bytes in, bytes out, nothing is read or written here.

An edit finds its anchor (a few whole lines that must stand in the file exactly once) and puts a block there, between
two marker comments. Lines that the block replaces are kept in it as comments, so that the block alone says how to get
the original back, byte for byte, whatever release or version of this collection made it. The begin marker carries a
digest of the block: a block that somebody changed by hand is recognised and left alone.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    #: A path below the root of a tree to the bytes of that file; None where there is no such file.
    Reader = Callable[[str], "bytes | None"]

__all__ = (
    "Edit",
    "FileChange",
    "Outcome",
    "apply_edit",
    "has_edit",
    "plan_absent",
    "plan_present",
    "remove",
    "revert_edit",
    "state_of",
    "unified_diff",
)

APPLIED = "applied"
APPLICABLE = "applicable"
FOREIGN = "foreign"

BEGIN = re.compile(rb"^(#|//) >>> cpufleet\.vllm (\S+) ([0-9a-f]{12})\r?\n$")
END = re.compile(rb"^(#|//) <<< cpufleet\.vllm (\S+)\r?\n$")
RESTORE = "Restore the file from the release's source distribution and run again"
NEWER = "Run the module under a Python that the release supports (ansible_python_interpreter), or restore the file"


@dataclass(frozen=True)
class Edit:
    """One edit of one file. ``lines`` take the place of ``anchor[start:stop]``; an empty slice inserts."""

    name: str
    path: str
    anchor: tuple[str, ...]
    lines: tuple[str, ...]
    start: int = 0
    stop: int = 0
    comment: str = "#"


@dataclass(frozen=True)
class FileChange:
    """What a file holds now and what it is to hold."""

    path: str
    before: bytes
    after: bytes


@dataclass(frozen=True)
class Outcome:
    """What a module did or would do: ``status`` is ``applied``, ``removed`` or ``not_needed``."""

    status: str
    reason: str
    generation: str
    files: tuple[str, ...] = ()
    changes: tuple[FileChange, ...] = ()


def state_of(content: bytes, edit: Edit) -> str:
    """Return ``applied``, ``applicable`` (also where an older form of the edit stands), or ``foreign``."""
    try:
        return APPLIED if apply_edit(content, edit) == content else APPLICABLE
    except CpufleetError:
        return FOREIGN


def has_edit(content: bytes, name: str) -> bool:
    """Tell whether a block of the edit ``name`` begins in ``content``."""
    return bool(_begins(_split(content), name))


def apply_edit(content: bytes, edit: Edit) -> bytes:
    """Return ``content`` with ``edit`` in place; an older form of the same edit is replaced."""
    lines = _split(revert_edit(content, edit.name, edit.path))
    at = _find(lines, edit)
    ending = b"\r\n" if lines[at].endswith(b"\r\n") else b"\n"
    first, last = at + edit.start, at + edit.stop
    mark = edit.comment.encode()
    body = [mark + b"- " + line for line in lines[first:last]]
    body += [line.encode() + ending for line in edit.lines]
    begin = b"%s >>> cpufleet.vllm %s %s%s" % (mark, edit.name.encode(), _digest(body), ending)
    end = b"%s <<< cpufleet.vllm %s%s" % (mark, edit.name.encode(), ending)
    return b"".join([*lines[:first], begin, *body, end, *lines[last:]])


def revert_edit(content: bytes, name: str, path: str) -> bytes:
    """Return ``content`` as it was before the edit ``name``; unchanged where that edit is not in place."""
    lines = _split(content)
    begins = _begins(lines, name)
    if not begins:
        return content
    first = begins[0]
    last = next((at for at in range(first + 1, len(lines)) if BEGIN.match(lines[at]) or END.match(lines[at])), -1)
    begin, end = BEGIN.match(lines[first]), END.match(lines[last])
    body = lines[first + 1 : last]
    if len(begins) > 1 or not begin or not end or end[2] != begin[2] or _digest(body) != begin[3]:
        raise CpufleetError(
            f"Cannot revert the edit {name} in {path}: what stands between its markers was changed by hand",
            RESTORE,
            path=path,
            edit=name,
            anchor=lines[first].decode("utf-8", "replace").strip(),
        )
    kept = begin[1] + b"- "
    original = [line[len(kept) :] for line in body if line.startswith(kept)]
    return b"".join([*lines[:first], *original, *lines[last + 1 :]])


def plan_present(reader: Reader, edits: Iterable[Edit]) -> tuple[FileChange, ...]:
    """Return the changes that put all ``edits`` in place; raise, with nothing planned, when one does not fit."""
    wanted = tuple(edits)
    files = _load(reader, [edit.path for edit in wanted])
    after = dict(files)
    for edit in wanted:
        after[edit.path] = apply_edit(after[edit.path], edit)
    return _changes(files, after)


def plan_absent(reader: Reader, edits: Iterable[tuple[str, str]]) -> tuple[FileChange, ...]:
    """Return the changes that take the edits, given as (path, name), out again. Missing files are passed over."""
    wanted = [(path, name) for path, name in edits if reader(path) is not None]
    files = _load(reader, [path for path, _name in wanted])
    after = dict(files)
    for path, name in wanted:
        after[path] = revert_edit(after[path], name, path)
    return _changes(files, after)


def remove(reader: Reader, edits: Iterable[tuple[str, str]], generation: str) -> Outcome:
    """Return the outcome of taking ``edits``, given as (path, name), out of a tree."""
    changes = plan_absent(reader, edits)
    reason = "The edit was taken out; the files are as they were" if changes else "The edit is not in this tree"
    return Outcome("removed", reason, generation, tuple(change.path for change in changes), changes)


def unified_diff(changes: Sequence[FileChange]) -> str:
    """Return the changes as one unified diff; bytes that are not UTF-8 are shown as escapes."""
    parts: list[str] = []
    for change in changes:
        before, after = (
            content.decode("utf-8", "backslashreplace").splitlines(keepends=True)
            for content in (change.before, change.after)
        )
        parts += difflib.unified_diff(before, after, f"a/{change.path}", f"b/{change.path}")
    return "".join(part if part.endswith("\n") else part + "\n" for part in parts)


def _split(content: bytes) -> list[bytes]:
    # Not splitlines(): that also cuts at a lone carriage return, which is no line end to Python's own reader of bytes.
    return re.findall(rb"[^\n]*\n|[^\n]+\Z", content)


def _begins(lines: Sequence[bytes], name: str) -> list[int]:
    wanted = name.encode()
    found = ((at, BEGIN.match(line)) for at, line in enumerate(lines) if b">>> cpufleet.vllm" in line)
    return [at for at, match in found if match and match[2] == wanted]


def _digest(body: Iterable[bytes]) -> bytes:
    """Digest of a block, the same for CRLF and LF, so that converting a whole file does not lock the edit in."""
    plain = b"".join(body).replace(b"\r\n", b"\n")
    return hashlib.sha256(plain).hexdigest()[:12].encode()


def _find(lines: Sequence[bytes], edit: Edit) -> int:
    anchor = [line.encode() for line in edit.anchor]
    bare = [line.rstrip(b"\r\n") for line in lines]
    size = len(anchor)
    found = [at for at, line in enumerate(bare) if line == anchor[0] and bare[at : at + size] == anchor]
    if len(found) == 1 and lines[found[0] + size - 1].endswith(b"\n"):
        return found[0]
    how = f"stands there {len(found)} times" if len(found) > 1 else "is not there"
    raise CpufleetError(
        f"Cannot apply the edit {edit.name} to {edit.path}: its anchor {edit.anchor[0].strip()!r} {how}, so this is "
        "not a source that the edit knows; nothing was written",
        RESTORE,
        path=edit.path,
        edit=edit.name,
        anchor="\n".join(edit.anchor),
        found=len(found),
    )


def _load(reader: Reader, paths: Iterable[str]) -> dict[str, bytes]:
    files = {}
    for path in dict.fromkeys(paths):
        content = reader(path)
        if content is None:
            raise CpufleetError(
                f"Cannot edit {path}: there is no such file in this tree",
                "Point path at the root of a vLLM source tree or at the vllm folder of an installed package",
                path=path,
            )
        files[path] = content
    return files


def _changes(files: dict[str, bytes], after: dict[str, bytes]) -> tuple[FileChange, ...]:
    changes = tuple(FileChange(path, before, after[path]) for path, before in files.items() if before != after[path])
    for change in changes:
        _check_syntax(change)
    return changes


def _check_syntax(change: FileChange) -> None:
    if not change.path.endswith(".py"):
        return
    for content, what, remedy in (
        (change.before, "it does not parse under the Python that runs this module", NEWER),
        (change.after, "the result would not parse", RESTORE),
    ):
        try:
            _parse(content)
        except (SyntaxError, ValueError) as error:
            raise CpufleetError(
                f"Cannot edit {change.path}: {what} ({error}); nothing was written", remedy, path=change.path
            ) from error


def _parse(content: bytes) -> None:
    try:
        ast.parse(content)
    except (SyntaxError, ValueError):
        # Bytes outside the declared encoding stop the reader before the grammar: look at the grammar alone.
        ast.parse(content.decode("latin-1"))
