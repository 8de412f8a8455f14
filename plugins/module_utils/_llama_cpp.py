# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""How llama-server is compiled: for which CPU, with which options, and what its identity is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterable

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._identity import digest

__all__ = ("LEVELS", "choose_level", "cmake_options", "level_serves", "release_name", "server_inputs")


@dataclass(frozen=True)
class Level:
    """A kind of CPU: the flags that it has beyond those of the level below, and what is switched on for it."""

    name: str
    flags: frozenset[str]
    options: tuple[str, ...] = ()
    march: str = ""


# Weakest first, and wider than vLLM's classes: there is something for a CPU without AVX2, too. What is switched on
# asks for no flag that the level does not name; -mavx512cd comes with GGML_AVX512.
LEVELS: dict[str, tuple[Level, ...]] = {
    "x86_64": (
        Level("x86_64", frozenset()),
        Level("sse42", frozenset({"ssse3", "sse4_1", "sse4_2", "popcnt"}), ("SSE42",)),
        Level("avx", frozenset({"avx"}), ("AVX",)),
        Level("avx2", frozenset({"avx2", "fma", "f16c"}), ("AVX2", "FMA", "F16C")),
        Level("avx512", frozenset({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}), ("AVX512",)),
        Level("avx512_bf16", frozenset({"avx512_bf16", "avx512_vnni"}), ("AVX512_VNNI", "AVX512_BF16")),
        Level("amx", frozenset({"amx_tile", "amx_bf16", "amx_int8"}), ("AMX_TILE", "AMX_INT8")),
    ),
    "aarch64": (
        Level("armv8", frozenset({"asimd"}), march="armv8-a"),
        Level("neon", frozenset({"atomics", "asimdhp", "asimddp"}), march="armv8.2-a+fp16+dotprod"),
        Level("neon_bf16", frozenset({"bf16"}), march="armv8.2-a+fp16+dotprod+bf16"),
    ),
}
# Named each time: what is left out is on by default for the machine that compiles.
X86_OPTIONS = (
    *("SSE42", "AVX", "AVX_VNNI", "AVX2", "BMI2", "FMA", "F16C"),
    *("AVX512", "AVX512_VBMI", "AVX512_VNNI", "AVX512_BF16", "AMX_TILE", "AMX_INT8", "AMX_BF16"),
)
# One program that needs nothing but the C library (libgomp, too, is linked in): no TLS and no downloads (the service is
# offline, on loopback), no web page (its files would be fetched from a model hub while compiling). OpenMP: without
# it ggml's threads wait for each other by spinning alone, and crawl where somebody else uses the processors too.
COMMON = {
    "CMAKE_BUILD_TYPE": "Release",
    "CMAKE_EXE_LINKER_FLAGS": "-static-libgcc -static-libstdc++ -Wl,--as-needed",
    "BUILD_SHARED_LIBS": "OFF",
    "GGML_NATIVE": "OFF",
    "GGML_OPENMP": "ON",
    "LLAMA_CURL": "OFF",
    "LLAMA_OPENSSL": "OFF",
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_BUILD_EXAMPLES": "OFF",
    "LLAMA_BUILD_APP": "OFF",
    "LLAMA_BUILD_UI": "OFF",
    "LLAMA_USE_PREBUILT_UI": "OFF",
    # Else they are asked of a repository that is not there.
    "LLAMA_BUILD_NUMBER": "0",
    "LLAMA_BUILD_COMMIT": "none",
}


def ladder(arch: str) -> tuple[Level, ...]:
    """Return the levels of ``arch``; raise CpufleetError where it is not served."""
    if arch not in LEVELS:
        raise CpufleetError(
            f"Cannot build llama-server for {arch}: only {' and '.join(LEVELS)} are known", "Use another host"
        )
    return LEVELS[arch]


def choose_level(arch: str, flags: Iterable[str], wish: str = "auto") -> str:
    """Return the strongest level that the CPU has, or the wished-for one where the CPU has that."""
    have, reached = frozenset(flags), ""
    levels = ladder(arch)
    for level in levels:
        if not level.flags <= have:
            break
        reached = level.name
    names = [level.name for level in levels]
    if wish == "auto" and reached:
        return reached
    if wish not in names:
        what = f"the CPU lacks {', '.join(levels[0].flags)}" if wish == "auto" else f"{wish} is no level of {arch}"
        raise CpufleetError(f"Cannot build llama-server: {what}", f"Set vllm_isa_class to {', '.join(names)}")
    if not reached or names.index(wish) > names.index(reached):
        raise CpufleetError(
            f"vllm_isa_class is {wish}, but this CPU offers {reached or 'less'}: the service would die of an "
            "illegal instruction",
            f"Set vllm_isa_class to {reached or 'auto'} or to auto",
        )
    return wish


def level_serves(arch: str, own: str, built: str) -> bool:
    """Whether a CPU of level ``own`` runs what was built for ``built``."""
    names = [level.name for level in LEVELS.get(arch, ())]
    return own in names and built in names and names.index(own) >= names.index(built)


def cmake_options(arch: str, name: str) -> dict[str, str]:
    """Return every option that CMake is given for the level ``name``."""
    levels = ladder(arch)
    place = [level.name for level in levels].index(name)
    if arch != "x86_64":
        return {**COMMON, "GGML_CPU_ARM_ARCH": levels[place].march}
    enabled = {option for level in levels[: place + 1] for option in level.options}
    return {**COMMON, **{f"GGML_{option}": "ON" if option in enabled else "OFF" for option in X86_OPTIONS}}


def server_inputs(archive: dict[str, Any], version: str, arch: str, level: str, compiler: str) -> dict[str, Any]:
    """Return all that a llama-server is made from; its identity is the digest over that."""
    return {
        "engine": "llama_cpp",
        "version": version,
        "source_sha256": archive["sha256"],
        "arch": arch,
        "isa": [level],
        "flags": cmake_options(arch, level),
        "compiler": compiler,
    }


def release_name(inputs: dict[str, Any]) -> str:
    """Return ``llama_cpp-<version>-<12 hex digits>``."""
    return f"llama_cpp-{inputs['version']}-{digest(inputs)[:12]}"
