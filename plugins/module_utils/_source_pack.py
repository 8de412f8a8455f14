# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Any archive of a tree in the shape of a source distribution.

What a code host packs of vLLM lacks two files that setuptools goes by where there is no repository, and which are
added: PKG-INFO, from which setuptools-scm takes the version, and SOURCES.txt, by which data files come into the wheel.
"""

from __future__ import annotations

import contextlib
import datetime
import gzip
import io
import os
import posixpath
import re
import tarfile
import zipfile
import zlib
from dataclasses import dataclass
from typing import Iterator

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError

__all__ = ("LLAMA_CPP", "VLLM", "Packed", "Tree", "pack_source", "read_packed")

# A day after the oldest date that a wheel, which is a zip of local times, can hold.
DATE = 315532800 + 86400
LINK_TYPE = 0o120000
COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class Tree:
    """A kind of source: how it is called, the files that its top folder has, and whether setuptools builds it."""

    title: str
    name: str
    marks: tuple[str, str]
    setuptools: bool


VLLM = Tree("vLLM", "vllm", ("setup.py", "vllm/__init__.py"), setuptools=True)
LLAMA_CPP = Tree("llama.cpp", "llama.cpp", ("CMakeLists.txt", "tools/server/CMakeLists.txt"), setuptools=False)


@dataclass(frozen=True)
class Member:
    """One file of an archive, by its whole name there; ``link`` is where a symbolic link leads."""

    name: str
    mode: int
    link: str
    content: bytes


@dataclass(frozen=True)
class Packed:
    """What an archive holds: the folder of the tree in it, whether it is a source distribution, commit and date."""

    top: str
    distribution: bool
    commit: str
    date: str

    @property
    def plain(self) -> bool:
        """Whether it can be unpacked as it is: the tree is in the one top folder."""
        return self.distribution and self.top.count("/") == 1


def read_packed(path: str, tree: Tree = VLLM) -> Packed:
    """Return what the archive at ``path`` holds; raise CpufleetError where that is no such ``tree``."""
    names, newest = set(), 0.0
    with opened(path) as archive:
        for name, date in listed(archive):
            names.add(name)
            newest = max(newest, date)
        comment = archive.pax_headers.get("comment", "") if isinstance(archive, tarfile.TarFile) else ""
    first, second = tree.marks
    tops = [name[: -len(first)] for name in names if posixpath.basename(name) == first]
    tops = [top for top in tops if f"{top}{second}" in names]
    if not tops:
        raise CpufleetError(
            f"Cannot take {path} as the source of {tree.title}: it has no folder with {first} and {second}",
            "Use an archive of the whole tree",
            path=path,
        )
    top = min(tops, key=lambda folder: (folder.count("/"), folder))
    stamp = datetime.datetime.fromtimestamp(newest, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    zipped = isinstance(archive, zipfile.ZipFile)
    return Packed(top, f"{top}PKG-INFO" in names and not zipped, comment if COMMIT.fullmatch(comment) else "", stamp)


def pack_source(path: str, packed: Packed, version: str, target: str, tree: Tree = VLLM) -> None:
    """Write the tree in the archive at ``path`` to ``target`` (.tar.gz); the same input gives the same bytes."""
    top, partial = f"{tree.name}-{version}/", target + ".partial"
    try:
        with contextlib.ExitStack() as stack:
            raw = stack.enter_context(open(partial, "wb"))
            stream = stack.enter_context(gzip.GzipFile("", "wb", 6, raw, mtime=0))
            out = stack.enter_context(tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT))
            archive = opened(path)
            stack.callback(archive.close)
            names: list[str] = []
            for member in members(archive, path):
                if member.name.startswith(packed.top):
                    names.append(member.name[len(packed.top) :])
                    add(out, top + names[-1], member)
            for name, text in (missing_files(names, version) if tree.setuptools else {}).items():
                add(out, top + name, Member(name, 0o644, "", text.encode("utf-8", "surrogateescape")))
        os.replace(partial, target)
    except OSError as error:
        raise CpufleetError(
            f"Cannot write {target}: {error.strerror}", "Free space there, or set plan_cache to another folder"
        ) from error
    finally:
        if os.path.exists(partial):
            os.unlink(partial)


def missing_files(names: list[str], version: str) -> dict[str, str]:
    """Return the files that make a tree a source distribution, as far as it does not have them."""
    added = {
        "PKG-INFO": f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n",
        "vllm.egg-info/SOURCES.txt": "".join(f"{name}\n" for name in sorted(names)),
    }
    return {name: text for name, text in added.items() if name not in names}


def add(out: tarfile.TarFile, name: str, member: Member) -> None:
    """Write one member without what differs from machine to machine."""
    entry = tarfile.TarInfo(name)
    entry.mtime, entry.mode = DATE, 0o755 if member.mode & 0o111 else 0o644
    if member.link:
        entry.type, entry.linkname = tarfile.SYMTYPE, member.link
        out.addfile(entry)
    else:
        entry.size = len(member.content)
        out.addfile(entry, io.BytesIO(member.content))


def opened(path: str) -> tarfile.TarFile | zipfile.ZipFile:
    """Open an archive of either kind."""
    try:
        return zipfile.ZipFile(path) if zipfile.is_zipfile(path) else tarfile.open(path)
    except (OSError, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile) as error:
        raise unreadable(path, error) from error


def listed(archive: tarfile.TarFile | zipfile.ZipFile) -> Iterator[tuple[str, float]]:
    """Yield names and dates of the files."""
    try:
        if isinstance(archive, zipfile.ZipFile):
            for info in archive.infolist():
                if not info.is_dir():
                    yield tidy(info.filename), zip_date(info)
        else:
            for entry in archive:
                if not entry.isdir():
                    yield tidy(entry.name), float(entry.mtime)
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise unreadable(
            str(archive.name if isinstance(archive, tarfile.TarFile) else archive.filename), error
        ) from error


def members(archive: tarfile.TarFile | zipfile.ZipFile, path: str) -> Iterator[Member]:
    """Yield the files with their contents, in the archive's own order."""
    try:
        if isinstance(archive, zipfile.ZipFile):
            for info in archive.infolist():
                if not info.is_dir():
                    mode, content = info.external_attr >> 16, archive.read(info)
                    link = content.decode() if mode & 0o170000 == LINK_TYPE else ""
                    yield Member(tidy(info.filename), mode, link, content)
        else:
            for entry in archive:
                stream = archive.extractfile(entry) if entry.isfile() or entry.islnk() else None
                if stream or entry.issym():
                    link, content = ("", stream.read()) if stream else (entry.linkname, b"")
                    yield Member(tidy(entry.name), entry.mode, link, content)
    except (EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile) as error:
        raise unreadable(path, error) from error


def tidy(name: str) -> str:
    """Return a member's name without a leading ``./``."""
    return name[2:] if name.startswith("./") else name


def zip_date(info: zipfile.ZipInfo) -> float:
    """Return the date of a member, taken as UTC: a zip names no zone."""
    return datetime.datetime(*info.date_time, tzinfo=datetime.timezone.utc).timestamp()


def unreadable(path: str, error: Exception) -> CpufleetError:
    """Return the failure to read an archive."""
    return CpufleetError(
        f"Cannot read {path} as an archive (.tar.gz or .zip): {error}", "Fetch or copy it again", path=path
    )
