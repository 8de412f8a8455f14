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
    return subprocess.run(line, check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    """Make the disk and mount it in the host."""
    host, filesystem, mib, folder = sys.argv[1:5]
    descriptor, image = tempfile.mkstemp()
    os.truncate(descriptor, int(mib) << 20)
    os.close(descriptor)
    run(f"/sbin/mkfs.{filesystem}", "-q", "-F", "-m", "0", image)
    loop = run("/sbin/losetup", "--find", "--show", image)
    Path(image).unlink()
    try:
        number = os.stat(loop).st_rdev
        node = f"rm -f {loop}; mknod {loop} b {os.major(number)} {os.minor(number)} && mkdir -p {folder}"
        run("docker", "exec", host, "sh", "-c", node)
        leader = run("docker", "inspect", "--format", "{{.State.Pid}}", host)
        run("nsenter", "--target", leader, "--mount", "mount", "-t", filesystem, loop, folder)
    finally:
        run("/sbin/losetup", "--detach", loop)


if __name__ == "__main__":
    main()
