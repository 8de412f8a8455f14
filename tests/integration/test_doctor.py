# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The doctor on a host with systemd, from outside, in states that need no vLLM: real faults of a stand-in server.

The processes, units, ports, signals, limits, swap and files are real; only what the engine computes is made up (see
tests/support/stand_in_server.py). What needs a real vLLM is in tests/support/served_doctor.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.lib import bench
from tests.support.doctor_host import DOCTOR
from tests.support.stand_in_host import KEY, LISTENS, SERVER, Host

NAME = f"{os.environ.get('CPUFLEET_HOST_PREFIX', 'cpufleet')}-doctor-{os.getpid()}"
SHM_MIB = 200
# Where the machine has swap, the limit alone moves pages there: systemd knows of that for cgroup v2 only.
GROUP = "/sys/fs/cgroup/memory$$(sed -n s/.*:memory://p /proc/self/cgroup)"
NO_SWAP = f"MemorySwapMax=0\nExecStartPre=-/bin/sh -c 'echo 0 > {GROUP}/memory.swappiness'"


@pytest.fixture(scope="module")
def machine() -> Iterator[Host]:
    with Host.started(NAME, flags=("--shm-size", f"{SHM_MIB}m")) as found:
        yield found


@pytest.fixture
def host(machine: Host) -> Iterator[Host]:
    yield machine
    machine.clear()


FAST = "--seconds 2"


def test_a_host_without_a_server(host: Host) -> None:
    said = host.doctor(FAST)
    assert (said.verdict, said.codes[0]) == ("DEAD", "no_server")


def test_a_server_that_is_well(host: Host) -> None:
    host.serve()
    said = host.doctor()
    assert said.verdict == "OK", said.line
    assert "answered a request for one token" in said.line
    assert KEY not in said.text
    server = said.facts["servers"][0]
    assert server["unit"] == "vllm.service"
    assert server["installed"]["id"] == "d1"
    assert {member["part"] for member in server["processes"]} >= {"server", "engine"}


def test_only_the_standard_library_and_no_ansible_are_needed(host: Host) -> None:
    host.serve()
    assert host.try_sh("command -v ansible ansible-playbook pip pip3") == ""
    said = host.sh(f"env -i PATH=/usr/bin:/bin {DOCTOR} {FAST}")
    assert said.startswith("OK vllm.service ")


def test_stopped_by_hand(host: Host) -> None:
    host.serve()
    host.sh("systemctl stop vllm")
    said = host.doctor(FAST)
    assert (said.verdict, said.codes[0]) == ("DEAD", "stopped_by_hand")
    assert said.line.endswith("Next: systemctl start vllm.service")


def test_an_argument_that_the_release_does_not_know(host: Host) -> None:
    host.deploy(command=f"{SERVER} --no-such-flag 3")
    host.until("systemctl show vllm -p NRestarts --value | grep -v '^0$'")
    said = host.doctor(FAST, steady=False)
    assert (said.verdict, said.codes[0]) == ("MISCONFIGURED", "unknown_argument")
    assert "--no-such-flag" in said.line


def test_a_program_that_is_missing(host: Host) -> None:
    host.deploy(command=SERVER.replace("/r1/", "/r2/"))
    said = host.doctor(FAST, steady=False)
    assert (said.verdict, said.codes[0]) == ("MISCONFIGURED", "program_missing")


def test_a_foreign_process_has_the_port(host: Host) -> None:
    host.sh("nohup python3 -m http.server 8000 --bind 127.0.0.1 > /dev/null 2>&1 & sleep 1")
    host.deploy()
    host.until("journalctl -u vllm | grep -q 'Address already in use'")
    said = host.doctor(FAST, steady=False)
    assert (said.verdict, said.codes[0]) == ("MISCONFIGURED", "port_in_use")
    pid = host.sh("pgrep -f http.server").split()[0]
    assert f"python3 (pid {pid})" in said.line


def test_a_key_file_that_is_missing(host: Host) -> None:
    host.serve()
    host.sh("rm /opt/vllm/secrets/api_key.env")
    host.try_sh("systemctl restart vllm")
    said = host.doctor(FAST, steady=False)
    assert (said.verdict, said.codes[0]) == ("MISCONFIGURED", "key_file_missing")
    assert "/opt/vllm/secrets/api_key.env" in said.line


