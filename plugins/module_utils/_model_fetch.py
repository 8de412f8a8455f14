# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""What a download of a model still has to fetch, and whether there is room for it."""

from __future__ import annotations

import os
from typing import Any, Mapping, Sequence
from urllib.parse import urlsplit

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._sizes import MIB, human

__all__ = ("PART", "by_last", "check_entries", "check_space", "free_bytes", "still_missing", "still_to_come")

PART = ".part"
# Others write, too, while a download takes its time.
RESERVE = 64 * MIB


def check_entries(files: Sequence[dict[str, Any]], urls: Mapping[str, Any]) -> None:
    """Raise CpufleetError for a file that has no address or would leave the model's folder."""
    for entry in files:
        name = entry["name"]
        if not urls.get(name):
            raise CpufleetError(f"Cannot download {name}: urls has no address for it", "Look the model up again")
        if name.startswith("/") or ".." in name.split("/"):
            raise CpufleetError(f"Refused to download {name!r}: it lies outside of the model", "Use another source")


def still_missing(wanted: Sequence[dict[str, Any]], found: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the entries of the manifest that are not ``found`` (name to SHA-256); the small ones first."""
    return sorted(
        (entry for entry in wanted if found.get(entry["name"]) != entry["sha256"]), key=lambda entry: entry["size"]
    )


def still_to_come(missing: Sequence[dict[str, Any]], sizes: Mapping[str, int]) -> int:
    """Return the bytes to come; ``sizes`` are those of all files there, also of begun ones."""
    return sum(max(0, entry["size"] - sizes.get(entry["name"] + PART, 0)) for entry in missing)


def by_last(urls: Sequence[str], last: str) -> list[str]:
    """Return ``urls`` with those of the host first that served the last file."""
    return sorted(urls, key=lambda url: urlsplit(url)[:2] != urlsplit(last)[:2])


def free_bytes(path: str) -> int:
    """Return the bytes that are free for everyone at ``path`` or the next folder above that is there."""
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


def check_space(folder: str, needed: int, free: int, what: str) -> None:
    """Raise CpufleetError where ``needed`` bytes more do not fit into ``folder``."""
    if needed > 0 and needed + RESERVE > free:
        raise CpufleetError(
            f"Cannot download {what} to {folder}: {human(needed)} are to come, the filesystem has {human(free)} free, "
            f"and {human(RESERVE)} stay free",
            "Free space there or use a larger disk; nothing was downloaded, and what is there already is kept",
            path=folder,
            needed_bytes=needed,
            free_bytes=free,
        )
