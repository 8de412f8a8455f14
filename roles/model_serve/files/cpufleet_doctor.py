#!/bin/sh
# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
""":"
# Python takes these lines for a text. sh runs them: some distributions have a Python 3 and no command python3.
for python in python3 /usr/libexec/platform-python python3.13 python3.12 python3.11 python3.9 python3.8 python3.6; do
  if command -v "$python" > /dev/null 2>&1; then exec "$python" -I "$0" "$@"; fi
done
echo "cpufleet-doctor: found no Python 3 on this host; name one: /path/to/python3 $0" >&2
exit 3
":"""

import argparse
import base64
import fnmatch
import hashlib
import http.client
import json
import os
import pwd
import re
import shlex
import socket
import ssl
import subprocess
import sys
import threading
import time
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set, Tuple

DESCRIPTION = """Tell what is wrong with a vLLM or llama-server on this host, and what to do about it.

The first line is the verdict, its evidence and the safe next command. Nothing is changed; only `rollback --local` does:
it points `current` back at the deployment before and restarts the service. Run it as root: others see less."""
EPILOG = """exit status: 0 OK, 10 DEAD, 11 HUNG, 12 SWAPPING, 13 OVERLOADED, 14 SLOW, 15 MISCONFIGURED, 2 wrong usage,
3 the doctor itself failed"""

Facts = Dict[str, Any]


def listed(words: str) -> List[str]:
    """Return the words of a text that lists them."""
    return words.split()


# Worst first: of several causes the worst decides.
VERDICTS = ("DEAD", "HUNG", "SWAPPING", "OVERLOADED", "SLOW", "MISCONFIGURED", "OK")
STATUS = {"OK": 0, "DEAD": 10, "HUNG": 11, "SWAPPING": 12, "OVERLOADED": 13, "SLOW": 14, "MISCONFIGURED": 15}
LETTERS = {"D": "DEAD", "H": "HUNG", "W": "SWAPPING", "O": "OVERLOADED", "S": "SLOW", "M": "MISCONFIGURED", "-": ""}
BUDGET_S = 16.0
MIB = 1 << 20
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
LOOK = "cpufleet-doctor --snapshot /var/tmp/cpufleet-doctor"

# What is too much or too little.
SWAP_IN_LIMIT = MIB  # bytes a second that come back from swap, where the service takes part
HOST_SWAP_IN_LIMIT = 8 * MIB  # where it does not
OWN_FAULTS = 20  # pages a second: the service takes part
FAULT_LIMIT = 200  # pages a second that the service reads back from disk
SWAPPED_LIMIT = 64 * MIB  # less is what an idle server has no need of
STEAL_LIMIT = 0.10
IDLE_CPU = 0.02  # of one CPU: an engine that has a request and does less than this does nothing
BUSY_THREAD = 0.25  # of the time between two looks
QUEUE_LIMIT = 4
SLOW_QUESTION_S = 8.0
SHM_NEEDED = 160 * MIB
DISK_NEEDED = 256 * MIB
INODES_NEEDED = 0.01
HASH_AT_ONCE = 512 * MIB
LOADING_S = 60
RESTARTS = 2
LIMIT_MET = 0.97
SECRET_LENGTH = 4  # shorter ones would take ordinary words out
HTTP_OK, HTTP_REFUSED, HTTP_BROKEN, HTTP_LOADING = 200, (401, 403), 500, 503

ISA = {
    "avx2": ("avx2", "fma", "f16c"),
    "avx512": ("avx512f", "avx512bw", "avx512dq", "avx512vl"),
    "avx512_bf16": ("avx512_bf16", "avx512_vnni"),
    "amx": ("amx_tile", "amx_bf16", "amx_int8"),
    "neon": ("asimd", "atomics", "asimdhp", "asimddp"),
    "neon_bf16": ("bf16",),
}
LADDERS = (("avx2", "avx512", "avx512_bf16", "amx"), ("neon", "neon_bf16"))

# Causes in a journal that no restart cures, since something was set wrongly: a service that died of one is
# MISCONFIGURED, of any other it is DEAD.
SETTINGS = frozenset(
    listed(
        "port_in_use unknown_argument tcmalloc_missing user_unknown program_missing unit_invalid syscall_filtered"
        " permission_denied too_many_threads device_not_detected kernels_do_not_load kernels_missing"
        " illegal_instruction async_output_unsupported triton_without_driver transformers_too_new attention_mask"
        " numa_binding compiler_missing kv_cache_too_small kv_cache_not_whole shm_full model_missing"
        " model_unsupported dtype_unsupported"
    )
)

# What the doctor itself finds: code | verdict | meaning | what to do | the next command. D DEAD, H HUNG, W SWAPPING,
# O OVERLOADED, S SLOW, M MISCONFIGURED; "!": keeps the service from running; "~": told after all others; "-": a note,
# which decides nothing.
OWN = """
no_server | D | No vLLM and no llama-server runs on this host, and no unit would start one | Run the playbook site.yml
  for this host | systemctl list-units --all '*vllm*' '*llama*'
not_running | D | The service does not run | Mend the cause below, then restart it | {restart}
stopped_by_hand | D | The service is stopped | Start it | systemctl start {unit}
stopping | D | The service is being stopped | Wait for its end, and look again | sleep 30; cpufleet-doctor
crash_loop | D | The service dies and is started again | Mend the cause below, then restart it | {restart}
oom_killed | D | The service ran out of memory | Choose a smaller KV cache or model, or a larger host | {restart}
engine_dead | D | The server listens and its engine does not answer | Save its state, then restart it | {restart}
process_stopped | H | A process of the server is stopped and computes nothing | Save its state, then restart it |
  {restart}
no_progress | H | The server has work and does nothing | Save its state, then restart it | {restart}
silent | H | The server takes connections and does not answer | Save its state, then restart it | {restart}
loading_hangs | H | The server does not listen and does nothing | Save its state, then restart it | {restart}
swapping | W | There is too little memory: it is read back from swap or disk | Stop what else needs memory, or take a
  smaller KV cache or model | ps -eo pid,user,rss,comm --sort=-rss | head
queue | O | Requests wait: more is asked than the server can do | Fewer clients at a time, or one more host | {again}
preempted | O | The KV cache does not hold the running requests, which are computed again | Fewer clients at a time,
  or a larger KV cache | {again}
cpu_taken | O | Other processes take the processors | Stop them, or serve on a host of its own | top -b -n 1 | head
  -15
loading | S | The server does not listen yet: it loads its model | Wait, and look again | sleep 30; cpufleet-doctor
slow_answer | S | A single token takes long | A long prompt of another client, or too small a host: see what else is
  told | {again}
steal | S | The hypervisor gives the processors to others | Ask the provider, or move to another host | vmstat 1 5
throttled | S | The service meets its CPU quota | Raise the quota of the unit or the container | systemctl show {unit}
  --property=CPUQuotaPerSecUSec
too_many_threads_compute | S~ | More threads compute than there are CPUs | Set OMP_NUM_THREADS to the CPUs of this host
  (model_serve_extra_environment) | {show}
idle_cores | S~ | Fewer threads compute than there are cores | Set OMP_NUM_THREADS or VLLM_CPU_OMP_THREADS_BIND to the
  CPUs of this host | {show}
port_in_use | M! | Another process listens on the service's port | Stop it, or choose another port | ss -ltnp 'sport =
  :{port}'
program_missing | M! | The interpreter of the service is not there | Install the release again: run the playbook |
  {journal}
not_installed | M! | No package vllm is installed for the service | Install the release again: run the playbook |
  {journal}
torch_missing | M! | torch is not installed for the service | Install the release again: run the playbook | {journal}
cuda_torch | M | torch is a build for GPUs | Install the same version with the local part +cpu | {journal}
stray_triton | M | triton is installed, which breaks some releases on a CPU | Remove it from the venv | {journal}
stray_nvidia | M | Packages for GPUs are installed | Make the venv again with a CPU torch | {journal}
several_dist_infos | M | Several packages claim to be vLLM | Make the venv again with one of them | {journal}
wrong_metadata_name | M | vLLM is installed under another name, so that its version cannot be read | Install a wheel
  whose name is vllm | {journal}
version_without_cpu | M | The version of vLLM has no cpu in it, by which many releases decide that they run on one |
  Install a build for the CPU | {journal}
kernels_missing | M! | vLLM's compiled kernels are missing | Install a build for the CPU | {journal}
illegal_instruction | M! | vLLM was built for a CPU with more instructions than this one has | Set vllm_isa_class to
  what this host offers and build again | {journal}
current_differs | M | The service runs another deployment than current names | Run the playbook again | systemctl cat
  {unit}
switch_interrupted | M | A switch of deployments was interrupted | Run the playbook again | {look}
settings_changed | M | A file of the deployment is not as it was installed | Run the playbook again | systemctl cat
  {unit}
lock_changed | M | The lock of the release is not as it was recorded | Run the playbook again | {look}
wheel_changed | M | The wheel of the release is not the one that was built | Build the release again | {look}
model_changed | M | The model on the host is not the one that was verified | Copy the model again: run the playbook |
  cpufleet-doctor --deep
model_touched | - | The model was written to after it had been verified | Compare its bytes | cpufleet-doctor --deep
package_changed | M | Files of vLLM are not what its wheel installed | Make the release again: remove its folder and
  run the playbook | cpufleet-doctor --deep
key_in_command_line | - | The API key stands in the command line, which every user of this host can read | Hand it
  over in VLLM_API_KEY, from a 0600 file | {show}
key_file_missing | M! | A file is missing without which systemd does not start the unit | Run the playbook again, or
  write the file with mode 0600 | {journal}
key_file_empty | M! | The file for the API key is empty | Run the playbook again | {journal}
key_file_unreadable | M! | The service may not read the file with its API key | Give the file to the user that the
  service runs as | {show}
key_file_open | M | A file with the API key can be read by others than its owner | Take the rights of others away |
  chmod 0600 {path}
key_refused | M | The server refuses the key in its key file | Restart it, so that it reads the file again | {restart}
key_stale | M | The server runs with another key than its key file holds | Restart it, so that it reads the file again
  | {restart}
key_unknown | - | The server wants a key that is not known here, and was not asked for a token | Judge it by its
  counters, or run the doctor as root | {again}
preload_missing | M | A library that the service preloads is not there | Install it, or take it out of LD_PRELOAD |
  {show}
not_enabled | M | The service does not come back after a restart of the host | Enable it | systemctl enable {unit}
reload_needed | M | The unit's file was changed and systemd has not read it | Let systemd read it | systemctl
  daemon-reload
orphan_workers | M | Processes of a vLLM whose server is gone still hold its memory | End them | {look}; kill {pids}
disk_full | M | A disk is full | Free space | df -h {path}
shm_full | M | There is too little space in /dev/shm, which vLLM's processes share memory through | Remove what fills
  it, or give it at least 256 MiB | df -h /dev/shm; ls -lA /dev/shm
prefill | - | The engine computes and made no token while it was looked at: a long prompt | Look longer when in doubt
  | {again}
restarts | - | systemd has restarted the service | See why in its journal | {journal}
swapped_out | - | A part of the service lies in swap: the next request will be slow | Give it more memory | {again}
oom_kills | - | The kernel has killed processes of this service for want of memory | Choose a smaller KV cache or
  model, or a larger host | journalctl -k | tail
oom_in_kernel_log | - | The kernel's log tells of processes that it killed for want of memory | Find out what else needs
  memory | journalctl -k | tail
invalid_opcode | - | The kernel log tells of an instruction that this CPU does not have | Build vLLM for this host's
  ISA class | journalctl -k | tail
not_root | - | The doctor does not run as root and sees no other user's files, keys and sockets | Run it with sudo |
  sudo cpufleet-doctor
"""

