# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tiers of scripts/test: run in order, stopped at the first red one, timed, counted."""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn

from scripts.lib import bench, guards, image, sanity

REPOSITORY = Path(__file__).resolve().parents[2]
# The whole chain, and after it what serves from the store that the chain has filled.
LAST_SCENARIOS = ("default", "model_serve")
# Scenarios that need no torch run on the other release of the hosts' distribution as well, as tier molecule:swap@13.
OTHER_IMAGES = {"swap": ("cpufleet/debian:13",), "toolchain": ("cpufleet/debian:13",)}
# Images that a scenario's hosts are made from beside the usual one.
MORE_IMAGES = {"fleet": ("cpufleet/debian:12", "cpufleet/debian:13")}
HOST_PROGRAMS = ("roles/model_serve/files/cpufleet_doctor.py", "roles/model_serve/files/cpufleet_watchdog.py")
# Scenarios whose compile alone is longer than what CI allows.
FULL_SCENARIOS = ("full_build", "llama_cpp")
MYPY_TARGETS = ("scripts/lib", "scripts/make_models.py", *HOST_PROGRAMS)
MYPY_PACKAGES = ("module_utils", "modules")
COLLECTION = "ansible_collections.cpufleet.vllm.plugins"
# pytest's closing line, also inside molecule's frame: "== 3 passed, 1 failed in 0.92s =="
CLOSING = re.compile(r"\d+ (?:passed|failed|errors?|skipped|deselected)\b.* in [\d.]+s")
COUNT = re.compile(r"(\d+) (passed|failed|error|skipped)")
ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class RedError(Exception):
    """A tier failed; the message says which step."""


@dataclass(frozen=True)
class Tier:
    """One tier: its name, what it does, whether it needs stand-in hosts, and whether only --full runs it."""

    name: str
    run: Callable[[], None]
    hosts: bool = False
    full: bool = False


class Counter:
    """How many tests passed, failed and were skipped, from pytest's own closing lines."""

    def __init__(self) -> None:
        self.counts = {"passed": 0, "failed": 0, "skipped": 0}

    def read(self, line: str) -> None:
        """Count ``line`` if it is a closing line of pytest."""
        plain = ESCAPES.sub("", line)
        if CLOSING.search(plain):
            for number, word in COUNT.findall(plain):
                self.counts["failed" if word == "error" else word] += int(number)

    def line(self) -> str:
        """Return the closing line of the whole run."""
        text = f"{self.counts['passed']} passed, {self.counts['failed']} failed"
        return text + (f", {self.counts['skipped']} skipped" if self.counts["skipped"] else "")


class Hosts:
    """What stand-in hosts need: the Docker daemon (ended again if this run started it) and the image."""

    def __init__(self) -> None:
        self.started = False
        self.ready = False

    def prepare(self) -> None:
        """Make daemon and image ready, once."""
        if not self.ready:
            self.started = bench.start_docker()
            image.ensure(bench.cache(), bench.as_root)
            self.ready = True

    def give_back(self) -> None:
        """End the daemon if this run started it."""
        if self.started:
            bench.stop_docker()


COUNTER = Counter()
HOSTS = Hosts()


def scenarios(repository: Path) -> list[str]:
    """Return every molecule scenario, found by listing the folder; the whole chain and what takes its wheel last."""
    names = sorted(file.parent.name for file in (repository / "molecule").glob("*/molecule.yml"))
    return sorted(set(names) - set(LAST_SCENARIOS)) + [name for name in LAST_SCENARIOS if name in names]


def environment(**more: str) -> dict[str, str]:
    """Return the environment of every step: the venv's programs first, UTF-8, no colour codes in a log."""
    path = f"{REPOSITORY / '.venv/bin'}:{os.environ.get('PATH', '')}"
    fixed = {"PATH": path, "LC_ALL": "C.UTF-8", "PYTHONUNBUFFERED": "1", "NO_COLOR": "1", "ANSIBLE_NOCOLOR": "1"}
    return {**os.environ, **fixed, **more}


