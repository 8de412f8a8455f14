# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Locks: the dependencies of one release and platform, resolved once into hashes by uv."""

from __future__ import annotations

import dataclasses
import datetime
import re
from typing import Iterable
from urllib.parse import unquote

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._identity import digest

__all__ = (
    "LockRequest",
    "compile_arguments",
    "complete_hashes",
    "locked_versions",
    "override_lines",
    "recorded_inputs",
    "resolve_date",
    "with_inputs",
)

MARK = "# cpufleet inputs: "
UNHASHED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)([^\n\\]*)$(?!\n +--hash)", re.MULTILINE)
LINK = re.compile(r"""href\s*=\s*["']?(?:[^"'>\s]*/)?([^"'>\s/#]+\.(?:whl|tar\.gz))#sha256=([0-9a-f]{64})""")
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)
# Days after the release's own upload in which the fixes of its dependencies still count as "of its date".
GRACE_DAYS = 7


@dataclasses.dataclass(frozen=True)
class LockRequest:
    """What a lock is resolved from; all of it goes into the lock's recorded inputs."""

    requirements: tuple[str, ...]
    overrides: tuple[str, ...]
    exclude: tuple[str, ...]
    python_version: str
    exclude_newer: str
    undated: tuple[str, ...]
    find_links: tuple[str, ...]
    index_urls: tuple[str, ...]

    def inputs(self) -> str:
        """Return the digest of the request. Places are left out: the same files from a mirror give the same lock."""
        places = ("find_links", "index_urls")
        return digest({key: value for key, value in dataclasses.asdict(self).items() if key not in places})


def resolve_date(upload_time: str) -> str:
    """Return the day until which dependencies may have been published, from an ISO upload time; "" when unknown."""
    if not upload_time:
        return ""
    try:
        day = datetime.datetime.strptime(upload_time[:10], "%Y-%m-%d").date()
    except ValueError as error:
        raise CpufleetError(
            f"Cannot read the release date {upload_time!r}", "Set torch_cpu_resolve_as_of to YYYY-MM-DD"
        ) from error
    return (day + datetime.timedelta(days=GRACE_DAYS)).isoformat()


def compile_arguments(request: LockRequest, requirements: str, overrides: str, output: str) -> list[str]:
    """Return the arguments of ``uv`` that resolve the files ``requirements`` and ``overrides`` into ``output``."""
    arguments = ["pip", "compile", "--quiet", "--generate-hashes", "--no-header", "--no-annotate"]
    arguments += ["--python-version", request.python_version, "--override", overrides, "--output-file", output]
    if request.exclude_newer:
        arguments += ["--exclude-newer", request.exclude_newer]
        # An index without upload times (PyTorch's own) would otherwise offer nothing.
        for name in request.undated:
            arguments += ["--exclude-newer-package", f"{name}=false"]
    for place in request.find_links:
        arguments += ["--find-links", place]
    for url in request.index_urls:
        arguments += ["--index", url]
    if request.index_urls:
        # uv stops at the first index that knows a name; PyTorch's index carries old copies of common tools.
        arguments += ["--index-strategy", "unsafe-best-match"]
    return [*arguments, requirements]


def override_lines(request: LockRequest) -> list[str]:
    """Return the override file's lines; an excluded package is overridden by a marker that never holds."""
    return [*request.overrides, *(f'{name} ; python_version < "3"' for name in request.exclude)]


def with_inputs(lock: str, request: LockRequest) -> str:
    """Return ``lock`` headed by the digest of what it was resolved from."""
    return f"{MARK}{request.inputs()}\n{lock}"


def recorded_inputs(lock: str) -> str:
    """Return the digest that ``lock`` was resolved from; "" where the text does not say."""
    first = lock.split("\n", 1)[0]
    return first[len(MARK) :].strip() if first.startswith(MARK) else ""


def locked_versions(lock: str) -> dict[str, str]:
    """Return version by normalized name."""
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in PINNED.findall(lock)}


def complete_hashes(lock: str, pages: Iterable[str]) -> str:
    """Return ``lock`` with the digests that uv leaves out: those that a page of links itself gives with its links."""
    files = [(unquote(name), digest_) for page in pages for name, digest_ in LINK.findall(page)]

    def completed(match: re.Match[str]) -> str:
        name, version, rest = match.groups()
        beginning = f"{re.sub(r'[-_.]+', '_', name).lower()}-{version.lower()}"
        found = {
            value
            for file, value in files
            if re.match(rf"{re.escape(beginning)}(?:-|\.tar)", re.sub(r"^[^-]+", fold, file).lower())
        }
        if not found:
            raise CpufleetError(
                f"The lock has no digest for {name} {version}",
                "Name a page whose links end in #sha256=, or a folder of wheels, in torch_cpu_find_links",
            )
        hashes = " \\\n".join(f"    --hash=sha256:{value}" for value in sorted(found))
        return f"{name}=={version}{rest} \\\n{hashes}"

    return UNHASHED.sub(completed, lock)


def fold(match: re.Match[str]) -> str:
    """Return the first part of a file's name as wheels write it."""
    return re.sub(r"[-_.]+", "_", match[0])
