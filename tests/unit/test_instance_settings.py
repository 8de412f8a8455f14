# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the role model_serve makes of the settings of an instance, through Ansible itself: which stands above which."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
INSTANCES = {
    "chat": {"model": "/srv/chat", "port": 9001, "api_key": "sesame-of-chat"},
    "embed": {"model": "/srv/embed", "gate_expect": "Rome"},
}
SEEN = (
    *("model_serve_unit", "model_serve_port", "model_serve_model", "model_serve_gate_expect", "__model_serve_home"),
    *("__model_serve_state", "__model_serve_user_home", "__model_serve_watchdog", "__model_serve_neighbours"),
    *("__model_serve_shared_host", "__model_serve_report_of"),
)


def look(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the check of every instance on this machine and write down what it has seen; nothing else is done."""
    see = folder / "see.yml"
    content = "{{ {" + ", ".join(f"'{name}': {name}" for name in SEEN) + "} | to_json }}"
    tasks: list[dict[str, Any]] = [
        {"ansible.builtin.include_tasks": str(REPOSITORY / "roles/model_serve/tasks/preflight.yml")},
        {"ansible.builtin.copy": {"content": content, "dest": f"{folder}/{{{{ __model_serve_instance }}}}.json"}},
    ]
    see.write_text(yaml.safe_dump(tasks))
    role = {"name": "cpufleet.vllm.model_serve", "tasks_from": "instance"}
    given = {"__model_serve_instance": "{{ item }}", "__model_serve_do": str(see)}
    play = {
        **{"hosts": "localhost", "connection": "local", "gather_facts": False},
        "vars": {"model_serve_instances": INSTANCES, "model_serve_gate_expect": "Paris"},
        "tasks": [{"ansible.builtin.include_role": role, "vars": given, "loop": list(INSTANCES)}],
    }
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    command = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", "localhost,", str(folder / "play.yml")]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg")}
    environment["ANSIBLE_PYTHON_INTERPRETER"] = sys.executable
    return subprocess.run(
        [*command, *words], capture_output=True, text=True, check=False, cwd=REPOSITORY, env=environment
    )


def test_every_instance_has_its_own_settings_and_else_the_common_ones(tmp_path: Path) -> None:
    done = look(tmp_path, "-vvv")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "sesame-of-chat" not in done.stdout + done.stderr
    chat, embed = (json.loads((tmp_path / f"{name}.json").read_text()) for name in INSTANCES)
    assert chat == {
        "model_serve_unit": "vllm-chat",
        "model_serve_port": 9001,
        "model_serve_model": "/srv/chat",
        "model_serve_gate_expect": "Paris",
        "__model_serve_home": "/opt/vllm/instances/chat",
        "__model_serve_state": "/var/lib/vllm-chat",
        "__model_serve_user_home": "/var/lib/vllm",
        "__model_serve_watchdog": "vllm-chat-watchdog.service",
        "__model_serve_neighbours": ["vllm-embed"],
        "__model_serve_shared_host": {"GOMP_SPINCOUNT": "1000"},
        "__model_serve_report_of": "localhost.chat",
    }
    assert [embed[name] for name in SEEN[:4]] == ["vllm-embed", 8000, "/srv/embed", "Rome"]


def test_a_setting_on_the_command_line_that_would_stand_above_is_refused(tmp_path: Path) -> None:
    done = look(tmp_path, "-e", json.dumps({"model_serve_gate_expect": "Rome", "model_serve_port": 8000}))
    assert done.returncode != 0
    said = " ".join(done.stdout.split())
    assert "model_serve_port is given with -e, which stands above the settings of the instance chat." in said
    assert not (tmp_path / "chat.json").exists()
