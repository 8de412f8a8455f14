# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Why a build failed: its log, its end and the kernel's record. Logs and kernel lines were captured."""

from __future__ import annotations

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._build_failure import (
    CODES,
    KINDS,
    End,
    Evidence,
    Failure,
    classify,
    kernel_kills,
    lines_since,
    parse_end,
)

from tests.unit.test_build_log import FIXTURES, log

UNIT = "cpufleet-build-abababababab.service"
KERNEL = (FIXTURES / "kernel-limit.txt").read_text()
HOST_KERNEL = (FIXTURES / "kernel-host.txt").read_text()


def told(text: str, status: int | None = 1, **more: object) -> Failure:
    end = End(status=status, **{key: more.pop(key) for key in ("oom_kills", "free_kib", "mount") if key in more})  # type: ignore[arg-type]
    return classify(Evidence(log=text, end=end, unit=UNIT, **more))  # type: ignore[arg-type]


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
    "torch-headers": (
        "torch_mismatch",
        "the source does not go with the torch of the build environment: /opt/vllm/build/venv/lib/python3.11/"
        "site-packages/torch/include/ATen/ATen.h:5:2: error: #error C++17 or later compatible compiler is required to "
        "use ATen.",
    ),
    "onednn-part": (
        "onednn_part",
        "the part of oneDNN that was compiled is not all that the release links: cpufleet: oneDNN lacks "
        "_ZN4dnnl4gemmEi, which /opt/vllm/build/source/build/lib_C.so needs",
    ),
    "stale-cache": (
        "stale_cache",
        "what CMake remembers is of another toolchain or folder: CMake Error: The current CMakeCache.txt directory "
        "/opt/vllm/build/source/b/CMakeCache.txt is different than the directory /opt/vllm/build/elsewhere/b where "
        "CMakeCache.txt was created. This may result in binaries being created in the wrong place. If you are not "
        "sure, reedit the CMakeCache.txt",
    ),
    "network-proxy": (
        "network",
        "something that the build fetches could not be fetched: fatal: unable to access "
        "'https://git.example.invalid/oneDNN.git/': Failed to connect to 127.0.0.1 port 9 after 0 ms: Couldn't connect "
        "to server",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failed_build_is_told_by_its_first_cause(name: str) -> None:
    failure = told(log(name))
    assert (failure.kind, failure.text) == FAILURES[name]
    assert failure.remedy


def test_every_captured_failure_is_in_the_table() -> None:
    others = {"done-0.6.5", "ninja-interrupted", "ninja-resumed"}
    assert {path.stem for path in FIXTURES.glob("*.log")} - others == set(FAILURES)


def test_every_kind_was_seen_or_is_an_end_without_a_line() -> None:
    assert set(CODES) - {kind for kind, _text in FAILURES.values()} == {"killed", "unknown", "isa"}
    assert len(KINDS) == len({kind for kind, *_rest in KINDS})


@pytest.mark.parametrize("quote", ["'", "\u2018\u2019"])
def test_the_compilers_quotes_depend_on_the_locale(quote: str) -> None:
    first, last = quote[0], quote[-1]
    text = f"t.cpp:1:41: error: attribute {first}target{last} argument {first}avx10.2{last} is unknown"
    assert told(text).kind == "compiler"


def test_a_tools_error_in_a_build_that_goes_well_is_no_cause() -> None:
    text = log("done-0.6.5")
    assert "\nError: could not get list of modules" in text
    assert told(text, None).kind == "killed"
    assert told(text + log("source")).text.startswith("the source did not build: bad.cpp:1:13: error:")


@pytest.mark.parametrize(
    ("rebooted", "text"),
    [(False, "the build ended without a status, as after a reboot or a kill"), (True, "the host was restarted")],
)
def test_a_build_that_vanished_is_told_as_killed(rebooted: bool, text: str) -> None:
    failure = told(log("ninja-resumed"), None, rebooted=rebooted)
    assert (failure.kind, failure.text, failure.remedy) == ("killed", text, "Run again: it goes on")


def test_a_builder_that_was_killed_itself_ran_out_of_memory() -> None:
    failure = told(log("ninja-resumed"), 137, jobs=2)
    assert (failure.kind, failure.text, failure.remedy) == (
        "memory",
        "the compiler was killed for want of memory: the build was killed (exit status 137), as the kernel does for "
        "want of memory",
        "Add swap (swap_size) or lower vllm_source_build_jobs",
    )


def test_what_the_kernel_killed_is_memory_also_where_the_log_says_nothing() -> None:
    failure = told(log("ninja-resumed"), None, kernel=KERNEL, jobs=2)
    assert (failure.kind, failure.text) == (
        "memory",
        "the compiler was killed for want of memory: the kernel killed cc1plus with 231 MiB at the memory limit of its "
        "control group",
    )
    assert told(log("ninja-resumed"), 1, oom_kills=2).text.endswith("the kernel killed 2 of the build's processes")
    assert told(log("ninja-resumed"), 1, oom_kills=0).kind == "unknown"


def test_the_remedy_for_memory_names_who_set_the_limit_and_whether_jobs_are_left() -> None:
    text = log("memory-killed")
    cases = {
        ("", 2, HOST_KERNEL): "Add swap (swap_size) or lower vllm_source_build_jobs",
        ("", 1, HOST_KERNEL): "Add swap (swap_size), or use a larger host: there was one job already",
        ("6G", 1, KERNEL): (
            "Raise vllm_source_build_memory_max, which is 6G, or use a larger host: there was one job already"
        ),
        ("6G", 2, KERNEL): "Raise vllm_source_build_memory_max, which is 6G or lower vllm_source_build_jobs",
        ("6G", 2, HOST_KERNEL): "Add swap (swap_size) or lower vllm_source_build_jobs",
    }
    for (limit, jobs, kernel), remedy in cases.items():
        failure = told(text, 1, memory_max=limit, jobs=jobs, kernel=kernel)
        assert failure.remedy == remedy
        assert "Killed signal terminated program cc1plus; the kernel killed cc1plus with" in failure.text


def test_only_what_was_killed_of_this_unit_counts() -> None:
    (kill,) = kernel_kills(KERNEL, UNIT)
    assert (kill.name, kill.rss_mib, kill.limit) == ("cc1plus", 231, True)
    assert kernel_kills(KERNEL, "cpufleet-build-cdcdcdcdcdcd.service") == []
    (kill,) = kernel_kills(HOST_KERNEL, UNIT)
    assert (kill.name, kill.limit) == ("cc1plus", False)
    # A kernel that does not name the group (before 5.0): by the compiler's name.
    without = "\n".join(line for line in HOST_KERNEL.splitlines() if "oom-kill:" not in line)
    assert [kill.name for kill in kernel_kills(without, UNIT)] == ["cc1plus"]


def test_lines_of_before_the_start_do_not_count() -> None:
    stamped = "[   12.500000] old\n[ 1234.000001] new\n[12345.600000] newer\n"
    assert lines_since(stamped, 1234) == "new\nnewer"


@pytest.mark.parametrize(
    ("line", "path"),
    [
        (log("disk"), "small/x.o"),
        (
            "fatal error: error writing to /opt/vllm/cache/tmp/ccAb1.s: No space left on device",
            "/opt/vllm/cache/tmp/ccAb1.s",
        ),
        ("OSError: [Errno 28] No space left on device: '/opt/vllm/build/ab/dist/x'", "/opt/vllm/build/ab/dist/x"),
        ("/usr/bin/ld: final link failed: No space left on device", ""),
        ("x: Disk quota exceeded", ""),
    ],
)
def test_a_full_disk_is_told_with_the_path(line: str, path: str) -> None:
    failure = told(line)
    assert (failure.kind, failure.path) == ("disk", path)


def test_a_disk_so_full_that_the_log_could_not_say_so() -> None:
    failure = told("[3/8] Building x.o\n", 1, free_kib=12, mount="/opt/vllm/build")
    assert (failure.kind, failure.text) == ("disk", "the disk is full: /opt/vllm/build had nothing left")
    assert told("[3/8] Building x.o\n", 1, free_kib=4096, mount="/").kind == "unknown"
    assert told(log("source"), 1, free_kib=12, mount="/").kind == "disk"


def test_an_unknown_failure_shows_its_first_errors() -> None:
    text = "one\nTraceback (most recent call last):\nSomething: command not found\nFAILED: x\nFAILED: y\nlast\n"
    assert told(text, 3).text == (
        "exit status 3: Traceback (most recent call last): | Something: command not found | FAILED: x"
    )
    assert told("one\ntwo\nthree\nfour\n", 3).text == "exit status 3: two | three | four"


def test_the_end_is_read_from_what_the_unit_wrote() -> None:
    text = (FIXTURES / "status-v1.txt").read_text()
    end = parse_end(text)
    assert (end.status, end.oom_kills, end.free_kib, end.mount) == (1, 1, 25492, "/opt/vllm/build")
    v2 = "0\n0m0.00s 0m0.00s\n1m0.5s 0m1.5s\nlow 0\nhigh 0\nmax 3\noom 0\noom_kill 0\noom_group_kill 0\n" + "\n" * 3000
    assert (parse_end(v2).status, parse_end(v2).oom_kills, parse_end(v2).free_kib) == (0, 0, None)
    assert parse_end("") == End()
    assert parse_end("\n" * 4096).status is None
