# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""What a wheel demands of a host, read from its name, its metadata and the ELF libraries inside it."""

from __future__ import annotations

import email.parser
import os
import re
import zipfile
import zlib
from dataclasses import dataclass
from typing import IO, Any

from ansible_collections.cpufleet.vllm.plugins.module_utils._elf import MAGIC, Elf, numbered, read_elf
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError

__all__ = ("WheelName", "metadata", "parse_wheel_name", "tag_pythons", "wheel_requirements")

# The kernel libraries of vLLM: from 0.17 on their set says for which x86 classes the wheel is.
KERNELS = re.compile(r"^vllm/(_C\w*)\.(?:[^/]*\.)?so$")
# Nothing that holds code; what a wheel has thousands of.
PLAIN = (".py", ".pyi", ".txt", ".json", ".md", ".h", ".cuh", ".cu", ".yaml", ".yml", ".jinja", ".html")
# What the loader asks of libc in place of a symbol, by the release of libc that first knew it.
MARKS = {"GLIBC_ABI_DT_RELR": "GLIBC_2.36"}
LIBSTDCXX = "libstdc++.so.6"


@dataclass(frozen=True)
class WheelName:
    """The parts of a wheel's file name (PEP 427); each tag may be several, joined by dots."""

    name: str
    version: str
    python: str
    abi: str
    platform: str

    @property
    def platforms(self) -> tuple[str, ...]:
        """Return each platform of the wheel."""
        return tuple(self.platform.split("."))


def parse_wheel_name(name: str) -> WheelName:
    """Return the parts of the file name ``name``; raise CpufleetError where it is not that of a wheel."""
    parts = name[: -len(".whl")].split("-")
    if not name.endswith(".whl") or len(parts) not in (5, 6):  # name, version, perhaps a build, three tags
        raise CpufleetError(
            f"{name} is not the name of a wheel", "Name a file such as vllm-0.6.5-cp311-cp311-linux_x86_64.whl"
        )
    return WheelName(parts[0], parts[1], *parts[-3:])


def tag_pythons(name: str) -> list[str]:
    """Return the Python versions that the file ``name`` is for, by its tags; empty where it is for all from one on."""
    try:
        parts = parse_wheel_name(name)
    except CpufleetError:
        return []
    exact = re.findall(r"cp(\d)(\d+)", parts.python) if "abi3" not in parts.abi.split(".") else []
    return [f"{major}.{minor}" for major, minor in exact]


def wheel_requirements(name: str, source: str | IO[bytes]) -> dict[str, Any]:
    """Return what the wheel ``name``, a path or an open file, asks of a host.

    ``version``, ``python_tag`` and ``platform`` stand in its name; ``python_requires`` in its metadata; ``machine``,
    ``needed`` (libraries that it does not bring) and the floors ``glibc``, ``glibcxx`` and ``cxxabi`` in the libraries
    inside; ``libraries`` are vLLM's own. What a wheel does not ask for is left out.
    """
    parts = parse_wheel_name(name)
    try:
        with zipfile.ZipFile(source) as archive:
            python = metadata(archive, name).get("Requires-Python", "")
            found = libraries(archive)
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError) as error:
        raise CpufleetError(f"Cannot read the wheel {name}: {error}", "Fetch or build it again") from error
    asked: dict[str, Any] = {"python_requires": str(python), **floors(list(found.values()))}
    brought = {os.path.basename(path) for path in found}
    asked["needed"] = [library for library in asked["needed"] if library not in brought]
    asked["libraries"] = sorted(match[1] for match in map(KERNELS.match, found) if match)
    named = {"version": parts.version, "python_tag": f"{parts.python}-{parts.abi}", "platform": parts.platform}
    return {**named, **{key: value for key, value in asked.items() if value}}


def metadata(archive: zipfile.ZipFile, name: str) -> email.message.Message:
    """Return the METADATA of the wheel ``name``."""
    paths = [path for path in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", path)]
    if len(paths) != 1:
        raise CpufleetError(f"{name} holds {len(paths)} METADATA files instead of one", "It is no wheel; use another")
    return email.parser.Parser().parsestr(archive.read(paths[0]).decode("utf-8", "replace"), headersonly=True)


def libraries(archive: zipfile.ZipFile) -> dict[str, Elf]:
    """Return the ELF files of the wheel by their path in it, each read as a stream."""
    found = {}
    for member in archive.infolist():
        if member.is_dir() or member.file_size < len(MAGIC) or member.filename.endswith(PLAIN):
            continue
        with archive.open(member) as stream:
            if stream.read(len(MAGIC)) == MAGIC:
                found[member.filename] = read_elf(stream, member.filename)
    return found


def floors(found: list[Elf]) -> dict[str, Any]:
    """Return machine, libraries from outside and version floors of a wheel's libraries."""
    asked = {(library, MARKS.get(version, version)) for elf in found for library, version in elf.versions}
    # A C++ library that the wheel brings along has another name; what is asked of that one is no demand on the host.
    of_system = tuple(version for library, version in asked if library == LIBSTDCXX)
    levels = {
        "glibc": numbered(tuple(version for _library, version in asked), "GLIBC"),
        "glibcxx": numbered(of_system, "GLIBCXX"),
        "cxxabi": numbered(of_system, "CXXABI"),
    }
    return {
        "machine": " and ".join(sorted({elf.machine for elf in found})),
        "needed": sorted({name for elf in found for name in elf.needed}),
        **{key: ".".join(map(str, numbers)) for key, numbers in levels.items()},
    }
