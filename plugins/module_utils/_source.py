# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""SourceInfo: every fact about a vLLM source that the rest of the collection decides with, read from the tree itself.

Plain Python is enough, from the folder above ``ansible_collections``::

    from ansible_collections.cpufleet.vllm.plugins.module_utils._source import read_source

    facts = read_source("/path/to/vllm")
    print(facts.version, facts.detection, facts.onednn["tag"], facts.unknown)

Generations (D, S, I, X) are told by the shape of the files and never by the version, so that a tree newer than this
collection is read as far as it has a known shape. What was not recognised stands in ``unknown``.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

from ansible_collections.cpufleet.vllm.plugins.module_utils import _source_build as build
from ansible_collections.cpufleet.vllm.plugins.module_utils import _source_python as python
from ansible_collections.cpufleet.vllm.plugins.module_utils import _source_requirements as requirements
from ansible_collections.cpufleet.vllm.plugins.module_utils import _source_runtime as runtime
from ansible_collections.cpufleet.vllm.plugins.module_utils._edits_fixes import applicable_fixes
from ansible_collections.cpufleet.vllm.plugins.module_utils._source_cmake import version_key
from ansible_collections.cpufleet.vllm.plugins.module_utils._source_reading import Reading
from ansible_collections.cpufleet.vllm.plugins.module_utils._source_serving import serving
from ansible_collections.cpufleet.vllm.plugins.module_utils._source_tree import open_tree
from ansible_collections.cpufleet.vllm.plugins.module_utils._source_version import source_version

__all__ = ("NEWEST_KNOWN", "SourceInfo", "read_source")

#: The newest release whose facts were compared with this reader. Used for a remark only.
NEWEST_KNOWN = "0.33.0"

RUNTIME_FILES = ("requirements/cpu.txt", "requirements-cpu.txt")
BUILD_FILES = ("requirements/build/cpu.txt", "requirements/cpu-build.txt")


@dataclass(frozen=True)
class SourceInfo:
    """The facts about one source; the module ``source_info`` documents every field."""

    source_kind: str
    version: str | None
    python_requires: str | None
    python_supported: list[str]
    abi3: bool
    torch_cpu: str | None
    torch_build: str | None
    torch_pins: dict[str, str | None]
    build_requires: list[str]
    gcc_floor: str | None
    gcc_floor_hard: bool
    gcc_conditions: list[dict[str, Any]]
    cxx_standard: int | None
    onednn: dict[str, Any]
    arm_compute: dict[str, Any]
    isa: dict[str, Any]
    detection: str | None
    suffix: str | None
    async_output: dict[str, Any]
    arguments: dict[str, str | None]
    cpu_environment: dict[str, Any]
    quantization: dict[str, dict[str, str]]
    serving: dict[str, Any]
    rust: str | None
    requirements_files: dict[str, list[str]]
    requirements: dict[str, list[str]]
    known_fixes: list[dict[str, Any]]
    edits: list[str]
    evidence: dict[str, str]
    unknown: list[str]

    def to_result(self) -> dict[str, Any]:
        """Return the facts as a plain dictionary."""
        return asdict(self)


def read_source(path: str) -> SourceInfo:
    """Read the source at ``path``: an unpacked tree, a git checkout, a source distribution or a wheel.

    Raises CpufleetError where there is no vLLM source at all; facts that cannot be told are None and noted.
    """
    reading = Reading(open_tree(path))
    tree = reading.tree
    project = requirements.pyproject(tree)
    lists = _requirements(reading, project)
    compiler = build.compiler(reading)
    facts: dict[str, Any] = {
        "source_kind": tree.kind,
        "version": source_version(reading),
        "python_requires": _python_requires(reading, project),
        "python_supported": build.supported_pythons(reading),
        "abi3": build.abi3(reading),
        **lists,
        "gcc_floor": compiler["floor"],
        "gcc_floor_hard": compiler["hard"],
        "gcc_conditions": compiler["conditions"],
        "cxx_standard": build.cxx_standard(reading),
        "onednn": build.onednn(reading),
        "arm_compute": build.arm_compute(reading),
        "isa": build.isa(reading),
        "detection": runtime.detection(reading),
        "suffix": build.suffix(reading),
        "async_output": runtime.async_output(reading),
        "arguments": runtime.arguments(reading),
        "cpu_environment": runtime.cpu_environment(reading),
        "quantization": runtime.quantization(reading),
        "serving": serving(reading),
        "rust": build.rust(reading),
        "known_fixes": _known_fixes(reading),
    }
    _note_gaps(reading, facts)
    return SourceInfo(**facts, edits=sorted(set(reading.edits)), evidence=reading.evidence, unknown=reading.unknown)


