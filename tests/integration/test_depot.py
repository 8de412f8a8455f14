# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The depot in a real nginx: uploads, what is served of them, who may do what, and what crosses the controller."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scripts.lib import bench, image
from tests.support.controller_bytes import CountedPlay
from tests.support.safetensors import safetensors

PREFIX = os.environ.get("CPUFLEET_HOST_PREFIX", "cpufleet")
DEPOT, BUILDER = f"{PREFIX}-served", f"{PREFIX}-uploads"
ROOT = "/srv/vllm-depot"
DOCKER = {"ansible_connection": "community.docker.docker"}
SIZE = 20_000_000
NAME = "vllm-0.6.5+cpu-cp38-abi3-linux_x86_64.whl"
UPLOAD = """\
- hosts: {builder}
  gather_facts: false
  tasks:
    - ansible.builtin.include_role:
        name: cpufleet.vllm.depot
        tasks_from: upload
      vars:
        plan_depot: {{url: "{url}"}}
        depot_upload: {upload}
    - cpufleet.vllm.file_download:
        urls: ["{url}/wheels/0123456789ab/{name}"]
        sha256: "{sha256}"
        dest: /root/arrived.whl
"""
# Half a PUT: the length is announced, and the connection is cut.
CUT = """
import base64, socket, sys
host, key, name = sys.argv[1:]
word = base64.b64encode(f"builder:{key}".encode()).decode()
link = socket.create_connection((host, 8008))
lines = [f"PUT /incoming/{name} HTTP/1.1", "Host: x", f"Authorization: Basic {word}", "Content-Length: 1000000", "", ""]
link.sendall("\\r\\n".join(lines).encode() + b"x" * 500000)
link.close()
"""
STATUS = """
import sys, urllib.request as u, urllib.error as e
method, url = sys.argv[1:3]
try:
    print(u.urlopen(u.Request(url, b"x" if method == "PUT" else None, method=method)).status)
except e.HTTPError as error:
    print(error.code)
"""


@dataclass
class Bench:
    """A depot that was set up by its playbook, and a host that uploads to it."""

    inventory: Path
    url: str
    first: str
    second: str

    def on(self, host: str, *command: str) -> str:
        """Return what ``command`` prints on ``host``."""
        return bench.run("docker", "exec", host, *command).stdout.strip()

    def status(self, method: str, path: str, host: str = BUILDER) -> int:
        """Return the status that a request of ``host`` gets."""
        return int(self.on(host, "python3", "-c", STATUS, method, f"{self.url}/{path}"))

    def play(self, text: str, folder: Path) -> tuple[int, str, CountedPlay]:
        """Run a play and return its status, its output and what it moved."""
        playbook = folder / "play.yml"
        playbook.write_text(text, encoding="utf-8")
        command = [ansible_playbook(), "-i", str(self.inventory), str(playbook)]
        counted = CountedPlay(command, folder / "log", cwd=bench.REPOSITORY)
        return counted.wait(), counted.log.read_text(encoding="utf-8"), counted

    def index(self) -> dict[str, Any]:
        """Return what the depot says that it has."""
        found: dict[str, Any] = json.loads(self.on(DEPOT, "cat", f"{ROOT}/public/index.json"))
        return found


def ansible_playbook() -> str:
    return str(Path(sys.executable).parent / "ansible-playbook")


