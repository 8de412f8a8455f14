# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""vLLM as a client of the API sees it, on another machine than the one that serves."""

from __future__ import annotations

from typing import Any

from tests.support.api_client import CHINESE, Api

QUESTION = "What is the capital of France?"


def test_the_question_is_answered(api: Api) -> None:
    answer = api.say(QUESTION)
    print(f"{QUESTION} -> {answer}")
    assert "Paris" in answer


def test_the_model_is_listed(api: Api) -> None:
    assert [model.id for model in api.client.models.list()] == ["smollm2"]


def test_a_wrong_key_is_refused(api: Api) -> None:
    assert [api.refusal(key) for key in ("wrong", api.key[:-1], api.key)] == [401, 401, 200]


def test_chinese_goes_in_and_comes_out_intact(api: Api) -> None:
    """The prompt is given back before the answer, so both ways are seen whatever the small model says."""
    told = api.client.completions.create(
        model=api.model, prompt=CHINESE, temperature=0, max_tokens=16, extra_body={"echo": True}
    )
    assert told.choices[0].text.startswith(CHINESE)
    tokens = api.post("tokenize", model=api.model, prompt=CHINESE)["tokens"]
    assert told.usage is not None
    assert told.usage.prompt_tokens == len(tokens)
    assert "\ufffd" not in told.choices[0].text[len(CHINESE) :].rstrip("\ufffd")


def test_an_answer_is_streamed(api: Api) -> None:
    pieces = api.streamed(QUESTION)
    assert len(pieces) > 3, "the answer came in one piece"
    assert "Paris" in "".join(pieces)


def test_two_requests_are_answered_at_once(api: Api) -> None:
    answers, together = api.at_once(2, "vllm:num_requests_running")
    assert len(answers) == 2
    assert together == 2, "the second one waited for the first"


def test_it_stays_within_the_planned_memory(host: Any) -> None:
    limit = int(host.check_output("systemctl show vllm -p MemoryMax --value"))
    server = host.check_output("systemctl show vllm -p MainPID --value")
    engine = host.check_output("pgrep -P %s -f spawn_main", server).split()[0]
    files = " ".join(f"/proc/{process}/smaps_rollup" for process in (server, engine))
    taken = sum(int(line.split()[1]) for line in host.check_output(f"grep -h ^Pss: {files}").splitlines()) * 1024
    print(f"takes {taken >> 20} MiB of {limit >> 20} MiB")
    assert 1 << 30 < taken < limit < 4 << 30
