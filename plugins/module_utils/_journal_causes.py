# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""The known causes of a service that does not start or dies, as they show in its journal.

Rank 1 names a fault itself; rank 2 only how the process ended, and counts when no line names a fault. Within a rank
the oldest line wins; for one line the first entry here that fits.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Pattern

__all__ = ("CAUSES", "Known")


@dataclass(frozen=True)
class Known:
    """One known cause: the pattern of its line, a stable code, what it means and what to do."""

    code: str
    pattern: Pattern[str]
    text: str
    remedy: str
    rank: int = 1
    any_level: bool = False  # counts on INFO and WARNING lines too


def _known(code: str, pattern: str, text: str, remedy: str, rank: int = 1, any_level: bool = False) -> Known:
    return Known(code, re.compile(pattern), text, remedy, rank, any_level)


STARTING = (
    _known(
        "port_in_use",
        r"\[Errno 98\]|[Aa]ddress already in use",
        "Another process listens on the service's port",
        "Find it with `ss -ltnp`, stop it, or set model_serve_port to a free port",
    ),
    _known(
        "unknown_argument",
        r"unrecognized arguments?: |error: argument -|error: ambiguous option",
        "The engine does not know an argument of its command line",
        "Arguments differ from release to release: correct model_serve_extra_arguments",
    ),
    _known(
        "tcmalloc_missing",
        r"libtcmalloc is not found in LD_PRELOAD",
        "This release refuses to start without tcmalloc in LD_PRELOAD",
        "Install the tcmalloc package of the distribution and preload the file it brings",
    ),
    _known(
        "user_unknown",
        r"getpwuid\(\): uid not found",
        "The service runs under a user id that has no name",
        "Run it as a real system user with a home folder",
    ),
    _known(
        "program_missing",
        r"status=203/EXEC",
        "The program of the unit cannot be started",
        "The release's venv is incomplete or was moved: run the play again",
    ),
    _known(
        "unit_invalid",
        r"status=(?:200/CHDIR|209/STDOUT|216/GROUP|217/USER|218/CAPABILITIES|226/NAMESPACE|228/SECCOMP|238/STATE_DIRECTORY)",
        "systemd cannot set up the unit's environment",
        "The text after the status names what is missing: a user, a folder, or a right that this host does not give",
    ),
    _known(
        "syscall_filtered",
        r"status=31/SYS|exit ?code:? -31\b",
        "The unit's system call filter killed the process",
        "Allow the call that the kernel log names, or report it",
    ),
    _known(
        "permission_denied",
        r"PermissionError: \[Errno 13\]",
        "The service may not read or write a file",
        "Give its user the right to the path in that line",
    ),
    _known(
        "too_many_threads",
        r"can't start new thread|Resource temporarily unavailable.*thread|libgomp: Thread creation failed",
        "The host gives the service no more threads",
        "Raise the unit's TasksMax",
    ),
)

ENGINE = (
    _known(
        "device_not_detected",
        r"Failed to infer device type|Unable to infer device type|running on UnspecifiedPlatform",
        "vLLM takes this machine for one without any device: the installed build is not one for the CPU",
        "Run cpufleet.vllm.platform_info on the release's Python; it names why the CPU is not detected",
        any_level=True,
    ),
    _known(
        "kernels_do_not_load",
        r"_C\S*\.so: undefined symbol|vllm\._C.*undefined symbol",
        "vLLM's kernels were built against another torch than the one installed",
        "Build the release again; torch must not be replaced afterwards",
        any_level=True,
    ),
    _known(
        "kernels_missing",
        r"No module named 'vllm\._C|'_OpNamespace' '_C\w*' object has no attribute",
        "vLLM's compiled kernels are missing",
        "Install a CPU build, and start the service outside vLLM's source folder",
        any_level=True,
    ),
    _known(
        "illegal_instruction",
        r"status=4/ILL|\bSIGILL\b|Illegal instruction|exit ?code:? -4\b",
        "vLLM was built for a CPU with more instructions than this one has",
        "Set vllm_isa_class to what this host offers and build again",
    ),
    _known(
        "async_output_unsupported",
        r"in verify_async_output_proc$|verify_async_output_proc.*NotImplementedError",
        "vLLM asks its platform about asynchronous output, which this platform does not implement",
        "Apply cpufleet.vllm.config_patch to the release",
    ),
    _known(
        "triton_without_driver",
        r"0 active drivers \(\[\]\)|cannot import name '\w+' from 'triton",
        "A triton for GPUs is installed and breaks vLLM on the CPU",
        "Remove triton from the release's venv",
    ),
    _known(
        "transformers_too_new",
        r"has no attribute '?all_special_tokens_extended",
        "The installed transformers is newer than this vLLM can use",
        "Install the dependencies from the release's lock",
    ),
    _known(
        "slot_mapping_stand_in",
        r"Boolean value of Tensor with more than one value is ambiguous",
        "This vLLM release carries a broken stand-in for a Triton kernel and dies on the first request",
        "Apply cpufleet.vllm.source_fix to the release, or use another release",
    ),
    _known(
        "attention_mask",
        r"assert not self\.need_mask",
        "This vLLM release has no kernel for the model's attention mask on this CPU",
        "Use another release or another model",
    ),
    _known(
        "numa_binding",
        r"numa_migrate_pages failed",
        "The service may not move memory between NUMA nodes, which thread binding asks for",
        "Leave VLLM_CPU_OMP_THREADS_BIND unset, or give the unit CAP_SYS_NICE",
    ),
    _known(
        "compiler_missing",
        r"InvalidCxxCompiler|No working C\+\+ compiler|ninja: not found"
        r"|No such file or directory: '(?:g\+\+|c\+\+|ninja)'",
        "The engine compiles at run time and finds no C++ compiler or no ninja",
        "Set model_serve_enforce_eager to true, or install g++ and keep the venv's bin folder first in the unit's PATH",
    ),
)

