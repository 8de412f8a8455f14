# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""How a vLLM source is built for the CPU: compiler floor, oneDNN, ISA variants, version suffix, Rust."""

from __future__ import annotations

import ast
import os
import re
from typing import Any, Callable

from ansible_collections.cpufleet.vllm.plugins.module_utils import _source_cmake as cmake
from ansible_collections.cpufleet.vllm.plugins.module_utils import _source_python as python
from ansible_collections.cpufleet.vllm.plugins.module_utils._source_reading import Reading
from ansible_collections.cpufleet.vllm.plugins.module_utils._wheel import tag_pythons

__all__ = ("abi3", "arm_compute", "compiler", "cxx_standard", "isa", "onednn", "rust", "suffix", "supported_pythons")

CPU_CMAKE = "cmake/cpu_extension.cmake"
MAIN_CMAKE = "CMakeLists.txt"
SETUP = "setup.py"
CPU_PLATFORM = "vllm/platforms/cpu.py"

# /proc/cpuinfo flags of the ISA classes, as far as the build files look for them.
FLAGS = {
    "avx2": "avx2 fma f16c",
    "avx512": "avx2 fma f16c avx512f avx512bw avx512dq avx512vl",
    "avx512_bf16": "avx2 fma f16c avx512f avx512bw avx512dq avx512vl avx512_bf16 avx512_vnni",
    "amx": "avx2 fma f16c avx512f avx512bw avx512dq avx512vl avx512_bf16 avx512_vnni amx_tile amx_bf16 amx_int8",
}
# What torch answers on a CPU of each class, by the name of the question.
TORCH_SAYS = {
    "_is_avx2_supported": ("avx2", "avx512", "avx512_bf16", "amx"),
    "_is_avx512_supported": ("avx512", "avx512_bf16", "amx"),
    "_is_avx512_bf16_supported": ("avx512_bf16", "amx"),
    "_is_vnni_supported": ("avx512_bf16", "amx"),
    "_is_avx512_vnni_supported": ("avx512_bf16", "amx"),
    "_is_amx_tile_supported": ("amx",),
}


def rehearse(reading: Reading, isa_class: str, **given: Any) -> cmake.Rehearsal:
    """Walk through the CPU build file as a host of that class would."""
    return cmake.Rehearsal(FLAGS[isa_class], **given).run(reading.cmake(CPU_CMAKE))


def supported_pythons(reading: Reading) -> list[str]:
    """Return the Python versions that CMake lets through, or that a wheel is for; empty where nothing lists them."""
    if reading.tree.kind == "wheel":
        return tag_pythons(os.path.basename(reading.tree.location))
    for command in reading.cmake(MAIN_CMAKE):
        if command.name == "set" and command.texts[:1] == ["PYTHON_SUPPORTED_VERSIONS"]:
            reading.saw("python_supported", MAIN_CMAKE, command.line)
            return command.texts[1:]
    return []


def abi3(reading: Reading) -> bool:
    """Return whether the CPU extensions keep to Python's stable ABI, so that one wheel serves every Python."""
    if reading.tree.kind == "wheel":
        return "-abi3-" in os.path.basename(reading.tree.location)
    limited = [python.keyword(call, "py_limited_api") for call in python.calls(reading.python(SETUP), "__init__")]
    declared = [value for value in limited if value and getattr(value, "value", True) is not False]
    linked = any("USE_SABI" in command.texts for command in reading.cmake(CPU_CMAKE))
    if declared and linked:
        reading.saw("abi3", SETUP, declared[0].lineno)
    return bool(declared) and linked


