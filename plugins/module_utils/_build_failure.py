# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Why a build failed, from its log, its end, and the kernel's own record; every kind is stable and has a remedy."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ansible_collections.cpufleet.vllm.plugins.module_utils._sizes import MIB

__all__ = ("CODES", "KINDS", "End", "Evidence", "Failure", "classify", "kernel_kills", "lines_since", "parse_end")

KILLED_STATUS = 128 + 9
SHOWN = 300
NEARLY_FULL_KIB = 1024

# The order decides: a killed compiler also prints "error", a full disk also ends in a failed step.
KINDS: tuple[tuple[str, str, str, str], ...] = (
    (
        "memory",
        r"^.*(?:fatal error: Killed signal terminated program|cc1plus.*Killed|Killed\s+\(program cc1plus\)|"
        r"terminated with signal 9 \[Killed\]|virtual memory exhausted|out of memory allocating|"
        r"std::bad_alloc|ld: .*[Cc]annot allocate memory).*$",
        "the compiler was killed for want of memory",
        "Add swap (swap_size) or lower vllm_source_build_jobs",
    ),
    (
        "disk",
        r"^.*(?:No space left on device|Disk quota exceeded).*$",
        "the disk is full",
        "Free space in the build folder's filesystem (vllm_root), or put vllm_root on a larger disk",
    ),
    (
        "onednn_part",
        r"^.*cpufleet: oneDNN lacks .*$",
        "the part of oneDNN that was compiled is not all that the release links",
        "Run again: oneDNN is then compiled as a whole; vllm_source_build_onednn_full=true does so from the start",
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
        r"^.*(?:Failed to clone repository|Could not resolve (?:host|proxy)|Failed to connect to|Connection timed out|"
        r"unable to access '[^']+'|RPC failed|early EOF|SSL certificate problem|error decoding response body|"
        r"CONNECT tunnel failed|Failed to fetch: ).*$",
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
        "torch_mismatch",
        r"^.*(?:/torch/include/\S+:\d+:\d+: (?:fatal )?error: |undefined symbol: \S*(?:c10|at|torch)\S*).*$",
        "the source does not go with the torch of the build environment",
        "Take the torch that the release names (torch_cpu_version: auto), or another vllm_version",
    ),
    (
        "stale_cache",
        r"^.*(?:CMakeCache\.txt directory \S+ is different than|[Dd]oes not match the generator used previously|"
        r"does not match the source .* used to generate cache|You have changed variables that require your cache).*$",
        "what CMake remembers is of another toolchain or folder",
        "Run again: the build tree is then made anew",
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
CODES = (*(kind for kind, *_rest in KINDS), "killed", "unknown")

FIRST_ERRORS = re.compile(r"^.*(?:\b[Ee]rror\b|ERROR|[Ff]atal|FAILED|Traceback|[Cc]annot |not found).*$", re.MULTILINE)
# "x.o: 'No space left on device'", "writing to /tmp/x.s: No space left on device", "[Errno 28] ...: '/opt/x'".
DISK_PATHS = (
    r"\[Errno (?:28|122)\] [^:]+: '([^']+)'",
    r"section \S+ of (\S+?): ",
    r"(?:writing to|write to|closing|close|open|mkdir|create)(?: file| temporary file)? ['\u2018]?([^\s:'\u2019]+)",
    r"(/[^\s:'\u2019]+)[:'\u2019]* (?:No space|Disk quota)",
)
KILL = re.compile(
    r"(Memory cgroup out of memory|Out of memory)?:? ?Killed process (\d+),? \(([^)]*)\).*?anon-rss:(\d+)kB"
)
TASK = re.compile(r"oom-kill:.*task_memcg=([^,]*),task=[^,]*,pid=(\d+)")


@dataclass(frozen=True)
class End:
    """What the unit wrote down when its command had ended: the only moment at which its control group exists."""

    status: int | None = None
    times: str = ""
    oom_kills: int | None = None
    free_kib: int | None = None
    mount: str = ""


@dataclass(frozen=True)
class Evidence:
    """All that is known of a build that failed: its log, its end, and the kernel's lines since it started."""

    log: str
    end: End = field(default_factory=End)
    kernel: str = ""
    unit: str = ""
    jobs: int = 0
    memory_max: str = ""
    rebooted: bool = False


@dataclass(frozen=True)
class Failure:
    """The kind of a failed build, the sentence that tells it, what to do, and the path that was full (disk)."""

    kind: str
    text: str
    remedy: str
    path: str = ""


@dataclass(frozen=True)
class Kill:
    """One process that the kernel ended for want of memory."""

    name: str
    rss_mib: int
    limit: bool

    def text(self) -> str:
        """Return what the kernel says, for a person."""
        why = "at the memory limit of its control group" if self.limit else "because the host was out of memory"
        return f"the kernel killed {self.name} with {self.rss_mib} MiB {why}"


def parse_end(text: str) -> End:
    """Return what the unit's script left; its status is None where there is none or it could not be written."""
    status = re.match(r"\s*(\d+)\s", text)
    kills = re.findall(r"^oom_kill (\d+)$", text, re.MULTILINE)
    disk = re.search(r"^\S+ +\d+ +\d+ +(\d+) +\d+% (/.*)$", text, re.MULTILINE)
    return End(
        status=int(status[1]) if status else None,
        times=text,
        oom_kills=max(map(int, kills)) if kills else None,
        free_kib=int(disk[1]) if disk else None,
        mount=disk[2].strip() if disk else "",
    )


def lines_since(dmesg: str, uptime: float) -> str:
    """Return the lines of the kernel's own buffer that are not older than ``uptime`` seconds after the boot."""
    stamped = re.findall(r"^\[ *(\d+\.\d+)\] (.*)$", dmesg, re.MULTILINE)
    return "\n".join(line for seconds, line in stamped if float(seconds) >= uptime)


def kernel_kills(kernel: str, unit: str) -> list[Kill]:
    """Return what the kernel killed of ``unit``; of a kernel that does not name the group, what compilers it killed."""
    groups = {pid: group for group, pid in TASK.findall(kernel)}
    found = []
    for scope, pid, name, rss in KILL.findall(kernel):
        ours = groups[pid].endswith(unit) if pid in groups else name.startswith(("cc1", "ld", "collect2", "lto"))
        if ours:
            found.append(Kill(name, round(int(rss) * 1024 / MIB), scope.startswith("Memory cgroup")))
    return found


def classify(evidence: Evidence) -> Failure:
    """Return why a build failed."""
    kills = kernel_kills(evidence.kernel, evidence.unit)
    for kind, pattern, text, remedy in KINDS:
        match = re.search(pattern, evidence.log, re.MULTILINE)
        if kind == "memory" and (match or kills or evidence.end.oom_kills):
            return _memory(evidence, match[0] if match else "", kills)
        if kind == "disk" and not match and _was_full(evidence.end):
            return Failure(kind, f"{text}: {evidence.end.mount} had nothing left", remedy, evidence.end.mount)
        if match:
            path = _disk_path(match[0]) if kind == "disk" else ""
            return Failure(kind, f"{text}: {match[0].strip()[:SHOWN]}", remedy, path)
    status = evidence.end.status
    if status is None:
        seen = (
            "the host was restarted"
            if evidence.rebooted
            else "the build ended without a status, as after a reboot or a kill"
        )
        return Failure("killed", seen, "Run again: it goes on")
    if status == KILLED_STATUS:
        return _memory(evidence, "", kills)
    return Failure("unknown", f"exit status {status}: {_first_errors(evidence.log)}", "Read the log on the host")


def _memory(evidence: Evidence, line: str, kills: list[Kill]) -> Failure:
    """Return the failure for want of memory; the remedy depends on what there was and who set the limit."""
    shown = [line.strip()[:SHOWN]] if line else []
    if kills:
        shown.append(kills[0].text())
    elif evidence.end.oom_kills:
        shown.append(f"the kernel killed {evidence.end.oom_kills} of the build's processes")
    elif not line:
        shown.append(f"the build was killed (exit status {evidence.end.status}), as the kernel does for want of memory")
    limited = evidence.memory_max and (not kills or kills[0].limit)
    more = f"Raise vllm_source_build_memory_max, which is {evidence.memory_max}" if limited else "Add swap (swap_size)"
    if evidence.jobs == 1:
        remedy = f"{more}, or use a larger host: there was one job already"
    else:
        remedy = f"{more} or lower vllm_source_build_jobs"
    return Failure("memory", f"{KINDS[0][2]}: {'; '.join(shown)}", remedy)


def _was_full(end: End) -> bool:
    return bool(end.status) and end.free_kib is not None and end.free_kib < NEARLY_FULL_KIB


def _disk_path(line: str) -> str:
    for pattern in DISK_PATHS:
        found = re.search(pattern, line)
        if found:
            return found[1]
    return ""


def _first_errors(log: str) -> str:
    """Return the first lines that speak of an error; the last ones where none does."""
    lines = [line.strip() for line in FIRST_ERRORS.findall(log)][:3] or log.strip().splitlines()[-3:]
    return " | ".join(lines)[: 2 * SHOWN]
