# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Digest manifests of folders, with a memory of what was read before."""

from __future__ import annotations

import os
from typing import Any

from ansible_collections.cpufleet.vllm.plugins.module_utils._io import read_json, sha256_file, write_json

__all__ = ("digest_files", "list_files", "remember_digest")


def list_files(folder: str) -> dict[str, os.stat_result]:
    """Return every regular file below ``folder`` by relative name; hidden files and folders are left out."""
    found = {}
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in names:
            path = os.path.join(parent, name)
            if os.path.isfile(path) and not name.startswith("."):
                found[os.path.relpath(path, folder)] = os.stat(path)
    return found


def digest_files(folder: str, files: dict[str, os.stat_result], memory: str) -> list[dict[str, Any]]:
    """Return name, size and sha256 of ``files`` (names relative to ``folder``), sorted by name.

    Digests are remembered in the file ``memory`` ("" for none) and used again while size, modification time and inode
    stay the same.
    """
    known = read_json(memory, default={}) if memory else {}
    entries, remembered = [], {}
    for name, status in sorted(files.items()):
        mark = _mark(status)
        old = known.get(name, {})
        value = old["sha256"] if old.get("mark") == mark else sha256_file(os.path.join(folder, name))
        entries.append({"name": name, "size": status.st_size, "sha256": value})
        remembered[name] = {"mark": mark, "sha256": value}
    if memory and remembered != known:
        os.makedirs(os.path.dirname(memory), exist_ok=True)
        write_json(memory, remembered, 0o600)
    return entries


def remember_digest(folder: str, name: str, sha256: str, memory: str) -> None:
    """Put the digest of a file that was just verified into the file ``memory``, so that it is not read again."""
    known = read_json(memory, default={})
    mark = _mark(os.stat(os.path.join(folder, name)))
    os.makedirs(os.path.dirname(memory), exist_ok=True)
    write_json(memory, {**known, name: {"mark": mark, "sha256": sha256}}, 0o600)


def _mark(status: os.stat_result) -> list[int]:
    return [status.st_size, status.st_mtime_ns, status.st_ino]
