# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What may not be committed: hosts of package indexes, paths of the machine that it was written on, linked folders."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from scripts.lib import caller

# In parts, so that this file does not name them either.
INDEX_HOSTS = (
    ("pypi", "org"),
    ("pythonhosted", "org"),
    ("deb", "debian", "org"),
    ("security", "debian", "org"),
    ("archive", "ubuntu", "com"),
    ("security", "ubuntu", "com"),
    ("registry", "npmjs", "org"),
)
HOST = re.compile("|".join(rf"\b{'[.]'.join(parts)}\b" for parts in INDEX_HOSTS))
SHORTEST_PATH = 6  # "/opt" and the like say nothing about a machine


def tracked(repository: Path) -> list[str]:
    """Return the files that git tracks or would track."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=True)
    return sorted({name for name in done.stdout.split("\0") if name and (repository / name).exists()})


def machine_paths(repository: Path, settings: caller.Caller) -> list[str]:
    """Return paths that say where this was written: the checkout and the caller's wheel folder."""
    paths = {str(repository), settings.wheels}
    return sorted(path for path in paths if len(path) >= SHORTEST_PATH)


def problems_in(name: str, text: str, paths: Sequence[str]) -> Iterable[str]:
    """Yield what is wrong with the file ``name`` that holds ``text``."""
    for number, line in enumerate(text.splitlines(), start=1):
        if HOST.search(line):
            yield f"{name}:{number}: names the host of a package index; take it from the caller's configuration"
        for path in paths:
            if re.search(rf"{re.escape(path)}(?![\w-])", line):
                yield f"{name}:{number}: names {path}, a path of this machine"


def check(repository: Path) -> list[str]:
    """Return every problem in the repository."""
    problems = []
    paths = machine_paths(repository, caller.read_caller())
    for name in tracked(repository):
        file = repository / name
        if file.is_symlink() and file.is_dir():
            problems.append(f"{name}: links to a folder, which ansible-test rejects")
        elif file.is_file():
            problems += problems_in(name, file.read_bytes().decode("utf-8", "replace"), paths)
    return problems
