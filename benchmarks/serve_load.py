# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Start a service with the given words, load it, and print what memory it took. Runs on the host itself, as root.

Usage: python3 benchmarks/serve_load.py JSON. Only benchmarks/serve_plan.py calls it; it needs nothing but systemd.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

UNIT = "cpufleet-measure.service"
PORT = 8077
ANSWER_TOKENS = 16
SAMPLE_S = 0.2
READY_S = 900
URL = f"http://127.0.0.1:{PORT}"


def systemctl(*words: str) -> str:
    """Return what systemctl prints."""
    return subprocess.run(["systemctl", *words], capture_output=True, text=True, check=False).stdout.strip()


def processes() -> list[str]:
    """Return the ids of the unit's processes."""
    control = systemctl("show", "-P", "ControlGroup", UNIT)
    found: list[str] = []
    for place in (f"/sys/fs/cgroup/memory{control}", f"/sys/fs/cgroup/systemd{control}", f"/sys/fs/cgroup{control}"):
        for folder, _folders, names in os.walk(place):
            if "cgroup.procs" in names:
                found += (Path(folder) / "cgroup.procs").read_text(encoding="ascii").split()
        if found:
            break
    return found


def sample() -> dict[str, int]:
    """Return the memory of the unit now: proportional, anonymous and shared (which no limit can take back), by kind."""
    total: dict[str, int] = {"Pss": 0, "Pss_Anon": 0, "Pss_File": 0, "Pss_Shmem": 0}
    for process in processes():
        try:
            text = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii")
        except OSError:
            continue
        for line in text.splitlines():
            name, _colon, value = line.partition(":")
            if name in total:
                total[name] += int(value.split()[0]) * 1024
    return total


def ask(path: str, document: dict[str, Any] | None = None, timeout: float = 600) -> Any:
    """Return the answer of the service."""
    body = None if document is None else json.dumps(document).encode()
    request = urllib.request.Request(URL + path, body, {"Content-Type": "application/json"})  # noqa: S310 - a loopback address
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=timeout) as answer:
        content = answer.read()
    return json.loads(content) if content.strip() else None


def wait_until_ready() -> float:
    """Return the seconds until the service answers."""
    started = time.monotonic()
    while time.monotonic() - started < READY_S:
        if systemctl("is-active", UNIT) not in ("active", "activating"):
            break
        try:
            ask("/health", timeout=2)
            return time.monotonic() - started
        except (OSError, urllib.error.URLError):
            time.sleep(0.5)
    log = subprocess.run(
        ["journalctl", "-u", UNIT, "-n", "30", "--no-pager"], capture_output=True, text=True, check=False
    )
    sys.exit(f"the service did not become ready ({systemctl('show', '-P', 'Result', UNIT)}):\n{log.stdout}")


def load(given: dict[str, Any], deadline: float, counts: list[int]) -> None:
    """Send requests as long as planned until the deadline, one after the other."""
    source = random.Random(threading.get_ident())  # noqa: S311 - prompts, no secrets
    while time.monotonic() < deadline:
        prompt = [source.randrange(10, given["vocabulary"] - 10) for _token in range(given["context"] - ANSWER_TOKENS)]
        request = {"model": "m", "prompt": prompt, "max_tokens": ANSWER_TOKENS, "ignore_eos": True, "temperature": 0}
        try:
            counts.append(int(ask("/v1/completions", request)["usage"]["total_tokens"]))
        except (OSError, urllib.error.URLError):
            counts.append(0)
            return


def start(given: dict[str, Any]) -> None:
    """Start the planned service as a unit of its own."""
    systemctl("stop", UNIT)
    systemctl("reset-failed", UNIT)
    settings = [f"--setenv={name}={value}" for name, value in given["environment"].items()]
    limits = ["-p", f"MemoryMax={given['limit']}", "-p", "MemorySwapMax=0"] if given["limit"] else []
    place = ["--host", "127.0.0.1", "--port", str(PORT)]
    command = [*given["command"], "--model", given["model"], *place, *given["arguments"]]
    run = ["systemd-run", f"--unit={UNIT}", "-p", "WorkingDirectory=/tmp", *limits, *settings, *command]
    subprocess.run(run, check=True, capture_output=True)


def probe(given: dict[str, Any]) -> dict[str, Any]:
    """Start the planned service, load it, and return what it took."""
    start(given)
    samples: list[dict[str, int]] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(SAMPLE_S):
            samples.append(sample())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        ready = wait_until_ready()
        idle = sample()
        counts: list[int] = []
        deadline = time.monotonic() + given["seconds"]
        threads = [threading.Thread(target=load, args=(given, deadline, counts)) for _one in range(given["sequences"])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        over.set()
        watcher.join()
        result, state = systemctl("show", "-P", "Result", UNIT), systemctl("is-active", UNIT)
        systemctl("stop", UNIT)
    peak = max(samples, key=lambda one: one["Pss"])
    return {
        "ready_s": round(ready, 1),
        "requests": len(counts),
        "tokens": sum(counts),
        "failed": counts.count(0),
        "state": state,
        "result": result,
        "idle": idle,
        "peak": peak,
        "held": max(one["Pss_Anon"] + one["Pss_Shmem"] for one in samples),
    }


if __name__ == "__main__":
    print(json.dumps(probe(json.loads(sys.argv[1]))))
