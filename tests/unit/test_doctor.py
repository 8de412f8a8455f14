# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The doctor's verdict over tables of facts, its tables of causes, its readers, and that no secret gets out."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._isa import ISA_CLASSES, isa_class
from ansible_collections.cpufleet.vllm.plugins.module_utils._journal import first_cause
from ansible_collections.cpufleet.vllm.plugins.module_utils._journal_causes import CAUSES

from tests.support import doctor_file

REPOSITORY = Path(__file__).resolve().parents[2]
FIXTURES = Path(__file__).parent / "fixtures"
doctor = doctor_file.load()
OWN = doctor.read_own(doctor.OWN)
GIB = 1 << 30


def process(pid: int, part: str, **more: Any) -> dict[str, Any]:
    found = {"pid": pid, "ppid": 1, "part": part, "title": "python", "state": "S", "rss_bytes": GIB, "swap_bytes": 0}
    return {**found, "threads": 4, "cpus": [0, 1], "up_s": 900, "cpu": 0.0, "busy_threads": 0, "faults_s": 0} | {
        "read_bytes_s": 0,
        **more,
    }


def healthy() -> dict[str, Any]:
    """Return the facts of a host with one idle server that has answered."""
    server = {
        "engine": "vllm",
        "unit": "vllm.service",
        "pid": 10,
        "words": ["/opt/vllm/releases/a/venv/bin/python", "-m", "vllm.entrypoints.openai.api_server"],
        "processes": [process(10, "server"), process(11, "engine")],
        "systemd": {"ActiveState": "active", "SubState": "running", "Result": "success", "NRestarts": 0},
        "variables": {"OMP_NUM_THREADS": "2"},
        "listener": {"port": 8000, "listening": True, "pid": 10, "name": "python"},
        "listening": True,
        "http": {"health": 200, "error": ""},
        "question": {"asked": True, "answered": True, "status": 200, "error": "", "key": 0, "keys": 1, "took": 0.2},
        "tokens": {"known": True, "moved": 2, "running": 0, "waiting": 0, "preempted": 0, "cache": 0.0},
        "cgroup": {"memory_bytes": GIB, "memory_max_bytes": 0, "oom_kills": 0, "cpus": 0, "throttled_s": 0.0},
        "findings": [],
    }
    return {
        "servers": [server],
        "orphans": [],
        "cpu": {"usable": 2, "cores": 2, "logical": 2},
        "memory": {"total_bytes": 8 * GIB, "available_bytes": 4 * GIB},
        "rates": {"seconds": 4.0, "swap_in_bytes_s": 0, "swap_out_bytes_s": 0, "steal": 0.0, "busy_cpus": 0.1},
        "disks": [{"path": "/", "free_bytes": 9 * GIB, "total_bytes": 20 * GIB, "inodes_free": 0.9}],
        "shm": {"free_bytes": GIB, "total_bytes": GIB},
        "kernel": {"readable": True, "oom": [], "oom_units": [], "invalid_opcode": []},
        "privileged": True,
    }


def server_of(**values: Any) -> Callable[[dict[str, Any]], None]:
    """Return a change of the one server: dictionaries are merged, all else is replaced."""

    def change(facts: dict[str, Any]) -> None:
        for name, value in values.items():
            old = facts["servers"][0].get(name)
            facts["servers"][0][name] = {**old, **value} if isinstance(value, dict) and old else value

    return change


def host_of(**values: Any) -> Callable[[dict[str, Any]], None]:
    """Return a change of the host's facts."""

    def change(facts: dict[str, Any]) -> None:
        for name, value in values.items():
            facts[name] = {**facts[name], **value} if isinstance(value, dict) else value

    return change


