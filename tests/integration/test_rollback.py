# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook rollback.yml, and switches that fail, on a host whose deployments are stand-ins for vLLM.

What answers before and after is asked over HTTP; the units, processes and ports are real.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.stand_in_host import KEY, LISTENS, SERVER, URL, Host

NAME = f"{os.environ.get('CPUFLEET_HOST_PREFIX', 'cpufleet')}-rollback-{os.getpid()}"
GATE = {"model_serve_gate_expect": "Paris", "model_serve_gate_timeout": 60}
GOOD = f"{SERVER} --answer Paris"
ASK = f"""
import json, urllib.request
body = {{"messages": [{{"role": "user", "content": "Where?"}}], "max_tokens": 1, "stream": True}}
headers = {{"Authorization": "Bearer {KEY}"}}
request = urllib.request.Request("{URL}/v1/chat/completions", json.dumps(body).encode(), headers)
print(json.loads(urllib.request.urlopen(request).readline()[6:])["choices"][0]["delta"]["content"])
"""


@pytest.fixture(scope="module")
def machine() -> Iterator[Host]:
    with Host.started(NAME) as found:
        found.put("/run/where.py", ASK)
        yield found


@pytest.fixture
def host(machine: Host) -> Iterator[Host]:
    yield machine
    machine.clear()
    machine.try_sh("rm -f /opt/vllm/served.json; pkill -f '[h]ttp.server'")


def serving(host: Host, *served: str, **commands: str) -> None:
    """Install deployments by their commands, of which the last of ``served`` serves and answers."""
    for identity, command in commands.items():
        if identity != served[-1]:
            host.deploy(identity=identity, command=command)
    host.put("/opt/vllm/served.json", json.dumps({"served": served}))
    host.serve(identity=served[-1], command=commands[served[-1]])


def current(host: Host) -> str:
    return host.sh("readlink /opt/vllm/current")


