# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host that serves with llama-server, from the outside and as a client of the API."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.support.api_client import CHINESE, Api
from tests.support.plays import manifest

ROOT = "/opt/vllm"
QUESTION = "Complete the sentence: The capital of France is"


def test_the_question_is_answered(api: Api) -> None:
    answer = api.say(QUESTION)
    print(f"{QUESTION} -> {answer}")
    assert "Paris" in answer


def test_the_model_is_listed(api: Api) -> None:
    assert [model.id for model in api.client.models.list()] == ["smollm2-gguf"]


def test_a_wrong_key_is_refused(api: Api) -> None:
    assert api.refusal("wrong") == 401


def test_chinese_goes_in_and_comes_out_intact(api: Api) -> None:
    """The prompt is given back as tokens, so both ways are seen whatever the small model says."""
    told = api.client.completions.create(model=api.model, prompt=CHINESE, temperature=0, max_tokens=16)
    tokens = api.post("tokenize", content=CHINESE)["tokens"]
    assert api.post("detokenize", tokens=tokens)["content"] == CHINESE
    assert told.usage is not None
    assert told.usage.prompt_tokens == len(tokens)
    assert "\ufffd" not in told.choices[0].text


def test_an_answer_is_streamed(api: Api) -> None:
    pieces = api.streamed(QUESTION)
    assert len(pieces) > 3, "the answer came in one piece"
    assert "Paris" in "".join(pieces)


def test_two_requests_are_answered_at_once(api: Api) -> None:
    answers, together = api.at_once(2, "llamacpp:requests_processing")
    assert len(answers) == 2
    assert together == 2, "the second one waited for the first"


def test_service_runs_as_its_user_within_the_planned_memory(host: Any) -> None:
    service = host.service("vllm")
    assert service.is_running
    assert service.is_enabled
    pid = host.check_output("systemctl show vllm -p MainPID --value")
    assert host.check_output("ps -o user= -p %s", pid) == "vllm"
    limit = int(host.check_output("systemctl show vllm -p MemoryMax --value"))
    assert limit < 1 << 30
    peak = [line.split()[1] for line in host.file(f"/proc/{pid}/status").content_string.splitlines() if "VmHWM" in line]
    print(f"peak {int(peak[0]) // 1024} MiB of {limit >> 20} MiB")
    assert int(peak[0]) * 1024 < limit


def test_exposure_is_low_with_the_service_answering(host: Any) -> None:
    words = host.check_output("systemd-analyze security vllm.service --no-pager").splitlines()[-1].split()
    assert float(words[words.index("vllm.service:") + 1]) <= 2.0


def test_no_secret_can_be_read_by_others(host: Any) -> None:
    key = host.file(f"{ROOT}/secrets/api_key").content_string.strip()
    assert host.file(f"{ROOT}/secrets/api_key").mode == 0o600
    readable = f"find {ROOT}/deployments {ROOT}/releases/*/manifest.json /etc/systemd/system -type f -perm -o=r"
    assert host.run(f"{readable} -exec grep -l -e {key} {{}} +").stdout == ""
    assert host.run("ps -eo args | grep -F -e %s | grep -v grep", key).stdout == ""
    assert key not in host.check_output("journalctl -u vllm --no-pager")


def test_the_release_says_what_it_was_made_of_and_needs(host: Any) -> None:
    serving = manifest(host.backend.host, "current")
    release = manifest(host.backend.host, f"releases/{serving['release']}")
    assert (serving["engine"], release["engine"], release["inputs"]["isa"]) == ("llama_cpp", "llama_cpp", ["avx2"])
    assert release["source"]["sha256"] == release["inputs"]["source_sha256"]
    assert release["requires"]["glibc"]
    assert "libstdc++.so.6" not in release["requires"]["needed"]
    assert "libgomp.so.1" not in release["requires"]["needed"]
    server = f"{ROOT}/releases/{serving['release']}/bin/llama-server"
    assert host.check_output("sha256sum %s", server).split()[0] == release["sha256"]
    print(f"built in {release['took']}")


def test_neither_torch_nor_vllm_came_along(host: Any) -> None:
    assert host.run(f"find {ROOT} / -xdev -maxdepth 6 -iname 'torch*' -path '*site-packages*'").stdout == ""


def test_the_doctor_finds_nothing_wrong(host: Any) -> None:
    done = host.run("cpufleet-doctor --json")
    print(done.stdout[:2000])
    assert json.loads(done.stdout)["verdict"] == "OK"


def test_a_restarted_host_answers_again(
    restart: Callable[[], None],
    eventually: Callable[..., None],
    ask: Callable[..., tuple[int, str]],
) -> None:
    restart()
    eventually(lambda: ask(QUESTION)[0] == 200, 90, "an answer after the restart")
    assert "Paris" in ask(QUESTION)[1]