MEMORY = (
    _known(
        "kv_cache_too_small",
        r"larger than the available KV cache memory|No available memory for the cache blocks"
        r"|larger than the maximum number of tokens that can be stored in KV cache|KV cache is needed",
        "The KV cache does not hold one request of the full context",
        "Raise model_serve_kv_cache_gib or lower model_serve_max_model_len",
    ),
    _known(
        "kv_cache_not_whole",
        r"invalid literal for int\(\) with base 10: '\d+\.\d+'",
        "A setting that must be a whole number has a fraction, most likely the KV cache's size",
        "Set model_serve_kv_cache_gib to a whole number of GiB",
    ),
    _known(
        "out_of_memory",
        r"killed by the OOM killer|result 'oom-kill'|Out of memory: Killed process|Memory cgroup out of memory"
        r"|DefaultCPUAllocator: (?:can't|not enough) |std::bad_alloc|\[Errno 12\] Cannot allocate memory|^MemoryError",
        "The service ran out of memory",
        "Lower model_serve_kv_cache_gib, choose a smaller model, or give the host more memory",
        any_level=True,
    ),
    _known(
        "shm_full",
        r"status=7/BUS|exit ?code:? -7\b|\bSIGBUS\b|Bus error|insufficient shared memory"
        r"|No space left on device.*/dev/shm|/dev/shm.*No space left on device",
        "There is no space left in /dev/shm, which vLLM's processes share memory through",
        "Give /dev/shm at least 256 MiB",
    ),
    _known(
        "disk_full",
        r"\[Errno 28\]|No space left on device",
        "The disk is full",
        "Free space where the line says; `df -h` shows the file systems",
    ),
)

MODEL = (
    _known(
        "model_damaged",
        r"SafetensorError|MetadataIncompleteBuffer|HeaderTooLarge|InvalidHeader|Error while deserializing header",
        "A weights file of the model is damaged or cut short",
        "Copy the model again and compare its files with their sha256",
    ),
    _known(
        "model_missing",
        r"does not appear to have a file named|Can't load (?:the configuration|tokenizer|the model)"
        r"|Cannot find any model weights|is not a local folder and is not a valid model identifier"
        r"|Repo id must be in the form|Incorrect path_or_model_id|outgoing traffic has been disabled"
        r"|OfflineModeIsEnabled|LocalEntryNotFoundError"
        r"|No such file or directory: '[^']*(?:config|tokenizer)\w*\.json'",
        "The model's folder is missing or incomplete",
        "Check that model_serve_model names a folder with config.json, tokenizer and weights, readable by the service",
    ),
    _known(
        "model_unsupported",
        r"Model architectures? .* (?:are|is) not supported|does not recognize this architecture",
        "This vLLM release does not know the model's architecture",
        "Use a newer vllm_version or another model",
    ),
    _known(
        "dtype_unsupported",
        r"(?:bfloat16|float16|half) is not supported for quantization method|not supported on CPU.*dtype",
        "This release does not run the model's quantization in that data type on a CPU",
        "Set model_serve_dtype to one that it names, or use a model without quantization",
    ),
)

ENDED = (
    # Releases also warn about kernels of platforms that they then do not use, so this is no more than a hint.
    _known(
        "kernels_missing",
        r"Failed to import from vllm\._C",
        "vLLM's compiled kernels could not be loaded",
        "Run cpufleet.vllm.platform_info on the release's Python; it names why",
        rank=2,
        any_level=True,
    ),
    _known(
        "killed",
        r"code=killed, status=9/KILL|exit ?code:? -9\b",
        "The process was killed from outside, most often by the kernel for want of memory",
        "See `journalctl -k` for the reason",
        rank=2,
    ),
    _known(
        "crashed",
        r"status=(?:11/SEGV|6/ABRT)|Segmentation fault|exit ?code:? -(?:11|6)\b",
        "The process crashed in native code",
        "See `coredumpctl` or the kernel log; a release built for another CPU or torch is the usual reason",
        rank=2,
    ),
)

CAUSES = STARTING + ENGINE + MEMORY + MODEL + ENDED
