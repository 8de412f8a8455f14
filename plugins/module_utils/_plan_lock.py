# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""What the locks of a plan are resolved from: the release's own requirements, and where they are departed from."""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.cpufleet.vllm.plugins.module_utils._identity import digest
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_notes import Notes
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_types import Situation

__all__ = ("choose_lock", "lock_name", "requirement_name")

# Built for one torch each: with another one, and from an index that has CUDA builds of them only, they are left out.
TORCH_FAMILY = ("torchvision", "torchaudio", "torchcodec")
# Built for exactly the torch that the release pins.
TORCH_EXTENSIONS = ("intel-extension-for-pytorch",)
# What the build uses beside what the release lists.
BUILD_EXTRA = ("ninja", "wheel", "jinja2", "numpy<2")


def requirement_name(line: str) -> str:
    """Return the normalized name in a requirement line, "" where there is none."""
    match = re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)", line)
    return re.sub(r"[-_.]+", "-", match[1]).lower() if match else ""


def choose_lock(source: dict[str, Any], torch: dict[str, Any], wishes: dict[str, Any], notes: Notes) -> dict[str, Any]:
    """Return ``overrides``, ``exclude`` and ``extra`` of the release's lock and ``build``, the lines of the build's."""
    listed = {requirement_name(line): line for line in source["requirements"]["cpu"]}
    # CUDA's triton breaks the import of a CPU vLLM; what the newest releases name in its place is on a code host.
    exclude, overrides, extra = ["triton"], [f"torch=={torch['version']}"], []
    if torch["overridden"]:
        # A newer torch than the release's own asks for newer setuptools than its date had.
        overrides.append("setuptools<81")
        exclude += TORCH_EXTENSIONS
    if torch["overridden"] or wishes["torch_find_links"]:
        exclude += TORCH_FAMILY
    left_out = [name for name in exclude if name in listed]
    if left_out:
        notes.because("lock", f"without {', '.join(left_out)}: they are made for another torch build")
    if needs_old_transformers(listed.get("transformers", "")):
        extra.append("transformers<5")
        notes.because("lock", "transformers<5: this release was written before 5 and does not say so")
    return {"overrides": overrides, "exclude": exclude, "extra": extra, "build": build_lines(source)}


def lock_name(here: Situation, chosen: dict[str, Any]) -> str:
    """Return a name that two hosts share exactly where one lock serves both: for people first, then a digest."""
    python = ".".join(str(chosen["python"]["version"]).split(".")[:2])
    wishes, lock = here.wishes, chosen["lock"]
    asked = [
        here.source["requirements"]["cpu"],
        [lock[key] for key in ("overrides", "exclude", "extra")],
        [here.archive.get("upload_time", ""), wishes["resolve_as_of"], bool(wishes["torch_find_links"])],
    ]
    plain = f"{here.source['version']}-py{python}-torch{chosen['torch']['version']}-{here.host['arch']}"
    return f"{plain}-{digest(asked)[:8]}"


def needs_old_transformers(line: str) -> bool:
    """Return whether a requirement on transformers 4 leaves 5 open, which took away what vLLM of that time calls."""
    return re.search(r"(?:>=|~=)\s*4\.", line) is not None and "<" not in line


def build_lines(source: dict[str, Any]) -> list[str]:
    """Return the requirement lines of the build: the CPU file's, and what only ``[build-system]`` names."""
    lines = [str(line) for line in source["requirements"]["build"]]
    names = {requirement_name(line) for line in lines} | {"torch"}
    lines += [str(line) for line in source["build_requires"] if requirement_name(line) not in names]
    return [*lines, *BUILD_EXTRA]
