# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""site.yml against hosts that cannot be served: refused in seconds, with what to do, and nothing touched.

The hosts are containers with a real limit each: a pretended /proc/cpuinfo, a small filesystem, a memory limit, a
distribution with another Python, a port that is taken. Check mode is run against one that lacks nothing.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scripts.lib import bench, image
from tests.support.file_server import serving_files
from tests.support.hub_server import publish, seven_billion

LIMIT_S = 10
PLAYBOOK = bench.REPOSITORY / "site.yml"
# What Ansible itself leaves: its temporary folders, and what a connection logs.
ANSIBLE_LEAVES = re.compile(r"^[AC] (?:/root(?:/\.ansible.*)?|/tmp|/var|/var/log.*|/run.*|/opt)$")
RECAP = re.compile(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.MULTILINE)


@dataclass
class Run:
    """One run of the playbook against one host."""

    output: str
    seconds: float
    changed: int
    failed: int


class Hosts:
    """Starts bare hosts for one test and removes them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: list[str] = []

    def start(self, *flags: str, system: str = "", command: tuple[str, ...] = ("sleep", "infinity")) -> str:
        """Start a host and return its name; without systemd unless ``command`` says so."""
        name = f"cpufleet-preflight-{os.getpid()}-{len(self.names)}"
        volumes = [word for volume in bench.volumes(name) for word in ("--volume", volume)]
        bench.run("docker", "run", "--detach", "--name", name, *volumes, *flags, system or image.name(), *command)
        self.names.append(name)
        return name

    def play(self, host: str, *arguments: str, **variables: Any) -> Run:
        """Run site.yml against ``host``."""
        settings = {
            **bench.host_variables(),
            "ansible_connection": "community.docker.docker",
            "vllm_isa_class": "avx2",
            "vllm_version": "0.6.5",
            "vllm_wheel_store": str(self.folder / "store"),
            "model_serve_model": str(bench.cache() / "models" / "tiny-qwen2"),
            **variables,
        }
        inventory = self.folder / f"{host}.json"
        inventory.write_text(json.dumps({"all": {"children": {"vllm_hosts": {"hosts": {host: settings}}}}}))
        environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "200"}
        started = time.monotonic()
        command = ["ansible-playbook", str(PLAYBOOK), "-i", str(inventory), *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=bench.REPOSITORY, env=environment
        )
        recap = {name: numbers for name, *numbers in RECAP.findall(done.stdout)}
        changed, _unreachable, failed = (int(number) for number in recap[host])
        return Run(" ".join((done.stdout + done.stderr).split()), time.monotonic() - started, changed, failed)

    def touched(self, host: str) -> list[str]:
        """Return what differs on the host's own filesystem from the image, Ansible's leavings apart."""
        lines = bench.run("docker", "diff", host).stdout.splitlines()
        return sorted(line for line in lines if not ANSIBLE_LEAVES.match(line))


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Give hosts that are removed after the test."""
    made = Hosts(tmp_path)
    yield made
    for name in made.names:
        bench.stop_host(name)