def test_a_key_file_that_others_can_read(host: Host) -> None:
    host.serve()
    host.sh("chmod 644 /opt/vllm/secrets/api_key")
    said = host.doctor(FAST)
    assert (said.verdict, said.codes[0]) == ("MISCONFIGURED", "key_file_open")
    assert said.line.endswith("Next: chmod 0600 /opt/vllm/secrets/api_key")


def test_a_key_that_was_changed_after_the_start(host: Host) -> None:
    host.serve()
    host.put("/opt/vllm/secrets/api_key", "another-key-0123456789\n", "0600")
    said = host.doctor(FAST)
    assert (said.verdict, said.codes[0]) == ("MISCONFIGURED", "key_stale")
    assert "another-key" not in said.text


def test_killed_at_its_memory_limit(host: Host) -> None:
    host.deploy(command=f"{SERVER} --allocate 400", more=f"MemoryMax=120M\nOOMPolicy=stop\n{NO_SWAP}")
    host.until("systemctl show vllm -p NRestarts --value | grep -v '^0$'", 60)
    host.sh("systemctl stop vllm; systemctl reset-failed vllm")
    # One start, and its end: whatever of the restart would be looked at otherwise.
    host.put("/etc/systemd/system/vllm.service.d/once.conf", "[Service]\nRestart=no\n")
    host.sh("systemctl daemon-reload; systemctl start vllm")
    host.until("systemctl is-failed vllm", 60)
    said = host.doctor(FAST)
    host.sh("rm -r /etc/systemd/system/vllm.service.d")
    assert said.verdict == "DEAD", said.line
    # With cgroup v1 systemd cannot tell the kernel's kill from anybody else's.
    assert said.codes[0] in ("out_of_memory", "oom_killed", "killed")


def test_a_stopped_engine_while_health_is_200(host: Host) -> None:
    host.serve()
    engine = host.engine()
    host.sh(f"kill -STOP {engine}")
    said = host.doctor(FAST)
    host.sh(f"kill -CONT {engine}")
    assert (said.verdict, said.codes[0]) == ("HUNG", "process_stopped")
    assert f"pid {engine} (state T)" in said.line
    assert host.doctor(FAST).verdict == "OK", "it was not harmed"


def test_an_engine_that_does_nothing_with_its_request(host: Host) -> None:
    host.serve()
    freeze, thaw = freezer(host, host.engine())
    host.sh(freeze)
    said = host.doctor(FAST)
    host.sh(thaw)
    assert (said.verdict, said.codes[0]) == ("HUNG", "no_progress")
    assert said.line.endswith("systemctl restart vllm.service")
    assert said.line.index("--snapshot") < said.line.index("systemctl restart")


def freezer(host: Host, pid: int) -> tuple[str, str]:
    """Return how to freeze and thaw one process: it is not stopped, it just gets no time."""
    if host.try_sh("test -d /sys/fs/cgroup/freezer && echo one") == "one":
        folder = f"/sys/fs/cgroup/freezer/doctor-{pid}"
        return (
            f"mkdir {folder} && echo {pid} > {folder}/cgroup.procs && echo FROZEN > {folder}/freezer.state",
            f"echo THAWED > {folder}/freezer.state; echo {pid} > /sys/fs/cgroup/freezer/cgroup.procs; rmdir {folder}",
        )
    folder = f"/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/{pid}/cgroup)"
    return f"echo 1 > {folder}/cgroup.freeze", f"echo 0 > {folder}/cgroup.freeze"


def test_a_long_prompt_is_no_hang(host: Host) -> None:
    host.serve()
    host.ask(1, 400, 1)
    said = host.doctor()
    assert said.verdict in ("OK", "OVERLOADED"), said.line  # OVERLOADED where the machine has other work
    assert "prefill" in said.codes
    assert "computes" in said.cause("prefill")["text"]


def test_more_requests_than_it_can_do(host: Host) -> None:
    host.serve()
    host.ask(16, 1, 60)
    said = host.doctor(FAST)
    assert (said.verdict, said.codes[0]) == ("OVERLOADED", "queue")
    assert "1 requests running" in said.line


