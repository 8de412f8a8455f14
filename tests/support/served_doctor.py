# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The doctor on a host where site.yml has served a model: real faults of a real vLLM, each mended again.

``check_all(by_testinfra(host))`` in a test of molecule; by hand, for a container, from the repository's folder:
``CPUFLEET_DOCTOR_HOST=name python -m tests.support.served_doctor [FAULT ...]``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

from tests.support.doctor_host import DoctorHost, Said, in_container

Execute = Callable[[str], tuple[int, str]]
ROOT = "/opt/vllm"
START_S = 600
ASK = """
import json, sys, threading, urllib.request
asked = json.load(open("{root}/current/manifest.json"))
key = open("{root}/secrets/api_key").read().strip()
def ask():
    body = json.dumps({{"model": asked["name"], "prompt": "w " * int(sys.argv[2]), "max_tokens": int(sys.argv[3]),
                       "ignore_eos": True, "temperature": 0}})
    headers = {{"Authorization": "Bearer " + key, "Content-Type": "application/json"}}
    request = urllib.request.Request(asked["url"] + "/v1/completions", body.encode(), headers)
    print(urllib.request.urlopen(request, timeout=600).status)
threads = [threading.Thread(target=ask) for _each in range(int(sys.argv[1]))]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""


FLIP = "f.seek(-9, 2); b = f.read(1); f.seek(-9, 2); f.write(bytes([b[0] ^ 1]))"


class Served(DoctorHost):
    """A host with a served model. With ``mend`` off a fault leaves the service ended, for the next one."""

    mend = True

    def model(self) -> str:
        """Return the folder of the model."""
        return str(json.loads(self.sh(f"cat {ROOT}/current/manifest.json"))["model"])

    def weights(self) -> str:
        """Return the file of the weights."""
        return self.sh(f"ls {self.model()}/*.safetensors | head -1")

    def flip(self) -> None:
        """Turn one bit in the last bytes of the weights, or turn it back."""
        self.sh(f"python3 -c \"import sys; f = open(sys.argv[1], 'r+b'); {FLIP}\" {self.weights()}")

    def ask(self, requests: int, words: int, tokens: int, wait: bool = True) -> None:
        """Complete something, in the background without ``wait``."""
        command = f"python3 -c '{ASK.format(root=ROOT)}' {requests} {words} {tokens}"
        self.sh(command if wait else f"nohup {command} > /dev/null 2>&1 &")

    def until_asked(self) -> None:
        """Wait until a request runs."""
        url = json.loads(self.sh(f"cat {ROOT}/current/manifest.json"))["url"]
        read = f"import urllib.request as u; print(u.urlopen('{url}/metrics').read().decode())"
        self.until(f'python3 -c "{read}" | grep "^vllm:num_requests_running" | grep -qv " 0.0$"', 60)

    def ready(self) -> None:
        """Wait until it completes a request."""
        deadline = time.monotonic() + START_S
        while True:
            command = f"python3 -c '{ASK.format(root=ROOT)}' 1 1 1 2>&1"
            status, said = self.execute(command)
            if status == 0 and "200" in said:
                return
            assert time.monotonic() < deadline, f"not serving again within {START_S} s: {said[-300:]}"
            time.sleep(1)

    def restart(self) -> None:
        """Start anew and wait until it serves."""
        if not self.mend:
            self.sh(f"systemctl stop {self.unit}")
            return
        self.try_sh(f"systemctl reset-failed {self.unit} 2>&1")
        self.sh(f"systemctl restart {self.unit}")
        self.ready()


def ok(host: Served) -> Said:
    """Well, idle: proven by a token."""
    host.ready()
    said = host.doctor()
    assert said.verdict in ("OK", "SLOW"), said.line  # SLOW where the threads were set by hand
    assert said.facts["servers"][0]["question"]["status"] == 200
    key = host.sh(f"cat {ROOT}/secrets/api_key")
    assert key not in said.text
    return said


def busy(host: Served) -> Said:
    """Well, while others ask: proven by its counters, without a request of the doctor's own."""
    host.ask(2, 5, 100, wait=False)
    host.until_asked()
    said = host.doctor()
    host.ready()
    assert said.verdict in ("OK", "SLOW", "OVERLOADED"), said.line
    server = said.facts["servers"][0]
    assert not server["question"]["asked"]
    assert server["tokens"]["moved"] > 0
    return said


def long_prompt(host: Served) -> Said:
    """Prefill keeps the engine busy: never a hang."""
    host.ask(6, 1200, 1, wait=False)
    host.until_asked()
    said = host.doctor("--seconds 2")
    host.ready()
    assert said.verdict not in ("HUNG", "DEAD"), said.line
    return said


def stopped_engine(host: Served) -> Said:
    """SIGSTOP: the server goes on answering, the engine does not."""
    engine = worker(host)
    host.sh(f"kill -STOP {engine}")
    said = host.doctor()
    host.sh(f"kill -CONT {engine}")
    host.ready()
    assert (said.verdict, said.codes[0]) == ("HUNG", "process_stopped"), said.line
    assert f"pid {engine}" in said.line
    return said


def frozen_engine(host: Served) -> Said:
    """The engine gets no time although nothing stopped it: found by counters alone."""
    if host.try_sh("test -d /sys/fs/cgroup/freezer && echo one") != "one":
        raise AssertionError(
            "this needs the freezer of cgroup v1; with v2 a part of a unit cannot be frozen from outside"
        )
    pid = worker(host)
    folder = f"/sys/fs/cgroup/freezer/doctor-{pid}"
    host.sh(f"mkdir {folder}; echo {pid} > {folder}/cgroup.procs; echo FROZEN > {folder}/freezer.state")
    said = host.doctor()
    host.sh(f"echo THAWED > {folder}/freezer.state; echo {pid} > /sys/fs/cgroup/freezer/cgroup.procs; rmdir {folder}")
    host.ready()
    assert (said.verdict, said.codes[0]) == ("HUNG", "no_progress"), said.line
    return said


