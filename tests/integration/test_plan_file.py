# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A plan that plan.yml wrote, applied by site.yml: to the same host, and to one that became smaller; and hosts without
a Python that Ansible can drive."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.lib import bench, image

RECAP = re.compile(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.MULTILINE)
PYTHON_36 = """#!/bin/sh
[ "$1" = -V ] && echo Python 3.6.8 && exit 0
exit 1
"""
# Stands in for dnf on a host whose repositories have python39 and nothing newer.
DNF = """#!/bin/sh
echo "$@" >> /root/dnf-asked
case "$*" in *python39) ln -s /usr/lib/real-python /usr/bin/python3.9 ;; *) exit 1 ;; esac
"""


class Host:
    """One bare host and the playbooks run against it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = f"cpufleet-plan-file-{os.getpid()}"

    def start(self) -> None:
        """Start it, without systemd."""
        volumes = [word for volume in bench.volumes(self.name) for word in ("--volume", volume)]
        bench.run("docker", "run", "--detach", "--name", self.name, *volumes, image.name(), "sleep", "infinity")

    def run(self, script: str) -> str:
        """Return what the shell script prints on the host."""
        return bench.run("docker", "exec", self.name, "sh", "-euc", script).stdout

    def play(self, playbook: str, *arguments: str) -> tuple[str, int, int]:
        """Run a playbook from the test's folder; return its output and how much changed and failed."""
        settings: dict[str, Any] = {
            **bench.host_variables(),
            "ansible_connection": "community.docker.docker",
            "vllm_isa_class": "avx2",
            "vllm_version": "0.6.5",
            "vllm_wheel_store": str(self.folder / "store"),
            "swap_size": "0",
            "model_serve_model": str(bench.cache() / "models" / "tiny-qwen2"),
        }
        inventory = self.folder / "hosts.json"
        inventory.write_text(json.dumps({"all": {"children": {"vllm_hosts": {"hosts": {self.name: settings}}}}}))
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PWD": str(self.folder),
            "COLUMNS": "400",
            "ANSIBLE_CONFIG": str(bench.REPOSITORY / "ansible.cfg"),
        }
        command = ["ansible-playbook", str(bench.REPOSITORY / playbook), "-i", str(inventory), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.folder, env=environment)
        recap = {name: numbers for name, *numbers in RECAP.findall(done.stdout)}
        changed, _unreachable, failed = (int(number) for number in recap[self.name])
        return " ".join((done.stdout + done.stderr).split()), changed, failed


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """Give a host that is removed after the test."""
    made = Host(tmp_path)
    made.start()
    yield made
    bench.stop_host(made.name)


def test_a_written_plan_is_applied_or_the_run_stops_before_any_change(host: Host) -> None:
    bench.run("docker", "update", "--memory", "8g", "--memory-swap", "8g", host.name)
    output, _changed, failed = host.play("playbooks/plan.yml", "-e", "plan_output=monday.json")
    assert failed == 0, output
    # A relative path counts from where the command was typed.
    plan = json.loads((host.folder / "monday.json").read_text())["hosts"][host.name]
    assert plan["refused"] == []
    assert plan["basis"]["memory_bytes"] == 8 << 30
    # Check mode: the plan is taken whole, and nothing is compiled here.
    output, _changed, failed = host.play("site.yml", "-e", "plan_file=monday.json", "--check")
    assert failed == 0, output

    bench.run("docker", "update", "--memory", "6g", "--memory-swap", "6g", host.name)
    output, changed, failed = host.play("site.yml", "-e", "plan_file=monday.json")
    assert (changed, failed) == (0, 1), output
    words = "does not match the plan in plan_file: the host has 6.0 GiB of memory, planned with 8.0 GiB"
    assert words in output

    output, changed, failed = host.play("site.yml", "-e", "plan_file=tuesday.json")
    assert (changed, failed) == (0, 1), output
    assert f"plan_file is tuesday.json, but {host.folder}/tuesday.json is no file on the controller." in output


def test_a_host_with_an_old_python_gets_a_newer_one_beside_it(host: Host) -> None:
    for path, text in (("/usr/bin/dnf", DNF), ("/usr/bin/old-python", PYTHON_36)):
        (host.folder / "program").write_text(text)
        (host.folder / "program").chmod(0o755)
        bench.run("docker", "cp", str(host.folder / "program"), f"{host.name}:{path}")
    host.run("mv $(readlink -f /usr/bin/python3) /usr/lib/real-python; mv /usr/bin/old-python /usr/bin/python3")
    refusal = "has Python 3.6.8; ansible-core"
    for playbook, arguments in (("playbooks/plan.yml", ()), ("site.yml", ("--check",))):
        output, changed, failed = host.play(playbook, *arguments)
        assert (changed, failed) == (0, 1), output
        assert refusal in output
    output, _changed, failed = host.play("playbooks/plan.yml", "-e", "plan_bootstrap=true")
    assert failed == 0, output
    asked = [line.rpartition(" ")[2] for line in host.run("cat /root/dnf-asked").splitlines()]
    assert asked == ["python3.11", "python3.12", "python39"]
    # The second run finds what the first one brought.
    output, changed, failed = host.play("playbooks/plan.yml")
    assert (changed, failed) == (0, 0), output


def test_a_host_without_python_gets_the_distributions(host: Host) -> None:
    host.run(
        "apt-get -y purge libpython3-stdlib python3-minimal python3.1* libpython3.1* >/dev/null 2>&1; ! python3 -V"
    )
    output, changed, failed = host.play("playbooks/plan.yml", "-e", "plan_bootstrap=true")
    assert (changed, failed) == (1, 0), output
    assert host.run("python3 -V").startswith("Python 3")
