# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""llama_cpp_build: what it starts, puts into the release, says of a failure; systemd is played, the files are real."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.basic import AnsibleModule

from tests.support.run_module import run_module
from tests.unit.test_modules_wheel_build import IDENTITY, Host


class ServerHost(Host):
    """A host that builds llama-server."""

    def ends(self, status: int | None, built: bool = False) -> None:
        super().ends(status)
        if built:
            (self.folder / "build/bin").mkdir(parents=True, exist_ok=True)
            (self.folder / "build/bin/llama-server").write_bytes(Path(sys.executable).resolve().read_bytes())

    def run(self, check: bool = False, **arguments: Any) -> dict[str, Any]:
        given = {
            "identity": IDENTITY,
            "source": str(self.folder / "source"),
            "folder": str(self.folder),
            "dest": str(self.dest),
            "options": {"GGML_NATIVE": "OFF", "BUILD_SHARED_LIBS": "OFF"},
            "environment": {"MAX_JOBS": "2", "CXX": "/bin/sh"},
            "manifest": {"engine": "llama_cpp"},
            **arguments,
        }
        return run_module("llama_cpp_build", check=check, **given)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServerHost:
    here = ServerHost(tmp_path)
    monkeypatch.setattr(AnsibleModule, "run_command", here.run_command)
    return here


def test_a_build_from_start_to_release(host: ServerHost) -> None:
    first = host.run()
    assert (first["changed"], first["build"]["phase"]) == (True, "running")
    (command,) = host.started
    script = host.folder / "compile.sh"
    assert command[-4:] == [
        str(script),
        str(host.folder / "source"),
        "-DBUILD_SHARED_LIBS=OFF",
        "-DGGML_NATIVE=OFF",
    ]
    # systemd would put values of its own in place of what begins with a dollar sign.
    assert not [word for word in command if "$" in word]
    assert 'ninja -C build -j "$MAX_JOBS" llama-server' in script.read_text()
    host.ends(0, built=True)
    done = host.run(attached=True)
    server = host.dest / "bin/llama-server"
    assert done["build"]["server"] == str(server)
    assert server.stat().st_mode & 0o777 == 0o755
    manifest = json.loads((host.dest / "manifest.json").read_text())
    assert (manifest["engine"], manifest["file"], manifest["identity"]) == ("llama_cpp", "bin/llama-server", IDENTITY)
    assert manifest["requires"]["machine"]
    assert manifest["requires"]["glibc"]
    assert host.run()["changed"] is False
    assert len(host.started) == 1


def test_a_server_that_was_changed_since_is_built_again(host: ServerHost) -> None:
    host.run()
    host.ends(0, built=True)
    host.run(attached=True)
    (host.dest / "bin/llama-server").write_bytes(b"\x7fELF and not much more")
    assert host.run()["build"]["phase"] == "running"


def test_a_compiler_killed_for_want_of_memory_is_tried_once_with_half_the_jobs(host: ServerHost) -> None:
    killed = "g++: fatal error: Killed signal terminated program cc1plus"
    host.run()
    host.prints(killed)
    host.ends(1)
    again = host.run(attached=True)
    assert "goes on with 1 job(s) instead of 2" in again["build"]["note"]
    host.prints(killed)
    host.ends(1)
    failed = host.run(attached=True)
    assert failed["msg"].startswith("The build of llama-server failed also with 1 job(s), the compiler was killed")


def test_a_failure_names_the_variables_of_this_role(host: ServerHost) -> None:
    host.run()
    host.prints("x.cpp:1:1: error: 'y' was not declared\nninja: build stopped: subcommand failed.")
    host.ends(1)
    failed = host.run(attached=True)
    assert failed["kind"] == "source"
    host.run()
    host.prints("g++: fatal error: Killed signal terminated program cc1plus")
    host.ends(1)
    text = host.run(attached=True, environment={"MAX_JOBS": "1"})
    assert "vllm_source_build" not in json.dumps(text)


def test_another_compiler_makes_the_tree_anew(host: ServerHost) -> None:
    host.run()
    tree = host.folder / "build"
    tree.mkdir()
    (tree / "CMakeCache.txt").write_text("")
    host.ends(None)
    host.compiler = "g++ (Debian 14.2.0-19) 14.2.0"
    note = host.run()["build"]["note"]
    assert "the build tree is made anew: CXX was" in note
    assert not tree.exists()


def test_check_mode_starts_nothing(host: ServerHost) -> None:
    assert host.run(check=True)["build"]["phase"] == "planned"
    assert host.started == []
