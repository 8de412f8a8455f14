# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""What a host is planned from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ("Situation",)


@dataclass(frozen=True)
class Situation:
    """One host as it is, and what is wanted of it.

    ``host`` is HostInfo, ``source`` SourceInfo, ``archive`` the verified source (sha256, upload_time, and onednn where
    one was given), ``state`` what ``release_info`` found, ``model`` what ``model_info`` found, ``wishes`` the user's
    variables. A host that does not serve only builds for others. ``instances`` are several services by name, each with
    ``model`` and ``wishes`` of its own; where there are none, it is one.
    """

    host: dict[str, Any]
    source: dict[str, Any]
    archive: dict[str, Any]
    state: dict[str, Any]
    model: dict[str, Any]
    wishes: dict[str, Any]
    serves: bool = True
    instances: dict[str, Any] = field(default_factory=dict)

    @property
    def services(self) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
        """Return model and wishes of every service by name; the only one has none."""
        if not self.instances:
            return {"": (self.model, self.wishes)}
        return {name: (entry["model"], entry["wishes"]) for name, entry in self.instances.items()}
