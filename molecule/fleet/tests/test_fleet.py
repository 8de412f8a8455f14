# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Four hosts, one wheel: counted on the hosts themselves, after the first builder was lost."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = "/opt/vllm"
# The lock, manifests, unit and settings.
RECEIVED_BESIDE = 1_000_000
MOLECULE = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
LOST: dict[str, Any] = json.loads((MOLECULE / "lost.json").read_text())
STORED = {
    path.parent.name: json.loads(path.read_text()) for path in (MOLECULE / "store/wheels").glob("*/manifest.json")
}


def release(host: Any) -> dict[str, Any]:
    """Return the manifest of the release that serves."""
    deployment = json.loads(host.file(f"{ROOT}/current/manifest.json").content_string)
    return json.loads(host.file(f"{ROOT}/releases/{deployment['release']}/manifest.json").content_string)


def all_hosts(root: str = ROOT) -> dict[str, int]:
    """Return the number of finished builds by host, over the whole fleet."""
    command = f"grep -l '^Successfully built' {root}/wheels/*/build.log {root}/build/*/build.log*"
    counts = {}
    for name in LOST["hosts"]:
        done = subprocess.run(
            ["docker", "exec", name, "sh", "-c", command], capture_output=True, text=True, check=False
        )
        counts[name] = len(done.stdout.splitlines())
    return counts


def test_the_builder_was_lost_in_the_middle_and_the_second_one_finished() -> None:
    assert LOST["compilers_when_it_died"] >= 1
    assert LOST["builder"].endswith("-old-strong")
    recap = {name.rpartition("fleet-")[2]: words for name, words in LOST["recap"].items()}
    # A container that is gone fails a task; a VM that is gone is unreachable.
    assert {"unreachable=1", "failed=1"} & set(recap["old-strong"])
    for name in ("old-weak", "new-strong", "new-weak"):
        assert "unreachable=0" in recap[name]
        assert "failed=0" in recap[name]


def test_exactly_one_build_was_finished_for_all_four() -> None:
    counts = {name.rpartition("fleet-")[2]: count for name, count in all_hosts().items()}
    assert counts == {"old-strong": 0, "old-weak": 1, "new-strong": 0, "new-weak": 0}


def test_two_newer_hosts_by_themselves_compile_once() -> None:
    counts = {name.rpartition("fleet-")[2]: count for name, count in all_hosts("/opt/newer").items()}
    assert counts == {"old-strong": 0, "old-weak": 0, "new-strong": 1, "new-weak": 0}


def test_every_host_has_the_same_wheel(host: Any) -> None:
    assert len(STORED) == 1
    ((short, manifest),) = STORED.items()
    assert host.file(f"{ROOT}/wheels/{short}/{manifest['file']}").sha256sum == manifest["sha256"]
    assert release(host)["wheel"] == manifest["identity"]
    assert manifest["isa"] == ["avx2"]
    assert manifest["file"].endswith("-cp38-abi3-linux_x86_64.whl")


def test_every_host_has_the_same_lock(host: Any) -> None:
    locks = [json.loads(path.read_text()) for path in (MOLECULE / "store/locks").glob("*/manifest.json")]
    assert [lock["sha256"] for lock in locks] == [release(host)["lock_sha256"]]
    assert host.file(release(host)["lock"]).sha256sum == locks[0]["sha256"]


def test_the_wheel_is_imported_and_detected(host: Any) -> None:
    python = f"{ROOT}/releases/{release(host)['id']}/venv/bin/python"
    script = "import vllm._C; from vllm.platforms import current_platform as p; print(type(p).__name__, p.device_type)"
    assert host.check_output(f"cd / && {python} -c %s", script).splitlines()[-1] == "CpuPlatform cpu"


def test_it_answers(host: Any) -> None:
    assert host.service("vllm").is_running
    key = host.file(f"{ROOT}/secrets/api_key").content_string.strip()
    body = json.dumps(
        {"model": "tiny-qwen2", "prompt": "one two", "temperature": 0, "max_tokens": 12, "ignore_eos": True}
    )
    client = (
        "import sys, urllib.request as u; body, key = sys.argv[1:]; "
        "head = {'Authorization': 'Bearer ' + key, 'Content-Type': 'application/json'}; "
        "r = u.Request('http://127.0.0.1:8000/v1/completions', body.encode(), head); "
        "print(u.urlopen(r, timeout=120).read().decode())"
    )
    answer = host.check_output("python3 -c %s %s %s", client, body, key)
    assert json.loads(answer)["usage"]["completion_tokens"] == 12


def test_a_host_that_only_received_has_no_build_set() -> None:
    # The other hosts have built, or had begun to.
    (name,) = [name for name in LOST["hosts"] if name.endswith("-new-weak")]
    query = ["docker", "exec", name, "dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n"]
    done = subprocess.run(query, capture_output=True, text=True, check=True)
    installed = {line.split()[0] for line in done.stdout.splitlines() if line.endswith(" installed")}
    assert "libgomp1" in installed
    assert not installed & {"g++", "gcc", "libnuma-dev"}


@pytest.mark.parametrize("what", ["wheel", "lock"])
def test_what_was_changed_in_the_store_is_refused(what: str) -> None:
    said = json.loads((MOLECULE / "tampered.json").read_text())[what]
    (recorded,) = [
        json.loads(path.read_text())["sha256"] for path in (MOLECULE / f"store/{what}s").glob("*/manifest.json")
    ]
    assert said.startswith(f"The {what} {MOLECULE}/tampered/{what}s/")
    assert recorded in said
    assert "changed" in said
    assert "Remove the folder" in said


def test_a_host_that_only_received_got_the_wheel_and_little_else_through_the_controller() -> None:
    (wheel,) = (MOLECULE / "store/wheels").glob("*/*.whl")
    sent = {name.rpartition("fleet-")[2]: size for name, size in LOST["bytes"]["sent"].items()}
    assert LOST["bytes"]["unseen"] == []
    for name in ("new-strong", "new-weak"):
        assert wheel.stat().st_size < sent[name] <= wheel.stat().st_size + RECEIVED_BESIDE


def test_the_floors_of_the_wheel_do_not_come_from_the_builders_libc() -> None:
    (newer,) = [json.loads(path.read_text()) for path in (MOLECULE / "newer/wheels").glob("*/manifest.json")]
    ((_short, older),) = STORED.items()
    assert newer["sha256"] != older["sha256"]
    assert newer["requires"]["glibc"] == older["requires"]["glibc"]
    assert tuple(map(int, newer["requires"]["glibc"].split("."))) <= (2, 36)
