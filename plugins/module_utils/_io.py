# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""The one reader and writer: every byte that a module takes from or puts on a disk passes here."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from typing import TYPE_CHECKING, Any

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = (
    "backup_file",
    "file_size",
    "folder_contents",
    "git_sha1_file",
    "make_temporary_folder",
    "read_bytes",
    "read_json",
    "read_range",
    "read_text",
    "sha256_bytes",
    "sha256_file",
    "write_all",
    "write_atomic",
    "write_json",
)

CHUNK = 1 << 20


def read_bytes(path: str) -> bytes:
    """Return the whole content of ``path``; raise CpufleetError when it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except OSError as error:
        raise CpufleetError(
            f"Cannot read {path}: {error.strerror}", "Check that the file exists and may be read", path=path
        ) from error


def read_range(path: str, start: int, length: int) -> bytes:
    """Return up to ``length`` bytes of ``path`` from ``start`` on: for files of which only the head is wanted."""
    try:
        with open(path, "rb") as stream:
            stream.seek(start)
            return stream.read(length)
    except OSError as error:
        raise CpufleetError(
            f"Cannot read {path}: {error.strerror}", "Check that the file exists and may be read", path=path
        ) from error


def file_size(path: str) -> int:
    """Return the size of ``path`` in bytes."""
    try:
        return os.stat(path).st_size
    except OSError as error:
        raise CpufleetError(
            f"Cannot read {path}: {error.strerror}", "Check that the file exists and may be read", path=path
        ) from error


def read_text(path: str, default: str | None = None) -> str:
    """Return ``path`` as text (undecodable bytes kept as surrogates); ``default`` where the file is missing."""
    if default is not None and not os.path.exists(path):
        return default
    return read_bytes(path).decode("utf-8", "surrogateescape")


def read_json(path: str, default: Any = None) -> Any:
    """Return the document in ``path``; ``default`` (when not None) where the file is missing or not JSON."""
    try:
        return json.loads(read_bytes(path))
    except CpufleetError:
        if default is None:
            raise
    except ValueError as error:
        if default is None:
            raise CpufleetError(
                f"Cannot parse {path} as JSON: {error}", "Restore the file or remove it", path=path
            ) from error
    return default


def sha256_bytes(content: bytes) -> str:
    """Return the hex SHA-256 of ``content``."""
    return hashlib.sha256(content).hexdigest()


def sha256_file(path: str) -> str:
    """Return the hex SHA-256 of the file at ``path``, read in 1 MiB pieces."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as stream:
            for chunk in iter(lambda: stream.read(CHUNK), b""):
                digest.update(chunk)
    except OSError as error:
        raise CpufleetError(f"Cannot read {path}: {error.strerror}", path=path) from error
    return digest.hexdigest()


def git_sha1_file(path: str) -> str:
    """Return the hex SHA-1 by which git knows the content of the file at ``path``; for small files."""
    content = read_bytes(path)
    # A name, not a seal: what is kept gets a SHA-256 beside it.
    digest = hashlib.new("sha1", b"blob %d\0" % len(content), usedforsecurity=False)
    digest.update(content)
    return digest.hexdigest()


def write_atomic(path: str, content: bytes, mode: int | None = None) -> None:
    """Put ``content`` in ``path`` so that a reader sees the old bytes or the new ones, never a mixture.

    The bytes reach the disk before the rename. Mode and owner of an existing file are kept unless ``mode`` is given;
    a symbolic link is followed, so that the link stays a link. Raises CpufleetError; the original is then untouched.
    """
    target = os.path.realpath(path)
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(prefix=".cpufleet-", dir=os.path.dirname(target))
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        _copy_attributes(target, temporary, mode)
        os.replace(temporary, target)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise CpufleetError(
            f"Cannot write {path}: {error.strerror}; the original is untouched",
            "Check free space and permissions of the folder",
            path=path,
        ) from error
    _sync_folder(os.path.dirname(target))


def write_all(contents: Mapping[str, bytes]) -> None:
    """Put each content in its existing file, all of them or none: a failure puts back what was already written."""
    before = {path: read_bytes(path) for path in contents}
    written: list[str] = []
    try:
        for path, content in contents.items():
            write_atomic(path, content)
            written.append(path)
    except CpufleetError:
        for path in reversed(written):
            write_atomic(path, before[path])
        raise


def write_json(path: str, document: Any, mode: int | None = None) -> None:
    """Write ``document`` as indented, key-sorted JSON with a final newline, atomically."""
    text = json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False)
    write_atomic(path, (text + "\n").encode("utf-8"), mode)


def make_temporary_folder() -> None:
    """Make the folder that TMPDIR names: programs that are started with it use it and do not make it."""
    folder = os.environ.get("TMPDIR")
    try:
        if folder:
            os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as error:
        raise CpufleetError(f"Cannot make {folder}: {error.strerror}", "Set TMPDIR to another folder") from error


def backup_file(path: str, suffix: str) -> str:
    """Copy ``path`` with its attributes to ``path + suffix`` and return that name."""
    backup = path + suffix
    try:
        shutil.copy2(path, backup)
    except OSError as error:
        raise CpufleetError(f"Cannot back up {path} to {backup}: {error.strerror}", path=path) from error
    return backup


def _copy_attributes(target: str, temporary: str, mode: int | None) -> None:
    if os.path.exists(target):
        status = os.stat(target)
        os.chmod(temporary, status.st_mode & 0o7777 if mode is None else mode)
        if os.geteuid() == 0:
            os.chown(temporary, status.st_uid, status.st_gid)
    else:
        os.chmod(temporary, 0o644 if mode is None else mode)


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # some network filesystems refuse fsync on a folder
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def folder_contents(folder: str) -> list[tuple[str, str]]:
    """Return (relative path, SHA-256) of every file, version control apart."""
    files = []
    for base, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != ".git"]
        for name in names:
            full = os.path.join(base, name)
            if os.path.isfile(full):
                files.append((os.path.relpath(full, folder), sha256_file(full)))
    return files
