# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the role left on a host that was in its first minutes, as the host's own programs tell it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

COLLECTION = Path(__file__).resolve().parents[3]
VARIABLES: dict[str, Any] = yaml.safe_load((COLLECTION / "roles/toolchain/vars/main.yml").read_text(encoding="utf-8"))
ROOT = "/opt/vllm"
MIRROR = "http://127.0.0.1:8099"


def test_compilers_are_there_in_one_version_and_nothing_was_made_the_default(host: Any) -> None:
    versions = {host.check_output(f"{name} -dumpfullversion") for name in ("g++", "gcc")}
    assert len(versions) == 1
    assert int(versions.pop().partition(".")[0]) >= 12
    assert host.run("ls /etc/alternatives/g++ /etc/alternatives/gcc").rc != 0


def test_headers_of_the_build_are_there(host: Any) -> None:
    include = host.check_output("python3 -c 'import sysconfig; print(sysconfig.get_path(\"include\"))'")
    lines = "#include <Python.h>\\n#include <numa.h>\\n#include <omp.h>\\n"
    host.run_expect([0], f"printf '{lines}' | g++ -x c++ -fopenmp -I{include} -fsyntax-only -")


@pytest.mark.parametrize("name", [name for name in VARIABLES["__toolchain_isa_flags"] if not name.startswith("neon")])
@pytest.mark.parametrize("standard", ["17", "20"])
def test_flags_of_every_class_are_known_to_the_compiler(host: Any, name: str, standard: str) -> None:
    flags = " ".join(VARIABLES["__toolchain_isa_flags"][name])
    lines = "#include <immintrin.h>\\nint main() { return 0; }\\n"
    host.run_expect([0], f"printf '{lines}' | g++ -x c++ -std=c++{standard} {flags} -fsyntax-only -")


def test_what_speeds_up_building_and_serving_is_there_by_its_file(host: Any) -> None:
    """Debian 13 calls the package of tcmalloc libtcmalloc-minimal4t64: the role asks for the old name on both."""
    library = host.file("/root/tcmalloc-library").content_string
    assert library == "/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4"
    host.run_expect([0], f"ccache --version && LD_PRELOAD={library} python3 -c 'print(1)'")


def test_uv_is_in_a_folder_of_its_own(host: Any) -> None:
    assert host.check_output(f"{ROOT}/tools/uv/bin/uv --version").startswith("uv 0.13.9")
    assert host.run("command -v uv").rc != 0


def test_half_configured_package_was_finished(host: Any) -> None:
    assert host.check_output("dpkg-query -W -f='${db:Status-Status}' cut-off") == "installed"
    assert host.check_output("dpkg --audit") == ""


def test_nothing_was_asked_of_anyone(host: Any) -> None:
    assert not host.file("/root/asked").exists


def test_cloud_init_was_waited_for_while_the_host_was_new(host: Any) -> None:
    assert host.file("/root/cloud-init-asked").content_string.splitlines()[0] == "status --wait --long"


def test_locks_were_waited_for_and_not_broken(host: Any) -> None:
    """The thirty seconds were over when packages were unpacked."""
    fresh = float(host.check_output("stat -c %Y /root/was-fresh"))
    first = host.check_output("grep -m1 ' install libnuma-dev' /var/log/dpkg.log | cut -c1-19")
    installed = float(host.check_output(f"date -d '{first}' +%s"))
    assert installed - fresh >= 29


def test_stale_mirror_was_passed_over_and_the_good_one_was_used(host: Any) -> None:
    log = host.check_output("journalctl --unit mirror --no-pager --output cat")
    assert "-updates/InRelease" in log
    assert "/simple/uv/" in log
    assert "Packages" not in log
    sources = host.file(f"{ROOT}/mirror/sources.list").content_string
    assert MIRROR not in sources
    assert len([line for line in sources.splitlines() if line.startswith("deb http")]) == 3
    lists = host.file("/var/lib/apt/lists").listdir()
    assert [name for name in lists if name.endswith("InRelease")]


def test_settings_of_apt_are_what_they_were(host: Any) -> None:
    now = host.check_output("find /etc/apt -type f -exec sha256sum {} + | sort")
    assert now == host.file("/root/apt-before").content_string.strip()


def test_package_manager_works_as_ever(host: Any) -> None:
    host.run_expect([0], "apt-get check")
    assert host.run("APT_CONFIG= apt-config dump | grep -q mirror").rc != 0
