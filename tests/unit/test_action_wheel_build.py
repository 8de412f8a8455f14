# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action plugin of wheel_build: one line of progress every so often, and no build lost with a connection."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible_collections.cpufleet.vllm.plugins.action import wheel_build

LOST = AnsibleConnectionFailure("ssh: connect to host 192.0.2.7 port 22: No route to host")
DONE = {"changed": True, "build": {"phase": "done", "line": "done"}}


def running(line: str, note: str = "") -> dict[str, Any]:
    return {"changed": True, "build": {"phase": "running", "line": line, "note": note, "log": "/b/build.log"}}


class Controller:
    """What the plugin sees of Ansible: answers of the module, a clock that only sleeping moves, the screen."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answers: list[Any]) -> None:
        self.answers, self.asked = answers, list[dict[str, Any]]()
        self.now, self.lines, self.warnings = 1000.0, list[str](), list[str]()
        monkeypatch.setattr(wheel_build, "time", SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep))
        monkeypatch.setattr(
            wheel_build, "display", SimpleNamespace(display=self.lines.append, warning=self.warnings.append)
        )
        monkeypatch.setattr(wheel_build.ActionBase, "run", lambda *_words: {})
        self.plugin = wheel_build.ActionModule.__new__(wheel_build.ActionModule)
        self.plugin._task = SimpleNamespace(args={"identity": "ab", "progress_interval": 15})
        self.plugin._execute_module = self.execute

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def execute(self, module_name: str, module_args: dict[str, Any] | None = None, **_rest: Any) -> dict[str, Any]:
        assert module_name == "cpufleet.vllm.wheel_build"
        self.now += (module_args or {}).get("wait", 0)
        self.asked.append(module_args or {})
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        result: dict[str, Any] = answer
        return result

    def run(self) -> dict[str, Any]:
        result: dict[str, Any] = self.plugin.run(task_vars={"inventory_hostname": "vm1"})
        return result


def test_a_finished_wheel_is_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = Controller(monkeypatch, [{"changed": False, "build": {"phase": "done"}}])
    assert controller.run()["changed"] is False
    assert (len(controller.asked), controller.lines) == (1, [])


def test_one_call_for_each_line_of_progress_and_the_log_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = Controller(monkeypatch, [*[running(f"{step}/8 50 %") for step in range(3)], DONE])
    assert controller.run()["build"]["phase"] == "done"
    assert controller.lines == [
        "[vm1] log: /b/build.log",
        "[vm1] 0/8 50 %",
        "[vm1] 1/8 50 %",
        "[vm1] 2/8 50 %",
    ]
    assert [arguments.get("attached") for arguments in controller.asked] == [None, True, True, True]
    assert [arguments.get("wait") for arguments in controller.asked] == [None, 15, 15, 15]


def test_what_happened_to_the_build_is_told_once_when_it_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    note = "goes on with 1 job(s) instead of 2: the compiler was killed"
    controller = Controller(monkeypatch, [running("3/8"), running("0/5", note), running("2/5", note), DONE])
    controller.run()
    assert controller.lines[1:] == ["[vm1] 3/8", f"[vm1] {note}", "[vm1] 0/5", "[vm1] 2/5"]


def test_whoever_waited_for_a_build_sees_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    picked_up_elsewhere = {"changed": False, "build": {"phase": "done"}}
    assert Controller(monkeypatch, [running("1/8"), picked_up_elsewhere]).run()["changed"] is True


def test_a_lost_connection_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    unreachable = {"unreachable": True, "msg": "timed out"}
    controller = Controller(monkeypatch, [running("1/8"), LOST, unreachable, running("5/8"), DONE])
    assert controller.run()["build"]["phase"] == "done"
    assert controller.warnings == [
        f"connection lost while the build goes on, trying again: {LOST}",
        "connection lost while the build goes on, trying again: timed out",
    ]


def test_a_host_that_stays_away_ends_the_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = Controller(monkeypatch, [running("1/8"), LOST])
    with pytest.raises(AnsibleConnectionFailure, match="No route to host"):
        controller.run()
    assert 600 < controller.now - 1000 < 640


def test_connections_lost_now_and_then_do_not_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now_and_then = [running("1/8"), *[LOST, running("2/8")] * 130]
    assert Controller(monkeypatch, [*now_and_then, DONE]).run()["build"]["phase"] == "done"


def test_a_failed_build_ends_the_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = Controller(monkeypatch, [running("1/8"), {"failed": True, "msg": "The build of vLLM failed"}])
    assert controller.run()["failed"] is True


def test_check_mode_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = Controller(monkeypatch, [{"changed": True, "build": {"phase": "planned"}}])
    assert controller.run()["build"]["phase"] == "planned"
    assert controller.now == 1000
