# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Start the play, kill it with SIGKILL during the compile, look whether the build goes on, then kill the build too.

    interrupt.py HOST MOLECULE_FOLDER PLAYBOOK

Leaves what was compiled by then in MOLECULE_FOLDER/interrupted.json for the tests.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

FINISHED_OBJECTS = 2
PATIENCE_S = 900
LIST_OBJECTS = "find /opt/vllm/build/*/source/build -name '*.cpp.o' -size +0 -printf '%T@ %s %p\\n'"


def on_host(host: str, command: str) -> str:
    """Return what ``command`` prints on the host."""
    return subprocess.run(
        ["docker", "exec", host, "sh", "-c", command], capture_output=True, text=True, check=False
    ).stdout


def steps_done(host: str) -> int:
    """Return how many steps ninja has finished."""
    return len(re.findall(r"^\[\d+/\d+\]", on_host(host, "cat /opt/vllm/build/*/build.log"), re.MULTILINE))


def wait_for_objects(host: str, play: subprocess.Popen[bytes]) -> None:
    """Wait until some objects are finished; end with an error when the play ends before."""
    deadline = time.monotonic() + PATIENCE_S
    # ninja names a step when it is finished; one more step makes sure that another compile is at work.
    while steps_done(host) < FINISHED_OBJECTS:
        if play.poll() is not None:
            sys.exit(f"interrupt: the play ended with status {play.returncode} before it could be killed")
        if time.monotonic() > deadline:
            sys.exit(f"interrupt: no compile step finished within {PATIENCE_S} s")
        time.sleep(0.5)


def main() -> None:
    """Do it."""
    host, folder, playbook = sys.argv[1:]
    log = Path(folder, "interrupted.log")
    with log.open("wb") as stream:
        command = ["ansible-playbook", "--inventory", f"{folder}/inventory", playbook]
        play = subprocess.Popen(command, stdout=stream, stderr=stream, start_new_session=True)
        try:
            wait_for_objects(host, play)
        finally:
            if play.poll() is None:
                os.killpg(play.pid, signal.SIGKILL)
            play.wait()
            print(log.read_text(errors="replace")[-3000:])
    time.sleep(2)
    unit = on_host(host, "systemctl list-units --plain --no-legend 'cpufleet-build-*' | cut -d' ' -f1").strip()
    compiling = on_host(host, "pgrep -c cc1plus").strip()
    on_host(host, f"systemctl kill --signal=KILL {unit}")
    time.sleep(2)
    found = {
        "unit_after_the_play_died": unit,
        "compilers_after_the_play_died": int(compiling or 0),
        "active_after_the_build_died": on_host(host, "systemctl is-active " + unit).strip(),
        "objects": on_host(host, LIST_OBJECTS).splitlines(),
    }
    Path(folder, "interrupted.json").write_text(json.dumps(found, indent=2), encoding="utf-8")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