# The same as plugins/module_utils/_journal_causes.py, which a test compares: "=" code, rank and whether a line of any
# level counts, "~" pattern, "+" meaning, ">" what to do. A line that goes on begins with the same sign.
KNOWN = r"""
= port_in_use 1 0
~ \[Errno 98\]|[Aa]ddress already in use
+ Another process listens on the service's port
> Find it with `ss -ltnp`, stop it, or set model_serve_port to a free port
= unknown_argument 1 0
~ unrecognized arguments?: |error: argument -|error: ambiguous option
+ The engine does not know an argument of its command line
> Arguments differ from release to release: correct model_serve_extra_arguments
= tcmalloc_missing 1 0
~ libtcmalloc is not found in LD_PRELOAD
+ This release refuses to start without tcmalloc in LD_PRELOAD
> Install the tcmalloc package of the distribution and preload the file it brings
= user_unknown 1 0
~ getpwuid\(\): uid not found
+ The service runs under a user id that has no name
> Run it as a real system user with a home folder
= program_missing 1 0
~ status=203/EXEC
+ The program of the unit cannot be started
> The release's venv is incomplete or was moved: run the play again
= unit_invalid 1 0
~ status=(?:200/CHDIR|209/STDOUT|216/GROUP|217/USER|218/CAPABILITIES|226/NAMESPACE|228/SECCOMP|238/STATE_DIRECTORY)
+ systemd cannot set up the unit's environment
> The text after the status names what is missing: a user, a folder, or a right that this host does not give
= syscall_filtered 1 0
~ status=31/SYS|exit ?code:? -31\b
+ The unit's system call filter killed the process
> Allow the call that the kernel log names, or report it
= permission_denied 1 0
~ PermissionError: \[Errno 13\]
+ The service may not read or write a file
> Give its user the right to the path in that line
= too_many_threads 1 0
~ can't start new thread|Resource temporarily unavailable.*thread|libgomp: Thread creation failed
+ The host gives the service no more threads
> Raise the unit's TasksMax
= device_not_detected 1 1
~ Failed to infer device type|Unable to infer device type|running on UnspecifiedPlatform
+ vLLM takes this machine for one without any device: the installed build is not one for the CPU
> Run cpufleet.vllm.platform_info on the release's Python; it names why the CPU is not detected
= kernels_do_not_load 1 1
~ _C\S*\.so: undefined symbol|vllm\._C.*undefined symbol
+ vLLM's kernels were built against another torch than the one installed
> Build the release again; torch must not be replaced afterwards
= kernels_missing 1 1
~ No module named 'vllm\._C|'_OpNamespace' '_C\w*' object has no attribute
+ vLLM's compiled kernels are missing
> Install a CPU build, and start the service outside vLLM's source folder
= illegal_instruction 1 0
~ status=4/ILL|\bSIGILL\b|Illegal instruction|exit ?code:? -4\b
+ vLLM was built for a CPU with more instructions than this one has
> Set vllm_isa_class to what this host offers and build again
= async_output_unsupported 1 0
~ in verify_async_output_proc$|verify_async_output_proc.*NotImplementedError
+ vLLM asks its platform about asynchronous output, which this platform does not implement
> Apply cpufleet.vllm.config_patch to the release
= triton_without_driver 1 0
~ 0 active drivers \(\[\]\)|cannot import name '\w+' from 'triton
+ A triton for GPUs is installed and breaks vLLM on the CPU
> Remove triton from the release's venv
= transformers_too_new 1 0
~ has no attribute '?all_special_tokens_extended
+ The installed transformers is newer than this vLLM can use
> Install the dependencies from the release's lock
= slot_mapping_stand_in 1 0
~ Boolean value of Tensor with more than one value is ambiguous
+ This vLLM release carries a broken stand-in for a Triton kernel and dies on the first request
> Apply cpufleet.vllm.source_fix to the release, or use another release
= attention_mask 1 0
~ assert not self\.need_mask
+ This vLLM release has no kernel for the model's attention mask on this CPU
> Use another release or another model
= numa_binding 1 0
~ numa_migrate_pages failed
+ The service may not move memory between NUMA nodes, which thread binding asks for
> Leave VLLM_CPU_OMP_THREADS_BIND unset, or give the unit CAP_SYS_NICE
= compiler_missing 1 0
~ InvalidCxxCompiler|No working C\+\+ compiler|ninja: not found|No such file or directory: '(?:g\+\+|c\+\+|ninja)'
+ The engine compiles at run time and finds no C++ compiler or no ninja
> Set model_serve_enforce_eager to true, or install g++ and keep the venv's bin folder first in the unit's PATH
= kv_cache_too_small 1 0
~ larger than the available KV cache memory|No available memory for the cache blocks|larger than the maximum number o
~ f tokens that can be stored in KV cache|KV cache is needed
+ The KV cache does not hold one request of the full context
> Raise model_serve_kv_cache_gib or lower model_serve_max_model_len
= kv_cache_not_whole 1 0
~ invalid literal for int\(\) with base 10: '\d+\.\d+'
+ A setting that must be a whole number has a fraction, most likely the KV cache's size
> Set model_serve_kv_cache_gib to a whole number of GiB
= out_of_memory 1 1
~ killed by the OOM killer|result 'oom-kill'|Out of memory: Killed process|Memory cgroup out of memory|DefaultCPUAlloc
~ ator: (?:can't|not enough) |std::bad_alloc|\[Errno 12\] Cannot allocate memory|^MemoryError
+ The service ran out of memory
> Lower model_serve_kv_cache_gib, choose a smaller model, or give the host more memory
= shm_full 1 0
~ status=7/BUS|exit ?code:? -7\b|\bSIGBUS\b|Bus error|insufficient shared memory|No space left on device.*/dev/shm|/de
~ v/shm.*No space left on device
+ There is no space left in /dev/shm, which vLLM's processes share memory through
> Give /dev/shm at least 256 MiB
= disk_full 1 0
~ \[Errno 28\]|No space left on device
+ The disk is full
> Free space where the line says; `df -h` shows the file systems
= model_damaged 1 0
~ SafetensorError|MetadataIncompleteBuffer|HeaderTooLarge|InvalidHeader|Error while deserializing header
+ A weights file of the model is damaged or cut short
> Copy the model again and compare its files with their sha256
= model_missing 1 0
~ does not appear to have a file named|Can't load (?:the configuration|tokenizer|the model)|Cannot find any model weig
~ hts|is not a local folder and is not a valid model identifier|Repo id must be in the form|Incorrect path_or_model_id
~ |outgoing traffic has been disabled|OfflineModeIsEnabled|LocalEntryNotFoundError|No such file or directory: '[^']*(?
~ :config|tokenizer)\w*\.json'
+ The model's folder is missing or incomplete
> Check that model_serve_model names a folder with config.json, tokenizer and weights, readable by the service
= model_unsupported 1 0
~ Model architectures? .* (?:are|is) not supported|does not recognize this architecture
+ This vLLM release does not know the model's architecture
> Use a newer vllm_version or another model
= dtype_unsupported 1 0
~ (?:bfloat16|float16|half) is not supported for quantization method|not supported on CPU.*dtype
+ This release does not run the model's quantization in that data type on a CPU
> Set model_serve_dtype to one that it names, or use a model without quantization
= kernels_missing 2 1
~ Failed to import from vllm\._C
+ vLLM's compiled kernels could not be loaded
> Run cpufleet.vllm.platform_info on the release's Python; it names why
= killed 2 0
~ code=killed, status=9/KILL|exit ?code:? -9\b
+ The process was killed from outside, most often by the kernel for want of memory
> See `journalctl -k` for the reason
= crashed 2 0
~ status=(?:11/SEGV|6/ABRT)|Segmentation fault|exit ?code:? -(?:11|6)\b
+ The process crashed in native code
> See `coredumpctl` or the kernel log; a release built for another CPU or torch is the usual reason
"""


# --- the first cause in a journal ----------------------------------------------------------------------------------

COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
PREFIX = re.compile(
    r"^(?:\([^()]*pid=\d+\)\s?)*"
    r"(?:(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)"
    r"(?::\s+|\s+\d\d-\d\d \d\d:\d\d:\d\d\s+(?:\[[^\]]*\]|[\w./]+:\d+\])\s?))?"
)
EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Warning|NotFound)(?::|$)")
WRAPPERS = re.compile(
    r"Engine core initialization failed|Engine process failed to start|See (?:root cause|stack trace)"
    r"|EngineDeadError|AsyncEngineDeadError|MQEngineDeadError|EngineGenerateError|Worker failed with error"
    r"|^(?:SystemExit|KeyboardInterrupt|CancelledError|asyncio\.exceptions\.CancelledError)\b"
    r"|EngineCore (?:failed to start|encountered a fatal error)|Failed core proc|WorkerProc failed to start"
    r"|WorkerProc initialization failed|TaskGroup"
)
EXITED = re.compile(r"Main process exited, code=\w+, status=\S+")
UNKNOWN = (
    "unknown",
    "The service failed for a reason that is not in the table of known causes",
    "Read the journal of the unit from that line on",
)


def read_known(table: str) -> List[Facts]:
    """Return the entries of the table of known causes."""
    entries: List[Facts] = []
    for line in table.strip().splitlines():
        sign, text = line[0], line[2:]
        if sign == "=":
            code, rank, any_level = text.split()
            entries.append({"code": code, "rank": int(rank), "any_level": any_level == "1", "~": "", "+": "", ">": ""})
        else:
            entries[-1][sign] += text
    for entry in entries:
        entry["pattern"] = re.compile(entry["~"])
    return entries


def first_cause(lines: Sequence[str]) -> Optional[Dict[str, str]]:
    """Return code, text, remedy and line of the first cause in ``lines`` (oldest first); None where there is none."""
    parsed = list(parse_journal(lines))
    known = read_known(KNOWN)
    for rank in (1, 2):
        for level, text, _final in parsed:
            quiet = level in ("DEBUG", "INFO", "WARNING")
            for entry in known:
                if entry["rank"] == rank and (entry["any_level"] or not quiet) and entry["pattern"].search(text):
                    return {"code": entry["code"], "text": entry["+"], "remedy": entry[">"], "line": shorten(text)}
    choices = (
        [text for _level, text, final in parsed if final],
        [text for level, text, _final in parsed if level in ("ERROR", "CRITICAL") and tells(text)],
        [text for _level, text, _final in parsed if EXITED.search(text) and "status=0" not in text],
    )
    for choice in choices:
        if choice:
            return dict(zip(("code", "text", "remedy"), UNKNOWN), line=shorten(choice[0]))
    return None


def parse_journal(lines: Sequence[str]) -> Iterator[Tuple[str, str, bool]]:
    """Yield level, text and whether it is the exception that ends a traceback (and no wrapper) of each line."""
    within = False
    for raw in lines:
        plain = COLOUR.sub("", raw).rstrip()
        match = PREFIX.match(plain)
        level, text, final = "", plain, False
        if match:
            level, text = match.group("level") or "", plain[match.end() :]
        if "Traceback (most recent call last)" in text:
            within = True
        elif within and EXCEPTION.match(text):
            final, within = not WRAPPERS.search(text), False
        yield level, text, final


def tells(text: str) -> bool:
    """Tell whether an ERROR line says more than that something failed."""
    return bool(text.strip()) and not text.startswith((" ", "Traceback")) and not WRAPPERS.search(text)


def shorten(text: str, limit: int = 400) -> str:
    """Return ``text`` on one line of at most ``limit`` characters."""
    text = text.strip()
    return text if len(text) <= limit else text[: limit - 3] + "..."


# --- reading the machine ----------------------------------------------------------------------------------------


class Machine:
    """Every look at the machine goes through here: files below a root, commands and requests with a time limit.

    With another root than / only files are read: what runs there cannot be asked.
    """

    def __init__(self, root: str = "/", budget: float = BUDGET_S) -> None:
        self.root = root.rstrip("/")
        self.live = not self.root
        self.end = time.monotonic() + budget

    def left(self, most: float) -> float:
        """Return the seconds that a step may take, of ``most``."""
        return max(0.2, min(most, self.end - time.monotonic()))

    def data(self, name: str, limit: int = 4 * MIB) -> bytes:
        """Return the bytes of a file, nothing where it cannot be read."""
        try:
            with open(self.root + name, "rb") as stream:
                return stream.read(limit)
        except OSError:
            return b""

    def text(self, name: str, limit: int = 4 * MIB) -> str:
        """Return the text of a file, empty where it cannot be read."""
        return self.data(name, limit).decode("utf-8", "replace")

    def document(self, name: str) -> Facts:
        """Return the JSON object in a file, empty where there is none."""
        try:
            found = json.loads(self.text(name))
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def names(self, folder: str) -> List[str]:
        """Return what is in a folder, sorted."""
        try:
            return sorted(os.listdir(self.root + folder))
        except OSError:
            return []

    def link(self, name: str) -> str:
        """Return where a symbolic link points, empty where it is none."""
        try:
            return os.readlink(self.root + name)
        except OSError:
            return ""

    def status(self, name: str) -> Optional[os.stat_result]:
        """Return the status of a file, None where there is none; an absolute link is followed below the root."""
        for _step in range(8):
            target = self.link(name)
            if self.live or not target:
                break
            name = os.path.normpath(os.path.join(os.path.dirname(name), target))
        try:
            return os.stat(self.root + name)
        except OSError:
            return None

    def missing(self, name: str) -> bool:
        """Tell whether there is no such file; one that may not be looked for is not said to be missing."""
        try:
            os.stat(self.root + name)
        except PermissionError:
            return False
        except OSError:
            return self.status(name) is None
        return False

    def space(self, name: str) -> Optional[os.statvfs_result]:
        """Return the space of the filesystem that ``name``, or the nearest folder above it that exists, lies on."""
        while name != "/" and self.status(name) is None:
            name = os.path.dirname(name)
        try:
            return os.statvfs(self.root + name)
        except OSError:
            return None

    def digest(self, name: str) -> str:
        """Return the SHA-256 of a file, empty where it cannot be read."""
        value = hashlib.sha256()
        try:
            with open(self.root + name, "rb") as stream:
                for block in iter(lambda: stream.read(MIB), b""):
                    value.update(block)
        except OSError:
            return ""
        return value.hexdigest()

    def command(self, words: Sequence[str], most: float = 4.0) -> str:
        """Return what a command prints, empty where it is missing or takes too long."""
        if not self.live:
            return ""
        try:
            done = subprocess.run(  # noqa: S603 - words of this file, and names of units and processes
                list(words),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=self.left(most),
                env=dict(os.environ, LC_ALL="C", SYSTEMD_PAGER="", SYSTEMD_COLORS="0"),
                check=False,
            )
        except (OSError, subprocess.SubprocessError):
            return ""
        return done.stdout.decode("utf-8", "replace")


