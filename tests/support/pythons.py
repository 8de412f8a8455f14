# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A mirror of python-build-standalone with one Python: an interpreter of this machine, packed as its releases are.

``python3 pythons.py FOLDER`` makes one where it is run. uv takes an archive only by the digest that it knows: for one
that is made here, UV_PYTHON_DOWNLOADS_JSON_URL has to name ``downloads.json`` beside it.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
import sysconfig
import tarfile
from pathlib import Path

# What uv takes a mirror's address in place of.
UPSTREAM = "https://github.com/astral-sh/python-build-standalone/releases/download"
DATE = "20260101"
UNNEEDED = ("test", "__pycache__", "idlelib", "lib2to3", "site-packages", "dist-packages", "config-", "tkinter")


def make_mirror(folder: Path) -> str:
    """Fill ``folder`` with an archive and its description; return the interpreter's version with two parts."""
    version, short = platform.python_version(), f"{sys.version_info[0]}.{sys.version_info[1]}"
    machine = platform.machine()
    name = f"cpython-{version}%2B{DATE}-{machine}-unknown-linux-gnu-install_only_stripped.tar.gz"
    archive = folder / DATE / name.replace("%2B", "+")
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:gz", compresslevel=1) as stream:
        stream.add(os.path.realpath(sys.executable), f"python/bin/python{short}")
        stream.add(sysconfig.get_path("stdlib"), f"python/lib/python{short}", filter=needed)
        link = tarfile.TarInfo("python/bin/python3")
        link.type, link.linkname = tarfile.SYMTYPE, f"python{short}"
        stream.addfile(link)
    major, minor, patch = version.split(".")
    entry = {
        "name": "cpython",
        "arch": {"family": machine, "variant": None},
        "os": "linux",
        "libc": "gnu",
        "major": int(major),
        "minor": int(minor),
        "patch": int(patch),
        "prerelease": "",
        "url": f"{UPSTREAM}/{DATE}/{name}",
        "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
        "variant": None,
        "build": DATE,
    }
    (folder / "downloads.json").write_text(json.dumps({f"cpython-{version}-linux-{machine}-gnu": entry}))
    return short


def needed(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out what no virtual environment needs, and links of a distribution to its settings."""
    if member.issym() and member.linkname.startswith("/"):
        return None
    return None if any(part.startswith(UNNEEDED) for part in member.name.split("/")[3:]) else member


if __name__ == "__main__":
    make_mirror(Path(sys.argv[1]))
