# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Planners as filters: their errors become Ansible's."""

from __future__ import annotations

from typing import Any, Callable

from ansible.errors import AnsibleFilterError
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError

__all__ = ("guarded",)


def guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function`` with the planners' errors turned into Ansible's."""

    def call(*arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        except CpufleetError as error:
            raise AnsibleFilterError(str(error)) from error
        except (KeyError, TypeError, ValueError) as error:
            raise AnsibleFilterError(f"{function.__name__}: the input is not as documented: {error!r}") from error

    return call
