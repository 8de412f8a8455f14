# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""What the user says of several models on one host: names, wishes and ports, checked and completed."""

from __future__ import annotations

import difflib
import re
from typing import Any, Iterator

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError

__all__ = ("KEYS", "serve_instances")

# The variables of the role model_serve that each instance may have otherwise, without their prefix.
KEYS = (
    *("model", "model_source", "model_revision", "model_endpoints", "model_files", "model_sha256", "model_fetch_on"),
    *("hub_token", "name", "address", "port", "dtype", "kv_cache_gib", "max_model_len", "concurrency", "force"),
    *("enforce_eager", "extra_arguments", "extra_environment", "api_key"),
    *("gate_question", "gate_expect", "gate_timeout", "watchdog", "side_by_side", "keep_deployments"),
)
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
# <unit>-watchdog and <unit>-trial are units of the collection's own.
TAKEN_ENDINGS = ("watchdog", "trial")
FIRST_PORT, HIGHEST_PORT = 8000, 65535


def serve_instances(given: Any, common: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the wishes of every instance by name: what it says itself, else what ``common`` says, for its keys.

    Each has a ``unit`` and a ``port`` of its own. Raise CpufleetError with everything that is wrong.
    """
    problems = list(_problems(given, common))
    if problems:
        raise CpufleetError(f"model_serve_instances cannot be: {'; '.join(problems)}", "Correct that")
    ports = plan_ports({name: _dict(own).get("port") for name, own in given.items()}, common.get("port", FIRST_PORT))
    stem, dot, suffix = str(common.get("unit", "vllm")).partition(".")
    return {
        name: {
            **common,
            **{key: value for key, value in _dict(own).items() if key in common},
            "unit": f"{stem}-{name}{dot}{suffix}",
            "port": ports[name],
        }
        for name, own in given.items()
    }


def plan_ports(given: dict[str, Any], first: Any) -> dict[str, int]:
    """Return the port of every instance: the given one, else the next from ``first`` up that none was given."""
    taken = {int(port) for port in given.values() if port is not None}
    ports, following = {}, int(first)
    for name, port in given.items():
        while port is None and following in taken:
            following += 1
        ports[name] = following if port is None else int(port)
        taken.add(ports[name])
    return ports


def _dict(value: Any) -> dict[str, Any]:
    return value or {}


def _problems(given: Any, common: dict[str, Any]) -> Iterator[str]:
    if not isinstance(given, dict):
        yield "it is no dictionary of names and settings"
        return
    for name, own in given.items():
        yield from _problems_of_name(str(name))
        if own is not None and not isinstance(own, dict):
            yield f"{name} is no dictionary of settings"
            continue
        for key in sorted(set(map(str, _dict(own))) - set(KEYS)):
            yield f"{name} has {key}, which no instance has{_nearest(key)}"
        if not (_dict(own).get("model") or common.get("model", "unsaid")):
            yield f"{name} names no model"
    yield from _problems_of_ports({name: own.get("port") for name, own in given.items() if isinstance(own, dict)})


def _problems_of_name(name: str) -> Iterator[str]:
    if not NAME.fullmatch(name):
        yield (
            f"{name!r} is no name of an instance: up to 32 small letters, digits and hyphens, at both ends "
            "a letter or a digit"
        )
    elif name.rsplit("-", maxsplit=1)[-1] in TAKEN_ENDINGS:
        yield f"{name} ends like a unit of this collection: no name may end with {' or '.join(TAKEN_ENDINGS)}"


def _nearest(key: str) -> str:
    bare = key[len("model_serve_") :] if key.startswith("model_serve_") else key
    near = [bare] if bare in KEYS else difflib.get_close_matches(bare, KEYS, 1)
    return f" (meant is {near[0]}?)" if near else f"; there are {', '.join(KEYS)}"


def _problems_of_ports(given: dict[str, Any]) -> Iterator[str]:
    names: dict[int, str] = {}
    for name, port in given.items():
        if port is None:
            continue
        if isinstance(port, bool) or not str(port).isdecimal() or not 0 < int(port) <= HIGHEST_PORT:
            yield f"the port of {name} is {port!r}, which is no number from 1 to {HIGHEST_PORT}"
        elif int(port) in names:
            yield f"{names[int(port)]} and {name} both have port {port}"
        else:
            names[int(port)] = name
