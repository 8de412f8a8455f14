# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Known faults of vLLM releases on CPUs that a source edit cures.

Whether a fix is needed is read from the tree, not from its version: each has a test of the fault itself. Its name is
stable, since it is recorded in the identity of a wheel. To add one: its edits, its test of the fault, a line in FIXES.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ansible_collections.cpufleet.vllm.plugins.module_utils._edits import APPLICABLE, APPLIED, Edit, has_edit

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.cpufleet.vllm.plugins.module_utils._edits import Reader

__all__ = ("FIXES", "KnownFix", "applicable_fixes")


@dataclass(frozen=True)
class KnownFix:
    """A fault with its cure. ``state`` is ``applicable`` or ``applied`` once it was looked for in a tree."""

    name: str
    releases: str
    symptom: str
    evidence: str
    edits: tuple[Edit, ...]
    state: str = APPLICABLE
    #: The first torch with which the fault shows; empty where it shows with the release's own.
    torch: str = ""


STAND_IN = "vllm/utils/cpu_triton_utils.py"
BLOCK_TABLE = "vllm/v1/worker/block_table.py"
MLA_DECODE = "csrc/cpu/mla_decode.cpp"
CPU_UTILS = "csrc/cpu/utils.hpp"
CPU_PLATFORM = "vllm/platforms/cpu.py"
V1_ATTENTION = "vllm/v1/attention/backends/cpu_attn.py"
# Where every release that asks torch's private module does so.
PRIVATE_QUESTION = "torch._C._cpu._is_"
PRIVATE_USERS = (
    "vllm/model_executor/layers/linear.py",
    "vllm/model_executor/layers/utils.py",
    V1_ATTENTION,
    CPU_PLATFORM,
)
L2_QUESTION = "at::cpu::L2_cache_size()"

SLOT_MAPPING = KnownFix(
    "slot-mapping-arguments",
    "0.32.0",
    "The engine dies on the first request: Boolean value of Tensor with more than one value is ambiguous",
    f"{STAND_IN} takes block_size before slot_mapping, the kernel that it stands in for ({BLOCK_TABLE}) takes no "
    "block_size; 0.31.0 has it in both and 0.33.0 in neither",
    (
        Edit(
            "slot-mapping-arguments-signature",
            STAND_IN,
            (
                "    block_size: int,",
                "    slot_mapping: torch.Tensor,  # [max_num_tokens], int64",
                "    KV_CACHE_BLOCK_SIZE: int | None = None,",
                "    BLOCKS_PER_KV_BLOCK: int = 1,",
            ),
            ("    slot_mapping: torch.Tensor,", "    KV_CACHE_BLOCK_SIZE: int,"),
            0,
            4,
        ),
        Edit(
            "slot-mapping-arguments-body",
            STAND_IN,
            (
                "    if BLOCKS_PER_KV_BLOCK != 1:",
                "        assert block_size * BLOCKS_PER_KV_BLOCK == KV_CACHE_BLOCK_SIZE",
            ),
            ("    block_size = KV_CACHE_BLOCK_SIZE",),
            0,
            2,
        ),
    ),
)

MLA_BF16 = KnownFix(
    "mla-bfloat16-fallback",
    "0.16.0",
    "The compiler stops at mla_decode.cpp with an incomplete or void qk_vec_type where AVX512-BF16 is off, as on every "
    "AVX2-only machine",
    f"{MLA_DECODE} gives bfloat16 its vector types for AVX512-BF16, s390x and aarch64 only; 0.14.1 and 0.17.0 end that "
    "chain with #else",
    (
        Edit(
            "mla-bfloat16-fallback",
            MLA_DECODE,
            ("#elif defined(__aarch64__)", "template <>", "struct KernelVecType<c10::BFloat16> {"),
            ("#else",),
            0,
            1,
            "//",
        ),
    ),
)

L2_CACHE = KnownFix(
    "l2-cache-size",
    "0.14.0 to 0.19.1 with torch 2.11 or newer",
    "The compiler stops at utils.hpp: L2_cache_size is not a member of at::cpu",
    f"{CPU_UTILS} asks torch for the size of the L2 cache by a function that newer ones no longer declare in "
    "ATen/cpu/Utils.h; 0.13.0 asks the system, 0.20.0 asks torch in another way",
    (
        Edit(
            "l2-cache-size",
            CPU_UTILS,
            (
                "inline int64_t get_available_l2_size() {",
                "  static int64_t size = []() {",
                f"    const uint32_t l2_cache_size = {L2_QUESTION};",
            ),
            (
                "    const long told = sysconf(_SC_LEVEL2_CACHE_SIZE);",
                "    // Virtual machines may tell nothing: no x86 server has less than this.",
                "    const uint32_t l2_cache_size = told > 0 ? told : 256 * 1024;",
            ),
            2,
            3,
            "//",
        ),
    ),
    torch="2.11",
)

