# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How llama-server is compiled for which CPU, who compiles it in a fleet, and how a model is served with it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils import _llama_cpp as llama
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._llama_cpp_plan import (
    Candidate,
    choose_engine,
    plan_llama_cpp,
    release_misfits,
)

from tests.support.gguf import gguf
from tests.support.run_module import run_module

HOST: dict[str, Any] = json.loads((Path(__file__).parent / "fixtures/plan/host-debian12.json").read_text())
FLAGS = frozenset(HOST["cpu"]["flags"])
ARCHIVE = {"sha256": "0c" * 32, "source": "sdist"}
GIB = 1 << 30
WISHES: dict[str, Any] = {
    "version": "0.3.36",
    "isa_class": "auto",
    "jobs": "auto",
    "allow_newer_suite": False,
    "max_model_len": "auto",
    "concurrency": 2,
    "force": False,
}
SOURCE: dict[str, Any] = json.loads((Path(__file__).parent / "fixtures/serve_plan/source-0.28.0.json").read_text())
BOTH: dict[str, Any] = json.loads((Path(__file__).parent / "fixtures/plan/model-smollm2.json").read_text())
BUILT = {"machine": "x86_64", "glibc": "2.34", "needed": ["libc.so.6", "libm.so.6"]}
OLD_CPU = FLAGS - {flag for flag in FLAGS if flag.startswith(("avx", "fma", "f16c"))}


@pytest.fixture
def model(tmp_path: Path) -> dict[str, Any]:
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "tiny.Q4_0.gguf").write_bytes(gguf())
    found: dict[str, Any] = run_module("model_info", path=str(folder))["model"]
    return found


def host(flags: frozenset[str] = FLAGS, libc: str = "2.36", cpus: int = 2, memory: float = 16) -> dict[str, Any]:
    found = copy.deepcopy(HOST)
    found["cpu"].update(flags=sorted(flags), usable_cpus=cpus)
    found["libc"] = {"kind": "glibc", "version": libc, "glibcxx": "3.4.30", "cxxabi": "1.3.13"}
    found["memory"].update(total_bytes=int(memory * GIB), available_bytes=int(memory * GIB), swap_free_bytes=0)
    return found


def here(model: dict[str, Any], releases: dict[str, Any] | None = None, **given: Any) -> Candidate:
    wishes = {**WISHES, **given.pop("wishes", {})}
    building = given.pop("building", [])
    return Candidate(host(**given), {"releases": releases or {}, "building": building}, model, wishes)


def planned(
    hosts: dict[str, Candidate], store: dict[str, Any] | None = None, failed: dict[str, str] | None = None
) -> dict[str, dict[str, Any]]:
    return plan_llama_cpp(hosts, ARCHIVE, store or {}, failed or {})


def manifest(plan: dict[str, Any], **requires: Any) -> dict[str, dict[str, Any]]:
    """Return what the store has after ``plan`` was carried out."""
    release = plan["release"]
    made = {"identity": release["identity"], "inputs": release["inputs"], "requires": {**BUILT, **requires}}
    return {release["id"]: {"engine": "llama_cpp", **made}}


@pytest.mark.parametrize(
    ("lacking", "level"),
    [
        (set(), "avx512_bf16"),
        ({"avx512_bf16"}, "avx512"),
        ({"avx512cd"}, "avx2"),
        ({"avx2"}, "avx"),
        ({"f16c"}, "avx"),
        ({"avx"}, "sse42"),
        ({"popcnt"}, "x86_64"),
    ],
)
def test_level_is_the_strongest_whose_flags_are_all_there(lacking: set[str], level: str) -> None:
    assert llama.choose_level("x86_64", FLAGS - lacking) == level


def test_every_option_is_named_so_that_none_is_taken_from_the_machine_that_compiles() -> None:
    named = [set(llama.cmake_options("x86_64", level.name)) for level in llama.LEVELS["x86_64"]]
    assert all(options == named[0] for options in named)
    assert llama.cmake_options("x86_64", "x86_64")["GGML_NATIVE"] == "OFF"

    def enabled(level: str) -> set[str]:
        options = llama.cmake_options("x86_64", level).items()
        return {name for name, value in options if value == "ON"}

    assert enabled("x86_64") == {"GGML_OPENMP"}
    assert enabled("avx2") - enabled("x86_64") == {"GGML_SSE42", "GGML_AVX", "GGML_AVX2", "GGML_FMA", "GGML_F16C"}
    assert enabled("avx512_bf16") - enabled("avx512") == {"GGML_AVX512_VNNI", "GGML_AVX512_BF16"}
    assert llama.cmake_options("aarch64", "neon")["GGML_CPU_ARM_ARCH"] == "armv8.2-a+fp16+dotprod"


