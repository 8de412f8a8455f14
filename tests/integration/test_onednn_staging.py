# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""oneDNN and the Arm Compute Library, from every kind of place, end as folders that the build is told of."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._io import sha256_file

from tests.support import tiny_onednn
from tests.support.file_server import serving_files
from tests.support.git_server import dead_port, make_repository, serving
from tests.support.run_module import run_module

REPOSITORY = Path(__file__).resolve().parents[2]
# What the host's downloads are told already.
PROXY = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "http.version", "GIT_CONFIG_VALUE_0": "HTTP/1.1"}
CMAKE = tiny_onednn.LIBRARY["CMakeLists.txt"] + 'set(PROJECT_VERSION "3.7.2")\n'
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
                    "content": "{{ __vllm_source_build_environment | to_json }}",
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
    tiny_onednn.write(root, tiny_onednn.LIBRARY)
    (root / "CMakeLists.txt").write_text(CMAKE)
    (root / "src/a.cpp").write_text("int a;\n")
    return root


def packed(source: Path) -> Path:
    path = source.parent / "onednn.tar.xz"
    with tarfile.open(path, "w:xz") as archive:
        archive.add(source, arcname=source.name)
    return path


def given(path: str | Path, library: str = "onednn", sha256: str = "") -> dict[str, Any]:
    return dict(run_module("onednn_info", source=str(path), library=library, sha256=sha256)["onednn"])


def chosen(ref: str = "", override: str = "X3", **more: Any) -> dict[str, Any]:
    return {"used": True, "record": "", "override": override, "given": {}, "repository": "", "ref": ref, **more}


