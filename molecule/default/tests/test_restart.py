# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Faults of the service, and a restart of the host after everything else: swap belongs to the machine and does not come
back in a container.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.doctor_host import DoctorHost, by_testinfra

QUESTION = "What is the capital of France?"


def test_an_engine_that_is_stopped_while_health_is_200_is_replaced(
    host: Any,
    ask: Callable[..., tuple[int, str]],
    eventually: Callable[[Callable[[], bool], float, str], None],
) -> None:
    known = DoctorHost(by_testinfra(host))
    server, engine = known.main_pid(), known.engine()
    known.sh(f"kill -STOP {engine}")
    health = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8000/health', timeout=20).status)"
    assert known.sh(f'python3 -c "{health}"') == "200"
    eventually(lambda: known.main_pid() not in (0, server), 90, "another server")
    # And the time that the model takes to load.
    eventually(lambda: ask(QUESTION)[0] == 200, 600, "an answer after the engine was stopped")
    assert known.try_sh(f"ps -o pid= -p {engine}") == "", "no orphan holds memory"
    assert "HUNG (stopped: " in known.sh("journalctl -u vllm-watchdog --no-pager")


def test_a_server_that_is_killed_leaves_nothing_behind_and_answers_again(
    host: Any,
    ask: Callable[..., tuple[int, str]],
    eventually: Callable[[Callable[[], bool], float, str], None],
) -> None:
    known = DoctorHost(by_testinfra(host))
    server, engine = known.main_pid(), known.engine()
    known.sh(f"kill -9 {server}")
    eventually(lambda: known.main_pid() not in (0, server), 90, "another server")
    eventually(lambda: ask(QUESTION)[0] == 200, 600, "an answer after the server was killed")
    assert known.try_sh(f"ps -o pid= -p {engine}") == "", "no orphan holds memory"


def test_after_a_restart_of_the_host_it_answers_without_a_play(
    restart: Callable[[], None],
    ask: Callable[..., tuple[int, str]],
    eventually: Callable[[Callable[[], bool], float, str], None],
) -> None:
    restart()
    eventually(lambda: ask(QUESTION)[0] == 200, 180, "an answer after the restart")
    assert "Paris" in ask(QUESTION)[1]