@pytest.mark.parametrize(
    ("arch", "flags", "wish", "text"),
    [
        (
            "x86_64",
            FLAGS - {"avx512f"},
            "avx512",
            "vllm_isa_class is avx512, but this CPU offers avx2: the service would die of an illegal instruction. "
            "Set vllm_isa_class to avx2 or to auto.",
        ),
        (
            "x86_64",
            FLAGS,
            "neon",
            "Cannot build llama-server: neon is no level of x86_64. "
            "Set vllm_isa_class to x86_64, sse42, avx, avx2, avx512, avx512_bf16, amx.",
        ),
        (
            "riscv64",
            frozenset(),
            "auto",
            "Cannot build llama-server for riscv64: only x86_64 and aarch64 are known. Use another host.",
        ),
    ],
)
def test_level_that_cannot_be_is_refused(arch: str, flags: frozenset[str], wish: str, text: str) -> None:
    with pytest.raises(CpufleetError) as refused:
        llama.choose_level(arch, flags, wish)
    assert str(refused.value) == text


def test_a_level_below_the_own_may_be_wished_for() -> None:
    assert llama.choose_level("x86_64", FLAGS, "sse42") == "sse42"


def test_every_input_counts_in_the_identity() -> None:
    inputs = llama.server_inputs(ARCHIVE, "0.3.36", "x86_64", "avx2", "g++ 12.2.0")
    first = llama.release_name(inputs)
    assert first.startswith("llama_cpp-0.3.36-")
    for key in inputs:
        assert llama.release_name({**inputs, key: "another"}) != first, key


def test_one_host_of_each_kind_of_cpu_builds_the_oldest_libc_first(model: dict[str, Any]) -> None:
    hosts = {
        "new": here(model, libc="2.41", cpus=8),
        "old": here(model),
        "weak": here(model, flags=OLD_CPU),
    }
    plans = planned(hosts)
    assert {name: plan["builder"] for name, plan in plans.items()} == {"new": False, "old": True, "weak": True}
    assert plans["new"]["release"]["source"] == "store"
    assert plans["new"]["release"]["id"] == plans["old"]["release"]["id"]
    assert plans["new"]["release"]["builders"] == ["old", "new"]
    assert plans["weak"]["isa_class"] == "sse42"
    assert plans["weak"]["release"]["id"] != plans["old"]["release"]["id"]
    assert [plan["refused"] for plan in plans.values()] == [[], [], []]


def test_one_level_for_all_is_one_build(model: dict[str, Any]) -> None:
    wishes = {"isa_class": "sse42"}
    plans = planned({"strong": here(model, wishes=wishes), "weak": here(model, flags=OLD_CPU, wishes=wishes)})
    assert sum(plan["builder"] for plan in plans.values()) == 1


def test_what_was_built_is_taken_by_the_next_host_whatever_its_compiler(model: dict[str, Any]) -> None:
    store = manifest(planned({"first": here(model)})["first"])
    newer = here(model, libc="2.41")
    newer.host["os"].update(id="debian", version="13")
    newer.host["compilers"] = []
    plan = planned({"next": newer}, store)["next"]
    assert (plan["builder"], plan["release"]["source"]) == (False, "store")
    assert [plan["release"]["id"]] == list(store)
    # The host has it now, and keeps it.
    again = planned({"next": here(model, store, libc="2.41")}, store)["next"]
    assert again["release"]["source"] == "host"


def test_a_host_with_an_older_libc_builds_its_own(model: dict[str, Any]) -> None:
    store = manifest(planned({"first": here(model)})["first"], glibc="2.38")
    plan = planned({"old": here(model)}, store)["old"]
    assert plan["builder"]
    (told,) = [reason["text"] for reason in plan["reasons"] if reason["decision"] == "release"]
    assert told.endswith(": it needs GLIBC_2.38, this host has glibc 2.36")


