# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""What an installed vLLM of this source will be like: detection, arguments, environment, quantization."""

from __future__ import annotations

import ast
import re
from typing import Any

from ansible_collections.cpufleet.vllm.plugins.module_utils import _source_python as python
from ansible_collections.cpufleet.vllm.plugins.module_utils._source_reading import Reading

__all__ = ("arguments", "async_output", "cpu_environment", "detection", "quantization")

PLATFORMS = "vllm/platforms/__init__.py"
CPU_PLATFORM = "vllm/platforms/cpu.py"
CPU_EXECUTOR = "vllm/executor/cpu_executor.py"
ENGINE_ARGUMENTS = "vllm/engine/arg_utils.py"
LLM = "vllm/entrypoints/llm.py"
ENVIRONMENT = "vllm/envs.py"
BINDINGS = "csrc/cpu/torch_bindings.cpp"
METHODS = "vllm/model_executor/layers/quantization"
KERNEL_FILES = (
    f"{METHODS}/kernels/mixed_precision/cpu.py",
    "vllm/model_executor/kernels/linear/mixed_precision/cpu.py",
)
HOOK = "verify_async_output_proc"

# What the compiler defines for a build of each ISA class, as far as the kernels ask for it.
DEFINED = {
    "avx2": {"__x86_64__", "__AVX2__"},
    "avx512": {"__x86_64__", "__AVX2__", "__AVX512F__"},
    "avx512_bf16": {"__x86_64__", "__AVX2__", "__AVX512F__", "__AVX512BF16__", "__AVX512VNNI__"},
    "amx": {
        "__x86_64__",
        "__AVX2__",
        "__AVX512F__",
        "__AVX512BF16__",
        "__AVX512VNNI__",
        "CPU_CAPABILITY_AMXBF16",
    },
    "neon": {"__aarch64__"},
    "neon_bf16": {"__aarch64__", "ARM_BF16_SUPPORT"},
}
INTEGER_KERNELS = ("onednn_scaled_mm", "cutlass_scaled_mm")


def detection(reading: Reading) -> str | None:
    """Return the generation D0 to D6 of the platform detection, by the shape of ``vllm/platforms``."""
    module = reading.python(PLATFORMS)
    if module is None or python.find_class(reading.python(CPU_PLATFORM), "CpuPlatform") is None:
        return "D0" if reading.text("vllm/utils.py") and reading.text(ENVIRONMENT) else None
    flag = python.assigned(module, "is_cpu")
    if flag is not None:
        reading.saw("detection", PLATFORMS, flag.lineno)
        return "D1"
    detector = python.find_function(module, "cpu_platform_plugin")
    if detector is None:
        reading.note(f"{PLATFORMS} has neither a flag is_cpu nor a function cpu_platform_plugin")
        return None
    reading.saw("detection", PLATFORMS, detector.lineno)
    gpu = python.find_function(module, "cuda_platform_plugin")
    asks_version = python.mentions(gpu, "vllm_version_matches_substr")
    marks = (
        ("D6", "VLLM_TARGET_DEVICE"),
        ("D5", "zentorch"),
        ("D4", "darwin"),
        ("D3" if asks_version else "D2", "arm"),
    )
    found = next((generation for generation, mark in marks if python.mentions(detector, mark)), None)
    if found is None:
        reading.note(f"cpu_platform_plugin in {PLATFORMS} asks something unfamiliar")
    return found


def async_output(reading: Reading) -> dict[str, Any]:
    """Return whether the check of asynchronous output exists, and in which file."""
    for path in ("vllm/config.py", "vllm/config/__init__.py", "vllm/config/model.py"):
        if HOOK in (reading.text(path) or ""):
            found = python.find_function(reading.python(path), HOOK)
            if found is not None:
                reading.saw("async_output", path, found.lineno)
                return {"present": True, "file": path}
    return {"present": False, "file": None}


def arguments(reading: Reading) -> dict[str, str | None]:
    """Return for each argument whether it is ``present``, ``forced`` to one value, ``ignored`` or ``absent``."""
    module = reading.python(ENGINE_ARGUMENTS)
    fields = python.find_class(module, "EngineArgs")
    if fields is None:
        reading.note(f"{ENGINE_ARGUMENTS} has no class EngineArgs")
        return {"device": None, "swap_space": None, "enforce_eager": None}
    has = {name: python.assigned(fields, name) is not None for name in ("device", "swap_space", "enforce_eager")}
    return {
        "device": _device(module) if has["device"] else "absent",
        "swap_space": "present" if has["swap_space"] else _swallowed(reading, "swap_space"),
        "enforce_eager": _eager(reading) if has["enforce_eager"] else "absent",
    }


def _device(module: ast.Module | None) -> str:
    """``device`` is used where the DeviceConfig is made from it, and ignored where it is made from the platform."""
    for call in python.calls(module, "DeviceConfig"):
        value = python.keyword(call, "device")
        if value is not None and python.mentions(value, "self"):
            return "present"
    return "ignored"


def _swallowed(reading: Reading, name: str) -> str:
    """Whether ``LLM`` takes an argument away before it reaches the engine."""
    start = python.find_function(python.find_class(reading.python(LLM), "LLM"), "__init__")
    popped = any(call.args and name in python.constants(call.args[0]) for call in python.calls(start, "pop"))
    return "ignored" if popped else "absent"


def _eager(reading: Reading) -> str:
    for path in (CPU_PLATFORM, CPU_EXECUTOR):
        for node in ast.walk(reading.python(path) or ast.Module([], [])):
            if not isinstance(node, ast.Assign) or getattr(node.value, "value", None) is not True:
                continue
            if any(python.terminal_name(target) == "enforce_eager" for target in node.targets):
                reading.saw("enforce_eager", path, node.lineno)
                return "forced"
    return "present"


