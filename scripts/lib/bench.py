# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stand-in VMs on this machine: the Docker daemon, the image, and hosts with systemd as process 1.

Used by scripts/demo, scripts/test and the tests; ``scripts/bench --help`` for use by hand. Standard library only,
Python 3.11 and newer.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from scripts.lib import caller, image

REPOSITORY = Path(__file__).resolve().parents[2]
HOST_MODELS = "/srv/models"
HOST_SWAP = "/var/swap"
SYSTEMD_FLAGS = (
    *("--cap-add", "SYS_ADMIN"),
    *("--security-opt", "seccomp=unconfined"),
    *("--cgroupns", "host"),
    *("--tmpfs", "/run"),
    *("--tmpfs", "/run/lock"),
    # systemd shuts down at this signal; at Docker's own it only starts itself again.
    *("--stop-signal", "SIGRTMIN+3"),
    # vLLM shares memory between its processes; Docker's 64 MB is less than any VM has.
    *("--shm-size", "1g"),
)
BOOTED = ("running", "degraded")
# What a pretended /proc/cpuinfo has on top of a plain AVX2 CPU.
PRETENDED_FLAGS = {"avx2": "", "avx512": " avx512f avx512bw avx512dq avx512vl avx512cd"}


def fail(message: str) -> NoReturn:
    """End with one line that says what is wrong and what to do."""
    print(f"bench: {message}", file=sys.stderr)
    raise SystemExit(1)