class Secrets:
    """Takes secrets out of everything that is printed or saved: those that were seen, and what looks like one."""

    PATTERNS = (
        re.compile(r"(--(?:api[-_]key|hf[-_]token)[= \0]+)[^\s\0]+"),
        re.compile(r"(\b[A-Z0-9_]*(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD)[A-Z0-9_]*=)[^\s\0\"]+"),
        re.compile(r"(['\"]?(?:api_key|hf_token|token|password)['\"]?\s*[:=]\s*\[?\s*['\"])[^'\"]+"),
        re.compile(r"([Bb]earer\s+)[^\s'\"]+"),
        re.compile(r"(://)[^/\s:@]+:[^/\s@]+(?=@)"),
        re.compile(r"()\b(?:sk|hf)[-_][A-Za-z0-9_-]{8,}"),
    )

    def __init__(self) -> None:
        self.seen: Set[str] = set()

    def learn(self, value: str) -> None:
        """Remember a secret, so that it is taken out wherever it stands."""
        if len(value) >= SECRET_LENGTH:
            self.seen.add(value)

    def clean(self, text: str) -> str:
        """Return ``text`` without secrets."""
        for value in sorted(self.seen, key=len, reverse=True):
            text = text.replace(value, "***")
        for pattern in self.PATTERNS:
            text = pattern.sub(r"\1***", text)
        return text


def number(text: str, default: int = 0) -> int:
    """Return the whole number that ``text`` is, else ``default``."""
    text = text.strip()
    return int(text) if text.isdigit() else default


def kib(text: str) -> int:
    """Return the bytes of ``123 kB``."""
    return number((text.split() or [""])[0]) * 1024


def fields(text: str, separator: str = ":") -> Dict[str, str]:
    """Return the ``name<separator>value`` lines of ``text``."""
    pairs = (line.partition(separator) for line in text.splitlines() if separator in line)
    return {name.strip(): value.strip() for name, _separator, value in pairs}


def cpu_list(text: str) -> Set[int]:
    """Return the CPUs of a list such as ``0-3,8``."""
    cpus: Set[int] = set()
    for part in text.replace("|", ",").split(","):
        first, _dash, last = part.strip().partition("-")
        if first.isdigit() and (not last or last.isdigit()):
            cpus.update(range(int(first), int(last or first) + 1))
    return cpus


def human(value: float) -> str:
    """Return bytes as people write them."""
    for unit, size in (("GiB", 1 << 30), ("MiB", MIB), ("KiB", 1024)):
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.0f} B"


# --- processes --------------------------------------------------------------------------------------------------


def read_process(machine: Machine, pid: int) -> Optional[Facts]:
    """Return what /proc says of a process; None for a kernel thread and for one that has ended."""
    words = [word for word in machine.text(f"/proc/{pid}/cmdline", 65536).split("\0") if word.strip()]
    name, _bracket, rest = machine.text(f"/proc/{pid}/stat").rpartition(")")
    values = rest.split()
    if len(values) < 20 or not (words or values[0] == "Z"):  # noqa: PLR2004 - the fields that are read below
        return None
    return {
        "pid": pid,
        "ppid": int(values[1]),
        "name": name.partition("(")[2],
        "state": values[0],
        "words": words or [name.partition("(")[2]],
        "faults": int(values[9]),
        "started": int(values[19]),
    }


def read_processes(machine: Machine) -> Dict[int, Facts]:
    """Return every process by its number."""
    found = (read_process(machine, int(name)) for name in machine.names("/proc") if name.isdigit())
    return {process["pid"]: process for process in found if process}


def engine_of(words: Sequence[str]) -> str:
    """Return which engine a command line starts, ``vllm`` or ``llama_cpp``; empty for any other."""
    program = os.path.basename(words[0]) if words else ""
    if program == "llama-server":
        return "llama_cpp"
    python = program.startswith("python")
    for index, word in enumerate(words[:8]):
        following = words[index + 1] if len(words) > index + 1 else ""
        if python and index and word == "-m":
            if following == "llama_cpp.server":
                return "llama_cpp"
            return "vllm" if re.match(r"vllm\.entrypoints\.(?:openai\.)?api_server$", following) else ""
        if python and index and word.endswith("vllm/entrypoints/openai/api_server.py"):
            return "vllm"
        if os.path.basename(word) == "vllm" and (index == 0 or python) and following == "serve":
            return "vllm"
    return ""


def part_of(machine: Machine, words: Sequence[str]) -> str:
    """Return which part of vLLM a process is by its title: worker, engine, api or empty."""
    for start, part in (("VLLM::Worker", "worker"), ("VLLM::EngineCore", "engine"), ("VLLM::", "api")):
        if words[0].startswith(start):
            return part
    spawned = any("multiprocessing.spawn" in word for word in words)
    return "engine" if spawned and packages_of(machine, words[0], "vllm") else ""


def packages_of(machine: Machine, python: str, package: str) -> str:
    """Return the folder of site-packages beside the interpreter ``python`` that holds ``package``."""
    venv = os.path.dirname(os.path.dirname(python))
    for library in ("lib", "lib64"):
        for name in machine.names(os.path.join(venv, library)) if python.startswith("/") else []:
            folder = os.path.join(venv, library, name, "site-packages")
            if name.startswith("python") and machine.status(os.path.join(folder, package)):
                return folder
    return ""


def option(words: Sequence[str], *names: str) -> str:
    """Return the value of a command line's option in either spelling, empty where it is not given."""
    for index, word in enumerate(words):
        for name in names:
            if word == name and index + 1 < len(words):
                return words[index + 1]
            if word.startswith(name + "="):
                return word[len(name) + 1 :]
    return ""


def unit_of(cgroup: str) -> str:
    """Return the service that a process belongs to, from its /proc/<pid>/cgroup."""
    found = re.findall(r"/((?!user@)[^/\n]+\.service)(?=/|$)", cgroup, re.MULTILINE)
    return str(found[-1]) if found else ""


def family(processes: Dict[int, Facts], pid: int) -> List[int]:
    """Return ``pid`` and all that descend from it."""
    found = [pid]
    for parent in found:
        found += [child["pid"] for child in processes.values() if child["ppid"] == parent and child["pid"] not in found]
    return found


def find_servers(machine: Machine, processes: Dict[int, Facts]) -> List[Facts]:
    """Return the servers that run, each with its processes."""
    roots = {pid: process for pid, process in processes.items() if engine_of(process["words"])}
    servers = []
    for pid, process in roots.items():
        if process["ppid"] in roots:
            continue  # a fork of its server
        members = [describe(machine, processes[member], member == pid) for member in family(processes, pid)]
        server = {"engine": engine_of(process["words"]), "pid": pid, "words": process["words"], "processes": members}
        servers.append(dict(server, unit=unit_of(machine.text(f"/proc/{pid}/cgroup"))))
    return servers


def describe(machine: Machine, process: Facts, root: bool) -> Facts:
    """Return what the doctor tells of one process of a server."""
    pid, words = process["pid"], process["words"]
    status = fields(machine.text(f"/proc/{pid}/status"))
    fork = "engine" if engine_of(words) else ""
    uptime = machine.text("/proc/uptime").split() or ["0"]
    return {
        "pid": pid,
        "ppid": process["ppid"],
        "part": "server" if root else part_of(machine, words) or fork,
        "title": os.path.basename(words[0].strip()),
        "state": process["state"],
        "rss_bytes": kib(status.get("VmRSS", "")),
        "swap_bytes": kib(status.get("VmSwap", "")),
        "threads": number(status.get("Threads", "")),
        "cpus": sorted(cpu_list(status.get("Cpus_allowed_list", ""))),
        "up_s": round(max(0.0, float(uptime[0]) - process["started"] / TICKS)),
    }


def find_orphans(machine: Machine, processes: Dict[int, Facts], servers: Sequence[Facts]) -> List[Facts]:
    """Return processes of a vLLM whose server is gone; they hold its memory."""
    owned = {member["pid"] for server in servers for member in server["processes"]}
    parts = {pid for pid, process in processes.items() if part_of(machine, process["words"])}
    found = []
    for pid in sorted(parts - owned):
        process = processes[pid]
        parent = processes.get(process["ppid"], {"pid": 0, "name": "systemd"})
        # A subreaper such as a user's systemd adopts in place of process 1.
        adopted = process["ppid"] == 1 or parent["name"] in ("systemd", "init", "docker-init", "tini")
        if process["state"] != "Z" and (adopted or parent["pid"] in parts):
            unit = unit_of(machine.text(f"/proc/{pid}/cgroup"))
            found.append(dict(describe(machine, process, False), unit=unit))
    return found


def environment_of(machine: Machine, pid: int) -> Dict[str, str]:
    """Return the environment that a process was started with; root alone may read another user's."""
    pairs = (entry.partition("=") for entry in machine.text(f"/proc/{pid}/environ").split("\0"))
    return {name: value for name, separator, value in pairs if separator}


# --- what systemd and the kernel's log know -----------------------------------------------------------------------

BASES = ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib")
UNIT_FOLDERS = [base + "/systemd/system" for base in BASES] + ["/run/systemd/transient"]
PROPERTIES = listed(
    "LoadState ActiveState SubState Result NRestarts InvocationID MainPID UnitFileState ExecMainStatus ExecMainCode"
    " NeedDaemonReload StateChangeTimestamp ExecMainStartTimestampMonotonic"
)
STARTS_ENGINE = re.compile(r"vllm\.entrypoints|\bvllm\s+serve\b|llama-server|llama_cpp\.server")


def find_units(machine: Machine) -> Dict[str, Facts]:
    """Return the units whose files start an engine, by name."""
    found: Dict[str, Facts] = {}
    for folder in UNIT_FOLDERS:
        for name in machine.names(folder):
            if name.endswith(".service") and not name.endswith("@.service") and name not in found:
                file = os.path.join(folder, name)
                unit = parse_unit_file(name, file, machine.text(file, MIB))
                if unit:
                    found[name] = unit
    return found


def parse_unit_file(name: str, file: str, text: str) -> Optional[Facts]:
    """Return what the doctor needs of a unit file; None where it starts no engine."""
    joined = re.sub(r"\\\n\s*", " ", text)
    command = "".join(re.findall(r"^ExecStart=[-@:+!]*(.*)$", joined, re.MULTILINE)[-1:])
    if not STARTS_ENGINE.search(command) or "cpufleet-watchdog" in command:
        return None
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    if not engine_of(words):  # a shell around it
        words = " ".join(words).split()
        words = words[next((index for index in range(len(words)) if engine_of(words[index:])), 0) :]
    files = [path.strip().strip('"') for path in re.findall(r"^EnvironmentFile=(\S.*)$", joined, re.MULTILINE)]
    return {
        "unit": name,
        "file": file,
        "words": [word.replace("$$", "$").replace("%%", "%") for word in words],
        "engine": engine_of(words) or "vllm",
        "environment_files": files,
        "user": "".join(re.findall(r"^User=(\S+)", joined, re.MULTILINE)[-1:]),
    }


def systemd_state(machine: Machine, unit: str) -> Facts:
    """Return what systemd says of a unit, empty where it cannot be asked."""
    words = ["systemctl", "show", unit] + ["--property=" + name for name in PROPERTIES]
    state: Facts = dict(fields(machine.command(words), "=")) if unit else {}
    if state:
        state["NRestarts"] = number(state.get("NRestarts", ""))
    return state


def journal_of(machine: Machine, unit: str, invocation: str, recent: Sequence[str] = ()) -> List[str]:
    """Return the journal of a unit's last start, or its newest lines where that start is not known."""
    command = ["journalctl", "--no-pager", "--quiet", "--output=cat"]
    text = ""
    if unit and invocation:
        start = ["--lines=5000", "_SYSTEMD_INVOCATION_ID=" + invocation, "+", "INVOCATION_ID=" + invocation]
        text = machine.command(command + start, 5.0)
    if unit and not text:
        text = machine.command([*command, "--lines=400", "--boot", *recent, "--unit=" + unit], 4.0)
    return text.splitlines()