@pytest.fixture(scope="module", autouse=True)
def warm_source(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Fetch the source once: the ten seconds are those of the refusal, not of a download to the controller."""
    probe = Hosts(tmp_path_factory.mktemp("warm"))
    try:
        probe.play(probe.start(), "--tags", "plan", "--check")
    finally:
        for name in probe.names:
            bench.stop_host(name)


def refused(hosts: Hosts, host: str, pattern: str, **variables: Any) -> None:
    """Assert that the host is refused in time, with ``pattern`` in the words, and untouched."""
    before = hosts.touched(host)
    run = hosts.play(host, **variables)
    assert run.failed == 1, run.output
    assert re.search(pattern, run.output), run.output
    assert run.changed == 0
    assert hosts.touched(host) == before
    assert run.seconds < LIMIT_S, f"refused after {run.seconds:.1f} s"


def test_a_cpu_without_avx2(hosts: Hosts, tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(re.sub(r" (?:avx2|avx512\w+)\b", "", Path("/proc/cpuinfo").read_text()))
    host = hosts.start("--volume", f"{cpuinfo}:/proc/cpuinfo:ro")
    refused(hosts, host, r"cannot run vLLM: .*avx2.* Use a host whose CPU has AVX2", vllm_isa_class="auto")


def test_a_python_outside_the_range_and_no_way_to_get_one(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    newer = f"{image.BOOTSTRAPPED}:13"
    monkeypatch.setenv("CPUFLEET_IMAGE", newer)
    image.ensure(bench.cache(), bench.as_root)
    monkeypatch.delenv("CPUFLEET_IMAGE")
    host = hosts.start(system=newer)
    pattern = r"vLLM 0\.6\.5 needs Python >=3\.9 \(its CMake takes 3\.9, 3\.10, 3\.11, 3\.12\), the host has 3\.13\.\d+"
    refused(
        hosts,
        host,
        pattern + ".*choose a vllm_version that takes the one it has",
        toolchain_python="system",
    )


def test_too_little_disk(hosts: Hosts) -> None:
    host = hosts.start("--tmpfs", "/opt:size=1g")
    refused(
        hosts, host, r"the filesystem at /opt has 1\.0 GiB free but [\d.]+ GiB are needed for /opt/vllm\. Free space"
    )


def test_too_little_memory_for_the_build(hosts: Hosts) -> None:
    host = hosts.start("--memory", "512m", "--memory-swap", "512m")
    pattern = r"building vLLM 0\.6\.5 needs 1\.8 GiB for one compile job, the host has .*Raise swap_size"
    refused(hosts, host, pattern, swap_size="0")


def test_a_model_without_config(hosts: Hosts, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.safetensors").write_bytes(b"\0" * 64)
    refused(hosts, hosts.start(), r"has no readable config\.json\. Copy the whole model", model_serve_model=str(model))


def test_a_model_on_a_hub_that_does_not_fit(hosts: Hosts) -> None:
    with serving_files() as hub:
        publish(hub, seven_billion(), "org/Large")
        host = hosts.start("--memory", "3400m", "--memory-swap", "3400m")
        refused(
            hosts,
            host,
            r"Large on vllm needs [\d.]+ GiB \(14\.2 GiB of weights, .*this host has 3\.3 GiB.* On this host engine",
            model_serve_model="org/Large",
            model_serve_model_source="huggingface",
            model_serve_model_endpoints=[hub.url("")[:-1]],
        )
        # Told from the list of files, the configuration and the heads.
        assert 0 < hub.sent < 1 << 20


def test_a_port_that_something_else_uses(hosts: Hosts) -> None:
    host = hosts.start(command=("python3", "-m", "http.server", "8000"))
    refused(hosts, host, r"port 8000 on 0\.0\.0\.0 is in use by python3 \(pid 1\)\. Stop it, or set model_serve_port")


def test_everything_wrong_is_told_at_once(hosts: Hosts) -> None:
    host = hosts.start("--tmpfs", "/opt:size=1g", command=("python3", "-m", "http.server", "8000"))
    run = hosts.play(host)
    assert "is in use by" in run.output
    assert "are needed for /opt/vllm" in run.output


def test_check_mode_on_a_bare_host_fails_nowhere_and_changes_nothing(hosts: Hosts) -> None:
    host = hosts.start(*bench.SYSTEMD_FLAGS, command=("/lib/systemd/systemd",))
    bench.wait_for_host(host)
    bench.run("docker", "exec", host, "touch", "/mark")
    run = hosts.play(host, "--check", "--diff", swap_file=f"/var/swap/{host}", swap_size="64M")
    assert run.failed == 0, run.output
    assert run.changed > 5, "check mode says that nothing would be done"
    # The package manager's lists and caches are part of the comparison: not even they may change.
    places = ("/etc", "/opt", "/usr", "/var/lib")
    newer = ("-newer", "/mark", "-not", "-path", "/var/lib/systemd/*")
    assert bench.run("docker", "exec", host, "find", *places, *newer).stdout == ""
    assert not bench.swap_folder(host).joinpath(host).exists()
