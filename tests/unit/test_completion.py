# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The pure part of the probe: event streams, statistics, the judgement of an answer, the state of a unit."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils import _completion as completion
from ansible_collections.cpufleet.vllm.plugins.module_utils import _unit as unit
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError


def chunk(**choice: Any) -> str:
    return json.dumps({"choices": [choice]})


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_events_are_found_whatever_the_pieces(size: int, ending: str) -> None:
    stream = ending.join(
        ['data: {"a": 1}', "", ": a comment", "event: x", "data:two", "data: lines", "", "data: é", "", ""]
    )
    content = stream.encode()
    parser = completion.EventParser()
    found = [data for start in range(0, len(content), size) for data in parser.feed(content[start : start + size])]
    assert found == ['{"a": 1}', "two\nlines", "é"]


@pytest.mark.parametrize(
    ("data", "event"),
    [
        ("[DONE]", completion.Event(done=True)),
        (chunk(delta={"role": "assistant", "content": ""}), completion.Event()),
        (chunk(delta={"content": "Par"}), completion.Event(text="Par")),
        (chunk(delta={}, finish_reason="stop"), completion.Event(finish_reason="stop")),
        (chunk(text=" is"), completion.Event(text=" is")),
        (chunk(delta={"reasoning_content": "hm"}), completion.Event(reasoning="hm")),
        (json.dumps({"choices": [], "usage": {"completion_tokens": 7}}), completion.Event(tokens=7)),
        (json.dumps({"error": {"message": "boom", "code": 500}}), completion.Event(error="boom")),
        (json.dumps({"object": "error", "message": "boom"}), completion.Event(error="boom")),
        ("<html>", completion.Event(error="the stream holds what is not JSON: <html>")),
        ("3", completion.Event(error="the stream holds what is not JSON: 3")),
    ],
)
def test_read_event(data: str, event: completion.Event) -> None:
    assert completion.read_event(data) == event


def stream(*items: tuple[float, completion.Event]) -> list[tuple[float, completion.Event]]:
    return list(items)


def test_statistics_are_those_of_decoding() -> None:
    events = stream(
        (10.5, completion.Event(text="The")),
        (10.75, completion.Event(text=" capital")),
        (11.5, completion.Event(text=" is", finish_reason="stop")),
        (11.6, completion.Event(tokens=5)),
        (11.6, completion.Event(done=True)),
    )
    assert completion.summarise(events, 10.0) == completion.Answer("The capital is", "stop", 5, 0.5, 4.0)


def test_tokens_are_counted_where_the_server_does_not_tell() -> None:
    events = stream((1.0, completion.Event(text="a")), (3.0, completion.Event(text="b", finish_reason="length")))
    assert completion.summarise(events, 0.5) == completion.Answer("ab", "length", 2, 0.5, 0.5)


def test_one_token_has_no_speed_and_reasoning_counts_when_there_is_no_more() -> None:
    events = stream((1.0, completion.Event(reasoning="hm", finish_reason="length")))
    assert completion.summarise(events, 0.0) == completion.Answer("hm", "length", 1, 1.0, 0.0)


@pytest.mark.parametrize(
    ("events", "message"),
    [
        (stream((1.0, completion.Event(text="a"))), "The stream ended before the answer was complete."),
        (stream(), "The stream ended before the answer was complete."),
        (
            stream((1.0, completion.Event(text="a")), (2.0, completion.Event(error="boom"))),
            "The server broke the answer off: boom.",
        ),
    ],
)
def test_a_broken_stream_is_a_failure(events: list[tuple[float, completion.Event]], message: str) -> None:
    with pytest.raises(CpufleetError) as caught:
        completion.summarise(events, 0.0)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "expect"), [("It is Paris.", "Paris"), ("paris", "(?i)PARIS"), ("x", ""), ("北京是首都", "北京")]
)
def test_answers_that_will_do(text: str, expect: str) -> None:
    completion.check_answer(text, expect)


