# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""0.6.5 from a git repository by site.yml, the first mirror stale and the line of the second cut twice, to an answer.

About 10 minutes on 2 cores.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.lib import bench
from tests.full.test_builds import Case, variables
from tests.support import plays, running
from tests.support.git_server import GitServer, make_repository, serving
from tests.support.trees import copy_tree, tree

HOST = os.environ.get("CPUFLEET_HOST_PREFIX", "cpufleet") + "-git"
CASE = Case("I0", "0.6.5", "_C.abi3.so")


@pytest.fixture
def host() -> Iterator[str]:
    """Start a bare host; one that is there already is used and kept."""
    with running.bare_host(HOST) as name:
        yield name


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
    inventory = tmp_path / "inventory.json"
    _changed, answer = plays.serve(host, given, inventory, bench.cache() / "build-git.log")
    assert server.was_cut == 2
    assert "Paris" in answer["answer"]
    installed = plays.manifest(host, "current")
    release = plays.manifest(host, f"releases/{installed['release']}")
    assert Path(release["wheel_file"]).name.startswith("vllm-0.6.5+cpu-")
    assert release["source"]["url"] == server.url("vllm.git")
    assert plays.platform_of(host, installed["release"], inventory)["class"] == "CpuPlatform"
