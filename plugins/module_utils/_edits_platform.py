# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""The edits that make the environment variable VLLM_CPU_ONLY decide vLLM's platform, for each way of detecting it.

The generations, told by the shape of ``vllm/platforms/__init__.py``:

==  ================  ==========================================================================================
D1  0.6.2 to 0.6.6    flags set at import; a GPU seen through NVML wins over a version that says cpu
D2  0.7.0 to 0.7.2    plugin functions; two that answer raise RuntimeError, as a cpu build does on a host with a GPU
D3  0.7.3             the CUDA plugin stands back where the version says cpu; ARM machines are CPU
D4  0.8.0 to 0.17.1   as D3, macOS in place of ARM
D5  0.18.0 to 0.27.1  as D4, ZenCpuPlatform where zentorch is installed
D6  0.28.0 and newer  VLLM_TARGET_DEVICE=cpu in the environment decides at run time
==  ================  ==========================================================================================
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ansible_collections.cpufleet.vllm.plugins.module_utils._edits import (
    Edit,
    Outcome,
    has_edit,
    plan_present,
    remove,
    revert_edit,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError

if TYPE_CHECKING:
    from ansible_collections.cpufleet.vllm.plugins.module_utils._edits import Reader

__all__ = ("detection_generation", "plan_platform", "says_cpu")

PLATFORMS = "vllm/platforms/__init__.py"
UTILS = "vllm/utils.py"
TRITON = "vllm/triton_utils/importing.py"
FORCED = '_os.environ.get("VLLM_CPU_ONLY", "").strip().lower() in ("1", "true", "yes", "on")'

FLAGS = Edit(
    "cpu-only-flags",
    PLATFORMS,
    ("if is_tpu:",),
    (
        "import os as _os",
        "",
        f"if {FORCED}:",
        "    is_tpu = is_cuda = is_rocm = is_hpu = is_xpu = is_neuron = is_openvino = False",
        "    is_cpu = True",
        "",
    ),
)
RESOLVE = "def resolve_current_platform_cls_qualname() -> str:"
RESOLVE_CLASS = Edit(
    "cpu-only-resolve",
    PLATFORMS,
    (RESOLVE,),
    ("    import os as _os", "", f"    if {FORCED}:", '        return "vllm.platforms.cpu.CpuPlatform"', ""),
    1,
    1,
)
RESOLVE_PLUGIN = Edit(
    "cpu-only-resolve",
    PLATFORMS,
    (RESOLVE,),
    (
        "    import os as _os",
        "",
        f"    if {FORCED}:",
        "        return cpu_platform_plugin()",
        "",
    ),
    1,
    1,
)
VERSION = Edit(
    "cpu-only-version",
    PLATFORMS,
    ("    from importlib.metadata import PackageNotFoundError, version",),
    ("    import os as _os", "", f'    if substr == "cpu" and {FORCED}:', "        return True", ""),
)
#: 0.26.0 to 0.31.0 ask the version once more, to switch off a triton that has no CPU backend.
TRITON_VERSION = Edit(
    "cpu-only-triton",
    TRITON,
    ('        if "cpu" in version("vllm"):',),
    ("        import os as _os", "", f'        if "cpu" in version("vllm") or {FORCED}:'),
    0,
    1,
)


def _answer(function: str, verdict: bool) -> Edit:
    """0.6.3 asks functions of vllm/utils.py beside the flags of vllm/platforms."""
    return Edit(
        f"cpu-only-{function.replace('_', '-')}",
        UTILS,
        (f"def {function}() -> bool:",),
        ("    import os as _os", "", f"    if {FORCED}:", f"        return {verdict}", ""),
        1,
        1,
    )


ANSWERS = (
    _answer("is_cpu", True),
    _answer("is_openvino", False),
    _answer("is_neuron", False),
    _answer("is_xpu", False),
)
ALL = (FLAGS, RESOLVE_PLUGIN, VERSION, TRITON_VERSION, *ANSWERS)


def says_cpu(version: str | None) -> bool:
    """Tell whether vLLM itself would take an installed ``version`` for a CPU build: a plain substring test."""
    return version is not None and "cpu" in version


def detection_generation(content: bytes) -> str:
    """Return ``D1`` to ``D6`` from the bytes of ``vllm/platforms/__init__.py``; raise for a shape not known."""
    if re.search(rb"^is_cpu = False\r?$", content, re.MULTILINE):
        return "D1"
    if not re.search(rb"^builtin_platform_plugins = \{\r?$", content, re.MULTILINE):
        raise CpufleetError(
            f"Cannot tell how this tree detects its platform: {PLATFORMS} has neither the line 'is_cpu = False' nor "
            "the line 'builtin_platform_plugins = {'",
            "Use vLLM 0.6.3 or newer, or restore the file from the release's source distribution",
            path=PLATFORMS,
            anchor="builtin_platform_plugins = {",
        )
    if b"VLLM_TARGET_DEVICE" in content:
        return "D6"
    if b"zen_cpu" in content:
        return "D5"
    if b"def vllm_version_matches_substr(" not in content:
        return "D2"
    return "D4" if b"darwin" in content else "D3"


def plan_platform(reader: Reader, version: str | None, *, wanted: bool = True, force: bool = False) -> Outcome:
    """Plan the edits for the tree behind ``reader``.

    ``version`` is that of the installed package, None for a source tree, which has no version yet: there the edit is
    made, since it is for the build to say what the version will be.
    """
    content = reader(PLATFORMS)
    if content is None:
        raise CpufleetError(
            f"Cannot find {PLATFORMS} in this tree",
            "Point path at the root of a vLLM source tree or at the vllm folder of an installed package",
            path=PLATFORMS,
        )
    generation = detection_generation(_pristine(content))
    if not wanted:
        return remove(reader, [(edit.path, edit.name) for edit in ALL], generation)
    in_place = any(has_edit(content, edit.name) for edit in ALL)
    reason = "" if force or in_place else _needless(generation, version)
    if reason:
        return Outcome("not_needed", reason, generation)
    edits = _edits(reader, generation)
    changes = plan_present(reader, edits)
    files = tuple(dict.fromkeys(edit.path for edit in edits))
    return Outcome("applied", "VLLM_CPU_ONLY=1 selects the CPU platform", generation, files, changes)


def _pristine(content: bytes) -> bytes:
    for edit in ALL:
        content = revert_edit(content, edit.name, edit.path)
    return content


def _needless(generation: str, version: str | None) -> str:
    if says_cpu(version):
        reason = f"The installed version {version} already says cpu, so vLLM selects the CPU platform by itself"
        if generation in ("D1", "D2"):
            reason += "; on a host with a GPU this release does not, use force there"
        return reason
    if generation == "D6":
        return "VLLM_TARGET_DEVICE=cpu in the environment selects the CPU platform of this release at run time"
    return ""


def _edits(reader: Reader, generation: str) -> tuple[Edit, ...]:
    if generation == "D1":
        return (FLAGS, *(edit for edit in ANSWERS if _uses(reader, UTILS, b"def is_cpu() -> bool:")))
    if generation == "D2":
        return (RESOLVE_CLASS,)
    triton = _uses(reader, TRITON, b'"cpu" in version("vllm")')
    return (VERSION, RESOLVE_PLUGIN, *([TRITON_VERSION] if triton else []))


def _uses(reader: Reader, path: str, text: bytes) -> bool:
    return text in (reader(path) or b"")
