# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""What a depot serves: which names may stand in it, and the index that tells hosts and planners what is there."""

from __future__ import annotations

import re
from typing import Any, Iterable

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError

__all__ = ("KINDS", "check_name", "depot_lacks", "index_of", "manifest_kind", "stale_files")

KINDS = ("wheels", "locks", "models", "bundles")
# What needs no escaping in an address and no thought in a shell. Hidden files are not served.
PART = re.compile(r"[A-Za-z0-9_+][A-Za-z0-9_.+~-]*")
MANIFEST = re.compile(r"(wheels|locks|bundles)/([^/]+)/manifest\.json|(models)/([^/]+)\.json")
DIGEST = re.compile(r"[0-9a-f]{64}")


def check_name(name: str) -> str:
    """Return ``name``, relative to what is served; raise CpufleetError where it leads elsewhere or cannot be served."""
    if not name or not all(PART.fullmatch(part) for part in name.split("/")):
        raise CpufleetError(
            f"Cannot publish {name!r}: it is no relative name of plain letters, digits and the characters _ . + ~ -",
            "Rename the file or folder",
            name=name,
        )
    return name


def check_digest(name: str, sha256: str) -> None:
    """Raise CpufleetError unless ``sha256`` is a digest."""
    if not DIGEST.fullmatch(sha256):
        raise CpufleetError(f"Cannot publish {name}: {sha256!r} is no SHA-256", "Give its 64 hex digits")


def manifest_kind(path: str) -> tuple[str, str]:
    """Return kind and name of what the manifest at ``path``, relative to what is served, describes; else ("", "")."""
    match = MANIFEST.fullmatch(path)
    if not match:
        return "", ""
    return (match[1], match[2]) if match[1] else (match[3], match[4])


def index_of(documents: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the depot's index, by kind and name, from the manifests by relative path.

    Of a model only what identifies it: its own manifest lists every file.
    """
    index: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
    for path, document in sorted(documents.items()):
        kind, name = manifest_kind(path)
        if kind and isinstance(document, dict) and document:
            short = {"sha256": document.get("sha256", ""), "folder": document.get("folder", "")}
            index[kind][name] = short if kind == "models" else document
    return index


def stale_files(wanted: Iterable[dict[str, Any]], there: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the entries of ``wanted`` (name, sha256) that are not among those that are ``there``."""
    found = {entry["name"]: entry["sha256"] for entry in there}
    stale = []
    for entry in wanted:
        check_digest(check_name(entry["name"]), entry["sha256"])
        if found.get(entry["name"]) != entry["sha256"]:
            stale.append(entry)
    return stale


def depot_lacks(depot: dict[str, Any], stored: dict[str, Any], fleet: dict[str, Any]) -> dict[str, Any]:
    """Return manifest by short identity of the wheels that hosts of ``fleet`` are to take and ``depot`` lacks."""
    taken = {plan["wheel"]["identity"][:12] for plan in fleet.values() if plan["wheel"]["source"] in ("store", "given")}
    wheels = stored["wheels"]
    return {short: wheels[short] for short in sorted(taken) if short in wheels and short not in depot["wheels"]}
