# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A restart of the host, after everything else: swap belongs to the machine and does not come back in a container."""

from __future__ import annotations

from collections.abc import Callable

QUESTION = "What is the capital of France?"


def test_after_a_restart_of_the_host_it_answers_without_a_play(
    restart: Callable[[], None],
    ask: Callable[..., tuple[int, str]],
    eventually: Callable[[Callable[[], bool], float, str], None],
) -> None:
    restart()
    eventually(lambda: ask(QUESTION)[0] == 200, 180, "an answer after the restart")
    assert "Paris" in ask(QUESTION)[1]