def test_the_engine_is_killed(host: Host) -> None:
    host.serve()
    host.sh(f"kill -9 {host.engine()}")
    said = host.doctor(FAST)
    assert (said.verdict, said.codes[0]) == ("DEAD", "engine_dead")


def test_a_worker_without_its_server_holds_memory(host: Host) -> None:
    host.serve(command=f"{SERVER} --allocate 50", more="KillMode=process")
    engine, server = host.engine(), host.main_pid()
    # A worker of vLLM does not notice that its server is gone; this one would.
    host.sh(f"kill -STOP {engine}; kill -9 {server}")
    host.until(f"test $(systemctl show vllm -p MainPID --value) -gt {server}")
    time.sleep(2)
    said = host.doctor(FAST)
    host.sh(f"kill -9 {engine}")
    assert (said.verdict, said.codes[0]) == ("MISCONFIGURED", "orphan_workers")
    assert str(engine) in said.line.split("kill ")[-1]


def test_shm_is_full(host: Host) -> None:
    host.serve()
    host.try_sh(f"dd if=/dev/zero of=/dev/shm/full bs=1M count={SHM_MIB} 2>&1")
    said = host.doctor(FAST)
    assert (said.verdict, said.codes[0]) == ("MISCONFIGURED", "shm_full")


def test_memory_comes_back_from_swap(host: Host) -> None:
    swap = f"{bench.HOST_SWAP}/doctor"
    host.serve()
    host.sh(f"dd if=/dev/zero of={swap} bs=1M count=300 2>&1 && chmod 600 {swap} && mkswap {swap} && swapon {swap}")
    script = "m = bytearray(200 << 20)\nwhile True:\n    for page in range(0, len(m), 4096): m[page] = 1\n"
    host.put("/run/thrash.py", script)
    host.sh("systemd-run --unit=thrash --property=MemoryMax=100M python3 /run/thrash.py 2>&1")
    try:
        rate = "a=$(sed -n 's/^pswpin //p' /proc/vmstat); sleep 1; b=$(sed -n 's/^pswpin //p' /proc/vmstat)"
        host.until(f"{rate}; test $((b - a)) -gt 4000", 60)
        said = host.doctor(FAST)
    finally:
        host.try_sh(f"systemctl stop thrash; swapoff {swap}; rm {swap}")
    assert (said.verdict, said.codes[0]) == ("SWAPPING", "swapping"), said.line
    assert said.facts["rates"]["swap_in_bytes_s"] > 1 << 20


def test_a_quota_that_is_too_small(host: Host) -> None:
    host.serve(more="CPUQuota=20%", environment="OMP_NUM_THREADS=1\n")
    host.ask(1, 200, 1)
    said = host.doctor()
    assert "throttled" in said.codes
    assert said.verdict in ("SLOW", "OVERLOADED"), said.line


def test_one_thread_where_there_are_more_cores(host: Host) -> None:
    if (os.cpu_count() or 1) == 1:
        pytest.skip("this machine has one core")
    host.serve(environment="OMP_NUM_THREADS=1\n")
    said = host.doctor(FAST)
    assert (said.verdict, said.codes[0]) == ("SLOW", "idle_cores")
    host.serve(environment=f"OMP_NUM_THREADS={4 * (os.cpu_count() or 1)}\n")
    assert host.doctor(FAST).codes[0] == "too_many_threads_compute"


def test_a_unit_that_was_edited_by_hand(host: Host) -> None:
    host.serve()
    host.sh("echo '# by hand' >> /etc/systemd/system/vllm.service")
    said = host.doctor(FAST)
    assert said.verdict == "MISCONFIGURED"
    assert {"settings_changed", "reload_needed"} <= set(said.codes)


def test_a_unit_that_does_not_come_back(host: Host) -> None:
    host.serve()
    host.sh("systemctl disable vllm 2>&1")
    assert host.doctor(FAST).line.endswith("Next: systemctl enable vllm.service")


