# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""system_packages with package managers of its own on PATH: what they are asked, in which order."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.run_module import run_module

QUERY = """#!/bin/sh
cat "$CPUFLEET_TEST/installed"
"""
RPM = """#!/bin/sh
shift 2
for name; do grep -q "^$name installed" "$CPUFLEET_TEST/installed" || echo "no package provides $name"; done
"""
# Says how it was called and under which settings, and installs what comes after the command's last option.
MANAGER = """#!/bin/sh
echo "$(basename "$0") $*" >> "$CPUFLEET_TEST/calls"
env | grep -E '^(DEBIAN_FRONTEND|NEEDRESTART_|UCF_FORCE_CONFFOLD|LC_ALL)' | sort > "$CPUFLEET_TEST/env"
case " $* " in
*" -s --target-release="*)
  [ -f "$CPUFLEET_TEST/refreshed" ] || { echo "E: The value 'trixie' is invalid" >&2; exit 100; }
  cat "$CPUFLEET_TEST/simulation"; exit 0;;
*" -s "*|*" list "*)
  for word; do :; done
  [ -f "$CPUFLEET_TEST/refreshed" ] && lists=new || lists=old
  grep -qx "$word" "$CPUFLEET_TEST/known-$lists" && exit 0
  echo "E: Unable to locate package $word" >&2; exit 100;;
esac
case " $* " in *" install "*"libc6"*) : > "$CPUFLEET_TEST/simulation";; esac
case " $* " in *" update "*|*" makecache "*) touch "$CPUFLEET_TEST/refreshed";; esac
[ -f "$CPUFLEET_TEST/fails" ] && case "$*" in *" install "*) cat "$CPUFLEET_TEST/fails" >&2; exit 100;; esac
installing=
for word; do
  [ "$word" = install ] && installing=yes
  case "$word" in -*|install) ;; *) [ "$installing" ] && echo "$word installed " >> "$CPUFLEET_TEST/installed";; esac
done
exit 0
"""


class Host:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        monkeypatch.setenv("CPUFLEET_TEST", str(folder))
        programs = {"dpkg-query": QUERY, "rpm": RPM, "apt-get": MANAGER, "dpkg": MANAGER, "dnf": MANAGER}
        for name, text in programs.items():
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        for lists in ("old", "new"):
            (folder / f"known-{lists}").write_text("ccache\n")
        (folder / "installed").write_text("ca-certificates installed \nmawk installed awk\n")

    def calls(self) -> list[str]:
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def run(self, *names: str, check: bool = False, manager: str = "apt", **arguments: Any) -> dict[str, Any]:
        return run_module("system_packages", check=check, name=list(names), manager=manager, **arguments)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path, monkeypatch)


def test_what_is_there_is_left_alone(host: Host) -> None:
    result = host.run("ca-certificates", "awk")
    assert (result["changed"], result["installed"], host.calls()) == (False, [], [])


def test_only_what_is_missing_is_installed_after_repair_and_refresh(host: Host) -> None:
    result = host.run("g++", "ca-certificates", "libnuma-dev", lock_timeout=30)
    assert (result["changed"], result["installed"]) == (True, ["g++", "libnuma-dev"])
    assert host.calls() == [
        "dpkg --configure -a --force-confold",
        "apt-get -q -o DPkg::Lock::Timeout=30 -o Acquire::Retries=3 update",
        "apt-get -q -y -o DPkg::Lock::Timeout=30 -o Acquire::Retries=3 -o Dpkg::Options::=--force-confold "
        "install --no-install-recommends g++ libnuma-dev",
    ]
    assert (host.folder / "env").read_text().splitlines() == [
        "DEBIAN_FRONTEND=noninteractive",
        "LC_ALL=C.UTF-8",
        "NEEDRESTART_MODE=a",
        "NEEDRESTART_SUSPEND=1",
        "UCF_FORCE_CONFFOLD=1",
    ]
    assert result["diff"] == {"before": "", "after": "g++\nlibnuma-dev\n"}
    assert host.run("g++", "ca-certificates", "libnuma-dev")["changed"] is False


def test_dnf_hosts(host: Host) -> None:
    assert host.run("gcc-c++", "ca-certificates", manager="dnf")["installed"] == ["gcc-c++"]
    assert host.calls() == ["dnf -q makecache", "dnf -y --setopt=install_weak_deps=False install gcc-c++"]


def test_check_mode_names_them_and_runs_nothing(host: Host) -> None:
    planned = host.run("g++", check=True)
    assert (planned["changed"], planned["installed"], host.calls()) == (True, ["g++"], [])


def test_an_unknown_package_is_named(host: Host) -> None:
    (host.folder / "fails").write_text("E: Unable to locate package g++-99\n")
    failed = host.run("g++-99")
    assert failed["msg"] == "apt-get failed: the package g++-99 is unknown. Check the host's package sources."
    assert failed["command"][:3] == ["apt-get", "-q", "-y"]


