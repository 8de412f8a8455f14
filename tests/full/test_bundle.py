# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A bundle made on a connected host; hosts without any network install from it and from a depot, and answer.

The controller has no network either then: its plays run in a namespace without one, and reach the hosts through
Docker's socket. Compiles vLLM 0.6.5; about twenty minutes on 2 cores.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.lib import bench, image
from tests.support.controller_bytes import CountedPlay

pytestmark = pytest.mark.full

PREFIX = os.environ.get("CPUFLEET_HOST_PREFIX", "cpufleet")
CONNECTED, INSIDE, MEMBER, DEPOT = (f"{PREFIX}-{name}" for name in ("connected", "inside", "member", "depot"))
NETWORK = f"{PREFIX}-without-internet"
DOCKER = {"ansible_connection": "community.docker.docker"}
MODEL = str(bench.cache() / "models" / "smollm2")
SETTINGS = {
    "vllm_version": "0.6.5",
    "vllm_isa_class": "avx2",
    "swap_size": "0",
    "model_serve_model": MODEL,
    "model_serve_name": "smollm2",
    "model_serve_dtype": "float32",
    "model_serve_kv_cache_gib": 1,
    "model_serve_gate_expect": "Paris",
}
BESIDE_PAYLOADS = 1_000_000


def inventory(folder: Path, name: str, hosts: list[str], groups: dict[str, Any] | None = None, **more: Any) -> Path:
    """Write an inventory."""
    path = folder / f"{name}.json"
    members = {"hosts": dict.fromkeys(hosts, DOCKER), "vars": {**SETTINGS, **more}}
    path.write_text(json.dumps({"all": {"children": {"vllm_hosts": members, **(groups or {})}}}), encoding="utf-8")
    return path


def play(playbook: str, inventory: Path, *words: str, network: bool = False) -> CountedPlay:
    """Run a playbook, with no network for the controller unless told otherwise; its failure is the test's."""
    command = [str(Path(sys.executable).parent / "ansible-playbook"), playbook, "-i", str(inventory), *words]
    log = bench.cache() / f"bundle-{inventory.stem}.log"
    cut = bench.as_root("unshare", "--net")
    counted = CountedPlay(command if network else [*cut, *command], log, cwd=bench.REPOSITORY, env=environment())
    assert counted.wait() == 0, f"{log}:\n" + "\n".join(failures(log))
    return counted


def environment() -> dict[str, str]:
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "ANSIBLE_NOCOLOR": "1"}