def cpu_environment(reading: Reading) -> dict[str, Any]:
    """Return the VLLM_CPU_* variables of the running engine with their defaults; None means that unset is a case."""
    found = python.environment_defaults(reading.python(ENVIRONMENT), "VLLM_CPU_")
    for name, default in found.items():
        if default is python.UNKNOWN:
            reading.note(f"the default of {name} in {ENVIRONMENT} was not understood")
    return {name: None if value is python.UNKNOWN else value for name, value in found.items()}


# --- quantization ----------------------------------------------------------------------------------------------------


def quantization(reading: Reading) -> dict[str, dict[str, str]]:
    """Return for each ISA class the methods that have CPU kernels there, and through what they run."""
    bindings = reading.text(BINDINGS)
    if bindings is None:
        return {}
    through_ipex = _ipex_methods(reading)
    four_bit = _four_bit_methods(reading)
    result: dict[str, dict[str, str]] = {}
    for name, defined in DEFINED.items():
        operators = registered(bindings, defined)
        methods: dict[str, str] = {}
        integer = next((kernel for kernel in INTEGER_KERNELS if kernel in operators), None)
        if integer and "static_scaled_int8_quant" in operators:
            methods["int8_w8a8"] = "onednn"
        if name in ("avx2", "avx512", "avx512_bf16", "amx"):
            methods.update(dict.fromkeys(through_ipex, "ipex"))
        if "cpu_gemm_wna16" in operators:
            methods.update(dict.fromkeys(four_bit, "cpu_wna16"))
        result[name] = methods
    return result


def registered(text: str, defined: set[str]) -> set[str]:
    """Return the operators that C++ code registers when these macros are defined."""
    return set(re.findall(r'\bops\.impl\(\s*"(\w+)"', preprocess(text, defined)))


def preprocess(text: str, defined: set[str]) -> str:
    """Leave out the lines of C++ code whose ``#if`` does not hold; other directives are dropped."""
    kept: list[str] = []
    stack: list[tuple[bool, bool]] = []  # whether the branch is taken, whether one was taken before
    for line in re.sub(r"\\\n", " ", text).splitlines():
        directive = re.match(r"\s*#\s*(ifdef|ifndef|if|elif|else|endif)\b\s*(.*)", line)
        if directive is None:
            if all(taken for taken, _done in stack):
                kept.append(line)
            continue
        word, condition = directive[1], re.sub(r"//.*|/\*.*?\*/", "", directive[2]).strip()
        if word == "endif":
            stack = stack[:-1]
        elif word in ("elif", "else") and stack:
            done = stack[-1][1]
            taken = not done and (word == "else" or _condition(condition, defined))
            stack[-1] = (taken, done or taken)
        elif word not in ("elif", "else"):
            holds = _condition(condition, defined) if word == "if" else (condition in defined) == (word == "ifdef")
            stack.append((holds, holds))
    return "\n".join(kept)


def _condition(text: str, defined: set[str]) -> bool:
    """Evaluate ``defined(X) && !defined(Y) || ...``; what is something else does not hold."""
    code = re.sub(r"defined\s*(?:\(\s*(\w+)\s*\)|(\w+))", lambda m: str((m[1] or m[2]) in defined), text)
    code = code.replace("&&", " and ").replace("||", " or ").replace("!", " not ")
    code = re.sub(r"\b(?!True\b|False\b|and\b|or\b|not\b)[A-Za-z_]\w*", "False", code)
    try:
        return _boolean(ast.parse(code.strip(), mode="eval").body)
    except (SyntaxError, ValueError):
        return False


def _boolean(node: ast.expr) -> bool:
    if isinstance(node, ast.BoolOp):
        parts = [_boolean(part) for part in node.values]
        return all(parts) if isinstance(node.op, ast.And) else any(parts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return not _boolean(node.operand)
    if isinstance(node, ast.Constant):
        return bool(node.value)
    raise ValueError(ast.dump(node))


def _ipex_methods(reading: Reading) -> list[str]:
    """Return the methods that go through IPEX on the CPU; later releases keep the file for XPU only."""
    module = reading.python(f"{METHODS}/ipex_quant.py")
    override = python.find_function(module, "override_quantization_method")
    if override is None or not any(python.calls(override, "is_cpu")):
        return []
    for node in ast.walk(override):
        if (
            isinstance(node, ast.Compare)
            and isinstance(node.ops[0], ast.In)
            and isinstance(node.comparators[0], ast.List)
        ):
            return [method for method in ("awq", "gptq") if method in python.constants(node.comparators[0])]
    return []


def _four_bit_methods(reading: Reading) -> list[str]:
    """Return the methods whose configuration takes vLLM's own 4-bit CPU kernel."""
    homes = {
        "awq": ("cpu_wna16.py", "awq_marlin.py", "auto_awq.py"),
        "gptq": ("cpu_wna16.py", "gptq_marlin.py", "auto_gptq.py"),
    }
    kernel = any(
        "class CPUWNA16LinearKernel" in (reading.text(path) or "")
        for path in (
            f"{METHODS}/kernels/mixed_precision/cpu.py",
            "vllm/model_executor/kernels/linear/mixed_precision/cpu.py",
        )
    )
    found = []
    for method, files in homes.items():
        for name in files:
            text = reading.text(f"{METHODS}/{name}") or ""
            own = name == "cpu_wna16.py" and f"class CPU{method.upper()}Config" in text
            # auto_gptq.py does not ask for the platform: it leaves the choice to the kernel selector.
            shared = name != "cpu_wna16.py" and kernel and ("is_cpu()" in text or name == "auto_gptq.py") and bool(text)
            if own or shared:
                found.append(method)
                break
    return found
