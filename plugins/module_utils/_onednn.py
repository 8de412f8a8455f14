# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Another oneDNN than a vLLM tree would fetch: where it is, which version, and the digest of its bytes."""

from __future__ import annotations

import hashlib
import re
from typing import Any, Iterable

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError

__all__ = ("as_git", "described", "folder_digest", "onednn_version")

REPOSITORY = re.compile(r"(?:(?:https?|ssh|git|file)://|[\w.-]+@[\w.-]+:)")
VERSION = re.compile(r"set\s*\(\s*PROJECT_VERSION\s+\"?([\d.]+)\"?\s*\)", re.IGNORECASE)


def as_git(source: str) -> dict[str, Any]:
    """Return the description of a git address with an optional ``#tag``; {} where ``source`` is a path."""
    if not REPOSITORY.match(source):
        return {}
    url, _mark, tag = source.partition("#")
    return {"kind": "git", "url": url, "tag": tag, "path": "", "version": "", "sha256": ""}


def onednn_version(cmake: str, path: str) -> str:
    """Return the version that oneDNN's top CMakeLists.txt sets."""
    match = VERSION.search(cmake)
    if not match:
        raise CpufleetError(
            f"{path} is no source of oneDNN: its CMakeLists.txt sets no PROJECT_VERSION",
            "Point vllm_source_build_onednn at an unpacked oneDNN source, at its archive, or at a git address",
            path=path,
        )
    return match[1]


def folder_digest(files: Iterable[tuple[str, str]]) -> str:
    """Return one digest over (relative path, SHA-256) pairs, whatever their order."""
    text = "".join(f"{digest}  {name}\n" for name, digest in sorted(files))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def described(kind: str, path: str, version: str, sha256: str) -> dict[str, Any]:
    """Return the description of a folder or an archive."""
    return {"kind": kind, "url": "", "tag": "", "path": path, "version": version, "sha256": sha256}
