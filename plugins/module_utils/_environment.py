# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Virtual environments: what is installed into one, by which command, and what its torch must be."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from ansible_collections.cpufleet.vllm.plugins.module_utils._identity import digest

__all__ = ("EnvironmentRequest", "install_arguments", "lock_subset", "torch_problem")


@dataclasses.dataclass(frozen=True)
class EnvironmentRequest:
    """One stage of an environment; ``files`` holds the digests of the files that go in."""

    stage: str
    python: str
    packages: tuple[str, ...]
    files: tuple[str, ...]
    only: tuple[str, ...]
    find_links: tuple[str, ...]
    index_urls: tuple[str, ...]

    def inputs(self) -> str:
        """Return the digest of what the stage is made from; where the files come from does not count."""
        return digest([self.stage, self.python, self.packages, self.files, self.only])


def install_arguments(request: EnvironmentRequest, python: str, lock: str) -> list[str]:
    """Return the installer's arguments; with a lock nothing outside it is installed."""
    uv = not python_is_installer(request)
    arguments = ["install", "--quiet"]
    if uv:
        arguments += ["--python", python]
    for place in request.find_links:
        arguments += ["--find-links", place]
    for url in request.index_urls:
        arguments += ["--extra-index-url", url]
    if uv and request.index_urls:
        arguments += ["--index-strategy", "unsafe-best-match"]
    if lock:
        return [*arguments, "--no-deps", "--require-hashes", "--requirement", lock]
    if request.packages and all(package.startswith("/") for package in request.packages):
        arguments += ["--no-deps"]
    return [*arguments, *request.packages]


def python_is_installer(request: EnvironmentRequest) -> bool:
    """Return whether the environment's own pip installs: only uv itself comes that way."""
    return len(request.packages) == 1 and re.match(r"uv\b", request.packages[0]) is not None


def lock_subset(lock: str, only: tuple[str, ...]) -> str:
    """Return the entries of ``lock`` for the packages in ``only`` (all entries when it is empty)."""
    if not only:
        return lock
    wanted, kept, keep = {normalize(name) for name in only}, [], False
    for line in lock.splitlines():
        match = re.match(r"([A-Za-z0-9._-]+)==", line)
        if match:
            keep = normalize(match[1]) in wanted
        if keep and not line.startswith("#"):
            kept.append(line)
    return "\n".join(kept) + "\n"


def normalize(name: str) -> str:
    """Return the package name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def torch_problem(found: dict[str, Any]) -> str:
    """Return why the probed torch is not a clean CPU build, or ""."""
    if found.get("cuda"):
        return f"torch {found['version']} was built for CUDA {found['cuda']}"
    if found.get("hip"):
        return f"torch {found['version']} was built for ROCm {found['hip']}"
    if found.get("nvidia"):
        return f"CUDA packages came with it: {', '.join(found['nvidia'])}"
    return ""
