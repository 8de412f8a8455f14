# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ask a service on this host for many tokens in one and in several streams, and print how fast they came.

Usage: python3 serve_streams.py JSON, as root on the host. Only benchmarks/serve.py calls it. With ``start`` (a command
line) and ``variables`` a unit is started with them first; else ``unit`` is restarted, so that its start is timed too.
"""

from __future__ import annotations

import http.client
import json
import random
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

PROMPT_TOKENS = 32
ANSWER_TOKENS = 64
READY_S = 1200
ANSWER_S = 3600


def systemctl(*words: str) -> str:
    """Return what systemctl prints."""
    return subprocess.run(["systemctl", *words], capture_output=True, text=True, check=False).stdout.strip()


def begin(given: dict[str, Any]) -> None:
    """Start the service anew."""
    unit = given["unit"]
    if not given.get("start"):
        systemctl("restart", "--no-block", unit)
        return
    systemctl("stop", unit)
    systemctl("reset-failed", unit)
    settings = [f"--setenv={name}={value}" for name, value in given["variables"].items()]
    run = ["systemd-run", f"--unit={unit}", "-p", "WorkingDirectory=/tmp", *settings, *given["start"]]
    subprocess.run(run, check=True, capture_output=True)


def healthy(port: int) -> bool:
    """Tell whether the service says that it is ready."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.client.OK
    except OSError:
        return False
    finally:
        connection.close()


def wait_until_ready(given: dict[str, Any]) -> float:
    """Start the service and return the seconds until it is ready."""
    started = time.monotonic()
    begin(given)
    # What served before still answers for a moment.
    time.sleep(0.5)
    while time.monotonic() - started < READY_S:
        if systemctl("is-failed", given["unit"]) == "failed":
            break
        if healthy(given["port"]):
            return time.monotonic() - started
        time.sleep(0.1)
    log = subprocess.run(["journalctl", "-u", given["unit"], "-n", "30"], capture_output=True, text=True, check=False)
    sys.exit(f"the service did not become ready:\n{log.stdout}")


class Stream:
    """One answer that is streamed: when it was asked for, when its first and last tokens came, and how many."""

    def __init__(self, given: dict[str, Any], number: int) -> None:
        self.given, self.number = given, number
        self.asked = self.first = self.last = 0.0
        self.tokens = 0

    def run(self) -> None:
        """Ask, and read to the end."""
        source = random.Random(self.number)  # noqa: S311 - prompts, no secrets
        body = {
            "model": self.given["model"],
            "prompt": [source.randrange(1000, self.given["vocabulary"] - 1000) for _token in range(PROMPT_TOKENS)],
            "max_tokens": ANSWER_TOKENS,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.given['key']}"}
        connection = http.client.HTTPConnection("127.0.0.1", self.given["port"], timeout=ANSWER_S)
        self.asked = time.monotonic()
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            raise OSError(f"{answer.status} {answer.read()[:500]!r}")
        for line in answer:
            self.read(line.decode().strip())
        connection.close()

    def read(self, line: str) -> None:
        """Take one line of the stream."""
        if not line.startswith("data: {"):
            return
        event = json.loads(line[len("data: ") :])
        if event.get("choices"):
            self.last = time.monotonic()
            self.first = self.first or self.last
        if event.get("usage"):
            self.tokens = int(event["usage"]["completion_tokens"])


def together(given: dict[str, Any], count: int, seed: int) -> dict[str, float]:
    """Return the figures of ``count`` streams at once."""
    streams = [Stream(given, seed + number) for number in range(count)]
    threads = [threading.Thread(target=stream.run) for stream in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if any(stream.tokens != ANSWER_TOKENS for stream in streams):
        sys.exit(f"of {count} streams some ended early: {[stream.tokens for stream in streams]}")
    begun, ended = min(stream.asked for stream in streams), max(stream.last for stream in streams)
    return {
        "ttft_s": statistics.median(stream.first - stream.asked for stream in streams),
        # Of one stream: its own pace after the first token. Of several: all tokens over the whole time.
        "tokens_per_s": (ANSWER_TOKENS - 1) / (ended - streams[0].first)
        if count == 1
        else count * ANSWER_TOKENS / (ended - begun),
    }


def spread(values: list[float]) -> dict[str, float]:
    """Return median, smallest and largest."""
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def main() -> None:
    """Do what is asked for."""
    given = json.loads(sys.argv[1])
    given["key"] = Path(given["key_file"]).read_text(encoding="ascii").strip() if given["key_file"] else ""
    ready = spread([wait_until_ready(given) for _round in range(given["starts"])])
    together(given, 1, 0)
    rounds: dict[str, Any] = {}
    for count in given["streams"]:
        found = [together(given, count, 1000 * number + count) for number in range(given["rounds"])]
        rounds[str(count)] = {name: spread([one[name] for one in found]) for name in found[0]}
    if given.get("start"):
        systemctl("stop", given["unit"])
    print(json.dumps({"ready_s": ready, "streams": rounds}))


if __name__ == "__main__":
    main()
