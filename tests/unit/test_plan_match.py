# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Written plans held against hosts: the same again, and every difference in words."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.cpufleet.vllm.plugins.filter.plan import plan_host
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_match import VARIABLES, plan_match

REPOSITORY = Path(__file__).resolve().parents[2]
FIXTURES = Path(__file__).parent / "fixtures" / "plan"
GIB = 1 << 30
WISHES: dict[str, Any] = {
    "version": "0.6.5",
    "root": "/opt/vllm",
    "isa_class": "auto",
    "swap_file": "/swapfile",
    "swap_size": "auto",
    "python": "auto",
    "allow_newer_suite": False,
    "torch_find_links": "",
    "resolve_as_of": "auto",
    "torch_version": "auto",
    "source": "sdist",
    "sdist": "",
    "sha256": "",
    "archive": "",
    "archive_mirrors": [],
    "wheel": "",
    "wheel_sha256": "",
    "git_urls": ["https://github.com/vllm-project/vllm.git"],
    "git_ref": "",
    "git_commit": "",
    "git_instead_of": {},
    "jobs": "auto",
    "platform_patch": "auto",
    "known_fixes": True,
    "model": "/srv/models/smollm2",
    "model_source": "controller",
    "dtype": "auto",
    "kv_cache_gib": "auto",
    "max_model_len": "auto",
    "concurrency": 4,
    "force": False,
    "gate_expect": ".",
    "address": "127.0.0.1",
    "port": 8000,
    "unit": "vllm.service",
    "user": "vllm",
}
MODEL: dict[str, Any] = json.loads((FIXTURES / "model-smollm2.json").read_text())
STATE: dict[str, Any] = {"current": "", "releases": {}, "deployments": {}, "wheels": {}, "unfinished": []}
GCC_14 = [
    {"path": "/usr/bin/g++", "language": "c++", "version": "14.2.0"},
    {"path": "/usr/bin/gcc", "language": "c", "version": "14.2.0"},
]
END = ". Put that back, or make a new plan with plan_output."


def situation() -> dict[str, Any]:
    """Return all that a plan of the captured Debian 12 host is made from."""
    host = json.loads((FIXTURES / "host-debian12.json").read_text())
    source = json.loads((FIXTURES / "source-0.6.5.json").read_text())
    archive = {"sha256": "0c" * 32, "upload_time": "2024-12-18T00:00:00Z"}
    parts = {"host": host, "source": source, "archive": archive, "state": STATE, "model": MODEL, "wishes": WISHES}
    return copy.deepcopy(parts)


def changed(**changes: Any) -> dict[str, Any]:
    """Return the situation with values set by path, ``__`` between the parts."""
    result = situation()
    for path, value in changes.items():
        *parents, last = path.split("__")
        place = result
        for parent in parents:
            place = place[parent]
        place[last] = value
    return result


def written(**changes: Any) -> str:
    return json.dumps({"hosts": {"ecs-1": plan_host(**changed(**changes))}})


def test_same_host_gets_the_plan_that_was_written() -> None:
    fresh = plan_host(**situation())
    assert plan_match(fresh, written(), "ecs-1") == {**fresh, "differs": []}


def test_settings_may_be_text_or_number_and_the_model_may_lie_elsewhere() -> None:
    fresh = plan_host(**changed(wishes__port="8000", wishes__model="/home/me/smollm2"))
    assert plan_match(fresh, written(), "ecs-1")["refused"] == []


def test_what_hangs_on_free_memory_is_taken_from_the_written_plan() -> None:
    small = {"host__memory__available_bytes": 3 * GIB, "host__memory__total_bytes": int(3.9 * GIB), "wishes__jobs": "1"}
    planned = json.loads(written(**small))["hosts"]["ecs-1"]
    now = plan_host(**changed(**{**small, "host__memory__total_bytes": int(3.84 * GIB)}))
    assert now["swap"]["size_bytes"] != planned["swap"]["size_bytes"]
    applied = plan_match(now, json.dumps({"hosts": {"ecs-1": planned}}), "ecs-1")
    assert applied["refused"] == []
    assert [applied[key] for key in ("jobs", "model")] == [planned[key] for key in ("jobs", "model")]
    assert applied["swap"]["size_bytes"] == planned["swap"]["size_bytes"]


