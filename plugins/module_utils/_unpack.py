# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""A tar file as a folder, as a whole or not at all, and nothing outside of it."""

from __future__ import annotations

import os
import shutil
import tarfile
import zlib

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError

__all__ = ("unpack_tar",)


def checked_members(archive: tarfile.TarFile, src: str, flat: bool = False) -> list[tarfile.TarInfo]:
    """Return the members without the archive's top folder; refuse anything that would leave the destination.

    ``flat``: the archive may have files at its top; then it has no top folder to leave out.
    """
    members, links = [], {member.name for member in archive.getmembers() if member.issym()}
    flat = flat and any(member.isfile() and "/" not in member.name for member in archive.getmembers())
    for member in archive.getmembers():
        problem = member_problem(member, links)
        # Where a link leads to is judged without the top folder.
        if flat and member.issym():
            problem = problem or f"the link {member.name!r}"
        if problem:
            raise CpufleetError(f"Refused to unpack {src}: {problem}", "Use another source", path=src)
        member.name = member.name if flat else member.name.partition("/")[2]
        if member.name:
            member.uid = member.gid = 0
            member.uname = member.gname = "root"
            members.append(member)
    return members


def member_problem(member: tarfile.TarInfo, links: set[str]) -> str:
    """Return why ``member`` may not be unpacked, or ""; ``links`` are the names of all symbolic links."""
    parts = member.name.split("/")
    if member.name.startswith("/") or ".." in parts or not (member.isfile() or member.isdir() or member.issym()):
        return f"it holds {member.name!r}"
    # What a link leads to is judged by its text below, which only holds where no folder above it is a link.
    if any("/".join(parts[:count]) in links for count in range(1, len(parts))):
        return f"{member.name!r} lies behind a link"
    if member.issym():
        target = os.path.normpath(os.path.join("/".join(parts[1:-1]), member.linkname))
        if target.startswith("/") or target.split("/")[0] == "..":
            return f"{member.name!r} links outside"
    return ""


def unpack_tar(src: str, dest: str, flat: bool = False) -> int:
    """Unpack ``src`` to ``dest`` without its top folder (with ``flat``: if it has one); return the number of files."""
    partial = dest + ".partial"
    try:
        shutil.rmtree(partial, ignore_errors=True)
        os.makedirs(partial, mode=0o755)
        with tarfile.open(src) as archive:
            members = checked_members(archive, src, flat)
            archive.extractall(partial, members)  # noqa: S202 - every member was checked
        os.replace(partial, dest)
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise CpufleetError(
            f"Cannot unpack {src} into {dest}: {error}", "Check the free space there and run again", path=src
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return sum(not member.isdir() for member in members)