CPU_QUESTIONS = KnownFix(
    "torch-cpu-questions",
    "0.9.2 to 0.18.1 with torch 2.11 or newer",
    "The engine does not start: module 'torch._C._cpu' has no attribute '_is_amx_tile_supported'",
    "These releases ask torch's private module what the CPU can do; newer ones answer in torch.cpu only, as older ones "
    "did too. 0.19.1 asks there",
    (
        Edit(
            "torch-cpu-questions",
            CPU_PLATFORM,
            ("import torch",),
            (
                "",
                'for _question in ("_is_amx_tile_supported", "_is_avx512_supported"):',
                "    if not hasattr(torch._C._cpu, _question):",
                "        setattr(torch._C._cpu, _question, getattr(torch.cpu, _question))",
            ),
            1,
            1,
        ),
    ),
    torch="2.11",
)

WITHOUT_EXTENSION = KnownFix(
    "prefill-without-extension",
    "0.10.0 to 0.11.0 without Intel's extension, which exists for torch up to 2.8",
    "The engine dies on the first request: No module named 'intel_extension_for_pytorch'",
    f"On x86 these releases always prefill in chunks, for which {V1_ATTENTION} calls Intel's extension; whole prompts "
    "go through code of their own, as they do on other processors. 0.11.1 has its own kernel for both",
    (
        Edit(
            "prefill-without-extension",
            CPU_PLATFORM,
            ("        if not ipex_available and cache_config.block_size != 16:",),
            (
                "        if not ipex_available and vllm_config.scheduler_config:",
                "            scheduler = vllm_config.scheduler_config",
                "            scheduler.enable_chunked_prefill = False",
                "            scheduler.chunked_prefill_enabled = False",
                "            scheduler.max_num_batched_tokens = max(",
                "                scheduler.max_num_batched_tokens, scheduler.max_model_len)",
                "            cache_config.enable_prefix_caching = False",
                "",
            ),
        ),
    ),
    torch="2.9",
)


def applicable_fixes(reader: Reader) -> list[KnownFix]:
    """Return the fixes that the tree behind ``reader`` needs or already has, each with its ``state``."""
    found = []
    for fix, needed in FIXES:
        if all(has_edit(reader(edit.path) or b"", edit.name) for edit in fix.edits):
            found.append(replace(fix, state=APPLIED))
        elif needed(reader):
            found.append(fix)
    return found


def _needs_slot_mapping(reader: Reader) -> bool:
    stand_in = _parameters(_text(reader, STAND_IN), "_compute_slot_mapping_kernel_impl")
    kernel = _parameters(_text(reader, BLOCK_TABLE), "kernel")
    return "block_size" in stand_in and bool(kernel) and "block_size" not in kernel


def _needs_l2_cache(reader: Reader) -> bool:
    return L2_QUESTION in _text(reader, CPU_UTILS)


def _needs_cpu_questions(reader: Reader) -> bool:
    return any(PRIVATE_QUESTION in _text(reader, path) for path in PRIVATE_USERS)


def _needs_whole_prefill(reader: Reader) -> bool:
    return "ipex_modules.PagedAttention.flash_attn_varlen_func" in _text(reader, V1_ATTENTION)


def _needs_mla_bf16(reader: Reader) -> bool:
    chain = re.search(r"^#ifdef __AVX512BF16__$(.*?)^#endif", _text(reader, MLA_DECODE), re.DOTALL | re.MULTILINE)
    return chain is not None and "KernelVecType<c10::BFloat16>" in chain[1] and "#else" not in chain[1]


def _text(reader: Reader, path: str) -> str:
    return (reader(path) or b"").decode("utf-8", "replace").replace("\r\n", "\n")


def _parameters(text: str, function: str) -> list[str]:
    """Names of the parameters of ``function``, by text: the tree may need a newer Python than this one."""
    head = re.search(rf"^ *def {function}\(\n(.*?)^ *\)", text, re.DOTALL | re.MULTILINE)
    return re.findall(r"^\s*(\w+)\s*[:,]", head[1], re.MULTILINE) if head else []


FIXES: tuple[tuple[KnownFix, Callable[[Reader], bool]], ...] = (
    (SLOT_MAPPING, _needs_slot_mapping),
    (MLA_BF16, _needs_mla_bf16),
    (L2_CACHE, _needs_l2_cache),
    (CPU_QUESTIONS, _needs_cpu_questions),
    (WITHOUT_EXTENSION, _needs_whole_prefill),
)
