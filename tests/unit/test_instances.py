# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Several models on one host: names, settings and ports, and the memory of the host shared out among them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.cpufleet.vllm.plugins.filter.fleet import with_basis
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._instances import KEYS, plan_ports, serve_instances
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan import plan_host
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_match import plan_match
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_table import fleet_table
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_types import Situation
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan_memory import HOST_RESERVE

from tests.unit.test_plan_match import changed

REPOSITORY = Path(__file__).resolve().parents[2]
GIB = 1 << 30
# What the role keeps for the whole host.
OF_THE_HOST = {
    *("root", "user", "engine", "unit", "instances", "instances_prune", "instance", "calibrate", "journal_max"),
    *("stage_only", "rollback_to", "report"),
}


def test_every_variable_is_of_an_instance_or_of_the_host() -> None:
    defaults = yaml.safe_load((REPOSITORY / "roles/model_serve/defaults/main.yml").read_text())
    assert {name[len("model_serve_") :] for name in defaults} == set(KEYS) | OF_THE_HOST


def test_the_role_sets_every_setting_for_each_instance() -> None:
    tasks = yaml.safe_load((REPOSITORY / "roles/model_serve/tasks/instance.yml").read_text())
    common = next(task["vars"]["__model_serve_common"] for task in tasks if "__model_serve_common" in str(task))
    assert common == {name: f"{{{{ model_serve_{name} }}}}" for name in ("unit", *KEYS)}
    settled = {name[len("model_serve_") :]: text for name, text in tasks[-1]["vars"].items() if name[0] == "m"}
    assert settled == {name: f"{{{{ __model_serve_settled.{name} }}}}" for name in ("unit", *KEYS)}


def test_an_instance_has_what_it_says_and_else_what_the_variables_say() -> None:
    common = {"unit": "vllm.service", "port": "8000", "model": "/srv/a", "dtype": "auto"}
    assert serve_instances({"chat": {"dtype": "float32", "api_key": "no wish"}, "embed": None}, common) == {
        "chat": {"unit": "vllm-chat.service", "port": 8000, "model": "/srv/a", "dtype": "float32"},
        "embed": {"unit": "vllm-embed.service", "port": 8001, "model": "/srv/a", "dtype": "auto"},
    }
    assert serve_instances({"chat": {"model": "m"}}, {"unit": "llm"})["chat"]["unit"] == "llm-chat"


@pytest.mark.parametrize(
    ("given", "first", "ports"),
    [
        ({"a": None, "b": None}, 8000, {"a": 8000, "b": 8001}),
        ({"a": None, "b": 8000, "c": None}, 8000, {"a": 8001, "b": 8000, "c": 8002}),
        ({"a": "8001", "b": None, "c": None}, "8000", {"a": 8001, "b": 8000, "c": 8002}),
        ({"b": None, "a": None}, 9000, {"b": 9000, "a": 9001}),
    ],
)
def test_ports_are_given_or_the_next_one_up(given: dict[str, Any], first: Any, ports: dict[str, int]) -> None:
    assert plan_ports(given, first) == ports


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (["chat"], "it is no dictionary of names and settings"),
        ({"chat": "m"}, "chat is no dictionary of settings"),
        (
            {"chat": {"max_model_length": 1}},
            "chat has max_model_length, which no instance has (meant is max_model_len?)",
        ),
        ({"chat": {"model_serve_port": 1}}, "chat has model_serve_port, which no instance has (meant is port?)"),
        ({"chat": {"xyz": 1}}, "chat has xyz, which no instance has; there are model, model_source, "),
        ({"Chat": {}}, "'Chat' is no name of an instance: up to 32 small letters, digits and hyphens"),
        ({"-a": {}}, "'-a' is no name of an instance"),
        ({"a/b": {}}, "'a/b' is no name of an instance"),
        ({"watchdog": {}}, "watchdog ends like a unit of this collection"),
        ({"my-trial": {}}, "my-trial ends like a unit of this collection"),
        ({"a": {"port": 8001}, "b": {"port": "8001"}}, "a and b both have port 8001"),
        ({"a": {"port": 70000}}, "the port of a is 70000, which is no number from 1 to 65535"),
        ({"a": {"port": "http"}}, "the port of a is 'http', which is no number from 1 to 65535"),
    ],
)
def test_what_cannot_be_is_refused(given: Any, text: str) -> None:
    with pytest.raises(CpufleetError) as caught:
        serve_instances(given, {"model": "/srv/a"})
    assert str(caught.value).startswith(f"model_serve_instances cannot be: {text}")