def cause_in_journal(machine: Machine, server: Facts, secrets: Secrets) -> Optional[Dict[str, str]]:
    """Return why a unit does not serve; a start that has said nothing yet is judged by those shortly before it."""
    state = server["systemd"]
    found = first_cause(list(map(secrets.clean, journal_of(machine, server["unit"], state.get("InvocationID", "")))))
    if state.get("NRestarts", 0) and (not found or found["code"] == UNKNOWN[0]):
        lines = journal_of(machine, server["unit"], "", ["--since=-15min"])
        found = first_cause(list(map(secrets.clean, lines))) or found
    return found


def kernel_log(machine: Machine) -> Facts:
    """Return what the kernel's log tells of kills and faults since the host was started."""
    words = ["journalctl", "--dmesg", "--no-pager", "--quiet", "--output=short-monotonic", "--lines=5000"]
    text = machine.command(words, 3.0).strip() or machine.command(["dmesg"], 2.0)
    return parse_kernel_log(text.strip() or machine.text("/var/log/kern.log")[-MIB:])


def parse_kernel_log(text: str) -> Facts:
    """Return the kills for want of memory, those of services with their time since boot, and illegal instructions."""
    kills = re.findall(r"^.*(?:Out of memory|Memory cgroup out of memory): Killed process.*$", text, re.MULTILINE)
    traps = re.findall(r"^.*(?:python|vllm|VLLM|llama).*trap invalid opcode.*$", text, re.MULTILINE)
    groups = re.findall(
        r"^\[\s*(\d+)\.\d+\].*oom-kill:.*task_memcg=([^,\s]*),task=(\S+?),pid=(\d+)", text, re.MULTILINE
    )
    return {
        "readable": bool(text),
        "oom": [shorten(line, 200) for line in kills[-5:]],
        "oom_units": [
            {"at_s": int(at), "unit": unit_of(group), "evidence": f"the kernel killed {name} (pid {pid}) for memory"}
            for at, group, name, pid in groups
            if unit_of(group)
        ],
        "invalid_opcode": [shorten(line, 200) for line in traps[-3:]],
    }


# --- counters, looked at twice ------------------------------------------------------------------------------------

METRICS = {
    "generation": ("vllm:generation_tokens_total", "llamacpp:tokens_predicted_total"),
    "prompt": ("vllm:prompt_tokens_total", "llamacpp:prompt_tokens_total"),
    "running": ("vllm:num_requests_running", "llamacpp:requests_processing"),
    "waiting": ("vllm:num_requests_waiting", "llamacpp:requests_deferred"),
    "preemptions": ("vllm:num_preemptions_total",),
}
CACHE = ("vllm:kv_cache_usage_perc", "vllm:cpu_cache_usage_perc", "vllm:gpu_cache_usage_perc")


def parse_metrics(text: str) -> Dict[str, float]:
    """Return the counters that matter from a Prometheus page, summed over labels; empty where it has none."""
    values: Dict[str, List[float]] = {}
    for name, value in re.findall(r"^([A-Za-z_:]+)(?:\{[^}]*\})?\s+(\d[0-9.eE+-]*)\s*$", text, re.MULTILINE):
        values.setdefault(name, []).append(float(value))
    found = {}
    for key, names in METRICS.items():
        present = [sum(values[name]) for name in names if name in values]
        found.update({key: present[0]} if present else {})
    cache = [max(values[name]) for name in CACHE if name in values]
    return dict(found, cache=max(cache)) if cache else found


def look(machine: Machine, servers: Sequence[Facts]) -> Facts:
    """Read all counters once."""
    members = [member["pid"] for server in servers for member in server["processes"]]
    processes = {pid: read_process(machine, pid) or {} for pid in members}
    return {
        "time": time.monotonic(),
        "vmstat": {name: number(value) for name, value in fields(machine.text("/proc/vmstat"), " ").items()},
        "cpu": [number(value) for value in machine.text("/proc/stat").partition("\n")[0].split()[1:]],
        "tasks": {pid: read_tasks(machine, pid) for pid in members},
        "faults": {pid: process.get("faults", 0) for pid, process in processes.items()},
        "states": {pid: process.get("state", "gone") for pid, process in processes.items()},
        "read": {pid: number(fields(machine.text(f"/proc/{pid}/io")).get("rchar", "")) for pid in members},
        "cgroup": {server["pid"]: read_cgroup(machine, server["pid"]) for server in servers},
    }


def read_tasks(machine: Machine, pid: int) -> Dict[str, int]:
    """Return the processor ticks of every thread of a process."""
    found = {}
    for task in machine.names(f"/proc/{pid}/task"):
        values = machine.text(f"/proc/{pid}/task/{task}/stat").rpartition(")")[2].split()
        if len(values) > 12:  # noqa: PLR2004 - up to the processor times
            found[task] = int(values[11]) + int(values[12])
    return found


def read_cgroup(machine: Machine, pid: int) -> Facts:
    """Return limits and counters of the cgroup of a process, in either version; limits bind from every level above."""
    paths: Dict[str, str] = {}
    for line in machine.text(f"/proc/{pid}/cgroup").splitlines():
        _number, controllers, path = [*line.split(":", 2), "", ""][:3]
        paths.update({name: path.rstrip("/") for name in controllers.split(",")})

    def read(controller: str, name: str) -> List[str]:
        """Return what a file says on each level, from the process's own one upwards."""
        path = paths.get(controller, paths.get("", ""))
        bases = [controller] if controller in paths else ["", "unified"]
        levels = ["/".join(path.split("/")[:end]) for end in range(path.count("/") + 1, 0, -1)]
        texts = [
            machine.text(os.path.join("/sys/fs/cgroup", base) + f"{level}/{name}") for base in bases for level in levels
        ]
        return [text for text in texts if text]

    first = "memory" in paths
    events = fields("".join(read("memory", "memory.oom_control" if first else "memory.events")[:1]), " ")
    times = fields("".join(read("cpu", "cpu.stat")[:1]), " ")
    used = read("memory", "memory.usage_in_bytes" if first else "memory.current")[:1]
    limits = [number(text) for text in read("memory", "memory.limit_in_bytes" if first else "memory.max")]
    quotas = [text.split() for text in read("", "cpu.max")]
    if "cpu" in paths:
        quotas = [list(pair) for pair in zip(read("cpu", "cpu.cfs_quota_us"), read("cpu", "cpu.cfs_period_us"))]
    cpus = [int(quota[0]) / int(quota[1]) for quota in quotas if quota[0].strip().isdigit()]
    return {
        "memory_bytes": number("".join(used)),
        "memory_max_bytes": min([limit for limit in limits if 0 < limit < 1 << 60] or [0]),
        "oom_kills": number(events.get("oom_kill", "")),
        "throttled": number(times.get("nr_throttled", "")),
        "cpus": round(min(cpus), 2) if cpus else 0,
    }


def compare(before: Facts, after: Facts) -> Facts:
    """Return what happened on the host between two looks."""
    seconds = max(0.01, after["time"] - before["time"])
    pages = {name: max(0, after["vmstat"].get(name, 0) - value) for name, value in before["vmstat"].items()}
    spent = [max(0, late - early) for early, late in zip(before["cpu"], after["cpu"])][:8]
    total = sum(spent) or 1
    return {
        "seconds": round(seconds, 1),
        "swap_in_bytes_s": round(pages.get("pswpin", 0) * PAGE / seconds),
        "swap_out_bytes_s": round(pages.get("pswpout", 0) * PAGE / seconds),
        "steal": round(sum(spent[7:]) / total, 3),
        "busy_cpus": round((total - sum(spent[3:5])) / TICKS / seconds, 2),
    }


def compare_server(server: Facts, before: Facts, after: Facts) -> None:
    """Write into ``server`` what its processes did between two looks."""
    seconds = max(0.01, after["time"] - before["time"])
    for member in server["processes"]:
        pid = member["pid"]
        early, late = before["tasks"][pid], after["tasks"][pid]
        shares = [max(0, ticks - early.get(task, 0)) / TICKS / seconds for task, ticks in late.items()]
        member["state"] = after["states"][pid]
        member["cpu"] = round(sum(shares), 3)
        member["busy_threads"] = sum(1 for share in shares if share >= BUSY_THREAD)
        member["faults_s"] = round(max(0, after["faults"][pid] - before["faults"][pid]) / seconds)
        member["read_bytes_s"] = round(max(0, after["read"][pid] - before["read"][pid]) / seconds)
    group = after["cgroup"][server["pid"]]
    throttled = max(0, group.pop("throttled") - before["cgroup"][server["pid"]]["throttled"])
    server["cgroup"] = dict(group, throttled_s=round(throttled / seconds, 1))


# --- asking the server ------------------------------------------------------------------------------------------


class Client:
    """Asks one server over HTTP: no proxy, short limits, the key only in a header."""

    def __init__(self, machine: Machine, server: Facts) -> None:
        host = option(server["words"], "--host") or "127.0.0.1"
        self.machine = machine
        self.host = {"0.0.0.0": "127.0.0.1", "::": "::1", "[::]": "::1"}.get(host, host)  # noqa: S104 - not bound to
        self.port = port_of(server)
        self.tls = bool(option(server["words"], "--ssl-certfile", "--ssl-cert-file"))

    def ask(self, path: str, key: str = "", body: Optional[Facts] = None, most: float = 2.0) -> Tuple[int, str]:
        """Return status and text; status 0 and the reason where there was no answer."""
        headers = {"Content-Type": "application/json", "User-Agent": "cpufleet-doctor"}
        headers.update({"Authorization": "Bearer " + key} if key else {})
        connection = self.connection(self.machine.left(most))
        try:
            connection.request("POST" if body else "GET", path, json.dumps(body) if body else None, headers)
            answer = connection.getresponse()
            return answer.status, answer.read(4 * MIB).decode("utf-8", "replace")
        except (OSError, http.client.HTTPException, ValueError) as error:
            return 0, f"{type(error).__name__}: {error}"
        finally:
            connection.close()

    def connection(self, seconds: float) -> http.client.HTTPConnection:
        """Return a connection that was not made yet."""
        if not self.tls:
            return http.client.HTTPConnection(self.host, self.port, timeout=seconds)
        context = ssl.create_default_context()
        # This machine asks itself: whom the certificate names says nothing about the service's health.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return http.client.HTTPSConnection(self.host, self.port, timeout=seconds, context=context)


def port_of(server: Facts) -> int:
    """Return the port that a server is told to listen on."""
    given = option(server["words"], "--port") or server.get("variables", {}).get("LLAMA_ARG_PORT", "")
    return number(given, 8080 if server["engine"] == "llama_cpp" else 8000)


class Question(threading.Thread):
    """Asks for one token in the background, so that the counters can be looked at meanwhile."""

    def __init__(self, client: Client, keys: Sequence[str]) -> None:
        super().__init__(daemon=True)
        self.client, self.keys = client, list(keys)
        self.began = time.monotonic()
        self.result: Facts = {"asked": True, "status": 0, "error": "", "key": 0, "keys": len(keys)}

    def run(self) -> None:
        """Ask; a key that is refused makes room for the next."""
        for index, key in enumerate(self.keys or [""]):
            status, text = self.client.ask("/v1/models", key)
            self.result.update(status=status, error="" if status == HTTP_OK else shorten(text, 120), key=index)
            if status not in HTTP_REFUSED:
                break
        if self.result["status"] != HTTP_OK:
            return
        try:
            model = str(json.loads(text)["data"][0]["id"])
        except (ValueError, LookupError, TypeError):
            return
        body = {"model": model, "prompt": "1", "max_tokens": 1, "temperature": 0}
        status, text = self.client.ask("/v1/completions", key, body, SLOW_QUESTION_S)
        took = round(time.monotonic() - self.began, 2)
        self.result.update(status=status, error="" if status == HTTP_OK else shorten(text, 120), took=took)

    def state(self) -> Facts:
        """Return what came of it so far; a time-out is no answer."""
        waited = round(time.monotonic() - self.began, 2)
        late = self.is_alive() or (self.result["status"] == 0 and "timed out" in self.result["error"])
        return dict({"took": waited}, **self.result, answered=not late)


def listener(machine: Machine, port: int, pid: int = 0) -> Facts:
    """Return who listens on a port, as the network of process ``pid`` (0: the doctor's own) has it."""
    sockets: Set[str] = set()
    for name in ("tcp", "tcp6"):
        for line in machine.text(f"/proc/{pid or 'self'}/net/{name}").splitlines()[1:]:
            words = line.split()
            if len(words) > 9 and words[3] == "0A" and int(words[1].rpartition(":")[2], 16) == port:  # noqa: PLR2004
                sockets.add(f"socket:[{words[9]}]")
    found = {"port": port, "listening": bool(sockets), "pid": 0, "name": ""}
    for name in machine.names("/proc") if sockets else []:
        if name.isdigit() and any(target in sockets for _fd, target in open_files(machine, name)):
            found.update(pid=int(name), name=machine.text(f"/proc/{name}/comm").strip())
            break
    return found


def open_files(machine: Machine, pid: Any) -> Iterator[Tuple[str, str]]:
    """Yield the open files of a process; only root sees another user's."""
    for fd in machine.names(f"/proc/{pid}/fd"):
        yield fd, machine.link(f"/proc/{pid}/fd/{fd}")


