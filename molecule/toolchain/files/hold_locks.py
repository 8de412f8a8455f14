# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hold the locks of apt and dpkg for some seconds, as an upgrade in the first minutes does: hold_locks.py SECONDS."""

from __future__ import annotations

import fcntl
import os
import sys
import time

LOCKS = ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", "/var/lib/apt/lists/lock", "/var/cache/apt/archives/lock")
for path in LOCKS:
    # Held until this process ends: a lock goes with its open file.
    fcntl.lockf(os.open(path, os.O_RDWR | os.O_CREAT, 0o640), fcntl.LOCK_EX)
time.sleep(float(sys.argv[1]))
