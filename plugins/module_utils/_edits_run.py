# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Between the planners of edits and the disk: find the tree, read its files, write what was planned."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ansible_collections.cpufleet.vllm.plugins.module_utils._edits import unified_diff
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._io import backup_file, read_bytes, read_text, write_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansible_collections.cpufleet.vllm.plugins.module_utils._edits import Outcome

__all__ = ("ARGUMENTS", "Tree", "carry_out", "edit", "open_tree")

# As the section EDITS of plugins/doc_fragments/options.py describes them.
ARGUMENTS: dict[str, Any] = {
    "path": {"type": "path", "required": True},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "backup": {"type": "bool", "default": False},
}


@dataclass(frozen=True)
class Tree:
    """A vLLM to edit. ``base`` holds the folder ``vllm``; ``version`` is the installed one, None for a source tree."""

    base: str
    version: str | None

    def read(self, path: str) -> bytes | None:
        """Return the bytes of ``path`` below ``base``; None where there is no such file."""
        full = os.path.join(self.base, path)
        return read_bytes(full) if os.path.isfile(full) else None


def open_tree(path: str) -> Tree:
    """Return the tree at ``path``: the root of a source tree, or the folder ``vllm`` of an installed package."""
    full = os.path.abspath(path)
    if os.path.isfile(os.path.join(full, "__init__.py")) and os.path.basename(full) == "vllm":
        full = os.path.dirname(full)
    if not os.path.isfile(os.path.join(full, "vllm", "__init__.py")):
        raise CpufleetError(
            f"Cannot find vLLM at {path}: there is no vllm/__init__.py",
            "Point path at the root of a vLLM source tree or at the vllm folder of an installed package",
            path=path,
        )
    is_source = os.path.isfile(os.path.join(full, "setup.py"))
    return Tree(full, None if is_source else _installed_version(full))


def edit(module: Any, plan: Callable[[Tree, bool], Outcome]) -> dict[str, Any]:
    """Make the edit that ``plan`` plans for the module's tree, told whether it is wanted; return the results."""
    tree = open_tree(module.params["path"])
    outcome = plan(tree, module.params["state"] == "present")
    return carry_out(tree, outcome, check=module.check_mode, backup=module.params["backup"])


def carry_out(tree: Tree, outcome: Outcome, *, check: bool, backup: bool) -> dict[str, Any]:
    """Write what ``outcome`` plans (unless ``check``) and return the results that the modules have in common."""
    result: dict[str, Any] = {
        "changed": bool(outcome.changes),
        "status": outcome.status,
        "reason": outcome.reason,
        "generation": outcome.generation,
        "files": list(outcome.files),
        "diff": {"prepared": unified_diff(outcome.changes)},
    }
    if check or not outcome.changes:
        return result
    contents = {os.path.join(tree.base, change.path): change.after for change in outcome.changes}
    if backup:
        suffix = time.strftime(f".{os.getpid()}.%Y-%m-%d@%H:%M:%S~")
        result["backup_files"] = [backup_file(path, suffix) for path in contents]
    write_all(contents)
    return result


def _installed_version(base: str) -> str | None:
    """The version that ``importlib.metadata`` would find; of several, the one that does not say cpu."""
    found = []
    for entry in sorted(os.listdir(base)):
        if re.match(r"vllm-[^-]+.*\.(dist|egg)-info$", entry):
            name = "METADATA" if entry.endswith(".dist-info") else "PKG-INFO"
            text = read_text(os.path.join(base, entry, name), default="")
            found += re.findall(r"^Version: *(\S+)", text, re.MULTILINE)[:1]
    return next((version for version in found if "cpu" not in version), found[0] if found else None)
