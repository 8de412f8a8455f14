# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fleets of mixed hosts: the fewest compiles, who does them, and who takes which wheel."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._fleet import Fleet, plan_again, plan_fleet
from ansible_collections.cpufleet.vllm.plugins.module_utils._isa import isa_class
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_types import Situation

FIXTURES = Path(__file__).parent / "fixtures" / "plan"
GIB = 1 << 30
WISHES: dict[str, Any] = json.loads((FIXTURES / "wishes.json").read_text())
HOST: dict[str, Any] = json.loads((FIXTURES / "host-debian12.json").read_text())
NOTHING: dict[str, Any] = {
    "current": "",
    "releases": {},
    "deployments": {},
    "wheels": {},
    "building": [],
    "unfinished": [],
}
MODEL: dict[str, Any] = {**json.loads((FIXTURES / "model-smollm2.json").read_text()), "files": []}
ARCHIVE = {"sha256": "0c" * 32, "upload_time": "2024-12-18T00:00:00Z"}
# What a CPU of a class lacks of the captured one, which is avx512_bf16.
LACKS = {"avx512_bf16": (), "avx512": ("avx512_bf16",), "avx2": ("avx512f", "avx512_bf16")}
BUILT = {"glibc": "2.34", "glibcxx": "3.4.29", "cxxabi": "1.3.13", "python_tag": "cp38-abi3", "machine": "x86_64"}


def host(isa: str = "avx512_bf16", libc: str = "2.36", cpus: int = 2, memory: float = 16) -> dict[str, Any]:
    found = copy.deepcopy(HOST)
    flags = [flag for flag in found["cpu"]["flags"] if flag not in LACKS[isa]]
    verdict = isa_class(flags, "x86_64")
    found["cpu"].update(flags=flags, isa_class=verdict.isa_class, isa_reason=verdict.reason, usable_cpus=cpus)
    found["libc"] = {"kind": "glibc", "version": libc, "glibcxx": "3.4.30", "cxxabi": "1.3.13"}
    found["memory"].update(total_bytes=int(memory * GIB), available_bytes=int(memory * GIB))
    return found


def situation(version: str = "0.6.5", state: dict[str, Any] | None = None, **given: Any) -> Situation:
    source = json.loads((FIXTURES / f"source-{version}.json").read_text())
    serves, wishes = given.pop("serves", True), {**WISHES, "allow_newer_suite": True, **given.pop("wishes", {})}
    return Situation(host(**given), source, ARCHIVE, {**NOTHING, **(state or {})}, MODEL, wishes, serves)


def planned(hosts: dict[str, Situation], **given: Any) -> dict[str, dict[str, Any]]:
    parts = {"builders": (), "failed": {}, "store": {}, **given}
    return plan_fleet(Fleet(hosts, **parts))


def manifest(plan: dict[str, Any], **requires: str) -> dict[str, Any]:
    """Return the manifest of the wheel that comes of ``plan``."""
    inputs, identity = plan["wheel"]["inputs"], plan["wheel"]["identity"]
    found = {"identity": identity, "inputs": inputs, "isa": inputs["isa"], "file": "vllm.whl", "sha256": "ab" * 32}
    return {**found, "requires": {**BUILT, **requires}}


def stored(*manifests: dict[str, Any]) -> dict[str, Any]:
    return {"wheels": {entry["identity"][:12]: entry for entry in manifests}, "locks": {}}


def builders(plans: dict[str, dict[str, Any]]) -> list[str]:
    return sorted(name for name, plan in plans.items() if plan["builder"])


def test_one_library_is_built_once_for_the_weakest_on_the_oldest_libc() -> None:
    hosts = {
        "a": situation(libc="2.41"),
        "b": situation(isa="avx2", libc="2.41"),
        "c": situation(libc="2.36"),
        "d": situation(isa="avx2", libc="2.36"),
    }
    plans = planned(hosts)
    assert builders(plans) == ["c"]
    assert {plan["wheel"]["identity"] for plan in plans.values()} == {plans["c"]["wheel"]["identity"]}
    assert plans["a"]["wheel"]["inputs"]["isa"] == ["avx2"]
    assert plans["a"]["wheel"]["builders"] == ["c", "d", "a", "b"]
    assert plans["c"]["wheel"]["inputs"]["flags"]["VLLM_CPU_DISABLE_AVX512"] == "true"
    assert {name: plan["wheel"]["source"] for name, plan in plans.items()} == {
        "a": "store",
        "b": "store",
        "c": "build",
        "d": "store",
    }
    assert [plan["jobs"] for plan in plans.values()] == [0, 0, 2, 0]
    assert not any(plan["refused"] for plan in plans.values())


