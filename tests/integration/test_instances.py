# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two models on one host by the role model_serve: units, ports, keys, each one's own way back, the doctor, and the end.

The release is a stand-in for vLLM (see tests/support/stand_in_server.py) and the plan is given; units, processes,
ports, keys, links and HTTP are real.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.stand_in_host import PYTHON, Host

NAME = f"{os.environ.get('CPUFLEET_HOST_PREFIX', 'cpufleet')}-instances-{os.getpid()}"
PORTS = {"chat": 8001, "embed": 8000}
PLAY = """
- hosts: vllm_hosts
  gather_facts: false
  become: true
  tasks:
    - cpufleet.vllm.release_info:
      register: there
    - ansible.builtin.set_fact:
        plan_state: "{{ there.state }}"
    - ansible.builtin.include_role:
        name: cpufleet.vllm.model_serve
        tasks_from: "{{ tasks_from | default('main') }}"
"""
ASK = """
import json, sys, urllib.request
port, key = sys.argv[1], open(f"/opt/vllm/{sys.argv[2]}/secrets/api_key").read().strip()
body = {"messages": [{"role": "user", "content": "Where?"}], "max_tokens": 1, "stream": True}
url = f"http://127.0.0.1:{port}/v1/chat/completions"
request = urllib.request.Request(url, json.dumps(body).encode(), {"Authorization": f"Bearer {key}"})
try:
    print(json.loads(urllib.request.urlopen(request).readline()[6:])["choices"][0]["delta"]["content"])
except urllib.error.HTTPError as error:
    print(error.code)
"""
# One more deployment of an instance, which answers otherwise.
ANOTHER = """
import hashlib, json, os, shutil
os.chdir("/opt/vllm/instances/chat/deployments")
old = os.listdir(".")[0]
shutil.copytree(old, "d2")
os.chdir("d2")
manifest = json.loads(open("manifest.json").read().replace(old, "d2"))
for name in manifest["files"]:
    text = open(name).read().replace(old, "d2").replace("Paris", "Lyon")
    open(name, "w").write(text)
    manifest["files"][name] = hashlib.sha256(text.encode()).hexdigest()
open("manifest.json", "w").write(json.dumps(manifest))
"""
PLANNED = {
    **{"engine": "vllm", "environment": {}, "arguments": [], "preload": [], "threads": 1},
    "memory_max_bytes": 300 << 20,
}
MODEL = {
    "sha256": "5e" * 32,
    "files": [{"name": "config.json", "size": 2, "sha256": hashlib.sha256(b"{}").hexdigest()}],
}
FACTS: dict[str, Any] = {
    **{"model_serve_model": "/srv/model", "model_serve_model_source": "host", "model_serve_calibrate": False},
    **{"model_serve_journal_max": "", "model_serve_gate_timeout": 60, "model_serve_side_by_side": False},
    "torch_cpu_release": {"id": "r1", "venv": str(Path(PYTHON).parents[1])},
    "plan_host_facts": {"cpu": {"usable_cpus": 2}, "allocator": "", "memory": {}},
    "plan_result": {
        **{"version": "0.6.5", "edits": [], "model": PLANNED},
        "instances": {name: {"model": PLANNED} for name in PORTS},
    },
    "plan_model": MODEL,
    "plan_instances": {name: {"model": MODEL} for name in PORTS},
}


class Pair(Host):
    """A host with the stand-in for a release, on which the role serves instances."""

    def run(self, folder: Path, playbook: str, instances: dict[str, Any], **more: Any) -> str:
        """Run a playbook; return what it prints, after its status where it fails."""
        (folder / "play.yml").write_text(PLAY)
        done = self.play(folder, playbook, **{**FACTS, "model_serve_instances": instances, **more})
        return done.stdout if done.returncode == 0 else f"status {done.returncode}\n{done.stdout}{done.stderr}"

    def role(self, folder: Path, instances: dict[str, Any], **more: Any) -> str:
        """Run the role, or one of its files; return what is said."""
        said = self.run(folder, str(folder / "play.yml"), instances, **more)
        assert not said.startswith("status"), said
        return said

    def answer(self, port: int, folder: str) -> str:
        """Return what the server at a port answers to the key below a folder."""
        return self.sh(f"python3 /run/where.py {port} {folder}")

    def pid(self, name: str) -> str:
        """Return the process of an instance's server."""
        return self.sh(f"systemctl show vllm-{name} --property=MainPID --value")


