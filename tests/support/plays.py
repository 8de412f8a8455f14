# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Long plays on one stand-in host, for tests and benchmarks: their output goes to a file that can be watched."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts.lib import bench

RECAP = re.compile(r"changed=(\d+)")
END = 6000


class PlayFailedError(Exception):
    """A play ended with a failure; the message has the end of its output."""


def variables(**more: Any) -> dict[str, Any]:
    """Return the variables of a stand-in host."""
    return {
        **bench.host_variables(),
        "ansible_connection": "community.docker.docker",
        "swap_size": "0",
        **more,
    }


def play(playbooks: Sequence[str], host: str, given: dict[str, Any], inventory: Path, log: Path, *words: str) -> str:
    """Run playbooks on ``host`` and return what they printed; ``inventory`` is written and stays."""
    inventory.parent.mkdir(parents=True, exist_ok=True)
    inventory.write_text(json.dumps({"all": {"children": {"vllm_hosts": {"hosts": {host: given}}}}}), encoding="utf-8")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = ["ansible-playbook", *playbooks, "-i", str(inventory), *words]
    with log.open("w", encoding="utf-8") as stream:
        done = subprocess.run(
            command, cwd=bench.REPOSITORY, env=environment, stdout=stream, stderr=subprocess.STDOUT, check=False
        )
    text = log.read_text(encoding="utf-8")
    if done.returncode:
        raise PlayFailedError(f"{log}:\n{text[-END:]}")
    return text


def serve(host: str, given: dict[str, Any], inventory: Path, log: Path) -> tuple[int, dict[str, Any]]:
    """Run site.yml on ``host``; return the number of changes, and what the gate was answered."""
    report = inventory.with_suffix("")
    text = play(["site.yml"], host, given, inventory, log, "-e", f"model_serve_report={report}")
    answer: dict[str, Any] = json.loads(Path(f"{report}.{host}.json").read_text(encoding="utf-8"))
    return int(RECAP.findall(text)[-1]), answer


def platform_of(host: str, release: str, inventory: Path) -> dict[str, Any]:
    """Return what platform_info finds in the environment of an installed release."""
    python = f"python=/opt/vllm/releases/{release}/venv/bin/python"
    command = [str(Path(sys.executable).parent / "ansible"), host, "-i", str(inventory), "--become"]
    command += ["-m", "cpufleet.vllm.platform_info", "-a", python]
    environment = {**os.environ, "ANSIBLE_CALLBACK_RESULT_FORMAT": "json"}
    done = subprocess.run(command, cwd=bench.REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PlayFailedError(done.stdout + done.stderr)
    found: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])["platform"]
    return found


def manifest(host: str, path: str) -> dict[str, Any]:
    """Return a manifest below the host's /opt/vllm."""
    found: dict[str, Any] = json.loads(
        bench.run("docker", "exec", host, "cat", f"/opt/vllm/{path}/manifest.json").stdout
    )
    return found
