# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""The edits that limit a build to the kernel libraries that the wanted ISA classes load.

From 0.17.0 an x86 build compiles every kernel library and picks one at import: ``_C`` (AVX512 with BF16, VNNI and AMX),
``_C_AVX512`` (plain AVX512, from 0.18.0) or ``_C_AVX2``. setup.py names what is built. The import rule is put before
the release's own, so that a CPU loads the best library that is in the build, and never one that it cannot run: 0.17
gives ``_C`` to every AVX512 machine, also to one without BF16, so there the rule is needed for plain AVX512 even where
everything is built. Where 0.17 builds only ``_C_AVX2``, oneDNN, more than half of the whole compile, is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.cpufleet.vllm.plugins.module_utils._edits import (
    Edit,
    Outcome,
    has_edit,
    plan_absent,
    plan_present,
    remove,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ansible_collections.cpufleet.vllm.plugins.module_utils._edits import Reader

__all__ = ("CLASSES", "isa_generation", "plan_isa")

SETUP = "setup.py"
CPU_PLATFORM = "vllm/platforms/cpu.py"
CMAKE = "cmake/cpu_extension.cmake"

#: The libraries of a generation, best first, with the ISA classes that load each.
LIBRARIES: dict[str, dict[str, tuple[str, ...]]] = {
    "I4": {"_C": ("amx", "avx512_bf16"), "_C_AVX2": ("avx512", "avx2")},
    "I5": {"_C": ("amx", "avx512_bf16"), "_C_AVX512": ("avx512",), "_C_AVX2": ("avx2",)},
}
CLASSES = ("avx2", "avx512", "avx512_bf16", "amx", "neon", "neon_bf16")
NAMES = ((SETUP, "isa-limit-targets"), (CPU_PLATFORM, "isa-limit-import"), (CMAKE, "isa-limit-onednn"))

#: 0.17 links oneDNN into its AVX2 library, which calls nothing of it; 0.18.0 no longer does.
WITHOUT_ONEDNN = Edit(
    NAMES[2][1],
    CMAKE,
    (
        "# Build oneDNN for GEMM kernels",
        "if (ENABLE_X86_ISA OR (ASIMD_FOUND AND NOT APPLE_SILICON_FOUND) OR POWER9_FOUND OR POWER10_FOUND OR "
        "POWER11_FOUND)",
    ),
    ("if ((ASIMD_FOUND AND NOT APPLE_SILICON_FOUND) OR POWER9_FOUND OR POWER10_FOUND OR POWER11_FOUND)",),
    1,
    2,
)


def isa_generation(reader: Reader) -> str:
    """Return ``I0`` to ``I5`` from the build files of a source tree; empty where there are none, as in a package."""
    setup, cmake = reader(SETUP) or b"", reader(CMAKE) or b""
    marks = (
        ("I5", b"vllm._C_AVX512" in setup),
        ("I4", b"vllm._C_AVX2" in setup),
        ("I3", b"$ENV{VLLM_CPU_AVX512}" in cmake),
        ("I2", b"-mamx-bf16" in cmake),
        ("I1", b"-mavx512vnni" in cmake),
        ("I0", b"-mavx2" in cmake),
    )
    return next((code for code, found in marks if found), "")


def plan_isa(reader: Reader, isa: Sequence[str], *, wanted: bool = True) -> Outcome:
    """Plan the limit to the libraries that the classes ``isa`` load; ``wanted=False`` plans to lift it."""
    generation = isa_generation(reader)
    if not wanted:
        return remove(reader, NAMES, generation)
    unknown = [name for name in isa if name not in CLASSES]
    if unknown or not isa:
        raise CpufleetError(
            f"Cannot limit the build to the ISA classes {list(isa)}",
            f"Name at least one of {', '.join(CLASSES)}",
            isa=list(isa),
        )
    if not generation:
        raise CpufleetError(
            f"Cannot limit the ISA variants here: neither {SETUP} nor {CMAKE} is in this tree",
            "Point path at the root of a vLLM source tree; a package that is installed is built already",
            path=SETUP,
        )
    libraries = list(LIBRARIES.get(generation, {}))
    kept = [name for name in libraries if set(LIBRARIES[generation][name]) & set(isa)]
    limited = 0 < len(kept) < len(libraries)
    if not limited and not (generation == "I4" and "avx512" in isa):
        return _unlimited(reader, generation, kept)
    edits = [_import(kept)]
    if limited:
        edits.insert(0, _targets(libraries, kept))
    if generation == "I4" and kept == ["_C_AVX2"]:
        edits.append(WITHOUT_ONEDNN)
    # What an earlier run with other classes put in may have to go where the rule stays.
    stay = [edit.name for edit in edits]
    lifted = plan_absent(reader, [(path, name) for path, name in NAMES if name not in stay])
    changes = (*lifted, *plan_present(reader, edits))
    reason = f"Of {', '.join(libraries)} are built: {', '.join(kept)}; each CPU loads the best one that it can run"
    return Outcome("applied", reason, generation, tuple(edit.path for edit in edits), changes)


def _unlimited(reader: Reader, generation: str, kept: Sequence[str]) -> Outcome:
    """Nothing is to be limited; a limit of an earlier run is lifted."""
    if any(has_edit(reader(path) or b"", name) for path, name in NAMES):
        return remove(reader, NAMES, generation)
    if kept:
        reason = "Every variant that this release builds is wanted"
    elif generation in LIBRARIES:
        reason = "A build for this architecture has one variant"
    else:
        reason = (
            "This release builds one variant, for the CPU of the building machine; "
            "VLLM_CPU_DISABLE_AVX512=true in the build's environment limits it to avx2"
        )
    return Outcome("not_needed", reason, generation)


def _targets(libraries: Sequence[str], kept: Sequence[str]) -> Edit:
    lines = {name: f'        ext_modules.append(CMakeExtension(name="vllm.{name}"))' for name in libraries}
    return Edit(NAMES[0][1], SETUP, tuple(lines.values()), tuple(lines[name] for name in kept), 0, len(libraries))


def _import(kept: Sequence[str]) -> Edit:
    return Edit(
        NAMES[1][1],
        CPU_PLATFORM,
        ("    def import_kernels(cls) -> None:",),
        (
            "        if Platform.get_cpu_architecture() in (CpuArchEnum.X86,):",
            "            import importlib",
            "",
            "            avx512 = torch.cpu._is_avx512_supported()",
            "            runs = {",
            '                "_C": avx512 and torch.cpu._is_avx512_bf16_supported(),',
            '                "_C_AVX512": avx512,',
            '                "_C_AVX2": True,',
            "            }",
            f"            for library in {tuple(kept)!r}:",
            "                if not runs[library]:",
            "                    continue",
            "                try:",
            '                    importlib.import_module(f"vllm.{library}")',
            "                except ImportError as error:",
            "                    # All share the init function of _C, so this error comes after the loading.",
            '                    if "does not define module export function" not in str(error):',
            '                        logger.warning("Failed to import from vllm.%s: %r", library, error)',
            "                return",
        ),
        1,
        1,
    )
