# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""The edit that keeps ``ModelConfig.verify_async_output_proc`` from raising where a platform has no answer for it.

==  ==================  ========================================================================================
A0  0.11.0 and newer    the method is gone, and async output processing of that kind with it
A1  0.6.0 to 0.6.4      the method compares device types and asks no platform: it cannot raise
A2  0.6.5 to 0.10.2     the method asks the platform; a platform without the hook raises NotImplementedError
==  ==================  ========================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.cpufleet.vllm.plugins.module_utils._edits import Edit, Outcome, has_edit, plan_present, remove
from ansible_collections.cpufleet.vllm.plugins.module_utils._edits_platform import says_cpu
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError

if TYPE_CHECKING:
    from ansible_collections.cpufleet.vllm.plugins.module_utils._edits import Reader

__all__ = ("async_generation", "plan_config")

#: One file to 0.10.0, a package after that.
CONFIGS = ("vllm/config/__init__.py", "vllm/config.py")
NAME = "async-output-hook"
METHOD = b"def verify_async_output_proc("
HOOK = b"is_async_output_supported("


def _edit(path: str) -> Edit:
    return Edit(
        NAME,
        path,
        ("        if not current_platform.is_async_output_supported(self.enforce_eager):",),
        (
            "        try:",
            "            supported = current_platform.is_async_output_supported(self.enforce_eager)",
            "        except NotImplementedError:",
            "            supported = False",
            "        if not supported:",
        ),
        0,
        1,
    )


def async_generation(content: bytes) -> str:
    """Return ``A0``, ``A1`` or ``A2`` from the bytes of vLLM's configuration file."""
    if METHOD not in content:
        return "A2" if HOOK in content else "A0"
    # Only the method's own text counts: what other methods ask is another matter.
    body = content.split(METHOD, 1)[1].split(b"\n    def ", 1)[0]
    return "A1" if b"device_config.device_type" in body and HOOK not in body else "A2"


def plan_config(reader: Reader, version: str | None, *, wanted: bool = True, force: bool = False) -> Outcome:
    """Plan the edit for the tree behind ``reader``; ``version`` is that of the installed package, None for a tree."""
    path = next((path for path in CONFIGS if reader(path) is not None), None)
    content = reader(path) if path else None
    if path is None or content is None:
        raise CpufleetError(
            f"Cannot find {CONFIGS[1]} or {CONFIGS[0]} in this tree",
            "Point path at the root of a vLLM source tree or at the vllm folder of an installed package",
            path=CONFIGS[1],
        )
    generation = async_generation(content)
    if not wanted:
        return remove(reader, [(path, NAME)], generation)
    reason = "" if has_edit(content, NAME) else _needless(generation, version, force)
    if reason:
        return Outcome("not_needed", reason, generation)
    changes = plan_present(reader, [_edit(path)])
    reason = "verify_async_output_proc switches async output off where the platform does not implement the hook"
    return Outcome("applied", reason, generation, (path,), changes)


def _needless(generation: str, version: str | None, force: bool) -> str:
    if generation == "A0":
        return "This release has no verify_async_output_proc"
    if generation == "A1":
        return "verify_async_output_proc of this release asks no platform, so it cannot raise for a missing hook"
    if says_cpu(version) and not force:
        return f"The installed version {version} already says cpu, and its CPU platform implements the hook"
    return ""
