# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The unit of a build: its environment, its properties, and when it is tried again."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._build_failure import parse_end
from ansible_collections.cpufleet.vllm.plugins.module_utils._build_log import cpu_seconds
from ansible_collections.cpufleet.vllm.plugins.module_utils._build_unit import (
    SCRIPT,
    Ccache,
    build_environment,
    ccache_counts,
    retry_jobs,
    toolchain_changes,
    unit_properties,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError


@pytest.mark.parametrize(
    "given",
    [
        {"http_proxy": "http://p:1", "NO_PROXY": "localhost"},
        {"HTTP_PROXY": "http://p:1", "no_proxy": "localhost"},
    ],
)
def test_a_proxy_is_given_in_both_spellings(given: dict[str, str]) -> None:
    assert build_environment(given, 1, None, "/b") == {
        "MAX_JOBS": "1",
        "http_proxy": "http://p:1",
        "HTTP_PROXY": "http://p:1",
        "no_proxy": "localhost",
        "NO_PROXY": "localhost",
        "CCACHE_DISABLE": "1",
    }


def test_the_compiler_cache_in_the_environment() -> None:
    environment = build_environment(
        {"CCACHE_MAXSIZE": "9G", "CC": "gcc"}, 3, Ccache("/r/cache/ccache", "2G"), "/r/build"
    )
    assert environment == {
        "MAX_JOBS": "3",
        "CC": "gcc",
        "CCACHE_DIR": "/r/cache/ccache",
        "CCACHE_MAXSIZE": "9G",  # what a person gave wins
        "CCACHE_BASEDIR": "/r/build",
        "CCACHE_NOHASHDIR": "1",
        "CMAKE_C_COMPILER_LAUNCHER": "ccache",
        "CMAKE_CXX_COMPILER_LAUNCHER": "ccache",
        "VLLM_DISABLE_SCCACHE": "1",
    }


@pytest.mark.parametrize("size", ["2", "2 G", "much", ""])
def test_a_size_of_the_cache_that_is_none(size: str) -> None:
    with pytest.raises(CpufleetError) as refused:
        build_environment({}, 1, Ccache("/c", size), "/b")
    assert str(refused.value) == f"{size!r} is not a size of ccache. Give a number with k, M, G or T, such as 2G."


@pytest.mark.parametrize("limit", ["6 G", "6Gi", "half", "6G\n"])
def test_a_limit_of_memory_that_is_none(limit: str) -> None:
    with pytest.raises(CpufleetError) as refused:
        unit_properties("systemd 252", "/e", limit)
    assert str(refused.value) == (
        f"{limit!r} is not an amount of memory. Give bytes, or a number with K, M, G or T, such as 6G."
    )


@pytest.mark.parametrize(
    ("kind", "jobs", "before", "then"),
    [
        ("memory", 2, [], 1),
        ("memory", 9, [], 4),
        ("memory", 1, [], 0),
        ("memory", 4, ["memory"], 0),
        ("memory", 4, ["onednn_part"], 2),
        ("onednn_part", 1, [], 1),
        ("onednn_part", 2, ["memory"], 2),
        ("onednn_part", 2, ["onednn_part"], 0),
        ("disk", 4, [], 0),
    ],
)
def test_tried_again(kind: str, jobs: int, before: list[str], then: int) -> None:
    assert retry_jobs(kind, jobs, before) == then


def test_what_became_another() -> None:
    before, now = {"torch": "2.5.1", "python": "3.11"}, {"torch": "2.13.0", "python": "3.11"}
    assert toolchain_changes(before, now, True) == ["torch was 2.5.1, is 2.13.0"]
    assert toolchain_changes(before, {"python": "3.11"}, True) == ["torch was 2.5.1, is unknown"]
    assert toolchain_changes(before, before, True) == []
    assert toolchain_changes(before, now, False) == []
    assert toolchain_changes(None, now, True) == ["nobody knows what it was made with"]


def test_counts_of_the_compiler_cache() -> None:
    printed = "stats_updated_timestamp\t1796000000\ndirect_cache_hit\t6\npreprocessed_cache_hit\t1\ncache_miss\t3\n"
    assert ccache_counts(printed) == {"hits": 7, "misses": 3}
    assert ccache_counts("") == {}


@pytest.mark.parametrize("status", [0, 3])
def test_the_script_leaves_log_and_end(tmp_path: Path, status: int) -> None:
    (tmp_path / "status.part").write_text("\n" * 4096)
    (tmp_path / "build.sh").write_text(SCRIPT)
    command = ["sh", str(tmp_path / "build.sh"), str(tmp_path), "sh", "-c", f'echo "a  b" >&2; exit {status}']
    subprocess.run(command, check=True, env={"PATH": "/usr/bin:/bin"})
    assert (tmp_path / "build.log").read_text() == "a  b\n"
    text = (tmp_path / "status").read_text()
    end = parse_end(text)
    assert (len(text), end.status, cpu_seconds(end.times)) == (4096, status, 0)
    assert end.free_kib is not None
    assert end.mount.startswith("/")
    assert not (tmp_path / "status.part").exists()
