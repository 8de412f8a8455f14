# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""0.6.5 from a git repository by site.yml, the first mirror stale and the line of the second cut twice, to an answer.

About 10 minutes on 2 cores.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.lib import bench, image
from tests.full.test_builds import Case, variables
from tests.support.git_server import GitServer, make_repository, serving
from tests.support.trees import copy_tree, tree

HOST = os.environ.get("CPUFLEET_HOST_PREFIX", "cpufleet") + "-git"
CASE = Case("I0", "0.6.5", "_C.abi3.so")


@pytest.fixture
def host() -> Iterator[str]:
    started = bench.start_docker()
    image.ensure(bench.cache(), bench.as_root)
    subprocess.run([sys.executable, "scripts/make_models.py", "smollm2"], cwd=bench.REPOSITORY, check=True)
    bench.start_host(HOST)
    yield HOST
    bench.stop_host(HOST)
    if started:
        bench.stop_docker()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    make_repository(tree(CASE.version), tmp_path / "served/vllm.git", "v0.6.5")
    make_repository(copy_tree(CASE.version, tmp_path / "old", ("setup.py",)), tmp_path / "served/stale.git", "v0.6.4")
    with serving(tmp_path / "served") as one:
        one.cuts = 2
        yield one


@pytest.mark.full
def test_wheel_from_git_is_a_cpu_wheel_and_answers(host: str, server: GitServer, tmp_path: Path) -> None:
    given = {
        **variables(CASE),
        "vllm_source_build_source": "git",
        "vllm_source_build_git_urls": [server.url("stale.git"), server.url("vllm.git")],
        # Nothing of an earlier run: neither the commit nor the wheel.
        "plan_cache": str(tmp_path / "cache"),
        "vllm_wheel_store": str(tmp_path / "store"),
    }
    inventory, report, log = tmp_path / "inventory.json", tmp_path / "report", bench.cache() / "build-git.log"
    inventory.write_text(json.dumps({"all": {"children": {"vllm_hosts": {"hosts": {host: given}}}}}))
    command = ["ansible-playbook", "site.yml", "-i", str(inventory), "-e", f"model_serve_report={report}"]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    with log.open("w", encoding="utf-8") as stream:
        done = subprocess.run(
            command, cwd=bench.REPOSITORY, env=environment, stdout=stream, stderr=subprocess.STDOUT, check=False
        )
    assert done.returncode == 0, f"{log}:\n" + log.read_text(encoding="utf-8")[-6000:]
    assert server.was_cut == 2
    assert "Paris" in json.loads(Path(f"{report}.{host}.json").read_text())["answer"]
    installed = manifest(host, "current")
    release = manifest(host, f"releases/{installed['release']}")
    assert Path(release["wheel_file"]).name.startswith("vllm-0.6.5+cpu-")
    assert release["source"]["url"] == server.url("vllm.git")
    assert platform(host, installed["release"], inventory) == "CpuPlatform"


def manifest(host: str, path: str) -> dict[str, str]:
    """Return a manifest of the host."""
    return dict(json.loads(bench.run("docker", "exec", host, "cat", f"/opt/vllm/{path}/manifest.json").stdout))


def platform(host: str, release: str, inventory: Path) -> str:
    """Return what the installed vLLM makes of the machine."""
    python = f"python=/opt/vllm/releases/{release}/venv/bin/python"
    command = [str(Path(sys.executable).parent / "ansible"), host, "-i", str(inventory)]
    command += ["-m", "cpufleet.vllm.platform_info", "-a", python]
    environment = {**os.environ, "ANSIBLE_CALLBACK_RESULT_FORMAT": "json"}
    done = subprocess.run(command, cwd=bench.REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: str = json.loads(done.stdout[done.stdout.index("{") :])["platform"]["class"]
    return found
