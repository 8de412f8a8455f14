# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Builds llama-server on this host in a unit of its own, as wheels are built."""

from __future__ import annotations

import os
import shutil
from typing import Any

from ansible_collections.cpufleet.vllm.plugins.module_utils._build_host import Build
from ansible_collections.cpufleet.vllm.plugins.module_utils._build_unit import toolchain_changes
from ansible_collections.cpufleet.vllm.plugins.module_utils._elf import read_elf
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._io import (
    read_bytes,
    read_json,
    sha256_bytes,
    write_atomic,
    write_json,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._wheel import floors

__all__ = ("SERVER", "ServerBuild")

SERVER = "bin/llama-server"
# A file, since systemd puts its own values in place of a dollar sign on a command line.
COMPILE = """\
source=$1
shift
gomp=$("$CXX" -print-file-name=libgomp.a)
# What is not there is printed as it was asked for; the program then needs the library of the host.
[ ! -e "$gomp" ] || set -- "$@" "-DOpenMP_gomp_LIBRARY=$gomp"
cmake -S "$source" -B build -G Ninja "$@" && exec ninja -C build -j "$MAX_JOBS" llama-server
"""


class ServerBuild(Build):
    """One build of llama-server."""

    title = "llama-server"
    product = "server"
    variables = (("vllm_source_build_", "llama_cpp_"), ("vllm_version", "llama_cpp_version"))

    def start(self, jobs: int, retries: list[dict[str, Any]], notes: list[str]) -> None:
        """Start the build as a unit of its own, with ``jobs`` at a time."""
        write_atomic(self._file("compile.sh"), COMPILE.encode(), 0o644)
        super().start(jobs, retries, notes)

    def words(self) -> list[str]:
        """Return the command that builds."""
        options = [f"-D{name}={value}" for name, value in sorted(self.parameters["options"].items())]
        return ["/bin/sh", self._file("compile.sh"), self.source, *options]

    def collect(self) -> dict[str, Any]:
        """Put the server and its manifest, last, into the destination and return the manifest."""
        built = self._file(os.path.join("build", SERVER))
        if not os.path.isfile(built):
            self.forget()
            raise CpufleetError(f"The build left no {built}", f"Run again; the log is {self.log}")
        content = read_bytes(built)
        with open(built, "rb") as stream:
            requires = floors([read_elf(stream, SERVER)])
        os.makedirs(os.path.join(self.dest, os.path.dirname(SERVER)), mode=0o755, exist_ok=True)
        write_atomic(os.path.join(self.dest, SERVER), content, 0o755)
        manifest = {
            **self.parameters["manifest"],
            "identity": self.parameters["identity"],
            "file": SERVER,
            "sha256": sha256_bytes(content),
            "requires": {key: value for key, value in requires.items() if value},
            "took": self.took(),
            "retries": self.started().get("retries", []),
        }
        write_json(os.path.join(self.dest, "manifest.json"), manifest, 0o644)
        self.forget()
        return manifest

    def _clean_stale(self) -> list[str]:
        """Remove what CMake made with another compiler; return a note where there was such."""
        tree, stamp = self._file("build"), self._file("toolchain.json")
        before, now = read_json(stamp, default={}), self._toolchain()
        changes = toolchain_changes(before or None, now, os.path.exists(os.path.join(tree, "CMakeCache.txt")))
        if changes:
            shutil.rmtree(tree, ignore_errors=True)
        if before != now:
            write_json(stamp, now)
        return [f"the build tree is made anew: {', '.join(changes)}"] if changes else []

    def _toolchain(self) -> dict[str, str]:
        """Return the programs of the build, each by what tells it from another."""
        programs = {name: str(self.parameters["environment"].get(name, "")) for name in ("CC", "CXX")}
        found = {name: self._version(path, "--version") for name, path in programs.items() if path}
        found["cmake"] = self._version("cmake", "--version")
        return {name: text for name, text in found.items() if text}