def test_a_release_with_several_libraries_is_built_once_for_every_class_that_is_there() -> None:
    plans = planned({"a": situation("0.28.0"), "b": situation("0.28.0", isa="avx2")})
    assert builders(plans) == ["a"]
    assert plans["b"]["wheel"]["inputs"]["isa"] == ["avx2", "avx512_bf16"]
    assert (plans["a"]["isa_class"], plans["b"]["isa_class"]) == ("avx512_bf16", "avx2")


def test_a_receiver_is_asked_for_no_compiler_no_build_memory_and_no_build_disk() -> None:
    small = situation(memory=4)
    small.host["memory"]["available_bytes"] = GIB // 2
    small.host["compilers"] = []
    alone = planned({"small": small}, builders=())["small"]
    plans = planned({"small": small, "big": situation(cpus=8)})
    assert builders(plans) == ["big"]
    assert alone["builder"]
    assert alone["swap"]["add_bytes"] > plans["small"]["swap"]["add_bytes"] == 0
    assert alone["disk"][0]["needed"] - plans["small"]["disk"][0]["needed"] >= 5 * GIB
    assert plans["small"]["refused"] == []


def test_the_group_of_builders_comes_first_and_needs_not_serve() -> None:
    hosts = {"a": situation(), "forge": situation(serves=False, libc="2.41")}
    plans = planned(hosts, builders=("forge",))
    assert builders(plans) == ["forge"]
    assert plans["a"]["wheel"]["builders"] == ["forge", "a"]
    assert plans["forge"]["model"]["kv_cache_gib"] == 0


def test_a_builder_that_has_nothing_to_build_is_left_alone() -> None:
    first = planned({"a": situation()})["a"]
    hosts = {"a": situation(), "forge": situation(serves=False)}
    plans = planned(hosts, builders=("forge",), store=stored(manifest(first)))
    assert builders(plans) == []
    assert (plans["forge"]["refused"], plans["forge"]["disk"]) == ([], [])
    assert plans["a"]["wheel"]["source"] == "store"


def test_the_next_candidate_builds_when_the_first_has_failed() -> None:
    hosts = {"a": situation(), "b": situation(libc="2.41")}
    plans = planned(hosts, failed={"a": "cc1plus was killed"})
    assert builders(plans) == ["b"]
    assert plans["a"]["wheel"]["source"] == "store"
    (why,) = [entry["text"] for entry in plans["a"]["reasons"] if entry["decision"] == "builder"]
    assert why == "b: it can build, with glibc 2.41 and 2 CPU(s); builds for avx512; the build on a failed"


def test_when_nobody_is_left_the_failures_are_told() -> None:
    hosts = {"a": situation(), "b": situation(libc="2.41")}
    plans = planned(hosts, failed={"a": "cc1plus was killed", "b": "the disk is full"})
    assert builders(plans) == ["a", "b"]
    assert plans["a"]["refused"] == [
        {
            "code": "build",
            "text": "no host is left that could build the wheel. a: cc1plus was killed; b: the disk is full",
        }
    ]


def test_a_build_under_way_is_gone_on_with() -> None:
    first = planned({"b": situation(libc="2.41")})["b"]["wheel"]["identity"][:12]
    hosts = {"a": situation(), "b": situation(libc="2.41", state={"building": [first]})}
    assert builders(planned(hosts)) == ["b"]


def test_a_wheel_of_the_store_is_taken_by_its_requirements() -> None:
    built = manifest(planned({"old": situation(cpus=64)})["old"])
    other = copy.deepcopy(situation(cpus=4))
    other.host["compilers"] = []
    plans = planned({"new": other}, store=stored(built))
    assert plans["new"]["wheel"] == {
        "source": "store",
        "identity": built["identity"],
        "inputs": built["inputs"],
        "runtime": {},
        "builders": [],
        "built": False,
    }