# --- what was installed, and whether it still is ------------------------------------------------------------------


def read_own(table: str) -> Dict[str, List[str]]:
    """Return the doctor's own causes by code: letter, text, remedy, command."""
    rows = (re.split(r" \| ", row, maxsplit=4) for row in re.sub(r"\n +", " ", table).strip().splitlines())
    return {row[0]: row[1:] for row in rows}


def cause(code: str, evidence: str, **values: Any) -> Facts:
    """Return one cause; an empty verdict is a note, and a settled one keeps the service from running."""
    letter, text, remedy, command = read_own(OWN)[code]
    found = {"code": code, "verdict": LETTERS[letter[0]], "text": text, "evidence": evidence, "remedy": remedy}
    return dict(found, command=command, settled=letter.endswith("!"), late=letter.endswith("~"), values=values)


def check_install(machine: Machine, server: Facts, manifest: Facts) -> Iterator[Facts]:
    """Yield what is wrong with the installed package, by its files alone: importing it costs memory and a minute."""
    python = server["words"][0] if server["words"] else ""
    if os.path.basename(python) == "vllm":  # the command of the venv
        python = os.path.join(os.path.dirname(python), "python")
    if not python.startswith("/") or "python" not in os.path.basename(python):
        return
    if not machine.status(python):
        if machine.missing(python):
            yield cause("program_missing", python)
        return
    site = packages_of(machine, python, "torch") or packages_of(machine, python, "vllm")
    if not site:
        return  # no venv of its own; what lies in the system's folders cannot be told apart
    names = machine.names(site)
    if "vllm" not in names:
        yield cause("not_installed", site)
        return
    infos = [name for name in names if re.match(r"vllm([-_]\w+)*-[^-]+\.dist-info$", name)]
    yield from check_packages(machine, site, names, infos)
    if not any(re.match(r"_C\w*\.\S*so$", name) for name in machine.names(site + "/vllm")):
        yield cause("kernels_missing", site + "/vllm holds no _C library")
    version = infos[0][len("vllm-") : -len(".dist-info")] if len(infos) == 1 else ""
    variables = server["variables"]
    told = variables.get("VLLM_CPU_ONLY") or variables.get("VLLM_TARGET_DEVICE") == "cpu" or manifest
    if version and "cpu" not in version and not told:
        yield cause("version_without_cpu", version)


def check_packages(machine: Machine, site: str, names: Sequence[str], infos: Sequence[str]) -> Iterator[Facts]:
    """Yield what is wrong with the packages beside vLLM."""
    torch = machine.text(site + "/torch/version.py")
    nvidia = [name for name in names if re.match(r"nvidia[-_]\w+-[^-]+\.dist-info$", name)]
    if "torch" not in names:
        yield cause("torch_missing", site)
    elif re.search(r"^cuda(?:: [^=]+)? = ['\"]", torch, re.MULTILINE):
        yield cause("cuda_torch", "torch " + "".join(re.findall(r"^__version__ = (.+)$", torch, re.MULTILINE)))
    if "triton" in names:
        yield cause("stray_triton", site + "/triton")
    if nvidia:
        yield cause("stray_nvidia", f"{len(nvidia)} packages, such as {nvidia[0]}")
    if len(infos) > 1:
        yield cause("several_dist_infos", ", ".join(infos))
    elif infos and not infos[0].startswith("vllm-"):
        yield cause("wrong_metadata_name", infos[0])


def check_isa(flags: Set[str], isa: Any) -> Iterator[Facts]:
    """Yield the risk of an illegal instruction: what the wheel was built for against what this CPU has."""
    classes = [isa] if isinstance(isa, str) and isa else [str(name) for name in isa or []]
    lacking = [sorted(missing_flags(name, flags)) for name in classes]
    if flags and classes and all(lacking):
        lacks = ", ".join(sorted(lacking, key=len)[0])
        yield cause("illegal_instruction", f"the wheel is for {', '.join(classes)}; the CPU lacks {lacks}")


def missing_flags(name: str, flags: Set[str]) -> Set[str]:
    """Return the flags of a class, and of the weaker ones of its ladder, that a CPU lacks."""
    for ladder in LADDERS:
        if name in ladder:
            return {flag for step in ladder[: ladder.index(name) + 1] for flag in ISA[step]} - flags
    return set()


class Installation:
    """What this collection installed for one service, if it did, and every check of it against its manifests."""

    def __init__(self, machine: Machine, unit: Facts, root: str, deep: bool) -> None:
        self.machine, self.unit, self.deep = machine, unit, deep
        found = re.search(r"(/\S*?)/deployments/([^/\s]+)/", " ".join(unit.get("environment_files", [])))
        self.root = root or (found.group(1) if found else "/opt/vllm")
        self.id = found.group(2) if found else ""
        self.folder = f"{self.root}/deployments/{self.id}"
        self.deployment = machine.document(self.folder + "/manifest.json") if self.id else {}
        self.release = machine.document(f"{self.root}/releases/{self.deployment.get('release')}/manifest.json")
        wheel = str(self.release.get("wheel_file", ""))
        self.wheel = machine.document(os.path.dirname(wheel) + "/manifest.json") if wheel else {}

    def told(self) -> Facts:
        """Return what the manifests say, without settings that may hold a secret."""
        keep = ("id", "release", "model", "name", "url", "engine")
        known = {name: self.deployment[name] for name in keep if name in self.deployment}
        return dict(known, root=self.root, isa=self.wheel.get("isa", "")) if known else {}

    def drift(self) -> Iterator[Facts]:
        """Yield every difference between the manifests and what is there."""
        if not self.deployment:
            return
        current = os.path.basename(self.machine.link(self.root + "/current"))
        if current != self.id:
            yield cause("current_differs", f"current is {current or 'not there'}, the unit starts {self.id}")
        if self.machine.status(self.root + "/current.pending"):
            yield cause("switch_interrupted", self.root + "/current.pending")
        for name, value in sorted(self.deployment.get("files", {}).items()):
            yield from self.compare("settings_changed", self.folder + "/" + name, value)
            if name == self.unit.get("unit"):
                yield from self.compare("settings_changed", self.unit["file"], value)
        if self.release.get("lock"):
            yield from self.compare("lock_changed", self.release["lock"], self.release.get("lock_sha256"))
        if self.deep and self.wheel.get("sha256"):
            yield from self.compare("wheel_changed", self.release["wheel_file"], self.wheel["sha256"])
        yield from self.model()

    def compare(self, code: str, path: str, value: Any) -> Iterator[Facts]:
        """Yield a cause where the digest of a file is not the recorded one; what may not be read is passed over."""
        found = self.machine.digest(path)
        if found != value and (found or self.machine.missing(path)):
            yield cause(code, path + (" has other bytes than its manifest records" if found else " is missing"))

    def model(self) -> Iterator[Facts]:
        """Yield the files of the model that are missing, have another size, or other bytes."""
        folder = str(self.deployment.get("model", ""))
        digest = str(self.deployment.get("model_sha256", ""))[:12]
        changed, unread = [], []
        for name, entry in sorted(self.machine.document(f"{self.root}/models/{digest}.json").items()):
            size, written = entry["mark"][:2]
            path = os.path.join(folder, name)
            status = self.machine.status(path)
            if status is None and not self.machine.missing(path):
                continue
            if status is None or status.st_size != size:
                changed.append(name + (" is missing" if status is None else " has another size"))
            elif not self.deep and status.st_mtime_ns == written:
                continue
            elif not self.deep and size > HASH_AT_ONCE:
                unread.append(name)
            elif self.machine.digest(path) != entry["sha256"]:
                changed.append(name + " has other bytes")
        if changed:
            yield cause("model_changed", f"{folder}: {', '.join(changed[:5])}")
        elif unread:
            yield cause("model_touched", f"{folder}: {', '.join(unread[:5])}")


def check_record(machine: Machine, python: str, deep: bool) -> Iterator[Facts]:
    """Yield files of the installed vLLM that are not what its wheel brought, by its own RECORD."""
    site = packages_of(machine, python, "vllm")
    info = next((name for name in machine.names(site) if re.match(r"vllm-[^-]+\.dist-info$", name)), "") if site else ""
    wrong = []
    for line in machine.text(f"{site}/{info}/RECORD").splitlines() if info else []:
        path, digest, size = [*line.rsplit(",", 2), "", ""][:3]
        if not path.startswith("vllm/") or not size.isdigit():
            continue
        status = machine.status(os.path.join(site, path))
        same = status is not None and status.st_size == int(size)
        if same and deep and digest.startswith("sha256="):
            value = base64.urlsafe_b64encode(bytes.fromhex(machine.digest(os.path.join(site, path)))).decode()
            same = value.rstrip("=") == digest[len("sha256=") :]
        wrong += [] if same else [path]
    if wrong:
        yield cause("package_changed", f"{len(wrong)} files in {site}, such as {wrong[0]}")


def check_keys(machine: Machine, unit: Facts, words: Sequence[str], root: str) -> Iterator[Facts]:
    """Yield what is wrong with the files that hold the service's secrets."""
    if option(words, "--api-key"):
        yield cause("key_in_command_line", "--api-key")
    listed, file = unit.get("environment_files", []), option(words, "--api-key-file")
    needed = [path for path in listed if not path.startswith("-")] + ([file] if file.startswith("/") else [])
    for path in needed:
        if machine.missing(path):
            yield cause("key_file_missing", path)
    secret = [path.lstrip("-") for path in listed if re.search(r"secret|key|token", path)]
    for path in secret + ([root + "/secrets/api_key"] if secret else []) + ([file] if file else []):
        status = machine.status(path)
        if status is None:
            continue
        if status.st_mode & 0o077:
            yield cause("key_file_open", f"{path} has mode {status.st_mode & 0o777:04o}", path=path)
        if not status.st_size:
            yield cause("key_file_empty", path)
        if path == file and not may_read(status, unit.get("user", "")):
            yield cause(
                "key_file_unreadable", f"{path} has mode {status.st_mode & 0o777:04o}, the user is {unit['user']}"
            )


def may_read(status: os.stat_result, user: str) -> bool:
    """Tell whether a user may read a file, by its owner and rights; without a user it is root."""
    try:
        entry = pwd.getpwnam(user) if user else None
    except KeyError:
        return True  # that nobody has this name is told by systemd
    if entry is None or entry.pw_uid == 0:
        return True
    shift = 6 if entry.pw_uid == status.st_uid else 3 if entry.pw_gid == status.st_gid else 0
    return bool(status.st_mode >> shift & 0o4)


def known_keys(machine: Machine, words: Sequence[str], root: str, environment: Dict[str, str]) -> List[str]:
    """Return the keys to ask with, the file's before the one that the running process was given."""
    files = [root + "/secrets/api_key" if root else "", option(words, "--api-key-file")]
    keys = [(machine.text(path).split() or [""])[0] for path in files if path.startswith("/")]
    keys += [option(words, "--api-key")] + [environment.get(name, "") for name in ("VLLM_API_KEY", "LLAMA_API_KEY")]
    return [key for index, key in enumerate(keys) if key and key not in keys[:index]]


# --- all facts --------------------------------------------------------------------------------------------------

# Variables of the service that are told; a process's other variables may hold secrets and are not kept.
TOLD = re.compile(
    r"(?:OMP_NUM_THREADS|LD_PRELOAD|VLLM_CPU_\w+|VLLM_TARGET_DEVICE|LLAMA_ARG_(?:THREADS|PORT|CTX_SIZE))$"
)
SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW")


def collect(machine: Machine, options: argparse.Namespace, secrets: Secrets) -> Facts:
    """Read everything that ``judge`` needs; takes two looks at the counters, ``options.seconds`` apart."""
    processes, units = read_processes(machine), find_units(machine)
    everyone = find_servers(machine, processes)
    servers = choose_servers(machine, everyone, units, options.unit)
    keys = [prepare(machine, server, units.get(server["unit"], {}), options, secrets) for server in servers]
    running = [server for server in servers if server["pid"]]
    before = look(machine, running)
    questions = [ask(machine, server, key, options) for server, key in zip(servers, keys)]
    if machine.live:
        time.sleep(machine.left(options.seconds if running else min(1.0, options.seconds)))
    for asked in filter(None, questions):
        asked.join(machine.left(max(0.2, SLOW_QUESTION_S - options.seconds)))
    after = look(machine, running)
    for server, question, key in zip(servers, questions, keys):
        finish(machine, server, question, key)
        if server["pid"]:
            compare_server(server, before, after)
    for server in servers:
        if not serves(server):
            server["journal"] = cause_in_journal(machine, server, secrets)
    facts = host_facts(machine, servers)
    flags = set(facts.pop("flags"))
    facts.update(rates=compare(before, after), orphans=find_orphans(machine, processes, everyone), servers=servers)
    for server in servers:
        server["findings"] = list(findings(machine, server, units.get(server["unit"], {}), options, flags))
    return facts


