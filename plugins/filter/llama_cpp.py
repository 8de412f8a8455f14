# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters around the engine llama.cpp: which engine a host serves with, and the plan of those that serve with it."""

from __future__ import annotations

from typing import Any, Callable

from ansible_collections.cpufleet.vllm.plugins.module_utils import _llama_cpp_plan
from ansible_collections.cpufleet.vllm.plugins.plugin_utils._guard import guarded


def llama_cpp_plans(
    hosts: dict[str, Any], archive: dict[str, Any], store: dict[str, Any], failed: dict[str, str]
) -> dict[str, Any]:
    """Return the plan of every host by name."""
    candidates = {name: _llama_cpp_plan.Candidate(**given) for name, given in hosts.items()}
    return _llama_cpp_plan.plan_llama_cpp(candidates, archive, store, failed)


def serve_engine(
    model: dict[str, Any], host: dict[str, Any], source: dict[str, Any], wishes: dict[str, Any]
) -> dict[str, str]:
    """Return the engine for one host and the reason."""
    return _llama_cpp_plan.choose_engine(model, host, source, wishes)


class FilterModule:
    """The filters of the collection for llama.cpp."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return filter by name."""
        return {function.__name__: guarded(function) for function in (llama_cpp_plans, serve_engine)}
