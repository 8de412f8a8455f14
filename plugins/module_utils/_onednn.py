# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Another oneDNN or Arm Compute Library than a vLLM tree would fetch: where, which version, the digest of its bytes."""

from __future__ import annotations

import hashlib
import re
from typing import Any, Iterable

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError

__all__ = ("LIBRARIES", "as_address", "described", "folder_digest", "library_version")

REPOSITORY = re.compile(r"(?:(?:https?|ssh|git|file)://|[\w.-]+@[\w.-]+:)")
ARCHIVE = re.compile(r"https?://[^?#]*\.(?:tar\.\w+|tgz|txz)$")
# Name, how its top CMakeLists.txt tells the version, and what that is called.
LIBRARIES = {
    "onednn": (
        "oneDNN",
        re.compile(r"set\s*\(\s*PROJECT_VERSION\s+\"?([\d.]+)\"?\s*\)", re.IGNORECASE),
        "PROJECT_VERSION",
    ),
    "acl": (
        "the Arm Compute Library",
        re.compile(r"project\s*\(\s*ArmCompute\s+VERSION\s+([\d.]+)", re.IGNORECASE),
        "project(ArmCompute VERSION ...)",
    ),
}


def as_address(source: str, sha256: str, library: str) -> dict[str, Any]:
    """Return the description of an archive's address or of a git address with an optional ``#tag``.

    {} where ``source`` is a path. Nobody is asked.
    """
    if ARCHIVE.match(source):
        if not sha256:
            raise CpufleetError(
                f"Cannot verify {source}: an archive that is downloaded needs a digest",
                f"Set vllm_source_build_{library}_sha256 to its SHA-256",
            )
        return {**described("archive", "", "", sha256), "url": source}
    if not REPOSITORY.match(source):
        return {}
    url, _mark, tag = source.partition("#")
    return {**described("git", "", "", ""), "url": url, "tag": tag}


def library_version(cmake: str, path: str, library: str) -> str:
    """Return the version that the library's top CMakeLists.txt sets."""
    name, version, called = LIBRARIES[library]
    match = version.search(cmake)
    if not match:
        raise CpufleetError(
            f"{path} is no source of {name}: its CMakeLists.txt sets no {called}",
            f"Point vllm_source_build_{library} at an unpacked source of it, at its archive, or at a git address",
            path=path,
        )
    return match[1]


def folder_digest(files: Iterable[tuple[str, str]]) -> str:
    """Return one digest over (relative path, SHA-256) pairs, whatever their order."""
    text = "".join(f"{digest}  {name}\n" for name, digest in sorted(files))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def described(kind: str, path: str, version: str, sha256: str) -> dict[str, Any]:
    """Return the description of a source."""
    return {"kind": kind, "url": "", "tag": "", "path": path, "version": version, "sha256": sha256}
