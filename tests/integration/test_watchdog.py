# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The watchdog beside a stand-in server under systemd: real hangs are ended by a restart, and nothing else is.

The unit is the role's own. Its times are shortened, but for the tests marked ``full``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import jinja2
import pytest

from scripts.lib import bench
from tests.support.stand_in_host import ASK, LISTENS, Host

NAME = f"{os.environ.get('CPUFLEET_HOST_PREFIX', 'cpufleet')}-watchdog-{os.getpid()}"
ROLE = Path(bench.REPOSITORY, "roles/model_serve")
UNIT = "/etc/systemd/system/vllm-watchdog.service"
SHORT = "--interval 1 --window 4 --stopped 2 --ask 3 --pause 300"
ANSWERS = "python3 /run/ask.py 1 1 1"
BEGUN = "/run/begun"
STATE = "/var/lib/vllm-watchdog"
PREFILL_S = int(os.environ.get("CPUFLEET_PREFILL_S", "3600"))


@pytest.fixture(scope="module")
def machine() -> Iterator[Host]:
    with Host.started(NAME) as found:
        program = Path(ROLE, "files/cpufleet_watchdog.py").read_text(encoding="utf-8")
        found.put("/usr/local/bin/cpufleet-watchdog", program, "0755")
        template = jinja2.Template(Path(ROLE, "templates/watchdog.service.j2").read_text(encoding="utf-8"))
        found.put(UNIT, template.render(model_serve_unit="vllm", model_serve_gate_timeout=60) + "\n")
        found.put("/run/ask.py", ASK)
        yield found


@pytest.fixture
def host(machine: Host) -> Iterator[Host]:
    start(machine, SHORT)
    yield machine
    machine.try_sh(f"systemctl disable --now vllm-watchdog 2>&1; rm -rf {STATE}")
    machine.clear()


def start(host: Host, times: str) -> None:
    """Serve, with the watchdog beside it."""
    folder = f"{UNIT}.d"
    host.sh(f"date +%s.%N > {BEGUN}")
    command = f"/usr/local/bin/cpufleet-watchdog --unit vllm.service --grace 60 {times}"
    host.put(f"{folder}/short.conf", f"[Service]\nExecStart=\nExecStart={command}\n")
    host.sh("systemctl daemon-reload; systemctl enable vllm-watchdog 2>&1")
    host.serve()
    host.until("systemctl is-active vllm-watchdog")


def journal(host: Host) -> str:
    """Return what the watchdog said since the host was started for this test."""
    host.sh("journalctl --sync")
    return host.sh(f"journalctl -u vllm-watchdog --since=@$(cat {BEGUN}) --output=cat --no-pager --quiet")


def restarted(host: Host, before: int, seconds: float = 40) -> float:
    """Wait until another process serves and answers; return how long that took."""
    began = time.monotonic()
    new = f"test $(systemctl show vllm -p MainPID --value) -gt {before}"
    while host.execute(new)[0] != 0:
        assert time.monotonic() - began < seconds, journal(host)
        time.sleep(0.5)
    host.until(LISTENS)
    host.until(ANSWERS)
    return time.monotonic() - began


def test_a_stopped_worker_is_restarted_once_and_then_not_at_once_again(host: Host) -> None:
    server, engine = host.main_pid(), host.engine()
    host.sh(f"sleep 1; kill -STOP {engine}")
    assert host.sh(f"python3 -c \"import urllib.request as u; print(u.urlopen('{health()}').status)\"") == "200"
    assert restarted(host, server) < 40
    assert host.try_sh(f"ps -o pid= -p {engine}") == "", "the stopped worker is gone"
    said = journal(host)
    assert f"HUNG (stopped: pid {engine}" in said
    folder = said.split("its state is in ")[1].split()[0]
    assert "State:\tT" in host.sh(f"cat {folder}/processes/{engine}/status")
    assert host.sh(f"stat -c %a {STATE}") == "700"
    server = host.main_pid()
    host.sh(f"sleep 2; kill -STOP {host.engine()}; sleep 6")
    assert host.main_pid() == server
    assert "restarted 1 times already, so not before" in journal(host)


def health() -> str:
    """Return the address of /health."""
    return "http://127.0.0.1:8000/health"


def test_an_engine_that_waits_for_ever_is_restarted(host: Host) -> None:
    server = host.main_pid()
    host.put("/run/hang.py", ASK.replace('"w " * int(sys.argv[2])', '"hang"'))
    host.sh("nohup python3 /run/hang.py 1 1 1 > /dev/null 2>&1 &")
    assert restarted(host, server) < 40
    assert "HUNG (frozen: " in journal(host)


def test_an_engine_that_is_gone_behind_a_listening_server_is_replaced(host: Host) -> None:
    server = host.main_pid()
    host.sh(f"sleep 3; kill -9 {host.engine()}")
    assert restarted(host, server) < 40
    assert "HUNG (broken: " in journal(host)


def test_long_prompts_and_idleness_are_no_hang(host: Host) -> None:
    server = host.main_pid()
    host.ask(1, 200, 1)  # ten seconds of computing without a token: more than two windows
    time.sleep(13)
    host.until(ANSWERS)
    time.sleep(6)
    assert host.main_pid() == server
    said = journal(host)
    assert "HUNG" not in said
    assert said.splitlines()[-1] == "vllm.service: answers"
    memory = int(host.sh("ps -o rss= -p $(systemctl show vllm-watchdog -p MainPID --value)"))
    assert memory < 20 * 1024


def test_it_ends_and_comes_back_with_its_service(host: Host) -> None:
    host.sh("systemctl stop vllm")
    host.until("test $(systemctl is-active vllm-watchdog) = inactive")
    host.sh("systemctl start vllm")
    host.until("systemctl is-active vllm-watchdog")
    exposure = host.sh("systemd-analyze security vllm-watchdog.service --no-pager | tail -n 1").split()
    assert float(exposure[exposure.index("vllm-watchdog.service:") + 1]) <= 4.0


@pytest.mark.full
def test_an_hour_of_long_prompts_is_no_hang(machine: Host) -> None:
    """With the times of the unit; CPUFLEET_PREFILL_S shortens it."""
    start(machine, "")
    server, end = machine.main_pid(), time.monotonic() + PREFILL_S
    while time.monotonic() < end:
        machine.ask(1, 1800, 1)  # ninety seconds and more without a token
        machine.until("! pgrep -f '[a]sk.py'", PREFILL_S + 600)
    assert machine.main_pid() == server
    assert "HUNG" not in journal(machine)
    machine.clear()


@pytest.mark.full
def test_with_its_own_times_it_answers_again_within_ninety_seconds(machine: Host) -> None:
    start(machine, "")
    server = machine.main_pid()
    machine.sh(f"sleep 10; kill -STOP {machine.engine()}")
    assert restarted(machine, server, 90) < 90
    machine.clear()