def test_back_to_the_deployment_before(host: Host, tmp_path: Path) -> None:
    serving(host, "d1", "d2", d1=GOOD, d2=f"{SERVER} --answer Rome", d3=SERVER)
    assert host.sh("python3 /run/where.py") == "Rome"
    done = host.play(tmp_path, "playbooks/rollback.yml", **GATE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"[{NAME}] deployment d2 stops now, and d1 starts." in done.stdout
    assert (current(host), host.sh("python3 /run/where.py")) == ("deployments/d1", "Paris")
    # There is none before that one, which goes on serving.
    server = host.main_pid()
    done = host.play(tmp_path, "playbooks/rollback.yml", **GATE)
    assert done.returncode != 0
    assert "There is nothing to go back to: deployment d1 serves, and none before it is known." in done.stdout
    assert "Name one with -e vllm_rollback_to=ID: d2, d3." in done.stdout
    assert host.main_pid() == server


def test_one_that_fails_the_gate_is_left_for_the_one_that_served(host: Host, tmp_path: Path) -> None:
    serving(host, "d1", d1=GOOD, d2=f"{SERVER} --answer Rome")
    done = host.play(tmp_path, "playbooks/rollback.yml", vllm_rollback_to="d2", **GATE)
    assert done.returncode != 0
    assert "when it does not answer, d1 is started again" in " ".join(done.stdout.split())
    assert "The model answered 'Rome', in which 'Paris' is not found" in done.stdout
    assert "The host serves deployment d1 again, which has answered." in done.stdout
    assert (current(host), host.sh("python3 /run/where.py")) == ("deployments/d1", "Paris")
    assert json.loads(host.sh("cat /opt/vllm/served.json")) == {"served": ["d1"]}


def test_one_that_does_not_start_is_left_and_one_that_is_not_there_refused(host: Host, tmp_path: Path) -> None:
    serving(host, "d1", d1=GOOD, d2=f"{SERVER} --no-such-flag")
    done = host.play(tmp_path, "playbooks/rollback.yml", vllm_rollback_to="d2", **GATE)
    assert done.returncode != 0
    assert "--no-such-flag" in done.stdout, "the first cause in the journal is named"
    assert (current(host), host.sh("python3 /run/where.py")) == ("deployments/d1", "Paris")
    server = host.main_pid()
    done = host.play(tmp_path, "playbooks/rollback.yml", vllm_rollback_to="d9", **GATE)
    assert "The deployment d9 is not on this host. Name one with -e vllm_rollback_to=ID: d2." in done.stdout
    assert (done.returncode != 0, host.main_pid()) == (True, server)


def test_a_port_that_was_taken_meanwhile_is_told_and_the_old_one_answers(host: Host, tmp_path: Path) -> None:
    taken = "9911"
    serving(host, "d1", d1=GOOD, d2=f"{GOOD} --port {taken}")
    host.sh(f"sed -i s/:8000/:{taken}/ /opt/vllm/deployments/d2/manifest.json")
    host.sh(f"nohup python3 -m http.server {taken} --bind 127.0.0.1 > /dev/null 2>&1 &")
    done = host.play(tmp_path, "playbooks/rollback.yml", vllm_rollback_to="d2", **GATE)
    assert done.returncode != 0
    assert (current(host), host.sh("python3 /run/where.py")) == ("deployments/d1", "Paris")
    assert "The host serves deployment d1 again, which has answered." in done.stdout


def test_a_killed_server_leaves_no_orphan_and_answers_again(host: Host) -> None:
    host.serve(command=GOOD, more="KillMode=control-group")
    server, engine = host.main_pid(), host.engine()
    # As a worker of vLLM, it does not notice that its server is gone.
    host.sh(f"kill -STOP {engine}; kill -9 {server}")
    host.until(f"test $(systemctl show vllm -p MainPID --value) -gt {server}")
    host.until(LISTENS)
    assert host.sh("python3 /run/where.py") == "Paris"
    assert host.try_sh(f"ps -o pid= -p {engine}") == ""


SWITCH = """
- hosts: vllm_hosts
  gather_facts: false
  become: true
  tasks:
    - ansible.builtin.include_role:
        name: cpufleet.vllm.model_serve
        tasks_from: switch
      vars:
        __model_serve_target: d2
        __model_serve_try_first: "{{ model_serve_side_by_side }}"
"""


def test_a_new_one_is_asked_beside_the_old_one_which_serves_on(host: Host, tmp_path: Path) -> None:
    limit = f"MemoryMax={300 << 20}"
    host.deploy(identity="d2", command=f"{SERVER} --answer Rome --port 8000", more=limit)
    host.put("/opt/vllm/served.json", json.dumps({"served": ["d1"]}))
    host.serve(identity="d1", command=GOOD)
    playbook, server = tmp_path / "switch.yml", host.main_pid()
    playbook.write_text(SWITCH)
    done = host.play(tmp_path, str(playbook), **GATE)
    assert done.returncode != 0
    assert "deployment d2 is asked on a spare port first, while d1 serves on" in " ".join(done.stdout.split())
    assert "The model answered 'Rome', in which 'Paris' is not found" in done.stdout
    assert "deployment d1 was not touched and serves on" in done.stdout
    assert (current(host), host.main_pid(), host.sh("python3 /run/where.py")) == ("deployments/d1", server, "Paris")
    assert host.sh("find /run/systemd/system -name '*trial*'; pgrep -fc '[a]nswer Rome' || true") == "0"
    host.sh("sed -i s/Rome/Paris/ /opt/vllm/deployments/d2/vllm.service")
    done = host.play(tmp_path, str(playbook), **GATE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.index("d2 is asked on a spare port") < done.stdout.index("deployment d1 stops now")
    assert (current(host), host.sh("python3 /run/where.py")) == ("deployments/d2", "Paris")
    assert host.sh("find /run/systemd/system -name '*trial*'") == ""


PLAY = """
- hosts: vllm_hosts
  gather_facts: false
  become: true
  tasks:
    - ansible.builtin.include_role:
        name: cpufleet.vllm.model_serve
        tasks_from: watchdog
"""


def test_the_watchdog_comes_once_and_goes(host: Host, tmp_path: Path) -> None:
    host.serve(command=GOOD)
    playbook = tmp_path / "watchdog.yml"
    playbook.write_text(PLAY)
    changes = []
    for wanted in (True, True, False, False):
        done = host.play(tmp_path, str(playbook), model_serve_watchdog=wanted)
        assert done.returncode == 0, done.stdout + done.stderr
        changes.append("changed=0" not in done.stdout)
        active = host.try_sh("systemctl is-active vllm-watchdog; systemctl is-enabled vllm-watchdog 2>&1")
        assert (active.split() == ["active", "enabled"]) is wanted, active
    assert changes == [True, False, True, False]
    assert host.sh("find /etc/systemd/system -name '*watchdog*'") == ""
