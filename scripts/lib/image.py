# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The image of a stand-in VM: any registry image by CPUFLEET_IMAGE, or one bootstrapped here with mmdebstrap.

A bootstrapped image holds what a cloud VM has on its first day (systemd, sshd, sudo, Python with its apt module)
and nothing that the roles are to install. It takes packages from where the caller's own apt takes them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

BOOTSTRAPPED = "cpufleet/debian"
RELEASES = {"12": ("bookworm", "3.11"), "13": ("trixie", "3.13")}
PACKAGES = (
    "acl",
    "ca-certificates",
    "dbus",
    "iproute2",
    "kmod",
    "openssh-server",
    "procps",
    "python3",
    "python3-apt",
    "sudo",
    "systemd",
    "systemd-sysv",
)
# What a caller may have had to say to reach his archive; a host needs to say the same.
APT_SETTINGS = (
    "Acquire::http::Proxy",
    "Acquire::https::Proxy",
    "Acquire::Check-Valid-Until",
    "Acquire::Check-Date",
)


def name() -> str:
    """Return the image that hosts are started from."""
    return os.environ.get("CPUFLEET_IMAGE") or f"{BOOTSTRAPPED}:12"


def python_version(image: str) -> str:
    """Return the Python of ``image`` ("3.11"), by its release where it is ours, else by asking it."""
    repository, _colon, tag = image.partition(":")
    if repository == BOOTSTRAPPED and tag in RELEASES:
        return RELEASES[tag][1]
    script = "import sys; print('%d.%d' % sys.version_info[:2])"
    command = ["docker", "run", "--rm", "--entrypoint", "python3", image, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def ensure(cache: Path, as_root: Callable[..., list[str]], other: str = "") -> None:
    """Make the image, or the ``other`` one, available: present, pulled, or (for our own name) bootstrapped."""
    image = other or name()
    if _succeeds(["docker", "image", "inspect", image]):
        return
    repository, _colon, tag = image.partition(":")
    if repository != BOOTSTRAPPED:
        if _succeeds(["docker", "pull", image]):
            return
        sys.exit(f"bench: no registry that answers has image {image}. Unset CPUFLEET_IMAGE to bootstrap one.")
    if tag not in RELEASES:
        known = ", ".join(f"{BOOTSTRAPPED}:{key}" for key in RELEASES)
        sys.exit(f"bench: no release is known for image {image}. Use one of: {known}.")
    _bootstrap(image, RELEASES[tag][0], cache, as_root)


def apt_sources(suite: str, targets: str) -> list[str]:
    """Return sources.list lines for ``suite`` from the caller's own ``apt-get indextargets`` lines.

    Each target line is "uri codename component origin". The archive that serves one Debian suite serves them all, so
    the caller's mirror is used for another suite too. An empty list leaves the choice to the distribution's default.
    """
    debian = [line.split()[:2] for line in targets.splitlines() if line.split()[2:] == ["main", "Debian"]]
    archive = {uri for uri, codename in debian if "-" not in codename}
    security = {uri for uri, codename in debian if codename.endswith("-security")}
    sources = []
    for uri in sorted(archive)[:1]:
        sources += [f"deb {uri} {suite} main", f"deb {uri} {suite}-updates main"]
        sources += [f"deb {other} {suite}-security main" for other in sorted(security)[:1]]
    return sources


def apt_options(read: Callable[[str], str]) -> list[str]:
    """Return the caller's apt settings that a host needs as well, as apt.conf lines; ``read`` gives one's value."""
    values = {setting: read(setting) for setting in APT_SETTINGS}
    return [f'{setting} "{value}";' for setting, value in values.items() if value]


def _bootstrap(image: str, suite: str, cache: Path, as_root: Callable[..., list[str]]) -> None:
    if not shutil.which("mmdebstrap"):
        sys.exit("bench: mmdebstrap is not installed. Run scripts/lib/machine.sh, or: apt-get install mmdebstrap")
    print(f"bench: bootstrapping {image} (half a minute)", file=sys.stderr, flush=True)
    started = time.monotonic()
    archive = cache / f"{suite}.tar"
    log = cache / f"{suite}.log"
    command = ["mmdebstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
    command += [f"--aptopt={option}" for option in apt_options(_apt_setting)]
    # A VM has its own machine id and host keys from its first boot on, not the image's.
    command += ["--customize-hook=: > $1/etc/machine-id", suite, str(archive), *apt_sources(suite, _apt_targets())]
    with log.open("wb") as stream:
        done = subprocess.run(as_root(*command), stdout=stream, stderr=stream, check=False)
    if done.returncode:
        tail = log.read_text(errors="replace").strip().splitlines()[-3:]
        sys.exit(f"bench: mmdebstrap failed: {' / '.join(tail)} (all of it in {log})")
    command = ["docker", "import", "--change", 'CMD ["/lib/systemd/systemd"]', str(archive), image]
    imported = subprocess.run(command, capture_output=True, text=True, check=False)
    if imported.returncode:
        sys.exit(f"bench: Docker does not take the image: {imported.stderr.strip()}")
    subprocess.run(as_root("rm", "-f", str(archive)), check=True)
    print(f"bench: {image} made in {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)


def _apt_targets() -> str:
    fields = "$(REPO_URI) $(CODENAME) $(COMPONENT) $(ORIGIN)"
    command = ["apt-get", "indextargets", "--format", fields, "Created-By: Packages"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _apt_setting(setting: str) -> str:
    command = ["apt-config", "shell", "VALUE", setting]
    printed = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return printed.removeprefix("VALUE=").strip("'")


def _succeeds(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
