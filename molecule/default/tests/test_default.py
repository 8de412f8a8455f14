# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host looks like after the chain, from the outside and as a client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = "/opt/vllm"
MOLECULE = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
MODELS = Path(os.environ["CPUFLEET_CACHE"], "models")
QUESTION = "What is the capital of France?"


def current(host: Any) -> dict[str, Any]:
    """Return the manifest of the deployment that serves."""
    return json.loads(host.file(f"{ROOT}/current/manifest.json").content_string)


def venv_python(host: Any) -> str:
    """Return the interpreter of the release that serves."""
    return f"{ROOT}/releases/{current(host)['release']}/venv/bin/python"


def test_swap_is_active_and_in_fstab(host: Any) -> None:
    swap = f"/var/swap/{host.backend.host}"
    lines = [line.split() for line in host.file("/proc/swaps").content_string.splitlines()]
    assert [swap, "file"] in [words[:2] for words in lines]
    assert [
        line
        for line in host.file("/etc/fstab").content_string.splitlines()
        if line.split()[:3] == [swap, "none", "swap"]
    ]
    assert host.file(swap).mode == 0o600


def test_service_runs_as_its_user_and_comes_back(host: Any) -> None:
    service = host.service("vllm")
    assert service.is_running
    assert service.is_enabled
    pid = host.check_output("systemctl show vllm -p MainPID --value")
    assert host.check_output("ps -o user= -p %s", pid) == "vllm"
    assert host.check_output("systemctl show vllm -p Restart --value") == "always"
    assert host.check_output("systemctl show vllm -p KillMode --value") == "control-group"


def test_the_unit_has_the_memory_of_the_plan_and_stays_out_of_swap(host: Any) -> None:
    settings = current(host)["settings"]
    group = host.check_output("systemctl show vllm -p ControlGroup --value")
    assert int(host.check_output("systemctl show vllm -p MemoryMax --value")) == settings["memory_max_bytes"] < 4 << 30
    if host.file("/sys/fs/cgroup/memory").exists:
        assert host.file(f"/sys/fs/cgroup/memory{group}/memory.swappiness").content_string.strip() == "0"
    else:
        assert host.file(f"/sys/fs/cgroup{group}/memory.swap.max").content_string.strip() == "0"


def test_the_engine_runs_as_planned(host: Any) -> None:
    pid = host.check_output("systemctl show vllm -p MainPID --value")
    words = host.file(f"/proc/{pid}/cmdline").content_string.split("\0")
    given = dict(zip(words, words[1:], strict=False))
    assert {"--max-num-seqs": "4", "--max-model-len": "8192", "--dtype": "float32"}.items() <= given.items()
    variables = dict(line.partition("=")[::2] for line in host.file(f"/proc/{pid}/environ").content_string.split("\0"))
    # Four requests of 8192 tokens, each with 45 KiB.
    assert variables["VLLM_CPU_KVCACHE_SPACE"] == "2"
    # The toolchain brings it; the file was there when the service was installed.
    assert host.file(variables["LD_PRELOAD"]).exists
    assert variables["LD_PRELOAD"].endswith("/libtcmalloc_minimal.so.4")


def test_threads_were_timed_and_the_evidence_is_kept(host: Any) -> None:
    timed = current(host)["threads"]
    pid = host.check_output("systemctl show vllm -p MainPID --value")
    assert f"OMP_NUM_THREADS={timed['count']}" in host.file(f"/proc/{pid}/environ").content_string.split("\0")
    assert 1 <= timed["count"] == len(timed["cpus"]) <= len(timed["key"]["allowed"])
    if timed["key"]["usable"] > 1:
        assert timed["rates"].keys() == {"read", "multiply"}
        assert all(rate > 0 for by in timed["rates"].values() for rate in by.values())
    print(timed["reason"])


def test_the_journal_is_bounded_and_still_shows_the_service(host: Any) -> None:
    settings = host.check_output("systemd-analyze cat-config systemd/journald.conf").splitlines()
    assert [line for line in settings if line.startswith("SystemMaxUse=")][-1] == "SystemMaxUse=1G"
    told = host.check_output("journalctl --unit vllm --no-pager")
    assert "vLLM" in told
    assert QUESTION not in told, "what people ask stands in the log"


def test_exposure_is_low_with_the_service_answering(host: Any, ask: Callable[..., tuple[int, str]]) -> None:
    assert ask(QUESTION)[0] == 200
    words = host.check_output("systemd-analyze security vllm.service --no-pager").splitlines()[-1].split()
    exposure = float(words[words.index("vllm.service:") + 1])
    assert exposure <= 2.0


