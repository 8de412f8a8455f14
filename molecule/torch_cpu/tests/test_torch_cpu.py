# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The environment after a cut download, a rebuild and a refusal, as its own interpreter tells it."""

from __future__ import annotations

import json
from typing import Any

ROOT = "/opt/vllm"
QUESTION = """
import importlib.metadata as m, json, torch
print(json.dumps({"version": torch.__version__, "cuda": torch.version.cuda, "sum": float(torch.ones(2, 2).sum()),
                  "packages": sorted(d.metadata["Name"].lower() for d in m.distributions())}))
"""

# What only a host that compiles vLLM has, and what a host that serves it has, by the names of Debian's packages.
BUILD_SET = {"g++", "gcc", "libnuma-dev", "python3.11-dev", "ccache", "git", "make", "cmake", "ninja-build"}
RUNTIME_SET = {"python3.11-venv", "libgomp1", "libnuma1", "libtcmalloc-minimal4", "ca-certificates"}


def venv(host: Any) -> str:
    (release,) = host.file(f"{ROOT}/releases").listdir()
    return f"{ROOT}/releases/{release}/venv"


def installed(host: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(host.check_output("%s/bin/python -c %s", venv(host), QUESTION))
    return document


def test_torch_is_a_cpu_build_that_reckons(host: Any) -> None:
    found = installed(host)
    assert found["version"].endswith("+cpu")
    assert (found["cuda"], found["sum"]) == (None, 4.0)


def test_nothing_but_torch_and_what_it_imports_is_there(host: Any) -> None:
    packages = installed(host)["packages"]
    assert [name for name in packages if name.startswith(("nvidia", "triton", "vllm", "transformers"))] == []
    assert {"torch", "numpy", "sympy"} <= set(packages)
    assert len(packages) < 15


def test_lock_has_torch_by_its_digest(host: Any) -> None:
    (lock,) = host.file(f"{ROOT}/locks").listdir()
    lines = host.file(f"{ROOT}/locks/{lock}").content_string.splitlines()
    (place,) = [number for number, line in enumerate(lines) if line.startswith("torch==")]
    assert "--hash=sha256:" in lines[place + 1]


def test_finished_stage_is_recorded_and_the_half_made_one_is_gone(host: Any) -> None:
    assert host.file(f"{venv(host)}/pyvenv.cfg").exists
    assert len(json.loads(host.file(f"{venv(host)}/.cpufleet/torch.json").content_string)["inputs"]) == 64


def test_line_was_cut_and_the_download_was_made_again(host: Any) -> None:
    log = host.check_output("journalctl --unit cutting-server --no-pager --output cat")
    assert "cut off after" in log
    whole = [line for line in log.splitlines() if "GET /torch-" in line]
    assert whole


def test_small_tmp_was_not_used(host: Any) -> None:
    assert int(host.check_output("df --output=size --block-size=1M /tmp | tail -1")) == 16
    assert host.file(f"{ROOT}/cache/tmp").is_directory


def test_python_of_the_system_is_as_it_was(host: Any) -> None:
    assert host.run("python3 -c 'import torch'").rc != 0
    assert host.run("ls /usr/lib/python3*/EXTERNALLY-MANAGED").rc == 0


def test_a_host_that_received_its_wheel_got_no_build_set(host: Any) -> None:
    packages = set(host.file("/root/packages-of-a-receiver").content_string.split())
    assert packages & BUILD_SET == set()
    assert packages >= RUNTIME_SET
    assert [name for name in packages if name.startswith(("cpp", "g++", "gcc")) and name != "gcc-12-base"] == []


def test_tcmalloc_can_be_preloaded(host: Any) -> None:
    library = "/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4"
    host.run_expect([0], f"LD_PRELOAD={library} python3 -c 'print(1)'")
    maps = host.check_output(f"LD_PRELOAD={library} python3 -c 'print(open(\"/proc/self/maps\").read())'")
    assert "libtcmalloc_minimal" in maps


def test_compiler_at_run_time_has_what_torch_compile_asks_of_it(host: Any) -> None:
    """What torch.compile generates begins with Python.h; to run it here would take longer than all the rest."""
    packages = set(host.check_output("dpkg-query -W -f '${Package}\\n'").split())
    assert packages & BUILD_SET == {"g++", "gcc", "python3.11-dev"}
    code = "#include <Python.h>\\n#include <omp.h>\\nint kernel() { return omp_get_max_threads(); }\\n"
    flags = "-x c++ -shared -fPIC -fopenmp -I/usr/include/python3.11 -o /root/kernel.so -"
    host.run_expect([0], f"printf '{code}' | g++ {flags}")