def test_a_host_takes_the_libc_that_a_wheel_needs_from_the_next_release_where_it_may() -> None:
    built = manifest(planned({"a": situation(libc="2.41")})["a"], glibc="2.38")
    wheel = planned({"a": situation()}, store=stored(built))["a"]["wheel"]
    assert (wheel["source"], wheel["runtime"]) == (
        "store",
        {"suite": "trixie", "packages": ["libc6", "libstdc++6", "libgomp1"]},
    )


@pytest.mark.parametrize(
    ("requires", "wishes"),
    [
        ({"glibc": "2.38"}, {"allow_newer_suite": False}),
        ({"python_tag": "cp312-cp312"}, {}),
        ({}, {"torch_version": "2.6.0+cpu"}),
        ({}, {"isa_class": "avx2"}),
        ({}, {"platform_patch": "always"}),
    ],
)
def test_a_wheel_that_does_not_fit_is_not_taken(requires: dict[str, str], wishes: dict[str, Any]) -> None:
    built = manifest(planned({"a": situation()})["a"], **requires)
    assert builders(planned({"a": situation(wishes=wishes)}, store=stored(built))) == ["a"]


def test_why_a_wheel_is_passed_over_is_told() -> None:
    built = manifest(planned({"a": situation(libc="2.41")})["a"], glibc="2.38")
    plans = planned({"a": situation(wishes={"allow_newer_suite": False})}, store=stored(built))
    (why,) = [entry["text"] for entry in plans["a"]["reasons"] if entry["decision"] == "wheel"]
    assert why.startswith(
        f"{built['identity'][:12]} in the store is not taken: libc: the wheel needs GLIBC_2.38, this host has 2.36. "
    )


def test_a_wheel_below_what_the_weakest_host_offers_is_not_taken() -> None:
    weak = manifest(planned({"a": situation(isa="avx2")})["a"])
    assert builders(planned({"a": situation()}, store=stored(weak))) == ["a"]
    mixed = {"a": situation(), "b": situation(isa="avx2")}
    assert builders(planned(mixed, store=stored(weak))) == []


def test_a_new_weak_host_does_not_move_those_that_serve() -> None:
    strong = manifest(planned({"a": situation()})["a"])
    serving = {"wheels": {strong["identity"][:12]: strong}}
    plans = planned({"a": situation(state=serving), "b": situation(isa="avx2")})
    assert builders(plans) == ["b"]
    assert plans["a"]["wheel"]["source"] == "host"


def test_one_host_a_platform_resolves_the_lock_and_the_builder_does_it_on_the_way() -> None:
    hosts = {"a": situation(libc="2.41"), "b": situation()}
    plans = planned(hosts)
    assert {name: plan["lock"]["resolve"] for name, plan in plans.items()} == {"a": False, "b": True}
    name = plans["a"]["lock"]["name"]
    assert name.startswith("0.6.5-py3.11-torch2.5.1+cpu-x86_64-")
    stored_lock = {"wheels": {}, "locks": {name: {"sha256": "cd" * 32}}}
    again = planned(hosts, store=stored_lock)
    assert {plan["lock"]["sha256"] for plan in again.values()} == {"cd" * 32}
    assert not any(plan["lock"]["resolve"] for plan in again.values())


def test_a_plan_made_again_keeps_the_hosts_part_in_the_fleet() -> None:
    hosts = {"a": situation(), "b": situation(isa="avx2", libc="2.41")}
    plans = planned(hosts)
    newer = copy.deepcopy(hosts["a"])
    newer.host["compilers"] = [
        {"path": "/usr/bin/g++", "language": "c++", "version": "14.2.0"},
        {"path": "/usr/bin/gcc", "language": "c", "version": "14.2.0"},
    ]
    again = plan_again(newer, plans["a"])
    assert again["builder"]
    assert again["wheel"]["inputs"] == {**plans["a"]["wheel"]["inputs"], "compiler": "g++ 14.2.0"}
    assert again["wheel"]["builders"] == plans["a"]["wheel"]["builders"]
    assert plan_again(hosts["b"], plans["b"])["wheel"] == plans["b"]["wheel"]


def test_a_host_without_any_class_keeps_its_own_refusal() -> None:
    bad = situation()
    bad.host["cpu"].update(isa_class=None, isa_reason="the CPU lacks avx2")
    plans = planned({"a": situation(), "bad": bad})
    assert builders(plans) == ["a", "bad"]
    assert [entry["code"] for entry in plans["bad"]["refused"]] == ["isa"]
