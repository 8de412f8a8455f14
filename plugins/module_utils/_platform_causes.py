# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""The known reasons why a vLLM does not run on the CPU, each with a stable code and what to do.

``find_causes`` takes what the probe found and returns the causes, the root of the trouble first: an import that fails
because of a stray triton is told as the triton, then as the import.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterator

__all__ = ("CODES", "Cause", "find_causes")

CODES = (
    "not_installed",
    "torch_missing",
    "cuda_torch",
    "stray_triton",
    "stray_nvidia",
    "several_dist_infos",
    "wrong_metadata_name",
    "source_folder_shadows",
    "two_platforms",
    "version_without_cpu",
    "other_platform",
    "kernels_missing",
    "kernels_do_not_load",
    "kernels_do_not_run",
    "import_failed",
)

NEWER_CPU = "SIGILL means that it was built for a newer CPU: build the wheel again for the ISA class of this host"
CPU_CLASSES = ("CpuPlatform", "ZenCpuPlatform")


@dataclass(frozen=True)
class Cause:
    """One thing that is wrong: a code that does not change, what was seen, and what to do."""

    code: str
    text: str
    remedy: str


def find_causes(facts: dict[str, Any]) -> list[Cause]:
    """Return every known cause that the facts show, roots first."""
    if not facts["package"]:
        return [
            Cause(
                "not_installed",
                "No package vllm is installed in this venv.",
                "Install the vLLM wheel of this release into the venv.",
            )
        ]
    found = [*_installation(facts), *_detection(facts), *_kernels(facts), *_import(facts)]
    return [Cause(cause.code, _sentence(cause.text), _sentence(cause.remedy)) for cause in found]


def _sentence(text: str) -> str:
    return text.strip().rstrip(".") + "."


def _installation(facts: dict[str, Any]) -> Iterator[Cause]:
    torch, strays = facts["torch"], facts["strays"]
    if not torch:
        error = facts["errors"].get("torch", {}).get("text", "unknown error")
        yield Cause(
            "torch_missing",
            f"torch cannot be imported: {error}",
            "Install the CPU build of torch that the wheel was built against",
        )
    elif torch.get("cuda") or torch.get("hip"):
        kind = f"CUDA {torch['cuda']}" if torch.get("cuda") else f"ROCm {torch['hip']}"
        yield Cause(
            "cuda_torch",
            f"torch {torch['version']} is a build for {kind}, not for the CPU",
            "Install the same version with the local part +cpu from the CPU index of torch, then build vLLM again",
        )
    triton = [name for name in strays if "triton" in name]
    if triton:
        yield Cause(
            "stray_triton",
            f"{', '.join(triton)} is installed, which has no CPU back end",
            "Remove it from the venv: vLLM takes it for usable, and some releases fail when they are imported with it",
        )
    nvidia = [name for name in strays if name not in triton]
    if nvidia:
        yield Cause(
            "stray_nvidia",
            f"{len(nvidia)} NVIDIA packages are installed: {', '.join(nvidia)}",
            "Make the venv again with the CPU build of torch; these packages came with a CUDA build",
        )
    yield from _metadata(facts)


def _metadata(facts: dict[str, Any]) -> Iterator[Cause]:
    found = facts["dist_infos"]
    if len(found) > 1:
        listed = ", ".join(f"{entry['name']} {entry['version']} in {entry['path']}" for entry in found)
        yield Cause(
            "several_dist_infos",
            f"{len(found)} distributions claim the package vllm: {listed}",
            "Make the venv again and install one wheel; until then the first of them decides the version",
        )
    # Some wheels under another name know it, and detect the CPU all the same; the service does not use the command.
    if facts["version"] is None and facts["platform_class"] not in CPU_CLASSES:
        name = facts["metadata_name"]
        seen = f"is installed by the distribution {name}" if name else "has no metadata"
        yield Cause(
            "wrong_metadata_name",
            f'The package vllm {seen}, so that no version of "vllm" can be read',
            "Install a wheel whose name is vllm; with this one the vllm command and most detectors fail",
        )
    if facts["shadowed_by"]:
        yield Cause(
            "source_folder_shadows",
            f"{facts['shadowed_by']} is found before the installed vllm and hides it",
            "Start from a folder that holds no vLLM source, and take that folder out of PYTHONPATH",
        )


def _detection(facts: dict[str, Any]) -> Iterator[Cause]:
    yes = [entry["name"] for entry in facts["detectors"] if entry["verdict"]]
    chosen = facts["platform_class"]
    clash = (facts["detect"].get("error") or {}).get("text", "")
    if len(yes) > 1 and (chosen not in CPU_CLASSES):
        outcome = f"{chosen} was taken" if chosen else (clash or "the release refuses to choose")
        yield Cause(
            "two_platforms",
            f"The detectors {' and '.join(yes)} both say yes; {outcome}",
            "Apply the module platform_patch to the source and build again, or hide the GPU from the service",
        )
    elif chosen in CPU_CLASSES or not facts["detectors"] or facts["version"] is None:
        return  # without a version to read, the metadata is the cause and told as that
    elif "cpu" not in yes and "cpu" not in (facts["version"] or ""):
        yield Cause(
            "version_without_cpu",
            f'The version {facts["version"]} does not contain "cpu", and no other rule chose the CPU: '
            f"vLLM runs on {chosen or 'no platform'}",
            "Build vLLM with VLLM_TARGET_DEVICE=cpu, so that the wheel's version ends in +cpu; "
            "a wheel for GPUs cannot serve here",
        )
    else:
        detail = f" ({clash})" if clash else ""
        yield Cause(
            "other_platform",
            f"vLLM {facts['version']} runs on {chosen or 'no platform'} instead of CpuPlatform{detail}",
            "Read the verdicts of the detectors; an out-of-tree platform plugin may have been installed into the venv",
        )


def _kernels(facts: dict[str, Any]) -> Iterator[Cause]:
    kernels = facts["kernels"]
    died = (kernels["error"] or "").startswith("the process ended")
    if kernels["runs"] or not facts["torch"] or (facts["platform_class"] is None and not died):
        return  # without a platform nothing picks a library: what keeps the platform away is the cause
    selected = kernels["selected"]
    reason = f": {kernels['error']}" if kernels["error"] else ""
    if not kernels["libraries"] or (selected and not kernels["file"]):
        there = ", ".join(kernels["libraries"]) or "none"
        yield Cause(
            "kernels_missing",
            f"This CPU selects the kernel library {selected or 'vllm._C'}, and the package does not hold it "
            f"(there: {there})",
            "Build the wheel again with the ISA class of this host among its classes",
        )
    elif not kernels["loads"] and (selected or kernels["error"]):
        yield Cause(
            "kernels_do_not_load",
            f"The kernel library {selected or 'of vLLM'} does not load{reason}",
            NEWER_CPU
            if "SIGILL" in reason
            else "Install exactly the torch that the wheel was built against; if it is there, build the wheel again",
        )
    elif kernels["loads"]:
        yield Cause(
            "kernels_do_not_run",
            f"The kernel library {selected} loads but does not compute{reason}",
            NEWER_CPU if "SIGILL" in reason else "Build the wheel again",
        )


def _import(facts: dict[str, Any]) -> Iterator[Cause]:
    error = facts["errors"].get("import") or facts["errors"].get("detect") or facts["errors"].get("platform")
    if error:
        yield Cause(
            "import_failed",
            f"vLLM cannot be imported: {error['type']}: {error['text']}",
            "Mend the other causes first; if there is none, install the dependencies from the lock of this release",
        )
