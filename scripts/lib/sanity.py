# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ansible-test sanity and units on a copy of the collection, with the oldest core it names and the newest there is."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from scripts.lib import bench, guards, venvs

CORES = {"oldest": "ansible-core>=2.17,<2.18", "newest": "ansible-core>=2.17"}
UNIT_PACKAGES = (
    "cyclonedx-python-lib>=11.6,<12",
    "mock",
    "pytest>=8",
    "pytest-forked",
    "pytest-mock",
    "pytest-xdist",
    "pyyaml",
    "uv",
    "vermin>=1.6",
)
# ansible-test downloads a script that puts pip into its own venvs; Python carries one.
GET_PIP = "import ensurepip\nensurepip.bootstrap()\n"


def steps(repository: Path, cache: Path) -> Iterator[tuple[str, list[str], Path]]:
    """Yield name, command and folder of each step."""
    require_shellcheck()
    python = ".".join(platform.python_version_tuple()[:2])
    folder = copy_collection(repository, cache / "sanity")
    for label, core in CORES.items():
        interpreter = venvs.ensure(cache / f"venvs/core-{label}", [[core, *UNIT_PACKAGES]])
        offer_get_pip(interpreter.parent.parent, Path.home() / ".ansible/test/cache")
        ansible_test = str(interpreter.parent / "ansible-test")
        yield (
            f"ansible-test sanity, {label} core",
            [ansible_test, "sanity", "--requirements", "--python", python, "--color", "no"],
            folder,
        )
        yield (
            f"ansible-test units, {label} core",
            [ansible_test, "units", "--python", python, "--color", "no"],
            folder,
        )


def require_shellcheck() -> None:
    """Install shellcheck, without which ansible-test leaves its test of shell scripts out with a mere warning."""
    if not shutil.which("shellcheck"):
        command = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", "shellcheck"]
        subprocess.run(bench.as_root("env", "DEBIAN_FRONTEND=noninteractive", *command), check=True)


def copy_collection(repository: Path, root: Path) -> Path:
    """Copy the files that git knows to a real path that ends as a collection's does; a link would not do."""
    folder = root / "ansible_collections/cpufleet/vllm"
    shutil.rmtree(folder, ignore_errors=True)
    for name in guards.tracked(repository):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(repository / name, target, follow_symlinks=False)
    # ansible-test asks git which files there are.
    for command in (["init", "--quiet"], ["add", "--all"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


def offer_get_pip(venv: Path, cache: Path) -> None:
    """Put a pip bootstrap script where ansible-test of ``venv`` looks for the one it would download."""
    cache.mkdir(parents=True, exist_ok=True)
    for source in venv.glob("lib/python*/site-packages/ansible_test/_internal/**/*.py"):
        for version in re.findall(r"pip(?:_version)?['\"]?\s*[=:]\s*['\"](\d[\d.]+)['\"]", source.read_text("utf-8")):
            script = cache / f"get_pip_{version.replace('.', '_')}.py"
            if not script.exists():
                script.write_text(GET_PIP, encoding="ascii")
