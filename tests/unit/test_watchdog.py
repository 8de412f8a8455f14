# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The watchdog's verdict over tables of samples, how often it acts, and what it makes of the doctor's word."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PATH = Path(__file__).resolve().parents[2] / "roles/model_serve/files/cpufleet_watchdog.py"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cpufleet_watchdog", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


watchdog = load()
RULES = watchdog.Rules()


def series(
    seconds: int = 60, step: float = 5.0, cpu: float = 0.0, tokens: float = 0.0, rest: float = 0.0, **values: Any
) -> list[Any]:
    """Return samples of one server; ``cpu``, ``rest`` and ``tokens`` are rates a second."""
    fixed = {"start": "10-5000", "age": 900.0, "ready": True, "stopped": (), "waits": False, **values}
    times = [index * step for index in range(int(seconds / step) + 1)]
    return [
        watchdog.Sample(at=at, cpu=7 + at * cpu, rest=3 + at * rest, tokens=100 + at * tokens, **fixed) for at in times
    ]


def joined(*parts: list[Any], gap: float = 5.0) -> list[Any]:
    """Return samples one part after the other; counters go on from where they were."""
    found: list[Any] = []
    for part in parts:
        last = found[-1] if found else None
        at, cpu, tokens = (last.at + gap, last.cpu - 7, last.tokens - 100) if last else (0.0, 0.0, 0.0)
        found += [
            s._replace(at=s.at + at, cpu=s.cpu + cpu, tokens=None if s.tokens is None else s.tokens + tokens)
            for s in part
        ]
    return found


CASES: list[tuple[str, list[Any], str]] = [
    ("nothing seen", [], "unclear"),
    ("one look", series(0), "unclear"),
    ("nobody asks", series(), "idle"),
    ("nobody asks for an hour", series(3600), "idle"),
    ("tokens come", series(cpu=1.8, tokens=20, requests=3), "working"),
    ("busy, and was not asked", series(cpu=1.8), "working"),
    ("a long prompt", series(cpu=1.9, requests=1), "prefill"),
    ("an hour of a long prompt", series(3600, cpu=1.9, requests=1, late=1800.0), "prefill"),
    ("a long prompt on a starved host", series(cpu=0.04, requests=1), "prefill"),
    ("waits for a processor", series(requests=1, waits=True), "prefill"),
    ("waits for the disk", series(requests=1, late=30.0, waits=True), "prefill"),
    ("a token is late while another's prompt is computed", series(cpu=1.0, late=40.0), "prefill"),
    ("tokens move and no time is seen", series(tokens=1, requests=1), "working"),
    ("requests and nothing is done", series(requests=2), "frozen"),
    ("requests and nothing is done, exactly long enough", series(20, requests=2), "frozen"),
    ("requests and nothing is done, not long enough", series(15, requests=2), "unclear"),
    ("a token is late and nothing is done", series(late=40.0), "frozen"),
    ("the server reads a huge prompt", series(200, requests=1, late=99.0, rest=1.0), "unclear"),
    ("the worker is gone astray and the engine spins", series(300, requests=1, rest=1.0), "frozen"),
    ("clients ask on and on", series(requests=9, rest=0.1), "frozen"),
    ("frozen after work", joined(series(cpu=1.9, tokens=9, requests=1), series(25, requests=1)), "frozen"),
    ("a pause in the work", joined(series(cpu=1.9, requests=1), series(10, requests=1)), "unclear"),
    ("a pause, and work again", joined(series(15, requests=1), series(15, cpu=1.9, requests=1)), "prefill"),
    ("counters that cannot be read", [sample._replace(tokens=None) for sample in series(late=9.0)], "frozen"),
    ("a worker is stopped", series(10, stopped=(12,)), "stopped"),
    ("a worker is stopped while nobody asks", series(600, stopped=(12,)), "stopped"),
    ("a worker was stopped for a moment", series(5, stopped=(12,)), "unclear"),
    ("a worker was stopped and goes on", joined(series(stopped=(12,)), series(10)), "idle"),
    ("somebody debugs it", series(requests=1, late=60.0, waits=True), "prefill"),
    ("the engine is gone", series(25, status=500), "broken"),
    ("nothing listens any more", series(25, status=0), "broken"),
    ("one failed answer", joined(series(), series(5, status=500)), "unclear"),
    ("failed answers while it computes", series(cpu=1.0, status=500), "working"),
    ("it loads", series(cpu=1.0, ready=False, age=60.0), "starting"),
    ("it loads and reads from disk", series(ready=False, age=60.0), "starting"),
    ("stopped while it loads", series(ready=False, age=60.0, stopped=(12,)), "starting"),
    ("it loads longer than it may and computes", series(cpu=1.0, ready=False, age=700.0), "working"),
    ("it loads longer than it may and does nothing", series(ready=False, age=700.0), "frozen"),
    ("restarted", joined(series(requests=1), series(15, requests=1, start="11-6000")), "unclear"),
    ("the machine slept", joined(series(requests=1), series(5, requests=1), gap=600.0), "unclear"),
    ("looks too far apart", series(600, step=60.0, requests=1), "unclear"),
]


