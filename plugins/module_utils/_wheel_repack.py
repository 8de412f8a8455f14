# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""A wheel with some of its text files replaced: a file of its own, whose RECORD tells the truth."""

from __future__ import annotations

import base64
import hashlib
import shutil
import zipfile

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError

__all__ = ("repack_wheel",)

CHUNK = 1 << 20


def repack_wheel(source: str, dest: str, contents: dict[str, bytes]) -> None:
    """Write ``source`` to ``dest`` with ``contents`` in place of the members of that name.

    Everything else, the times too, is taken over, so that the same edit of the same wheel gives the same bytes.
    """
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(dest, "w", zipfile.ZIP_DEFLATED) as new:
        record = next((name for name in old.namelist() if name.endswith(".dist-info/RECORD")), "")
        missing = sorted(set(contents) - set(old.namelist()))
        if not record or missing:
            raise CpufleetError(f"Cannot edit {source}: it holds no {missing[0] if missing else 'RECORD'}")
        changed = {**contents, record: new_record(old.read(record), contents)}
        for member in old.infolist():
            copy = zipfile.ZipInfo(member.filename, member.date_time)
            copy.compress_type, copy.external_attr = member.compress_type, member.external_attr
            if member.filename in changed:
                new.writestr(copy, changed[member.filename])
                continue
            copy.file_size = member.file_size  # tells zipfile when the 64-bit format is needed
            with old.open(member) as reader, new.open(copy, "w") as writer:
                shutil.copyfileobj(reader, writer, CHUNK)


def new_record(text: bytes, contents: dict[str, bytes]) -> bytes:
    """Return RECORD with digest and size of the new contents."""
    lines = []
    for line in text.decode("utf-8").splitlines():
        path = line.rsplit(",", 2)[0].strip('"')
        if path in contents:
            content = contents[path]
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            line = f"{line.rsplit(',', 2)[0]},sha256={digest},{len(content)}"  # noqa: PLW2901
        lines.append(line)
    return ("\n".join(lines) + "\n").encode("utf-8")
