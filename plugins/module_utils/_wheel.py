# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""What a built wheel demands of a host, read from the ELF files inside it."""

from __future__ import annotations

import io
import re
import zipfile

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError

__all__ = ("wheel_requirements",)

SYMBOL_VERSION = re.compile(rb"\b(GLIBC|GLIBCXX)_(\d+(?:\.\d+)+)\x00")


def wheel_requirements(name: str, content: bytes) -> dict[str, str]:
    """Return version and tags of the wheel ``name``, and the GLIBC and GLIBCXX floors of its libraries."""
    parts = name[: -len(".whl")].split("-")
    if not name.endswith(".whl") or len(parts) < 5:  # noqa: PLR2004 - name, version and three tags (PEP 427)
        raise CpufleetError(f"{name} is not the name of a wheel", "Look at the build's log")
    floors: dict[str, tuple[int, ...]] = {}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for member in archive.namelist():
            if not member.endswith(".so"):
                continue
            for library, version in SYMBOL_VERSION.findall(archive.read(member)):
                number = tuple(int(part) for part in version.split(b"."))
                floors[library.decode()] = max(floors.get(library.decode(), (0,)), number)
    text = {library.lower(): ".".join(map(str, number)) for library, number in sorted(floors.items())}
    return {"version": parts[1], "python_tag": f"{parts[-3]}-{parts[-2]}", "platform": parts[-1], **text}
