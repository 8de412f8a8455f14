# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""wheel_build on a host with a real systemd, compiler and ninja: what goes wrong in a build, and what then follows."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from scripts.lib import bench
from tests.support.build_host import ROOT, UNITS, BuildHost, kill

OTHER = "/usr/local/bin/g++-other"
LIGHT, HEAVY = 20_000, 900_000  # 310 MiB for a heavy one
PROXY = """
import http.server, sys
class Proxy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        with open("/tmp/proxy.log", "a") as log:
            log.write(f"{self.path} {self.headers.get('User-Agent', '')}\\n")
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()
    do_HEAD = do_GET
    def log_message(self, *words): pass
http.server.ThreadingHTTPServer(("127.0.0.1", 3128), Proxy).serve_forever()
"""


@pytest.fixture
def host(build_host: BuildHost) -> BuildHost:
    """The host that all builds share."""
    return build_host


def test_a_compiler_killed_at_a_limit_goes_on_with_half_the_jobs(host: BuildHost, tmp_path: Path) -> None:
    build = host.tiny(tmp_path / "build", [LIGHT, LIGHT, *[HEAVY] * 4])
    out, status = build.play(environment={"MAX_JOBS": "4"}, memory_max="800M")
    assert status == 0, out
    assert re.search(r"^\[\S+\] log: \S+/build\.log$", out, re.MULTILINE)
    (note,) = re.findall(r"^\[\S+\] (goes on with 2 job\(s\) instead of 4: .*)$", out, re.MULTILINE)
    assert "Killed signal terminated program cc1plus; the kernel killed cc1plus with " in note
    assert "at the memory limit of its control group" in note
    (retry,) = build.manifest()["retries"]
    assert (retry["kind"], retry["jobs"]) == ("memory", 4)
    # What was finished before stayed: the second start of ninja had fewer steps.
    totals = [build.steps(log)[-1][1] for log in ("build.log.old", "build.log")]
    assert totals[0] == 7
    assert totals[1] < 7


def test_a_compiler_killed_with_one_job_is_a_failure_with_a_remedy(host: BuildHost, tmp_path: Path) -> None:
    build = host.tiny(tmp_path / "build", [LIGHT, HEAVY])
    out, status = build.play(memory_max="200M")
    assert status != 0
    assert '"kind": "memory"' in out
    remedy = "Raise vllm_source_build_memory_max, which is 200M, or use a larger host: there was one job already."
    assert remedy in out
    assert "goes on with" not in out


def test_a_disk_that_is_full_at_link_time(host: BuildHost, tmp_path: Path) -> None:
    build = host.tiny(tmp_path / "build", [400_000] * 4, mount_mib=20)
    out, status = build.play()
    assert status != 0
    assert '"kind": "disk"' in out, out
    assert f"the filesystem at {build.folder} has " in out
    before = build.objects()
    assert len(before) == 4
    host.run(f"mount -o remount,size=200m {build.folder}")
    out, status = build.play()
    assert status == 0, out
    assert build.objects() == before


def test_a_connection_that_is_cut_does_not_end_the_build(host: BuildHost, tmp_path: Path) -> None:
    build = host.tiny(tmp_path / "build", [300_000] * 4)
    play = build.start()
    build.wait_for(1)
    kill(play)
    assert " active running " in host.run(UNITS)
    started = host.run(f"cat {build.folder}/started.json")
    second = build.start()
    build.wait_for(2)
    assert host.run(f"cat {build.folder}/started.json") == started
    out, _none = second.communicate()
    assert second.returncode == 0, out
    assert build.manifest()["took"]["seconds"] > 0


def test_a_builder_that_restarts_goes_on_where_it_was(host: BuildHost, tmp_path: Path) -> None:
    build = host.tiny(tmp_path / "build", [300_000] * 5)
    play = build.start()
    before = build.wait_for(2)
    kill(play)
    bench.restart_host(host.name)
    assert host.run(UNITS).strip() == ""
    out, status = build.play()
    assert status == 0, out
    assert "goes on where it stopped: " in out
    after = build.objects()
    finished = {name: written for name, written in before.items() if after[name] == written}
    assert len(finished) >= 2
    assert len(after) == 5


def test_a_tree_of_another_compiler_is_made_anew(host: BuildHost, tmp_path: Path) -> None:
    build = host.tiny(tmp_path / "build", [LIGHT, 300_000, 300_000])
    play = build.start()
    build.wait_for(1)
    kill(play)
    host.run("systemctl kill --signal=KILL 'cpufleet-build-*'")
    host.run(f"printf '#!/bin/sh\nexec /usr/bin/g++ \"$@\"\n' >{OTHER} && chmod 755 {OTHER}")
    time.sleep(1)
    out, status = build.play(environment={"CXX": OTHER})
    assert status == 0, out
    assert "the build tree is made anew: CXX was /usr/bin/" in out
    cache = host.run(f"cat {build.folder}/source/build/*/CMakeCache.txt")
    assert re.search(r"^CMAKE_CXX_COMPILER:\S+=/usr/local/bin/g\+\+-other$", cache, re.MULTILINE)


def test_another_build_finds_what_was_compiled_in_the_compiler_cache(host: BuildHost, tmp_path: Path) -> None:
    cells = [LIGHT, LIGHT + 1, LIGHT + 2]
    counts = []
    for name in ("one", "other"):
        build = host.tiny(tmp_path / name, cells)
        out, status = build.play(ccache_dir=f"{ROOT}/cache/ccache", ccache_size="100M")
        assert status == 0, out
        counts.append(build.manifest()["took"]["ccache"])
    # CMake's own look at the compiler goes through the cache too.
    assert counts[0]["hits"] == counts[1]["misses"] == 0
    assert counts[0]["misses"] == counts[1]["hits"] >= len(cells)
    assert "--- ccache" in host.run(f"cat {build.folder}/build.log")
    assert 'CCACHE_MAXSIZE="100M"' in host.run(f"cat {build.folder}/build.env")


def test_a_folder_named_vllm_in_the_working_directory_does_not_matter(host: BuildHost, tmp_path: Path) -> None:
    build = host.tiny(tmp_path / "build", [LIGHT])
    for folder in (build.folder, "", ROOT):
        host.run(f"mkdir -p {folder}/vllm && echo 'raise SystemExit(9)' >{folder}/vllm/__init__.py")
    out, status = build.play()
    host.run(f"rm -r /vllm {ROOT}/vllm")
    assert status == 0, out
    assert host.run(f"python3 -m zipfile -l {build.wheels}/*.whl").count("vllm/") == 2


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY"])
def test_a_proxy_reaches_what_the_build_starts(name: str, host: BuildHost, tmp_path: Path) -> None:
    bench.run("docker", "exec", "--detach", host.name, "python3", "-c", PROXY)
    host.run("rm -f /tmp/proxy.log; for i in $(seq 50); do ss -ltn | grep -q :3128 && break; sleep 0.1; done")
    build = host.tiny(tmp_path / "build", [LIGHT])
    fetch = (
        "curl -sS http://a.invalid/x; git ls-remote http://a.invalid/y; uv pip install -i http://a.invalid/z nothing"
    )
    out, status = build.play(environment={name: "http://127.0.0.1:3128", "TINY_FETCH": fetch})
    assert status == 0, out
    seen = host.run("cat /tmp/proxy.log")
    assert re.search(r"^http://a\.invalid/x curl/", seen, re.MULTILINE)
    assert re.search(r"^http://a\.invalid/y/info/refs\S* git/", seen, re.MULTILINE)
    assert re.search(r"^http://a\.invalid/z/nothing/ uv/", seen, re.MULTILINE)
