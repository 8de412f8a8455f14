# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A container with systemd and a stand-in for whole deployments; see stand_in_server.py for what is real in it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from scripts.lib import bench
from tests.support import doctor_file
from tests.support.doctor_host import DOCTOR, DoctorHost, in_container

KEY = "sesame-0123456789-sesame"
PYTHON = "/opt/vllm/releases/r1/venv/bin/python"
SERVER = f"{PYTHON} -m vllm.entrypoints.openai.api_server --served-model-name made-up"
UNIT = """[Unit]
StartLimitIntervalSec=0
[Service]
EnvironmentFile=/opt/vllm/deployments/{id}/service.env
EnvironmentFile=/opt/vllm/secrets/api_key.env
ExecStart={command}
Restart=always
RestartSec=1
{more}
[Install]
WantedBy=multi-user.target
"""
URL = "http://127.0.0.1:8000"
ASK = f"""
import json, sys, threading, urllib.request
def ask():
    body = json.dumps({{"model": "made-up", "prompt": "w " * int(sys.argv[2]), "max_tokens": int(sys.argv[3])}})
    headers = {{"Authorization": "Bearer {KEY}", "Content-Type": "application/json"}}
    urllib.request.urlopen(urllib.request.Request("{URL}/v1/completions", body.encode(), headers))
for _each in range(int(sys.argv[1])):
    threading.Thread(target=ask).start()
"""
LISTENS = f"python3 -c \"import urllib.request as u; u.urlopen('{URL}/health')\" 2>&1"


class Host(DoctorHost):
    """A container with a stand-in for one whole deployment."""

    def __init__(self, name: str) -> None:
        super().__init__(in_container(name))
        self.name = name

    def put(self, path: str, text: str, mode: str = "0644") -> None:
        """Write a file."""
        command = f"mkdir -p {os.path.dirname(path)} && cat > {path} && chmod {mode} {path}"
        subprocess.run(["docker", "exec", "-i", self.name, "sh", "-c", command], input=text, text=True, check=True)

    @classmethod
    @contextlib.contextmanager
    def started(cls, name: str, flags: tuple[str, ...] = ()) -> Iterator[Self]:
        """Start a host of that name for the block, with further flags of Docker, and install all of it."""
        bench.start_docker()
        bench.start_host(name, flags=flags)
        try:
            found = cls(name)
            found.install()
            yield found
        finally:
            bench.stop_host(name)

    def install(self) -> None:
        """Put the doctor, the stand-in and its release there."""
        self.put(DOCTOR, doctor_file.PATH.read_text(encoding="utf-8"), "0755")
        self.sh("python3 -m venv --without-pip /opt/vllm/releases/r1/venv")
        site = self.sh(f"cd /; {PYTHON} -c 'import sysconfig; print(sysconfig.get_path(\"purelib\"))'")
        stand_in = Path(doctor_file.PATH.parents[3], "tests/support/stand_in_server.py").read_text(encoding="utf-8")
        for name, text in (
            ("vllm/__init__.py", ""),
            ("vllm/_C.abi3.so", "no kernels"),
            ("vllm/entrypoints/__init__.py", ""),
            ("vllm/entrypoints/openai/__init__.py", ""),
            ("vllm/entrypoints/openai/api_server.py", stand_in),
            ("torch/version.py", "cuda = None\n"),
            ("vllm-0.6.5+cpu.dist-info/RECORD", ""),
        ):
            self.put(f"{site}/{name}", text)
        self.put("/opt/vllm/releases/r1/manifest.json", '{"id": "r1"}')
        self.put("/srv/model/config.json", "{}")
        self.sh("chmod 700 /opt/vllm; mkdir -p /opt/vllm/secrets; chmod 700 /opt/vllm/secrets")

    def play(self, folder: Path, playbook: str, **variables: object) -> subprocess.CompletedProcess[str]:
        """Run a playbook on the host; its inventory and variables are written to ``folder``."""
        settings = {**bench.host_variables(), "ansible_connection": "community.docker.docker", **variables}
        inventory = folder / "hosts.json"
        hosts = {self.name: settings}
        inventory.write_text(json.dumps({"all": {"children": {"vllm_hosts": {"hosts": hosts}}}}))
        environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        command = ["ansible-playbook", playbook, "-i", str(inventory)]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=bench.REPOSITORY, env=environment
        )

    def deploy(self, identity: str = "d1", command: str = SERVER, more: str = "", environment: str = "") -> None:
        """Install a deployment as the modules do and point ``current`` at it."""
        folder = f"/opt/vllm/deployments/{identity}"
        self.put("/opt/vllm/secrets/api_key", f"{KEY}\n", "0600")
        self.put("/opt/vllm/secrets/api_key.env", f"VLLM_API_KEY={KEY}\n", "0600")
        self.put(f"{folder}/service.env", f"OMP_NUM_THREADS={os.cpu_count()}\n{environment}", "0600")
        self.put(f"{folder}/vllm.service", UNIT.format(id=identity, command=command, more=more))
        digests = [line.split() for line in self.sh(f"cd {folder} && sha256sum service.env vllm.service").splitlines()]
        manifest = {"id": identity, "release": "r1", "model": "/srv/model", "settings": {"unit": "vllm"}}
        manifest.update(name="made-up", url=URL)
        files = {name: value for value, name in digests}
        self.put(f"{folder}/manifest.json", json.dumps({**manifest, "files": files}))
        self.sh(f"ln -sfn deployments/{identity} /opt/vllm/current; cp {folder}/vllm.service /etc/systemd/system/")
        self.sh("systemctl daemon-reload; systemctl enable vllm 2>&1; systemctl restart vllm")

    def serve(self, **settings: str) -> None:
        """Install a deployment and wait until it listens."""
        self.deploy(**settings)
        self.until(LISTENS)

    def ask(self, requests: int, words: int, tokens: int) -> None:
        """Ask in the background and go on."""
        self.put("/run/ask.py", ASK)
        command = f"nohup python3 /run/ask.py {requests} {words} {tokens} > /dev/null 2>&1 &"
        self.sh(command)
        time.sleep(0.5)

    def clear(self) -> None:
        """Take everything but release and doctor away."""
        self.try_sh("systemctl disable --now vllm 2>&1; systemctl reset-failed vllm 2>&1")
        self.try_sh(
            "rm -rf /etc/systemd/system/vllm.service* /opt/vllm/deployments /opt/vllm/current* /opt/vllm/secrets/*"
        )
        self.try_sh("pkill -9 -f '[v]llm.entrypoints|[s]pawn_main|[h]ttp.server|/run/[a]sk.py'; rm -f /dev/shm/*")
        self.try_sh("systemctl daemon-reload")
