# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The first cause in a journal, over captured journals of real failures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._journal import first_cause, message_of
from ansible_collections.cpufleet.vllm.plugins.module_utils._journal_causes import CAUSES

FIXTURES = Path(__file__).parent / "fixtures" / "journal"


def lines(name: str) -> list[str]:
    # A carriage return is written as two characters: a checkout or an editor would mend it.
    return (FIXTURES / f"{name}.log").read_text(encoding="utf-8").replace("\\r", "\r").splitlines()


@pytest.mark.parametrize(
    ("name", "code", "line"),
    [
        ("systemd_bus", "shm_full", "vllm.service: Main process exited, code=killed, status=7/BUS"),
        ("systemd_exec", "program_missing", "vllm.service: Main process exited, code=exited, status=203/EXEC"),
        ("systemd_full", "disk_full", "OSError: [Errno 28] No space left on device"),
        ("systemd_ill", "illegal_instruction", "vllm.service: Main process exited, code=killed, status=4/ILL"),
        ("systemd_kill", "killed", "vllm.service: Main process exited, code=killed, status=9/KILL"),
        ("systemd_oom", "killed", "vllm.service: Main process exited, code=killed, status=9/KILL"),
        ("systemd_oom_v2", "out_of_memory", "vllm.service: A process of this unit has been killed by the OOM killer."),
        ("systemd_perm", "permission_denied", "PermissionError: [Errno 13] Permission denied: '/etc/shadow'"),
        ("systemd_port", "port_in_use", "OSError: [Errno 98] Address already in use"),
        ("systemd_segv", "crashed", "vllm.service: Main process exited, code=killed, status=11/SEGV"),
        ("systemd_sys", "syscall_filtered", "vllm.service: Main process exited, code=killed, status=31/SYS"),
        ("systemd_user", "unit_invalid", "vllm.service: Main process exited, code=exited, status=217/USER"),
        ("vllm_0.6.5_kv_not_whole", "kv_cache_not_whole", "ValueError: invalid literal for int() with base 10: '0.5'"),
        (
            "vllm_0.6.5_model_damaged",
            "model_damaged",
            "Error while deserializing header: MetadataIncompleteBuffer",
        ),
        (
            "vllm_0.6.5_model_missing",
            "model_missing",
            "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or "
            "'namespace/repo_name': '/srv/models/none'. Use `repo_type` argument if needed.",
        ),
        ("vllm_0.6.5_port_in_use", "port_in_use", "OSError: [Errno 98] Address already in use"),
        (
            "vllm_0.6.5_unknown_argument",
            "unknown_argument",
            "api_server.py: error: unrecognized arguments: --no-such-flag 3",
        ),
        ("vllm_0.33_device", "device_not_detected", "No platform detected, vLLM is running on UnspecifiedPlatform"),
        (
            "vllm_0.32_first_request",
            "slot_mapping_stand_in",
            "RuntimeError: Boolean value of Tensor with more than one value is ambiguous",
        ),
        ("unknown_fault", "unknown", "KeyError: 'model.layers.7.mlp.router.weight'"),
    ],
)
def test_first_cause(name: str, code: str, line: str) -> None:
    cause = first_cause(lines(name))
    assert cause is not None
    assert (cause.code, cause.line) == (code, line)


def test_long_lines_are_cut() -> None:
    cause = first_cause(lines("vllm_0.6.5_model_unsupported"))
    assert cause is not None
    assert cause.code == "model_unsupported"
    assert "Model architectures ['Qwen99ForCausalLM'] are not supported for now." in cause.line
    assert len(cause.line) == 400


@pytest.mark.parametrize("noise", [0, 150])
def test_the_wrapper_at_the_end_is_not_the_cause(noise: int) -> None:
    filler = ["INFO 07-10 09:00:02 [loader.py:1] loading"] * noise
    cause = first_cause(filler + lines("vllm_v1_kv_cache") + filler)
    assert cause is not None
    assert cause.code == "kv_cache_too_small"
    assert cause.line.startswith("ValueError: To serve at least one request")
    assert cause.sentence().endswith(
        ": The KV cache does not hold one request of the full context. "
        "Raise model_serve_kv_cache_gib or lower model_serve_max_model_len."
    )


