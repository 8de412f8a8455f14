# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""The space half of a plan: swap to add, and free disk by filesystem."""

from __future__ import annotations

from typing import Any

from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_build import job_bytes, swap_limit, usable_memory
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_notes import Notes
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_types import Situation
from ansible_collections.cpufleet.vllm.plugins.module_utils._sizes import GIB, MIB, human
from ansible_collections.cpufleet.vllm.plugins.module_utils._swap_types import parse_size, round_up

__all__ = ("check_disk", "choose_swap", "disk_needs")

# Measured under vllm_root for 0.6.5 with torch 2.13.0: build folder, environments and package cache share their files.
BUILD_BYTES = 5 * GIB
INSTALL_BYTES = 3 * GIB
# Beside the compile jobs: the system, Ansible's module and the linker.
BASE_BYTES = GIB
# What unpacking torch and reading a model's files take.
INSTALL_MEMORY = GIB
SWAP_STEP = 256 * MIB


def choose_swap(
    host: dict[str, Any], source: dict[str, Any], wishes: dict[str, Any], builder: bool, notes: Notes
) -> dict[str, Any]:
    """Return the size the swap file is to have, what that adds, and what swap is free already (bytes).

    ``host["swap_refused"]`` is why the swap role could add none, once it has tried.
    """
    path, wish = str(wishes["swap_file"]), str(wishes["swap_size"])
    # zram lies in the memory that it would extend.
    disk_swap = [entry for entry in host["swap"] if entry["kind"] != "zram"]
    # /proc/swaps leaves the header page out of a file's size.
    own = sum(round_up(entry["size_bytes"]) for entry in disk_swap if entry["path"] == path)
    others = sum(entry["size_bytes"] for entry in disk_swap if entry["path"] != path)
    free = sum(entry["size_bytes"] - entry["used_bytes"] for entry in disk_swap)
    if host.get("swap_refused"):
        size = own
        notes.because("swap", f"none is added: {host['swap_refused']}")
    elif wish != "auto":
        size = parse_size(wish)
        notes.because("swap", f"{human(size)}: swap_size says so")
    else:
        size = auto_swap(host, source, {"own": own, "others": others}, builder, notes)
    kept = max(0, free - max(0, own - size))
    return {"path": path, "size_bytes": size, "add_bytes": max(0, size - own), "free_bytes": kept}


def auto_swap(host: dict[str, Any], source: dict[str, Any], there: dict[str, int], builder: bool, notes: Notes) -> int:
    """Return the size of a swap file that gives the work all the memory it wants, as far as swap may be used here."""
    wanted = BASE_BYTES + (int(host["cpu"]["usable_cpus"]) * job_bytes(source) if builder else INSTALL_MEMORY)
    lack = wanted - usable_memory(host) - there["others"]
    limit = swap_limit(host)
    useful = min(lack, max(0, limit - there["others"]))
    size = max(there["own"], -(-useful // SWAP_STEP) * SWAP_STEP if useful > 0 else 0)
    work = "a build with every CPU" if builder else "installing"
    bound = f", and the control group lets {human(limit)} of swap be used" if useful < lack else ""
    notes.because("swap", f"{human(size)}: {work} wants {human(wanted)} of memory and swap{bound}")
    return size


def disk_needs(here: Situation, swap: dict[str, Any], wheel: dict[str, Any]) -> dict[str, int]:
    """Return the bytes that the run will add, by path; what is finished needs no more space."""
    state, identity = here.state, wheel["identity"]
    installed = any(entry.get("wheel") == identity for entry in state.get("releases", {}).values())
    copied = {model["sha256"]: copied_bytes(here, model, wishes) for model, wishes in here.services.values()}
    work = (BUILD_BYTES if wheel["source"] == "build" else 0) + (0 if installed or not here.serves else INSTALL_BYTES)
    return {str(here.wishes["root"]): work + sum(copied.values()), swap["path"]: swap["add_bytes"]}


def copied_bytes(here: Situation, model: dict[str, Any], wishes: dict[str, Any]) -> int:
    """Return what is still to be copied of a model."""
    deployments = here.state.get("deployments", {}).values()
    stored = any(entry.get("model_sha256") == model["sha256"] for entry in deployments)
    if stored or not here.serves or wishes["model_source"] == "host":
        return 0
    # What an interrupted run has brought already is gone on from.
    begun = int(here.state.get("models", {}).get(model["sha256"][:12], 0))
    return max(0, sum(int(entry["size"]) for entry in model["files"]) - begun)


def check_disk(host: dict[str, Any], needs: dict[str, int], notes: Notes) -> list[dict[str, Any]]:
    """Return needed and free bytes by mount; refuse where a filesystem is too small for what comes to lie on it."""
    wanted: dict[str, dict[str, Any]] = {}
    for path, size in needs.items():
        disk = host["disks"].get(path)
        if not disk or not size:
            continue
        entry = wanted.setdefault(
            disk["mount"], {"mount": disk["mount"], "paths": [], "needed": 0, "free": disk["free_bytes"]}
        )
        entry["paths"].append(path)
        entry["needed"] += size
    for entry in wanted.values():
        if entry["free"] is not None and entry["needed"] > entry["free"]:
            notes.refuse(
                "disk",
                f"the filesystem at {entry['mount']} has {human(entry['free'])} free but {human(entry['needed'])} are "
                f"needed for {' and '.join(entry['paths'])}. Free space there, enlarge it, or move vllm_root to a "
                "larger disk.",
            )
    return list(wanted.values())
