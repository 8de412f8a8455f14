# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The built tarball: what is in it, and that it works where there is no clone."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from scripts.lib import bench

DEVELOPMENT = (
    "tests",
    "molecule",
    "scripts",
    "benchmarks",
    ".ci",
    ".venv",
    ".ansible",
    ".config",
    "pyproject.toml",
    "site.yml",
)


def ansible(*command: str, cwd: Path, collections: Path) -> str:
    """Run an Ansible command that sees only ``collections``; return what it printed."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")},
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "ANSIBLE_COLLECTIONS_PATH": str(collections),
        "ANSIBLE_COLLECTIONS_SCAN_SYS_PATH": "false",
        "HOME": str(cwd),
    }
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def tarball(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the collection from what git has."""
    folder = tmp_path_factory.mktemp("build")
    source = folder / "source"
    source.mkdir()
    names = subprocess.run(["git", "ls-files", "-z"], cwd=bench.REPOSITORY, capture_output=True, check=True).stdout
    archive = subprocess.run(
        ["tar", "--null", "--files-from=-", "-c"], cwd=bench.REPOSITORY, input=names, capture_output=True, check=True
    )
    subprocess.run(["tar", "-x"], cwd=source, input=archive.stdout, check=True)
    ansible("ansible-galaxy", "collection", "build", "--output-path", str(folder), cwd=source, collections=folder)
    return next(folder.glob("cpufleet-vllm-*.tar.gz"))


def test_the_tarball_holds_the_product_and_nothing_of_the_workshop(tarball: Path) -> None:
    with tarfile.open(tarball) as archive:
        names = archive.getnames()
    assert {name.split("/")[0] for name in names}.isdisjoint(DEVELOPMENT)
    for wanted in (
        "README.md",
        "LICENSE",
        "playbooks/site.yml",
        "plugins/modules/host_info.py",
        "inventories/aliyun.ini",
    ):
        assert wanted in names
    for role in ("swap", "toolchain", "torch_cpu", "vllm_source_build", "model_serve"):
        assert f"roles/{role}/tasks/main.yml" in names


def test_the_installed_collection_finds_its_playbooks_roles_and_modules(tarball: Path, tmp_path: Path) -> None:
    collections = tmp_path / "collections"
    ansible(
        *("ansible-galaxy", "collection", "install", "--offline", "--no-deps", "-p", str(collections), str(tarball)),
        cwd=tmp_path,
        collections=collections,
    )
    tasks = ansible(
        *("ansible-playbook", "cpufleet.vllm.site", "--list-tasks", "-i", "host,", "-e", "vllm_hosts=all"),
        cwd=tmp_path,
        collections=collections,
    )
    assert "cpufleet.vllm.model_serve : Write the deployment" in tasks
    found = ansible(*("ansible", "localhost", "-m", "cpufleet.vllm.host_info"), cwd=tmp_path, collections=collections)
    assert "isa_class" in found


def test_nothing_depends_on_another_collection() -> None:
    galaxy = (bench.REPOSITORY / "galaxy.yml").read_text(encoding="utf-8")
    assert "dependencies: {}" in galaxy
    names = subprocess.run(
        [
            "git",
            "grep",
            "-lE",
            r"\bcommunity\.[a-z]+\.|\bansible\.(posix|netcommon)\.",
            "--",
            "roles",
            "playbooks",
            "plugins",
        ],
        cwd=bench.REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    assert names.split() == []
