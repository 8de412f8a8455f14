# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""wheel_build: started, attached to, picked up, failed, killed; systemd is played here, the files are real."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible_collections.cpufleet.vllm.plugins.module_utils import _build_host

from tests.support.run_module import run_module
from tests.unit.test_build_log import FIXTURES, log
from tests.unit.test_wheel import LIBRARY, wheel

IDENTITY = "ab" * 32
WHEEL = "vllm-0.6.5+cpu-cp311-cp311-linux_x86_64.whl"


class Host:
    """A build folder, and the systemd that would run the build."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.dest = folder / "build", folder / "wheels"
        self.folder.mkdir()
        self.active = False
        self.started: list[list[str]] = []
        self.refuse = self.kernel = ""
        self.systemd = "systemd 252 (252.39-1~deb12u1)\n+PAM"
        self.compiler = "g++ (Debian 12.2.0-14+deb12u1) 12.2.0"

    def run_command(self, command: list[str], **_options: Any) -> tuple[int, str, str]:
        if command == ["systemctl", "--version"]:
            return 0, self.systemd, ""
        if command[0] in ("journalctl", "dmesg"):
            return 0, self.kernel if command[0] == "journalctl" else "", ""
        if command[1:] in (["--version"], ["-VV"]):
            return 0, f"{self.compiler}\nCopyright\n", ""
        if command[0] == "systemctl":
            state = "active" if self.active else "inactive"
            return 0, f"ActiveState={state}\nMemoryCurrent={3 << 29 if self.active else '[not set]'}\n", ""
        assert command[0] == "systemd-run"
        if self.refuse:
            return 1, "", self.refuse
        self.started.append(command)
        self.active = True
        return 0, "", ""

    def prints(self, text: str) -> None:
        (self.folder / "build.log").write_text(text)

    def ends(self, status: int | None, built: bool = False) -> None:
        self.active = False
        if built:
            dist = self.folder / "dist"
            dist.mkdir(exist_ok=True)
            (dist / WHEEL).write_bytes(wheel(**{"vllm/_C.abi3.so": LIBRARY}))
        if status is not None:
            (self.folder / "status").write_text(f"{status}\n")

    def run(self, check: bool = False, **arguments: Any) -> dict[str, Any]:
        given = {
            "identity": IDENTITY,
            "source": str(self.folder / "source"),
            "folder": str(self.folder),
            "dest": str(self.dest),
            "python": "/venv/bin/python",
            "uv": "/tools/uv",
            "environment": {"MAX_JOBS": "2", "CXX": "/bin/sh"},
            "manifest": {"isa": ["avx2"]},
            **arguments,
        }
        return run_module("wheel_build", check=check, **given)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    here = Host(tmp_path)
    monkeypatch.setattr(AnsibleModule, "run_command", here.run_command)
    return here


def test_a_build_from_start_to_wheel(host: Host) -> None:
    first = host.run()
    assert (first["changed"], first["build"]["phase"], first["build"]["line"]) == (
        True,
        "running",
        "configuring, then the first steps",
    )
    (command,) = host.started
    assert f"--unit=cpufleet-build-{IDENTITY[:12]}.service" in command
    # Not on the command line, which everybody on the host can read: an index URL may hold a password.
    assert not [word for word in command if "MAX_JOBS" in word]
    environment = host.folder / "build.env"
    assert f"--property=EnvironmentFile={environment}" in command
    assert environment.read_text() == 'CCACHE_DISABLE="1"\nCXX="/bin/sh"\nMAX_JOBS="2"\n'
    assert environment.stat().st_mode & 0o777 == 0o600
    assert command[-7:] == [
        "--wheel",
        "--no-build-isolation",
        "--python",
        "/venv/bin/python",
        "--out-dir",
        str(host.folder / "dist"),
        str(host.folder / "source"),
    ]

    host.prints(log("done-0.6.5").partition("[5/8]")[0])
    second = host.run(attached=True)
    assert second["build"]["phase"] == "running"
    assert second["build"]["line"].startswith("4/8 50 % ETA ")
    assert second["build"]["line"].endswith(", 1.5 GiB")

    host.ends(0, built=True)
    third = host.run(attached=True)
    assert (third["changed"], third["build"]["phase"]) == (True, "done")
    assert third["build"]["requirements"]["glibc"] == "2.29"
    manifest = json.loads((host.dest / "manifest.json").read_text())
    assert (manifest["identity"], manifest["file"], manifest["isa"]) == (IDENTITY, WHEEL, ["avx2"])
    assert manifest["sha256"] == third["build"]["sha256"]
    assert not (host.folder / "dist").exists()

    again = host.run()
    assert (again["changed"], again["build"]) == (False, third["build"])
    assert manifest["retries"] == []
    assert again["diff"]["before"] == again["diff"]["after"]
    assert len(host.started) == 1


def test_a_call_that_waits_while_another_one_collects_finds_the_wheel(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.run()
    host.ends(0, built=True)
    others: list[dict[str, Any]] = []

    def meanwhile(_self: object, _seconds: int) -> None:
        monkeypatch.undo()
        monkeypatch.setattr(AnsibleModule, "run_command", host.run_command)
        others.append(host.run(attached=True, wait=0))

    monkeypatch.setattr(_build_host.Build, "wait", meanwhile)
    late = host.run(attached=True, wait=5)
    assert others[0]["build"]["phase"] == "done"
    assert late["build"] == others[0]["build"]


def test_a_wheel_of_the_stable_abi_is_tagged_for_every_python(host: Host) -> None:
    host.run(abi3=True)
    (command,) = host.started
    assert command[-2] == "--config-setting=--build-option=--py-limited-api=cp38"


def test_a_running_build_is_attached_to_and_not_started_twice(host: Host) -> None:
    host.run()
    assert host.run()["build"]["phase"] == "running"
    assert len(host.started) == 1


@pytest.mark.parametrize(
    ("name", "status", "kind"),
    [
        ("disk", 1, "disk"),
        ("compiler-floor", 1, "compiler"),
        ("network-cmake", 1, "network"),
        ("source", 1, "source"),
        ("ninja-resumed", 5, "unknown"),
        ("done-0.6.5", None, "killed"),
    ],
)
def test_a_failure_has_its_kind_and_names_the_log(host: Host, name: str, status: int | None, kind: str) -> None:
    host.run()
    host.prints(log(name))
    host.ends(status)
    failed = host.run(attached=True)
    assert (failed["failed"], failed["kind"], failed["log"]) == (True, kind, str(host.folder / "build.log"))
    assert failed["msg"].startswith("The build of vLLM failed, ")
    assert f"The whole log is {host.folder}/build.log on the host." in failed["msg"]
    assert len(host.started) == 1


def test_running_again_after_a_failure_starts_anew_and_keeps_the_old_log(host: Host) -> None:
    host.run()
    host.prints(log("source"))
    host.ends(1)
    assert host.run(attached=True)["failed"]
    again = host.run()
    assert (again["build"]["phase"], again["build"]["line"], len(host.started)) == (
        "running",
        "configuring, then the first steps",
        2,
    )
    assert (host.folder / "build.log.old").read_text() == log("source")
    assert not (host.folder / "status").exists()


def test_a_killed_build_is_started_again_and_says_so(host: Host) -> None:
    host.run()
    host.prints(log("ninja-interrupted"))
    host.ends(None)
    again = host.run(environment={"MAX_JOBS": "7"})
    assert again["build"]["phase"] == "running"
    assert again["build"]["note"].startswith("goes on where it stopped: the build ended without a status")
    assert len(host.started) == 2
    assert jobs_of(host) == "7"


def jobs_of(host: Host) -> str:
    """Return the jobs that the last start was given."""
    found = re.findall(r'^MAX_JOBS="(.*)"$', (host.folder / "build.env").read_text(), re.MULTILINE)
    return str(found[0])


def test_a_compiler_killed_for_want_of_memory_is_tried_once_with_half_the_jobs(host: Host) -> None:
    host.run(environment={"MAX_JOBS": "5"})
    host.prints(log("memory-killed"))
    host.ends(1)
    again = host.run(attached=True, environment={"MAX_JOBS": "5"})
    note = "goes on with 2 job(s) instead of 5: the compiler was killed for want of memory: g++: fatal error: "
    assert again["build"]["phase"] == "running"
    assert again["build"]["note"].startswith(note)
    assert (jobs_of(host), len(host.started)) == ("2", 2)
    # A person who attaches to it later is told too.
    assert host.run(environment={"MAX_JOBS": "5"})["build"]["note"].startswith(note)
    # A kill on the way does not bring the old number back.
    host.ends(None)
    host.prints("[1/5] x\n")
    assert host.run(environment={"MAX_JOBS": "5"})["build"]["phase"] == "running"
    assert jobs_of(host) == "2"
    host.ends(0, built=True)
    host.run(attached=True)
    manifest = json.loads((host.dest / "manifest.json").read_text())
    assert [(retry["kind"], retry["jobs"]) for retry in manifest["retries"]] == [("memory", 5)]


def test_a_second_want_of_memory_is_a_failure(host: Host) -> None:
    host.run()
    for _start in range(2):
        host.prints(log("memory-killed"))
        host.ends(1)
        result = host.run(attached=True)
    assert (result["failed"], result["kind"], len(result["retries"]), len(host.started)) == (True, "memory", 1, 2)
    assert result["msg"].startswith("The build of vLLM failed also with 1 job(s), the compiler was killed for want of")
    assert result["msg"].endswith("Add swap (swap_size), or use a larger host: there was one job already.")
    # Whoever adds memory and runs again starts with all jobs.
    assert host.run()["build"]["phase"] == "running"
    assert jobs_of(host) == "2"


def test_with_one_job_there_is_no_retry(host: Host) -> None:
    host.run(environment={"MAX_JOBS": "1"})
    host.prints(log("ninja-resumed"))
    host.ends(137)
    failed = host.run(attached=True, environment={"MAX_JOBS": "1"})
    assert (failed["failed"], failed["kind"], failed["retries"], len(host.started)) == (True, "memory", [], 1)


def test_a_builder_that_the_kernel_killed_while_nobody_watched_goes_on_with_half_the_jobs(host: Host) -> None:
    host.run()
    host.prints(log("ninja-interrupted"))
    host.ends(None)
    host.kernel = (FIXTURES / "kernel-limit.txt").read_text()
    assert host.run()["build"]["note"].startswith("goes on with 1 job(s) instead of 2: ")
    assert jobs_of(host) == "1"


def test_a_disk_is_told_with_its_filesystem(host: Host) -> None:
    host.run()
    host.prints(log("disk"))
    host.ends(1)
    assert re.search(r"small/x\.o.*; the filesystem at /\S* has [\d.]+ [MG]iB of ", host.run(attached=True)["msg"])


def configured(host: Host) -> Path:
    """Make what CMake and ninja leave, and return the folder of objects."""
    build = host.folder / "source" / "build" / "temp.linux-x86_64-cpython-311"
    for folder in (build, *(host.folder / "source/.deps" / name for name in ("x-src", "x-build", "x-subbuild"))):
        folder.mkdir(parents=True)
    (build / "CMakeCache.txt").write_text("")
    return build


@pytest.mark.parametrize("what", ["compiler", "torch", "nothing", "nobody knows"])
def test_a_tree_of_another_toolchain_is_made_anew(host: Host, what: str) -> None:
    packages = host.folder / "venv/lib/python3.11/site-packages"
    (packages / "torch-2.5.1+cpu.dist-info").mkdir(parents=True)
    python = str(host.folder / "venv/bin/python")
    host.run(python=python)
    build = configured(host)
    host.ends(None)
    if what == "compiler":
        host.compiler = "g++ (Debian 12.2.0-15) 12.2.0"
    elif what == "torch":
        (packages / "torch-2.5.1+cpu.dist-info").rename(packages / "torch-2.13.0+cpu.dist-info")
    elif what == "nobody knows":
        (host.folder / "toolchain.json").unlink()
    note = host.run(python=python)["build"]["note"]
    changed = what != "nothing"
    assert ("the build tree is made anew: " in note) is changed
    assert build.exists() is not changed
    assert sorted(path.name for path in (host.folder / "source/.deps").iterdir()) == (
        ["x-src"] if changed else ["x-build", "x-src", "x-subbuild"]
    )
    if what == "torch":
        assert "torch was torch-2.5.1+cpu.dist-info, is torch-2.13.0+cpu.dist-info" in note


def test_a_cache_that_cmake_refused_is_gone_at_the_next_start(host: Host) -> None:
    host.run()
    build = configured(host)
    host.prints(log("stale-cache"))
    host.ends(1)
    assert host.run(attached=True)["kind"] == "stale_cache"
    host.run()
    assert not build.exists()


def test_the_end_has_its_room_before_the_build_starts(host: Host) -> None:
    host.run()
    assert (host.folder / "status.part").stat().st_size == 4096


def test_the_compiler_cache_where_the_host_has_it(host: Host, tmp_path: Path) -> None:
    programs, folder = tmp_path / "bin", tmp_path / "cache/ccache"
    programs.mkdir()
    given = {"MAX_JOBS": "2", "PATH": str(programs)}
    host.run(environment=given, ccache_dir=str(folder))
    assert 'CCACHE_DISABLE="1"' in (host.folder / "build.env").read_text()
    host.ends(None)
    (programs / "ccache").write_text("#!/bin/sh\n")
    (programs / "ccache").chmod(0o755)
    host.run(environment=given, ccache_dir=str(folder), ccache_size="500M")
    told = (host.folder / "build.env").read_text().splitlines()
    assert f'CCACHE_DIR="{folder}"' in told
    assert 'CCACHE_MAXSIZE="500M"' in told
    assert f'CCACHE_BASEDIR="{host.folder.parent}"' in told
    assert folder.is_dir()
    (host.folder / "ccache.stats").write_text("direct_cache_hit\t5\npreprocessed_cache_hit\t1\ncache_miss\t2\n")
    host.ends(0, built=True)
    host.run(attached=True)
    manifest = json.loads((host.dest / "manifest.json").read_text())
    assert manifest["took"]["ccache"] == {"hits": 6, "misses": 2}


def test_a_limit_of_memory_is_one_of_the_unit(host: Host) -> None:
    host.run(memory_max="6G")
    assert "--property=MemoryMax=6G" in host.started[0]
    assert "--property=OOMPolicy=continue" in host.started[0]


def test_an_old_systemd_is_not_asked_for_what_it_does_not_know(host: Host) -> None:
    host.systemd = "systemd 239 (239-82.el8)"
    host.run()
    assert not [word for word in host.started[0] if "OOMPolicy" in word or "MemoryMax" in word]


def test_waiting_ends_with_the_build(host: Host) -> None:
    host.run()
    host.ends(0, built=True)
    started = time.monotonic()
    assert host.run(attached=True, wait=60)["build"]["phase"] == "done"
    assert time.monotonic() - started < 5


def test_a_wheel_with_other_bytes_is_built_again(host: Host) -> None:
    host.run()
    host.ends(0, built=True)
    host.run()
    (host.dest / WHEEL).write_bytes(b"rotten")
    again = host.run()
    assert (again.get("failed"), again["build"]["phase"], len(host.started)) == (None, "running", 2)
    host.ends(0, built=True)
    assert host.run(attached=True)["build"]["phase"] == "done"


def test_a_manifest_of_another_wheel_is_not_taken_for_this_one(host: Host) -> None:
    host.run()
    host.ends(0, built=True)
    host.run()
    other = host.run(identity="cd" * 32)
    assert other["build"]["phase"] == "running"


def test_a_build_that_left_no_wheel_fails_once_and_can_be_run_again(host: Host) -> None:
    host.run()
    host.ends(0)
    failed = host.run(attached=True)
    assert failed["msg"] == (
        f"The build left 0 wheels in {host.folder}/dist instead of one. Run again; the log is {host.folder}/build.log."
    )
    assert host.run()["build"]["phase"] == "running"


def test_a_wheel_of_an_earlier_build_does_not_stay_in_the_way(host: Host) -> None:
    (host.folder / "dist").mkdir()
    (host.folder / "dist" / "vllm-0.0.1-py3-none-any.whl").write_bytes(b"")
    host.run()
    host.ends(0, built=True)
    assert host.run(attached=True)["build"]["wheel"] == str(host.dest / WHEEL)


def test_killed_between_the_wheel_and_its_manifest_it_collects_again(host: Host) -> None:
    host.run()
    host.ends(0, built=True)
    host.dest.mkdir()
    shutil.copy(host.folder / "dist" / WHEEL, host.dest / WHEEL)
    assert host.run()["build"]["phase"] == "done"


def test_check_mode_starts_nothing(host: Host) -> None:
    planned = host.run(check=True)
    assert (planned["changed"], planned["build"]["phase"], host.started) == (True, "planned", [])
    assert list(host.folder.iterdir()) == []


def test_a_host_without_systemd_is_told(host: Host) -> None:
    host.refuse = "System has not been booted with systemd as init system (PID 1). Can't operate."
    assert host.run()["msg"] == (
        f"Cannot start the build as cpufleet-build-{IDENTITY[:12]}.service: System has not been booted with systemd as "
        "init system (PID 1). Can't operate. The host must run systemd; check systemctl --failed on it."
    )