@pytest.mark.parametrize(
    ("level", "requires", "lacking"),
    [
        ("avx512", {}, []),
        ("avx", {}, ["it needs avx2, this host takes avx"]),
        ("avx2", {"machine": "aarch64"}, ["it is for aarch64, this host is x86_64"]),
        ("avx2", {"glibcxx": "3.4.32"}, ["it needs GLIBCXX_3.4.32, this host has 3.4.30"]),
    ],
)
def test_requirement_that_is_not_met_is_named(level: str, requires: dict[str, str], lacking: list[str]) -> None:
    made = {"inputs": {"isa": ["avx2"]}, "requires": {**BUILT, **requires}}
    assert release_misfits(host(), level, made) == lacking


def test_the_next_host_builds_where_one_failed_and_nobody_is_left_after_that(model: dict[str, Any]) -> None:
    hosts = {"a": here(model), "b": here(model)}
    assert planned(hosts, failed={"a": "disk full"})["b"]["builder"]
    plans = planned(hosts, failed={"a": "disk full", "b": "no compiler"})
    assert not plans["a"]["builder"]
    text = "no host is left that could build llama-server. a: disk full; b: no compiler"
    assert plans["a"]["refused"] == [{"code": "build", "text": text}]


def test_a_build_that_was_begun_goes_on_there(model: dict[str, Any]) -> None:
    begun = planned({"a": here(model)})["a"]["release"]["identity"][:12]
    hosts = {"a": here(model, cpus=16), "b": here(model, building=[begun])}
    assert planned(hosts)["b"]["builder"]


def test_jobs_follow_memory_and_too_little_of_it_is_told_in_numbers(model: dict[str, Any]) -> None:
    assert planned({"a": here(model, cpus=8, memory=3)})["a"]["jobs"] == 2
    assert planned({"a": here(model, wishes={"jobs": "1"})})["a"]["jobs"] == 1
    (refused,) = planned({"a": here(model, memory=1)})["a"]["refused"]
    assert refused["code"] == "memory"
    assert "needs 1.2 GiB for one compile job, the host has 1.0 GiB of memory and swap" in refused["text"]


def test_the_model_is_planned_with_slots_and_without_the_libraries_of_vllm(model: dict[str, Any]) -> None:
    plan = planned({"a": here(model)})["a"]["model"]
    assert (plan["engine"], plan["file"], plan["max_num_seqs"]) == ("llama_cpp", "tiny.Q4_0.gguf", 2)
    words = plan["arguments"]
    assert int(words[words.index("--ctx-size") + 1]) == 2 * plan["max_model_len"]
    assert words[words.index("--parallel") + 1] == "2"
    assert plan["preload"] == []


def test_a_model_without_a_gguf_is_refused(model: dict[str, Any]) -> None:
    other = {**model, "candidates": []}
    (refused,) = planned({"a": here(other)})["a"]["refused"]
    assert refused["text"].startswith(f"llama-server serves GGUF files, and {model['path']} has none.")


@pytest.mark.parametrize(("concurrency", "engine"), [(1, "llama_cpp"), (256, "vllm")])
def test_engine_goes_by_concurrency_where_both_could_serve(concurrency: int, engine: str) -> None:
    packed = copy.deepcopy(BOTH["candidates"][0])
    quarter = packed["narrow_bytes"] // 4
    packed.update(form="gguf", narrow_bytes=quarter, wide_bytes=quarter, read_bytes=quarter, path="/srv/models/a.gguf")
    both = {**BOTH, "candidates": [BOTH["candidates"][0], packed]}
    chosen = choose_engine(both, host(), SOURCE, {**WISHES, "max_model_len": "512", "concurrency": concurrency})
    assert chosen["engine"] == engine
    assert "tokens/s" in chosen["reason"]


def test_engine_goes_by_the_form_where_there_is_one(model: dict[str, Any]) -> None:
    assert choose_engine(model, host(), {}, WISHES)["engine"] == "llama_cpp"
    assert choose_engine(BOTH, host(), {}, WISHES)["engine"] == "vllm"