@pytest.mark.parametrize(
    "journal",
    [[], lines("running_well"), ["RuntimeError: Engine core initialization failed. See root cause above."]],
    ids=["empty", "running", "wrapper-only"],
)
def test_no_cause_where_no_line_tells_one(journal: list[str]) -> None:
    assert first_cause(journal) is None


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("ERROR:    [Errno 98] error while attempting to bind on address ('::', 8000): address in use", "port_in_use"),
        ("ImportError: /x/vllm/_C.abi3.so: undefined symbol: _ZN5torch3jit17parseSchemaOrNameE", "kernels_do_not_load"),
        ("AttributeError: '_OpNamespace' '_C' object has no attribute 'silu_and_mul'", "kernels_missing"),
        ("RuntimeError: libtcmalloc is not found in LD_PRELOAD. For best performance", "tcmalloc_missing"),
        ("KeyError: 'getpwuid(): uid not found: 991'", "user_unknown"),
        ("RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory: you tried", "out_of_memory"),
        ("OSError: [Errno 28] No space left on device: '/dev/shm/psm_1'", "shm_full"),
        ("AttributeError: Qwen2Tokenizer has no attribute all_special_tokens_extended", "transformers_too_new"),
        ("AssertionError: assert not self.need_mask", "attention_mask"),
        ("RuntimeError: numa_migrate_pages failed. errno: 1", "numa_binding"),
        ("ValueError: torch.bfloat16 is not supported for quantization method gptq", "dtype_unsupported"),
        ("RuntimeError: 0 active drivers ([]). There should only be one.", "triton_without_driver"),
        ("torch._inductor.exc.InvalidCxxCompiler: No working C++ compiler found", "compiler_missing"),
        ("RuntimeError: can't start new thread", "too_many_threads"),
        # What releases 0.28.0 and 0.32.0 say of a worker that a signal ended, and of an API server.
        ("Worker proc VllmWorker-0 died unexpectedly (exit code: -9), shutting down executor.", "killed"),
        ("Worker proc VllmWorker-0 died unexpectedly (exit code: -4), shutting down executor.", "illegal_instruction"),
        ("Worker proc VllmWorker-0 died unexpectedly (exit code: -7), shutting down executor.", "shm_full"),
        ("Worker proc VllmWorker-0 died unexpectedly (exit code: -11), shutting down executor.", "crashed"),
        ("Worker proc VllmWorker-0 died unexpectedly (exit code: -31), shutting down executor.", "syscall_filtered"),
        ("RuntimeError: Process EngineCore_DP0 (PID: 77) died with exit code -9", "killed"),
    ],
)  # fmt: skip
def test_messages_of_known_faults(line: str, code: str) -> None:
    cause = first_cause(["Traceback (most recent call last):", line])
    assert cause is not None
    assert cause.code == code


def test_a_warning_is_no_cause_when_it_does_not_stop_the_engine() -> None:
    warning = "WARNING 12-06 10:00:01 loader.py:3] [Errno 28] No space left on device"
    assert first_cause([warning]) is None
    assert first_cause(["WARNING 12-06 10:00:01 _custom_ops.py:20] Failed to import from vllm._C with x"]) is not None


def test_a_named_fault_wins_over_an_earlier_exit_status() -> None:
    cause = first_cause([*lines("systemd_kill"), *lines("vllm_0.6.5_port_in_use")])
    assert cause is not None
    assert cause.code == "port_in_use"


@pytest.mark.parametrize(
    ("raw", "level", "text"),
    [
        ("ERROR 12-06 10:00:00 engine.py:366] boom", "ERROR", "boom"),
        ("(EngineCore_0 pid=12) ERROR 12-06 10:00:00 [core.py:390] boom", "ERROR", "boom"),
        ("(Worker pid=3) (EngineCore pid=12) INFO 12-06 10:00:00 [v1/core.py:390] fine", "INFO", "fine"),
        ("\x1b[32mINFO\x1b[0m:     Started", "INFO", "Started"),
        ("(APIServer pid=9) RuntimeError: x", "", "RuntimeError: x"),
        ("ERROR 12-06 10:00:00 engine.py:366]   File \"x\"", "ERROR", '  File "x"'),
        ("ERROR 12-06 10:00:00 engine.py:366] KeyError: 'x'\r", "ERROR", "KeyError: 'x'"),
        ("plain", "", "plain"),
    ],
)  # fmt: skip
def test_prefixes_are_taken_off(raw: str, level: str, text: str) -> None:
    assert message_of(raw) == (level, text)


def test_every_cause_has_a_code_a_text_and_a_remedy() -> None:
    for cause in CAUSES:
        assert re.fullmatch(r"[a-z_]+", cause.code)
        assert cause.text
        assert cause.remedy
        assert not cause.text.endswith(".")
        assert not cause.remedy.endswith(".")
