# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans of services: real shapes, real releases, varied hosts; every rule, and the refusals word for word."""

from __future__ import annotations

import copy
import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils import _serve_plan_speed as speed
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._model_shape import shape_of_config
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan import plan_serve
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan_memory import HOST_RESERVE, overhead_bytes
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan_models import STARTERS, forms_of, q4_candidate
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan_read import read_candidates
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan_types import Candidate, Wish, candidate_from

from tests.support.gguf import KEYS, TENSORS, gguf
from tests.support.run_module import run_module

FIXTURES = Path(__file__).parent / "fixtures"
GIB = 1 << 30
MIB = 1 << 20
RELEASES = ("0.6.5", "0.9.2", "0.10.2", "0.16.0", "0.20.2", "0.28.0", "0.32.0")
# A cloud VM that is sold as 4 GB.
SMALL = 3.4
SLIDING = "--disable-sliding-window"


def source(version: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((FIXTURES / "serve_plan" / f"source-{version}.json").read_text())
    return document


def host(gib: float = 24, isa: str | None = "avx512_bf16", cpus: int = 2, **cpu: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((FIXTURES / "plan" / "host-debian12.json").read_text())
    document["memory"]["total_bytes"] = int(gib * GIB)
    document["cpu"].update(isa_class=isa, usable_cpus=cpus, cpuset=list(range(cpus)), **cpu)
    return document


def shape_document(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((FIXTURES / "serve_plan" / "configs" / f"{name}.json").read_text())
    return document


@pytest.fixture
def model(tmp_path: Path) -> Any:
    """Return what reads the candidates of a family's config.json, with no weights beside it."""

    def read(name: str, **changes: Any) -> list[Candidate]:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps({**shape_document(name), **changes}))
        return read_candidates(str(folder))

    return read


def gguf_of(name: str) -> Candidate:
    return q4_candidate(name, shape_of_config(shape_document(name)))


def reason(plan: dict[str, Any], decision: str) -> str:
    return next((str(entry["text"]) for entry in plan["reasons"] if entry["decision"] == decision), "")


def offers(plan: dict[str, Any]) -> list[tuple[str, str, str, int]]:
    alternatives = plan["refusal"]["alternatives"]
    return [(one["engine"], one["model"], one["quantization"], one["max_model_len"]) for one in alternatives]


# --- memory ---


@pytest.mark.parametrize("version", RELEASES)
@pytest.mark.parametrize("name", ["qwen2-0.5b", "qwen2-1.5b", "qwen2-7b", "smollm2-135m", "mistral-7b"])
def test_the_parts_make_the_whole(model: Any, version: str, name: str) -> None:
    plan = plan_serve(model(name), host(64), source(version), Wish(context=2048, concurrency=4))
    assert plan["fits"], plan["refusal"]["text"]
    parts = plan["weights_bytes"] + plan["overhead_bytes"] + plan["kv_bytes"]
    assert plan["memory_max_bytes"] == parts <= 64 * GIB - HOST_RESERVE
    assert plan["kv_bytes"] >= 4 * 2048 * plan["kv_bytes_per_token"]
    assert plan["refusal"] == {"text": "", "alternatives": []}


@pytest.mark.parametrize("version", ["0.6.5", "0.9.2", "0.10.2", "0.16.0"])
def test_whole_gib_by_the_variable_where_bytes_are_not_taken(model: Any, version: str) -> None:
    for concurrency, whole in ((1, 1), (20, 2)):
        plan = plan_serve(model("smollm2-135m"), host(), source(version), Wish(4096, concurrency))
        assert plan["kv_bytes"] == whole * GIB
        assert plan["environment"]["VLLM_CPU_KVCACHE_SPACE"] == str(whole)
        assert "--kv-cache-memory-bytes" not in plan["arguments"]


@pytest.mark.parametrize("version", ["0.20.2", "0.28.0", "0.32.0"])
def test_bytes_by_the_argument_where_they_are_taken(model: Any, version: str) -> None:
    plan = plan_serve(model("smollm2-135m"), host(), source(version), Wish(4096))
    # 4096 tokens and one block of 128, in whole MiB.
    assert plan["kv_bytes"] == -(-(4096 + 128) * 23_040 // 2**20) * 2**20
    at = plan["arguments"].index("--kv-cache-memory-bytes")
    assert plan["arguments"][at + 1] == str(plan["kv_bytes"])
    assert "VLLM_CPU_KVCACHE_SPACE" not in plan["environment"]


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("0.6.5", "left alone vLLM 0.6.5 takes 4 GiB, and with the variable at 0 the same"),
        ("0.10.2", "left alone vLLM 0.10.2 takes 4 GiB, and with the variable at 0 nothing at all"),
        ("0.16.0", "left alone vLLM 0.16.0 takes half of the free memory, and with the variable at 0 nothing at all"),
        ("0.28.0", "left alone vLLM 0.28.0 takes 92 % of all memory, and with the variable at 0 nothing at all"),
    ],
)
def test_what_unset_and_zero_mean(model: Any, version: str, text: str) -> None:
    assert text in reason(plan_serve(model("smollm2-135m"), host(), source(version), Wish()), "kv_bytes")


def test_whole_gib_where_the_caller_uses_the_variable(model: Any) -> None:
    plan = plan_serve(model("smollm2-135m"), host(), source("0.28.0"), Wish(4096, whole_gib=True))
    assert (plan["kv_bytes"], plan["environment"]["VLLM_CPU_KVCACHE_SPACE"]) == (GIB, "1")
    assert "--kv-cache-memory-bytes" not in plan["arguments"]


@pytest.mark.parametrize("version", RELEASES)
def test_prompts_are_kept_out_of_the_log_where_the_release_writes_them(model: Any, version: str) -> None:
    flag = "--disable-log-requests" in plan_serve(model("smollm2-135m"), host(), source(version), Wish())["arguments"]
    assert flag is (version in ("0.6.5", "0.9.2"))


def test_swap_and_a_large_host_do_not_help_against_a_control_group(model: Any) -> None:
    limited = host(24)
    limited["memory"].update(limit_bytes=2 * GIB, limit_source="cgroup v2: /sys/fs/cgroup/memory.max")
    limited["memory"].update(swap_total_bytes=64 * GIB, swap_free_bytes=64 * GIB)
    plan = plan_serve(model("qwen2-0.5b"), limited, source("0.28.0"), Wish(4096))
    assert not plan["fits"]
    assert "this host has 2.0 GiB" in plan["refusal"]["text"]
    assert "bounded by cgroup v2: /sys/fs/cgroup/memory.max" in reason(plan, "memory_max_bytes")


@pytest.mark.parametrize("version", ["0.6.5", "0.28.0"])
def test_the_last_byte_decides(model: Any, version: str) -> None:
    needed = plan_serve(model("qwen2-0.5b"), host(), source(version), Wish(4096))["memory_max_bytes"] + HOST_RESERVE
    for total, fits in ((needed, True), (needed - 1, False)):
        machine = host()
        machine["memory"]["total_bytes"] = total
        assert plan_serve(model("qwen2-0.5b"), machine, source(version), Wish(4096))["fits"] is fits


def test_the_old_engine_reads_a_whole_prompt_at_once(model: Any) -> None:
    for version, grows in (("0.6.5", True), ("0.28.0", False)):
        short, long = (plan_serve(model("qwen2-7b"), host(64), source(version), Wish(size)) for size in (2048, 32768))
        assert (long["overhead_bytes"] > short["overhead_bytes"]) is grows


def test_the_new_engine_keeps_what_it_repacks(model: Any) -> None:
    def beyond(name: str, version: str) -> int:
        return int(plan_serve(model(name), host(64), source(version), Wish(2048))["overhead_bytes"])

    small, large, packed = (beyond(name, "0.28.0") for name in ("qwen2-1.5b", "qwen2-7b", "qwen2-7b-awq"))
    tables = 2 * 2 * 152_064 * 3584
    # Matrices of the 7B shape are too large for the allocator's pool: only the tables are there twice.
    assert large == packed
    assert tables < large - beyond("qwen2-7b", "0.6.5") < tables + GIB
    assert small - beyond("qwen2-1.5b", "0.6.5") > 2 * 151_936 * 1536


def test_a_context_left_open_leaves_half_of_what_is_spare(model: Any) -> None:
    plan = plan_serve(model("qwen2-7b"), host(22), source("0.28.0"), Wish(concurrency=4))
    spare = 22 * GIB - HOST_RESERVE - plan["weights_bytes"] - plan["overhead_bytes"]
    assert spare / 3 < plan["kv_bytes"] <= spare * 0.6
    assert plan_serve(model("qwen2-7b"), host(64), source("0.28.0"), Wish(concurrency=4))["kv_bytes"] <= 4 * GIB


def test_numbers_in_32_bits_take_twice_as_much(model: Any) -> None:
    narrow, wide = (plan_serve(model("qwen2-0.5b"), host(), source("0.28.0"), Wish(4096, dtype=one)) for one in DTYPES)
    assert wide["weights_bytes"] == 2 * narrow["weights_bytes"]
    assert wide["kv_bytes_per_token"] == 2 * narrow["kv_bytes_per_token"]
    assert (narrow["dtype"], wide["dtype"]) == DTYPES


DTYPES = ("bfloat16", "float32")


def test_a_cpu_without_bf16_on_arm_computes_in_float16(model: Any) -> None:
    assert plan_serve(model("qwen2-0.5b"), host(isa="neon"), source("0.28.0"), Wish(4096))["dtype"] == "float16"


# --- context and requests ---


def test_context_is_the_models_own_where_memory_allows(model: Any) -> None:
    plan = plan_serve(model("qwen2-0.5b"), host(), source("0.28.0"), Wish())
    assert plan["max_model_len"] == 32768
    assert reason(plan, "max_model_len") == "32768 tokens, the model's own context"


def test_context_shrinks_to_what_memory_allows(model: Any) -> None:
    plan = plan_serve(model("qwen2-7b"), host(20), source("0.28.0"), Wish())
    assert plan["fits"]
    assert 2048 <= plan["max_model_len"] < 32768
    assert plan["max_model_len"] % 128 == 0
    assert "what memory and release allow" in reason(plan, "max_model_len")


@pytest.mark.parametrize("concurrency", [1, 3, 8])
def test_every_request_can_be_as_long_as_planned(model: Any, concurrency: int) -> None:
    plan = plan_serve(model("qwen2-7b"), host(22), source("0.28.0"), Wish(concurrency=concurrency))
    assert plan["max_num_seqs"] == concurrency
    assert plan["max_model_len"] * concurrency * plan["kv_bytes_per_token"] <= plan["kv_bytes"]


def test_wish_beyond_the_models_context_is_refused_and_its_own_offered(model: Any) -> None:
    plan = plan_serve(model("qwen2-0.5b"), host(), source("0.28.0"), Wish(65536))
    assert plan["refusal"]["text"].startswith(
        "qwen2-0.5b cannot be served: the model was made for a context of 32768 tokens, 65536 are wished for. On this "
        "host engine vllm fits qwen2-0.5b with 32768 tokens of context at about"
    )


def test_sliding_window_is_switched_off_where_the_release_has_none(model: Any) -> None:
    without = plan_serve(model("mistral-7b"), host(), source("0.10.2"), Wish())
    assert (without["max_model_len"], SLIDING in without["arguments"]) == (4096, True)
    served = plan_serve(model("mistral-7b"), host(32), source("0.28.0"), Wish(8192))
    assert SLIDING not in served["arguments"]
    assert reason(served, "max_model_len") == "8192 tokens, as wished for; attention looks back 4096 tokens"


# --- the release and the CPU ---


@pytest.mark.parametrize(
    ("name", "version", "isa", "text"),
    [
        (
            "qwen2-7b-awq",
            "0.28.0",
            "avx2",
            "vLLM 0.28.0 has kernels for awq 4-bit only for amx, avx512, avx512_bf16; this CPU offers avx2",
        ),
        ("qwen2-1.5b-gptq", "0.28.0", "avx2", "vLLM 0.28.0 has kernels for gptq 4-bit only for"),
        ("qwen2-1.5b-w4a16", "0.28.0", "avx2", "kernels for compressed-tensors pack-quantized 4-bit only for"),
        ("qwen2-1.5b-w8a8", "0.16.0", "avx2", "kernels for compressed-tensors int-quantized 8-bit only for"),
        (
            "qwen2-7b-awq",
            "0.6.5",
            "avx512",
            "vLLM 0.6.5 runs awq 4-bit only with Intel's extension for PyTorch, which it does not bring",
        ),
        (
            "qwen2-7b-gptq-int8",
            "0.28.0",
            "avx512",
            "vLLM 0.28.0 has CPU kernels for 4-bit weights, the model's have 8",
        ),
        ("mixtral-8x7b", "0.6.5", "avx512", "vLLM 0.6.5 serves no mixture of experts on a CPU"),
        ("qwen2-0.5b", "0.28.0", None, "no vLLM build runs on this CPU"),
        (
            "phi-2",
            "0.28.0",
            "avx512",
            "",
        ),
    ],
)
def test_what_a_release_serves_on_a_cpu(model: Any, name: str, version: str, isa: str | None, text: str) -> None:
    plan = plan_serve(model(name), host(256, isa), source(version), Wish(2048))
    assert plan["fits"] is (text == "")
    assert text in plan["refusal"]["text"]


@pytest.mark.parametrize(("version", "isa"), [("0.28.0", "avx512"), ("0.10.2", "avx2"), ("0.16.0", "amx")])
def test_packed_weights_where_there_are_kernels(model: Any, version: str, isa: str) -> None:
    assert plan_serve(model("qwen2-1.5b-gptq"), host(isa=isa), source(version), Wish(2048))["fits"]


def test_head_size_without_a_kernel(model: Any) -> None:
    plan = plan_serve(model("qwen2-0.5b", head_dim=72), host(), source("0.6.5"), Wish(2048))
    assert (
        "vLLM 0.6.5 has CPU kernels for heads of 32, 64, 80, 96, 112, 128, 192, 256, the model's are of 72"
        in (plan["refusal"]["text"])
    )


@pytest.mark.parametrize("version", RELEASES)
def test_only_arguments_and_variables_of_the_release(model: Any, version: str) -> None:
    facts = source(version)
    plan = plan_serve(model("qwen2-0.5b"), host(), facts, Wish(4096, 2))
    flags = [word[2:].replace("-", "_") for word in plan["arguments"] if word.startswith("--")]
    # The server's own flag is not among the engine's arguments; it is in the sources up to 0.16.0.
    assert set(flags) - {"disable_log_requests"} <= set(facts["serving"]["arguments"])
    known = {*facts["cpu_environment"], "OMP_NUM_THREADS"} | (
        {"VLLM_TARGET_DEVICE"} if facts["detection"] == "D6" else set()
    )
    assert set(plan["environment"]) <= known
    assert ("VLLM_TARGET_DEVICE" in plan["environment"]) is (facts["detection"] == "D6")


@pytest.mark.parametrize(
    ("version", "cpu", "threads", "binding", "variable"),
    [
        ("0.6.5", {}, 2, "all", None),
        ("0.10.2", {}, 2, "0-1", "0-1"),
        ("0.28.0", {}, 2, "0-1", "0-1"),
        ("0.28.0", {"cpus": 4, "cpuset": [0, 1, 4, 6]}, 4, "0-1,4,6", "0-1,4,6"),
        ("0.28.0", {"threads_per_core": 2}, 2, "0-1", "0-1"),
        ("0.28.0", {"cpus": 8, "threads_per_core": 2}, 4, "nobind", "nobind"),
        ("0.10.2", {"cpus": 8, "threads_per_core": 2}, 8, "0-7", "0-7"),
        ("0.28.0", {"cpus": 2, "cpuset": list(range(16))}, 2, "nobind", "nobind"),
    ],
)
def test_threads(
    model: Any, version: str, cpu: dict[str, Any], threads: int, binding: str, variable: str | None
) -> None:
    machine = host(cpus=cpu.get("cpus", 2))
    machine["cpu"].update({key: value for key, value in cpu.items() if key != "cpus"})
    plan = plan_serve(model("qwen2-0.5b"), machine, source(version), Wish(4096))
    assert (plan["threads"], plan["thread_binding"]) == (threads, binding)
    assert plan["environment"].get("VLLM_CPU_OMP_THREADS_BIND") == variable
    assert plan["environment"]["OMP_NUM_THREADS"] == str(threads)


def test_a_source_that_was_read_before_serving_was_is_planned_with_care(model: Any) -> None:
    facts = {key: value for key, value in source("0.28.0").items() if key != "serving"}
    plan = plan_serve(model("qwen2-0.5b"), host(), facts, Wish(4096))
    assert plan["fits"]
    assert plan["environment"]["VLLM_CPU_KVCACHE_SPACE"] == "1"


# --- the engine ---


@pytest.mark.parametrize(("streams", "engine"), [(1, "llama_cpp"), (32, "vllm")])
def test_auto_takes_what_is_faster_for_that_many_requests(model: Any, streams: int, engine: str) -> None:
    both = [*model("qwen2-0.5b"), gguf_of("qwen2-0.5b")]
    plan = plan_serve(both, host(), source("0.32.0"), Wish(2048, streams))
    assert plan["engine"] == engine
    single = [plan_serve([one], host(), source("0.32.0"), Wish(2048, streams)) for one in both]
    assert plan["expected_tokens_per_s"] == max(one["expected_tokens_per_s"] for one in single)
    for one in single:
        assert f"{one['expected_tokens_per_s']:g} tokens/s" in reason(plan, "engine")


def test_auto_takes_what_fits(model: Any) -> None:
    both = [*model("qwen2-1.5b"), gguf_of("qwen2-1.5b")]
    plan = plan_serve(both, host(SMALL), source("0.28.0"), Wish(2048, 32))
    assert (plan["engine"], plan["fits"]) == ("llama_cpp", True)
    assert "vllm lacks" in reason(plan, "engine")


def test_auto_takes_what_the_cpu_can_run(model: Any) -> None:
    both = [*model("qwen2-0.5b"), gguf_of("qwen2-0.5b")]
    plan = plan_serve(both, host(isa=None), source("0.28.0"), Wish(2048, 32))
    assert plan["engine"] == "llama_cpp"
    assert "not vllm: no vLLM build runs on this CPU" in reason(plan, "engine")


def test_llama_cpp_needs_no_source_and_gets_its_own_arguments() -> None:
    plan = plan_serve([gguf_of("qwen2-0.5b")], host(SMALL), None, Wish(4096, 2))
    assert plan["arguments"] == ["--ctx-size", "8192", "--parallel", "2", "--threads", "2", "--threads-batch", "2"]
    assert (plan["environment"], plan["thread_binding"], plan["dtype"]) == ({}, "", "float16")
    assert reason(plan, "engine").endswith("not vllm: it has no kernels for GGUF on a CPU")


@pytest.mark.parametrize(
    ("name", "context", "slots", "compute", "output"),
    [
        ("smollm2-135m", 2048, 2, 15.5, 0.375),
        ("smollm2-135m", 8192, 2, 21.5, 0.375),
        ("smollm2-135m", 4096, 8, 17.5, 1.5),
        ("qwen2-0.5b", 2048, 2, 37.5, 1.16),
        ("qwen2-0.5b", 8192, 2, 43.5, 1.16),
        ("qwen2-0.5b", 4096, 8, 39.5, 4.64),
    ],
)
def test_llama_server_gets_the_buffers_that_it_says_it_takes(
    name: str, context: int, slots: int, compute: float, output: float
) -> None:
    """Figures of its log (llama-cpp-python 0.3.36): they grow with the shape, the context and the slots, as planned."""
    shape = shape_of_config(shape_document(name))
    whole = overhead_bytes("llama_cpp", shape, context, slots, 2)
    bare = overhead_bytes("llama_cpp", dataclasses.replace(shape, intermediate=0, hidden=0), 0, slots, 2)
    assert (whole - bare) / MIB == pytest.approx(compute, abs=0.02)
    assert slots * shape.vocab * 16 / MIB >= output
    assert "from measurements of llama-cpp-python" in reason(
        plan_serve([gguf_of(name)], host(4), None, Wish(context, slots)), "overhead_bytes"
    )


def test_an_engine_that_cannot_serve_such_weights_is_refused(model: Any) -> None:
    plan = plan_serve(model("qwen2-0.5b"), host(), source("0.28.0"), Wish(2048, engine="llama_cpp"))
    assert "llama.cpp serves GGUF files, these weights are safetensors" in plan["refusal"]["text"]
    plan = plan_serve([gguf_of("qwen2-0.5b")], host(), source("0.28.0"), Wish(2048, engine="vllm"))
    assert "vLLM has no kernels for GGUF on a CPU" in plan["refusal"]["text"]
    plan = plan_serve(model("qwen2-0.5b"), host(), None, Wish(2048))
    assert "no source of vLLM was given to plan with" in plan["refusal"]["text"]


def test_the_faster_form_of_the_same_model_is_named(model: Any) -> None:
    plan = plan_serve(model("qwen2-0.5b"), host(), source("0.32.0"), Wish(2048))
    assert "the same model as a 4-bit GGUF on llama_cpp would give about" in reason(plan, "faster")
    assert reason(plan_serve(model("qwen2-0.5b"), host(), source("0.32.0"), Wish(2048, 32)), "faster") == ""


# --- speed ---

# What was measured on the bench (docs/serve-plan.md), which the model has to give again.
MEASURED = [
    ("v1", "qwen2-0.5b", 1, 1, 12.5),
    ("v1", "qwen2-0.5b", 2, 1, 18.5),
    ("v1", "qwen2-0.5b", 2, 8, 127),
    ("v1", "qwen2-0.5b", 2, 32, 246),
    ("v1", "qwen2-0.5b-awq", 2, 1, 16.8),
    ("v1", "qwen2-0.5b-awq", 2, 8, 88),
    ("v1", "qwen2-7b-awq", 2, 1, 1.49),
    ("v0", "qwen2-0.5b", 2, 1, 12.5),
    ("llama_cpp", "qwen2-7b", 2, 1, 7.06),
    ("llama_cpp", "qwen2-0.5b", 2, 1, 69),
    ("llama_cpp", "qwen2-0.5b", 2, 8, 110),
    ("llama_cpp", "qwen2-0.5b", 2, 32, 140),
]


@pytest.mark.parametrize(("kind", "name", "threads", "streams", "measured"), MEASURED)
def test_speed_is_near_what_was_measured(kind: str, name: str, threads: int, streams: int, measured: float) -> None:
    if name == "qwen2-0.5b-awq":
        document = {**shape_document("qwen2-0.5b"), "quantization_config": {"quant_method": "awq", "bits": 4}}
    else:
        document = shape_document(name)
    shape, read = shape_of_config(document), 0
    if kind == "llama_cpp":
        candidate = q4_candidate(name, shape)
        # The measured files kept the table in 4 bits as well and stored it once.
        read = int((shape.active_parameters + shape.head_parameters) * 4.5 / 8)
        shape = candidate.shape
    found = speed.tokens_per_s(kind, shape, threads, streams, 2, read)
    assert found == pytest.approx(measured, rel=0.15)


def test_more_threads_are_counted_as_far_as_measured() -> None:
    assert speed.bandwidth(1) < speed.bandwidth(2) < speed.bandwidth(4) == speed.bandwidth(64)


def test_a_token_of_a_mixture_reads_its_experts_and_many_tokens_most_of_them() -> None:
    dense, mixture = (shape_of_config(shape_document(name)) for name in ("qwen2-7b", "qwen2-57b-a14b"))
    assert speed.touched(dense, 32) == 1
    assert speed.touched(mixture, 1) == pytest.approx(1)
    assert 2 < speed.touched(mixture, 32) < mixture.layer_parameters / mixture.active_parameters


# --- refusals ---


def test_seven_billion_on_a_small_host_in_numbers(model: Any) -> None:
    plan = plan_serve(model("qwen2-7b-awq"), host(SMALL), source("0.28.0"), Wish(8192))
    text, gib = plan["refusal"]["text"], 1 / GIB
    needed = f"{plan['memory_max_bytes'] * gib:.1f} GiB ({plan['weights_bytes'] * gib:.1f} GiB of weights"
    assert text.startswith(f"qwen2-7b-awq on vllm needs {needed}")
    assert "this host has 3.4 GiB, of which 256 MiB stay with the system. Swap does not count for serving." in text
    best = plan["refusal"]["alternatives"][0]
    assert (best["engine"], best["model"], best["quantization"]) == ("llama_cpp", "Qwen2.5-1.5B-Instruct", "Q4_0")
    assert best["needed_bytes"] <= int(SMALL * GIB) - HOST_RESERVE
    assert (
        "On this host engine llama_cpp fits Qwen2.5-1.5B-Instruct Q4_0 (Apache-2.0) with 8192 tokens of context at "
        f"about {best['expected_tokens_per_s']:g} tokens/s"
    ) in text


def test_what_is_offered_fits_when_it_is_planned(model: Any) -> None:
    for gib in (1, 1.5, 2, SMALL, 8, 16):
        plan = plan_serve(model("qwen2-57b-a14b"), host(gib), source("0.28.0"), Wish(4096))
        assert not plan["fits"]
        assert plan["refusal"]["alternatives"]
        forms = {form.repository: form.candidate for starter in STARTERS for form in forms_of(starter)}
        for one in plan["refusal"]["alternatives"]:
            wish = Wish(one["max_model_len"], one["max_num_seqs"], one["engine"])
            again = plan_serve([forms[one["repository"]]], host(gib), source("0.28.0"), wish)
            assert again["fits"]
            assert again["memory_max_bytes"] == one["needed_bytes"]
            assert again["expected_tokens_per_s"] == one["expected_tokens_per_s"] >= 4


def test_offers_get_better_with_the_host(model: Any) -> None:
    sizes = []
    for gib in (0.6, 1, 2, 8):
        plan = plan_serve(model("qwen2-57b-a14b"), host(gib), source("0.28.0"), Wish(4096))
        sizes.append(plan["refusal"]["alternatives"][0]["parameters"])
    assert sizes == sorted(set(sizes))


def test_fewer_requests_or_a_shorter_context_come_first(model: Any) -> None:
    plan = plan_serve(model("qwen2-7b"), host(20), source("0.28.0"), Wish(8192, 16))
    assert offers(plan)[0] == ("vllm", "qwen2-7b", "none", 8192)
    assert 1 <= plan["refusal"]["alternatives"][0]["max_num_seqs"] < 16
    plan = plan_serve(model("qwen2-7b"), host(19.2), source("0.28.0"), Wish(32768))
    first = plan["refusal"]["alternatives"][0]
    assert (first["model"], first["repository"], first["licence"]) == ("qwen2-7b", "", "")
    assert 1024 <= first["max_model_len"] < 32768
    shorter = plan_serve(model("qwen2-7b"), host(18.6), source("0.28.0"), Wish(8192, 16))["refusal"]["alternatives"][0]
    assert (shorter["max_num_seqs"], shorter["max_model_len"] < 8192) == (1, True)


def test_nothing_to_offer_says_so(model: Any) -> None:
    plan = plan_serve(model("qwen2-7b"), host(0.25), source("0.28.0"), Wish(2048))
    assert plan["refusal"]["alternatives"] == []
    assert plan["refusal"]["text"].endswith(
        "No model of the list of starters fits on this host either: use a larger host."
    )


def test_starters_are_free_and_complete() -> None:
    for starter in STARTERS:
        assert starter.licence == "Apache-2.0"
        assert "/" in starter.repository
        shape = forms_of(starter)[0].candidate.shape
        billions = float(starter.name.split("-")[1].rstrip("MB")) / (1000 if "M-" in starter.name else 1)
        assert shape.parameters / 1e9 == pytest.approx(billions, rel=0.1)


@pytest.mark.parametrize("wish", [Wish(concurrency=0), Wish(context=-1)])
def test_impossible_wishes_are_refused(model: Any, wish: Wish) -> None:
    with pytest.raises(CpufleetError, match="Cannot plan for"):
        plan_serve(model("qwen2-0.5b"), host(), source("0.6.5"), wish)
    with pytest.raises(CpufleetError, match="there is no model"):
        plan_serve([], host(), source("0.6.5"), dataclasses.replace(Wish()))


# --- the module and what it reads ---


def ask(path: Path, **arguments: Any) -> dict[str, Any]:
    given = {"host": host(SMALL), "source": source("0.28.0"), "context": 2048, **arguments}
    return run_module("serve_plan", model=path, **given)


def test_module_plans_a_folder(model: Any, tmp_path: Path) -> None:
    model("smollm2-135m")
    result = ask(tmp_path / "smollm2-135m")
    assert (result["changed"], result["plan"]["fits"], result["plan"]["engine"]) == (False, True, "vllm")
    assert set(result["plan"]) == {
        *("fits", "engine", "weights_bytes", "overhead_bytes", "kv_bytes_per_token", "kv_bytes", "max_model_len"),
        *("max_num_seqs", "dtype", "threads", "thread_binding", "environment", "arguments", "memory_max_bytes"),
        *("preload", "expected_tokens_per_s", "reasons", "refusal"),
    }
    json.dumps(result)


def test_module_refuses_and_goes_on_when_forced(model: Any, tmp_path: Path) -> None:
    model("qwen2-7b")
    refused = ask(tmp_path / "qwen2-7b")
    assert refused["failed"]
    assert refused["msg"] == refused["plan"]["refusal"]["text"]
    forced = ask(tmp_path / "qwen2-7b", force=True)
    assert "failed" not in forced
    assert forced["plan"] == refused["plan"]


def test_config_with_an_index_beside_it(model: Any, tmp_path: Path) -> None:
    model("qwen2-7b")
    folder = tmp_path / "qwen2-7b"
    document = {"metadata": {"total_size": 15_231_233_024}, "weight_map": {"a": "model-1.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(document))
    (one,) = read_candidates(str(folder / "config.json"))
    assert (one.narrow_bytes, one.wide_bytes, one.source, one.name) == (
        15_231_233_024,
        30_462_466_048,
        "index",
        "qwen2-7b",
    )


def test_weights_that_are_kept_in_32_bits_are_served_in_16(model: Any) -> None:
    (one,) = model("qwen2-0.5b", torch_dtype="float32")
    assert (one.narrow_bytes, one.wide_bytes, one.source) == (2 * 494_032_768, 4 * 494_032_768, "shape")


def test_candidates_go_through_json_and_back(model: Any, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(gguf())
    for one in [*model("qwen2-7b-awq"), *read_candidates(str(tmp_path / "m.gguf"))]:
        assert candidate_from(json.loads(json.dumps(dataclasses.asdict(one)))) == one


def test_model_info_hands_candidates_on(model: Any, tmp_path: Path) -> None:
    model("smollm2-135m")
    folder = tmp_path / "smollm2-135m"
    (folder / "tokenizer.json").write_text("{}")
    (folder / "pytorch_model.bin").write_bytes(bytes(1000))
    described = run_module("model_info", path=folder)["model"]
    assert [candidate_from(one) for one in described["candidates"]] == read_candidates(str(folder))
    (folder / "broken.gguf").write_bytes(b"GGUF")
    assert run_module("model_info", path=folder)["model"]["candidates"] == []


def test_older_weight_files_count_by_their_size(model: Any, tmp_path: Path) -> None:
    model("smollm2-135m")
    (tmp_path / "smollm2-135m" / "pytorch_model.bin").write_bytes(bytes(1000))
    (one,) = read_candidates(str(tmp_path / "smollm2-135m"))
    assert (one.narrow_bytes, one.source) == (1000, "files")


def test_gguf_is_told_by_its_first_bytes(model: Any, tmp_path: Path) -> None:
    model("smollm2-135m")
    folder = tmp_path / "smollm2-135m"
    (folder / "weights.bin").write_bytes(gguf())
    (folder / "fake.gguf").write_bytes(b"no such thing")
    assert [(one.name, one.form) for one in read_candidates(str(folder))] == [
        ("smollm2-135m", "safetensors"),
        ("weights", "gguf"),
    ]
    assert [one.form for one in read_candidates(str(folder / "weights.bin"))] == ["gguf"]


def test_parts_of_a_split_gguf_count_together(tmp_path: Path) -> None:
    whole = gguf()
    (tmp_path / "whole.gguf").write_bytes(whole)
    (tmp_path / "m-00001-of-00002.gguf").write_bytes(gguf(KEYS, TENSORS[:2]))
    (tmp_path / "m-00002-of-00002.gguf").write_bytes(gguf({"split.no": 1}, TENSORS[2:]))
    split, single = read_candidates(str(tmp_path))
    assert (split.narrow_bytes, split.read_bytes) == (single.narrow_bytes, single.read_bytes)
    assert split.shape == single.shape
    (tmp_path / "m-00002-of-00002.gguf").unlink()
    with pytest.raises(CpufleetError, match=r"m-00002-of-00002\.gguf"):
        read_candidates(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("nothing", None, "it does not exist"),
        ("weights.safetensors", "x", "it is neither a GGUF file nor a config.json"),
        ("config.json", "[]", "it is no JSON object"),
        ("config.json", "{", "as JSON"),
        ("config.json", "{}", "it does not say hidden_size, num_hidden_layers, num_attention_heads"),
    ],
)
def test_what_is_no_model_is_refused(tmp_path: Path, name: str, content: str | None, text: str) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    result = ask(tmp_path / name)
    assert result["failed"]
    assert text in result["msg"]


def test_empty_folder_is_refused(tmp_path: Path) -> None:
    assert ask(tmp_path)["msg"] == (
        f"Cannot plan for the model in {tmp_path}: it holds neither a config.json nor a GGUF file. "
        "Copy the whole model into that folder, or name another one."
    )


def test_nothing_that_is_given_is_changed(model: Any) -> None:
    machine, facts = host(SMALL), source("0.28.0")
    before = copy.deepcopy((machine, facts))
    plan_serve(model("qwen2-7b"), machine, facts, Wish())
    assert (machine, facts) == before


def test_real_small_model_of_the_demo(tmp_path: Path) -> None:
    shutil.copy(FIXTURES / "model" / "SmolLM2-135M-Instruct.json", tmp_path / "config.json")
    plan = plan_serve(read_candidates(str(tmp_path)), host(SMALL), source("0.6.5"), Wish())
    assert (plan["fits"], plan["weights_bytes"], plan["max_model_len"]) == (True, 2 * 134_515_008, 8192)
