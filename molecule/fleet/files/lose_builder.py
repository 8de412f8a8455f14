# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run the play over the fleet and kill the host that builds, as a power cut would, in the middle of its compile.

    lose_builder.py MOLECULE_FOLDER PLAYBOOK "HOST HOST ..."

The play goes on without it; afterwards the host is started again. What was seen, and how many bytes the controller
sent to each host, is left in lost.json for the tests.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from tests.support.controller_bytes import CountedPlay

PATIENCE_S = 900
FINISHED_OBJECTS = 2


def docker(*arguments: str) -> str:
    """Return what the docker command prints."""
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False).stdout


def steps(host: str) -> int:
    """Return how many compile steps a build on ``host`` has finished."""
    return int(docker("exec", host, "sh", "-c", "cat /opt/vllm/build/*/build.log | grep -c '^\\[[0-9]'").strip() or 0)


def wait_for_builder(hosts: list[str], play: subprocess.Popen[str]) -> str:
    """Return the host that has begun to compile; end with an error when the play ends before."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if play.poll() is not None:
            sys.exit(f"lose_builder: the play ended with status {play.returncode} before anything was compiled")
        for host in hosts:
            if steps(host) >= FINISHED_OBJECTS:
                return host
        time.sleep(0.5)
    sys.exit(f"lose_builder: no compile step finished within {PATIENCE_S} s")


def main() -> None:
    """Do it."""
    folder, playbook, names = sys.argv[1:]
    log = Path(folder, "lost.log")
    play = CountedPlay(["ansible-playbook", "--inventory", f"{folder}/inventory", playbook], log)
    try:
        builder = wait_for_builder(names.split(), play.process)
        compiling = docker("exec", builder, "pgrep", "-c", "cc1plus").strip()
        docker("kill", builder)
        play.wait()
    finally:
        if play.process.poll() is None:
            play.process.terminate()
        print(log.read_text(errors="replace")[-4000:])
    docker("start", builder)
    for _attempt in range(120):
        if docker("exec", builder, "systemctl", "is-system-running").strip() in ("running", "degraded"):
            break
        time.sleep(0.5)
    lines = log.read_text(errors="replace").splitlines()
    recap = {line.split()[0]: line.split(":", 1)[1].split() for line in lines if " unreachable=" in line}
    found = {
        "hosts": names.split(),
        "builder": builder,
        "compilers_when_it_died": int(compiling or 0),
        "recap": recap,
        "bytes": play.transfers.table(),
    }
    Path(folder, "lost.json").write_text(json.dumps(found, indent=2), encoding="utf-8")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
