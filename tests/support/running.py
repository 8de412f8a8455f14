# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What runs while a test runs: a server in a thread of its own, and a bare host with the real model at hand."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from socketserver import BaseServer

from scripts.lib import bench, image


@contextlib.contextmanager
def serving(server: BaseServer) -> Iterator[None]:
    """Let ``server`` answer until the block ends."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def bare_host(name: str) -> Iterator[str]:
    """Start a bare host for the block; one that is there already is used and kept, so that a build can go on."""
    started = bench.start_docker()
    image.ensure(bench.cache(), bench.as_root)
    subprocess.run([sys.executable, "scripts/make_models.py", "smollm2"], cwd=bench.REPOSITORY, check=True)
    found = bench.host_exists(name)
    if not found:
        bench.start_host(name)
    yield name
    if not found:
        bench.stop_host(name)
    if started:
        bench.stop_docker()
