# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Compilers and Pythons of the running machine: found by name, asked all at once, each with a time limit."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import time
from dataclasses import dataclass
from typing import Any

from ansible_collections.cpufleet.vllm.plugins.module_utils._host_read import Root

__all__ = ("find_compilers", "find_pythons", "parse_dump_version", "probe_host")

_TIME_LIMIT_S = 5.0
_COMPILER = re.compile(r"^(gcc|g\+\+)(-\d+)?$")
_PYTHON = re.compile(r"^(python3(\.\d+)?|platform-python)$")
_COMPILER_FOLDERS = ("/usr/local/bin", "/usr/bin", "/opt/rh/gcc-toolset-*/root/usr/bin", "/opt/gcc*/bin")
_PYTHON_FOLDERS = ("/usr/local/bin", "/usr/bin", "/usr/libexec", "/opt/rh/rh-python3*/root/usr/bin")
# -S keeps sitecustomize and .pth files from slowing the answer; nothing asked here needs site-packages.
_PYTHON_QUESTION = """
import sys, json, os, sysconfig
try:
    from importlib.util import find_spec
    venv = bool(find_spec("venv") and find_spec("ensurepip"))
except Exception:
    venv = False
header = os.path.join(sysconfig.get_paths()["include"], "Python.h")
print(json.dumps({"version": "%d.%d.%d" % sys.version_info[:3], "venv": venv, "headers": os.path.exists(header)}))
"""


@dataclass(frozen=True)
class Program:
    """A program to ask: ``path`` as found (links kept, so that it survives a minor update), ``name`` its last part."""

    path: str
    name: str


def find_compilers(root: Root) -> tuple[Program, ...]:
    """List gcc and g++ of every version; links to one another are kept, since each name may be asked for."""
    return _find(root, _COMPILER_FOLDERS, _COMPILER)


def find_pythons(root: Root) -> tuple[Program, ...]:
    """List Python 3 interpreters, one for each real file; the most exact name of each wins."""
    best: dict[str, Program] = {}
    for program in _find(root, _PYTHON_FOLDERS, _PYTHON):
        real = os.path.realpath(program.path) if root.live else root.where(program.path)
        if real not in best or len(program.name) > len(best[real].name):
            best[real] = program
    return tuple(sorted(best.values(), key=lambda program: program.path))


def parse_dump_version(text: str) -> str:
    """Return the version in the answer to ``-dumpfullversion -dumpversion``; empty when there is none."""
    match = re.match(r"^(\d+(?:\.\d+){0,2})\s*$", text.strip())
    return match.group(1) if match else ""


def probe_host(root: Root) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return (compilers, pythons). Under another root nothing is run and the versions are unknown (None)."""
    compilers, pythons = find_compilers(root), find_pythons(root)
    if not root.live:
        return (
            [{"path": one.path, "language": _language(one), "version": None} for one in compilers],
            [{"path": one.path, "version": None, "venv": None, "headers": None} for one in pythons],
        )
    commands = [[one.path, "-dumpfullversion", "-dumpversion"] for one in compilers]
    commands += [[one.path, "-I", "-S", "-c", _PYTHON_QUESTION] for one in pythons]
    answers = _ask(commands)
    return (
        [_compiler_row(one, text) for one, text in zip(compilers, answers) if parse_dump_version(text)],
        [row for one, text in zip(pythons, answers[len(compilers) :]) for row in _python_rows(one, text)],
    )


def _find(root: Root, folders: tuple[str, ...], pattern: re.Pattern[str]) -> tuple[Program, ...]:
    found = []
    for folder in folders:
        for path in root.glob(folder + "/*"):
            name = os.path.basename(path)
            if pattern.match(name) and (not root.live or os.access(path, os.X_OK)):
                found.append(Program(path, name))
    return tuple(found)


def _ask(commands: list[list[str]]) -> list[str]:
    """Run all commands side by side; one that fails, hangs or is missing answers with an empty text."""
    environment = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C"}
    deadline = time.monotonic() + _TIME_LIMIT_S
    running: list[subprocess.Popen[str] | None] = []
    for argv in commands:
        try:
            running.append(
                subprocess.Popen(  # noqa: S603 the argv is made of names found on this host
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    universal_newlines=True,
                    env=environment,
                )
            )
        except OSError:
            running.append(None)
    return [_answer(process, deadline) if process else "" for process in running]


def _answer(process: subprocess.Popen[str], deadline: float) -> str:
    try:
        output, _errors = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=1)
        return ""
    return output if process.returncode == 0 else ""


def _language(program: Program) -> str:
    return "c++" if program.name.startswith("g++") else "c"


def _compiler_row(program: Program, text: str) -> dict[str, Any]:
    return {"path": program.path, "language": _language(program), "version": parse_dump_version(text)}


def _python_rows(program: Program, text: str) -> list[dict[str, Any]]:
    try:
        answer = json.loads(text)
    except ValueError:
        return []
    return [{"path": program.path, **answer}]
