# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A stand-in host with a compiler, and builds on it by the module wheel_build alone, without the roles around it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.lib import bench, image
from tests.support import tiny_vllm, trees

ROOT = "/opt/vllm"
VENV = f"{ROOT}/venv"
PACKAGES = "g++ ccache curl git python3-venv"
TOOLS = "uv cmake ninja setuptools<81 setuptools-scm>=8 wheel packaging jinja2"
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
PLAIN = {"ANSIBLE_NOCOLOR": "1", "ANSIBLE_CALLBACK_RESULT_FORMAT": "json"}
# The kernel's log may be read on a VM, a container has to be allowed to. Without swap, whatever the machine has: what
# does not fit into a limit is to be killed and not swapped (start_host says so to control groups v2, swappiness to v1).
MEMORY = "8g"
FLAGS = ("--cap-add", "SYSLOG", "--memory-swappiness", "0")
UNITS = "systemctl list-units --plain --no-legend 'cpufleet-build-*'"


def torch_source() -> list[str]:
    """Return pip's words for where the CPU torch comes from: the caller's folder, else PyTorch's own index."""
    folder = bench.host_variables().get("torch_cpu_find_links")
    return ["--find-links", folder] if folder else ["--extra-index-url", TORCH_INDEX]


def torch_pin() -> str:
    """Return the CPU torch of the builds."""
    return f"torch=={bench.host_variables().get('torch_cpu_version', '2.5.1+cpu')}"


class BuildHost:
    """One host; one that is there already is used and kept."""

    def __init__(self, name: str) -> None:
        self.name = os.environ.get("CPUFLEET_HOST_PREFIX", "cpufleet") + f"-{name}"
        self.kept = False

    def run(self, command: str, check: bool = True) -> str:
        """Return what the shell ``command`` prints on the host."""
        return bench.run("docker", "exec", self.name, "sh", "-c", command, check=check).stdout

    def prepare(self) -> None:
        """Start the host, and install compiler and tools."""
        bench.start_docker()
        image.ensure(bench.cache(), bench.as_root)
        self.kept = bench.host_exists(self.name)
        if self.kept:
            return
        bench.start_host(self.name, memory=MEMORY, flags=FLAGS)
        install = f"DEBIAN_FRONTEND=noninteractive apt-get install -qq -y {PACKAGES}"
        self.run(f"apt-get update -qq && {install} >/dev/null 2>&1 && python3 -m venv {VENV}")
        self.pip(*TOOLS.split())

    def pip(self, *words: str) -> None:
        """Install into the environment of the builds, from where the caller's pip installs."""
        self.install(f"{VENV}/bin/pip", "install", "--quiet", *words)

    def install(self, *command: str) -> None:
        """Run a command that downloads."""
        settings = bench.host_variables().get("vllm_environment", {})
        export = [word for name, value in settings.items() for word in ("--env", f"{name}={value}")]
        bench.run("docker", "exec", *export, self.name, *command)

    def stop(self) -> None:
        """Remove the host, unless it had been there before."""
        if not self.kept:
            bench.stop_host(self.name)

    def tiny(self, local: Path, cells: list[int], mount_mib: int = 0) -> Build:
        """Put a small project on the host, on a filesystem of its own where ``mount_mib`` is given."""
        build = Build(self, local, {"HOME": ROOT})
        tiny_vllm.write(local / "source", cells)
        bench.run("docker", "cp", str(local / "source"), f"{self.name}:/tmp/source")
        self.run(f"mkdir -p {build.folder}")
        if mount_mib:
            self.run(f"mount -t tmpfs -o size={mount_mib}m tmpfs {build.folder}")
        self.run(f"mv /tmp/source {build.folder}/")
        return build

    def real(self, local: Path, version: str, flags: dict[str, str]) -> Build:
        """Put the source of a vLLM release on the host, and into the environment what it is built with."""
        self.run("DEBIAN_FRONTEND=noninteractive apt-get install -qq -y libnuma-dev python3-dev >/dev/null 2>&1")
        self.pip(*torch_source(), torch_pin(), "numpy<2")
        build = Build(self, local, {"HOME": ROOT, "VLLM_TARGET_DEVICE": "cpu", **flags})
        bench.run("docker", "cp", str(trees.sdist(version)), f"{self.name}:/tmp/source.tar.gz")
        self.run(f"mkdir -p {build.folder}/source")
        self.run(f"tar -xzf /tmp/source.tar.gz --strip-components=1 -C {build.folder}/source")
        return build