def test_an_installation_that_installs_nothing_is_no_success(host: Host) -> None:
    (host.folder / "apt-get").write_text("#!/bin/sh\nexit 0\n")
    assert host.run("g++", "git")["msg"] == (
        "Installed g++, git, but g++, git is still missing. Look at the package manager's log on the host."
    )


TCMALLOC = "libtcmalloc-minimal4"


def simulated(name: str) -> str:
    return f"apt-get -q -s install --no-install-recommends {name}"


def test_an_optional_package_comes_along_where_the_sources_have_it(host: Host) -> None:
    result = host.run("g++", optional=["ccache", TCMALLOC])
    assert (result["changed"], result["installed"], result["unavailable"]) == (True, ["g++", "ccache"], [TCMALLOC])
    calls = host.calls()
    assert [call.split()[-1] for call in calls[:2]] == ["--force-confold", "update"], "new lists before any question"
    assert calls[2:4] == [simulated("ccache"), simulated(TCMALLOC)]
    assert calls[4].endswith("install --no-install-recommends g++ ccache")
    assert len(calls) == 5


def test_an_optional_package_alone_needs_new_lists_only_where_the_old_ones_lack_it(host: Host) -> None:
    assert host.run("ca-certificates", optional=["ccache"])["installed"] == ["ccache"]
    assert host.calls()[0] == simulated("ccache")
    (host.folder / "calls").unlink()
    (host.folder / "refreshed").unlink()
    (host.folder / "known-new").write_text(f"{TCMALLOC}\n")
    result = host.run("ca-certificates", optional=["ccache", TCMALLOC])
    assert (result["installed"], result["unavailable"]) == ([TCMALLOC], [])
    assert [call.split()[-1] for call in host.calls()[:3]] == [TCMALLOC, "--force-confold", "update"]


def test_an_optional_package_that_there_is_not_is_no_failure_and_no_change(host: Host) -> None:
    for _time in range(2):
        result = host.run("ca-certificates", optional=[TCMALLOC])
        assert (result["changed"], result["installed"], result["unavailable"]) == (False, [], [TCMALLOC])


def test_check_mode_asks_the_lists_that_are_there(host: Host) -> None:
    result = host.run("g++", optional=["ccache", TCMALLOC], check=True)
    assert (result["installed"], result["unavailable"]) == (["g++", "ccache"], [TCMALLOC])
    assert host.calls() == [simulated("ccache"), simulated(TCMALLOC)]


def test_optional_packages_of_dnf_hosts(host: Host) -> None:
    result = host.run("ca-certificates", optional=["ccache", "gperftools-libs"], manager="dnf")
    assert (result["installed"], result["unavailable"]) == (["ccache"], ["gperftools-libs"])
    assert host.calls()[0] == "dnf -q list --available ccache"


def test_files_are_found_where_they_are(host: Host) -> None:
    result = host.run("ca-certificates", find=["env", "libc.so.6", "no-such-program"])
    found = result["found"]
    assert (found["env"], found["no-such-program"]) == ("/usr/bin/env", "")
    assert found["libc.so.6"].endswith("/libc.so.6") and Path(found["libc.so.6"]).exists()


def test_a_newer_version_comes_from_the_suite_that_was_asked_for(host: Host) -> None:
    (host.folder / "installed").write_text("libc6 installed \nlibgomp1 installed \n")
    (host.folder / "simulation").write_text(
        "Inst libc6 [2.36-9] (2.41-12 Debian:13/stable [amd64])\nInst libc-bin [2.36-9] (2.41-12 Debian:13/stable)\n"
    )
    newer = {"target_release": "trixie", "newer": True}
    assert host.run("libc6", "libgomp1", **newer, check=True)["installed"] == ["libc6", "libgomp1"]
    result = host.run("libc6", "libgomp1", **newer)
    assert (result["changed"], result["installed"]) == (True, ["libc6"])
    assert [entry["name"] for entry in result["moved"]] == ["libc6", "libc-bin"]
    assert host.run("libc6", "libgomp1", **newer)["changed"] is False


def test_an_older_version_is_good_enough_where_no_newer_one_was_asked_for(host: Host) -> None:
    (host.folder / "installed").write_text("libc6 installed \n")
    assert host.run("libc6", target_release="trixie")["changed"] is False


def test_a_suite_that_the_sources_do_not_have_is_named(host: Host) -> None:
    (host.folder / "apt-get").write_text("#!/bin/sh\necho \"E: The value 'trixie' is invalid\" >&2\nexit 100\n")
    failed = host.run("libc6", target_release="trixie", newer=True)
    assert failed["msg"].startswith("apt-get failed: E: The value 'trixie' is invalid")
