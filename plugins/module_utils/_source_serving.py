# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""How an installed vLLM of this source is driven on the CPU: its arguments, its KV cache, its heads and its threads."""

from __future__ import annotations

import ast
import re
from typing import Any

from ansible_collections.cpufleet.vllm.plugins.module_utils import _source_python as python
from ansible_collections.cpufleet.vllm.plugins.module_utils._source_reading import Reading

__all__ = ("serving",)

ENGINE_ARGUMENTS = "vllm/engine/arg_utils.py"
CPU_PLATFORM = "vllm/platforms/cpu.py"
WORKER = "vllm/v1/worker/cpu_worker.py"
BINDERS = (WORKER, "vllm/utils/ompmultiprocessing.py")
HEADS = ("vllm/v1/attention/backends/cpu_attn.py", "vllm/attention/ops/paged_attn.py")
HEAD_KERNELS = "csrc/cpu/attention.cpp"
EXPERTS = "vllm/model_executor/layers/fused_moe"
EXPERT_KERNELS = (f"{EXPERTS}/cpu_fused_moe.py", f"{EXPERTS}/experts/cpu_moe.py")
KV_ARGUMENT = "kv_cache_memory_bytes"


def serving(reading: Reading) -> dict[str, Any]:
    """Return what a plan of a service asks; null where the source does not tell."""
    known = _arguments(reading)
    worker = reading.text(WORKER)
    return {
        "engine": "v0" if worker is None else "v1",
        "arguments": known,
        "kv_argument": _kv_argument(known, worker or ""),
        "kv_unset": _kv_unset(reading, worker or ""),
        "head_sizes": _head_sizes(reading),
        "experts": _experts(reading),
        "nobind": any("nobind" in (reading.text(path) or "") for path in BINDERS),
        "sliding_window": "sliding window (CPU backend)" not in (reading.text(ENGINE_ARGUMENTS) or ""),
    }


def _arguments(reading: Reading) -> list[str] | None:
    """Return the names of the engine's arguments; on the command line they have dashes."""
    fields = python.find_class(reading.python(ENGINE_ARGUMENTS), "EngineArgs")
    if fields is None:
        return None
    found = {node.target.id for node in fields.body if isinstance(node, ast.AnnAssign) and hasattr(node.target, "id")}
    return sorted(found)


def _kv_argument(known: list[str] | None, worker: str) -> str | None:
    """Whether the size of the KV cache in bytes is used on the CPU, or only taken."""
    if known is None:
        return None
    if KV_ARGUMENT not in known:
        return "absent"
    return "used" if KV_ARGUMENT in worker else "ignored"


def _kv_unset(reading: Reading, worker: str) -> str | None:
    """What the KV cache takes when nothing is said."""
    platform = reading.text(CPU_PLATFORM)
    if platform is None:
        return None
    if KV_ARGUMENT in worker:
        return "share_of_total"
    return "half_of_free" if "DEFAULT_CPU_MEM_UTILIZATION" in platform else "4_gib"


def _head_sizes(reading: Reading) -> list[int] | None:
    """Return the head sizes that both Python and the kernels take."""
    sizes: list[int] = []
    for path in HEADS:
        method = python.find_function(reading.python(path), "get_supported_head_sizes")
        lists = [node for node in ast.walk(method) if isinstance(node, ast.List)] if method else []
        values = [entry.value for entry in lists[0].elts if isinstance(entry, ast.Constant)] if lists else []
        sizes = [value for value in values if isinstance(value, int)]
        if sizes and method is not None:
            reading.saw("head_sizes", path, method.lineno)
            break
    kernels = {int(number) for number in re.findall(r"\bcase (\d+):", reading.text(HEAD_KERNELS) or "")}
    return [size for size in sizes if not kernels or size in kernels] or None


def _experts(reading: Reading) -> str:
    """Whether models of several experts run: by kernels of its own, through a package of Intel's, or not at all."""
    if any(reading.text(path) is not None for path in EXPERT_KERNELS):
        return "native"
    method = python.find_function(reading.python(f"{EXPERTS}/layer.py"), "forward_cpu")
    raises = method is None or any(isinstance(node, ast.Raise) for node in method.body)
    return "none" if raises else "ipex"
