# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Which deployment served before, and which ones nobody needs any more."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

__all__ = ("INSTANCES", "SERVED", "Deployment", "Surplus", "before", "next_served", "read_served", "surplus", "without")

# Below the root: the deployments that served, oldest first, each once.
SERVED = "served.json"
# Below the root: a folder for each of several services, with deployments and ``current`` of its own.
INSTANCES = "instances"
REMEMBERED = 20
PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*$")
MODEL = re.compile(r"[0-9a-f]{12}$")


@dataclass(frozen=True)
class Deployment:
    """What its manifest says of a deployment, and when that was written."""

    id: str
    release: str
    model: str  # the first 12 digits of its digest, by which the host keeps it
    written: float

    @staticmethod
    def of(manifest: Mapping[str, Any], written: float) -> Deployment:
        """Return the deployment of a manifest."""
        model = str(manifest.get("model_sha256", ""))[:12]
        return Deployment(str(manifest.get("id", "")), str(manifest.get("release", "")), model, written)


@dataclass(frozen=True)
class Surplus:
    """What can be removed: deployments, and the releases and models that only they needed."""

    deployments: tuple[str, ...]
    releases: tuple[str, ...]
    models: tuple[str, ...]


def read_served(document: Any) -> list[str]:
    """Return the deployments that served, from the file's document; empty for anything else."""
    found = document.get("served") if isinstance(document, dict) else None
    return [str(name) for name in found] if isinstance(found, list) else []


def next_served(served: Sequence[str], current: str, target: str) -> list[str]:
    """Return what has served once ``target`` follows ``current``; going back forgets what was gone back from."""
    known = list(served)
    if current in known:
        known = known[: known.index(current) + 1]
    elif current:
        known.append(current)
    if target in known:
        return known[: known.index(target) + 1]
    return [*known, target][-REMEMBERED:]


def before(current: str, served: Sequence[str], deployments: Collection[Deployment]) -> str:
    """Return the deployment that served before ``current``; empty where none did.

    Where that was not recorded yet, it is the newest one that is older.
    """
    written = {deployment.id: deployment.written for deployment in deployments}
    if served:
        earlier = list(served[: served.index(current)]) if current in served else list(served)
        there = [name for name in earlier if name in written and name != current]
        return there[-1] if there else ""
    older = [name for name in written if name != current and written[name] <= written.get(current, -1.0)]
    return max(older, key=lambda name: written[name], default="")


def surplus(
    deployments: Collection[Deployment],
    current: str,
    previous: str,
    named: Collection[str],
    keep: int,
    elsewhere: Collection[Deployment] = (),
) -> Surplus:
    """Return what is beyond the ``keep`` newest deployments; ``named`` are those that units on the host start.

    The one that serves, the one before it and those that a unit starts stay, whatever ``keep`` says. ``elsewhere`` are
    the deployments of other services on the host, whose releases and models stay.
    """
    if keep < 1 or current not in {deployment.id for deployment in deployments}:
        return Surplus((), (), ())
    needed = {current, previous, *named}
    newest = sorted(deployments, key=lambda one: (one.id not in needed, -one.written, one.id))
    most = max(keep, sum(one.id in needed for one in deployments))
    return without(newest[most:], [*newest[:most], *elsewhere])


def without(removed: Collection[Deployment], kept: Collection[Deployment]) -> Surplus:
    """Return what goes with the deployments ``removed`` when those that are ``kept`` shall still serve."""
    gone = [one for one in removed if PLAIN.match(one.id)]
    releases = {one.release for one in gone} - {one.release for one in kept}
    models = {one.model for one in gone} - {one.model for one in kept}
    return Surplus(
        tuple(sorted(one.id for one in gone)),
        tuple(sorted(name for name in releases if PLAIN.match(name))),
        tuple(sorted(name for name in models if MODEL.match(name))),
    )