def killed_engine(host: Served) -> Said:
    """The engine is killed: until systemd starts it anew it is no server that serves."""
    host.sh(f"kill -9 {worker(host)}")
    time.sleep(1)
    said = host.doctor("--seconds 1", steady=False)
    host.ready()
    assert said.verdict in ("DEAD", "SLOW"), said.line
    assert said.codes[0] in ("engine_dead", "killed", "crash_loop", "not_running", "loading", "unknown"), said.line
    return said


def stopped_by_hand(host: Served) -> Said:
    """The operator stopped it."""
    host.sh(f"systemctl stop {host.unit}")
    said = host.doctor("--seconds 1")
    host.restart()
    assert (said.verdict, said.codes[0]) == ("DEAD", "stopped_by_hand"), said.line
    return said


def port_taken(host: Served) -> Said:
    """Something else has the port."""
    port = json.loads(host.sh(f"cat {ROOT}/current/manifest.json"))["url"].rpartition(":")[2]
    host.sh(f"systemctl stop {host.unit}")
    host.sh(f"nohup python3 -m http.server {port} --bind 127.0.0.1 > /dev/null 2>&1 & sleep 1")
    host.sh(f"systemctl start {host.unit}")
    host.until(f"journalctl --unit={host.unit} --since=-2min | grep -q 'ddress already in use'", START_S)
    said = host.doctor("--seconds 1", steady=False)
    host.sh("pkill -f '[h]ttp.server'")
    host.restart()
    assert (said.verdict, said.codes[0]) == ("MISCONFIGURED", "port_in_use"), said.line
    return said


def flipped_byte(host: Served) -> Said:
    """One byte of the weights is another than when they were verified; their size is the same."""
    file = host.weights()
    stamp = host.sh(f"stat -c %y {file}")
    host.flip()
    said = host.doctor("--seconds 1")
    if host.mend:
        host.flip()
        host.sh(f'touch -d "{stamp}" {file}')
    # A machine with other work is OVERLOADED before that.
    assert said.cause("model_changed")["verdict"] == "MISCONFIGURED"
    assert said.verdict in ("MISCONFIGURED", "OVERLOADED"), said.line
    return said


def missing_key_file(host: Served) -> Said:
    """The file with the key is gone when the service is started."""
    host.sh(f"mv {ROOT}/secrets/api_key.env {ROOT}/secrets/moved")
    host.try_sh(f"systemctl restart {host.unit} 2>&1")
    said = host.doctor("--seconds 1", steady=False)
    host.sh(f"mv {ROOT}/secrets/moved {ROOT}/secrets/api_key.env")
    host.restart()
    assert (said.verdict, said.codes[0]) == ("MISCONFIGURED", "key_file_missing"), said.line
    return said


def memory_limit(host: Served) -> Said:
    """MemoryMax is less than the engine needs: killed by the kernel, or thrashing where cgroup v1 lets it swap."""
    folder = f"/run/systemd/system/{host.unit}.d"
    settings = "[Service]\\nMemoryMax=300M\\nRestart=no\\n"
    host.sh(f"mkdir -p {folder}; printf '{settings}' > {folder}/doctor.conf; systemctl daemon-reload")
    host.try_sh(f"systemctl restart {host.unit}")
    gone = f"systemctl is-failed {host.unit} || test -z \"$(pgrep -f '[v]llm.entrypoints')\""
    thrashes = "test $(wc -l < /proc/swaps) -gt 1 && sleep 20"
    host.until(f"{gone} || {thrashes}", START_S)
    said = host.doctor("--seconds 2", steady=False)
    host.sh(f"rm -r {folder}; systemctl daemon-reload")
    host.restart()
    assert said.verdict in ("DEAD", "SWAPPING"), said.line
    assert said.codes[0] in ("out_of_memory", "oom_killed", "killed", "swapping"), said.line
    return said


def worker(host: Served) -> int:
    """Return the process that computes: a worker where there is one, else the engine."""
    said = host.doctor("--no-question --seconds 0.5")
    members = said.facts["servers"][0]["processes"]
    for part in ("worker", "engine", "server"):
        found = [member["pid"] for member in members if member["part"] == part]
        if found:
            return int(found[0])
    raise AssertionError(f"no process computes: {members}")


FAULTS: tuple[Callable[[Served], Said], ...] = (
    ok,
    busy,
    long_prompt,
    stopped_engine,
    frozen_engine,
    killed_engine,
    stopped_by_hand,
    port_taken,
    flipped_byte,
    missing_key_file,
    memory_limit,
    ok,
)


def check_all(execute: Execute, names: tuple[str, ...] = (), mend: bool = True) -> list[str]:
    """Try every fault, or those of ``names``; return what the doctor said of each in one line."""
    host = Served(execute)
    host.mend = mend
    lines = []
    for fault in FAULTS:
        if not names or fault.__name__ in names:
            said = fault(host)
            lines.append(f"{fault.__name__}: {said.seconds:.1f} s: {said.line}")
    return lines


if __name__ == "__main__":
    sys.stdout.write("\n".join(check_all(in_container(os.environ["CPUFLEET_DOCTOR_HOST"]), tuple(sys.argv[1:]))) + "\n")
