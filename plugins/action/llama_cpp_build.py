# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Wait for the build of llama-server as wheel_build waits for its own."""

from __future__ import annotations

from ansible_collections.cpufleet.vllm.plugins.action.wheel_build import ActionModule as WheelBuild


class ActionModule(WheelBuild):
    """Run llama_cpp_build until the build is done or has failed."""

    MODULE = "cpufleet.vllm.llama_cpp_build"
