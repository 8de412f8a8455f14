# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The service's environment as the role's own tasks make it here: libraries that are there, threads as timed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
ALLOCATOR = "libtcmalloc_minimal.so.4"
OPENMP = "libiomp5.so"
CPUS = os.sched_getaffinity(0)


def environment(folder: Path, allocator: str = "", **model: Any) -> dict[str, str]:
    """Return the service's environment after the role has looked at this machine; it changes nothing outside."""
    planned = {"engine": "vllm", "preload": [], "environment": {}, "threads": 2, **model}
    facts: dict[str, Any] = {
        "plan_result": {"model": planned, "edits": []},
        "plan_host_facts": {"cpu": {"usable_cpus": 2}, "allocator": allocator},
        "torch_cpu_release": {"venv": str(folder / "venv")},
        "model_serve_calibrate": (folder / "venv/bin/python").exists(),
        "model_serve_journal_max": "",
        "ansible_python_interpreter": sys.executable,
    }
    role = {"name": "cpufleet.vllm.model_serve", "tasks_from": "host", "public": True}
    content = "{{ __model_serve_environment | to_json }}"
    tasks = [
        {"ansible.builtin.include_role": role},
        {"ansible.builtin.copy": {"content": content, "dest": str(folder / "found.json"), "mode": "0600"}},
    ]
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "vars": facts, "tasks": tasks}
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    command = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", "localhost,", str(folder / "play.yml")]
    given = {**os.environ, "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY, env=given)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, str] = json.loads((folder / "found.json").read_text())
    return found


@pytest.mark.parametrize(
    ("there", "loaded"),
    [
        ((), []),
        ((OPENMP, ALLOCATOR), [ALLOCATOR, OPENMP]),
    ],
    ids=["none", "both"],
)
def test_only_what_is_there_is_loaded_first(tmp_path: Path, there: tuple[str, ...], loaded: list[str]) -> None:
    places = {ALLOCATOR: tmp_path / "lib" / ALLOCATOR, OPENMP: tmp_path / "venv" / "lib" / OPENMP}
    for name, place in places.items():
        place.parent.mkdir(parents=True)
        if name in there:
            place.with_name(f"{name}.real").write_bytes(b"")
            place.symlink_to(f"{name}.real")
    # A plan of yesterday may want a library that is gone.
    allocator = str(places[ALLOCATOR]) if ALLOCATOR in there else ""
    found = environment(tmp_path, allocator, preload=[str(places[ALLOCATOR]), OPENMP])
    assert found.get("LD_PRELOAD", "") == ":".join(str(places[name]) for name in loaded)


@pytest.mark.skipif(len(CPUS) < 2, reason="this machine has one CPU")
@pytest.mark.parametrize(("bound", "told"), [("0-1", str(min(CPUS))), ("nobind", "nobind")])
def test_fewer_threads_are_told_and_bound_where_the_plan_binds(tmp_path: Path, bound: str, told: str) -> None:
    python = tmp_path / "venv/bin/python"
    python.parent.mkdir(parents=True)
    rates = {"rates": {"read": {"1": 9.0, "2": 9.0}, "multiply": {"1": 9.0, "2": 9.0}}, "others": 0}
    python.write_text(f"#!{sys.executable}\nprint({json.dumps(rates)!r})\n")
    python.chmod(0o755)
    found = environment(tmp_path, environment={"OMP_NUM_THREADS": "2", "VLLM_CPU_OMP_THREADS_BIND": bound})
    assert (found["OMP_NUM_THREADS"], found["VLLM_CPU_OMP_THREADS_BIND"]) == ("1", told)