def set_up(inventory: Path, more: str = "") -> str:
    command = [ansible_playbook(), "-i", str(inventory), "playbooks/depot.yml", *more.split()]
    done = subprocess.run(command, cwd=bench.REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    return done.stdout


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Start the two hosts and set up the depot, twice."""
    bench.start_docker()
    image.ensure(bench.cache(), bench.as_root)
    address = bench.start_host(DEPOT)
    try:
        bench.start_host(BUILDER)
        model = tmp_path_factory.mktemp("models") / "tiny"
        model.mkdir()
        shutil.copy(bench.REPOSITORY / "tests/unit/fixtures/model/SmolLM2-135M-Instruct.json", model / "config.json")
        (model / "tokenizer.json").write_text("{}", encoding="utf-8")
        (model / "model.safetensors").write_bytes(safetensors({"w": ("BF16", 8)}))
        bench.run("docker", "cp", str(model), f"{DEPOT}:/root/tiny")
        inventory = tmp_path_factory.mktemp("depot") / "inventory.json"
        depot = {**DOCKER, "depot_models": [{"name": "tiny", "path": "/root/tiny"}]}
        groups = {"vllm_depot": {"hosts": {DEPOT: depot}}, "vllm_hosts": {"hosts": {BUILDER: DOCKER}}}
        document = {"all": {"vars": bench.host_variables(), "children": groups}}
        inventory.write_text(json.dumps(document), encoding="utf-8")
        first = set_up(inventory)
        yield Bench(inventory, f"http://{address}:8008", first, set_up(inventory, "--check --diff"))
    finally:
        bench.stop_host(BUILDER)
        bench.stop_host(DEPOT)


def upload(served: Bench, sha256: str, name: str = NAME) -> str:
    manifest = {"identity": "0123456789ab", "file": name, "sha256": sha256}
    given = {
        "path": f"/root/{name}",
        "name": name,
        "sha256": sha256,
        "folder": "wheels/0123456789ab",
        "manifest": manifest,
    }
    return UPLOAD.format(builder=BUILDER, url=served.url, upload=json.dumps(given), name=name, sha256=sha256)


def test_set_up_once(served: Bench) -> None:
    assert "changed=0 " not in served.first.splitlines()[-2]
    assert " changed=0 " in served.second.strip().splitlines()[-1]


def test_it_runs_without_privilege_and_comes_back(served: Bench) -> None:
    user = served.on(DEPOT, "ps", "-o", "user:20=", "-C", "nginx").split()
    assert user
    assert set(user) == {"vllm-depot"}
    assert served.on(DEPOT, "systemctl", "is-enabled", "vllm-depot") == "enabled"
    assert served.on(DEPOT, "sh", "-c", "systemctl is-active nginx || true") == "inactive"
    bench.restart_host(DEPOT)
    served.url = f"http://{bench.host_address(DEPOT)}:8008"
    assert served.status("GET", "index.json") == 200


def test_a_wheel_goes_from_builder_to_depot_to_host_and_not_through_the_controller(
    served: Bench, tmp_path: Path
) -> None:
    served.on(BUILDER, "sh", "-c", f"head -c {SIZE} /dev/urandom > '/root/{NAME}'")
    sha256 = served.on(BUILDER, "sha256sum", f"/root/{NAME}").split()[0]
    status, out, play = served.play(upload(served, sha256), tmp_path)
    assert status == 0, out[-4000:]
    assert served.index()["wheels"]["0123456789ab"]["sha256"] == sha256
    assert served.on(BUILDER, "sha256sum", "/root/arrived.whl").split()[0] == sha256
    moved = play.transfers
    assert moved.unseen == []
    assert moved.sent_to(BUILDER) + moved.sent_to(DEPOT) < 10_000
    assert moved.fetched == {}
    assert served.on(DEPOT, "ls", f"{ROOT}/incoming", f"{ROOT}/staging").split() == [
        f"{ROOT}/incoming:",
        f"{ROOT}/staging:",
    ]
    # The credential is handed over for the one request and stands nowhere in the most talkative output.
    assert served.on(DEPOT, "cat", f"{ROOT}/secrets/api_key") not in out


def test_what_does_not_have_its_digest_is_not_published(served: Bench, tmp_path: Path) -> None:
    served.on(BUILDER, "sh", "-c", "echo half > /root/half.whl")
    wanted = hashlib.sha256(b"whole").hexdigest()
    status, out, _play = served.play(upload(served, wanted, "half.whl"), tmp_path)
    assert status != 0
    assert "Refused to publish half.whl: its SHA-256 is " in out
    assert served.status("GET", "wheels/0123456789ab/half.whl") == 404


def test_an_upload_that_was_cut_leaves_nothing(served: Bench) -> None:
    key, name = served.on(DEPOT, "cat", f"{ROOT}/secrets/api_key"), "c" * 64
    served.on(BUILDER, "python3", "-c", CUT, served.url.split("//")[1].split(":")[0], key, name)
    assert name not in served.on(DEPOT, "ls", f"{ROOT}/incoming")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "index.json", 200),
        ("GET", "models/tiny.json", 200),
        ("GET", "models/", 403),
        ("GET", "", 403),
        ("GET", "secrets/api_key", 404),
        ("GET", "../secrets/api_key", 400),
        ("GET", "incoming/" + "c" * 64, 403),
        ("GET", ".hidden", 404),
        ("PUT", "incoming/" + "d" * 64, 401),
        ("PUT", "wheels/evil.whl", 403),
        ("DELETE", "index.json", 403),
    ],
)
def test_who_may_do_what(served: Bench, method: str, path: str, status: int) -> None:
    assert served.status(method, path) == status


def test_a_model_is_described_and_served_by_its_digest(served: Bench) -> None:
    model = json.loads(served.on(DEPOT, "cat", f"{ROOT}/public/models/tiny.json"))
    assert [entry["name"] for entry in model["files"]] == ["config.json", "model.safetensors", "tokenizer.json"]
    assert served.status("GET", f"{model['folder']}/model.safetensors") == 200


def test_secrets_are_for_root_and_the_server_alone(served: Bench) -> None:
    files = f"{ROOT}/secrets/api_key {ROOT}/secrets/api_key.env /etc/vllm-depot/uploaders"
    found = served.on(DEPOT, "sh", "-c", f"stat --format '%a %U' {files}").splitlines()
    assert found == ["600 root", "600 root", "600 vllm-depot"]


def test_an_address_that_is_not_allowed_gets_nothing(served: Bench) -> None:
    set_up(served.inventory, '-e {"depot_allow":["127.0.0.1"]}')
    assert served.status("GET", "index.json") == 403
    set_up(served.inventory)
    assert served.status("GET", "index.json") == 200
