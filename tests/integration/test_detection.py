# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the real vllm/platforms of each release detects, as released and with platform_patch in place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.detection import Detection, detect
from tests.support.run_module import run_module
from tests.support.trees import copy_tree, tree
from tests.support.versions import GENERATIONS, each_version

FORCED = {"VLLM_CPU_ONLY": "1"}
CPU = Detection("CpuPlatform")
UNSPECIFIED = Detection("UnspecifiedPlatform")
CUDA = ("CudaPlatform", "NvmlCudaPlatform")
TWO_PLUGINS = "RuntimeError: Only one platform plugin can be activated, but got: "
#: What vLLM takes for the sign of other hardware, as far as a module that can be imported is the sign.
OTHERS = ["amdsmi", "habana_frameworks", "libtpu", "transformers_neuronx"]


def edited(version: str, root: Path) -> Path:
    copy_tree(version, root)
    assert run_module("platform_patch", path=root, force=True)["status"] == "applied"
    return root


def detect_edited(version: str, root: Path, installed: str | None, **options: Any) -> Detection:
    return detect(root, installed, fallback=tree(version), **options)


@each_version()
def test_release_as_it_is(version: str) -> None:
    root, generation = tree(version), GENERATIONS[version][0]
    assert detect(root, version) == UNSPECIFIED
    assert detect(root, f"{version}+cpu") == CPU
    assert detect(root, version, gpu=True).platform in CUDA
    on_gpu_host = detect(root, f"{version}+cpu", gpu=True)
    if generation == "D1":
        assert on_gpu_host.platform in CUDA
    elif generation == "D2":
        assert on_gpu_host.error.startswith(TWO_PLUGINS)
        assert sorted(eval(on_gpu_host.error[len(TWO_PLUGINS) :])) == ["cpu", "cuda"]  # noqa: S307 - a list of names
    else:
        assert on_gpu_host == CPU
    at_run_time = detect(root, version, environment={"VLLM_TARGET_DEVICE": "cpu"})
    assert at_run_time == (CPU if generation == "D6" else UNSPECIFIED)
    assert detect(root, version, environment=FORCED) == UNSPECIFIED


@each_version()
def test_edit_makes_the_variable_decide(version: str, tmp_path: Path) -> None:
    root = edited(version, tmp_path)
    for installed in (version, f"{version}+cpu", None):
        for gpu in (False, True):
            assert detect_edited(version, root, installed, gpu=gpu, environment=FORCED) == CPU, (installed, gpu)
    assert detect_edited(version, root, version, present=OTHERS, gpu=True, environment=FORCED) == CPU


@each_version("D3", "D4", "D5", "D6")
def test_plugins_say_the_same(version: str, tmp_path: Path) -> None:
    """Other parts of a release ask its plugins and the version, too: they hear the same."""
    root = edited(version, tmp_path)
    forced = detect_edited(version, root, version, gpu=True, plugins=True, environment=FORCED).verdicts or {}
    assert (forced["cuda"], forced["cpu"]) == (None, "vllm.platforms.cpu.CpuPlatform")
    free = detect_edited(version, root, version, gpu=True, plugins=True).verdicts or {}
    assert (free["cuda"], free["cpu"]) == ("vllm.platforms.cuda.CudaPlatform", None)


@pytest.mark.full
def test_functions_of_0_6_3_say_the_same(tmp_path: Path) -> None:
    """That release asks vllm.utils in many places, beside vllm.platforms."""
    root = edited("0.6.3.post1", tmp_path)
    ask = [f"vllm.utils:{name}" for name in ("is_cpu", "is_neuron", "is_openvino", "is_xpu")]
    options: dict[str, Any] = {"ask": ask, "present": ["transformers_neuronx"]}
    forced = detect_edited("0.6.3.post1", root, "0.6.3+openvino", environment=FORCED, **options)
    assert list((forced.verdicts or {}).values()) == [True, False, False, False]
    free = detect_edited("0.6.3.post1", root, "0.6.3+openvino", **options)
    assert list((free.verdicts or {}).values()) == [False, True, True, False]


@each_version("0.26.0", "D6")
def test_triton_for_gpus_is_not_used(version: str, tmp_path: Path) -> None:
    """From 0.26.0 a release asks the version whether a triton without a CPU backend is to be switched off."""
    root = edited(version, tmp_path)
    options: dict[str, Any] = {"ask": ["vllm.triton_utils.importing:HAS_TRITON"], "present": ["triton"], "gpu": True}
    assert detect_edited(version, root, version, environment=FORCED, **options).verdicts == {"HAS_TRITON": False}
    assert detect_edited(version, root, version, **options).verdicts == {"HAS_TRITON": True}


@pytest.mark.parametrize("value", ["true", "TRUE", "yes", "on", " 1 "])
def test_values_that_mean_yes(value: str, tmp_path: Path) -> None:
    root = edited("0.8.5", tmp_path)
    assert detect_edited("0.8.5", root, "0.8.5", environment={"VLLM_CPU_ONLY": value}) == CPU


@each_version()
def test_without_the_variable_the_edited_tree_behaves_as_released(version: str, tmp_path: Path) -> None:
    root, pristine = edited(version, tmp_path), tree(version)
    for value, installed, gpu in ((None, version, False), ("0", f"{version}+cpu", True), ("", version, True)):
        environment = {} if value is None else {"VLLM_CPU_ONLY": value}
        released = detect(pristine, installed, gpu=gpu)
        found = detect_edited(version, root, installed, gpu=gpu, environment=environment)
        assert found.platform == released.platform
        assert found.error[: len(TWO_PLUGINS)] == released.error[: len(TWO_PLUGINS)]


def test_other_hardware_is_found_without_the_variable(tmp_path: Path) -> None:
    """The stand-ins for other hardware work, so that their staying off above means something."""
    root = edited("0.6.5", tmp_path)
    assert detect_edited("0.6.5", root, "0.6.5", present=["libtpu"]).platform == "TpuPlatform"
    assert detect_edited("0.6.5", root, "0.6.5", present=["amdsmi"]).platform == "RocmPlatform"
    assert detect_edited("0.6.5", root, "0.6.5", present=["habana_frameworks"]).platform == "HpuPlatform"
    assert detect_edited("0.6.5", root, "0.6.5", present=["transformers_neuronx"]).platform == "NeuronPlatform"


def test_version_suffix_removed_from_0_6_5(tmp_path: Path) -> None:
    """The reference case: no suffix, no detection; the edit, and it is the CPU; the edit removed, the same bytes."""
    root = copy_tree("0.6.5", tmp_path)
    file = root / "vllm/platforms/__init__.py"
    original = file.read_bytes()
    assert detect_edited("0.6.5", root, "0.6.5", environment=FORCED) == UNSPECIFIED
    run_module("platform_patch", path=root)
    assert detect_edited("0.6.5", root, "0.6.5", environment=FORCED) == CPU
    run_module("platform_patch", path=root, state="absent")
    assert file.read_bytes() == original
    assert detect_edited("0.6.5", root, "0.6.5", environment=FORCED) == UNSPECIFIED
