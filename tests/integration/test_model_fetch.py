# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A model from a hub through the roles; a download that is killed, and one that fills a real filesystem."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.lib import bench
from tests.support.file_server import FileServer, serving_files
from tests.support.hub_server import COMMIT, MODEL, WEIGHTS, publish, sha256
from tests.support.run_module import start_module

MIB = 1 << 20
TAKEN = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
TOKEN = "hf_secretsecretsecret"  # noqa: S105 - a made-up one, looked for in what comes out
NAME = f"org/Tiny/resolve/{COMMIT}/model.safetensors"
PLAY = """\
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.include_role:
        name: cpufleet.vllm.plan
        tasks_from: model_remote
        public: true
    - ansible.builtin.set_fact:
        plan_model: "{{ __plan_model_remote.model }}"
    - cpufleet.vllm.model_store:
        path: "{{ vllm_root }}/models/{{ plan_model.sha256[:12] }}"
        files: "{{ plan_model.files }}"
        memory: "{{ vllm_root }}/models/{{ plan_model.sha256[:12] }}.json"
      register: __model_serve_stored
    - ansible.builtin.include_role:
        name: cpufleet.vllm.model_serve
        tasks_from: model
      when: __model_serve_stored.missing | length > 0
"""


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving_files() as one:
        publish(one, MODEL)
        yield one


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """Mount a filesystem of 80 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    owner = f"uid={os.geteuid()},size=80m"
    subprocess.run(bench.as_root("mount", "-t", "tmpfs", "-o", owner, "tmpfs", str(folder)), check=True)
    yield folder
    subprocess.run(bench.as_root("umount", str(folder)), check=True)


def entry(name: str, content: bytes) -> dict[str, Any]:
    return {"name": name, "size": len(content), "sha256": sha256(content)}


def download(server: FileServer, folder: Path, before: str = "", **more: Any) -> subprocess.CompletedProcess[str]:
    given = {"files": [entry("model.safetensors", WEIGHTS)], "urls": {"model.safetensors": [server.url(NAME)]}}
    where = {"path": folder / "store", "memory": folder / "memory.json"}
    return start_module("model_fetch", before, **{**where, **given, **more})


def play(tmp_path: Path, server: FileServer, *words: str, **more: Any) -> tuple[str, dict[str, int]]:
    """Run the roles' tasks against this machine; return the output and the numbers of the recap."""
    settings = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "vllm_root": str(tmp_path / "root"),
        "plan_cache": str(tmp_path / "cache"),
        "model_serve_model": "org/Tiny",
        "model_serve_model_source": "huggingface",
        "model_serve_model_endpoints": [server.url("")[:-1]],
        "model_serve_hub_token": TOKEN,
        **more,
    }
    (tmp_path / "inventory.json").write_text(json.dumps({"all": {"hosts": {"here": settings}}}))
    (tmp_path / "play.yml").write_text(PLAY)
    command = ["ansible-playbook", str(tmp_path / "play.yml"), "-i", str(tmp_path / "inventory.json"), *words]
    environment = {**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=bench.REPOSITORY, env=environment)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    recap = done.stdout.rpartition("PLAY RECAP")[2].split()
    numbers = dict(word.split("=") for word in recap if "=" in word)
    return done.stdout + done.stderr, {name: int(number) for name, number in numbers.items()}


@pytest.mark.parametrize("place", ["host", "controller"])
def test_model_of_a_hub_comes_to_the_host_once(tmp_path: Path, server: FileServer, place: str) -> None:
    server.token = TOKEN
    output, first = play(tmp_path, server, "-vvv", "--diff", model_serve_model_fetch_on=place)
    assert first["changed"] > 0
    (store,) = (path for path in (tmp_path / "root/models").iterdir() if path.is_dir())
    assert {path.name: path.read_bytes() for path in store.iterdir()} == {name: MODEL[name] for name in TAKEN}
    assert "Set model_serve_model_revision to that" in output
    assert TOKEN not in output
    kept = [path for folder in ("root", "cache") for path in (tmp_path / folder).rglob("*") if path.is_file()]
    assert kept
    assert not [path for path in kept if TOKEN.encode() in path.read_bytes()]
    assert play(tmp_path, server, model_serve_model_fetch_on=place)[1]["changed"] == 0