def test_no_secret_can_be_read_by_others(host: Any) -> None:
    assert host.file(f"{ROOT}/secrets").mode == 0o700
    key = host.file(f"{ROOT}/secrets/api_key").content_string.strip()
    assert len(key) >= 32
    for name in ("secrets/api_key", "secrets/api_key.env", "current/service.env"):
        assert host.file(f"{ROOT}/{name}").mode == 0o600, name
    # The key must stand nowhere that another user can read: files, unit, process list.
    readable = f"find {ROOT}/deployments {ROOT}/releases/*/manifest.json /etc/systemd/system -type f -perm -o=r"
    assert host.run(f"{readable} -exec grep -l {key} {{}} +").stdout == ""
    assert host.run("ps -eo args | grep -F %s | grep -v grep", key).stdout == ""
    assert key not in host.check_output("journalctl -u vllm --no-pager")


def test_detection_is_the_cpu_platform(host: Any) -> None:
    script = "from vllm.platforms import current_platform as p; print(type(p).__name__, p.device_type)"
    assert host.check_output(f"cd / && {venv_python(host)} -c %s", script).splitlines()[-1] == "CpuPlatform cpu"


def test_torch_is_a_cpu_build_and_nothing_of_cuda_came_along(host: Any) -> None:
    names = "import importlib.metadata as m; print(' '.join(d.metadata['Name'].lower() for d in m.distributions()))"
    installed = host.check_output(f"cd / && {venv_python(host)} -c %s", names).split()
    assert "torch" in installed
    assert not [name for name in installed if name.startswith("nvidia-") or name.startswith("triton")]
    assert host.check_output(f"cd / && {venv_python(host)} -c 'import torch; print(torch.version.cuda)'") == "None"


def test_current_resolves_and_manifests_name_what_is_there(host: Any) -> None:
    deployment = current(host)
    assert host.check_output(f"readlink -f {ROOT}/current") == f"{ROOT}/deployments/{deployment['id']}"
    release = json.loads(host.file(f"{ROOT}/releases/{deployment['release']}/manifest.json").content_string)
    assert release["version"] == "0.6.5"
    assert host.check_output("sha256sum %s", release["lock"]).split()[0] == release["lock_sha256"]
    assert host.file(release["wheel_file"]).exists
    wheel = json.loads(host.file(str(Path(release["wheel_file"]).parent / "manifest.json")).content_string)
    assert wheel["identity"] == release["wheel"]
    assert wheel["requires"]["version"] == "0.6.5+cpu"
    assert wheel["requires"]["glibc"]
    assert host.check_output("sha256sum %s", release["wheel_file"]).split()[0] == wheel["sha256"]


def test_the_interrupted_build_went_on_and_finished_objects_were_kept(host: Any) -> None:
    before = json.loads((MOLECULE / "interrupted.json").read_text(encoding="utf-8"))
    assert before["unit_after_the_play_died"].startswith("cpufleet-build-")
    assert before["compilers_after_the_play_died"] > 0, "killing the play ended the build"
    assert before["active_after_the_build_died"] != "active"
    assert len(before["objects"]) >= 2
    listing = "find /opt/vllm/build/*/source/build -name '*.cpp.o' -size +0 -printf '%T@ %s %p\\n'"
    after = host.run(listing).stdout.splitlines()
    assert set(before["objects"]) <= set(after), "an object that was finished was compiled again"
    assert len(after) > len(before["objects"])


def test_the_tiny_model_gives_what_transformers_gives() -> None:
    wanted = json.loads((MODELS / "tiny-qwen2.reference.json").read_text(encoding="utf-8"))["cases"]
    answered = json.loads((MOLECULE / "exact.json").read_text(encoding="utf-8"))
    assert len(answered) == len(wanted) >= 3
    for case, answer in zip(wanted, answered, strict=True):
        tokens = [int(token.removeprefix("token_id:")) for token in answer["choices"][0]["logprobs"]["tokens"]]
        assert tokens == case["token_ids"][:16], case["asked"]


def test_the_question_is_answered(ask: Callable[..., tuple[int, str]]) -> None:
    status, answer = ask(QUESTION)
    print(f"{QUESTION} -> {answer}")
    assert status == 200
    assert "Paris" in answer


def test_a_wrong_key_is_refused(ask: Callable[..., tuple[int, str]]) -> None:
    assert ask(QUESTION, key="wrong")[0] == 401


def test_a_run_with_nothing_to_do_is_cheap() -> None:
    script = Path(__file__).parents[3] / "benchmarks/no_change_run.py"
    limits = ["--most-executions", "30", "--most-seconds", "25"]
    command = [sys.executable, str(script), *limits, "-i", str(MOLECULE / "inventory")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("port", [8000])
def test_it_listens_on_loopback_only(host: Any, port: int) -> None:
    assert host.socket(f"tcp://127.0.0.1:{port}").is_listening
    assert not host.socket(f"tcp://0.0.0.0:{port}").is_listening