def test_a_server_that_nobody_installed(host: Host) -> None:
    """Started from a shell, without a unit, with its key in the command line, on another port."""
    host.sh(f"cd /; OMP_NUM_THREADS={os.cpu_count()} nohup {SERVER} --port 8005 > /dev/null 2>&1 & sleep 2")
    said = host.doctor(FAST)
    assert said.verdict == "OK", said.line
    pid = said.facts["servers"][0]["pid"]
    host.sh(f"kill -STOP {pid}")
    said = host.doctor(FAST)
    assert (said.verdict, said.codes[0]) == ("HUNG", "process_stopped")
    assert "restart" not in said.line, "without a unit only its owner knows how it was started"


def test_a_snapshot_holds_what_a_restart_takes_away(host: Host) -> None:
    host.serve()
    engine = host.engine()
    host.sh(f"kill -STOP {engine}")
    status, output = host.execute(f"{DOCTOR} {FAST} --snapshot /run/snapshots")
    host.sh(f"kill -CONT {engine}")
    assert status == 11
    folder = output.strip().splitlines()[-1].removeprefix("snapshot: ")
    assert host.sh(f"stat -c %a {folder}") == "700"
    assert host.sh(f"find {folder} -type f ! -perm 0600") == ""
    assert "State:\tT" in host.sh(f"cat {folder}/processes/{engine}/status")
    for name in (
        "report.txt",
        "report.json",
        "vllm.service/journal",
        "vllm.service/cat",
        "host/sockets",
        "host/meminfo",
    ):
        assert host.sh(f"cat {folder}/{name}"), name
    assert host.sh(f"cat {folder}/processes/{engine}/threads").startswith(f"== {engine}")
    assert host.sh(f"ls {folder}/cgroup/{host.main_pid()}")
    assert host.execute(f"grep -r {KEY} {folder}")[1].strip() == ""


def test_the_way_back_without_a_controller(host: Host) -> None:
    host.serve(identity="d1")
    time.sleep(1.1)
    host.deploy(identity="d2", command=f"{SERVER} --no-such-flag")
    assert host.doctor(FAST, steady=False).verdict == "MISCONFIGURED"
    said = host.sh(f"{DOCTOR} rollback --local")
    assert said.startswith("vllm.service now starts deployment d1 in place of d2")
    host.until(LISTENS)
    assert host.doctor(FAST).verdict == "OK"
    assert host.sh("readlink /opt/vllm/current") == "deployments/d1"
    assert host.try_sh("ls /opt/vllm/current.pending") != "/opt/vllm/current.pending"


def test_a_way_back_that_leads_nowhere_is_refused(host: Host) -> None:
    host.serve(identity="d1")
    status, said = host.execute(f"{DOCTOR} rollback --local 2>&1")
    assert status == 3
    assert "there is nothing to go back to" in said
    host.deploy(identity="d2")
    host.sh("mv /srv/model /srv/moved")
    status, said = host.execute(f"{DOCTOR} rollback --local --to d1 2>&1")
    host.sh("mv /srv/moved /srv/model")
    assert (status, "Deployment d1 cannot serve: /srv/model is missing" in said) == (3, True)
    assert host.sh("readlink /opt/vllm/current") == "deployments/d2"


def test_the_playbook_makes_one_table(host: Host, tmp_path: Path) -> None:
    host.serve()
    settings = {**bench.host_variables(), "ansible_connection": "community.docker.docker"}
    gone = {**settings, "ansible_docker_extra_args": "", "ansible_host": "no-such-container"}
    hosts = {NAME: settings, "gone": gone}
    inventory = tmp_path / "hosts.json"
    inventory.write_text(json.dumps({"all": {"children": {"vllm_hosts": {"hosts": hosts}}}}))
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = ["ansible-playbook", "playbooks/doctor.yml", "-i", str(inventory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=bench.REPOSITORY, env=environment)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["gone", "UNREACHABLE", "-", "-"] in lines, done.stdout + done.stderr
    assert [NAME, "OK", "-", "-"] in lines
    assert lines.index(["gone", "UNREACHABLE", "-", "-"]) < lines.index([NAME, "OK", "-", "-"])
    assert done.returncode != 0, "a host that is not OK fails the play"