@pytest.fixture(scope="module")
def host() -> Iterator[Pair]:
    with Pair.started(NAME) as found:
        found.sh("chmod 755 /opt/vllm")
        found.put("/run/where.py", ASK)
        yield found


def settings(chat: str, embed: str) -> dict[str, Any]:
    """Return two instances by what they answer; one says its port."""
    return {
        "chat": {"port": PORTS["chat"], "extra_arguments": ["--answer", chat], "gate_expect": chat},
        "embed": {"extra_arguments": ["--answer", embed], "watchdog": False},
    }


def test_two_serve_side_by_side_and_each_goes_its_own_way(host: Pair, tmp_path: Path) -> None:
    both = settings("Paris", "Rome")
    said = host.role(tmp_path, both)
    assert [host.answer(port, f"instances/{name}") for name, port in PORTS.items()] == ["Paris", "Rome"]
    assert host.answer(PORTS["chat"], "instances/embed") == "401", "each has a key of its own"
    assert f"model at http://127.0.0.1:{PORTS['embed']}, release r1" in said
    assert host.try_sh("systemctl is-enabled vllm-chat vllm-embed vllm-chat-watchdog") == "enabled\nenabled\nenabled"
    assert host.sh("ls /opt/vllm/instances/embed") == "current\ndeployments\nmodels\nreleases\nsecrets\nserved.json"

    # A switch is that of one, which has to be said.
    embed, rollback = host.pid("embed"), "playbooks/rollback.yml"
    host.sh(f"python3 -c '{ANOTHER}'")
    said = host.run(tmp_path, rollback, both)
    assert "has the instances chat, embed, and model_serve_instance is empty." in " ".join(said.split())
    told = settings("Lyon", "Rome")
    said = host.run(tmp_path, rollback, told, model_serve_instance="chat", vllm_rollback_to="d2")
    assert not said.startswith("status"), said
    assert [host.answer(port, f"instances/{name}") for name, port in PORTS.items()] == ["Lyon", "Rome"]
    assert host.pid("embed") == embed


def test_the_doctor_judges_both_and_the_worst_comes_first(host: Pair) -> None:
    said = host.doctor("--seconds 1")
    assert said.verdict == "OK"
    assert "vllm-chat.service answered" in said.line and "vllm-embed.service answered" in said.line
    host.sh(f"kill -STOP {host.pid('embed')}")
    said = host.doctor("--seconds 1")
    assert (said.verdict, said.causes[0]["unit"]) == ("HUNG", "vllm-embed.service")
    alone = host.doctor("--seconds 1 --unit vllm-chat")
    assert (alone.verdict, alone.line.split()[1]) == ("OK", "vllm-chat.service")
    host.sh(f"kill -CONT {host.pid('embed')}")
    # The way back without a controller, which the service of the other does not feel.
    status, refusal = host.execute("cpufleet-doctor rollback --local 2>&1")
    assert status != 0
    assert "There are the instances chat, embed: name the service of one with --unit" in refusal
    embed = host.pid("embed")
    host.sh("cpufleet-doctor rollback --local --unit vllm-chat")
    host.until(f"python3 /run/where.py {PORTS['chat']} instances/chat 2>&1 | grep -x Paris")
    assert (host.pid("embed"), host.answer(PORTS["embed"], "instances/embed")) == (embed, "Rome")


def test_one_that_is_no_longer_named_is_stopped_and_goes_when_told(host: Pair, tmp_path: Path) -> None:
    embed = host.pid("embed")
    said = host.role(tmp_path, {"embed": settings("Paris", "Rome")["embed"]}, tasks_from="retire")
    assert "vllm-chat.service does not serve any more" in said
    assert host.try_sh("systemctl is-active vllm-chat vllm-chat-watchdog").split() == ["inactive", "inactive"]
    assert host.try_sh("systemctl is-enabled vllm-chat") == "disabled"
    assert host.sh("ls /opt/vllm/instances") == "chat\nembed"
    assert (host.pid("embed"), host.answer(PORTS["embed"], "instances/embed")) == (embed, "Rome")
    # Back to one service, which takes the port and the release of those that go.
    host.role(tmp_path, {}, model_serve_instances_prune=True, model_serve_watchdog=False)
    assert host.answer(PORTS["embed"], ".") == "made up"
    assert host.sh("ls /opt/vllm/instances; ls /opt/vllm/releases") == "r1"
    assert host.sh("find /etc/systemd/system -name 'vllm-*'") == ""
