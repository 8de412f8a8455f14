# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the testinfra tests of every scenario share."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from tests.support.api_client import Api

EVIDENCE = (
    "systemctl --failed --no-legend --plain",
    "journalctl --boot --no-pager --output short-monotonic --lines 80",
)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Show the host's failed units and the end of its journal below a test that failed."""
    outcome = yield
    report = outcome.get_result()
    host = getattr(item, "funcargs", {}).get("host")
    if report.when == "call" and report.failed and host is not None:
        for command in EVIDENCE:
            report.sections.append((f"{host.backend.host}: {command}", host.run(command).stdout or "(nothing)"))


@pytest.fixture
def restart(host: Any) -> Callable[[], None]:
    """Return a function that restarts the host as a reboot would and waits until systemd has booted."""

    def perform() -> None:
        name = host.backend.host
        # systemd takes SIGTERM as a wish to be started again; this signal shuts the host down.
        for command in (["kill", "--signal", "SIGRTMIN+3"], ["wait"], ["start"]):
            subprocess.run(["docker", *command, name], check=True, capture_output=True, timeout=90)
        command = ["docker", "exec", name, "systemctl", "is-system-running", "--wait"]
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.stdout.strip() in ("running", "degraded"):
                return
            time.sleep(0.5)
        pytest.fail(f"systemd on {name} did not boot within 60 s of a restart: {done.stdout}{done.stderr}")

    return perform


def eventually(check: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait until ``check`` holds; fail with ``what`` when it does not within ``seconds``."""
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            pytest.fail(f"{what}: not within {seconds:.0f} s")
        time.sleep(1)


@pytest.fixture(name="eventually")
def eventually_fixture() -> Callable[[Callable[[], bool], float, str], None]:
    """Return ``eventually`` for tests, which cannot import from a conftest."""
    return eventually


@pytest.fixture
def api(host: Any) -> Api:
    """Return the API of the host for a client on this machine."""
    return Api(host)


@pytest.fixture
def play() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs site.yml on the scenario's hosts once more, with more variables."""

    def perform(**variables: object) -> subprocess.CompletedProcess[str]:
        inventory = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"], "inventory")
        command = ["ansible-playbook", "playbooks/site.yml", "-i", str(inventory), "-e", json.dumps(variables)]
        folder = Path(__file__).resolve().parents[1]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)

    return perform


@pytest.fixture
def ask(host: Any) -> Callable[..., tuple[int, str]]:
    """Return a function that puts a question to the API on the host itself and returns HTTP status and answer."""

    def perform(question: str, key: str = "") -> tuple[int, str]:
        name = json.loads(host.file("/opt/vllm/current/manifest.json").content_string)["name"]
        body = {
            "model": name,
            "messages": [{"role": "user", "content": question}],
            "temperature": 0,
            "max_tokens": 24,
        }
        script = (
            "import json, sys, urllib.error, urllib.request\n"
            "key = sys.argv[2] or open('/opt/vllm/secrets/api_key').read().strip()\n"
            "headers = {'Content-Type': 'application/json', 'Authorization': 'Bearer ' + key}\n"
            "url = 'http://127.0.0.1:8000/v1/chat/completions'\n"
            "request = urllib.request.Request(url, sys.argv[1].encode(), headers)\n"
            "try:\n"
            "    answer = json.load(urllib.request.urlopen(request, timeout=120))\n"
            "    print(200, answer['choices'][0]['message']['content'])\n"
            "except urllib.error.HTTPError as error:\n"
            "    print(error.code, error.reason)\n"
            "except OSError as error:\n"
            "    print(0, error)\n"
        )
        done = host.run("python3 -c %s %s %s", script, json.dumps(body), key)
        status, _space, answer = done.stdout.strip().partition(" ")
        return int(status or 0), answer or done.stderr

    return perform
