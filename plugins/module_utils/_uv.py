# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""The uv on the controller, which asks package indexes as its user has configured it to."""

from __future__ import annotations

import os
import shutil
import sys

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError

__all__ = ("find_uv",)


def find_uv(given: str | None, instead: str) -> str:
    """Return the uv command to use; raise CpufleetError where there is none. ``instead`` is the way without it."""
    beside = os.path.join(os.path.dirname(sys.executable), "uv")
    for candidate in (given, beside, shutil.which("uv")):
        if candidate and os.access(candidate, os.X_OK):
            return candidate
    raise CpufleetError(
        "Cannot find uv on the controller, which asks the package index",
        f"Install it beside Ansible (python -m pip install uv), or {instead}",
    )
