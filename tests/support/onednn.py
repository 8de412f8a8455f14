# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""oneDNN's source without a code host: the upstream archive inside a Debian source package, from the caller's archive.

``python -m tests.support.onednn`` prints where it lies (and fetches it when it is not there yet).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from scripts.lib import bench, image

SUITE = "trixie"
PACKAGE = "onednn"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


def archive() -> Path:
    """Return the path of oneDNN's upstream archive in the cache, fetched by apt when it is not there yet."""
    folder = bench.cache() / "sources" / PACKAGE
    folder.mkdir(parents=True, exist_ok=True)
    if not found(folder):
        download(folder)
    return found(folder)[0]


def found(folder: Path) -> list[Path]:
    """Return the upstream archives in ``folder``, the newest last."""
    return sorted(folder.glob(f"{PACKAGE}_*.orig.tar.*"))


def download(folder: Path) -> None:
    """Fetch the source package with apt, whose own lists and sources stay as they are."""
    state = folder / "apt"
    for name in ("lists/partial", "cache/archives/partial"):
        (state / name).mkdir(parents=True, exist_ok=True)
    uris = [line.split()[1] for line in image.apt_sources(SUITE, targets())]
    if not uris:
        bench.fail("apt on this machine names no Debian archive, so there is no source package of oneDNN to fetch")
    (state / "sources.list").write_text(f"deb-src [signed-by={KEYRING}] {uris[0]} {SUITE} main\n", encoding="ascii")
    places = {
        "Dir::Etc::SourceList": state / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": state / "lists",
        "Dir::Cache": state / "cache",
        "APT::Sandbox::User": "root",
    }
    options = [f"-o{name}={value}" for name, value in places.items()]
    bench.run("apt-get", "-q", *options, "update")
    bench.run("apt-get", "-q", *options, "source", "--download-only", PACKAGE, cwd=folder)


def targets() -> str:
    """Return what archives the caller's apt knows, one a line."""
    fields = "$(REPO_URI) $(CODENAME) $(COMPONENT) $(ORIGIN)"
    command = ["apt-get", "indextargets", "--format", fields, "Created-By: Packages"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


if __name__ == "__main__":
    sys.stdout.write(f"{archive()}\n")
