# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""The unit that a build runs in: its command, its script, its environment, and what its toolchain was."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError

__all__ = (
    "RESERVED_BYTES",
    "SCRIPT",
    "Ccache",
    "build_environment",
    "ccache_counts",
    "retry_jobs",
    "toolchain_changes",
    "unit_properties",
)

# Room for what the unit writes at its end, taken before it starts: on a full disk nothing more can be.
RESERVED_BYTES = 4096
OOM_POLICY_SINCE = 243
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
SIZE = re.compile(r"\d+(?:\.\d+)?[kMGT]i?")
MEMORY = re.compile(r"\d+[KMGT]?")

# Everything is written into the reserved file, in place, and renamed last: a status file means an ended command.
# The control group and its count of killed processes vanish with the unit, so they are read here.
SCRIPT = """\
cd "$1" || exit
shift
if [ -n "$CCACHE_DIR" ]; then ccache --zero-stats >/dev/null 2>&1; fi
"$@" >build.log 2>&1
code=$?
if [ -n "$CCACHE_DIR" ]; then
  { echo "--- ccache"; ccache --show-stats; } >>build.log 2>&1
  ccache --print-stats >ccache.stats 2>/dev/null
fi
{
  echo "$code"
  times
  while IFS=: read -r number controllers group; do
    case $controllers in
      *memory*) cat "/sys/fs/cgroup/memory$group/memory.oom_control" ;;
      "") cat "/sys/fs/cgroup$group/memory.events" ;;
    esac
  done </proc/self/cgroup
  df -Pk .
} 1<>status.part 2>/dev/null
mv status.part status
"""


@dataclass(frozen=True)
class Ccache:
    """The compiler cache: where it is, and how large it may become, as ccache spells it."""

    folder: str
    size: str


def build_environment(given: dict[str, str], jobs: int, ccache: Ccache | None, base: str) -> dict[str, str]:
    """Return the environment of the build: ``given`` with the jobs, both spellings of proxies, and the compiler cache.

    ``base`` is the folder that holds the build folders: paths below it do not count for ccache, so that another
    release's build finds what this one compiled.
    """
    environment = {**given, "MAX_JOBS": str(jobs)}
    for name in PROXIES:
        # curl and git read http_proxy in lower case only, other programs only the upper case.
        value = given.get(name) or given.get(name.upper())
        if value:
            environment[name] = environment[name.upper()] = value
    if ccache is None:
        return {**environment, "CCACHE_DISABLE": "1"}
    if not SIZE.fullmatch(ccache.size):
        raise CpufleetError(f"{ccache.size!r} is not a size of ccache", "Give a number with k, M, G or T, such as 2G")
    return {
        "CCACHE_DIR": ccache.folder,
        "CCACHE_MAXSIZE": ccache.size,
        "CCACHE_BASEDIR": base,
        # The folder goes into the debug information only.
        "CCACHE_NOHASHDIR": "1",
        "CMAKE_C_COMPILER_LAUNCHER": "ccache",
        "CMAKE_CXX_COMPILER_LAUNCHER": "ccache",
        # Releases take sccache first where it is installed.
        "VLLM_DISABLE_SCCACHE": "1",
        **environment,
    }


def ccache_counts(stats: str) -> dict[str, int]:
    """Return hits and misses from what ``ccache --print-stats`` printed; {} where it printed nothing."""
    counts = {name: int(number) for name, number in re.findall(r"^(\w+)\t(\d+)$", stats, re.MULTILINE)}
    if not counts:
        return {}
    hits = sum(counts.get(f"{kind}_cache_hit", 0) for kind in ("direct", "preprocessed"))
    return {"hits": hits, "misses": counts.get("cache_miss", 0)}


def unit_properties(systemd: str, environment_file: str, memory_max: str) -> list[str]:
    """Return the properties of the unit for the systemd whose ``--version`` is given."""
    if memory_max and not MEMORY.fullmatch(memory_max):
        raise CpufleetError(
            f"{memory_max!r} is not an amount of memory", "Give bytes, or a number with K, M, G or T, such as 6G"
        )
    properties = ["Nice=5", "OOMScoreAdjust=500", "KillMode=control-group", f"EnvironmentFile={environment_file}"]
    version = re.search(r"systemd (\d+)", systemd)
    if version and int(version[1]) >= OOM_POLICY_SINCE:
        # systemd would end the whole unit with the first killed compiler, and nobody could say why.
        properties.append("OOMPolicy=continue")
    if memory_max:
        properties += ["MemoryAccounting=yes", f"MemoryMax={memory_max}"]
    return [f"--property={text}" for text in properties]


def retry_jobs(kind: str, jobs: int, before: list[str]) -> int:
    """Return with how many jobs a build that failed is tried again; 0: it is not.

    ``before`` are the kinds for which it was tried again already: each helps once.
    """
    helps = {"memory": jobs // 2, "onednn_part": jobs}
    return 0 if kind in before else helps.get(kind, 0)


def toolchain_changes(before: dict[str, str] | None, now: dict[str, str], configured: bool) -> list[str]:
    """Return what became another since the tree was configured; ``before`` is None where nobody wrote it down."""
    if not configured:
        return []
    if before is None:
        return ["nobody knows what it was made with"]
    names = sorted(set(before) | set(now))
    changed = [name for name in names if before.get(name) != now.get(name)]
    return [f"{name} was {before.get(name, 'unknown')}, is {now.get(name, 'unknown')}" for name in changed]
