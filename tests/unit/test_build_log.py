# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a build log says: how far the build is, and which kind of failure ended it. The logs were captured."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._build_log import (
    Progress,
    classify,
    cpu_seconds,
    progress,
    progress_line,
)

FIXTURES = Path(__file__).parent / "fixtures" / "build_log"


def log(name: str) -> str:
    return (FIXTURES / f"{name}.log").read_text()


FAILURES = {
    "memory-killed": (
        "memory",
        "the compiler was killed for want of memory: g++: fatal error: Killed signal terminated program cc1plus",
    ),
    "memory-limit": (
        "memory",
        "the compiler was killed for want of memory: virtual memory exhausted: Cannot allocate memory",
    ),
    "memory-linker": (
        "memory",
        "the compiler was killed for want of memory: collect2: fatal error: ld terminated with signal 9 [Killed]",
    ),
    "disk": (
        "disk",
        "the disk is full: /tmp/cct5Dcc6.s: Fatal error: can't write 3887 bytes to section .debug_str of small/x.o: "
        "'No space left on device'",
    ),
    "compiler-floor": (
        "compiler",
        "the compiler is too old for this release: X86 backend requires gcc/g++ >= 12.3",
    ),
    "compiler-option": (
        "compiler",
        "the compiler is too old for this release: g++: error: unrecognized command-line option '-mavx10.2-512'",
    ),
    "compiler-target": (
        "compiler",
        "the compiler is too old for this release: t.cpp:1:41: error: attribute 'target' argument 'avx10.2' is unknown",
    ),
    "header": (
        "header",
        "a header file is missing: numa2.cpp:1:10: fatal error: numa_of_no_package.h: No such file or directory",
    ),
    "header-after-warning": (
        "header",
        "a header file is missing: /opt/vllm/build/source/numa2.cpp:1:10: fatal error: numa_of_no_package.h: "
        "No such file or directory",
    ),
    "network": (
        "network",
        "something that the build fetches could not be fetched: fatal: unable to access "
        "'https://git.example.invalid/oneDNN.git/': Could not resolve host: git.example.invalid",
    ),
    "network-cmake": (
        "network",
        "something that the build fetches could not be fetched: fatal: unable to access "
        "'https://git.example.invalid/oneDNN.git/': Could not resolve host: git.example.invalid",
    ),
    "torch": (
        "torch",
        "the build environment does not hold a CPU torch: ModuleNotFoundError: No module named 'torch'",
    ),
    "cmake-version": (
        "cmake",
        "CMake refused the source or the interpreter: CMake 9.26 or higher is required.  "
        "You are running version 3.31.10",
    ),
    "source": (
        "source",
        "the source did not build: bad.cpp:1:13: error: 'undefined_thing' was not declared in this scope",
    ),
    "source-scm": (
        "source",
        "the source did not build: LookupError: setuptools-scm was unable to detect version for "
        "/opt/vllm/build/source/scm.",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failed_build_is_told_by_its_first_cause(name: str) -> None:
    failure = classify(log(name), 1)
    assert (failure.kind, failure.text) == FAILURES[name]
    assert failure.remedy


def test_every_captured_failure_is_in_the_table() -> None:
    others = {"done-0.6.5", "ninja-interrupted", "ninja-resumed"}
    assert {path.stem for path in FIXTURES.glob("*.log")} - others == set(FAILURES)


@pytest.mark.parametrize("quote", ["'", "\u2018\u2019"])
def test_the_compilers_quotes_depend_on_the_locale(quote: str) -> None:
    first, last = quote[0], quote[-1]
    text = f"t.cpp:1:41: error: attribute {first}target{last} argument {first}avx10.2{last} is unknown"
    assert classify(text, 1).kind == "compiler"


def test_a_tools_error_in_a_build_that_goes_well_is_no_cause() -> None:
    text = log("done-0.6.5")
    assert "\nError: could not get list of modules" in text
    assert classify(text, None).kind == "killed"
    assert classify(text + log("source"), 1).text.startswith("the source did not build: bad.cpp:1:13: error:")


def test_a_build_that_vanished_is_told_as_killed() -> None:
    failure = classify(log("ninja-resumed"), None)
    assert (failure.kind, failure.text, failure.remedy) == (
        "killed",
        "the build ended without a status, as after a reboot or a kill",
        "Run again: it goes on",
    )


def test_a_builder_that_was_killed_itself_ran_out_of_memory() -> None:
    failure = classify(log("ninja-resumed"), 137)
    assert (failure.kind, failure.text, failure.remedy) == (
        "memory",
        "the build was killed (exit status 137), as the kernel does for want of memory",
        "Add swap (swap_size) or lower vllm_source_build_jobs",
    )


def test_an_unknown_failure_shows_its_last_lines() -> None:
    failure = classify("one\ntwo\nthree\nfour\n", 3)
    assert (failure.kind, failure.text) == ("unknown", "exit status 3: two | three | four")


@pytest.mark.parametrize(
    ("text", "elapsed", "expected"),
    [
        (log("done-0.6.5").partition("[1/8]")[0], 20, Progress(0, 0, -1)),
        (log("done-0.6.5").partition("[3/8]")[0], 60, Progress(2, 8, 180)),
        (log("done-0.6.5"), 240, Progress(8, 8, 0)),
        (log("ninja-interrupted"), 6, Progress(2, 7, 15)),
        (log("ninja-resumed"), 12, Progress(5, 5, 0)),  # counts what was left, not what had been done before
        (log("ninja-resumed").partition("[3/5]")[0], 4, Progress(2, 5, 6)),
        (log("network-cmake").partition("Cloning")[0], 3, Progress(0, 0, -1)),  # fetching oneDNN is no compiling
        ("", 0, Progress(0, 0, -1)),
    ],
)
def test_progress(text: str, elapsed: float, expected: Progress) -> None:
    assert progress(text, elapsed) == expected


@pytest.mark.parametrize(
    ("found", "memory", "line"),
    [
        (Progress(0, 0, -1), 0, "configuring, then the first steps"),
        (Progress(0, 0, -1), 3 << 29, "configuring, then the first steps, 1.5 GiB"),
        (Progress(231, 493, 1080), 2040109465, "231/493 46 % ETA 18 min, 1.9 GiB"),
        (Progress(8, 8, 0), 0, "8/8 100 % ETA 1 min"),
        (Progress(0, 8, -1), 0, "0/8 0 % ETA unknown"),
    ],
)
def test_progress_for_people(found: Progress, memory: int, line: str) -> None:
    assert progress_line(found, memory) == line


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0m0.001234s 0m0.002345s\n64m12.500000s 2m0.750000s\n", 3973),  # dash
        ("0m0,000s", 0),
        ("", 0),
    ],
)
def test_processor_seconds_of_what_a_shell_started(text: str, seconds: int) -> None:
    assert cpu_seconds(text) == seconds