def test_archive_at_an_address_comes_to_the_host(tmp_path: Path, server: FileServer) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name in TAKEN:
            info = tarfile.TarInfo(f"Tiny/{name}")
            info.size = len(MODEL[name])
            archive.addfile(info, io.BytesIO(MODEL[name]))
    server.files["Tiny.tar.gz"] = packed.getvalue()
    given = {"model_serve_model_source": "url", "model_serve_model_sha256": sha256(packed.getvalue())}
    assert play(tmp_path, server, model_serve_model=server.url("Tiny.tar.gz"), **given)[1]["changed"] > 0
    (store,) = (path for path in (tmp_path / "root/models").iterdir() if path.is_dir())
    assert {path.name: path.read_bytes() for path in store.iterdir()} == {name: MODEL[name] for name in TAKEN}


def test_token_is_in_no_output_of_the_modules(tmp_path: Path, server: FileServer) -> None:
    server.token = TOKEN
    refused = download(server, tmp_path, source="huggingface", token="hf_another")  # noqa: S106 - made up
    assert "HTTP Error 401: Unauthorized" in json.loads(refused.stdout)["msg"]
    assert "hf_another" not in refused.stdout + refused.stderr
    done = download(server, tmp_path, source="huggingface", token=TOKEN)
    assert json.loads(done.stdout)["changed"] is True
    assert TOKEN not in done.stdout + done.stderr


def test_download_that_is_killed_goes_on(tmp_path: Path, server: FileServer) -> None:
    server.faults = ["cut"]
    # The module ends by SIGKILL as soon as half of the file is there.
    script = (
        "import os, signal, threading, time\n"
        f"part = {str(tmp_path / 'store/model.safetensors.part')!r}\n"
        "def watch():\n"
        f"    while not (os.path.exists(part) and os.path.getsize(part) >= {len(WEIGHTS) // 2}): time.sleep(0.01)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "threading.Thread(target=watch, daemon=True).start()\n"
    )
    done = download(server, tmp_path, script)
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
    assert (tmp_path / "store/model.safetensors.part").stat().st_size == len(WEIGHTS) // 2
    server.asked.clear()
    assert json.loads(download(server, tmp_path).stdout)["changed"] is True
    assert server.asked == [(NAME, f"bytes={len(WEIGHTS) // 2}-")]
    assert (tmp_path / "store/model.safetensors").read_bytes() == WEIGHTS


def test_room_is_compared_before_the_download(small: Path, server: FileServer) -> None:
    (small / "log").write_bytes(bytes(20 * MIB))
    assert json.loads(download(server, small).stdout)["msg"] == (
        f"Cannot download the model to {small}/store: 1 MiB are to come, the filesystem has 60 MiB free, and 64 MiB "
        "stay free. Free space there or use a larger disk; nothing was downloaded, and what is there already is kept."
    )
    assert server.asked == []


def test_disk_that_fills_up_during_the_download(small: Path, server: FileServer) -> None:
    served, log = small / "served.safetensors", small / "log"
    served.write_bytes(b"what serves" * 1000)
    large = b"w" * (5 * MIB)
    server.files[NAME] = large
    given = {"files": [entry("model.safetensors", large)]}

    def another_program(_name: str) -> None:
        if not log.exists():
            log.write_bytes(bytes(77 * MIB))

    server.before = another_program
    failed = json.loads(download(server, small, **given).stdout)
    assert failed["msg"] == (
        f"Cannot write {small}/store/model.safetensors.part: No space left on device. Free space there or use another "
        "folder; what is there already is kept and gone on from."
    )
    assert served.read_bytes() == b"what serves" * 1000
    have = (small / "store/model.safetensors.part").stat().st_size
    assert 0 < have < len(large)
    log.write_bytes(b"")
    server.asked.clear()
    assert json.loads(download(server, small, **given).stdout)["changed"] is True
    assert server.asked == [(NAME, f"bytes={have}-")]
    assert (small / "store/model.safetensors").read_bytes() == large