def step(name: str, command: Sequence[str], **more: str) -> None:
    """Run one step, showing its output as it comes; raise RedError when it fails."""
    print(f"--- {name}", flush=True)
    with subprocess.Popen(
        command,
        cwd=REPOSITORY,
        env=environment(**more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            COUNTER.read(line)
    if process.returncode:
        raise RedError(f"{name} ended with status {process.returncode}")


def lint() -> None:
    """Check form: YAML, Python, types, Ansible, documentation, changelog, and what may not be committed.

    All of it is run even when one part is red: each part is short, and a person mends them together.
    """
    problems = guards.check(REPOSITORY)
    red = ["the guards found:\n" + "\n".join(problems)] if problems else []
    for name, command in linters():
        try:
            step(name, command)
        except RedError as error:
            red.append(str(error))
    if red:
        raise RedError("; ".join(red))


def linters() -> list[tuple[str, list[str]]]:
    """Return name and command of every linter."""
    packages = [word for package in MYPY_PACKAGES for word in ("-p", f"{COLLECTION}.{package}")]
    return [
        ("yamllint", ["yamllint", "--strict", "."]),
        ("ruff check", ["ruff", "check", "."]),
        ("ruff format", ["ruff", "format", "--check", "."]),
        # ansible ships no types; everything that is ours is checked strictly.
        ("mypy plugins", ["mypy", "--disable-error-code=import-untyped", *packages]),
        ("mypy scripts", ["mypy", *MYPY_TARGETS]),
        ("antsibull-docs", ["antsibull-docs", "lint-collection-docs", "--plugin-docs", "."]),
        ("antsibull-changelog", ["antsibull-changelog", "lint"]),
        ("ansible-lint", ["ansible-lint", "--offline"]),
    ]


def pytest(folder: str, marks: str) -> None:
    """Run the tests in ``folder`` that ``marks`` selects."""
    step(f"pytest {folder}", ["pytest", folder, "-m", marks, "-q", "--durations=5"])


def models() -> None:
    """Make the models and what transformers answers for them."""
    step("models", [sys.executable, "scripts/make_models.py", "--reference"])


def molecule(scenario: str) -> None:
    """Run one molecule scenario."""
    for other in MORE_IMAGES.get(scenario, ()):
        image.ensure(bench.cache(), bench.as_root, other)
    step(f"molecule {scenario}", ["molecule", "test", "--scenario-name", scenario], **bench.environment(scenario))


def molecule_on(scenario: str, other: str) -> None:
    """Run one molecule scenario on another image than the usual one."""
    usual = os.environ.get("CPUFLEET_IMAGE", "")
    os.environ["CPUFLEET_IMAGE"] = other
    try:
        image.ensure(bench.cache(), bench.as_root)
        molecule(scenario)
    finally:
        os.environ["CPUFLEET_IMAGE"] = usual


def overhead() -> None:
    """Compare a real build with the bare commands: a ratio of processor time, both sides in one run."""
    step("benchmarks/build_overhead.py", [sys.executable, "benchmarks/build_overhead.py"])


def full_tests() -> None:
    """Run every test that is marked full."""
    for folder in ("tests/unit", "tests/integration", "tests/full"):
        if any("mark.full" in file.read_text(encoding="utf-8") for file in (REPOSITORY / folder).glob("test_*.py")):
            pytest(folder, "full")


def sanity_tests() -> None:
    """Run ansible-test sanity and units on the oldest and the newest core that the collection names."""
    for name, command, folder in sanity.steps(REPOSITORY, bench.cache()):
        step(name, ["env", "--chdir", str(folder), *command])


def tiers() -> list[Tier]:
    """Return all tiers, cheapest first."""
    found = [
        Tier("lint", lint),
        Tier("unit", lambda: pytest("tests/unit", "not full")),
        Tier("models", models),
        Tier("integration", lambda: pytest("tests/integration", "not full"), hosts=True),
    ]
    for name in scenarios(REPOSITORY):
        full = name in FULL_SCENARIOS
        found.append(Tier(f"molecule:{name}", partial(molecule, name), hosts=True, full=full))
        for other in OTHER_IMAGES.get(name, ()):
            tier = f"molecule:{name}@{other.rpartition(':')[2]}"
            found.append(Tier(tier, partial(molecule_on, name, other), hosts=True))
    found.append(Tier("overhead", overhead, hosts=True, full=True))
    return [*found, Tier("full", full_tests, full=True), Tier("sanity", sanity_tests, full=True)]


def selected(everything: list[Tier], names: list[str], full: bool) -> list[Tier]:
    """Return the tiers that the command line asks for: by name ("molecule" is all scenarios), else the CI set."""
    if not names:
        return [tier for tier in everything if full or not tier.full]
    known = {tier.name for tier in everything} | {"molecule"}
    unknown = sorted(set(names) - known)
    if unknown:
        sys.exit(f"test: no tier is called {', '.join(unknown)}. Known are: {', '.join(sorted(known))}.")
    asked = [tier for tier in everything if tier.name in names or tier.name.split(":")[0] in names]
    # What needs hosts serves a model there; making them is cheap where they are there already.
    needed = {"models"} if any(tier.hosts for tier in asked) else set()
    return [tier for tier in everything if tier in asked or tier.name in needed]


def run(chosen: list[Tier]) -> Iterator[tuple[str, float, str]]:
    """Run ``chosen`` and yield name, seconds and result of each, up to the first that is red."""
    for tier in chosen:
        started = time.monotonic()
        print(f"=== {tier.name}", flush=True)
        result = "green"
        try:
            if tier.hosts:
                HOSTS.prepare()
            tier.run()
        except RedError as error:
            print(f"test: {tier.name} is red: {error}", flush=True)
            result = "red"
        yield tier.name, time.monotonic() - started, result
        if result == "red":
            return


def report(results: list[tuple[str, float, str]], chosen: list[Tier]) -> None:
    """Print how long each tier took, and the closing line."""
    print("\n=== times")
    for name, seconds, result in results:
        print(f"{name:<28}{seconds:>8.0f} s  {result}")
    for tier in chosen[len(results) :]:
        print(f"{tier.name:<28}{'-':>8}    not run")
    print(f"{'all':<28}{sum(result[1] for result in results):>8.0f} s")
    print(COUNTER.line(), flush=True)


def interrupted(number: int, _frame: object) -> NoReturn:
    """End on a signal in the ordinary way, so that what was started is stopped."""
    sys.exit(128 + number)


def main(arguments: list[str]) -> int:
    """Run the tiers asked for; return 0 when all are green."""
    parser = argparse.ArgumentParser(prog="scripts/test", description="Everything that CI runs, cheapest first.")
    parser.add_argument("tiers", nargs="*", metavar="TIER", help="run only these")
    parser.add_argument("--full", action="store_true", help="also what takes longer than CI allows")
    parser.add_argument("--list", action="store_true", help="name the tiers and end")
    options = parser.parse_args(arguments)
    everything = tiers()
    if options.list:
        print("\n".join(tier.name + (" (with --full)" if tier.full else "") for tier in everything))
        return 0
    chosen = selected(everything, options.tiers, options.full)
    signal.signal(signal.SIGTERM, interrupted)
    results: list[tuple[str, float, str]] = []
    try:
        results.extend(run(chosen))
    finally:
        HOSTS.give_back()
    red = [name for name, _seconds, result in results if result == "red"]
    if red and not COUNTER.counts["failed"]:
        COUNTER.counts["failed"] = 1
    report(results, chosen)
    return 1 if red else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