def compiler(reading: Reading) -> dict[str, Any]:
    """Return ``floor``, ``hard`` and ``conditions``: g++ versions below which something is refused or left out."""
    conditions: list[dict[str, Any]] = []
    for path in (CPU_CMAKE, MAIN_CMAKE):
        commands = reading.cmake(path)
        newest = cmake.Rehearsal(FLAGS["amx"]).run(commands)
        satisfied = {(kind, text) for kind, text, _line in newest.messages}
        for kind, text, line in cmake.Rehearsal(FLAGS["amx"], compiler="1").run(commands).messages:
            if kind in ("FATAL_ERROR", "WARNING") and (kind, text) not in satisfied:
                floor = _lowest_without(commands, kind, text)
                if floor is not None:
                    hard = kind == "FATAL_ERROR"
                    conditions.append({"floor": floor, "hard": hard, "text": text, "where": f"{path}:{line}"})
    worst = max(conditions, key=lambda entry: (entry["hard"], cmake.version_key(entry["floor"])), default=None)
    if worst is not None:
        reading.evidence["gcc_floor"] = worst["where"]
    elif reading.cmake(CPU_CMAKE):
        reading.note(f"no test of the compiler's version in {CPU_CMAKE}")
    return {
        "floor": worst["floor"] if worst else None,
        "hard": bool(worst and worst["hard"]),
        "conditions": conditions,
    }


def cxx_standard(reading: Reading) -> int | None:
    """Return the C++ standard that the CPU extensions are compiled for, None where CMake's own default does."""
    for path in (CPU_CMAKE, MAIN_CMAKE):
        for command in reading.cmake(path):
            if command.name == "set" and command.texts[:1] == ["CMAKE_CXX_STANDARD"] and command.texts[1].isdecimal():
                reading.saw("cxx_standard", path, command.line)
                return int(command.texts[1])
    return None


def _lowest_without(commands: list[cmake.Command], kind: str, text: str) -> str | None:
    """Return the lowest version that conditions name with which a message no longer appears."""
    for version in cmake.compiler_floors(commands):
        met = cmake.Rehearsal(FLAGS["amx"], compiler=version).run(commands)
        if not any((kind, text) == (k, t.replace(version, "1")) or (k, t) == (kind, text) for k, t, _l in met.messages):
            return version
    return None


def onednn(reading: Reading) -> dict[str, Any]:
    """Return where the oneDNN of a build comes from, when one is fetched, and how to put another in its place."""
    arm: dict[str, Any] = {"repository": None, "tag": None}
    result: dict[str, Any] = {"repository": None, "tag": None, "condition": "never", "override": "X0", "aarch64": arm}
    commands = reading.cmake(CPU_CMAKE)
    if not commands:
        return {**result, "condition": None, "override": None}
    on_arm = _fetched(rehearse_arm(reading), "onednn")
    if on_arm is not None:
        arm.update(repository=_after(on_arm, "GIT_REPOSITORY"), tag=_after(on_arm, "GIT_TAG"))
    fetched = {name: _fetched(rehearse(reading, name), "onednn") for name in FLAGS}
    best = fetched["amx"]
    if best is None:
        if "dnnl" in rehearse(reading, "amx").links:
            result.update(condition="preinstalled", override="X1")
        return result
    result["repository"], result["tag"] = _after(best, "GIT_REPOSITORY"), _after(best, "GIT_TAG")
    result["condition"] = "always" if fetched["avx2"] else "avx512"
    by_environment = any("$ENV{FETCHCONTENT_SOURCE_DIR_ONEDNN}" in text for c in commands for text in c.texts)
    result["override"] = "X3" if by_environment else "X2"
    reading.saw("onednn", CPU_CMAKE, best.line)
    if not result["tag"]:
        reading.note(f"{CPU_CMAKE}:{best.line} declares oneDNN without a tag")
    return result


def arm_compute(reading: Reading) -> dict[str, Any]:
    """Return where the Arm Compute Library of an aarch64 build comes from, and how to put another in its place."""
    used = "$ENV{ACL_ROOT_DIR}" in (reading.text(CPU_CMAKE) or "")
    fetched = _fetched(rehearse_arm(reading), "arm_compute")
    if fetched is None:
        return {"repository": None, "tag": None, "override": "A1" if used else "A0"}
    reading.saw("arm_compute", CPU_CMAKE, fetched.line)
    return {"repository": _after(fetched, "GIT_REPOSITORY"), "tag": _after(fetched, "GIT_TAG"), "override": "A2"}


