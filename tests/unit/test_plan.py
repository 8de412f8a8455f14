# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans of real releases on captured and varied hosts: every decision, and every refusal word for word."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.cpufleet.vllm.plugins.filter.plan import FilterModule
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._isa import isa_class
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan import plan_host
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_build import in_range
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_compiler import paired_compilers, version_key
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_notes import Notes
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_types import Situation
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_wheel import choose_onednn

FIXTURES = Path(__file__).parent / "fixtures" / "plan"
GIB = 1 << 30
ARCHIVE = {"sha256": "0c" * 32, "upload_time": "2024-12-18T00:00:00Z"}
NOTHING: dict[str, Any] = {"current": "", "releases": {}, "deployments": {}, "wheels": {}, "unfinished": []}
WISHES: dict[str, Any] = json.loads((FIXTURES / "wishes.json").read_text())
# SmolLM2-135M-Instruct in bfloat16.
MODEL: dict[str, Any] = json.loads((FIXTURES / "model-smollm2.json").read_text())


def weighing(gib: int) -> dict[str, Any]:
    """Return that model with weights of ``gib`` GiB."""
    found = copy.deepcopy(MODEL)
    found["candidates"][0].update(narrow_bytes=gib * GIB, wide_bytes=2 * gib * GIB)
    return found


PYTHON_13 = [{"path": "/usr/bin/python3.13", "version": "3.13.5", "venv": True, "headers": True}]
GCC_11 = [
    {"path": "/usr/bin/g++", "language": "c++", "version": "11.4.0"},
    {"path": "/usr/bin/gcc", "language": "c", "version": "11.4.0"},
]
GCC_14 = [
    {"path": "/usr/bin/g++-14", "language": "c++", "version": "14.2.0"},
    {"path": "/usr/bin/gcc-14", "language": "c", "version": "14.2.0"},
]
LISTENER = {
    "port": 8000,
    "address": "127.0.0.1",
    "user": "root",
    "pid": 77,
    "process": "nginx",
    "unit": "nginx.service",
}