def _requirements(reading: Reading, project: dict[str, Any]) -> dict[str, Any]:
    """Return the requirement lists of a CPU build and installation, and the torch that each asks for."""
    runtime_lines, options, runtime_files = _first(reading, RUNTIME_FILES)
    build_lines, build_options, build_files = _first(reading, BUILD_FILES)
    declared = [requirements.tidy(line) for line in project.get("build-system", {}).get("requires", [])]
    if reading.tree.kind == "wheel":
        runtime_lines = _wheel_requirements(reading)
    cpu = requirements.pin_of(runtime_lines, "torch", "x86_64")
    arm = requirements.pin_of(runtime_lines, "torch", "aarch64")
    beside = requirements.pin_of(build_lines, "torch", "x86_64")
    torch_build = next((line for line in declared if requirements.split_requirement(line)[0] == "torch"), None)
    if cpu is not None:
        reading.saw("torch_cpu", cpu.file, cpu.line)
    elif reading.tree.kind != "wheel":
        reading.note("no requirements file for the CPU pins torch for x86_64")
    return {
        "torch_cpu": _pin(cpu.text if cpu else None),
        "torch_build": _pin(torch_build),
        "torch_pins": {
            "x86_64": _pin(cpu.text if cpu else None),
            "aarch64": _pin(arm.text if arm else None),
            "build_system": _pin(torch_build),
            "build_file": _pin(beside.text if beside else None),
        },
        "build_requires": declared,
        "requirements_files": {"cpu": runtime_files, "build": build_files},
        "requirements": {
            "cpu": [entry.text for entry in runtime_lines],
            "build": [entry.text for entry in build_lines] or declared,
            "options": sorted(set(options + build_options)),
        },
    }


def _first(reading: Reading, names: tuple[str, ...]) -> tuple[list[requirements.Requirement], list[str], list[str]]:
    for name in names:
        if reading.tree.read(name) is not None:
            return requirements.read_requirements(reading.tree, name)
    return [], [], []


def _wheel_requirements(reading: Reading) -> list[requirements.Requirement]:
    found = []
    path, text = metadata(reading)
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            break
        if line.startswith("Requires-Dist:"):
            found.append(requirements.Requirement(requirements.tidy(line.partition(":")[2].strip()), path, number))
    return [entry for entry in found if "extra ==" not in entry.text]


def metadata(reading: Reading) -> tuple[str, str]:
    """Return path and text of the metadata of a wheel or source distribution."""
    folders = {name.partition("/")[0] for name in getattr(reading.tree, "content", ()) if ".dist-info/" in name}
    for path in [f"{folder}/METADATA" for folder in sorted(folders)] + ["PKG-INFO"]:
        text = reading.tree.text(path)
        if text is not None:
            return path, text
    return "", ""


def _pin(line: str | None) -> str | None:
    """Return the version that a line pins exactly, or the whole specifier where it is no exact pin."""
    if line is None:
        return None
    specifier = requirements.split_requirement(line)[1]
    exact = re.fullmatch(r"==\s*([^,*\s]+)", specifier)
    return exact[1] if exact else specifier or None


def _python_requires(reading: Reading, project: dict[str, Any]) -> str | None:
    """Return the range of Python versions, from pyproject.toml, else setup.py, else the metadata."""
    declared = project.get("project", {}).get("requires-python")
    if declared:
        return str(declared)
    for call in python.calls(reading.python("setup.py"), "setup"):
        value = python.keyword(call, "python_requires")
        if isinstance(getattr(value, "value", None), str):
            reading.saw("python_requires", "setup.py", getattr(value, "lineno", 0))
            return str(getattr(value, "value", ""))
    match = re.search(r"^Requires-Python:\s*(.+)$", metadata(reading)[1], re.M)
    return match[1].strip() if match else None


def _known_fixes(reading: Reading) -> list[dict[str, Any]]:
    return [
        {key: getattr(fix, key) for key in ("name", "releases", "symptom", "evidence", "state", "torch")}
        for fix in applicable_fixes(reading.tree.read)
    ]


def _note_gaps(reading: Reading, facts: dict[str, Any]) -> None:
    """Note every fact that stayed without an answer, and a tree that is newer than this reader."""
    # A wheel holds no build files, and nothing is built from it.
    build_only = ("suffix", "rust") if reading.tree.kind == "wheel" else ()
    for name in ("version", "python_requires", "torch_cpu", "detection", "suffix", "rust"):
        if facts[name] is None and name not in build_only:
            reading.note(f"{name} was not found")
    version = facts["version"]
    if version and version_key(version)[:3] > version_key(NEWEST_KNOWN):
        reading.note(f"{version} is newer than {NEWEST_KNOWN}, the newest release that this reader was compared with")