def rehearse_arm(reading: Reading) -> cmake.Rehearsal:
    """Walk through the CPU build file as a host with aarch64 would."""
    arm = cmake.Rehearsal("asimd bf16", variables={"CMAKE_SYSTEM_PROCESSOR": "aarch64"})
    return arm.run(reading.cmake(CPU_CMAKE))


def _fetched(rehearsal: cmake.Rehearsal, name: str) -> cmake.Command | None:
    for command in rehearsal.declared:
        if command.texts[0].lower() == name and "GIT_REPOSITORY" in command.texts:
            return command
    return None


def _after(command: cmake.Command, word: str) -> str | None:
    texts = command.texts
    return texts[texts.index(word) + 1] if word in texts[:-1] else None


def isa(reading: Reading) -> dict[str, Any]:
    """Return generation, the libraries that an x86 build makes, how one is chosen, and the build's switches."""
    text = reading.text(CPU_CMAKE) or ""
    made = rehearse(reading, "amx").targets or _packed_libraries(reading)
    named = [name.removeprefix("vllm.") for name in _extension_names(reading.python(SETUP, as_is=True))]
    targets = [name for name in made if not named or name in named]
    if made.get("_C"):
        reading.saw("isa", CPU_CMAKE, made["_C"])
    selection = {name: _library(reading, name) for name in FLAGS}
    return {
        "generation": _isa_generation(reading, text, list(made)),
        "targets": targets,
        "chosen_at": "import" if len(set(selection.values())) > 1 else "build",
        "selection": selection,
        "switches": sorted(set(re.findall(r"ENV\{(VLLM_CPU_\w+)\}", text))),
    }


def _packed_libraries(reading: Reading) -> dict[str, int]:
    """Return the kernel libraries that a wheel lists, in the order in which a build makes them."""
    records = [name for name in getattr(reading.tree, "content", ()) if name.endswith(".dist-info/RECORD")]
    found = {
        match for name in records for match in re.findall(r"^vllm/(_C\w*)\.[^,]*so,", reading.text(name) or "", re.M)
    }
    return {name: 0 for name in ("_C", "_C_AVX512", "_C_AVX2") if name in found}


def _isa_generation(reading: Reading, text: str, made: list[str]) -> str | None:
    if not made:
        return None
    shapes = {
        ("_C", "_C_AVX512", "_C_AVX2"): "I5",
        ("_C", "_C_AVX2"): "I4",
    }
    if tuple(made) in shapes:
        return shapes[tuple(made)]
    if made == ["_C"] and "find_isa" in text:
        marks = (("I3", "ENV{VLLM_CPU_AVX512}"), ("I2", "amx_bf16"), ("I1", "avx512_vnni"), ("I0", "avx2"))
        for generation, mark in marks:
            if mark in text:
                return generation
    if reading.tree.kind == "wheel":
        return None  # one library can be of four generations
    reading.note(f"{CPU_CMAKE} builds {', '.join(made)}, which is no set of libraries known here")
    return None


def _extension_names(setup: ast.Module | None) -> list[str]:
    """Return the ``_C`` libraries that setup.py lists for a CPU build on x86."""
    names: list[str] = []
    for node in setup.body if setup else ():
        if isinstance(node, ast.If) and any(python.calls(node.test, "_is_cpu")):
            chosen: list[ast.stmt] = []
            for inner in node.body:
                chosen += inner.body if isinstance(inner, ast.If) and "x86_64" in python.constants(inner.test) else []
            for statement in chosen or node.body:
                for call in python.calls(statement, "CMakeExtension"):
                    value = python.keyword(call, "name")
                    if isinstance(value, ast.Constant) and str(value.value).startswith("vllm._C"):
                        names.append(str(value.value))
    return names


