# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Command lines of the package managers, and what their output means. The outputs were captured, see the README."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._packages import (
    explain_failure,
    file_places,
    install_command,
    knows_command,
    missing_apt,
    missing_rpm,
    moved_packages,
    refresh_command,
    repair_command,
    replaced_packages,
    simulate_command,
)

FIXTURES = Path(__file__).parent / "fixtures" / "packages"


def captured(name: str) -> str:
    return (FIXTURES / f"{name}.txt").read_text()


@pytest.mark.parametrize(
    ("wanted", "missing"),
    [
        (["ca-certificates", "python3.11-venv"], []),
        (["g++", "python3.11-venv"], ["g++"]),
        (["libnuma-dev", "ca-certificates", "git"], ["libnuma-dev", "git"]),
        (["awk", "editor-of-no-package"], ["editor-of-no-package"]),  # mawk provides awk
        ([], []),
    ],
)
def test_what_debian_lacks(wanted: list[str], missing: list[str]) -> None:
    assert missing_apt(wanted, captured("dpkg-query")) == missing


def test_a_package_that_is_removed_or_half_installed_is_missing() -> None:
    listing = "g++ config-files c++-compiler\ngcc half-configured \nmake installed make-guile (= 4.3), gmake\n"
    assert missing_apt(["g++", "gcc", "make", "gmake", "c++-compiler"], listing) == ["g++", "gcc", "c++-compiler"]


def test_what_an_rpm_host_lacks() -> None:
    listing = "gcc-c++-8.5.0-28.x86_64\nno package provides numactl-devel\nno package provides git\n"
    assert missing_rpm(["gcc-c++", "git", "numactl-devel"], listing) == ["git", "numactl-devel"]


def test_commands_never_ask_and_wait_for_the_lock() -> None:
    assert " ".join(install_command("apt", ["g++", "git"], 600)) == (
        "apt-get -q -y -o DPkg::Lock::Timeout=600 -o Acquire::Retries=3 -o Dpkg::Options::=--force-confold "
        "install --no-install-recommends g++ git"
    )
    assert " ".join(refresh_command("apt", 30)) == ("apt-get -q -o DPkg::Lock::Timeout=30 -o Acquire::Retries=3 update")
    assert repair_command("apt") == (["dpkg", "--configure", "-a", "--force-confold"],)
    assert (
        " ".join(install_command("dnf", ["gcc-c++"], 600)) == "dnf -y --setopt=install_weak_deps=False install gcc-c++"
    )
    assert " ".join(refresh_command("dnf", 600)) == "dnf -q makecache"
    assert repair_command("dnf") == ()


@pytest.mark.parametrize(
    ("name", "problem", "remedy"),
    [
        ("unknown", "apt-get failed: the package g++-99 is unknown", "Check the host's package sources"),
        (
            "lock",
            "apt-get failed: another package manager holds the lock /var/lib/dpkg/lock-frontend",
            "Wait for it, or end it, and run again",
        ),
        (
            "unresolved",
            "apt-get failed: a file could not be fetched",
            "Check the network, the mirror and the proxy of the host",
        ),
    ],
)
def test_a_failure_of_apt_is_explained(name: str, problem: str, remedy: str) -> None:
    told = CpufleetError(*explain_failure(["apt-get", "install"], captured(name)))
    assert str(told) == f"{problem}. {remedy}."


@pytest.mark.parametrize(
    ("output", "problem"),
    [
        ("Error: Unable to find a match: gcc-c++-99", "dnf failed: the package gcc-c++-99 is unknown"),
        ("No match for argument: nope\nError: Unable to find a match: nope", "dnf failed: the package nope is unknown"),
        ("cannot copy: No space left on device", "dnf failed: the disk is full"),
        ("1\n2\n3\n4\n5", "dnf failed: 2 | 3 | 4 | 5"),
    ],
)
def test_a_failure_of_dnf_is_explained(output: str, problem: str) -> None:
    assert explain_failure(["dnf", "install"], output)[0] == problem


def test_what_moves_with_a_compiler_of_a_newer_suite() -> None:
    moved = {entry["name"]: (entry["old"], entry["new"]) for entry in moved_packages(captured("newer-suite"))}
    assert moved["libc6"] == ("2.36-9+deb12u14", "2.41-12+deb13u5")
    assert moved["base-files"] == ("12.4+deb12u15", "13.8+deb13u8")
    # What is new is not moved.
    assert "gcc-14-base" not in moved and "g++-14" not in moved
    assert sorted(moved) == [
        "base-files",
        "libc-bin",
        "libc6",
        "libcrypt1",
        "libgcc-s1",
        "libgmp10",
        "libstdc++6",
        "libzstd1",
    ]


def test_a_suite_is_named_to_apt_alone() -> None:
    assert simulate_command(["g++-14"], "trixie")[:4] == ["apt-get", "-q", "-s", "--target-release=trixie"]
    assert "--target-release=trixie" in install_command("apt", ["g++-14"], 5, "trixie")
    assert not [word for word in install_command("apt", ["g++"], 5) if "target" in word]
    assert not [word for word in install_command("dnf", ["gcc-c++"], 5, "trixie") if "trixie" in word]


def test_where_files_of_packages_lie() -> None:
    assert file_places("libtcmalloc_minimal.so.4", "aarch64") == [
        "/usr/bin/libtcmalloc_minimal.so.4",
        "/usr/lib/aarch64-linux-gnu/libtcmalloc_minimal.so.4",
        "/usr/lib64/libtcmalloc_minimal.so.4",
        "/usr/lib/libtcmalloc_minimal.so.4",
    ]


def test_whether_the_sources_have_a_package_is_asked_without_changing_anything() -> None:
    assert "-s" in knows_command("apt", "ccache")
    assert knows_command("dnf", "ccache") == ["dnf", "-q", "list", "--available", "ccache"]


def test_what_a_newer_suite_replaces() -> None:
    simulation = captured("newer-suite")
    assert replaced_packages(["libc6", "libgomp1", "bash", "libstdc++6"], simulation) == [
        name for name in ("libc6", "libgomp1", "libstdc++6") if f"Inst {name} " in simulation
    ]
    assert replaced_packages(["bash"], simulation) == []
