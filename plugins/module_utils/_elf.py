# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""What a 64-bit ELF library asks of the system and offers to others, read from what the loader itself reads."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import IO, Iterator

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError

__all__ = ("MAGIC", "Elf", "numbered", "read_elf")

MAGIC = b"\x7fELF"
MACHINES = {62: "x86_64", 183: "aarch64", 21: "ppc64le", 243: "riscv64", 258: "loongarch64", 22: "s390x"}
PT_LOAD, PT_DYNAMIC = 1, 2
DT_NEEDED, DT_STRTAB, DT_STRSZ = 1, 5, 10
DT_VERDEF, DT_VERDEFNUM, DT_VERNEED, DT_VERNEEDNUM = 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
WEAK = 2
# Far above what any library has: a bound for what a broken or hostile file can make us read.
TABLE, STRINGS, HEADERS = 1 << 20, 1 << 28, 1 << 10


@dataclass(frozen=True)
class Elf:
    """``versions`` are (library, symbol version) without which the loader refuses; ``defines`` what others may ask."""

    machine: str
    needed: tuple[str, ...]
    versions: tuple[tuple[str, str], ...]
    defines: tuple[str, ...]


@dataclass(frozen=True)
class Segment:
    """A piece of the file and the address that it is loaded at."""

    kind: int
    offset: int
    address: int
    size: int


def numbered(names: tuple[str, ...], prefix: str) -> tuple[int, ...]:
    """Return the highest of the versions ``<prefix>_1.2.3`` in ``names`` as numbers; empty where there is none."""
    found = [name[len(prefix) + 1 :] for name in names if name.startswith(prefix + "_")]
    numbers = [tuple(map(int, text.split("."))) for text in found if text.replace(".", "").isdecimal()]
    return max(numbers, default=())


def read_elf(stream: IO[bytes], name: str) -> Elf:
    """Read the seekable ``stream``; ``name`` stands in the error where it is no 64-bit little-endian library.

    At most two passes over the stream: headers, the dynamic section far behind, then the tables near the beginning.
    """
    try:
        machine, segments = read_headers(stream, name)
        return read_dynamic(stream, machine, segments)
    except (struct.error, IndexError, ValueError) as error:
        raise CpufleetError(
            f"Cannot read {name} as an ELF library: it is cut or damaged", "Fetch or build it again", path=name
        ) from error


def read_headers(stream: IO[bytes], name: str) -> tuple[str, list[Segment]]:
    """Return the machine and the segments."""
    head = take(stream, 0, 64)
    if head[:4] != MAGIC:
        raise CpufleetError(f"{name} is no ELF library", "Fetch or build it again", path=name)
    if head[4] != 2 or head[5] != 1:  # noqa: PLR2004 - ELFCLASS64, ELFDATA2LSB
        kind = "a 32-bit" if head[4] != 2 else "a big-endian"  # noqa: PLR2004
        raise CpufleetError(
            f"{name} is {kind} library; vLLM runs on 64-bit little-endian systems", "Use another one", path=name
        )
    (machine,), (table,) = struct.unpack_from("<H", head, 18), struct.unpack_from("<Q", head, 32)
    entry, count = struct.unpack_from("<HH", head, 54)
    if count > HEADERS:
        raise ValueError(count)
    body, segments = take(stream, table, entry * count), []
    for place in range(0, entry * count, entry):
        kind, _flags, offset, address, _physical, size = struct.unpack_from("<IIQQQQ", body, place)
        segments.append(Segment(kind, offset, address, size))
    return MACHINES.get(machine, f"machine {machine}"), segments


def read_dynamic(stream: IO[bytes], machine: str, segments: list[Segment]) -> Elf:
    """Return what the dynamic section says; one without (a static program) asks for nothing."""
    tags: dict[int, int] = {}
    needed: list[int] = []
    for segment in segments:
        if segment.kind == PT_DYNAMIC:
            if segment.size > TABLE:
                raise ValueError(segment.size)
            for tag, value in struct.iter_unpack("<qQ", take(stream, segment.offset, segment.size // 16 * 16)):
                if tag == 0:
                    break
                tags[tag] = value
                needed += [value] if tag == DT_NEEDED else []
    if DT_STRTAB not in tags:
        return Elf(machine, (), (), ())
    size = tags.get(DT_STRSZ, 0)
    if size > STRINGS:
        raise ValueError(size)
    places = {tag: where(segments, tags[tag]) for tag in (DT_STRTAB, DT_VERDEF, DT_VERNEED) if tags.get(tag)}
    # In the order of the file: a stream out of an archive goes back only by starting again.
    tables = {
        tag: take(stream, offset, min(room, size if tag == DT_STRTAB else TABLE), short=tag != DT_STRTAB)
        for tag, (offset, room) in sorted(places.items(), key=lambda item: item[1])
    }
    strings = tables[DT_STRTAB]
    wants = needs(tables.get(DT_VERNEED, b""), tags.get(DT_VERNEEDNUM, 0), strings)
    offers = definitions(tables.get(DT_VERDEF, b""), tags.get(DT_VERDEFNUM, 0), strings)
    return Elf(machine, tuple(word(strings, at) for at in needed), tuple(wants), tuple(offers))


def needs(table: bytes, count: int, strings: bytes) -> Iterator[tuple[str, str]]:
    """Yield (library, version) from the table of needed versions; one that is marked weak may be missing."""
    place = 0
    for _library in range(count):
        _version, versions, file, first, following = struct.unpack_from("<HHIII", table, place)
        inner = place + first
        for _entry in range(versions):
            _hash, flags, _other, name, step = struct.unpack_from("<IHHII", table, inner)
            if not flags & WEAK:
                yield word(strings, file), word(strings, name)
            inner += step
        place += following


def definitions(table: bytes, count: int, strings: bytes) -> Iterator[str]:
    """Yield the names in the table of defined versions; the first one is the library's own name."""
    place = 0
    for _entry in range(count):
        _version, _flags, _index, _names, _hash, first, following = struct.unpack_from("<HHHHIII", table, place)
        yield word(strings, struct.unpack_from("<I", table, place + first)[0])
        place += following


def where(segments: list[Segment], address: int) -> tuple[int, int]:
    """Return the place of ``address`` in the file, and how many bytes the segment has from there."""
    for segment in segments:
        if segment.kind == PT_LOAD and segment.address <= address < segment.address + segment.size:
            ahead = address - segment.address
            return segment.offset + ahead, segment.size - ahead
    raise ValueError(address)


def word(strings: bytes, place: int) -> str:
    """Return the text that begins at ``place``."""
    return strings[place : strings.index(b"\0", place)].decode("ascii", "replace")


def take(stream: IO[bytes], offset: int, size: int, short: bool = False) -> bytes:
    """Return ``size`` bytes from ``offset``; fewer, at the end of the file, only where ``short`` allows it."""
    stream.seek(offset)
    content = stream.read(size)
    if len(content) < size and not short:
        raise ValueError(size)
    return content