@pytest.mark.parametrize(("samples", "verdict"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_verdict(samples: list[Any], verdict: str) -> None:
    found, evidence = watchdog.judge(samples, RULES)
    assert found == verdict, evidence
    assert "\n" not in evidence


@pytest.mark.parametrize("verdict", watchdog.ACTED_ON)
def test_no_verdict_is_acted_on_without_evidence(verdict: str) -> None:
    samples = next(samples for _name, samples, expected in CASES if expected == verdict)
    assert watchdog.judge(samples, RULES)[1]


@pytest.mark.parametrize("verdict", ["stopped", "frozen", "broken"])
def test_found_within_half_a_minute(verdict: str) -> None:
    values = {"stopped": {"stopped": (12,)}, "frozen": {"requests": 1}, "broken": {"status": 500}}[verdict]
    samples = joined(series(cpu=1.9, tokens=5, requests=1), series(120, **values))
    fault = 65.0
    first = next(
        index for index in range(len(samples)) if watchdog.judge(samples[: index + 1], RULES)[0] in watchdog.ACTED_ON
    )
    assert 0 < samples[first].at - fault <= 30


@pytest.mark.parametrize(
    ("restarts", "wait"),
    [
        ([], 0),
        ([9990.0], 290),
        ([9000.0], 0),
        ([9000.0, 9900.0], 800),
        ([9000.0, 9100.0], 0),
        ([1.0, 2.0, 3.0, 9999.0], 3599),
        ([10000.0 - 6 * 3600, 9990.0], 290),
        ([99999.0], 300),
    ],
)
def test_restarts_become_rarer(restarts: list[float], wait: float) -> None:
    assert watchdog.held(restarts, 10000.0, RULES) == pytest.approx(wait)


def said(unit: str = "vllm.service", verdict: str = "HUNG", code: str = "no_progress") -> dict[str, Any]:
    return {"causes": [{"unit": unit, "verdict": verdict, "code": code}]}


def test_the_doctor_has_to_agree_about_this_unit() -> None:
    assert watchdog.agrees(said(), "vllm.service")
    assert watchdog.agrees(said(verdict="DEAD", code="engine_dead"), "vllm.service")
    assert not watchdog.agrees(said(unit="other.service"), "vllm.service")
    assert not watchdog.agrees(said(verdict="SWAPPING", code="swapping"), "vllm.service")
    assert not watchdog.agrees(said(verdict="", code="prefill"), "vllm.service")


PAGE = """# HELP vllm:prompt_tokens_total Number of prefill tokens processed.
vllm:prompt_tokens_total{model_name="m"} 12.0
vllm:generation_tokens_total{model_name="m",engine="0"} 30.0
vllm:generation_tokens_total{model_name="m",engine="1"} 1e+01
vllm:num_requests_running{model_name="m"} 2.0
vllm:num_requests_waiting{model_name="m"} 1.0
vllm:kv_cache_usage_perc{model_name="m"} 0.5
"""


@pytest.mark.parametrize(
    ("page", "tokens", "requests"),
    [
        (PAGE, 52.0, 3.0),
        (
            "llamacpp:tokens_predicted_total 7\nllamacpp:prompt_tokens_total 5\nllamacpp:requests_processing 1",
            12.0,
            1.0,
        ),
        ("", None, 0.0),
    ],
)
def test_counters(page: str, tokens: float | None, requests: float) -> None:
    assert watchdog.counters(page) == (tokens, requests)


def test_command_line() -> None:
    options = watchdog.parse(["--unit", "vllm", "--grace", "120"])
    assert (options.unit, options.rules.grace, options.rules.window) == ("vllm.service", 120.0, 20.0)
    for wrong in ([], ["--unit"], ["--unit", "vllm", "--what", "1"], ["--unit", "vllm", "--grace", "soon"]):
        with pytest.raises(SystemExit) as ended:
            watchdog.parse(wrong)
        assert ended.value.code == 2


def test_python_3_6_and_the_standard_library_are_enough() -> None:
    words = ["import vermin; vermin.main()", "--no-tips", "--violations", "--target=3.6-", str(PATH)]
    done = subprocess.run([sys.executable, "-c", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    names = re.findall(r"^ *(?:import|from) ([\w.]+)", PATH.read_text(encoding="utf-8"), re.MULTILINE)
    assert [name for name in names if name.split(".")[0] not in sys.stdlib_module_names] == []


def test_memory_is_small() -> None:
    """What it has once it is loaded, in an interpreter of its own."""
    script = (
        "import importlib.util as u, json, sys; s = u.spec_from_file_location('w', sys.argv[1]); "
        "m = u.module_from_spec(s); s.loader.exec_module(m); "
        "print(json.dumps([l.split()[1] for l in open('/proc/self/status') if l.startswith('VmRSS')]))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", script, str(PATH)], capture_output=True, text=True, check=True)
    assert int(json.loads(done.stdout)[0]) < 20 * 1024