def read(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((FIXTURES / f"{name}.json").read_text())
    return document


def changed(document: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return a copy with values set by dotted path."""
    result = copy.deepcopy(document)
    for path, value in changes.items():
        *parents, last = path.split(".")
        place = result
        for parent in parents:
            place = place[parent]
        place[last] = value
    return result


def host(memory_gib: float = 0, available_gib: float = 0, cpus: int = 0, **changes: Any) -> dict[str, Any]:
    found = changed(read("host-debian12"), {key.replace("__", "."): value for key, value in changes.items()})
    if memory_gib:
        found["memory"]["total_bytes"] = int(memory_gib * GIB)
        found["memory"]["available_bytes"] = int((available_gib or memory_gib) * GIB)
    if cpus:
        found["cpu"]["usable_cpus"] = cpus
    return found


def without_avx2(document: dict[str, Any]) -> dict[str, Any]:
    flags = [flag for flag in document["cpu"]["flags"] if not flag.startswith("avx2")]
    verdict = isa_class(flags, "x86_64")
    return changed(document, {"cpu.flags": flags, "cpu.isa_class": verdict.isa_class, "cpu.isa_reason": verdict.reason})


def with_disk(document: dict[str, Any], free_gib: float) -> dict[str, Any]:
    disks = {path: {"mount": "/", "free_bytes": int(free_gib * GIB)} for path in ("/opt/vllm", "/swapfile")}
    return changed(document, {"disks": disks})


def plan(
    here: dict[str, Any] | None = None,
    version: str = "0.6.5",
    state: dict[str, Any] | None = None,
    model: dict[str, Any] | None = None,
    **wishes: Any,
) -> dict[str, Any]:
    wished = {**WISHES, **wishes}
    return plan_host(
        Situation(here or host(), read(f"source-{version}"), ARCHIVE, state or NOTHING, model or MODEL, wished)
    )


def reason(result: dict[str, Any], decision: str) -> str:
    (found,) = [entry["text"] for entry in result["reasons"] if entry["decision"] == decision]
    return str(found)


def test_a_bare_debian_12_gets_a_whole_plan() -> None:
    result = plan(isa_class="avx2")
    assert result["refused"] == []
    assert result["isa_class"] == "avx2"
    assert result["python"] == {
        "path": "/usr/bin/python3.11",
        "version": "3.11.2",
        "from": "system",
        "missing": ["headers"],
        "tool": {"path": "/usr/bin/python3.11", "version": "3.11.2"},
    }
    assert result["compiler"] == {
        "cc": "/usr/bin/gcc",
        "cxx": "/usr/bin/g++",
        "version": "12.2.0",
        "from": "distribution",
        "packages": ["g++", "gcc"],
        "suite": "",
    }
    assert result["torch"] == {"version": "2.5.1+cpu", "pin": "2.5.1+cpu", "overridden": False}
    assert (result["edits"], result["builder"], result["jobs"], result["minutes"]) == ([], True, 2, 6)
    assert result["swap"] == {"path": "/swapfile", "size_bytes": 0, "add_bytes": 0, "free_bytes": 0}
    assert result["model"] == {
        "engine": "vllm",
        "weights_bytes": 269_030_016,
        "overhead_bytes": 1_085_603_840,
        "kv_cache_gib": 1,
        "max_model_len": 8192,
        "max_num_seqs": 4,
        "dtype": "bfloat16",
        "threads": 2,
        "thread_binding": "all",
        "memory_max_bytes": GIB + 269_030_016 + 1_085_603_840,
        "environment": {"OMP_NUM_THREADS": "2", "VLLM_CPU_KVCACHE_SPACE": "1"},
        "arguments": [
            *("--dtype", "bfloat16", "--max-model-len", "8192", "--max-num-seqs", "4", "--enforce-eager"),
            "--disable-log-requests",
        ],
        "preload": [],
        "expected_tokens_per_s": 66.7,
        "forced": "",
    }
    assert result["wheel"]["inputs"] == {
        "vllm_version": "0.6.5",
        "source_sha256": "0c" * 32,
        "edits": [],
        "isa": ["avx2"],
        "python_tag": "abi3",
        "torch": "2.5.1+cpu",
        "compiler": "g++ 12.2.0",
        "onednn": "",
        "flags": {"VLLM_TARGET_DEVICE": "cpu", "VLLM_CPU_DISABLE_AVX512": "true"},
    }


REFUSALS = {
    "isa": (
        {"here": without_avx2(host())},
        "the CPU AMD EPYC cannot run vLLM: the CPU lacks avx2, which every vLLM CPU build needs (avx2). "
        "Use a host whose CPU has AVX2, or serve a GGUF model with another engine there.",
    ),
    "isa wish stronger than the host": (
        {"here": host(cpu__isa_class="avx2"), "isa_class": "avx512"},
        "vllm_isa_class is avx512 but this CPU offers avx2: the service would die of an illegal instruction. "
        "Set vllm_isa_class to avx2 or to auto.",
    ),
    "python": (
        {"here": host(pythons=PYTHON_13), "python": "system"},
        "vLLM 0.6.5 needs Python >=3.9 (its CMake takes 3.9, 3.10, 3.11, 3.12), the host has 3.13.5, and "
        "toolchain_python is system, which brings no other one. Set toolchain_python to auto, install one in that "
        "range on the host, or choose a vllm_version that takes the one it has.",
    ),
    "python none": (
        {"here": host(pythons=[])},
        "vLLM 0.6.5 needs Python >=3.9 (its CMake takes 3.9, 3.10, 3.11, 3.12), the host has none, and "
        "uv, which brings one, is itself installed with one of the host. Install one in that range on the host, or "
        "choose a vllm_version that takes the one it has.",
    ),
    "compiler": (
        {"here": host(compilers=GCC_11), "version": "0.28.0"},
        "vLLM 0.28.0 needs g++ 12.3; the host has 11.4.0 and the packages of debian 12 offer 12.2.0. "
        "Set toolchain_allow_newer_suite to true, which takes g++-14 14.2.0 from the suite trixie and with it a newer "
        "libc6; choose vllm_version 0.16.0, the newest that this host can build, or an older one; or use another "
        "distribution release.",
    ),
    "compiler unknown distribution": (
        {"here": host(os__id="anolis", os__version="8.9")},
        "vLLM 0.6.5 needs g++ of any version; the host has none and the packages of anolis 8.9 offer nothing that is "
        "known here. Use another distribution release.",
    ),
    "memory": (
        {"here": host(3.7, 1.5), "swap_size": "0"},
        "building vLLM 0.6.5 needs 1.8 GiB for one compile job, the host has 1.5 GiB of memory and 0 MiB of swap, "
        "1.8 GiB a job, 2 CPU(s). Raise swap_size, stop what else runs there, or build on a larger host.",
    ),
    "disk": (
        {"here": with_disk(host(), 6)},
        "the filesystem at / has 6.0 GiB free but 8.3 GiB are needed for /opt/vllm. "
        "Free space there, enlarge it, or move vllm_root to a larger disk.",
    ),
    "disk with swap": (
        {"here": with_disk(host(3.7, 3.3), 9)},
        "the filesystem at / has 9.0 GiB free but 9.3 GiB are needed for /opt/vllm and /swapfile. "
        "Free space there, enlarge it, or move vllm_root to a larger disk.",
    ),
    "model": (
        {"model": {**MODEL, "problems": ["the model folder /m has no readable config.json. Copy it."]}},
        "the model folder /m has no readable config.json. Copy it.",
    ),
    "model_memory": (
        {"here": host(3.7, 3.3), "model": weighing(6)},
        "SmolLM2-135M-Instruct on vllm needs 7.9 GiB (6.0 GiB of weights, 914 MiB for the engine, 1.0 GiB of KV "
        "cache for 4 requests at a time of 2048 tokens); this host has 3.7 GiB, of which 256 MiB stay with the "
        "system. Swap does not count for serving. On this host engine llama_cpp fits Qwen2.5-1.5B-Instruct Q4_0 "
        "(Apache-2.0) with 8192 tokens of context, 4 requests at a time, at about 37.6 tokens/s; or engine vllm "
        "fits Qwen2.5-0.5B-Instruct (Apache-2.0) with 8192 tokens of context, 4 requests at a time, at about 46.2 "
        "tokens/s.",
    ),
    "port": (
        {"here": host(listeners=[LISTENER])},
        "port 8000 on 127.0.0.1 is in use by nginx (pid 77). Stop it, or set model_serve_port to a free port.",
    ),
    "port of an unseen process": (
        {"here": host(listeners=[{**LISTENER, "address": "0.0.0.0", "pid": None, "process": "", "unit": ""}])},
        "port 8000 on 0.0.0.0 is in use by a process of user root. Stop it, or set model_serve_port to a free port.",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refusal_names_what_is_wrong_and_what_to_do(case: str) -> None:
    arguments, text = REFUSALS[case]
    (refused,) = plan(**arguments)["refused"]
    assert refused == {"code": case.partition(" ")[0], "text": text}


def test_everything_impossible_on_one_host_is_told_at_once() -> None:
    bad = with_disk(without_avx2(host(1.0, 0.5, pythons=[], listeners=[LISTENER])), 1)
    refused = plan(bad, version="0.28.0", swap_size="0", model=weighing(30))["refused"]
    codes = [entry["code"] for entry in refused]
    assert codes == ["isa", "python", "compiler", "memory", "model_memory", "disk", "port"]


@pytest.mark.parametrize(
    ("memory", "available", "swap", "cpus", "jobs"),
    [
        (3.7, 3.3, 0, 2, 1),  # a cloud VM sold as 4 GiB
        (3.7, 3.3, 8, 2, 2),
        (62.7, 61.0, 0, 16, 16),
        (62.7, 9.5, 0, 16, 5),  # what is in use already cannot be used again
        (24.0, 24.0, 0, 1, 1),
    ],
)
def test_jobs_follow_processors_and_memory(memory: float, available: float, swap: int, cpus: int, jobs: int) -> None:
    devices = [{"path": "/swapfile", "size_bytes": swap * GIB, "used_bytes": 0, "kind": "file"}] if swap else []
    result = plan(host(memory, available, cpus, swap=devices), swap_size=f"{swap}G", isa_class="avx2")
    assert (result["jobs"], result["refused"]) == (jobs, [])


@pytest.mark.parametrize(
    ("wish", "jobs"), [("auto", 2), (1, 1), ("2", 2), (8, 2), ("1", 1)], ids=["auto", "1", "text", "more", "one"]
)
def test_a_wish_for_jobs_is_kept_within_the_processors(wish: Any, jobs: int) -> None:
    assert plan(jobs=wish)["jobs"] == jobs


@pytest.mark.parametrize(
    ("wish", "variable"),
    [
        ("jobs", "vllm_source_build_jobs"),
        ("kv_cache_gib", "model_serve_kv_cache_gib"),
        ("max_model_len", "model_serve_max_model_len"),
        ("concurrency", "model_serve_concurrency"),
    ],
)
@pytest.mark.parametrize("value", [0, "-1", "4.0", "many"])
def test_a_wish_that_is_no_number_names_its_variable(wish: str, variable: str, value: Any) -> None:
    with pytest.raises(CpufleetError) as refused:
        plan(**{wish: value})
    assert str(refused.value) == (
        f"{variable} is {str(value)!r}, which is not a whole number of 1 or more. "
        f"Set {variable} to auto or to such a number."
    )


@pytest.mark.parametrize(
    ("memory", "swap", "size_mib", "add_mib"),
    [
        (3.7, [], 1024, 1024),  # 2 jobs of 1.8 GiB and 1 GiB for the rest are 4.6 GiB
        (3.7, [("/swapfile", 8192)], 8192, 0),  # never less than there is
        (3.7, [("/dev/vdb1", 2048)], 0, 0),
        (3.7, [("/swapfile", 512)], 1024, 512),
        (24.0, [], 0, 0),
    ],
)
def test_swap_auto_adds_what_a_build_with_every_processor_lacks(
    memory: float, swap: list[tuple[str, int]], size_mib: int, add_mib: int
) -> None:
    devices = [{"path": path, "size_bytes": size << 20, "used_bytes": 0, "kind": "file"} for path, size in swap]
    result = plan(host(memory, memory - 0.4, swap=devices))["swap"]
    assert (result["size_bytes"] >> 20, result["add_bytes"] >> 20) == (size_mib, add_mib)


def test_swap_auto_counts_the_memory_that_a_control_group_leaves() -> None:
    result = plan(host(24, 2.0, memory__limit_bytes=2 * GIB))
    assert result["swap"]["size_bytes"] == 2816 << 20
    assert result["jobs"] == 2


@pytest.mark.parametrize(
    ("limit", "size_mib", "jobs", "said"),
    [
        (None, 2816, 2, ""),
        (8 * GIB, 2816, 2, ""),
        (GIB, 1024, 1, ", and the control group lets 1.0 GiB of swap be used"),
        (0, 0, 1, ", and the control group lets 0 MiB of swap be used"),
    ],
)
def test_swap_that_the_control_group_keeps_from_us_is_neither_made_nor_counted(
    limit: int | None, size_mib: int, jobs: int, said: str
) -> None:
    result = plan(host(24, 2.0, memory__limit_bytes=2 * GIB, memory__swap_limit_bytes=limit))
    assert (result["swap"]["size_bytes"] >> 20, result["jobs"]) == (size_mib, jobs)
    assert reason(result, "swap").partition("of memory and swap")[2] == said


def test_swap_of_others_and_an_explicit_size_count_within_the_limit_of_the_control_group_too() -> None:
    partition = [{"path": "/dev/vdb1", "size_bytes": 8 * GIB, "used_bytes": 0, "kind": "partition"}]
    small = {"memory__limit_bytes": GIB, "memory__swap_limit_bytes": GIB}
    assert plan(host(24, 1.0, swap=partition, **small))["jobs"] == 1
    assert plan(host(24, 1.0, **small), swap_size="8G")["jobs"] == 1


def test_swap_that_the_kernel_refused_is_not_planned_with() -> None:
    why = "The kernel refuses swap on /swapfile: Operation not permitted."
    with_swap, without = plan(host(3.7, 3.3)), plan(host(3.7, 3.3, swap_refused=why))
    assert (with_swap["swap"]["add_bytes"] > 0, with_swap["jobs"]) == (True, 2)
    assert without["swap"] == {"path": "/swapfile", "size_bytes": 0, "add_bytes": 0, "free_bytes": 0}
    assert (without["jobs"], reason(without, "swap")) == (1, f"none is added: {why}")
    assert plan(host(3.7, 3.3, swap_refused=why), swap_size="8G")["jobs"] == 1
    refused = plan(host(3.7, 1.5, swap_refused=why), swap_size="8G")["refused"]
    assert [entry["code"] for entry in refused] == ["memory"]


def test_zram_is_no_disk_swap() -> None:
    zram = [{"path": "/dev/zram0", "kind": "zram", "size_bytes": 8 * GIB, "used_bytes": 0}]
    assert plan(host(3.7, 3.3, swap=zram))["swap"] == plan(host(3.7, 3.3))["swap"]


def test_a_smaller_swap_file_is_not_counted_at_its_old_size() -> None:
    big = [{"path": "/swapfile", "size_bytes": 8 * GIB, "used_bytes": 0, "kind": "file"}]
    result = plan(host(3.7, 1.0, swap=big), swap_size="1G")
    assert result["swap"] == {"path": "/swapfile", "size_bytes": GIB, "add_bytes": 0, "free_bytes": GIB}
    assert result["jobs"] == 1


def test_swap_size_in_every_way_it_is_written() -> None:
    assert {plan(swap_size=wish)["swap"]["size_bytes"] for wish in ("2G", "2048M", 2048, "2 GiB")} == {2 * GIB}
    with pytest.raises(CpufleetError, match="Cannot read 'big' as the size of a swap file"):
        plan(swap_size="big")


def test_a_second_run_needs_nothing() -> None:
    first = plan(with_disk(host(), 100))
    identity = first["wheel"]["identity"]
    assert [entry["needed"] for entry in first["disk"]] == [8 * GIB + 269_060_552]
    state = {
        "current": "d1",
        "wheels": {identity[:12]: {"identity": identity}},
        "releases": {"0.6.5-abc": {"wheel": identity}},
        "deployments": {"d1": {"model_sha256": MODEL["sha256"]}},
        "unfinished": [],
    }
    # Hardly any memory and disk are left while the service runs: neither may be asked for again.
    ours = {**LISTENER, "process": "python", "unit": "vllm.service"}
    again = plan(with_disk(host(3.7, 0.4, listeners=[ours]), 0.1), state=state, swap_size="0")
    assert again["wheel"]["identity"] == identity
    assert (again["refused"], again["disk"], again["builder"], again["jobs"], again["minutes"]) == ([], [], False, 0, 1)


@pytest.mark.parametrize(
    ("state", "needed"),
    [
        ({}, 8 * GIB + 269_060_552),
        ({"wheels": True}, 3 * GIB + 269_060_552),
        ({"wheels": True, "releases": True}, 269_060_552),
        ({"wheels": True, "releases": True, "deployments": True}, 0),
        ({"deployments": True}, 8 * GIB),
    ],
    ids=["bare", "built", "installed", "served", "other release"],
)
def test_what_is_finished_needs_no_more_space(state: dict[str, bool], needed: int) -> None:
    identity = plan()["wheel"]["identity"]
    there = {
        "wheels": {identity[:12]: {}},
        "releases": {"r": {"wheel": identity}},
        "deployments": {"d": {"model_sha256": MODEL["sha256"]}},
    }
    result = plan(state={**NOTHING, **{key: there[key] for key in state}})
    assert sum(entry["needed"] for entry in result["disk"]) == needed


@pytest.mark.parametrize(("begun", "left"), [(0, 269_060_552), (200_000_000, 69_060_552), (269_060_999, 0)])
def test_what_is_there_of_a_model_needs_no_space_again(begun: int, left: int) -> None:
    (disk,) = plan(state={**NOTHING, "models": {MODEL["sha256"][:12]: begun, "other": 5}})["disk"]
    assert disk["needed"] == 8 * GIB + left


def test_a_model_on_the_host_is_not_copied() -> None:
    (disk,) = plan(model_source="host")["disk"]
    assert disk["needed"] == 8 * GIB


def test_filesystems_are_added_up_by_mount() -> None:
    disks = {
        "/opt/vllm": {"mount": "/opt", "free_bytes": 9 * GIB},
        "/swapfile": {"mount": "/", "free_bytes": GIB // 2},
    }
    result = plan(host(3.7, 3.3, disks=disks))
    assert [(entry["mount"], entry["paths"], entry["needed"] >> 20) for entry in result["disk"]] == [
        ("/opt", ["/opt/vllm"], 8448),
        ("/", ["/swapfile"], 1024),
    ]
    assert [entry["text"] for entry in result["refused"]] == [
        "the filesystem at / has 512 MiB free but 1.0 GiB are needed for /swapfile. "
        "Free space there, enlarge it, or move vllm_root to a larger disk."
    ]


def test_a_torch_override_is_recorded_and_changes_the_identity() -> None:
    result = plan(torch_version="2.13.0+cpu")
    assert result["torch"] == {"version": "2.13.0+cpu", "pin": "2.5.1+cpu", "overridden": True}
    assert reason(result, "torch") == "2.13.0+cpu: torch_cpu_version overrides the release's pin 2.5.1+cpu"
    assert result["wheel"]["identity"] != plan()["wheel"]["identity"]


@pytest.mark.parametrize(
    ("policy", "gpus", "version", "edits"),
    [
        ("auto", [], "0.6.5", []),
        ("auto", ["NVIDIA T4"], "0.6.5", ["platform_patch", "config_patch"]),
        ("auto", ["NVIDIA T4"], "0.28.0", ["isa_limit"]),  # there a GPU cannot win over a version that says cpu
        ("always", [], "0.6.5", ["platform_patch", "config_patch"]),
        ("never", ["NVIDIA T4"], "0.6.5", []),
    ],
)
def test_the_policy_of_edits(policy: str, gpus: list[str], version: str, edits: list[str]) -> None:
    result = plan(host(gpus=gpus), version=version, platform_patch=policy)
    assert result["edits"] == edits
    assert result["wheel"]["inputs"]["edits"] == edits


def test_known_fixes_are_applied_and_part_of_the_identity() -> None:
    fixed, bare = plan(version="0.32.0"), plan(version="0.32.0", known_fixes=False)
    assert (fixed["edits"], bare["edits"]) == (["isa_limit", "slot-mapping-arguments"], ["isa_limit"])
    assert fixed["wheel"]["identity"] != bare["wheel"]["identity"]


@pytest.mark.parametrize("wishes", [{"jobs": 1}, {"port": 9000}, {"dtype": "float32"}, {"swap_size": "4G"}])
def test_how_a_wheel_is_built_and_served_does_not_change_its_identity(wishes: dict[str, Any]) -> None:
    assert plan(**wishes)["wheel"]["identity"] == plan()["wheel"]["identity"]


def test_an_avx512_build_of_an_old_release_takes_onednn_and_no_switch() -> None:
    inputs = plan(isa_class="avx512")["wheel"]["inputs"]
    assert (inputs["onednn"], inputs["flags"]) == ("v3.6", {"VLLM_TARGET_DEVICE": "cpu"})


# One class of every generation: the switches of the build, the edits, and whether oneDNN is compiled.
GENERATIONS: list[tuple[str, str, dict[str, str], list[str], str]] = [
    ("0.6.5", "avx512_bf16", {"VLLM_CPU_AVX512BF16": "1"}, [], "v3.6"),
    ("0.11.0", "avx2", {"VLLM_CPU_DISABLE_AVX512": "true"}, [], ""),
    ("0.11.0", "avx512_bf16", {"VLLM_CPU_AVX512BF16": "1", "VLLM_CPU_AVX512VNNI": "1"}, [], "v3.9"),
    (
        "0.16.0",
        "avx2",
        {"VLLM_CPU_DISABLE_AVX512": "true", "VLLM_CPU_AVX2": "1"},
        ["mla-bfloat16-fallback"],
        "",
    ),
    (
        "0.16.0",
        "avx512_bf16",
        {"VLLM_CPU_AVX512": "1", "VLLM_CPU_AVX512BF16": "1", "VLLM_CPU_AVX512VNNI": "1"},
        ["mla-bfloat16-fallback"],
        "v3.10",
    ),
    ("0.17.1", "avx2", {}, ["isa_limit"], ""),
    ("0.17.1", "avx512", {}, ["isa_limit"], ""),
    ("0.17.1", "avx512_bf16", {}, ["isa_limit"], "v3.10"),
    ("0.28.0", "avx2", {}, ["isa_limit"], "v3.13"),
]


@pytest.mark.parametrize(("version", "isa", "flags", "edits", "onednn"), GENERATIONS)
def test_what_goes_into_a_wheel_of_each_generation(
    version: str, isa: str, flags: dict[str, str], edits: list[str], onednn: str
) -> None:
    inputs = plan(host(compilers=GCC_14), version=version, isa_class=isa)["wheel"]["inputs"]
    assert inputs["flags"] == {"VLLM_TARGET_DEVICE": "cpu", **flags}
    assert (inputs["isa"], inputs["edits"], inputs["onednn"]) == ([isa], edits, onednn)


def test_a_newer_torch_needs_fixes_that_the_releases_own_does_not() -> None:
    own, newer = plan(version="0.16.0"), plan(version="0.16.0", torch_version="2.13.0+cpu")
    assert own["edits"] == ["mla-bfloat16-fallback"]
    assert newer["edits"] == ["mla-bfloat16-fallback", "l2-cache-size", "torch-cpu-questions"]
    texts = [entry["text"] for entry in newer["reasons"] if entry["decision"] == "edits"]
    assert texts[-2] == "l2-cache-size: this release is broken on CPU with torch 2.11 and newer"


def test_an_older_compiler_leaves_newer_instructions_out_and_the_plan_says_so() -> None:
    result = plan(version="0.11.0")
    assert (result["isa_class"], result["wheel"]["inputs"]["isa"]) == ("avx512", ["avx512"])
    assert [entry["text"] for entry in result["reasons"] if entry["decision"] == "isa_class"][-1] == (
        "avx512 instead of avx512_bf16: with g++ 12.2.0, below 12.3, this release leaves the newer instructions out of "
        "its build"
    )
    assert plan(host(compilers=GCC_14), version="0.11.0")["isa_class"] == "avx512_bf16"


@pytest.mark.parametrize(
    ("version", "own", "wish", "refused"),
    [
        ("0.11.0", "avx512_bf16", "avx512", True),
        ("0.11.0", "amx", "avx512_bf16", False),  # AMX came later
        ("0.16.0", "amx", "avx512_bf16", True),
        ("0.16.0", "amx", "avx2", False),
        ("0.16.0", "avx512", "avx512", False),
        ("0.28.0", "amx", "avx512", False),  # the target's flags are the tree's own
    ],
)
def test_a_class_that_the_build_would_overshoot_is_refused(version: str, own: str, wish: str, refused: bool) -> None:
    result = plan(host(compilers=GCC_14, cpu__isa_class=own), version=version, isa_class=wish)
    assert [entry["code"] for entry in result["refused"]] == (["isa"] if refused else [])
    if refused:
        taken = "avx512_bf16" if version == "0.11.0" else own
        assert result["refused"][0]["text"] == (
            f"vllm_isa_class is {wish}, but vLLM {version} takes over what the CPU of the building host offers "
            f"({taken}) and has no switch to leave it out: the wheel would die of an illegal instruction on a host of "
            f"class {wish}. Set vllm_isa_class to {taken} or to avx2, or build on a host of class {wish}."
        )


def test_a_newer_suite_brings_the_compiler_where_it_is_allowed() -> None:
    result = plan(version="0.28.0", allow_newer_suite=True)
    assert result["refused"] == []
    assert result["compiler"] == {
        "cc": "/usr/bin/gcc-14",
        "cxx": "/usr/bin/g++-14",
        "version": "14.2.0",
        "from": "newer suite",
        "packages": ["g++-14", "gcc-14"],
        "suite": "trixie",
    }
    # Once it is there it is a compiler of the host, and the wheel is the same.
    again = plan(host(compilers=GCC_14), version="0.28.0")
    assert (again["compiler"]["from"], again["compiler"]["suite"]) == ("host", "")
    assert again["wheel"]["identity"] == result["wheel"]["identity"]
    assert plan(allow_newer_suite=True)["compiler"]["from"] == "distribution"  # 0.6.5 has no floor


FOLDER = {"kind": "folder", "path": "/srv/onednn", "url": "", "tag": "", "version": "3.7.2", "sha256": "ab" * 32}
GIT = {
    "kind": "git",
    "path": "",
    "url": "https://mirror.example.com/onednn.git",
    "tag": "",
    "version": "",
    "sha256": "",
}


NO_LIBRARY = {"used": False, "record": "", "override": "", "given": {}, "repository": "", "ref": ""}
ARM_COMMIT = "9c5be1cc59e368aebf0909e6cf20f981ea61462a"


def test_aarch64_has_a_onednn_of_its_own_and_the_arm_compute_library() -> None:
    source = read("source-0.28.0")
    source["onednn"]["aarch64"] = {"repository": "https://a.example.com/oneDNN.git", "tag": ARM_COMMIT}
    source["arm_compute"] = {"repository": "https://a.example.com/acl.git", "tag": "v52.6.0", "override": "A2"}
    given = {**FOLDER, "path": "/srv/acl", "version": "52.2.0"}
    chosen = choose_onednn(source, {"acl": given}, ["neon"], Notes())
    assert chosen["record"] == f"{ARM_COMMIT} acl v52.2.0 sha256:{'ab' * 32}"
    assert (chosen["ref"], chosen["override"], chosen["acl"]["ref"]) == (ARM_COMMIT, "X3", "v52.6.0")
    assert choose_onednn(source, {}, ["neon_bf16"], Notes())["record"] == f"{ARM_COMMIT} acl v52.6.0"
    # x86 builds of the same release take no notice of it, and releases before fetch no oneDNN there.
    assert choose_onednn(source, {"acl": given}, ["amx"], Notes())["record"] == "v3.13"
    assert choose_onednn(read("source-0.16.0"), {}, ["neon"], Notes())["used"] is False


@pytest.mark.parametrize(
    ("given", "record", "reason_text"),
    [
        ({}, "v3.13", None),
        (FOLDER, f"v3.7.2 sha256:{'ab' * 32}", "the release's own is v3.13"),
        (GIT, "v3.13", "the release's own is v3.13"),  # a mirror of the same tag gives the same wheel
        ({**GIT, "tag": "v3.10"}, "v3.10", "the release's own is v3.13"),
    ],
)
def test_another_onednn_is_part_of_the_identity(given: dict[str, str], record: str, reason_text: str | None) -> None:
    archive = {**ARCHIVE, "onednn": given}
    here = host(compilers=GCC_14)
    result = plan_host(Situation(here, read("source-0.28.0"), archive, NOTHING, MODEL, WISHES))
    assert result["wheel"]["inputs"]["onednn"] == record
    place = {"repository": "https://github.com/oneapi-src/oneDNN.git", "ref": given.get("tag") or "v3.13"}
    chosen = {"used": True, "record": record, "override": "X3", "given": given, **place}
    assert result["onednn"] == {**chosen, "acl": NO_LIBRARY}
    texts = [entry["text"] for entry in result["reasons"] if entry["decision"] == "onednn"]
    assert len(texts) == (0 if reason_text is None else 1)
    assert reason_text is None or reason_text in texts[0]


def test_a_build_without_onednn_takes_no_notice_of_one() -> None:
    archive = {**ARCHIVE, "onednn": FOLDER}
    result = plan_host(
        Situation(host(), read("source-0.16.0"), archive, NOTHING, MODEL, {**WISHES, "isa_class": "avx2"})
    )
    assert result["onednn"] == {**NO_LIBRARY, "acl": NO_LIBRARY}
    assert result["wheel"]["identity"] == plan(version="0.16.0", isa_class="avx2")["wheel"]["identity"]


def test_a_release_that_keeps_a_core_back_is_told_to_use_all_of_them() -> None:
    found = plan(host(cpu__cpuset=[4, 5]), version="0.28.0")["model"]
    assert (found["threads"], found["thread_binding"]) == (2, "4-5")
    assert found["environment"] == {
        "OMP_NUM_THREADS": "2",
        "VLLM_CPU_OMP_THREADS_BIND": "4-5",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_TARGET_DEVICE": "cpu",
    }


def test_the_lock_of_a_release_with_its_own_torch() -> None:
    lock = plan(version="0.28.0")["lock"]
    assert lock.pop("name").startswith("0.28.0-py3.11-torch2.13.0+cpu-x86_64-")
    assert lock == {
        "sha256": "",
        "resolve": True,
        "overrides": ["torch==2.13.0+cpu"],
        "exclude": ["triton"],
        "extra": [],
        "build": [*read("source-0.28.0")["requirements"]["build"], "ninja", "wheel", "jinja2", "numpy<2"],
    }
    # A folder with torch alone: what the general index has beside it are CUDA builds.
    folder = plan(version="0.28.0", torch_find_links="/srv/wheels")["lock"]
    assert folder["exclude"] == ["triton", "torchvision", "torchaudio", "torchcodec"]


def test_the_lock_of_a_release_with_a_newer_torch() -> None:
    result = plan(version="0.11.0", torch_version="2.13.0+cpu")
    assert result["lock"]["overrides"] == ["torch==2.13.0+cpu", "setuptools<81"]
    assert [entry["text"] for entry in result["reasons"] if entry["decision"] == "lock"] == [
        "without triton, intel-extension-for-pytorch, torchvision, torchaudio: they are made for another torch build",
        "transformers<5: this release was written before 5 and does not say so",
    ]
    assert result["lock"]["extra"] == ["transformers<5"]
    assert plan(version="0.16.0")["lock"]["extra"] == []  # says so itself


def test_build_requirements_that_only_the_build_system_names() -> None:
    assert "grpcio-tools==1.78.0" in plan(version="0.16.0")["lock"]["build"]
    assert [line for line in plan(version="0.16.0")["lock"]["build"] if line.startswith("torch")] == [
        line for line in read("source-0.16.0")["requirements"]["build"] if line.startswith("torch")
    ]


@pytest.mark.parametrize(
    ("version", "requires", "listed", "fits"),
    [
        ("3.11.2", ">=3.9", [], True),
        ("3.8.10", ">=3.9", [], False),
        ("3.15.0", ">=3.10,<3.15", [], False),
        ("3.14.9", ">=3.10,<3.15", [], True),
        ("3.12.1", ">=3.9", ["3.9", "3.12"], True),
        ("3.13.1", ">=3.9", ["3.9", "3.12"], False),
        ("3.10.0", "", [], True),
    ],
)
def test_python_ranges(version: str, requires: str, listed: list[str], fits: bool) -> None:
    assert in_range(version, {"python_requires": requires, "python_supported": listed}) is fits


def test_the_newest_fitting_python_wins_and_its_gaps_are_named() -> None:
    pythons = [
        {"path": "/usr/bin/python3.9", "version": "3.9.19", "venv": True, "headers": True},
        {"path": "/usr/bin/python3.12", "version": "3.12.3", "venv": False, "headers": False},
        {"path": "/usr/local/bin/python3.13", "version": "3.13.1", "venv": True, "headers": True},
    ]
    found = plan(host(pythons=pythons))["python"]
    assert found == {
        "path": "/usr/bin/python3.12",
        "version": "3.12.3",
        "from": "system",
        "missing": ["venv", "headers"],
        "tool": {"path": "/usr/bin/python3.12", "version": "3.12.3"},
    }


@pytest.mark.parametrize("wish", ["auto", "uv"])
def test_uv_brings_a_python_where_the_host_has_none_in_the_range(wish: str) -> None:
    result = plan(host(pythons=PYTHON_13), python=wish)
    assert result["refused"] == []
    assert result["python"] == {
        "path": "/opt/vllm/tools/python/3.12/bin/python3.12",
        "version": "3.12",
        "from": "uv",
        "missing": [],
        "tool": {"path": "/usr/bin/python3.13", "version": "3.13.5"},
    }
    assert result["lock"]["name"].startswith("0.6.5-py3.12-")


def test_uv_brings_a_python_where_it_is_asked_to() -> None:
    assert plan(python="auto")["python"]["from"] == "system"
    result = plan(python="uv")
    assert result["python"]["from"] == "uv"
    assert {"decision": "python", "text": "3.12, brought by uv: toolchain_python says so"} in result["reasons"]


def test_a_release_that_no_python_of_uv_fits_is_refused() -> None:
    source = {**read("source-0.6.5"), "python_requires": ">=3.20", "python_supported": []}
    (refused,) = plan_host(Situation(host(), source, ARCHIVE, NOTHING, MODEL, WISHES))["refused"]
    assert refused["text"] == (
        "vLLM 0.6.5 needs Python >=3.20, the host has 3.11.2, and uv brings none in that range. Install one in that "
        "range on the host, or choose a vllm_version that takes the one it has."
    )


def test_compilers_pair_by_version_and_plain_names_win() -> None:
    found = paired_compilers(
        [
            {"path": "/usr/bin/g++-12", "language": "c++", "version": "12.3.0"},
            {"path": "/usr/bin/g++", "language": "c++", "version": "11.4.0"},
            {"path": "/usr/bin/g++-11", "language": "c++", "version": "11.4.0"},
            {"path": "/usr/bin/gcc", "language": "c", "version": "11.4.0"},
            {"path": "/usr/bin/gcc-13", "language": "c", "version": "13.1.0"},
        ]
    )
    assert found == {"11.4.0": ("/usr/bin/g++", "/usr/bin/gcc")}


@pytest.mark.parametrize(
    ("os_id", "os_version", "compilers", "release", "chosen"),
    [
        ("ubuntu", "22.04", GCC_11, "0.28.0", ("12.3.0", "distribution", ["g++-12", "gcc-12"])),
        ("ubuntu", "22.04", GCC_11, "0.6.5", ("11.4.0", "host", [])),
        ("ubuntu", "24.04", [], "0.28.0", ("13.3.0", "distribution", ["g++", "gcc"])),
        ("debian", "13", [], "0.28.0", ("14.2.0", "distribution", ["g++", "gcc"])),
    ],
)
def test_the_compiler_meets_the_hard_floor(
    os_id: str, os_version: str, compilers: list[dict[str, str]], release: str, chosen: tuple[str, str, list[str]]
) -> None:
    here = host(os__id=os_id, os__version=os_version, compilers=compilers)
    found = plan(here, version=release)["compiler"]
    assert (found["version"], found["from"], found["packages"]) == chosen


@pytest.mark.parametrize(
    ("os_id", "os_version", "level", "release", "chosen"),
    [
        ("alinux", "3", 8, "0.28.0", ("13.3.1", "gcc-toolset-13")),
        ("anolis", "8.9", 8, "0.6.5", ("13.3.1", "gcc-toolset-13")),
        ("rocky", "9.4", 9, "0.28.0", ("14.2.1", "gcc-toolset-14")),
    ],
)
def test_the_rhel_family_has_a_toolset_beside_its_own_compiler(
    os_id: str, os_version: str, level: int, release: str, chosen: tuple[str, str]
) -> None:
    system = {"os__id": os_id, "os__version": os_version, "os__family": "rpm", "os__el_level": level}
    found = plan(host(compilers=[], **system), version=release)["compiler"]
    version, name = chosen
    assert (found["version"], found["from"], found["suite"]) == (version, "distribution", "")
    assert found["packages"] == [f"{name}-gcc-c++", f"{name}-gcc"]
    assert (found["cxx"], found["cc"]) == (f"/opt/rh/{name}/root/usr/bin/g++", f"/opt/rh/{name}/root/usr/bin/gcc")
    folder = f"/opt/rh/{name}/root/usr/bin"
    there = [
        {"path": "/usr/bin/g++", "language": "c++", "version": "8.5.0"},
        {"path": "/usr/bin/gcc", "language": "c", "version": "8.5.0"},
        {"path": f"{folder}/g++", "language": "c++", "version": version},
        {"path": f"{folder}/gcc", "language": "c", "version": version},
    ]
    assert plan(host(compilers=there, **system), version=release)["compiler"]["cxx"] == found["cxx"]


def test_versions_compare_as_numbers() -> None:
    assert version_key("12.10.0") > version_key("12.3") > version_key("9")
    assert version_key("2.5.1+cpu") == (2, 5, 1)


@pytest.mark.parametrize(
    ("wishes", "memory", "expected"),
    [
        ({}, 24, (269_030_016, 1, 8192)),
        ({}, 3.7, (269_030_016, 1, 8192)),
        ({"dtype": "float32"}, 24, (538_060_032, 2, 8192)),
        ({"dtype": "float32"}, 3.7, (538_060_032, 1, 5760)),  # 4 requests of 45 KiB a token
        ({"dtype": "float32", "concurrency": 1}, 3.7, (538_060_032, 1, 8192)),
        ({"dtype": "half"}, 24, (269_030_016, 1, 8192)),
        ({"kv_cache_gib": "2"}, 24, (269_030_016, 2, 8192)),
        ({"kv_cache_gib": 1, "concurrency": "16"}, 24, (269_030_016, 1, 2816)),
        ({"max_model_len": "1024"}, 24, (269_030_016, 1, 1024)),
        ({"max_model_len": "8192", "concurrency": 32}, 24, (269_030_016, 6, 8192)),
    ],
)
def test_memory_of_the_service(wishes: dict[str, Any], memory: float, expected: tuple[int, int, int]) -> None:
    found = plan(host(memory), **wishes)["model"]
    assert (found["weights_bytes"], found["kv_cache_gib"], found["max_model_len"]) == expected


def test_a_control_group_limit_bounds_the_service() -> None:
    result = plan(host(24, memory__limit_bytes=2 * GIB), model=weighing(1))
    assert [entry["code"] for entry in result["refused"]] == ["model_memory"]


@pytest.mark.parametrize(
    ("listener", "wishes", "refused"),
    [
        ({"unit": "vllm.service"}, {}, False),
        ({"unit": "vllm.service"}, {"unit": "other.service"}, True),
        ({"port": 8001}, {}, False),
        ({"address": "192.0.2.7"}, {}, False),
        ({"address": "192.0.2.7"}, {"address": "0.0.0.0"}, True),
        ({"address": "::"}, {}, True),
        ({"pid": None, "user": "vllm", "unit": ""}, {}, False),
    ],
)
def test_whose_port_it_is(listener: dict[str, Any], wishes: dict[str, Any], refused: bool) -> None:
    result = plan(host(listeners=[{**LISTENER, **listener}]), **wishes)
    assert bool(result["refused"]) is refused


def test_memory_limit_is_what_the_parts_take_and_no_more() -> None:
    for wishes in ({}, {"dtype": "float32"}, {"kv_cache_gib": 3}):
        found = plan(**wishes)["model"]
        parts = found["weights_bytes"] + found["overhead_bytes"] + found["kv_cache_gib"] * GIB
        assert found["memory_max_bytes"] == parts


def test_wishes_that_the_release_can_take_are_its_arguments() -> None:
    found = plan(version="0.28.0", max_model_len=2048, concurrency=7, dtype="float32", kv_cache_gib=2)["model"]
    assert found["arguments"] == [
        *("--dtype", "float32", "--max-model-len", "2048", "--max-num-seqs", "7", "--enforce-eager"),
    ]
    assert (found["max_num_seqs"], found["environment"]["VLLM_CPU_KVCACHE_SPACE"]) == (7, "2")


def test_kv_cache_that_holds_less_than_one_request_is_refused() -> None:
    wide = weighing(1)
    wide["candidates"][0]["shape"]["kv_elements"] = 128 << 10
    (refused,) = plan(model=wide, kv_cache_gib=1, max_model_len=8192)["refused"]
    assert refused["code"] == "model"
    assert "1.0 GiB of KV cache hold less than one request of 8192 tokens" in refused["text"]
    assert plan(model=wide, kv_cache_gib=1, max_model_len=4096)["refused"] == []


def test_what_is_forced_is_served_with_the_refusal_as_a_warning() -> None:
    refused = plan(host(3.7, 3.3), model=weighing(6))
    forced = plan(host(3.7, 3.3), model=weighing(6), force=True)
    (entry,) = refused["refused"]
    assert (refused["model"]["forced"], forced["refused"], forced["model"]["forced"]) == ("", [], entry["text"])
    assert reason(forced, "forced") == f"model_serve_force goes on in spite of this: {entry['text']}"
    assert {**forced["model"], "forced": ""} == refused["model"]
    assert plan(force=True)["model"]["forced"] == ""


def test_gguf_alone_is_nothing_for_vllm() -> None:
    only = copy.deepcopy(MODEL)
    only["candidates"][0]["form"] = "gguf"
    only["candidates"][0]["shape"]["packing"]["name"] = "Q4_0"
    (refused,) = plan(model=only)["refused"]
    assert refused["code"] == "model"
    assert refused["text"].startswith(
        "SmolLM2-135M-Instruct Q4_0 cannot be served: vLLM has no kernels for GGUF on a CPU."
    )


def test_gguf_beside_the_weights_is_passed_over() -> None:
    both = copy.deepcopy(MODEL)
    both["candidates"].insert(0, {**copy.deepcopy(both["candidates"][0]), "form": "gguf", "read_bytes": 1})
    assert plan(model=both)["model"] == plan()["model"]


@pytest.mark.parametrize("candidates", [[], None])
def test_description_without_a_shape_is_refused(candidates: Any) -> None:
    result = plan(model={**MODEL, "candidates": candidates})
    (refused,) = result["refused"]
    assert refused["code"] == "model"
    assert refused["text"].endswith("Run the playbook cpufleet.vllm.depot again.")
    assert result["model"]["engine"] == ""


def test_class_of_the_wheel_decides_which_weights_have_kernels() -> None:
    awq = copy.deepcopy(MODEL)
    awq["candidates"][0]["shape"]["packing"] = {"method": "awq", "bits": 4, "bits_stored": 4.2, "name": "awq 4-bit"}
    source = {**read("source-0.28.0"), "quantization": {"avx512_bf16": {"awq": "native"}, "avx512": {"awq": "native"}}}
    able, weak = (
        plan_host(Situation(host(), source, ARCHIVE, NOTHING, awq, {**WISHES, **wish, "allow_newer_suite": True}))
        for wish in ({}, {"isa_class": "avx2"})
    )
    assert able["refused"] == []
    assert [entry["code"] for entry in weak["refused"]] == ["model"]
    assert "only for avx512_bf16, avx512; this CPU offers avx2" in weak["refused"][0]["text"]


def test_what_is_loaded_first_is_what_the_host_has_and_the_release_brings() -> None:
    allocator = "/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4"
    assert plan(host(allocator=allocator))["model"]["preload"] == [allocator]
    assert plan(version="0.28.0")["model"]["preload"] == ["libiomp5.so"]
    assert plan(host(allocator=allocator), version="0.28.0")["model"]["preload"] == [allocator, "libiomp5.so"]


def test_filters_name_the_planners_and_turn_their_errors_into_ansibles() -> None:
    filters = FilterModule().filters()
    assert sorted(filters) == [
        "deployment_id",
        "fleet_table",
        "mirror_addresses",
        "netrc",
        "plan_host",
        "plan_match",
        "release_id",
        "resolve_date",
    ]
    inputs = (read("source-0.6.5"), ARCHIVE, NOTHING, MODEL)
    planned = filters["plan_host"](host(), *inputs, WISHES)
    assert {key: planned[key] for key in plan()} == plan()
    with pytest.raises(AnsibleFilterError, match="Cannot read 'big' as the size of a swap file"):
        filters["plan_host"](host(), *inputs, {**WISHES, "swap_size": "big"})
    with pytest.raises(AnsibleFilterError, match="plan_host: the input is not as documented: KeyError\\('cpu'\\)"):
        filters["plan_host"]({}, *inputs, WISHES)


@pytest.mark.parametrize(
    ("wishes", "code", "text"),
    [
        ({"port": 99999}, "port", "model_serve_port is 99999. Use a port from 1 to 65535."),
        (
            {"root": "opt/vllm"},
            "wish",
            "vllm_root is opt/vllm, which is not an absolute path. Use one such as /opt/vllm.",
        ),
        (
            {"max_model_len": "1000000"},
            "wish",
            "model_serve_max_model_len is 1000000, but this model was made for 8192 tokens. Use that or less, or auto.",
        ),
        (
            {"gate_expect": "["},
            "wish",
            "model_serve_gate_expect is '[', which is not a regular expression: "
            "unterminated character set at position 0. Correct it; a plain word such as Paris is one.",
        ),
    ],
)
def test_wishes_that_can_only_fail_later_are_refused_now(wishes: dict[str, Any], code: str, text: str) -> None:
    assert {"code": code, "text": text} in plan(**wishes)["refused"]


def test_a_release_without_a_cpu_build_is_refused() -> None:
    source = changed(read("source-0.6.5"), {"torch_cpu": ""})
    result = plan_host(Situation(host(), source, ARCHIVE, NOTHING, MODEL, WISHES))
    assert "names no torch for CPU" in next(entry["text"] for entry in result["refused"] if entry["code"] == "source")