@dataclass(frozen=True)
class Build:
    """One build on ``host``; its identity is that of the local folder that plays and sources are written to."""

    host: BuildHost
    local: Path
    environment: dict[str, str]

    @property
    def identity(self) -> str:
        """Return the identity that the module is told."""
        return hashlib.sha256(str(self.local).encode()).hexdigest()

    @property
    def folder(self) -> str:
        """Return the build folder on the host."""
        return f"{ROOT}/build/{self.identity[:12]}"

    @property
    def wheels(self) -> str:
        """Return the folder of the wheel on the host."""
        return f"{ROOT}/wheels/{self.identity[:12]}"

    def variables(self, environment: dict[str, str], **more: Any) -> dict[str, Any]:
        """Return the arguments of the module."""
        programs = {"CC": "/usr/bin/gcc", "CXX": "/usr/bin/g++", "PATH": f"{VENV}/bin:/usr/bin:/bin", "MAX_JOBS": "1"}
        return {
            "identity": self.identity,
            "source": f"{self.folder}/source",
            "folder": self.folder,
            "dest": self.wheels,
            "python": f"{VENV}/bin/python",
            "uv": f"{VENV}/bin/uv",
            "progress_interval": 1,
            **more,
            "environment": {**programs, **self.environment, **environment},
        }

    def start(self, **arguments: Any) -> subprocess.Popen[str]:
        """Run the module as a role does, and do not wait for it."""
        task = {"cpufleet.vllm.wheel_build": self.variables(arguments.pop("environment", {}), **arguments)}
        play = [{"hosts": "all", "gather_facts": False, "tasks": [task]}]
        self.local.mkdir(exist_ok=True)
        (self.local / "play.json").write_text(json.dumps(play), encoding="utf-8")
        variables = {"ansible_connection": "community.docker.docker", "ansible_python_interpreter": "/usr/bin/python3"}
        command = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", f"{self.host.name},"]
        return subprocess.Popen(
            [*command, "-e", json.dumps(variables), str(self.local / "play.json")],
            cwd=bench.REPOSITORY,
            env={**os.environ, **PLAIN, "ANSIBLE_CONFIG": str(bench.REPOSITORY / "ansible.cfg")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def play(self, **arguments: Any) -> tuple[str, int]:
        """Run the module as a role does; return what is printed and the status."""
        with self.start(**arguments) as process:
            out, _none = process.communicate()
        return out, process.returncode

    def manifest(self) -> dict[str, Any]:
        """Return the manifest of the wheel."""
        found: dict[str, Any] = json.loads(self.host.run(f"cat {self.wheels}/manifest.json"))
        return found

    def objects(self) -> dict[str, str]:
        """Return the time at which each finished object was written."""
        find = f"find {self.folder}/source/build -name '*.o' -size +0 -printf '%f %T@\\n'"
        return dict(line.split() for line in self.host.run(find, check=False).splitlines())

    def steps(self, log: str = "build.log") -> list[tuple[int, int]]:
        """Return the steps in a log: which of how many."""
        text = self.host.run(f"cat {self.folder}/{log}", check=False)
        return [(int(step), int(total)) for step, total in re.findall(r"^\[(\d+)/(\d+)\] ", text, re.MULTILINE)]

    def wait_for(self, count: int, name: str = "", seconds: int = 300) -> dict[str, str]:
        """Wait until ``count`` steps of the compile are finished, ``name`` among them; return the finished objects."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            log = self.host.run(f"cat {self.folder}/build.log", check=False)
            done = re.findall(r"^\[\d+/\d+\] .*", log, re.MULTILINE)
            if len(done) >= count and any(name in line for line in done):
                return self.objects()
            time.sleep(0.2)
        raise AssertionError(self.host.run(f"tail -50 {self.folder}/build.log", check=False))


def kill(process: subprocess.Popen[str]) -> None:
    """End the controller as a power cut does."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