def stage(tmp_path: Path, onednn: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Run the role's tasks as the build does; return what the build would be told, and how much changed."""
    for name in ("root/build/0123456789ab", "cache"):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
    told = tmp_path / "told.json"
    told.unlink(missing_ok=True)
    variables = {
        "ansible_python_interpreter": sys.executable,
        "vllm_source_build_root": str(tmp_path / "root"),
        "plan_host_facts": {"arch": "x86_64"},
        "plan_archive": {"cache": str(tmp_path / "cache")},
        "plan_result": {
            "wheel": {"identity": "0123456789ab" + "0" * 52, "inputs": {"flags": {}}},
            "compiler": {"cc": "gcc", "cxx": "g++"},
            "jobs": 1,
            "onednn": {"acl": {**chosen(), "used": False}, **onednn},
        },
        "torch_cpu_release": {"download": PROXY},
        "told": str(told),
        **more,
    }
    play = tmp_path / "play.json"
    play.write_text(json.dumps(PLAY))
    command = [str(Path(sys.executable).parent / "ansible-playbook"), str(play), "-e", json.dumps(variables)]
    environment = {**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg")}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {**json.loads(told.read_text()), "changed": done.stdout.split("changed=")[-1].split()[0]}


def built(tmp_path: Path, library: str = "onednn") -> Path:
    return tmp_path / "root/build/0123456789ab" / library


def check_what_is_compiled(toolchain: Path) -> None:
    """CMake is told of a list that is there, by scripts that are there."""
    set_to = dict(re.findall(r'^set\((\w+) "(.*)"\)$', toolchain.read_text(), re.MULTILINE))
    assert Path(set_to["CPUFLEET_ONEDNN_SOURCES"]).read_text().split() == list(tiny_onednn.NEEDED)
    assert Path(set_to["CMAKE_PROJECT_oneDNN_INCLUDE"]).is_file()
    assert (Path(set_to["CPUFLEET_ONEDNN_SCRIPTS"]) / "check.cmake").is_file()
    assert len(set_to["CPUFLEET_ONEDNN_DIGEST"]) == 64


@pytest.mark.parametrize("location", ["controller", "host"])
@pytest.mark.parametrize("kind", ["folder", "archive", "address"])
def test_a_folder_or_an_archive(kind: str, location: str, source: Path, tmp_path: Path) -> None:
    more: dict[str, Any] = {"vllm_source_build_onednn_location": location}
    with serving_files() as server:
        if kind == "address":
            server.files["onednn.tar.xz"] = packed(source).read_bytes()
            server.faults = ["cut"]
            found = given(server.url("onednn.tar.xz"), sha256=sha256_file(str(packed(source))))
        else:
            found = given(source if kind == "folder" else packed(source))
        told = stage(tmp_path, chosen(given=found), **more)
        folder = Path(told["FETCHCONTENT_SOURCE_DIR_ONEDNN"])
        check_what_is_compiled(Path(told["CMAKE_TOOLCHAIN_FILE"]))
        assert folder == (source if (kind, location) == ("folder", "host") else built(tmp_path))
        assert (folder / "CMakeLists.txt").read_text() == CMAKE
        assert (folder / "src/a.cpp").exists()
        assert stage(tmp_path, chosen(given=found), **more)["changed"] == "1"  # the test's own file
        assert len(server.asked) == (2 if kind == "address" else 0)


@pytest.mark.parametrize("named", [True, False])
def test_git_by_its_tag_and_the_toolchain_file_of_old_releases(named: bool, source: Path, tmp_path: Path) -> None:
    make_repository(source, tmp_path / "served/onednn.git", "v3.9")
    with serving(tmp_path / "served") as server:
        server.cuts = 1
        url = server.url("onednn.git")
        # Without a word of the user it is the repository that the release names.
        one = chosen("v3.9", "X2", **({"given": given(url)} if named else {"repository": url}))
        told = stage(tmp_path, one)
        assert server.was_cut == 1
    assert (built(tmp_path) / "CMakeLists.txt").read_text() == CMAKE
    assert not (built(tmp_path) / ".git").exists()
    handed = Path(told["CMAKE_TOOLCHAIN_FILE"]).read_text()
    assert f'set(FETCHCONTENT_SOURCE_DIR_ONEDNN "{built(tmp_path)}" CACHE PATH "")\n' in handed


def test_commit_from_a_mirror_and_the_arm_compute_library(source: Path, tmp_path: Path) -> None:
    commit = make_repository(source, tmp_path / "served/onednn.git", "v3.9")
    with serving(tmp_path / "served") as server:
        acl = {**chosen("v52.6.0"), "repository": "https://code.invalid/arm/onednn.git"}
        make_repository(source, tmp_path / "served/arm/onednn.git", "v52.6.0")
        told = stage(
            tmp_path,
            chosen(commit, repository=f"http://127.0.0.1:{dead_port()}/onednn.git", acl=acl),
            vllm_source_build_onednn_mirrors=[server.url("onednn.git")],
            vllm_source_build_git_instead_of={"https://code.invalid/": server.url("")},
        )
    assert told["ACL_ROOT_DIR"] == str(built(tmp_path, "acl"))
    # Whatever else the build clones comes from there too.
    assert {key: value for key, value in told.items() if "GIT" in key} == {
        **PROXY,
        "GIT_CONFIG_COUNT": "2",
        "GIT_CONFIG_KEY_1": f"url.{server.url('')}.insteadOf",
        "GIT_CONFIG_VALUE_1": "https://code.invalid/",
        "CARGO_NET_GIT_FETCH_WITH_CLI": "true",
    }
    assert (built(tmp_path, "acl") / "CMakeLists.txt").read_text() == CMAKE
    assert told["FETCHCONTENT_SOURCE_DIR_ONEDNN"] == str(built(tmp_path))
    assert (built(tmp_path) / "src/a.cpp").exists()


def test_folder_of_the_arm_compute_library_is_not_built_in(source: Path, tmp_path: Path) -> None:
    (source / "CMakeLists.txt").write_text("project(ArmCompute VERSION 52.6.0)\n")
    acl = {**chosen("v52.6.0"), "given": given(source, "acl")}
    told = stage(tmp_path, {**chosen(), "used": False, "acl": acl}, vllm_source_build_acl_location="host")
    assert told["ACL_ROOT_DIR"] == str(built(tmp_path, "acl"))
    assert (built(tmp_path, "acl") / "src/a.cpp").exists()