def test_all_that_is_wrong_is_told_at_once_and_a_model_has_to_be_named() -> None:
    with pytest.raises(CpufleetError, match=r"names no model; b has ports, .* \(meant is port\?\); b names no model"):
        serve_instances({"a": {}, "b": {"ports": 1}}, {"model": ""})


def situation(instances: dict[str, Any], memory: float = 16.0, **changes: Any) -> Situation:
    """Return the captured host with so many GiB and instances of SmolLM2 135M, each with its wishes."""
    parts = changed(host__memory__total_bytes=int(memory * GIB), **changes)
    wishes = serve_instances(instances, parts["wishes"])
    each = {name: {"model": parts["model"], "wishes": own} for name, own in wishes.items()}
    return Situation(**parts, instances=each)


def memory_of(plan: dict[str, Any]) -> dict[str, int]:
    return {name: entry["model"]["memory_max_bytes"] for name, entry in plan["instances"].items()}


@pytest.mark.parametrize("memory", [4.5, 5.0, 6.0, 8.0, 16.0, 23.0])
@pytest.mark.parametrize(
    "instances",
    [
        {"a": {}, "b": {}},
        {"a": {}, "b": {"max_model_len": 4096, "concurrency": 1}},
        {"a": {"kv_cache_gib": 1}, "b": {}},
    ],
    ids=["both auto", "one says what it needs", "one names its cache"],
)
def test_together_they_never_take_more_than_the_host_has(memory: float, instances: dict[str, Any]) -> None:
    plan = plan_host(situation(instances, memory))
    sizes = memory_of(plan)
    assert sum(sizes.values()) <= memory * GIB - HOST_RESERVE or "model_memory" in str(plan["refused"])
    alone = plan_host(situation({"a": instances["a"]}, memory))
    assert sizes["a"] <= memory_of(alone)["a"]
    assert plan["model"] == plan["instances"]["a"]["model"]


def test_one_that_says_what_it_needs_comes_first_and_the_other_takes_what_is_left() -> None:
    alone = plan_host(situation({"b": {"max_model_len": 4096}}, 6.0))
    plan = plan_host(situation({"a": {}, "b": {"max_model_len": 4096}}, 6.0))
    assert plan["refused"] == []
    assert memory_of(plan)["b"] == memory_of(alone)["b"]
    assert plan["instances"]["b"]["model"]["max_model_len"] == 4096
    assert plan["instances"]["a"]["model"]["max_model_len"] >= 2048


def test_where_not_both_fit_the_one_that_says_nothing_is_refused() -> None:
    plan = plan_host(situation({"a": {}, "b": {"max_model_len": 4096}}, 4.0))
    assert [entry["text"].partition(":")[0] for entry in plan["refused"]] == ["instance a"]


def test_two_that_say_nothing_leave_each_other_room() -> None:
    small = {"max_model_len": 2048}
    least = sum(memory_of(plan_host(situation({"a": small, "b": small}))).values()) + HOST_RESERVE
    plan = plan_host(situation({"a": {}, "b": {}}, (least + 1) / GIB))
    assert plan["refused"] == []
    assert [entry["model"]["max_model_len"] for entry in plan["instances"].values()] == [2048, 2048]


