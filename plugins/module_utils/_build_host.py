# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Reads and writes one build on this host: its folder, its unit, and the kernel's record of it."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import shutil
import time
from typing import Any, Callable, Iterator

from ansible_collections.cpufleet.vllm.plugins.module_utils._build_failure import (
    End,
    Evidence,
    Failure,
    classify,
    lines_since,
    parse_end,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._build_log import (
    Sample,
    cpu_seconds,
    progress,
    progress_line,
    remember,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._build_unit import (
    RESERVED_BYTES,
    SCRIPT,
    Ccache,
    build_environment,
    ccache_counts,
    toolchain_changes,
    unit_properties,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._io import (
    read_bytes,
    read_json,
    read_text,
    sha256_bytes,
    sha256_file,
    write_atomic,
    write_json,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._sizes import human
from ansible_collections.cpufleet.vllm.plugins.module_utils._systemd import environment_file
from ansible_collections.cpufleet.vllm.plugins.module_utils._wheel import wheel_requirements

__all__ = ("Build",)

BOOT_ID = "/proc/sys/kernel/random/boot_id"
LOOK_S = 5.0
# The oldest Python whose stable ABI the releases are written for.
STABLE_ABI = "cp38"


class Build:
    """One build. ``run`` carries out a command and returns status, output and errors."""

    # What is built, how the result is called, and what other variables than vLLM's a person sets for it.
    title = "vLLM"
    product = "wheel"
    variables: tuple[tuple[str, str], ...] = ()

    def __init__(self, parameters: dict[str, Any], run: Callable[[list[str]], tuple[int, str, str]]) -> None:
        self.parameters, self.run = parameters, run
        self.folder: str = parameters["folder"]
        self.source: str = parameters["source"]
        self.dest: str = parameters["dest"]
        self.unit = f"cpufleet-build-{parameters['identity'][:12]}.service"
        self.log = self._file("build.log")
        self.status_file = self._file("status")
        self.started_file = self._file("started.json")

    def finished(self) -> dict[str, Any]:
        """Return the manifest of the finished wheel, {} where there is none or its bytes are not those recorded."""
        manifest: dict[str, Any] = read_json(os.path.join(self.dest, "manifest.json"), default={})
        wheel = os.path.join(self.dest, str(manifest.get("file", "")))
        whole = manifest.get("identity") == self.parameters["identity"] and os.path.isfile(wheel)
        return manifest if whole and sha256_file(wheel) == manifest["sha256"] else {}

    def running(self) -> tuple[bool, int]:
        """Return whether the unit runs, and its memory in bytes."""
        _status, out, _error = self.run(["systemctl", "show", self.unit, "-p", "ActiveState,MemoryCurrent"])
        fields = dict(line.partition("=")[::2] for line in out.splitlines())
        memory = fields.get("MemoryCurrent", "")
        active = fields.get("ActiveState") in ("active", "activating", "deactivating", "reloading")
        return active, int(memory) if memory.isdigit() and int(memory) < 1 << 60 else 0

    def wait(self, seconds: float) -> None:
        """Wait until the unit ends, at most ``seconds``: cheaper than being asked again and again."""
        deadline, looked = time.monotonic() + seconds, time.monotonic()
        while time.monotonic() < deadline:
            time.sleep(0.2)
            if os.path.exists(self.status_file) or time.monotonic() - looked > LOOK_S:
                looked = time.monotonic()
                if not self.running()[0]:
                    return

    def started(self) -> dict[str, Any]:
        """Return what the last start wrote down; {} where nothing was started since the last end."""
        found: dict[str, Any] = read_json(self.started_file, default={})
        return found

    def end(self) -> End:
        """Return what the unit left when its command had ended."""
        return parse_end(read_text(self.status_file, default=""))

    def start(self, jobs: int, retries: list[dict[str, Any]], notes: list[str]) -> None:
        """Start the build as a unit of its own, with ``jobs`` at a time; ``notes`` are for a person."""
        cleaned = self._clean_stale()
        for path in (self.status_file, self.log):
            if os.path.exists(path):
                os.replace(path, path + ".old")
        shutil.rmtree(self._file("dist"), ignore_errors=True)
        for name in ("progress.json", "ccache.stats"):
            _remove(self._file(name))
        self._write_environment(jobs)
        # What the unit writes at its end has to fit on a full disk, so its room is taken now.
        write_atomic(self._file("status.part"), b"\n" * RESERVED_BYTES, 0o644)
        write_atomic(self._file("build.sh"), SCRIPT.encode(), 0o644)
        record = {"time": time.time(), "uptime": time.monotonic(), "boot": read_text(BOOT_ID, default="").strip()}
        record.update(identity=self.parameters["identity"], jobs=jobs, retries=retries, note="; ".join(notes + cleaned))
        write_json(self.started_file, record)
        status, out, error = self.run(self._command())
        if status:
            raise CpufleetError(
                f"Cannot start the build as {self.unit}: {(error or out).strip()}",
                "The host must run systemd; check systemctl --failed on it",
            )

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keep out other calls for the same build: one that lost its connection may still be at work here."""
        os.makedirs(self.folder, mode=0o755, exist_ok=True)
        descriptor = os.open(self._file("lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def collect(self) -> dict[str, Any]:
        """Put the built wheel and its manifest into the destination and return the manifest."""
        wheels = glob.glob(self._file("dist/*.whl"))
        if len(wheels) != 1:
            self.forget()
            raise CpufleetError(
                f"The build left {len(wheels)} wheels in {self.folder}/dist instead of one",
                f"Run again; the log is {self.log}",
            )
        name, content = os.path.basename(wheels[0]), read_bytes(wheels[0])
        os.makedirs(self.dest, mode=0o755, exist_ok=True)
        write_atomic(os.path.join(self.dest, name), content, 0o644)
        manifest = {
            **self.parameters["manifest"],
            "identity": self.parameters["identity"],
            "file": name,
            "sha256": sha256_bytes(content),
            "requires": wheel_requirements(name, wheels[0]),
            "took": self.took(),
            "retries": self.started().get("retries", []),
        }
        write_json(os.path.join(self.dest, "manifest.json"), manifest, 0o644)
        self.forget()
        shutil.rmtree(self._file("dist"))
        return manifest

    def took(self) -> dict[str, Any]:
        """Return how long the last start of the build ran, its processor time (0: not known), and what ccache knew."""
        since = float(self.started().get("time", 0))
        ended = os.path.getmtime(self.status_file) if os.path.exists(self.status_file) else since
        took: dict[str, Any] = {"seconds": round(ended - since), "cpu_seconds": cpu_seconds(self.end().times)}
        counts = ccache_counts(read_text(self._file("ccache.stats"), default=""))
        return {**took, "ccache": counts} if counts else took

    def forget(self) -> None:
        """Remove the traces of a build that ended: the next call starts one where the wheel is gone again."""
        for path in (self.status_file, self.started_file):
            _remove(path)

    def failure(self) -> Failure:
        """Return why the build failed."""
        started = self.started()
        failure = classify(
            Evidence(
                log=read_text(self.log, default=""),
                end=self.end(),
                kernel=self._kernel(started),
                unit=self.unit,
                jobs=int(started.get("jobs", 0)),
                memory_max=self.parameters["memory_max"],
                rebooted=started.get("boot", "") != read_text(BOOT_ID, default="").strip(),
            )
        )
        if failure.kind == "stale_cache":
            _remove(self._file("toolchain.json"))
        if failure.kind != "disk":
            return failure
        place = _filesystem(os.path.join(self.folder, failure.path))
        return Failure(failure.kind, f"{failure.text}; {place}", failure.remedy, failure.path)

    def describe(self, phase: str, memory: int = 0) -> dict[str, Any]:
        """Return the state of the build for the caller, and remember how far it is."""
        now, log, started = time.time(), read_text(self.log, default=""), self.started()
        samples = [Sample(*pair) for pair in read_json(self._file("progress.json"), default=[])]
        known = remember(samples, now, log)
        if phase == "running" and known != samples:
            # On a full disk the build tells better than this does what the matter is.
            with contextlib.suppress(CpufleetError):
                write_json(self._file("progress.json"), [[sample.time, sample.step] for sample in known])
        line = progress_line(progress(log, known, now), memory)
        return {"phase": phase, "line": line, "note": started.get("note", ""), "log": self.log}

    def _file(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def _write_environment(self, jobs: int) -> None:
        given = {name: str(value) for name, value in self.parameters["environment"].items()}
        folder, ccache = self.parameters["ccache_dir"], None
        if folder and shutil.which("ccache", path=given.get("PATH")):
            os.makedirs(folder, mode=0o755, exist_ok=True)
            ccache = Ccache(folder, self.parameters["ccache_size"])
        environment = build_environment(given, jobs, ccache, os.path.dirname(self.folder))
        # Not --setenv: an index or proxy URL may hold a password, and a unit's own settings are for all to read.
        write_atomic(self._file("build.env"), environment_file(dict(environment)).encode(), 0o600)

    def _command(self) -> list[str]:
        _status, systemd, _error = self.run(["systemctl", "--version"])
        command = ["systemd-run", "--quiet", "--collect", f"--unit={self.unit}", f"--working-directory={self.folder}"]
        command += unit_properties(systemd, self._file("build.env"), self.parameters["memory_max"])
        return [*command, "/bin/sh", self._file("build.sh"), self.folder, *self.words()]

    def words(self) -> list[str]:
        """Return the command that builds."""
        command = [self.parameters["uv"], "build", "--wheel", "--no-build-isolation"]
        command += ["--python", self.parameters["python"], "--out-dir", self._file("dist")]
        if self.parameters["abi3"]:
            command.append(f"--config-setting=--build-option=--py-limited-api={STABLE_ABI}")
        return [*command, self.source]

    def _clean_stale(self) -> list[str]:
        """Remove what CMake made with another interpreter, torch or compiler; return a note where there was such."""
        configured = bool(glob.glob(os.path.join(self.source, "build", "*", "CMakeCache.txt")))
        stamp, now = self._file("toolchain.json"), self._toolchain()
        before = read_json(stamp, default={})
        changes = toolchain_changes(before or None, now, configured)
        if changes:
            made = glob.glob(os.path.join(self.source, ".deps", "*-build"))
            made += glob.glob(os.path.join(self.source, ".deps", "*-subbuild"))
            for folder in (os.path.join(self.source, "build"), *made):
                shutil.rmtree(folder, ignore_errors=True)
        if before != now:
            write_json(stamp, now)
        return [f"the build tree is made anew: {', '.join(changes)}"] if changes else []

    def _toolchain(self) -> dict[str, str]:
        """Return interpreter, torch and compilers of the build, each by what tells it from another."""
        python = self.parameters["python"]
        packages = os.path.join(os.path.dirname(os.path.dirname(python)), "lib*", "python*", "site-packages")
        torch = {os.path.basename(path) for path in glob.glob(os.path.join(packages, "torch-*.dist-info"))}
        found = {"python": self._version(python, "-VV"), "torch": ", ".join(sorted(torch))}
        for name in ("CC", "CXX"):
            compiler = str(self.parameters["environment"].get(name, ""))
            if compiler:
                found[name] = self._version(compiler, "--version")
        return {name: text for name, text in found.items() if text}

    def _version(self, program: str, option: str) -> str:
        if not shutil.which(program):
            return ""
        _status, out, _error = self.run([program, option])
        return f"{os.path.realpath(program)} {out.strip().splitlines()[0] if out.strip() else ''}"

    def _kernel(self, started: dict[str, Any]) -> str:
        """Return what the kernel said since the build was started; empty where nobody may read it."""
        if shutil.which("journalctl"):
            since = f"--since=@{int(started.get('time', time.time()))}"
            command = ["journalctl", "--dmesg", "--quiet", "--no-pager", "--output=cat", since]
            status, out, _error = self.run(command)
            if status == 0 and out.strip():
                return out
        if not shutil.which("dmesg"):
            return ""
        _status, out, _error = self.run(["dmesg"])
        return lines_since(out, float(started.get("uptime", 0)))


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _filesystem(path: str) -> str:
    """Return how full the filesystem of ``path`` is now."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    mount = os.path.realpath(path)
    while not os.path.ismount(mount):
        mount = os.path.dirname(mount)
    state = os.statvfs(path)
    free, total = state.f_bavail * state.f_frsize, state.f_blocks * state.f_frsize
    inodes = "" if state.f_favail or not state.f_files else ", and no file can be made"
    return f"the filesystem at {mount} has {human(free)} of {human(total)} left now{inodes}"
