# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""One way to read a vLLM source, whatever it comes as: an unpacked tree, a git checkout, an archive or a wheel.

Nothing of the source is run or imported, no archive is unpacked to disk, and no program is started, git included.
"""

from __future__ import annotations

import os
import tarfile
import zipfile
from abc import ABC, abstractmethod

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError

__all__ = ("SourceTree", "open_tree")

# What of an archive is kept in memory: the files that say how vLLM is built and run, and no kernels or media.
KEPT_SUFFIXES = (".py", ".toml", ".txt", ".cmake", ".cfg", "PKG-INFO", "METADATA")
KEPT_FOLDERS = ("csrc/cpu/",)
KEPT_SIZE = 2 << 20


class SourceTree(ABC):
    """A source by the paths of its files, relative to its root and with forward slashes."""

    kind: str
    location: str

    @abstractmethod
    def read(self, path: str) -> bytes | None:
        """Return the bytes of a file, or None where there is no such file."""

    @abstractmethod
    def files(self, folder: str) -> list[str]:
        """Return the paths of the files directly in ``folder`` ("" is the root), sorted."""

    def text(self, path: str) -> str | None:
        """Return a file as text; bytes that are not UTF-8 become replacement marks."""
        content = self.read(path)
        return None if content is None else content.decode("utf-8-sig", "replace").replace("\r\n", "\n")


class FolderTree(SourceTree):
    """A folder: an unpacked source distribution or archive, or a git checkout."""

    def __init__(self, location: str) -> None:
        self.location = location
        self.kind = "git" if os.path.exists(os.path.join(location, ".git")) else "tree"

    def read(self, path: str) -> bytes | None:
        target = os.path.join(self.location, *path.split("/"))
        try:
            with open(target, "rb") as stream:
                return stream.read()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as error:
            raise CpufleetError(
                f"Cannot read {target}: {error.strerror}", "Make the whole tree readable for this user", path=target
            ) from error

    def files(self, folder: str) -> list[str]:
        place = os.path.join(self.location, *folder.split("/")) if folder else self.location
        try:
            with os.scandir(place) as entries:
                names = sorted(entry.name for entry in entries if entry.is_file())
        except OSError:
            return []
        return [f"{folder}/{name}" if folder else name for name in names]


class MemoryTree(SourceTree):
    """An archive whose interesting files were read into memory, without their common first folder."""

    def __init__(self, location: str, kind: str, content: dict[str, bytes]) -> None:
        self.location = location
        self.kind = kind
        self.content = content

    def read(self, path: str) -> bytes | None:
        return self.content.get(path)

    def files(self, folder: str) -> list[str]:
        prefix = f"{folder}/" if folder else ""
        return sorted(name for name in self.content if name.startswith(prefix) and "/" not in name[len(prefix) :])


def open_tree(path: str) -> SourceTree:
    """Return the source at ``path``, by what lies there; raise CpufleetError where it is none."""
    if os.path.isdir(path):
        tree: SourceTree = FolderTree(path)
    elif not os.path.exists(path):
        raise CpufleetError(
            f"Cannot read a vLLM source at {path}: it does not exist",
            "Name an unpacked tree, a git checkout, a source distribution (.tar.gz) or a wheel (.whl)",
            path=path,
        )
    elif zipfile.is_zipfile(path):
        tree = _read_zip(path)
    else:
        tree = _read_tar(path)
    if tree.read("vllm/__init__.py") is None:
        raise CpufleetError(
            f"Cannot read {path} as a vLLM source: it holds no vllm/__init__.py",
            "Name the folder that contains setup.py and the folder vllm, or an archive of it",
            path=path,
        )
    return tree


def _wanted(name: str, size: int) -> bool:
    """Whether a member, named from the root of the source, is worth keeping."""
    return size <= KEPT_SIZE and (name.endswith(KEPT_SUFFIXES) or name.startswith(KEPT_FOLDERS))


def _read_tar(path: str) -> MemoryTree:
    content: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r:*") as archive:
            for member in archive:
                name = member.name.removeprefix("./").partition("/")[2]
                if member.isfile() and _wanted(name, member.size):
                    stream = archive.extractfile(member)
                    content[name] = stream.read() if stream else b""
    except (tarfile.TarError, OSError, EOFError) as error:
        raise CpufleetError(
            f"Cannot read {path} as an archive: {error}", "Fetch it again and compare its SHA-256", path=path
        ) from error
    return MemoryTree(path, "sdist" if "PKG-INFO" in content else "archive", content)


def _read_zip(path: str) -> MemoryTree:
    content: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            wheel = any(name.endswith(".dist-info/METADATA") for name in archive.namelist())
            for member in archive.infolist():
                name = member.filename if wheel else member.filename.partition("/")[2]
                if not member.is_dir() and (_wanted(name, member.file_size) or name.endswith(".dist-info/RECORD")):
                    content[name] = archive.read(member)
    except (zipfile.BadZipFile, OSError, EOFError) as error:
        raise CpufleetError(
            f"Cannot read {path} as an archive: {error}", "Fetch it again and compare its SHA-256", path=path
        ) from error
    return MemoryTree(path, "wheel" if wheel else ("sdist" if "PKG-INFO" in content else "archive"), content)