def all_of(*changes: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
    """Return several changes as one."""

    def change(facts: dict[str, Any]) -> None:
        for one in changes:
            one(facts)

    return change


NOTHING_LISTENS = {"port": 8000, "listening": False, "pid": 0, "name": ""}
UNASKED = {"asked": False, "answered": False, "status": 0, "took": 0}
BUSY = {"known": True, "moved": 0, "running": 1, "waiting": 0}


def dead(**state: Any) -> dict[str, Any]:
    """Return a server that does not run."""
    found = {"pid": 0, "processes": [], "listening": False, "listener": NOTHING_LISTENS, "question": UNASKED}
    failed = {"ActiveState": "failed", "SubState": "failed", "Result": "exit-code", "NRestarts": 5}
    return {**found, "systemd": {**failed, **state}}


def journal(code: str) -> dict[str, str]:
    """Return what a journal named."""
    known = next(known for known in CAUSES if known.code == code)
    return {"code": code, "text": known.text, "remedy": known.remedy, "line": f"line of {code}"}


def finding(code: str) -> list[dict[str, Any]]:
    return [doctor.cause(code, "seen", path="/file", pids="1")]


CASES: list[tuple[str, Callable[[dict[str, Any]], None], str, str]] = [
    ("all is well", server_of(), "OK", ""),
    ("tokens move, others ask", server_of(question=UNASKED, tokens={**BUSY, "moved": 40}), "OK", ""),
    ("nothing runs", host_of(servers=[]), "DEAD", "no_server"),
    ("failed for an unknown reason", server_of(**dead()), "DEAD", "not_running"),
    ("killed for memory", server_of(**dead(Result="oom-kill")), "DEAD", "oom_killed"),
    ("killed, in the journal", server_of(**dead(), journal=journal("out_of_memory")), "DEAD", "out_of_memory"),
    (
        "killed, in the kernel's log",
        all_of(
            server_of(**dead(ExecMainStartTimestampMonotonic="14917000000"), journal=journal("killed")),
            host_of(kernel={"oom_units": [{"at_s": 14917, "unit": "vllm.service", "evidence": "killed"}]}),
        ),
        "DEAD",
        "oom_killed",
    ),
    (
        "a kill of an earlier start",
        all_of(
            server_of(**dead(ExecMainStartTimestampMonotonic="14918000000")),
            host_of(kernel={"oom_units": [{"at_s": 14917, "unit": "vllm.service", "evidence": "killed"}]}),
        ),
        "DEAD",
        "not_running",
    ),
    ("damaged model", server_of(**dead(), journal=journal("model_damaged")), "DEAD", "model_damaged"),
    ("wrong argument", server_of(**dead(), journal=journal("unknown_argument")), "MISCONFIGURED", "unknown_argument"),
    (
        "stopped by hand",
        server_of(**dead(ActiveState="inactive", Result="success", SubState="dead")),
        "DEAD",
        "stopped_by_hand",
    ),
    (
        "being stopped",
        server_of(systemd={"ActiveState": "deactivating", "SubState": "stop-sigterm"}, listening=False),
        "DEAD",
        "stopping",
    ),
    ("crash loop", server_of(**dead(ActiveState="activating", SubState="auto-restart")), "DEAD", "crash_loop"),
    (
        "young, silent and restarted often",
        server_of(
            listening=False,
            listener=NOTHING_LISTENS,
            question=UNASKED,
            processes=[process(10, "server", up_s=5)],
            systemd={"NRestarts": 4},
        ),
        "DEAD",
        "crash_loop",
    ),
    (
        "port taken",
        server_of(**{**dead(), "listener": {"port": 8000, "listening": True, "pid": 77, "name": "nginx"}}),
        "MISCONFIGURED",
        "port_in_use",
    ),
    (
        "key file missing",
        server_of(**dead(), findings=finding("key_file_missing")),
        "MISCONFIGURED",
        "key_file_missing",
    ),
    (
        "built for another CPU",
        server_of(**dead(), findings=finding("illegal_instruction")),
        "MISCONFIGURED",
        "illegal_instruction",
    ),
    (
        "open key file does not explain a death",
        server_of(**dead(), findings=finding("key_file_open")),
        "DEAD",
        "not_running",
    ),
    (
        "worker stopped while health is 200",
        server_of(processes=[process(10, "server"), process(11, "engine"), process(12, "worker", state="T")]),
        "HUNG",
        "process_stopped",
    ),
    ("requests and no work", server_of(question=UNASKED, tokens=BUSY), "HUNG", "no_progress"),
    ("no answer and no work", server_of(question={"answered": False}, tokens={"moved": 0}), "HUNG", "no_progress"),
    (
        "busy server process, idle worker",
        server_of(
            question=UNASKED,
            tokens=BUSY,
            processes=[process(10, "server", cpu=0.9), process(11, "engine", cpu=1.0), process(12, "worker")],
        ),
        "HUNG",
        "no_progress",
    ),
    (
        "a long prompt is no hang",
        server_of(question=UNASKED, tokens=BUSY, processes=[process(10, "server"), process(11, "engine", cpu=1.9)]),
        "OK",
        "prefill",
    ),
    (
        "one token late while computing",
        server_of(question={"answered": False}, tokens={"moved": 0}, processes=[process(10, "server", cpu=1.5)]),
        "SLOW",
        "slow_answer",
    ),
    ("health never answers", server_of(http={"health": 0}, question=UNASKED, tokens={"moved": 0}), "HUNG", "silent"),
    (
        "does not listen and does nothing",
        server_of(listening=False, listener=NOTHING_LISTENS, question=UNASKED),
        "HUNG",
        "loading_hangs",
    ),
    (
        "still loads",
        server_of(
            listening=False, listener=NOTHING_LISTENS, question=UNASKED, processes=[process(10, "server", cpu=0.7)]
        ),
        "SLOW",
        "loading",
    ),
    ("engine gone", server_of(question={"status": 500, "error": "Internal Server Error"}), "DEAD", "engine_dead"),
    ("connection cut", server_of(question={"status": 0, "error": "RemoteDisconnected"}), "DEAD", "engine_dead"),
    ("health says 503", server_of(http={"health": 503}, question=UNASKED), "DEAD", "engine_dead"),
    (
        "llama-server that loads",
        server_of(http={"health": 503, "error": "Loading model"}, question=UNASKED, tokens={"moved": 0}),
        "SLOW",
        "loading",
    ),
    (
        "engine process is a zombie",
        server_of(question=UNASKED, processes=[process(10, "server"), process(11, "engine", state="Z")]),
        "DEAD",
        "engine_dead",
    ),
    ("swap comes back", host_of(rates={"swap_in_bytes_s": 20 << 20}), "SWAPPING", "swapping"),
    (
        "weights read again and again",
        server_of(processes=[process(10, "server", faults_s=900)]),
        "SWAPPING",
        "swapping",
    ),
    (
        "no progress because of swap",
        all_of(
            server_of(question=UNASKED, tokens=BUSY, processes=[process(10, "server", faults_s=50)]),
            host_of(rates={"swap_in_bytes_s": 2 << 20}),
        ),
        "SWAPPING",
        "swapping",
    ),
    (
        "no progress while others swap",
        all_of(server_of(question=UNASKED, tokens=BUSY), host_of(rates={"swap_in_bytes_s": 20 << 20})),
        "HUNG",
        "no_progress",
    ),
    ("others swap a little", host_of(rates={"swap_in_bytes_s": 2 << 20}), "OK", ""),
    ("requests wait", server_of(question=UNASKED, tokens={"running": 2, "waiting": 9}), "OVERLOADED", "queue"),
    (
        "KV cache too small",
        server_of(question=UNASKED, tokens={"running": 2, "preempted": 3}),
        "OVERLOADED",
        "preempted",
    ),
    (
        "neighbours on the host",
        all_of(server_of(question=UNASKED, tokens={"running": 1}), host_of(rates={"busy_cpus": 2.0})),
        "OVERLOADED",
        "cpu_taken",
    ),
    ("stolen time", host_of(rates={"steal": 0.3}), "SLOW", "steal"),
    (
        "quota",
        server_of(cgroup={"throttled_s": 8.0, "cpus": 1}, variables={"OMP_NUM_THREADS": "1"}),
        "SLOW",
        "throttled",
    ),
    ("one thread of two cores", server_of(variables={"OMP_NUM_THREADS": "1"}), "SLOW", "idle_cores"),
    (
        "bound to one core",
        server_of(variables={"VLLM_CPU_OMP_THREADS_BIND": "0", "OMP_NUM_THREADS": "2"}),
        "SLOW",
        "idle_cores",
    ),
    ("eight threads on two", server_of(variables={"OMP_NUM_THREADS": "8"}), "SLOW", "too_many_threads_compute"),
    (
        "affinity of one core",
        server_of(processes=[process(10, "server", cpus=[0])], variables={"OMP_NUM_THREADS": ""}),
        "SLOW",
        "idle_cores",
    ),
    (
        "one thread seen at work",
        server_of(
            variables={"OMP_NUM_THREADS": ""},
            question=UNASKED,
            tokens={"running": 1, "moved": 30},
            processes=[process(10, "server"), process(11, "engine", cpu=1.0, busy_threads=1)],
        ),
        "SLOW",
        "idle_cores",
    ),
    (
        "a changed model weighs more than an idle core",
        server_of(variables={"OMP_NUM_THREADS": "1"}, findings=finding("model_changed")),
        "MISCONFIGURED",
        "model_changed",
    ),
    ("not enabled", server_of(systemd={"UnitFileState": "disabled"}), "MISCONFIGURED", "not_enabled"),
    ("unit file not read", server_of(systemd={"NeedDaemonReload": "yes"}), "MISCONFIGURED", "reload_needed"),
    ("restarted once", server_of(systemd={"NRestarts": 1}), "OK", "restarts"),
    ("key refused", server_of(question={"status": 401}), "MISCONFIGURED", "key_refused"),
    ("no key known", server_of(question={"status": 401, "keys": 0}), "OK", "key_unknown"),
    ("key changed since the start", server_of(question={"key": 1, "keys": 2}), "MISCONFIGURED", "key_stale"),
    ("key file open", server_of(findings=finding("key_file_open")), "MISCONFIGURED", "key_file_open"),
    ("model changed", server_of(findings=finding("model_changed")), "MISCONFIGURED", "model_changed"),
    (
        "a doubt that a token has disproved",
        server_of(findings=finding("version_without_cpu")),
        "OK",
        "version_without_cpu",
    ),
    (
        "orphans",
        host_of(orphans=[process(40, "worker")]),
        "MISCONFIGURED",
        "orphan_workers",
    ),
    ("disk full", host_of(disks=[{"path": "/var", "free_bytes": 0, "inodes_free": 0.5}]), "MISCONFIGURED", "disk_full"),
    ("no inodes", host_of(disks=[{"path": "/var", "free_bytes": GIB, "inodes_free": 0}]), "MISCONFIGURED", "disk_full"),
    ("shm full", host_of(shm={"free_bytes": 0}), "MISCONFIGURED", "shm_full"),
    ("not root", host_of(privileged=False), "OK", "not_root"),
    ("a kill in its cgroup", server_of(cgroup={"oom_kills": 1}), "OK", "oom_kills"),
    ("a part in swap", server_of(processes=[process(10, "server", swap_bytes=GIB)]), "OK", "swapped_out"),
    ("an invalid opcode in the kernel's log", host_of(kernel={"invalid_opcode": ["trap"]}), "OK", "invalid_opcode"),
    ("an old kill in the kernel's log", host_of(kernel={"oom": ["Killed process 3"]}), "OK", "oom_in_kernel_log"),
]


@pytest.mark.parametrize(("change", "verdict", "code"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_verdict(change: Callable[[dict[str, Any]], None], verdict: str, code: str) -> None:
    facts = healthy()
    change(facts)
    before = copy.deepcopy(facts)
    found, causes = doctor.judge(facts)
    assert found == verdict, causes
    assert (causes[0]["code"] if causes else "") == code
    assert facts == before, "judging changes nothing"
    line = doctor.first_line(found, causes, facts)
    assert "\n" not in line
    assert line.startswith((f"{verdict} ", f"{verdict}:"))
    assert "Next: " in line
    for entry in causes:
        assert entry["text"] and entry["remedy"] and entry["command"]
        assert "{" not in entry["command"]


def test_every_own_cause_is_judged_in_the_table_of_cases() -> None:
    covered = {code for _name, _change, _verdict, code in CASES}
    text = doctor_file.PATH.read_text(encoding="utf-8")
    told = set(re.findall(r'\bcause\(\s*"(\w+)"', text))
    assert told - set(OWN) == set()
    assert {code for code in OWN if f'"{code}"' not in text} == set(), "a cause that nothing finds"
    # What the checks of files find is judged alike; test_doctor_files.py has each.
    files = (Path(__file__).parent / "test_doctor_files.py").read_text(encoding="utf-8")
    assert {code for code in OWN if code not in covered and f'"{code}"' not in files} == set()


def test_restarting_is_never_advised_without_saving_first() -> None:
    for code, (_letter, _text, _remedy, command) in OWN.items():
        assert "restart" not in command or "{restart}" in command, code
    facts = healthy()
    server_of(**dead())(facts)
    _verdict, causes = doctor.judge(facts)
    command = causes[0]["command"]
    assert command.index("--snapshot") < command.index("reset-failed") < command.index("systemctl restart vllm.service")


def test_journal_table_equals_that_of_the_collection() -> None:
    known = [
        (entry["code"], entry["~"], entry["+"], entry[">"], entry["rank"], entry["any_level"])
        for entry in doctor.read_known(doctor.KNOWN)
    ]
    wanted = [(c.code, c.pattern.pattern, c.text, c.remedy, c.rank, c.any_level) for c in CAUSES]
    assert known == wanted, f"Replace KNOWN in {doctor_file.PATH.name} by:\n{doctor_file.journal_table()}"


@pytest.mark.parametrize("file", sorted((FIXTURES / "journal").glob("*.log")), ids=lambda path: path.stem)
def test_first_cause_is_that_of_the_collection(file: Path) -> None:
    lines = file.read_text(encoding="utf-8").splitlines()
    wanted = first_cause(lines)
    assert doctor.first_cause(lines) == (wanted.as_dict() if wanted else None)


def test_settings_are_codes_of_the_journal() -> None:
    assert {known.code for known in CAUSES} >= doctor.SETTINGS


def test_isa_classes_are_those_of_the_collection() -> None:
    assert tuple(doctor.ISA) == ISA_CLASSES
    for arch, ladder in zip(("x86_64", "aarch64"), doctor.LADDERS):
        for index, name in enumerate(ladder):
            flags = {flag for step in ladder[: index + 1] for flag in doctor.ISA[step]}
            assert isa_class(flags, arch).isa_class == name
            assert doctor.missing_flags(name, flags) == set()


def test_python_3_6_is_enough() -> None:
    """A tool reads syntax and calls; the interpreter itself is too old to be had everywhere."""
    command = [
        sys.executable,
        "-c",
        "import vermin; vermin.main()",
        "--no-tips",
        "--violations",
        "--target=3.6-",
        str(doctor_file.PATH),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Minimum required versions: 3.6" in done.stdout


def test_nothing_but_the_standard_library_is_imported() -> None:
    names = re.findall(r"^(?:import|from) ([\w.]+)", doctor_file.PATH.read_text(encoding="utf-8"), re.MULTILINE)
    assert [name for name in names if name.split(".")[0] not in sys.stdlib_module_names] == []


def test_page_has_every_code_and_status() -> None:
    page = (REPOSITORY / "docs/doctor.md").read_text(encoding="utf-8")
    assert {code for code in OWN if f"`{code}`" not in page} == set()
    for verdict, status in doctor.STATUS.items():
        assert re.search(rf"^\| {verdict} \| {status} \|", page, re.MULTILINE), verdict