def test_a_wheel_that_is_there_by_now_is_no_difference() -> None:
    identity = plan_host(**situation())["wheel"]["identity"][:12]
    now = plan_host(**changed(state__wheels={identity: {"file": "vllm.whl"}}))
    applied = plan_match(now, written(), "ecs-1")
    assert (applied["refused"], applied["jobs"], applied["builder"]) == ([], 0, False)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"host__compilers": GCC_14},
            "the compiler is 14.2.0, planned is 12.2.0; the ISA class is avx512_bf16, planned is avx512",
        ),
        (
            {"host__pythons": [{"path": "/usr/bin/python3.12", "version": "3.12.4", "venv": True, "headers": True}]},
            "Python is 3.12.4, planned is 3.11.2; the interpreter is /usr/bin/python3.12, planned is ",
        ),
        ({"host__arch": "aarch64"}, "the architecture is aarch64, planned with x86_64"),
        ({"host__os__version": "13"}, "the operating system is debian 13, planned with debian 12"),
        ({"host__cpu__isa_class": "avx2"}, "the ISA class is avx2, planned is avx512"),
        ({"host__cpu__usable_cpus": 1}, "the host may use 1 CPU(s), planned with 2; "),
        ({"host__memory__limit_bytes": 20 * GIB}, "the host has 20.0 GiB of memory, planned with 23.5 GiB"),
        (
            {"host__memory__available_bytes": 3 * GIB},
            "free memory and swap are enough for 1 compile job(s), planned are 2",
        ),
        ({"archive__sha256": "0d" * 32}, f"the SHA-256 of the source is {'0d' * 32}, planned with {'0c' * 32}"),
        ({"model__sha256": "5f" * 32}, f"the SHA-256 of the model is {'5f' * 32}, planned with {'5e' * 32}"),
        ({"wishes__port": 8080}, "model_serve_port is 8080, planned with 8000"),
        ({"wishes__isa_class": "avx2"}, "vllm_isa_class is avx2, planned with auto"),
    ],
)
def test_difference_is_named(changes: dict[str, Any], text: str) -> None:
    result = plan_match(plan_host(**changed(**changes)), written(), "ecs-1")
    assert [entry["code"] for entry in result["refused"]] == ["plan_file"]
    assert result["refused"][0]["text"].startswith(f"the host does not match the plan in plan_file: {text}")
    assert result["refused"][0]["text"].endswith(END)
    assert "; ".join(result["differs"]) in result["refused"][0]["text"]


def test_settings_that_differ_are_named_alone() -> None:
    result = plan_match(plan_host(**changed(wishes__isa_class="avx2", wishes__swap_size="2G")), written(), "ecs-1")
    assert result["differs"] == ["vllm_isa_class is avx2, planned with auto", "swap_size is 2G, planned with auto"]


def test_another_filesystem_and_too_little_room_are_both_told() -> None:
    now = situation()
    now["host"]["disks"]["/opt/vllm"].update(mount="/opt", free_bytes=GIB)
    result = plan_match(plan_host(**now), written(), "ecs-1")
    assert [entry["code"] for entry in result["refused"]] == ["disk", "plan_file"]
    assert result["differs"] == ["/opt/vllm is on the filesystem at /opt, planned on that at /"]


def test_a_wheel_that_went_is_not_compiled_behind_the_plan() -> None:
    identity = plan_host(**situation())["wheel"]["identity"][:12]
    plan = written(state__wheels={identity: {"file": "vllm.whl"}})
    result = plan_match(plan_host(**situation()), plan, "ecs-1")
    assert result["differs"] == ["the wheel that was on the host is gone, it would be compiled"]


def test_identity_is_named_where_nothing_else_explains_it() -> None:
    planned = json.loads(written())
    planned["hosts"]["ecs-1"]["wheel"]["identity"] = "00" * 32
    fresh = plan_host(**situation())
    assert plan_match(fresh, json.dumps(planned), "ecs-1")["differs"] == [
        f"the identity of the wheel is {fresh['wheel']['identity']}, planned is {'00' * 32}"
    ]


def test_what_was_impossible_is_not_applied() -> None:
    plan = written(host__disks={"/opt/vllm": {"mount": "/", "free_bytes": GIB}})
    result = plan_match(plan_host(**situation()), plan, "ecs-1")
    assert result["differs"][0].startswith("it was impossible already: the filesystem at / has 1.0 GiB free")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "plan_file does not hold plans as plan_output writes them. Make a new plan with plan_output."),
        ("[]", "plan_file does not hold plans as plan_output writes them. Make a new plan with plan_output."),
        (
            '{"hosts": {"ecs-2": {}, "ecs-3": {}}}',
            "plan_file has no plan for ecs-1, only for ecs-2, ecs-3. "
            "Make a new plan with plan_output, or leave the host out with --limit.",
        ),
        (
            '{"hosts": {"ecs-1": {"refused": []}}}',
            "plan_file does not say what the plan for ecs-1 was decided from. Make a new plan with plan_output.",
        ),
    ],
)
def test_a_file_that_holds_no_plan_is_refused(text: str, words: str) -> None:
    assert plan_match(plan_host(**situation()), text, "ecs-1")["refused"] == [{"code": "plan_file", "text": words}]


def test_every_setting_is_called_by_its_variable() -> None:
    wishes = yaml.safe_load((REPOSITORY / "roles/plan/vars/main.yml").read_text())["plan_wishes"]
    assert {key: re.findall(r"\{\{ (\w+) \|", text)[0] for key, text in wishes.items()} == VARIABLES
