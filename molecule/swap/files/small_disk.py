# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Give a stand-in host a small disk: small_disk.py HOST FILESYSTEM MIB FOLDER. Runs on this machine, as root.

The container may not use loop devices; a process of this machine that has only entered its mounts may. The disk goes
with the container, or when nothing is mounted from it any more.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path


def run(*command: str) -> str:
    """Run a command, through sudo where the caller is not root; return what it printed."""
    line = command if os.geteuid() == 0 or command[0] == "docker" else ("sudo", *command)
    done = subprocess.run(line, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"small_disk: {' '.join(line)} failed: {done.stderr.strip()}")
    return done.stdout.strip()


MAKE = {
    "ext3": ["mkfs.ext3", "-q", "-F", "-m", "0"],
    "ext4": ["mkfs.ext4", "-q", "-F", "-m", "0"],
    "xfs": ["mkfs.xfs", "-q", "-f"],
    "btrfs": ["mkfs.btrfs", "--quiet", "--force"],
}


def main() -> None:
    """Make the disk and mount it in the host, with the host's own programs."""
    host, filesystem, mib, folder = sys.argv[1:5]
    descriptor, image = tempfile.mkstemp()
    os.truncate(descriptor, int(mib) << 20)
    os.close(descriptor)
    loop = run("/sbin/losetup", "--find", "--show", image)
    Path(image).unlink()
    try:
        number = os.stat(loop).st_rdev
        node = f"rm -f {loop}; mknod {loop} b {os.major(number)} {os.minor(number)} && mkdir -p {folder}"
        run("docker", "exec", host, "sh", "-c", node)
        leader = run("docker", "inspect", "--format", "{{.State.Pid}}", host)
        inside = ("nsenter", "--target", leader, "--mount", "--pid", "env", "PATH=/usr/sbin:/usr/bin:/sbin:/bin")
        run(*inside, *MAKE[filesystem], loop)
        run(*inside, "mount", "-t", filesystem, loop, folder)
    finally:
        run("/sbin/losetup", "--detach", loop)


if __name__ == "__main__":
    main()