def failures(log: Path) -> list[str]:
    """Return what went wrong: the lines of and after a failed task."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    found = [number for number, line in enumerate(lines) if line.startswith(("fatal:", "[ERROR]"))]
    return [line for number in found for line in lines[number : number + 12]] or lines[-20:]


def refused(inventory: Path) -> str:
    """Run site.yml, which has to fail, and return its output as one line."""
    command = [
        "unshare",
        "--net",
        str(Path(sys.executable).parent / "ansible-playbook"),
        "site.yml",
        "-i",
        str(inventory),
    ]
    counted = CountedPlay(
        bench.as_root(*command), inventory.parent / "refused.log", cwd=bench.REPOSITORY, env=environment()
    )
    assert counted.wait() != 0
    return re.sub(r"\s+", " ", counted.log.read_text(encoding="utf-8"))


def changed_copy(bundle: Path) -> Path:
    """Return a bundle that says the same of itself, with another packed file."""
    folder = bundle.parent / "changed"
    folder.mkdir()
    for name in ("manifest.json", "store", "source"):
        (folder / name).symlink_to(bundle / name)
    (folder / "packages.tar").write_bytes(b"something else")
    return folder


def on(host: str, *command: str, check: bool = True) -> str:
    """Return what ``command`` prints on ``host``."""
    return bench.run("docker", "exec", host, *command, check=check).stdout.strip()


def answers(host: str) -> str:
    """Return what the model on ``host`` says to a question, asked on the host itself."""
    client = (
        "import json, sys, urllib.request as u; key = open('/opt/vllm/secrets/api_key').read().strip(); "
        "body = {'model': 'smollm2', 'temperature': 0, 'max_tokens': 12, "
        "'messages': [{'role': 'user', 'content': 'What is the capital of France?'}]}; "
        "head = {'Authorization': 'Bearer ' + key, 'Content-Type': 'application/json'}; "
        "r = u.Request('http://127.0.0.1:8000/v1/chat/completions', json.dumps(body).encode(), head); "
        "print(json.load(u.urlopen(r, timeout=120))['choices'][0]['message']['content'])"
    )
    return on(host, "python3", "-c", client)


def move_inside(host: str) -> None:
    """Leave a host nothing but a network that leads nowhere, and no default route."""
    bench.run("docker", "network", "connect", NETWORK, host)
    bench.run("docker", "network", "disconnect", "bridge", host)
    process = bench.run("docker", "inspect", "--format", "{{.State.Pid}}", host).stdout.strip()
    # The host's own ip, in the host's own network: a container may not change its routes.
    enter = ("nsenter", "--target", process, "--net", "--mount")
    bench.run(*bench.as_root(*enter, "ip", "route", "delete", "default"), check=False)
    assert "default" not in on(host, "ip", "route")


def remove(*hosts: str) -> None:
    for host in hosts:
        bench.stop_host(host)


def depot_group(**more: Any) -> dict[str, Any]:
    """Return the inventory's group of the depot."""
    variables = {"depot_environment": bench.host_variables().get("vllm_environment", {}), **more}
    return {"vllm_depot": {"hosts": {DEPOT: DOCKER}, "vars": variables}}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Set up a depot, build on a connected host, which uploads to it, and make a bundle there, twice."""
    bench.start_docker()
    image.ensure(bench.cache(), bench.as_root)
    subprocess.run([sys.executable, "scripts/make_models.py", "smollm2"], cwd=bench.REPOSITORY, check=True)
    folder = tmp_path_factory.mktemp("bundle")
    try:
        more = {"vllm_wheel_store": str(folder / "store"), "vllm_depot_url": f"http://{bench.start_host(DEPOT)}:8008"}
        bench.start_host(CONNECTED)
        connected = inventory(folder, "connected", [CONNECTED], depot_group(), **bench.host_variables(), **more)
        play("playbooks/depot.yml", connected, network=True)
        play("playbooks/bundle.yml", connected, "-e", f"bundle_output={folder / 'out'}", network=True)
        first = documents(folder / "out")
        play("playbooks/bundle.yml", connected, "-e", f"bundle_output={folder / 'again'}", network=True)
        assert documents(folder / "again") == first
        remove(CONNECTED)
        yield folder / "out"
    finally:
        remove(CONNECTED, DEPOT)


def documents(folder: Path) -> list[bytes]:
    """Return manifest and bill of materials."""
    return [(folder / name).read_bytes() for name in ("manifest.json", "bom.cdx.json")]


@pytest.fixture
def cut_depot(bundle: Path) -> Iterator[str]:
    """Put the depot into a network that leads nowhere, and return its address there."""
    bench.run("docker", "network", "create", "--internal", NETWORK)
    try:
        move_inside(DEPOT)
        assert bundle.is_dir()
        yield bench.host_address(DEPOT)
    finally:
        remove(DEPOT)
        bench.run("docker", "network", "rm", NETWORK, check=False)


def test_the_builder_brought_its_wheel_and_lock_to_the_depot_alone(bundle: Path) -> None:
    index = json.loads(on(DEPOT, "cat", "/srv/vllm-depot/public/index.json"))
    (wheel,) = (bundle / "store/wheels").glob("*/*.whl")
    (lock,) = (bundle / "store/locks").glob("*/lock.txt")
    assert index["wheels"][wheel.parent.name]["sha256"] == hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert index["locks"][lock.parent.name]["sha256"] == hashlib.sha256(lock.read_bytes()).hexdigest()
    assert list((bundle.parent / "store").glob("wheels/*/*.whl")) == []


def test_every_file_has_its_digest_source_and_licence(bundle: Path) -> None:
    manifest = json.loads((bundle / "manifest.json").read_text())
    bill = json.loads((bundle / "bom.cdx.json").read_text())
    assert {part["bom-ref"] for part in bill["components"]} == {file["path"] for file in manifest["files"]}
    names = {file["name"] for file in manifest["files"]}
    assert {"torch", "uv", "libgomp1", "python3.11-venv", "transformers"} <= names
    downloaded = [file for file in manifest["files"] if file["path"].startswith("packages.tar/")]
    assert all(file["source"].startswith(("pkg:pypi/", "pkg:deb/")) for file in downloaded)
    unknown = [file["name"] for file in downloaded if file["licence"] == "NOASSERTION"]
    assert len(unknown) < len(downloaded) / 10, unknown


def test_nothing_of_the_index_or_the_machine_is_in_the_manifest(bundle: Path) -> None:
    text = (bundle / "manifest.json").read_text() + (bundle / "bom.cdx.json").read_text()
    assert re.findall(r"https?://(?!cyclonedx\.org)[^\s\"]+", text) == []
    assert str(bench.REPOSITORY) not in text


def test_a_host_without_network_installs_from_it_and_answers(bundle: Path) -> None:
    bench.start_host(INSIDE)
    try:
        bench.run("docker", "network", "disconnect", "bridge", INSIDE)
        assert on(INSIDE, "ip", "route") == ""
        out = refused(inventory(bundle.parent, "changed", [INSIDE], vllm_bundle=str(changed_copy(bundle))))
        assert "it was changed or damaged since. Copy the bundle again from where it was made." in out
        assert on(INSIDE, "sh", "-c", "ls /opt/vllm/tools 2>/dev/null | wc -l") == "0"
        inside = inventory(bundle.parent, "inside", [INSIDE], vllm_bundle=str(bundle))
        play("site.yml", inside)
        assert "Paris" in answers(INSIDE)
        assert on(INSIDE, "sh", "-c", "ls /opt/vllm/build 2>/dev/null | wc -l") == "0"
        again = play("site.yml", inside)
        recap = again.log.read_text(encoding="utf-8").splitlines()
        assert [line for line in recap if line.startswith(INSIDE) and " changed=0 " in line], recap[-5:]
    finally:
        remove(INSIDE)


def test_hosts_of_a_depot_without_internet_take_all_of_it_from_there(bundle: Path, cut_depot: str) -> None:
    bench.start_host(MEMBER)
    try:
        move_inside(MEMBER)
        models = [{"name": "smollm2", "path": f"{bench.HOST_MODELS}/smollm2"}]
        group = depot_group(depot_models=models, depot_bundles=[str(bundle)])
        model = {"model_serve_model": "smollm2", "model_serve_model_source": "depot"}
        url = {"vllm_depot_url": f"http://{cut_depot}:8008"}
        members = inventory(bundle.parent, "members", [MEMBER], group, vllm_bundle=str(bundle), **model, **url)
        transfers = play("site.yml", members).transfers
        assert "Paris" in answers(MEMBER)
        assert transfers.unseen == []
        assert transfers.sent_to(MEMBER) <= BESIDE_PAYLOADS
        log = on(DEPOT, "journalctl", "--identifier", "vllm_depot", "--no-pager")
        for part in (r"/bundles/\w+/packages\.tar", r"/wheels/\w+/vllm-\S+\.whl", r"/models/\w+/model\.safetensors"):
            assert re.search(rf'"GET {part} HTTP/1\.1" 200 ', log), part
    finally:
        remove(MEMBER)