@pytest.mark.parametrize(
    ("text", "expect", "message"),
    [
        (
            "London.",
            "Paris",
            "The model answered 'London.', in which 'Paris' is not found. The engine may compute wrongly: ask again by "
            "hand, or correct the expected pattern.",
        ),
        (" \n", "", "The model answered with no text. Check that the model has a chat template."),
        ("", ".", "The model answered with no text. Check that the model has a chat template."),
    ],
)
def test_answers_that_will_not_do(text: str, expect: str, message: str) -> None:
    with pytest.raises(CpufleetError) as caught:
        completion.check_answer(text, expect)
    assert str(caught.value) == message
    assert caught.value.details == {"answer": text}


def test_a_pattern_that_is_none_is_told() -> None:
    with pytest.raises(CpufleetError, match=r"^The option expect is '\(', which is no regular expression: "):
        completion.check_expect("(")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ('{"error": {"message": "no chat template", "type": "BadRequestError"}}', "no chat template"),
        ('{"object": "error", "message": "unknown model"}', "unknown model"),
        ('{"detail": "Not Found"}', "Not Found"),
        ('{"error": "Unauthorized"}', "Unauthorized"),
        ("Internal\n Server Error", "Internal Server Error"),
        ("x" * 400, "x" * 297 + "..."),
    ],
)
def test_error_text(body: str, text: str) -> None:
    assert completion.error_text(body) == text


def test_listed_models() -> None:
    assert completion.listed_models('{"data": [{"id": "a"}, {"id": "b"}]}') == ["a", "b"]
    with pytest.raises(CpufleetError) as caught:
        completion.listed_models("<html>hello</html>")
    assert str(caught.value) == (
        "The answer to /v1/models is not a list of models: <html>hello</html>. "
        "Check that the address is that of an OpenAI-compatible server."
    )


def test_request_bodies() -> None:
    chat = json.loads(completion.request_body("m", [{"role": "user", "content": "é"}], "", 8, 0))
    assert chat["messages"] == [{"role": "user", "content": "é"}]
    assert "prompt" not in chat
    assert (chat["stream"], chat["temperature"], chat["max_tokens"]) == (True, 0, 8)
    plain = json.loads(completion.request_body("m", [], "x", 8, 0))
    assert (plain["prompt"], "messages" in plain) == ("x", False)


SHOWN = """Result=exit-code
NRestarts=3
LoadState=loaded
ActiveState=activating
SubState=auto-restart
InvocationID=7579a5924af24bab95aec5d91374b42f
"""


def test_parse_unit() -> None:
    state = unit.parse_unit(SHOWN)
    assert state == unit.UnitState(
        "loaded", "activating", "auto-restart", "exit-code", 3, "7579a5924af24bab95aec5d91374b42f"
    )
    assert unit.parse_unit("ActiveState=active\nNRestarts=[not set]").restarts == 0


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"active": "active", "sub": "running", "restarts": 1}, ""),
        ({"active": "activating", "sub": "auto-restart", "restarts": 2}, ""),
        ({"restarts": 3}, "systemd restarted it 2 times while it was waited for"),
        ({"active": "failed", "result": "oom-kill"}, "it has failed (oom-kill)"),
        ({"active": "inactive"}, "it is stopped"),
        ({"load": "not-found"}, "systemd has no usable unit of that name (not-found)"),
    ],
)
def test_when_waiting_makes_no_sense(changes: dict[str, Any], reason: str) -> None:
    first = unit.UnitState("loaded", "active", "running", "success", 1, "a")
    now = unit.UnitState(**{**first.__dict__, **changes})
    assert unit.hopeless(first, now) == reason


def test_the_journal_is_that_of_one_start() -> None:
    assert unit.journal_command("vllm.service", "abc")[-3:] == ["_SYSTEMD_INVOCATION_ID=abc", "+", "INVOCATION_ID=abc"]
    assert unit.journal_command("vllm.service", "")[-2:] == ["--unit=vllm.service", "--boot"]
