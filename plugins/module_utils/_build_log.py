# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""What a build log says: how far the build is, and the kind of its failure."""

from __future__ import annotations

import dataclasses
import re

__all__ = ("Failure", "Progress", "classify", "cpu_seconds", "progress", "progress_line")

# Steps of fetching a dependency (CMake's FetchContent) are counted apart and come before the first compiled file.
STEP = re.compile(r"^\[(\d+)/(\d+)\](?!.*-populate')", re.MULTILINE)
KILLED_STATUS = 128 + 9


@dataclasses.dataclass(frozen=True)
class Progress:
    """Steps done and in all (0 while CMake configures), and the seconds that are probably left (-1: unknown)."""

    step: int
    total: int
    eta_s: int


@dataclasses.dataclass(frozen=True)
class Failure:
    """The kind of a failed build, the sentence that tells it, and what to do."""

    kind: str
    text: str
    remedy: str


# The order decides: a killed compiler also prints "error", a full disk also ends in a failed step.
KINDS: tuple[tuple[str, str, str, str], ...] = (
    (
        "memory",
        r"^.*(?:fatal error: Killed signal terminated program|cc1plus.*Killed|Killed\s+\(program cc1plus\)|"
        r"terminated with signal 9 \[Killed\]|virtual memory exhausted|out of memory allocating).*$",
        "the compiler was killed for want of memory",
        "Add swap (swap_size) or lower vllm_source_build_jobs",
    ),
    (
        "disk",
        r"^.*No space left on device.*$",
        "the disk is full",
        "Free space in the build folder's filesystem (vllm_root), or put vllm_root on a larger disk",
    ),
    (
        "compiler",
        # "Disable AVX512-BF16 ISA support, requires ..." is a warning of builds that go on.
        r"^(?!\s*Disable ).*(?:requires gcc/g\+\+ >= [\d.]+|GCC >= [\d.]+ is required|"
        r"unrecognized command-line option|attribute .target. argument \S+ is unknown).*$",
        "the compiler is too old for this release",
        "Let the toolchain role install a newer one, or choose an older vllm_version",
    ),
    (
        "header",
        r"^.*fatal error: (?!Killed)\S+: No such file or directory.*$",
        "a header file is missing",
        "Install the package that holds it; the toolchain role does so for those it knows",
    ),
    (
        "network",
        r"^.*(?:Failed to clone repository|Could not resolve host|Failed to connect to|Connection timed out|"
        r"unable to access '[^']+').*$",
        "something that the build fetches could not be fetched",
        "Check network and proxy of the host; an avx2 build (vllm_isa_class) of an older release fetches nothing",
    ),
    (
        "torch",
        r"^.*(?:Your installed Caffe2 version uses CUDA|No module named 'torch'|Unknown runtime environment).*$",
        "the build environment does not hold a CPU torch",
        "Check torch_cpu_index_url and torch_cpu_find_links",
    ),
    (
        "cmake",
        r"^.*(?:CMake \S+ or higher is required|Unable to find python matching|Compatibility with CMake < 3\.5).*$",
        "CMake refused the source or the interpreter",
        "Check that the interpreter's headers are installed and that the build environment's CMake suits this release",
    ),
    ("isa", r"^.*vLLM CPU backend requires .*$", "the CPU lacks the instructions that vLLM needs", "Use another host"),
    (
        "source",
        r"^.*(?:setuptools-scm was unable to detect version|error: .+|CMake Error.*|\w+Error: .*)$",
        "the source did not build",
        "Read the log on the host",
    ),
)


def progress(log: str, elapsed_s: float) -> Progress:
    """Return how far ``log`` has come after ``elapsed_s`` seconds; a resumed build counts only what was left."""
    steps = STEP.findall(log)
    if not steps:
        return Progress(0, 0, -1)
    step, total = int(steps[-1][0]), int(steps[-1][1])
    return Progress(step, total, int(elapsed_s / step * (total - step)) if step else -1)


def progress_line(found: Progress, memory_bytes: int) -> str:
    """Return one line for a person, such as ``231/493 47 % ETA 18 min, 1.9 GiB``."""
    memory = f", {memory_bytes / 2**30:.1f} GiB" if memory_bytes else ""
    if not found.total:
        # Until the first step ends, ninja says nothing of how many there are.
        return "configuring, then the first steps" + memory
    left = f"ETA {max(1, round(found.eta_s / 60))} min" if found.eta_s >= 0 else "ETA unknown"
    return f"{found.step}/{found.total} {found.step * 100 // found.total} % {left}{memory}"


def cpu_seconds(times: str) -> int:
    """Return the processor seconds of all that a shell started, from what its ``times`` printed; 0 where it did not."""
    children = re.findall(r"(\d+)m([\d.]+)s", times)[2:4]
    return round(sum(int(minutes) * 60 + float(seconds) for minutes, seconds in children))


def classify(log: str, status: int | None) -> Failure:
    """Return why a build failed, from its ``log`` and exit ``status`` (None: it vanished without one)."""
    for kind, pattern, text, remedy in KINDS:
        match = re.search(pattern, log, re.MULTILINE)
        if match:
            return Failure(kind, f"{text}: {match[0].strip()[:300]}", remedy)
    if status is None:
        return Failure(
            "killed", "the build ended without a status, as after a reboot or a kill", "Run again: it goes on"
        )
    if status == KILLED_STATUS:
        text = f"the build was killed (exit status {status}), as the kernel does for want of memory"
        return Failure("memory", text, KINDS[0][3])
    tail = " | ".join(line for line in log.strip().splitlines()[-3:])
    return Failure("unknown", f"exit status {status}: {tail[:400]}", "Read the log on the host")
