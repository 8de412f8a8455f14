# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Kill the process that writes a file as soon as it has written some of it: kill_writer.py FILE MIB."""

from __future__ import annotations

import contextlib
import glob
import os
import signal
import sys
import time

path, written = sys.argv[1], int(sys.argv[2]) << 20
deadline = time.monotonic() + 60
while time.monotonic() < deadline:
    time.sleep(0.0002)
    with contextlib.suppress(OSError):
        if os.stat(path).st_size < written:
            continue
        for link in glob.glob("/proc/[0-9]*/fd/*"):
            with contextlib.suppress(OSError):
                if os.readlink(link) == path:
                    os.kill(int(link.split("/")[2]), signal.SIGKILL)
                    print(f"killed at {os.stat(path).st_size >> 20} MiB")
                    sys.exit()