def test_a_refusal_names_the_instance_the_numbers_and_what_fits() -> None:
    plan = plan_host(situation({"chat": {"max_model_len": 4096}, "embed": {"max_model_len": 8192}}, 4.0))
    assert [entry["code"] for entry in plan["refused"]] == ["model_memory"]
    text = plan["refused"][0]["text"]
    chat = memory_of(plan)["chat"] / GIB
    assert text.startswith("instance embed: SmolLM2-135M-Instruct on vllm needs ")
    assert f"this host has 4.0 GiB, of which 256 MiB stay with the system and {chat:.1f} GiB go to chat." in text
    assert "On this host " in text or "use a larger host" in text


def test_what_is_forced_is_a_warning_of_that_instance() -> None:
    instances = {"chat": {"max_model_len": 4096}, "embed": {"max_model_len": 8192, "force": True}}
    plan = with_basis(situation(instances, 4.0), plan_host(situation(instances, 4.0)))
    assert plan["refused"] == []
    assert "[WARNING] ecs-1 embed is made to serve what does not fit" in " ".join(fleet_table({"ecs-1": plan}))


def listening(port: int, unit: str) -> list[dict[str, Any]]:
    return [{"port": port, "address": "127.0.0.1", "process": "python3", "unit": unit, "user": "vllm", "pid": 7}]


@pytest.mark.parametrize(
    ("listener", "there", "refused"),
    [
        (listening(8001, "nginx.service"), {}, ["instance b: port 8001 on 127.0.0.1 is in use by python3 (pid 7)"]),
        (listening(8001, "vllm-b.service"), {"b": {"unit": "vllm-b.service"}}, []),
        (listening(8001, "vllm-a.service"), {"a": {"unit": "vllm-a.service"}}, ["instance b: port 8001 on 127.0.0.1"]),
        (listening(8001, "vllm-old.service"), {"old": {"unit": "vllm-old.service"}}, []),
        (listening(8000, "vllm.service"), {}, []),
    ],
    ids=["foreign", "its own", "of one that stays", "of one that goes", "of the one service before"],
)
def test_a_port_in_use_is_refused_unless_this_run_frees_it(
    listener: list[dict[str, Any]], there: dict[str, Any], refused: list[str]
) -> None:
    here = situation({"a": {}, "b": {}}, host__listeners=listener, state__instances=there)
    told = [entry["text"] for entry in plan_host(here)["refused"]]
    assert len(told) == len(refused)
    assert all(text.startswith(start) for text, start in zip(told, refused))


def test_table_and_basis_show_every_instance() -> None:
    here = situation({"chat": {"port": 9001, "max_model_len": 4096}, "embed": {"concurrency": 1}})
    plan = with_basis(here, plan_host(here))
    lines = fleet_table({"ecs-1": plan})
    assert lines[2].split()[0] == "ecs-1"
    assert [lines[3].split()[:3], lines[4].split()[:2]] == [["chat", "vllm", "4x4096"], ["embed", "vllm"]]
    assert lines[5].startswith("ecs-1: memory for chat on port 9001 ")
    assert lines[5].split(", ")[1].startswith("embed on port 8000 ")
    told = plan["basis"]["wishes"]
    assert told["model_serve_instances.chat.port"] == "9001"
    assert "/srv/models" not in json.dumps(told)


def test_another_setting_of_an_instance_is_a_difference_to_the_written_plan() -> None:
    def planned(port: int) -> dict[str, Any]:
        here = situation({"chat": {"port": port}})
        return with_basis(here, plan_host(here))

    written = json.dumps({"hosts": {"ecs-1": planned(9001)}})
    assert plan_match(planned(9001), written, "ecs-1")["instances"] == planned(9001)["instances"]
    assert plan_match(planned(9002), written, "ecs-1")["differs"] == [
        "model_serve_instances.chat.port is 9002, planned with 9001"
    ]


def test_one_model_that_two_serve_is_copied_once() -> None:
    one, two = (plan_host(situation(names))["disk"][0]["needed"] for names in ({"a": {}}, {"a": {}, "b": {}}))
    assert one == two
