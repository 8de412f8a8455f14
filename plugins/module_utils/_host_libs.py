# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""The C and C++ run-time libraries of a host: which symbol versions they offer, read from the files themselves."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from typing import Iterator

from ansible_collections.cpufleet.vllm.plugins.module_utils._elf import Elf, numbered, read_elf
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._host_read import Root
from ansible_collections.cpufleet.vllm.plugins.module_utils._io import read_bytes

__all__ = ("LibraryInfo", "find_allocator", "read_libraries")

# Debian and its kin, then the rpm family, then those that have one folder; a merged /usr first.
FOLDERS = (
    "/usr/lib/{arch}-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/lib/{arch}-linux-gnu",
    "/lib64",
    "/lib",
)
ALLOCATOR = "libtcmalloc_minimal.so.4"


@dataclass(frozen=True)
class LibraryInfo:
    """``kind`` is glibc, musl or unknown; each version is the newest that the library defines, "" where unknown."""

    kind: str
    version: str
    glibcxx: str
    cxxabi: str


def read_libraries(root: Root, arch: str) -> LibraryInfo:
    """Return what the host's 64-bit libraries offer; nothing is run, so that it works under another root too."""
    libc, libstdcxx = find(root, arch, "libc.so.6"), find(root, arch, "libstdc++.so.6")
    version = newest(libc, "GLIBC")
    musl = not version and bool(root.glob(f"/lib/ld-musl-{arch}.so.1") or root.glob(f"/usr/lib/ld-musl-{arch}.so.1"))
    return LibraryInfo(
        kind="glibc" if version else "musl" if musl else "unknown",
        version=version,
        glibcxx=newest(libstdcxx, "GLIBCXX"),
        cxxabi=newest(libstdcxx, "CXXABI"),
    )


def find_allocator(root: Root, arch: str) -> str:
    """Return the path on the host of the memory allocator that vLLM is faster with, empty where it is not there."""
    return next((path for path, _library in find_all(root, arch, ALLOCATOR)), "")


def find(root: Root, arch: str, name: str) -> Elf | None:
    """Return the library ``name`` of the host's own architecture."""
    return next((library for _path, library in find_all(root, arch, name)), None)


def find_all(root: Root, arch: str, name: str) -> Iterator[tuple[str, Elf]]:
    """Yield path on the host and content of each library ``name`` of the host's own architecture."""
    for folder in FOLDERS:
        there = f"{folder.format(arch=arch)}/{name}"
        path = inside(root, there)
        try:
            found = read_elf(io.BytesIO(read_bytes(path)), path)
        except CpufleetError:  # not there, or the 32-bit one
            continue
        if found.machine == arch:
            yield there, found


def inside(root: Root, path: str) -> str:
    """Return the real place of ``path`` with every link followed inside the root, as the host itself would do."""
    place, parts, links = "", path.strip("/").split("/"), 0
    while parts:
        part = parts.pop(0)
        step = os.path.normpath(f"{place}/{part}")
        real = step if root.live else root.path + step
        if os.path.islink(real) and links < 40:  # noqa: PLR2004 - the kernel's own bound
            links += 1
            target = os.readlink(real)
            place = "" if target.startswith("/") else place
            parts = target.strip("/").split("/") + parts
        else:
            place = "" if step == "/" else step
    return place if root.live else root.path + place


def newest(library: Elf | None, prefix: str) -> str:
    """Return the highest version of ``prefix`` that the library defines."""
    return ".".join(map(str, numbered(library.defines, prefix))) if library else ""
