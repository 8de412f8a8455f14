# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether two deployments find room, the unit of a trial, and the module over a systemctl that says what it is told."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._trial import Room, room, trial_unit
from ansible_collections.cpufleet.vllm.plugins.modules import deployment_trial

from tests.support.run_module import run_module

GIB = 1 << 30
MIB = 1 << 20
UNIT = f"""[Unit]
Description=vLLM
[Service]
EnvironmentFile=/opt/vllm/deployments/d2/service.env
ExecStart=/venv/bin/python -m vllm.entrypoints.openai.api_server --model /m --host 0.0.0.0 --port 8000 --dtype auto
Restart=always
OOMScoreAdjust=-100
MemoryMax={2 * GIB}

[Install]
WantedBy=multi-user.target
"""


@pytest.mark.parametrize(
    ("shown", "available", "fits", "text"),
    [
        (f"MemoryMax={2 * GIB}\nMemoryCurrent={2 * GIB}", 3 * GIB, True, ""),
        (f"MemoryMax={2 * GIB}\nMemoryCurrent={GIB}", 3 * GIB, False, "take 3584 MiB more, and 3072 MiB are available"),
        (f"MemoryMax={2 * GIB}\nMemoryCurrent={GIB}", 4 * GIB, True, ""),
        ("MemoryMax=infinity\nMemoryCurrent=1", 2 * GIB + 512 * MIB, True, ""),
        ("MemoryMax=infinity\nMemoryCurrent=1", 2 * GIB + 511 * MIB, False, "2560 MiB more, and 2559 MiB"),
        (f"MemoryMax={2 * GIB}\nMemoryCurrent=[not set]", 3 * GIB, True, ""),
        (f"MemoryMax={2 * GIB}\nMemoryCurrent=18446744073709551615", 3 * GIB, True, ""),
        ("", 2 * GIB, False, "2560 MiB more, and 2048 MiB"),
    ],
)
def test_room_for_both(shown: str, available: int, fits: bool, text: str) -> None:
    found = room(UNIT, shown, available)
    assert found.fits is fits
    assert fits or text in found.text()


def test_memory_is_left_to_the_other_services_of_the_host() -> None:
    alone, other = f"MemoryMax={GIB}\nMemoryCurrent={GIB}", f"MemoryMax={3 * GIB}\nMemoryCurrent={GIB}"
    assert room(UNIT, alone, 4 * GIB).fits
    assert not room(UNIT, alone, 4 * GIB, [other]).fits
    assert room(UNIT, alone, 5 * GIB, [other, ""]).growth == 2 * GIB


def test_a_unit_without_a_limit_is_not_tried() -> None:
    found = room(UNIT.replace("MemoryMax", "#MemoryMax"), "", 100 * GIB)
    assert (found, found.fits) == (Room(0, 0, 100 * GIB), False)
    assert "no MemoryMax" in found.text()


def test_the_unit_of_a_trial() -> None:
    changed = dict(zip(UNIT.splitlines(), trial_unit(UNIT, 45001).splitlines(), strict=False))
    start = "ExecStart=/venv/bin/python -m vllm.entrypoints.openai.api_server --model /m"
    assert {old: new for old, new in changed.items() if old != new} == {
        f"{start} --host 0.0.0.0 --port 8000 --dtype auto": f"{start} --host 127.0.0.1 --port 45001 --dtype auto",
        "Restart=always": "Restart=no",
        "OOMScoreAdjust=-100": "OOMScoreAdjust=500",
    }
    assert "[Install]" not in trial_unit(UNIT, 45001)


def test_a_unit_without_a_port_is_refused() -> None:
    with pytest.raises(CpufleetError, match="names no port"):
        trial_unit(UNIT.replace("--port 8000", ""), 45001)


SYSTEMCTL = """#!/bin/sh
echo "$*" >> "$CPUFLEET_TEST/calls"
case $1 in
  is-active) cat "$CPUFLEET_TEST/active";;
  show) cat "$CPUFLEET_TEST/shown";;
esac
"""


class Host:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.root, self.units = folder, folder / "root", folder / "units"
        self.units.mkdir()
        (folder / "systemctl").write_text(SYSTEMCTL)
        (folder / "systemctl").chmod(0o755)
        (folder / "active").write_text("active\n")
        (folder / "shown").write_text(f"MemoryMax={2 * GIB}\nMemoryCurrent={2 * GIB}\n")
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        monkeypatch.setenv("CPUFLEET_TEST", str(folder))
        monkeypatch.setattr(deployment_trial, "UNIT_FOLDER", str(self.units))
        monkeypatch.setattr(deployment_trial, "MEMINFO", str(folder / "meminfo"))
        self.memory(8 * GIB)
        deployment = self.root / "deployments/d2"
        deployment.mkdir(parents=True)
        (deployment / "vllm.service").write_text(UNIT)
        (deployment / "manifest.json").write_text(json.dumps({"id": "d2", "name": "smollm2"}))

    def memory(self, available: int) -> None:
        text = f"MemTotal: {9 * GIB // 1024} kB\nMemAvailable: {available // 1024} kB\n"
        (self.folder / "meminfo").write_text(text)

    def run(self, check: bool = False, **options: Any) -> dict[str, Any]:
        return run_module("deployment_trial", check=check, root=self.root, **options)

    def calls(self) -> list[str]:
        lines = (self.folder / "calls").read_text().splitlines()
        (self.folder / "calls").unlink()
        return [line for line in lines if not line.startswith(("is-", "show"))]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path, monkeypatch)


def test_it_is_started_on_a_spare_port_and_ended(host: Host) -> None:
    begun = host.run(id="d2")
    assert (begun["started"], begun["name"], begun["reason"]) == (True, "smollm2", "")
    text = (host.units / "vllm-trial.service").read_text()
    assert f"--port {begun['url'].rsplit(':', 1)[1]} " in text
    assert host.calls() == ["daemon-reload", "restart vllm-trial.service"]
    ended = host.run(state="absent")
    assert (ended["changed"], list(host.units.iterdir())) == (True, [])
    assert host.calls() == ["stop vllm-trial.service", "daemon-reload", "reset-failed vllm-trial.service"]
    assert host.run(state="absent")["changed"] is False


def test_nothing_is_started_without_room_or_without_a_service_beside_it(host: Host) -> None:
    assert host.run(check=True, id="d2")["started"] is True
    host.memory(2 * GIB)
    assert "2048 MiB are available" in host.run(id="d2")["reason"]
    host.memory(8 * GIB)
    (host.folder / "active").write_text("failed\n")
    refused = host.run(id="d2")
    assert (refused["started"], refused["changed"], refused["reason"]) == (False, False, "vllm.service does not run")
    assert (host.calls(), list(host.units.iterdir())) == ([], [])