def choose_servers(machine: Machine, running: List[Facts], units: Dict[str, Facts], wanted: str) -> List[Facts]:
    """Return the servers to judge: all that run, and the units that should and do not."""
    servers = [dict(server, systemd=systemd_state(machine, server["unit"])) for server in running]
    asleep: List[Facts] = []
    for name in sorted(set(units) - {server["unit"] for server in servers}):
        unit, state = units[name], systemd_state(machine, name)
        server = {"engine": unit["engine"], "unit": name, "pid": 0, "words": unit["words"], "processes": []}
        put_aside = state.get("ActiveState") == "inactive" and state.get("UnitFileState") != "enabled"
        (asleep if put_aside else servers).append(dict(server, systemd=state))
    if wanted:
        name = wanted if wanted.endswith(".service") else wanted + ".service"
        return [server for server in servers + asleep if server["unit"] == name]
    return servers or asleep


def prepare(machine: Machine, server: Facts, unit: Facts, options: argparse.Namespace, secrets: Secrets) -> List[str]:
    """Complete a server for the looks to come; return the keys to ask it with, which are no facts."""
    environment = environment_of(machine, server["pid"]) if server["pid"] else {}
    server["variables"] = {name: value for name, value in sorted(environment.items()) if TOLD.match(name)}
    installed = Installation(machine, unit, options.install_root, False)
    # The key of another installation is nothing that this server is asked with.
    keys = known_keys(machine, server["words"], installed.root if installed.deployment else "", environment)
    hidden = [option(server["words"], name) for name in ("--api-key", "--hf-token")]
    for value in keys + hidden + [value for name, value in environment.items() if SECRET.search(name)]:
        secrets.learn(value)
    if not server["words"][0].startswith("/") and environment.get("VIRTUAL_ENV"):
        server["words"] = [
            environment["VIRTUAL_ENV"] + "/bin/" + os.path.basename(server["words"][0]),
            *server["words"][1:],
        ]
    server["listener"] = listener(machine, port_of(server), server["pid"])
    own = {member["pid"] for member in server["processes"]}
    server["listening"] = bool(own) and server["listener"]["listening"] and server["listener"]["pid"] in own | {0}
    return keys


def ask(machine: Machine, server: Facts, keys: Sequence[str], options: argparse.Namespace) -> Optional[Question]:
    """Ask a server for its counters, and where nobody else asks it, for one token; return that question."""
    server.update(http={}, question={"asked": False}, metrics={})
    networks = {machine.link("/proc/self/ns/net"), machine.link(f"/proc/{server['pid'] or 'self'}/ns/net")}
    elsewhere = len(networks - {""}) > 1  # not every root may look
    if not machine.live or not server["listening"] or elsewhere:
        server["http"]["reason"] = "its network is another" if elsewhere else "it does not listen"
        return None
    if stopped_processes(server):
        server["http"]["reason"] = "it is stopped"
        return None
    client = Client(machine, server)
    server["http"]["health"], server["http"]["error"] = client.ask("/health")
    status, text = client.ask("/metrics", (list(keys) or [""])[0])
    server["metrics"] = parse_metrics(text) if status == HTTP_OK else {}
    busy = server["metrics"].get("running", 0) + server["metrics"].get("waiting", 0)
    if busy or options.no_question or not 0 < server["http"]["health"] < HTTP_BROKEN:
        return None
    question = Question(client, keys)
    question.start()
    return question


def finish(machine: Machine, server: Facts, question: Optional[Question], keys: Sequence[str]) -> None:
    """Take what came of a question, and read the counters again."""
    if question:
        server["question"] = question.state()
    first = server.pop("metrics")
    status, text = Client(machine, server).ask("/metrics", (list(keys) or [""])[0]) if first else (0, "")
    last = parse_metrics(text) if status == HTTP_OK else {}
    both = [name for name in first if name in last]
    moved = {name: max(0, last[name] - first[name]) for name in both}
    server["tokens"] = {
        "known": "generation" in both or "prompt" in both,
        "moved": moved.get("generation", 0) + moved.get("prompt", 0),
        "running": min(first["running"], last["running"]) if "running" in both else 0,
        "waiting": min(first["waiting"], last["waiting"]) if "waiting" in both else 0,
        "preempted": moved.get("preemptions", 0),
        "cache": round(last.get("cache", 0), 3),
    }


def findings(
    machine: Machine, server: Facts, unit: Facts, options: argparse.Namespace, flags: Set[str]
) -> Iterator[Facts]:
    """Yield what the files say of a server: installation, digests, keys, preloaded libraries."""
    installed = Installation(machine, unit, options.install_root, options.deep)
    server["installed"] = installed.told()
    yield from check_keys(machine, unit, server["words"], installed.root)
    if server["engine"] == "vllm":
        yield from check_install(machine, server, installed.deployment)
        yield from check_isa(flags, installed.wheel.get("isa"))
        yield from check_record(machine, server["words"][0], options.deep)
    yield from installed.drift()
    for path in re.split(r"[:\s]+", server["variables"].get("LD_PRELOAD", "")):
        if path.startswith("/") and machine.missing(path):
            yield cause("preload_missing", path)