def run(*command: str, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run ``command`` and return what it printed; with ``check`` its failure is ours."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if check and done.returncode:
        cause = (done.stderr or done.stdout).strip().splitlines() or ["no output"]
        fail(f"`{shlex.join(command)}` failed with status {done.returncode}: {cause[-1]}")
    return done


def as_root(*command: str) -> list[str]:
    """Return ``command`` as root runs it; a caller who is not root goes through sudo."""
    return list(command) if os.geteuid() == 0 else ["sudo", *command]


def cache() -> Path:
    """Return the folder outside git where images, models and the state of hosts are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(os.environ.get("CPUFLEET_CACHE") or Path(base) / "cpufleet")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


# --- the Docker daemon ------------------------------------------------------------------------------------------


def docker_answers() -> bool:
    """Tell whether a Docker daemon answers this user."""
    return bool(shutil.which("docker")) and run("docker", "info", check=False).returncode == 0


def start_docker() -> bool:
    """Make a Docker daemon answer; return whether this call started it (then ``stop_docker`` may end it)."""
    if docker_answers():
        return False
    if not shutil.which("dockerd"):
        fail("Docker is not installed. Run scripts/lib/machine.sh, or: apt-get install docker.io")
    if Path("/run/systemd/system").is_dir():
        run(*as_root("systemctl", "start", "docker"))
        return False if wait_for_docker(30) else fail("Docker runs but does not answer you: run as root")
    log = cache() / "dockerd.log"
    # The group is the caller's, so that a caller who is not root may use the socket.
    command = as_root("dockerd", "--group", str(os.getgid()), "--pidfile", str(cache() / "dockerd.pid"))
    with log.open("wb") as stream:
        daemon = subprocess.Popen(
            command, stdout=stream, stderr=stream, stdin=subprocess.DEVNULL, start_new_session=True
        )
    if not wait_for_docker(60, daemon):
        fail(f"dockerd did not start; its last line: {last_line(log)} (all of it in {log})")
    return True


def wait_for_docker(seconds: int, daemon: subprocess.Popen[bytes] | None = None) -> bool:
    """Wait until the daemon answers; give up early when the process ``daemon`` has ended."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if docker_answers():
            return True
        if daemon is not None and daemon.poll() is not None:
            return False
        time.sleep(0.5)
    return False


def stop_docker() -> None:
    """End the daemon that ``start_docker`` started, and no other."""
    file = cache() / "dockerd.pid"
    if not file.exists():
        return
    pid = file.read_text(encoding="ascii").strip()
    process = Path("/proc") / pid
    if not (process / "comm").exists() or (process / "comm").read_text(encoding="utf-8").strip() != "dockerd":
        return
    run(*as_root("kill", "-TERM", pid), check=False)
    for _attempt in range(120):
        if not process.exists():
            return
        time.sleep(0.5)


def last_line(log: Path) -> str:
    """Return the last line of ``log`` that is not empty."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "nothing"


# --- hosts ------------------------------------------------------------------------------------------------------


def swap_folder(name: str) -> Path:
    """Return the folder of host ``name`` where real swap files can lie (a container's own overlay takes none)."""
    base = os.environ.get("CPUFLEET_SWAP_FOLDER")
    folder = (Path(base) if base else cache() / "swap") / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def volumes(name: str) -> list[str]:
    """Return the Docker volumes of host ``name``: cgroups for systemd, swap, models, and what the caller has."""
    models = cache() / "models"
    models.mkdir(exist_ok=True)
    return [
        "/sys/fs/cgroup:/sys/fs/cgroup:rw",
        f"{swap_folder(name)}:{HOST_SWAP}",
        f"{models}:{HOST_MODELS}:ro",
        *caller.mounts(caller.read_caller()),
    ]


def pretended_volumes(isa: str) -> list[str]:
    """Return the volume that lets a host believe that its CPU is of class ``isa``, whatever this machine's is."""
    folder = cache() / "cpuinfo"
    folder.mkdir(exist_ok=True)
    real = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    plain = re.sub(r" (?:avx512\w*|avx_vnni|amx\w*)\b", "", real)
    pretended = re.sub(r"^(flags\s*:.*)$", rf"\1{PRETENDED_FLAGS[isa]}", plain, flags=re.MULTILINE)
    (folder / isa).write_text(pretended, encoding="utf-8")
    return [f"{folder / isa}:/proc/cpuinfo:ro"]


def host_variables() -> dict[str, Any]:
    """Return the Ansible variables that every stand-in host gets."""
    python = image.python_version(image.name())
    return caller.host_variables(caller.read_caller(), python, platform.machine())


def environment(scenario: str) -> dict[str, str]:
    """Return the variables that .config/molecule/config.yml reads, for ``scenario``."""
    prefix = os.environ.get("CPUFLEET_HOST_PREFIX", "cpufleet")
    usual = volumes(f"{prefix}-{scenario}")
    pretended = {isa: json.dumps([*usual, *pretended_volumes(isa)]) for isa in PRETENDED_FLAGS}
    return {
        **{f"CPUFLEET_VOLUMES_{isa.upper()}": value for isa, value in pretended.items()},
        "CPUFLEET_IMAGE": image.name(),
        "CPUFLEET_HOST_PREFIX": prefix,
        "CPUFLEET_CACHE": str(cache()),
        # Scenario default fills it from the real source, and model_serve installs from it.
        "CPUFLEET_STORE": str(cache() / "store" / prefix),
        "CPUFLEET_VOLUMES": json.dumps(usual),
        "CPUFLEET_HOST_VARS": json.dumps(host_variables()),
    }


def start_host(
    name: str, *, memory: str = "", cpus: str = "", publish: tuple[str, ...] = (), flags: tuple[str, ...] = ()
) -> str:
    """Start a bare host called ``name`` and wait until its systemd has booted; return its address.

    ``memory`` and ``cpus`` are limits as Docker spells them ("4g", "2"); memory is given without swap on top.
    """
    command = ["docker", "run", "--detach", "--name", name, "--hostname", name, *SYSTEMD_FLAGS]
    for volume in volumes(name):
        command += ["--volume", volume]
    if memory:
        command += ["--memory", memory]
    if cpus:
        command += ["--cpus", cpus]
    for port in publish:
        command += ["--publish", port]
    run(*command, *flags, image.name(), "/lib/systemd/systemd")
    wait_for_host(name)
    return host_address(name)


def host_address(name: str) -> str:
    """Return the address of host ``name`` on this machine."""
    inspect = run("docker", "inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{end}}", name)
    return (inspect.stdout.split() or [""])[0]


def wait_for_host(name: str, seconds: int = 60) -> str:
    """Wait until systemd in host ``name`` has booted; return its state, ``running`` or ``degraded``."""
    deadline = time.monotonic() + seconds
    state = ""
    while time.monotonic() < deadline:
        state = run("docker", "exec", name, "systemctl", "is-system-running", check=False).stdout.strip()
        if state in BOOTED:
            return state
        time.sleep(0.3)
    fail(f"systemd in host {name} did not boot in {seconds} s, its state is {state or 'unknown'}: docker logs {name}")


def restart_host(name: str) -> None:
    """Restart host ``name`` as a reboot would, and wait until it has booted."""
    run("docker", "restart", "--time", "60", name)
    wait_for_host(name)


def host_exists(name: str) -> bool:
    """Tell whether a host of that name exists, running or not."""
    return run("docker", "container", "inspect", name, check=False).returncode == 0


def stop_host(name: str) -> None:
    """Remove host ``name`` and its swap. Swap is the kernel's, not the container's: it is switched off first."""
    release_swap(name)
    run("docker", "rm", "--force", "--volumes", name, check=False)
    shutil.rmtree(swap_folder(name), ignore_errors=True)


def release_swap(name: str) -> None:
    """Switch off every swap file in the folder of host ``name``."""
    for file in sorted(swap_folder(name).iterdir()):
        if file.is_file():
            run(*as_root("swapoff", str(file)), check=False)


# --- command line -----------------------------------------------------------------------------------------------


def parse(arguments: list[str]) -> argparse.Namespace:
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Stand-in VMs on this machine.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("up", help="start Docker if need be and make the image; prints started=true|false")
    commands.add_parser("down", help="end the Docker daemon that `up` started")
    commands.add_parser("vars", help="print the Ansible variables of every host as JSON")
    for command, text in (
        ("env", "print the variables molecule needs for a scenario, for eval"),
        ("start", "start a host"),
        ("restart", "restart a host"),
        ("stop", "remove a host and its swap"),
        ("release-swap", "switch off the swap of a host"),
    ):
        commands.add_parser(command, help=text).add_argument("name")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Carry out one command."""
    options = parse(arguments)
    if options.command == "up":
        started = start_docker()
        image.ensure(cache(), as_root)
        print(f"started={str(started).lower()}")
    elif options.command == "down":
        stop_docker()
    elif options.command == "vars":
        print(json.dumps(host_variables(), indent=2))
    elif options.command == "env":
        for key, value in environment(options.name).items():
            print(f"export {key}={shlex.quote(value)}")
    elif options.command == "start":
        print(start_host(options.name))
    elif options.command == "restart":
        restart_host(options.name)
    elif options.command == "stop":
        stop_host(options.name)
    else:
        release_swap(options.name)
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main(sys.argv[1:]))
