# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Identities: digests over everything that went into a wheel, a release or a deployment."""

from __future__ import annotations

import hashlib
import json
from typing import Any

__all__ = ("deployment_id", "digest", "release_id", "wheel_identity")

WHEEL_INPUTS = frozenset(
    {
        "vllm_version",
        "source_sha256",
        "edits",
        "isa",
        "python_tag",
        "torch",
        "compiler",
        "onednn",
        "flags",
    }
)


def digest(document: Any) -> str:
    """Return the hex SHA-256 of ``document`` as canonical JSON (sorted keys, no spaces)."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def wheel_identity(inputs: dict[str, Any]) -> str:
    """Return the identity of a wheel: the digest of all that goes in. Raises ValueError on a missing or foreign key."""
    missing, foreign = sorted(WHEEL_INPUTS - set(inputs)), sorted(set(inputs) - WHEEL_INPUTS)
    if missing or foreign:
        raise ValueError(f"wheel identity: missing inputs {missing}, unknown inputs {foreign}")
    return digest(inputs)


def release_id(version: str, identity: str, lock_sha256: str) -> str:
    """Return ``<vllm version>-<12 hex digits>`` over the wheel's identity and the lock."""
    return f"{version}-{digest([identity, lock_sha256])[:12]}"


def deployment_id(release: str, model_sha256: str, settings: dict[str, Any]) -> str:
    """Return ``<12 hex digits>`` over release, model manifest and settings."""
    return digest([release, model_sha256, settings])[:12]