def host_facts(machine: Machine, servers: Sequence[Facts]) -> Facts:
    """Return what the host is and has to spare."""
    memory = {name: kib(value) for name, value in fields(machine.text("/proc/meminfo")).items()}
    blocks = [fields(block) for block in machine.text("/proc/cpuinfo").split("\n\n") if "processor" in block]
    first = blocks[0] if blocks else {}
    cores = {(block.get("physical id", "0"), block["core id"]) for block in blocks if "core id" in block}
    flags = (first.get("flags") or first.get("Features") or "").split()
    usable = len(os.sched_getaffinity(0)) if machine.live else len(blocks) or 1
    pressure = {name: machine.text("/proc/pressure/" + name) for name in ("cpu", "memory", "io")}
    return {
        "host": socket.gethostname() if machine.live else machine.text("/etc/hostname").strip(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "root": machine.root or "/",
        "privileged": os.geteuid() == 0,
        "cpu": {
            "model": first.get("model name", ""),
            "logical": len(blocks),
            "cores": min(usable, len(cores) or len(blocks) or 1),
            "usable": usable,
            "classes": [name for name in ISA if flags and not missing_flags(name, set(flags))],
        },
        "flags": flags,
        "memory": {
            "total_bytes": memory.get("MemTotal", 0),
            "available_bytes": memory.get("MemAvailable", memory.get("MemFree", 0)),
            "swap_total_bytes": memory.get("SwapTotal", 0),
            "swap_free_bytes": memory.get("SwapFree", 0),
        },
        "pressure": {
            name: float((re.findall(r"some avg10=([0-9.]+)", text) or [0])[0]) for name, text in pressure.items()
        },
        "disks": disks(machine, servers),
        "shm": shm(machine),
        "kernel": kernel_log(machine),
    }


def disks(machine: Machine, servers: Sequence[Facts]) -> List[Facts]:
    """Return the space of every filesystem that matters, once each."""
    places = {"/", "/tmp", "/var/tmp", "/opt/vllm"}  # noqa: S108 - looked at, not written to
    for server in servers:
        model = option(server["words"], "--model")
        places |= {model if model.startswith("/") else "/", "/var/lib/" + server["unit"].replace(".service", "")}
    found: Dict[Any, Facts] = {}
    for place in sorted(places):
        space = machine.space(place)
        if space and space.f_blocks:
            free, total = space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize
            inodes = round(space.f_favail / space.f_files, 3) if space.f_files else 1.0
            entry = {"path": place, "free_bytes": free, "total_bytes": total, "inodes_free": inodes}
            found.setdefault((total, space.f_files, space.f_favail), entry)
    return list(found.values())


def shm(machine: Machine) -> Facts:
    """Return the space of /dev/shm, through which vLLM's processes share memory."""
    space = machine.space("/dev/shm") if machine.status("/dev/shm") else None  # noqa: S108 - not written to
    if space is None:
        return {}
    return {"free_bytes": space.f_bavail * space.f_frsize, "total_bytes": space.f_blocks * space.f_frsize}


def serves(server: Facts) -> bool:
    """Tell whether a server listens and has not failed what it was asked."""
    question = server["question"]
    failed = question.get("answered") and not 0 < question["status"] < HTTP_BROKEN
    return bool(server["listening"]) and not failed and (server["http"].get("health") or 0) < HTTP_BROKEN


def stopped_processes(server: Facts) -> List[Facts]:
    """Return the processes of a server that somebody stopped."""
    return [member for member in server["processes"] if member["state"] in ("T", "t")]


# --- the verdict: pure, facts in, causes out ----------------------------------------------------------------------


def judge(facts: Facts) -> Tuple[str, List[Facts]]:
    """Return the verdict and its causes, the one that decides first."""
    causes: List[Facts] = []
    for server in facts["servers"]:
        causes += [complete(entry, server) for entry in judge_server(facts, server)]
    host = (
        list(judge_host(facts))
        if facts["servers"]
        else [cause("no_server", "no process, no unit file"), *judge_host(facts)]
    )
    causes += [complete(entry, {"unit": ""}) for entry in host]
    causes.sort(key=lambda entry: (not entry["verdict"], entry.pop("late"), VERDICTS.index(entry["verdict"] or "OK")))
    return (causes[0]["verdict"] or "OK") if causes else "OK", causes


def complete(entry: Facts, server: Facts) -> Facts:
    """Return a cause with its command filled in, as it stands in the result."""
    unit, active = server["unit"], server.get("systemd", {}).get("ActiveState")
    reset = f"systemctl reset-failed {unit}; " if active == "failed" else ""
    known = {
        "look": LOOK,
        "again": "cpufleet-doctor --seconds 10",
        # A server without a unit is restarted in the way that it was started, which only its owner knows.
        "restart": f"{LOOK}; {reset}systemctl restart {unit}" if unit else LOOK,
        "journal": f"journalctl --unit={unit} --boot --lines=200" if unit else LOOK,
        "show": f"systemctl cat {unit}" if unit else LOOK,
        "unit": unit,
        "port": server.get("listener", {}).get("port", ""),
    }
    command = entry["command"].format(**known, **entry["values"])
    kept = {name: entry[name] for name in ("code", "verdict", "text", "evidence", "remedy", "late")}
    return dict(kept, command=command, unit=name_of(server) if server.get("engine") else "")


def name_of(server: Facts) -> str:
    """Return what a server is called."""
    return str(server["unit"] or f"{server['engine']} (pid {server['pid']})")


def judge_server(facts: Facts, server: Facts) -> List[Facts]:
    """Return the causes of one server."""
    # What a served token has disproved is told and decides nothing.
    proven = server["question"].get("status") == HTTP_OK
    doubts = (
        "version_without_cpu",
        "stray_triton",
        "stray_nvidia",
        "wrong_metadata_name",
        "kernels_missing",
        "cuda_torch",
    )
    found = [
        dict(entry, verdict="" if proven and entry["code"] in doubts else entry["verdict"])
        for entry in server["findings"]
    ]
    if server["pid"] and server["systemd"].get("ActiveState") == "deactivating":
        return [cause("stopping", f"systemd: {server['systemd'].get('SubState')}"), *found]
    if not server["pid"] or looping(server):
        return judge_dead(server, found + list(judge_kills(facts, server)))
    if not server["listening"]:
        return [*judge_silent(facts, server), *judge_memory(facts, server), *found]
    for check in (judge_answer, judge_progress, judge_memory, judge_load, judge_threads, judge_unit):
        found += check(facts, server)
    return found


def judge_kills(facts: Facts, server: Facts) -> Iterator[Facts]:
    """Judge whether the kernel killed a process of the last start of a unit: that is why it is dead."""
    started = number(str(server["systemd"].get("ExecMainStartTimestampMonotonic", ""))) // 1000000
    kills = [
        kill for kill in facts["kernel"]["oom_units"] if kill["unit"] == server["unit"] and kill["at_s"] >= started
    ]
    if server["unit"] and started and kills:
        yield cause("oom_killed", kills[-1]["evidence"])


def looping(server: Facts) -> bool:
    """Tell whether systemd starts a server again and again."""
    state = server["systemd"]
    young = any(member["up_s"] < LOADING_S for member in server["processes"])
    again = young and not server["listening"] and state.get("NRestarts", 0) >= RESTARTS
    return state.get("SubState") == "auto-restart" or again


def judge_dead(server: Facts, found: List[Facts]) -> List[Facts]:
    """Judge a server that does not stay: MISCONFIGURED where a setting keeps it from running, else DEAD."""
    state = server["systemd"]
    evidence = (
        f"{state.get('ActiveState')}, result {state.get('Result')}, {state['NRestarts']} restarts"
        if state
        else "no process"
    )
    found = found + ([cause("port_in_use", taken(server))] if port_taken(server) else [])
    stopped = state.get("ActiveState") == "inactive" and state.get("Result") in ("success", "")
    if stopped:
        return [cause("stopped_by_hand", evidence), *[dict(entry, verdict="") for entry in found]]
    journal = server.get("journal")
    if journal and journal["code"] not in [entry["code"] for entry in found]:
        found.append(from_journal(journal))
    killed = any(entry["code"] in ("out_of_memory", "oom_killed") for entry in found)
    found += [cause("oom_killed", evidence)] if state.get("Result") == "oom-kill" and not killed else []
    settled = [entry for entry in found if entry["settled"]]
    others = [dict(entry, verdict="" if settled else entry["verdict"]) for entry in found if not entry["settled"]]
    died = cause("crash_loop" if looping(server) else "not_running", evidence)
    explained = bool(settled) or any(entry["verdict"] == "DEAD" for entry in others)
    # That it does not run follows from what keeps it from running, and decides only where that is not known.
    return (
        settled
        + sorted(others, key=lambda entry: entry["verdict"] != "DEAD")
        + [dict(died, verdict="" if explained else "DEAD")]
    )


def from_journal(journal: Facts) -> Facts:
    """Return the cause that a journal named."""
    settled = journal["code"] in SETTINGS
    entry = cause("not_running", journal["line"])
    command = "{journal}" if settled else "{restart}"
    entry.update(code=journal["code"], text=journal["text"], remedy=journal["remedy"], command=command, settled=settled)
    return dict(entry, verdict="MISCONFIGURED" if settled else "DEAD")


def port_taken(server: Facts) -> bool:
    """Tell whether somebody else listens on the port of a server."""
    own = {member["pid"] for member in server["processes"]}
    return bool(server["listener"]["listening"]) and server["listener"]["pid"] not in own


def taken(server: Facts) -> str:
    """Say who listens on a port."""
    other = server["listener"]
    return f"port {other['port']}: " + (f"{other['name']} (pid {other['pid']})" if other["pid"] else "another process")


def computing(server: Facts) -> List[Facts]:
    """Return the processes that compute: the workers, where there are none the engine, else the server itself."""
    for part in ("worker", "engine", "server"):
        found = [member for member in server["processes"] if member["part"] == part]
        if found:
            return found
    return []


def judge_silent(facts: Facts, server: Facts) -> Iterator[Facts]:
    """Judge a server that runs and does not listen: it loads, hangs, or cannot have its port."""
    up = max(member["up_s"] for member in server["processes"])
    cpu = sum(member["cpu"] for member in server["processes"])
    read = sum(member["read_bytes_s"] for member in server["processes"])
    evidence = f"up for {up} s, {cpu:.2f} CPUs of work, {human(read)}/s read"
    stopped = stopped_processes(server)
    if stopped:
        yield cause("process_stopped", named(stopped))
    elif port_taken(server):
        yield cause("port_in_use", taken(server))
    elif cpu >= IDLE_CPU or read >= MIB or up < LOADING_S or waits_for_disk(server) or thrashing(facts, server):
        yield cause("loading", evidence)
    else:
        yield cause("loading_hangs", evidence)


def waits_for_disk(server: Facts) -> bool:
    """Tell whether a process of a server waits for the disk; what it has read is not told everywhere."""
    return any(member["state"] == "D" for member in server["processes"])


def named(members: Sequence[Facts]) -> str:
    """Name processes with their state."""
    return ", ".join(
        f"{member['part'] or member['title']} pid {member['pid']} (state {member['state']})" for member in members
    )


def judge_answer(_facts: Facts, server: Facts) -> Iterator[Facts]:
    """Judge what the server said when it was asked."""
    health, question = server["http"].get("health") or 0, server["question"]
    if health == HTTP_LOADING and "Loading model" in server["http"]["error"]:
        yield cause("loading", "HTTP 503 from /health: Loading model")
        return
    status = question["status"] if question.get("answered") else None
    broken = f"HTTP {health} from /health" if health >= HTTP_BROKEN else ""
    if status is not None and not 0 < status < HTTP_BROKEN:
        broken = f"a request for one token ended with {status or ''} {question['error']}"
    dead = [member for member in server["processes"] if member["state"] in ("Z", "X", "gone") and member["part"] != ""]
    if broken or dead:
        told = server.get("journal")
        journal = told if told and told["code"] != "unknown" else None
        evidence = "; ".join(filter(None, [broken, named(dead), journal["line"] if journal else ""]))
        entry = cause("engine_dead", evidence)
        yield dict(entry, remedy=journal["remedy"]) if journal else entry
    if status in HTTP_REFUSED:
        yield cause(
            "key_refused" if question["keys"] else "key_unknown", f"HTTP {status}, {question['keys']} keys known"
        )
    elif question.get("key"):
        yield cause("key_stale", "the key in its file is refused, the one of its environment is not")


def judge_progress(facts: Facts, server: Facts) -> Iterator[Facts]:
    """Judge whether the server gets on with what it was asked: by counters, not by waiting in its queue."""
    stopped = stopped_processes(server)
    if stopped:
        yield cause("process_stopped", named(stopped))
        return
    tokens, question, http_error = server["tokens"], server["question"], server["http"].get("error", "")
    late = bool(question["asked"]) and not question["answered"]
    requests = tokens["running"] + tokens["waiting"]
    silent = server["http"].get("health") == 0 and not requests
    cpu = sum(member["cpu"] for member in computing(server))
    pending = (
        f"{requests:.0f} requests"
        if requests
        else http_error
        if silent
        else f"one token asked for {question.get('took')} s ago"
    )
    evidence = f"{tokens['moved']:.0f} tokens and {cpu:.2f} CPUs of work in {facts['rates']['seconds']} s; {pending}"
    if (requests or late or silent) and not tokens["moved"] and not thrashing(facts, server):
        if cpu < IDLE_CPU:
            yield cause("silent" if silent else "no_progress", evidence)
        else:
            yield cause("slow_answer" if late or silent else "prefill", evidence)
    elif question.get("status") == HTTP_OK and question["took"] >= SLOW_QUESTION_S:
        yield cause("slow_answer", f"one token took {question['took']} s")


def faults(server: Facts) -> int:
    """Return the pages a second that the processes of a server read back from swap or disk."""
    return int(sum(member.get("faults_s", 0) for member in server["processes"]))


def thrashing(facts: Facts, server: Facts) -> bool:
    """Tell whether memory of the server comes back from swap or disk all the time; a load from disk is none."""
    swaps = facts["rates"]["swap_in_bytes_s"] >= SWAP_IN_LIMIT and faults(server) >= OWN_FAULTS
    return swaps or bool(server["listening"] and faults(server) >= FAULT_LIMIT)


def judge_memory(facts: Facts, server: Facts) -> Iterator[Facts]:
    """Judge whether the memory of the server comes back from swap or disk, or met its limit."""
    swapped = sum(member["swap_bytes"] for member in server["processes"])
    swap_in = human(facts["rates"]["swap_in_bytes_s"])
    if thrashing(facts, server) or facts["rates"]["swap_in_bytes_s"] >= HOST_SWAP_IN_LIMIT:
        free = human(facts["memory"]["available_bytes"])
        limit, used = (server.get("cgroup", {}).get(name, 0) for name in ("memory_max_bytes", "memory_bytes"))
        met = f"; its limit of {human(limit)} is met" if limit and used >= LIMIT_MET * limit else ""
        evidence = f"{swap_in}/s come back from swap, {faults(server)} pages/s of the service from swap or disk"
        yield cause("swapping", f"{evidence}; {human(swapped)} of it are in swap, {free} of memory available{met}")
    elif swapped > SWAPPED_LIMIT:
        yield cause("swapped_out", f"{human(swapped)} in swap, {swap_in}/s come back")
    if server.get("cgroup", {}).get("oom_kills"):
        yield cause("oom_kills", f"{server['cgroup']['oom_kills']} kills in its cgroup")


def judge_load(facts: Facts, server: Facts) -> Iterator[Facts]:
    """Judge whether more is asked of server or host than they can do."""
    tokens, cpu, rates, group = server["tokens"], facts["cpu"], facts["rates"], server["cgroup"]
    requests = f"{tokens['running']:.0f} requests running, {tokens['waiting']:.0f} waiting"
    asked = f"{requests}, KV cache {tokens['cache']:.0%} full"
    if tokens["waiting"] >= QUEUE_LIMIT:
        yield cause("queue", asked)
    if tokens["preempted"]:
        yield cause("preempted", f"{tokens['preempted']:.0f} times in {rates['seconds']} s; {asked}")
    if rates["steal"] >= STEAL_LIMIT:
        yield cause("steal", f"{rates['steal']:.0%} of the time was stolen")
    if group["throttled_s"] >= 1:
        yield cause(
            "throttled", f"quota {group['cpus']} of {cpu['usable']} CPUs, {group['throttled_s']} times a second"
        )
    own = sum(member["cpu"] for member in server["processes"])
    others = rates["busy_cpus"] - own
    full = rates["busy_cpus"] >= 0.9 * cpu["usable"]
    if tokens["running"] and full and others >= cpu["usable"] / 2:
        yield cause("cpu_taken", f"{others:.1f} of {cpu['usable']} CPUs go to others, {own:.1f} to the service")


def judge_threads(facts: Facts, server: Facts) -> Iterator[Facts]:
    """Judge the threads that compute against the processors; fewer than the cores or more than the CPUs is slow."""
    cpu, variables, members = facts["cpu"], server["variables"], computing(server)
    usable = max(1, int(min(cpu["usable"], server["cgroup"]["cpus"] or cpu["usable"])))
    bind, busy = (
        variables.get("VLLM_CPU_OMP_THREADS_BIND", ""),
        max([member["busy_threads"] for member in members] or [0]),
    )
    given = variables.get("OMP_NUM_THREADS", "")
    if server["engine"] == "llama_cpp":
        given = option(server["words"], "--threads", "-t") or variables.get("LLAMA_ARG_THREADS", "")
    threads, source = (len(cpu_list(bind)), "bound to " + bind) if cpu_list(bind) else (number(given), "as set")
    if not threads and server["tokens"]["moved"] and server["tokens"]["running"]:
        threads, source = busy, "seen at work"
    allowed = min([len(member["cpus"]) for member in members if member["cpus"]] or [usable])
    evidence = f"{threads} threads {source}, {allowed} CPUs allowed, {usable} CPUs, {cpu['cores']} cores"
    if threads > usable and source != "seen at work":
        yield cause("too_many_threads_compute", evidence)
    elif 0 < threads < min(usable, cpu["cores"]) or (not cpu_list(bind) and allowed < min(usable, cpu["cores"])):
        yield cause("idle_cores", evidence)


def judge_unit(_facts: Facts, server: Facts) -> Iterator[Facts]:
    """Judge the unit of a server that runs."""
    state = server["systemd"]
    if state.get("NRestarts", 0):
        yield cause("restarts", f"{state['NRestarts']} times since it was started by hand or at boot")
    if state.get("UnitFileState") == "disabled":
        yield cause("not_enabled", "UnitFileState=disabled")
    if state.get("NeedDaemonReload") == "yes":
        yield cause("reload_needed", "NeedDaemonReload=yes")


def judge_host(facts: Facts) -> Iterator[Facts]:
    """Judge what concerns the host as a whole."""
    orphans, space, kernel = facts["orphans"], facts["shm"], facts["kernel"]
    if orphans:
        pids = " ".join(str(entry["pid"]) for entry in orphans)
        held = human(sum(entry["rss_bytes"] for entry in orphans))
        yield cause("orphan_workers", f"pid {pids} hold {held}, their parent is gone", pids=pids)
    for disk in facts["disks"]:
        if disk["free_bytes"] < DISK_NEEDED or disk["inodes_free"] < INODES_NEEDED:
            free = f"{human(disk['free_bytes'])} and {disk['inodes_free']:.0%} of the inodes free"
            yield cause("disk_full", f"{free} where {disk['path']} is", path=disk["path"])
    serving = any(server["listening"] for server in facts["servers"])
    if space and space["free_bytes"] < (MIB if serving else SHM_NEEDED):
        yield cause("shm_full", f"{human(space['free_bytes'])} of {human(space['total_bytes'])} free")
    if kernel["invalid_opcode"]:
        yield cause("invalid_opcode", kernel["invalid_opcode"][-1])
    if kernel["oom"]:
        yield cause("oom_in_kernel_log", kernel["oom"][-1])
    if not facts["privileged"]:
        yield cause("not_root", "")


# --- telling ----------------------------------------------------------------------------------------------------


def first_line(verdict: str, causes: Sequence[Facts], facts: Facts) -> str:
    """Return the line that says it all: verdict, evidence, the safe next command."""
    if verdict != "OK":
        worst = causes[0]
        where = " ".join(filter(None, [verdict, worst["unit"]]))
        return f"{where}: {worst['text']}: {worst['evidence']}. Next: {worst['command']}"
    told = "; ".join(f"{name_of(server)} {served(server)}" for server in facts["servers"])
    return f"OK {told}; {human(facts['rates']['swap_in_bytes_s'])}/s come back from swap. Next: nothing to do"


def served(server: Facts) -> str:
    """Return how a server that is well shows it."""
    question, tokens = server["question"], server["tokens"]
    if question.get("status") == HTTP_OK:
        return f"answered a request for one token in {question['took']} s"
    if tokens["moved"]:
        return f"made {tokens['moved']:.0f} tokens while it was looked at, {tokens['running']:.0f} requests running"
    return f"listens and was not asked ({server['http'].get('reason', 'no completion was possible')})"


def report(verdict: str, causes: Sequence[Facts], facts: Facts) -> List[str]:
    """Return all that is told to a person."""
    lines = [first_line(verdict, causes, facts), ""]
    for entry in causes:
        where = entry["unit"] + ": " if entry["unit"] else ""
        lines.append(f"{entry['verdict'] or 'note'} [{entry['code']}] {where}{entry['text']}")
        lines += ["    seen: " + entry["evidence"]] if entry["evidence"] else []
        lines.append(f"    do:   {entry['remedy']} ({entry['command']})")
    lines += [""] if causes else []
    for server in facts["servers"]:
        parts = [f"{m['part'] or m['title']} {m['pid']} {human(m['rss_bytes'])}" for m in server["processes"]]
        state = " ".join(filter(None, (server["systemd"].get(name, "") for name in ("ActiveState", "SubState"))))
        port = server["listener"]["port"]
        lines.append(f"{name_of(server)}: {state or 'no unit'}; port {port}; {', '.join(parts) or 'no process'}")
    memory, rates, cpu = facts["memory"], facts["rates"], facts["cpu"]
    available, total = human(memory["available_bytes"]), human(memory["total_bytes"])
    lines.append(
        f"host: {cpu['usable']} CPUs, {cpu['cores']} cores, {rates['busy_cpus']} busy, {rates['steal']:.0%} stolen; "
        f"memory {available} of {total} available; {human(rates['swap_in_bytes_s'])}/s from swap"
    )
    return lines + ([] if facts["kernel"]["readable"] else ["kernel log: could not be read"])


# --- saving the state before anything is restarted ----------------------------------------------------------------

PROCESS_FILES = listed("status stat wchan stack limits io cgroup smaps_rollup cmdline syscall")
TASK_FILES = listed("comm stat wchan stack syscall")
HOST_FILES = listed(
    "meminfo vmstat stat loadavg swaps mounts pressure/cpu pressure/memory pressure/io net/tcp net/tcp6"
)
GROUP_FILES = listed("memory.* cpu.* pids.* cgroup.procs cgroup.events io.stat")
COMMANDS = {
    "sockets": "ss -tanpe",
    "ps": "ps -eLo pid,ppid,tid,stat,pcpu,rss,wchan:24,comm",
    "kernel": "dmesg",
    "df": "df -h",
}


class Snapshot:
    """Writes what a restart would take away into a folder of its own, without secrets."""

    def __init__(self, machine: Machine, base: str, secrets: Secrets, facts: Facts) -> None:
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        self.machine, self.secrets, self.facts = machine, secrets, facts
        self.folder = os.path.join(os.path.abspath(base), f"{facts['host']}-{stamp}-{os.getpid()}")

    def write(self, name: str, text: str) -> None:
        """Write a file that its owner alone can read; nothing where there is nothing to write."""
        if text.strip("\0\n "):
            path = os.path.join(self.folder, name)
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(handle, "w", encoding="utf-8", errors="replace") as stream:
                stream.write(self.secrets.clean(text).replace("\0", " "))

    def save(self, document: Facts, lines: Sequence[str]) -> str:
        """Save everything and return the folder."""
        self.machine.end = time.monotonic() + 60
        self.write("report.txt", "\n".join(lines) + "\n")
        self.write("report.json", json.dumps(document, indent=2) + "\n")
        for server in self.facts["servers"]:
            for member in server["processes"]:
                self.process(member["pid"])
            if server["pid"]:
                self.groups(server["pid"])
            if server["unit"]:
                self.unit(server["unit"])
        for orphan in self.facts["orphans"]:
            self.process(orphan["pid"])
        for name in HOST_FILES:
            self.write("host/" + name.replace("/", "-"), self.machine.text("/proc/" + name))
        for name, command in COMMANDS.items():
            self.write("host/" + name, self.machine.command(command.split()))
        return self.folder

    def process(self, pid: int) -> None:
        """Save the state of a process and of its threads, kernel stacks included."""
        for name in PROCESS_FILES:
            self.write(f"processes/{pid}/{name}", self.machine.text(f"/proc/{pid}/{name}"))
        tasks = []
        for task in self.machine.names(f"/proc/{pid}/task"):
            texts = [self.machine.text(f"/proc/{pid}/task/{task}/{name}").strip() for name in TASK_FILES]
            tasks.append("\n".join([f"== {task}"] + [text for text in texts if text]))
        self.write(f"processes/{pid}/threads", "\n".join(tasks))
        self.write(
            f"processes/{pid}/fd", "\n".join(f"{fd} -> {target}" for fd, target in open_files(self.machine, pid))
        )

    def unit(self, unit: str) -> None:
        """Save what systemd and its journal say of a unit."""
        for name, words in (("show", []), ("status", ["--no-pager", "--full"]), ("cat", ["--no-pager"])):
            self.write(f"{unit}/{name}", self.machine.command(["systemctl", name, *words, unit]))
        words = ["journalctl", "--no-pager", "--output=short-iso", "--lines=10000", "--unit=" + unit]
        self.write(f"{unit}/journal", self.machine.command(words, 20.0))

    def groups(self, pid: int) -> None:
        """Save limits and counters of a process's cgroups."""
        for line in self.machine.text(f"/proc/{pid}/cgroup").splitlines():
            _number, controllers, path = [*line.split(":", 2), "", ""][:3]
            for base in [controllers] if controllers else ["", "unified"]:
                folder = os.path.join("/sys/fs/cgroup", base, path.strip("/"))
                for name in self.machine.names(folder):
                    if any(fnmatch.fnmatch(name, pattern) for pattern in GROUP_FILES):
                        self.write(f"cgroup/{pid}/{base or 'v2'}/{name}", self.machine.text(f"{folder}/{name}"))


# --- the one thing that changes something -------------------------------------------------------------------------


class RefusedError(Exception):
    """A rollback is not possible; the message says why and what to do."""


def rollback(options: argparse.Namespace) -> str:
    """Point ``current`` at the deployment before and restart the service; return what was done."""
    machine = Machine()
    root = options.install_root or root_of(machine, options.unit) or "/opt/vllm"
    now = os.path.basename(machine.link(root + "/current"))
    if not now:
        folder = root + "/instances"
        names = [name for name in machine.names(folder) if machine.link(f"{folder}/{name}/current")]
        said = "Run the playbook site.yml"
        if names:
            said = f"There are the instances {', '.join(sorted(names))}: name the service of one with --unit"
        raise RefusedError(f"{root}/current names no deployment to go back from. {said}")
    settings = machine.document(f"{root}/deployments/{now}/manifest.json").get("settings", {})
    unit = (options.unit or str(settings.get("unit", "vllm"))).replace(".service", "") + ".service"
    target = options.to or previous(machine, root, now, unit)
    source = f"{root}/deployments/{target}/{unit}"
    manifest = machine.document(f"{root}/deployments/{target}/manifest.json")
    needed = (source, f"{root}/releases/{manifest.get('release')}/manifest.json", str(manifest.get("model", "")))
    for path in needed:
        if machine.status(path) is None:
            raise RefusedError(
                f"Deployment {target} cannot serve: {path or 'its model'} is missing. Name another with --to"
            )
    # The same order as the module deployment_switch, which finishes what is interrupted here.
    replace(root + "/current.pending", f"{now}\n".encode())
    replace("/etc/systemd/system/" + unit, machine.data(source))
    if os.path.lexists(root + "/current.new"):
        os.unlink(root + "/current.new")
    os.symlink("deployments/" + target, root + "/current.new")
    os.replace(root + "/current.new", root + "/current")
    for words in (["daemon-reload"], ["enable", unit], ["reset-failed", unit], ["restart", unit]):
        done = subprocess.run(  # noqa: S603 - a unit's name
            ["systemctl", *words],  # noqa: S607 - where it lies differs
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if done.returncode and words[0] != "reset-failed":
            said = done.stdout.decode("utf-8", "replace").strip()
            raise RefusedError(f"systemctl {' '.join(words)} failed: {said}. See journalctl --unit={unit}")
    os.unlink(root + "/current.pending")
    return (
        f"{unit} now starts deployment {target} in place of {now} and loads its model. Next: sleep 30; cpufleet-doctor"
    )


def root_of(machine: Machine, unit: str) -> str:
    """Return the folder whose deployments a unit starts: of several services each has its own."""
    known = find_units(machine).get(unit.replace(".service", "") + ".service", {}) if unit else {}
    found = re.search(r"(/\S*?)/deployments/[^/\s]+/", " ".join(known.get("environment_files", [])))
    return found.group(1) if found else ""


def previous(machine: Machine, root: str, now: str, unit: str) -> str:
    """Return what served before ``now``: as a switch left it, as it was recorded, else the newest that is older."""
    left = machine.text(root + "/current.pending").strip()
    if left and left != now:
        return left
    ages = {}
    for name in machine.names(root + "/deployments"):
        status = machine.status(f"{root}/deployments/{name}/manifest.json")
        if status and machine.status(f"{root}/deployments/{name}/{unit}"):
            ages[name] = status.st_mtime
    served = [str(name) for name in machine.document(root + "/served.json").get("served", [])]
    before = served[: served.index(now)] if now in served else served
    known = [name for name in before if name in ages and name != now]
    if known:
        return known[-1]
    others = [name for name in ages if name != now and not served]
    older = [name for name in others if ages[name] <= ages.get(now, time.time())] or others
    if not older:
        raise RefusedError(f"{root}/deployments holds no other deployment of {unit}: there is nothing to go back to")
    return max(older, key=lambda name: ages[name])


def replace(path: str, content: bytes) -> None:
    """Write a file as a whole or not at all."""
    temporary = f"{path}.{os.getpid()}.new"
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(temporary, path)


# --- command line -----------------------------------------------------------------------------------------------


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the parsed command line."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("cpufleet-doctor", description=DESCRIPTION, epilog=EPILOG, formatter_class=form)
    add = parser.add_argument
    add("action", nargs="?", choices=["check", "rollback"], default="check", help="what to do (check)")
    add("--json", action="store_true", help="print one JSON document: verdict, causes, facts")
    add("--snapshot", default="", metavar="DIR", help="save journal, stacks, cgroups and sockets below DIR")
    add("--unit", default="", help="judge this service only; with rollback: switch this one")
    add("--seconds", type=float, default=4.0, help="how long to compare counters (4)")
    add("--no-question", action="store_true", help="do not ask an idle server for one token")
    add("--deep", action="store_true", help="compare all digests, however long it takes")
    add("--install-root", default="", metavar="DIR", help="where the collection installed (/opt/vllm)")
    add("--root", default="/", metavar="DIR", help="judge the files below DIR, such as another machine's disk")
    add("--local", action="store_true", help="with rollback: on this host, without a controller")
    add("--to", default="", metavar="ID", help="with rollback: the deployment to serve")
    options = parser.parse_args(list(arguments))
    if options.action == "rollback" and not options.local:
        parser.error("rollback acts on this host alone: say rollback --local. From a controller: deployment_switch")
    if not 0 <= options.seconds <= 60:  # noqa: PLR2004 - longer is no look
        parser.error("--seconds has to be between 0 and 60")
    return options


def check(options: argparse.Namespace) -> int:
    """Judge the machine, tell, and return the exit status."""
    machine = Machine(options.root, BUDGET_S + max(0.0, options.seconds - 4) + (3600 if options.deep else 0))
    secrets = Secrets()
    facts = collect(machine, options, secrets)
    verdict, causes = judge(facts)
    for server in facts["servers"]:
        server.pop("findings")  # they are among the causes
    lines = report(verdict, causes, facts)
    document = {"verdict": verdict, "line": lines[0], "causes": causes, "facts": facts}
    if options.snapshot and machine.live:
        try:
            document["snapshot"] = Snapshot(machine, options.snapshot, secrets, facts).save(document, lines)
            lines.append(f"snapshot: {document['snapshot']}")
        except OSError as error:  # the verdict is worth more
            document["snapshot_error"] = str(error)
            lines.append(f"snapshot: could not be saved: {error}")
    text = json.dumps(document, indent=2, sort_keys=True) if options.json else "\n".join(lines)
    sys.stdout.write(secrets.clean(text) + "\n")
    return STATUS[verdict]


def main(arguments: Sequence[str]) -> int:
    """Run the doctor and return its exit status."""
    options = parse(arguments)
    try:
        if options.action == "check":
            return check(options)
        sys.stdout.write(rollback(options) + "\n")
        return 0
    except (RefusedError, OSError) as error:
        sys.stderr.write(f"cpufleet-doctor: {error}\n")
        return 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