def _library(reading: Reading, isa_class: str) -> str:
    """Return the library that the release imports on a CPU of that class."""
    rule = python.find_function(reading.python(CPU_PLATFORM, as_is=True), "import_kernels")
    if rule is None:
        return "_C"
    found = _first_import(rule.body, lambda test: _holds(test, isa_class))
    if found is None:
        reading.note(f"the rule by which {CPU_PLATFORM} picks a kernel library was not understood")
        return "_C"
    reading.saw("isa_selection", CPU_PLATFORM, rule.lineno)
    return found.removeprefix("vllm.")


def _first_import(body: list[ast.stmt], holds: Callable[[ast.expr], bool | None]) -> str | None:
    """Follow the branches whose tests hold and return the first ``vllm._C*`` that is imported."""
    for node in body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("vllm._C"):
                    return alias.name
        inside: list[ast.stmt] = []
        if isinstance(node, ast.If):
            verdict = holds(node.test)
            inside = [] if verdict is None else (node.body if verdict else node.orelse)
        elif isinstance(node, (ast.Try, ast.With)):
            inside = node.body
        found = _first_import(inside, holds)
        if found is not None:
            return found
    return None


def _holds(test: ast.expr, isa_class: str) -> bool | None:
    """Whether a test of import_kernels holds on x86_64 with that class; None where it asks something unfamiliar."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _holds(test.operand, isa_class)
        return None if inner is None else not inner
    if isinstance(test, ast.BoolOp):
        parts = [_holds(part, isa_class) for part in test.values]
        if None in parts:
            return None
        return all(parts) if isinstance(test.op, ast.And) else any(parts)
    if any(python.calls(test, "get_cpu_architecture")):
        return python.mentions(test, "X86")
    if isinstance(test, ast.Call):
        classes = TORCH_SAYS.get(python.terminal_name(test.func) or "")
        return None if classes is None else isa_class in classes
    return None


def suffix(reading: Reading) -> str | None:
    """Return the generation S0 to S5 of the rule that puts "+cpu" into the version."""
    rule = python.find_function(reading.python(SETUP), "get_vllm_version")
    if rule is None:
        return None
    reading.saw("suffix", SETUP, rule.lineno)
    found = _suffix_of(rule)
    if found is None:
        reading.note(f"the rule of {SETUP} that puts +cpu into the version was not understood")
    return found


def _suffix_of(rule: ast.FunctionDef) -> str | None:
    first = rule.body[0]
    if isinstance(first, ast.Return) and isinstance(first.value, ast.Constant):
        return "S1"
    if not any(python.calls(rule, "get_version")):
        return "S0" if any(python.calls(rule, "find_version")) else None
    branch = _cpu_branch(rule)
    if branch is None:
        return None
    if python.mentions(rule, "VLLM_SKIP_VERSION_SUFFIX"):
        return "S5"
    condition = next((node.test for node in branch if isinstance(node, ast.If)), None)
    if condition is None:
        return "S2"
    asks_environment = any(isinstance(node, ast.Attribute) for node in ast.walk(condition))
    return "S3" if asks_environment else "S4"


def _cpu_branch(rule: ast.FunctionDef) -> list[ast.stmt] | None:
    """Return the body of the branch for CPU builds."""
    for node in ast.walk(rule):
        if isinstance(node, ast.If) and any(python.calls(node.test, "_is_cpu")):
            return node.body
    return None


def rust(reading: Reading) -> str | None:
    """Return ``none``, ``optional`` or ``required``: whether the build wants a Rust tool chain."""
    setup = reading.python(SETUP)
    if setup is None:
        return None
    if "setuptools_rust" not in (reading.text(SETUP) or ""):
        return "none"
    for node in ast.walk(setup):
        if isinstance(node, ast.keyword) and node.arg == "optional" and not isinstance(node.value, ast.Constant):
            reading.saw("rust", SETUP, node.value.lineno)
            return "optional"
    return "required"
