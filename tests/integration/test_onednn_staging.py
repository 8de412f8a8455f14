# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Another oneDNN, from every kind of place, ends as one folder that the build is told of in the tree's own way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.run_module import run_module

REPOSITORY = Path(__file__).resolve().parents[2]
CMAKE = 'set(PROJECT_VERSION "3.7.2")\n'
PLAY = [
    {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "tasks": [
            {
                "name": "Bring oneDNN",
                "ansible.builtin.include_role": {
                    "name": "cpufleet.vllm.vllm_source_build",
                    "tasks_from": "onednn",
                    "public": True,
                },
            },
            {
                "name": "Keep what the build is told",
                "ansible.builtin.copy": {
                    "content": "{{ __vllm_source_build_onednn_handed_over | to_json }}",
                    "dest": "{{ told }}",
                    "mode": "0600",
                },
            },
        ],
    }
]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "from" / "oneDNN-3.7.2"
    (root / "src").mkdir(parents=True)
    (root / "CMakeLists.txt").write_text(CMAKE)
    (root / "src/a.cpp").write_text("int a;\n")
    return root


def packed(source: Path) -> Path:
    path = source.parent / "onednn.tar.xz"
    with tarfile.open(path, "w:xz") as archive:
        archive.add(source, arcname=source.name)
    return path


def repository(source: Path, tag: str) -> str:
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"], ["tag", tag]):
        identity = ["-c", "user.name=x", "-c", "user.email=x@example.com"]
        subprocess.run(["git", "-C", str(source), *identity, *words], check=True)
    return f"file://{source}"


def stage(tmp_path: Path, given: dict[str, Any], location: str, override: str, record: str = "") -> dict[str, Any]:
    """Run the role's tasks as the build does; return what the build would be told, and how much changed."""
    for name in ("root/build/0123456789ab", "cache"):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
    told = tmp_path / "told.json"
    told.unlink(missing_ok=True)
    variables = {
        "ansible_python_interpreter": sys.executable,
        "vllm_source_build_root": str(tmp_path / "root"),
        "vllm_source_build_onednn_location": location,
        "plan_archive": {"cache": str(tmp_path / "cache")},
        "plan_result": {
            "wheel": {"identity": "0123456789ab" + "0" * 52},
            "onednn": {"used": True, "record": record, "override": override, "given": given},
        },
        "torch_cpu_release": {"download": {}},
        "told": str(told),
    }
    play = tmp_path / "play.json"
    play.write_text(json.dumps(PLAY))
    command = [str(Path(sys.executable).parent / "ansible-playbook"), str(play), "-e", json.dumps(variables)]
    environment = {**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg")}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {**json.loads(told.read_text()), "changed": done.stdout.split("changed=")[-1].split()[0]}


@pytest.mark.parametrize("location", ["controller", "host"])
@pytest.mark.parametrize("kind", ["folder", "archive"])
def test_a_folder_or_an_archive(kind: str, location: str, source: Path, tmp_path: Path) -> None:
    path = source if kind == "folder" else packed(source)
    given = run_module("onednn_info", source=str(path))["onednn"]
    told = stage(tmp_path, given, location, "X3")
    folder = Path(told["FETCHCONTENT_SOURCE_DIR_ONEDNN"])
    assert folder == (source if (kind, location) == ("folder", "host") else tmp_path / "root/build/0123456789ab/onednn")
    assert (folder / "CMakeLists.txt").read_text() == CMAKE
    assert (folder / "src/a.cpp").exists()
    assert stage(tmp_path, given, location, "X3")["changed"] == "1"  # the test's own file


def test_git_by_its_tag_and_the_toolchain_file_of_old_releases(source: Path, tmp_path: Path) -> None:
    given = run_module("onednn_info", source=repository(source, "v3.9"))["onednn"]
    told = stage(tmp_path, given, "controller", "X2", record="v3.9")
    folder = tmp_path / "root/build/0123456789ab/onednn"
    assert (folder / "CMakeLists.txt").read_text() == CMAKE
    assert Path(told["CMAKE_TOOLCHAIN_FILE"]).read_text() == (
        f'set(FETCHCONTENT_SOURCE_DIR_ONEDNN "{folder}" CACHE PATH "")\n'
    )
