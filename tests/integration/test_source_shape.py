# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What setuptools makes of a tree without its repository: the version and the files of a wheel, short of compiling.

setup.py and setuptools-scm are real. torch, which setup.py only asks for its kind here, is a stand-in.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.support.git_server import git, make_repository
from tests.support.run_module import run_module
from tests.support.trees import _certificates, _index_arguments, _uv, sdist, tree

# With a file that is no Python and in no list of setup.py: the older release leaves all such files out.
VERSIONS = {"0.6.5": "", "0.8.5": "vllm/distributed/kv_transfer/README.md"}
TORCH = {
    "__init__.py": "from . import version\n",
    "version.py": "cuda = hip = None\n",
    "utils/__init__.py": "",
    "utils/cpp_extension.py": "CUDA_HOME = ROCM_HOME = None\n",
}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an environment with the build's own tools."""
    folder = tmp_path_factory.mktemp("python") / "venv"
    environment = {**os.environ, **_certificates()}
    subprocess.run([_uv(), "venv", "--quiet", "--python", sys.executable, str(folder)], check=True, env=environment)
    wanted = ["setuptools<81", "setuptools-scm>=8", "packaging", "wheel"]
    command = [_uv(), "pip", "install", "--quiet", "--python", str(folder / "bin/python"), *_index_arguments(), *wanted]
    subprocess.run(command, check=True, env=environment)
    (site,) = folder.glob("lib/python*/site-packages")
    for name, text in TORCH.items():
        path = site / "torch" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "bin/python"


def bare(version: str, folder: Path) -> Path:
    """Make what a code host packs."""
    make_repository(tree(version), folder / "vllm.git", f"v{version}")
    path = folder / "vllm.tar.gz"
    git(folder / "vllm.git", "archive", "--prefix=vllm/", f"--output={path}", f"v{version}")
    return path


def setup(python: Path, archive: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run setup.py of the unpacked archive, as a build for the CPU does."""
    with tarfile.open(archive) as content:
        content.extractall(folder, filter="data")
    (root,) = folder.iterdir()
    environment = {**os.environ, "VLLM_TARGET_DEVICE": "cpu"}
    command = [str(python), "setup.py", "--quiet", *words]
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)


def files(python: Path, archive: Path, folder: Path) -> set[str]:
    """Return what a wheel of the archive holds beside its libraries."""
    out = folder.parent / f"{folder.name}.out"
    done = setup(python, archive, folder, "build_py", "--build-lib", str(out))
    assert done.returncode == 0, done.stderr
    return {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}


@pytest.mark.parametrize("version", VERSIONS)
def test_wheel_has_the_version_and_the_files_of_the_source_distribution(
    version: str, python: Path, tmp_path: Path
) -> None:
    given = {"version": version, "cache": tmp_path / "cache", "source": "archive", "path": bare(version, tmp_path)}
    packed = Path(run_module("source_fetch", **given)["source_archive"]["path"])
    told = setup(python, packed, tmp_path / "version", "--version")
    assert told.stdout.split()[-1] == f"{version}+cpu", told.stderr
    found = files(python, packed, tmp_path / "packed")
    assert found == files(python, sdist(version), tmp_path / "sdist")
    assert VERSIONS[version] in {*found, ""}


def test_bare_tree_has_no_version(python: Path, tmp_path: Path) -> None:
    """What the above is for."""
    done = setup(python, bare("0.6.5", tmp_path), tmp_path / "bare", "--version")
    assert done.returncode != 0
    assert "unable to detect version" in done.stderr
