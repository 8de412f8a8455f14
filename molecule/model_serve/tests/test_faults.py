# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Faults of a real vLLM: what the doctor says of each, what mends itself, and that another run mends the rest."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support import served_doctor
from tests.support.doctor_host import by_testinfra
from tests.support.served_doctor import ROOT, Served

Check = Callable[[Callable[[], bool], float, str], None]
Play = Callable[..., subprocess.CompletedProcess[str]]
Ask = Callable[..., tuple[int, str]]
QUESTION = "What is the capital of France?"
# Each leaves the service ended; the files of the model stay as they were made.
ENDED = ("missing_key_file", "port_taken", "memory_limit")


@pytest.fixture
def served(host: Any) -> Served:
    return Served(by_testinfra(host))


@pytest.fixture
def unwatched(served: Served) -> Iterator[Served]:
    """Without the watchdog, which would mend what the doctor is to see."""
    served.sh("systemctl stop vllm-watchdog")
    yield served
    served.try_sh("systemctl start vllm-watchdog")


def test_an_engine_that_is_stopped_while_health_is_200_is_told_and_replaced(
    unwatched: Served, ask: Ask, eventually: Check
) -> None:
    server, engine = unwatched.main_pid(), unwatched.engine()
    unwatched.sh(f"kill -STOP {engine}")
    health = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8000/health', timeout=20).status)"
    assert unwatched.sh(f'python3 -c "{health}"') == "200"
    said = unwatched.doctor("--seconds 1")
    assert (said.verdict, said.codes[0]) == ("HUNG", "process_stopped"), said.line
    assert f"pid {engine}" in said.line
    unwatched.sh("systemctl start vllm-watchdog")
    eventually(lambda: unwatched.main_pid() not in (0, server), 90, "another server")
    # And the time that the model takes to load.
    eventually(lambda: ask(QUESTION)[0] == 200, 600, "an answer after the engine was stopped")
    assert unwatched.try_sh(f"ps -o pid= -p {engine}") == "", "no orphan holds memory"
    assert "HUNG (stopped: " in unwatched.sh("journalctl -u vllm-watchdog --no-pager")


def test_a_server_that_is_killed_leaves_nothing_behind_and_answers_again(
    served: Served, ask: Ask, eventually: Check
) -> None:
    server, engine = served.main_pid(), served.engine()
    served.sh(f"kill -9 {server}")
    eventually(lambda: served.main_pid() not in (0, server), 90, "another server")
    eventually(lambda: ask(QUESTION)[0] == 200, 600, "an answer after the server was killed")
    assert served.try_sh(f"ps -o pid= -p {engine}") == "", "no orphan holds memory"


def test_an_engine_that_is_killed_is_told_and_answers_again(unwatched: Served) -> None:
    print(served_doctor.killed_engine(unwatched).line)


def test_the_doctor_names_what_keeps_it_from_serving_and_another_run_mends_it(
    unwatched: Served, play: Play, ask: Ask
) -> None:
    files = f"cd {unwatched.model()} && sha256sum *"
    key, good = unwatched.sh(f"cat {ROOT}/secrets/api_key"), unwatched.sh(files)
    print("\n".join(served_doctor.check_all(unwatched.execute, ENDED, mend=False)))
    unwatched.flip()
    assert unwatched.sh(files) != good
    # What ended it is worse, and stands before.
    assert unwatched.doctor("--seconds 1").cause("model_changed")["verdict"] == "MISCONFIGURED"
    unwatched.sh(f"rm {ROOT}/secrets/api_key.env")
    done = play()
    print(done.stdout[-3000:])
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr
    assert unwatched.sh(files) == good
    assert unwatched.sh(f"cat {ROOT}/secrets/api_key") == key
    assert "Paris" in ask(QUESTION)[1]
    assert unwatched.sh("systemctl is-active vllm-watchdog") == "active", "the run starts it, too"
