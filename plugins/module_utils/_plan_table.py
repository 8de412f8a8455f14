# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""The plan of a whole fleet as one table for people."""

from __future__ import annotations

import textwrap
from typing import Any

from ansible_collections.cpufleet.vllm.plugins.module_utils._sizes import human

__all__ = ("fleet_table",)

HEADINGS = (
    *("host", "ISA class", "Python", "g++", "torch", "build", "jobs", "swap", "disk"),
    *("engine", "context", "tok/s", "min"),
)
WIDTH = 100
# Tokens a second of which tenths say nothing.
TOO_FINE = 100


def fleet_table(plans: dict[str, dict[str, Any]]) -> list[str]:
    """Return lines: one row a host, sorted by name, then what is forced, and what to change on impossible hosts."""
    rows = [HEADINGS, *(cells for name, plan in sorted(plans.items()) for cells in rows_of(name, plan))]
    widths = [max(len(line[column]) for line in rows) for column in range(len(HEADINGS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    for name, plan in sorted(plans.items()):
        lines += together(name, plan)
        for service, model in services_of(name, plan).items():
            if model["forced"]:
                lines += wrapped(f"[WARNING] {service} is made to serve what does not fit: {model['forced']}")
    refused = {name: plan["refused"] for name, plan in sorted(plans.items()) if plan["refused"]}
    if refused:
        lines += ["", f"Impossible on {len(refused)} of {len(plans)} host(s):"]
    for name, entries in refused.items():
        for entry in entries:
            lines += wrapped(f"{name}: [{entry['code']}] {entry['text']}")
    return lines


def wrapped(text: str) -> list[str]:
    """Return ``text`` as lines for people."""
    return textwrap.wrap(text, WIDTH, subsequent_indent="    ", break_long_words=False)


def services_of(name: str, plan: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the plans of the services of a host, each by the name that people know it by."""
    instances = plan.get("instances")
    if not instances:
        return {name: plan["model"]}
    return {f"{name} {instance}": entry["model"] for instance, entry in instances.items()}


def together(name: str, plan: dict[str, Any]) -> list[str]:
    """Return what several services of a host take, in words; nothing for one."""
    instances = plan.get("instances")
    if not instances:
        return []
    sizes = {key: entry["model"]["memory_max_bytes"] for key, entry in instances.items()}
    told = [f"{key} on port {instances[key]['port']} {human(size)}" for key, size in sizes.items()]
    return wrapped(f"{name}: memory for {', '.join(told)}: {human(sum(sizes.values()))} together")


def rows_of(name: str, plan: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the rows of one host: its own, and one below it for each of several services."""
    instances = plan.get("instances")
    if not instances:
        return [row(name, plan)]
    blank = ("",) * (len(HEADINGS) - 5)
    below = [(f"  {key}", *blank, *service(entry["model"]), "") for key, entry in instances.items()]
    whole = row(name, {**plan, "model": {**plan["model"], "engine": ""}})
    return [whole, *below]


def wheel_from(plan: dict[str, Any]) -> str:
    """Return where the host's wheel comes from."""
    source, builders = str(plan["wheel"]["source"]), plan["wheel"]["builders"]
    if source == "store":
        return f"by {builders[0]}" if builders else "stored"
    if not plan["serves"] and not plan["builder"]:
        return "-"
    return {"build": "compile", "host": "present"}.get(source, source)


def row(name: str, plan: dict[str, Any]) -> tuple[str, ...]:
    """Return the cells of one host."""
    needed = sum(entry["needed"] for entry in plan["disk"])
    return (
        name,
        plan["isa_class"] or "none",
        plan["python"]["version"] or "none",
        plan["compiler"]["version"] or "none",
        plan["torch"]["version"],
        wheel_from(plan),
        str(plan["jobs"] or "-"),
        f"+{human(plan['swap']['add_bytes'])}" if plan["swap"]["add_bytes"] else "-",
        human(needed) if needed else "-",
        *service(plan["model"]),
        str(plan["minutes"]),
    )


def service(model: dict[str, Any]) -> tuple[str, str, str]:
    """Return engine, requests at a time by the tokens of each, and the tokens a second of all together."""
    if not model["engine"]:
        return ("-", "-", "-")
    speed = model["expected_tokens_per_s"]
    context = f"{model['max_num_seqs']}x{model['max_model_len']}"
    return (model["engine"], context, f"{speed:.0f}" if speed >= TOO_FINE else f"{speed:g}")
