# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""source_fix over real vLLM trees: which fixes a tree needs, what they change in its behaviour, and the ISA limit."""

from __future__ import annotations

import ast
import platform
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._edits_fixes import applicable_fixes
from ansible_collections.cpufleet.vllm.plugins.module_utils._edits_isa import isa_generation
from ansible_collections.cpufleet.vllm.plugins.module_utils._source_cmake import Rehearsal, parse

from tests.support.detection import detect
from tests.support.run_module import run_module
from tests.support.trees import copy_tree, tree
from tests.support.versions import GENERATIONS, each_version

QUESTIONS = "torch-cpu-questions"
NEEDED = {
    **{version: [QUESTIONS] for version in ("0.9.2", "0.11.2", "0.13.0")},
    "0.10.2": [QUESTIONS, "prefill-without-extension"],
    "0.14.1": ["l2-cache-size", QUESTIONS],
    "0.16.0": ["mla-bfloat16-fallback", "l2-cache-size", QUESTIONS],
    "0.17.1": ["l2-cache-size", QUESTIONS],
    "0.18.1": ["l2-cache-size", QUESTIONS],
    "0.19.1": ["l2-cache-size"],
    "0.32.0": ["slot-mapping-arguments"],
}
STAND_IN = "vllm/utils/cpu_triton_utils.py"
LIBRARIES = {"I4": ["_C", "_C_AVX2"], "I5": ["_C", "_C_AVX512", "_C_AVX2"]}


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def reader(root: Path) -> Any:
    return lambda path: (root / path).read_bytes() if (root / path).is_file() else None


def statuses(result: dict[str, Any]) -> dict[str, str]:
    return {edit["name"]: edit["status"] for edit in result["edits"]}


@each_version()
def test_which_fixes_a_tree_needs(version: str) -> None:
    found = applicable_fixes(reader(tree(version)))
    assert [fix.name for fix in found] == NEEDED.get(version, [])
    assert all(fix.state == "applicable" for fix in found)


@each_version()
def test_fixes_and_limit_apply_once_and_revert(version: str, tmp_path: Path) -> None:
    root = copy_tree(version, tmp_path)
    before = contents(root)
    generation = GENERATIONS[version][1]
    needed = NEEDED.get(version, [])
    assert isa_generation(reader(root)) == generation

    planned = run_module("source_fix", check=True, path=root, isa=["avx2"])
    assert contents(root) == before
    result = run_module("source_fix", path=root, isa=["avx2"])
    assert result == planned
    limited = generation in LIBRARIES
    assert result["generation"] == generation
    assert (result["changed"], result["status"]) == ((True, "applied") if limited or needed else (False, "not_needed"))
    assert [name for name, status in statuses(result).items() if status == "applied"] == [
        *needed,
        *(["isa-limit"] if limited else []),
    ]
    after = contents(root)
    assert sorted(path for path in after if after[path] != before[path]) == sorted(result["files"])
    for path in result["files"]:
        assert f"--- a/{path}\n" in result["diff"]["prepared"]
        assert not path.endswith(".py") or ast.parse(after[path])
    assert [fix.state for fix in applicable_fixes(reader(root))] == ["applied"] * len(needed)

    assert run_module("source_fix", path=root, isa=["avx2"])["changed"] is False
    assert run_module("source_fix", path=root)["changed"] is False
    assert contents(root) == after
    removed = run_module("source_fix", path=root, state="absent")
    assert (removed["changed"], removed["status"]) == (bool(result["files"]), "removed")
    assert contents(root) == before


# Fixes


def call_stand_in(root: Path) -> list[Any]:
    """Call the tree's stand-in as its dispatcher does: arguments in the order of the kernel that it stands in for."""
    kernel = next(
        node
        for node in ast.walk(ast.parse((root / "vllm/v1/worker/block_table.py").read_bytes()))
        if isinstance(node, ast.FunctionDef) and node.name == "kernel"
    )
    values = {"TOTAL_CP_WORLD_SIZE": 1, "BLOCKS_PER_KV_BLOCK": 1}
    names = [argument.arg.removesuffix("_ptr") for argument in kernel.args.args]
    arguments = [values.get(name, name) for name in names]
    called: list[Any] = []
    operators = types.SimpleNamespace(compute_slot_mapping_kernel_impl=lambda *given: called.extend(given))
    torch = types.ModuleType("torch")
    torch.ops, torch.Tensor = types.SimpleNamespace(_C=operators), object  # type: ignore[attr-defined]
    scope: dict[str, Any] = {}
    kept = sys.modules.get("torch")
    sys.modules["torch"] = torch
    try:
        exec(compile((root / STAND_IN).read_bytes(), STAND_IN, "exec"), scope)  # noqa: S102 - the code under test
        scope["_compute_slot_mapping_kernel_impl"](*arguments)
    finally:
        sys.modules.pop("torch")
        if kept:
            sys.modules["torch"] = kept
    return called


RIGHT = ["query_start_loc", "positions", "block_table", "slot_mapping", "KV_CACHE_BLOCK_SIZE"]


def test_slot_mapping_stand_in_of_0_32_0(tmp_path: Path) -> None:
    root = copy_tree("0.32.0", tmp_path)
    with pytest.raises(AssertionError):  # the real engine fails one comparison earlier, on tensors
        call_stand_in(root)
    run_module("source_fix", path=root)
    assert call_stand_in(root) == RIGHT


@pytest.mark.full
def test_slot_mapping_stand_in_of_the_neighbours_is_right() -> None:
    """0.31.0 has the same stand-in, and a kernel that it fits."""
    assert call_stand_in(tree("0.33.0")) == RIGHT
    assert call_stand_in(tree("0.31.0")) == [*RIGHT[:-1], "block_size"]


def test_fix_of_an_installed_package(tmp_path: Path) -> None:
    copy_tree("0.32.0", tmp_path, ["vllm/*.py", "vllm/platforms", "vllm/utils", "vllm/v1/worker/block_table.py"])
    result = run_module("source_fix", path=tmp_path / "vllm", fixes=["slot-mapping-arguments"])
    assert (result["changed"], result["generation"], result["files"]) == (True, "", [STAND_IN])
    failure = run_module("source_fix", path=tmp_path / "vllm", isa=["avx2"])
    assert failure["msg"].startswith("Cannot limit the ISA variants here: neither setup.py nor")


def test_chosen_fixes_only(tmp_path: Path) -> None:
    root = copy_tree("0.32.0", tmp_path)
    assert run_module("source_fix", path=root, fixes=[])["status"] == "not_needed"
    result = run_module("source_fix", path=root, fixes=["mla-bfloat16-fallback"])
    assert (result["status"], result["changed"]) == ("not_needed", False)
    assert result["reason"] == "mla-bfloat16-fallback: This tree does not have the fault; 0.16.0 does"
    failure = run_module("source_fix", path=root, fixes=["warp-drive"])
    assert failure["msg"] == (
        "There is no fix named warp-drive. Name one of slot-mapping-arguments, mla-bfloat16-fallback, l2-cache-size, "
        "torch-cpu-questions, prefill-without-extension."
    )


def test_removal_of_what_is_named_leaves_the_rest(tmp_path: Path) -> None:
    root = copy_tree("0.32.0", tmp_path)
    run_module("source_fix", path=root, isa=["avx2"])
    only_limit = run_module("source_fix", path=root, state="absent", isa=["avx2"])
    assert statuses(only_limit) == {"isa-limit": "removed"}
    assert only_limit["files"] == ["setup.py", "vllm/platforms/cpu.py"]
    only_fix = run_module("source_fix", path=root, state="absent", fixes=["slot-mapping-arguments"])
    assert only_fix["files"] == [STAND_IN]
    assert contents(root) == contents(copy_tree("0.32.0", tmp_path / "pristine"))


ALTERED = {
    "fix": (STAND_IN, "    BLOCKS_PER_KV_BLOCK: int = 1,", "    BLOCKS_PER_KV_BLOCK: int = 2,"),
    "target": (
        "setup.py",
        '        ext_modules.append(CMakeExtension(name="vllm._C_AVX512"))',
        '        ext_modules.append(CMakeExtension("vllm._C_AVX512"))',
    ),
    "import": ("vllm/platforms/cpu.py", "    def import_kernels(cls) -> None:", "    def import_kernels(cls):"),
}


@pytest.mark.parametrize(("path", "anchor", "altered"), ALTERED.values(), ids=ALTERED)
def test_altered_anchor_fails_and_leaves_all_files(path: str, anchor: str, altered: str, tmp_path: Path) -> None:
    root = copy_tree("0.32.0", tmp_path)
    text = (root / path).read_bytes()
    assert anchor.encode() in text
    (root / path).write_bytes(text.replace(anchor.encode(), altered.encode()))
    before = contents(root)
    failure = run_module("source_fix", path=root, isa=["avx2"])
    assert failure["failed"]
    assert failure["path"] == path
    assert anchor in failure["anchor"] or path == "setup.py"
    assert "nothing was written" in failure["msg"]
    assert contents(root) == before


# The ISA limit


def built(root: Path) -> list[str]:
    """Run the tree's own `if _is_cpu():` of setup.py as on x86_64, and say which extensions it asks for."""
    module = ast.parse((root / "setup.py").read_bytes())
    branch = next(node for node in module.body if isinstance(node, ast.If) and ast.unparse(node.test) == "_is_cpu()")
    extensions: list[str] = []
    scope = {"_is_cpu": lambda: True, "CMakeExtension": lambda name, **_: name, "ext_modules": extensions}
    exec(compile(ast.Module([branch], []), "setup.py", "exec"), scope)  # noqa: S102 - the code under test
    return [name.removeprefix("vllm.") for name in extensions if name.startswith("vllm._C")]


def loads(version: str, root: Path, cpu: str) -> list[str]:
    found = detect(root, f"{version}+cpu", fallback=tree(version), avx=cpu)
    assert found.error == ""
    return list(found.kernels)


#: Classes wanted, then per generation what is built and what a CPU with nothing, AVX512, and AVX512-BF16 loads of it.
LIMITS: dict[tuple[str, ...], dict[str, tuple[list[str], list[str]]]] = {
    ("avx2",): {
        "I4": (["_C_AVX2"], ["_C_AVX2", "_C_AVX2", "_C_AVX2"]),
        "I5": (["_C_AVX2"], ["_C_AVX2", "_C_AVX2", "_C_AVX2"]),
    },
    ("avx512",): {
        "I4": (["_C_AVX2"], ["_C_AVX2", "_C_AVX2", "_C_AVX2"]),
        "I5": (["_C_AVX512"], ["_C_AVX2", "_C_AVX512", "_C_AVX512"]),
    },
    ("amx",): {
        "I4": (["_C"], ["_C_AVX2", "_C", "_C"]),
        "I5": (["_C"], ["_C_AVX2", "_C_AVX512", "_C"]),
    },
    ("avx2", "avx512_bf16"): {
        "I4": (["_C", "_C_AVX2"], ["_C_AVX2", "_C", "_C"]),
        "I5": (["_C", "_C_AVX2"], ["_C_AVX2", "_C_AVX2", "_C"]),
    },
    ("avx2", "avx512", "avx512_bf16"): {
        "I4": (["_C", "_C_AVX2"], ["_C_AVX2", "_C_AVX2", "_C"]),
        "I5": (["_C", "_C_AVX512", "_C_AVX2"], ["_C_AVX2", "_C_AVX512", "_C"]),
    },
}
CPUS = ("", "avx512", "avx512_bf16")
on_x86_64 = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the import rules ask for the architecture of the machine they run on"
)


@on_x86_64
@pytest.mark.parametrize("isa", LIMITS, ids="+".join)
@each_version("I4", "I5")
def test_what_is_built_and_loaded(version: str, isa: tuple[str, ...], tmp_path: Path) -> None:
    """A library that is not in the build is asked for only where the CPU can run none that is; that fails aloud."""
    root = copy_tree(version, tmp_path)
    generation = GENERATIONS[version][1]
    assert built(root) == LIBRARIES[generation]
    expected_built, expected_loaded = LIMITS[isa][generation]
    run_module("source_fix", path=root, isa=list(isa))
    assert built(root) == expected_built
    assert [loads(version, root, cpu) for cpu in CPUS] == [[library] for library in expected_loaded]


@on_x86_64
@pytest.mark.parametrize(
    ("version", "loaded"), [("0.17.1", ["_C_AVX2", "_C", "_C"]), ("0.32.0", ["_C_AVX2", "_C_AVX512", "_C"])]
)
def test_import_rule_as_released(version: str, loaded: list[str]) -> None:
    assert [loads(version, tree(version), cpu) for cpu in CPUS] == [[library] for library in loaded]


def test_limit_can_be_changed_and_lifted(tmp_path: Path) -> None:
    root = copy_tree("0.32.0", tmp_path)
    before = contents(root)
    run_module("source_fix", path=root, fixes=[], isa=["avx2"])
    assert run_module("source_fix", path=root, fixes=[], isa=["amx"])["changed"]
    assert built(root) == ["_C"]
    lifted = run_module("source_fix", path=root, fixes=[], isa=["avx2", "avx512", "amx"])
    assert (lifted["changed"], lifted["status"]) == (True, "removed")
    assert contents(root) == before
    again = run_module("source_fix", path=root, fixes=[], isa=["avx2", "avx512", "amx"])
    assert (again["changed"], again["status"]) == (False, "not_needed")


REASONS = {
    ("0.32.0", "neon"): "isa-limit: A build for this architecture has one variant",
    ("0.8.5", "avx2"): (
        "isa-limit: This release builds one variant, for the CPU of the building machine; "
        "VLLM_CPU_DISABLE_AVX512=true in the build's environment limits it to avx2"
    ),
}


@pytest.mark.parametrize(("version", "isa"), REASONS)
def test_reason_for_no_limit(version: str, isa: str, tmp_path: Path) -> None:
    root = copy_tree(version, tmp_path)
    result = run_module("source_fix", path=root, fixes=[], isa=[isa])
    assert (result["changed"], result["status"], result["reason"]) == (False, "not_needed", REASONS[version, isa])


def clones_onednn(root: Path) -> bool:
    """Whether CMake, walked through as the file stands, declares oneDNN as something to fetch."""
    text = (root / "cmake/cpu_extension.cmake").read_text()
    declared = Rehearsal("avx2 fma f16c").run(parse(text)).declared
    return any(command.texts[0].lower() == "onednn" for command in declared)


@pytest.mark.parametrize(
    ("version", "isa", "taken"),
    [
        ("0.17.1", ["avx2"], False),
        ("0.17.1", ["avx512"], False),  # loads the AVX2 library
        ("0.17.1", ["avx512_bf16"], True),
        ("0.17.1", ["avx2", "amx"], True),
        ("0.32.0", ["avx2"], True),  # its AVX2 library calls oneDNN
    ],
)
def test_onednn_is_left_out_where_no_wanted_library_calls_it(
    version: str, isa: list[str], taken: bool, tmp_path: Path
) -> None:
    root = copy_tree(version, tmp_path)
    run_module("source_fix", path=root, fixes=[], isa=isa)
    assert clones_onednn(root) is taken
    # Another class later: the edit goes again.
    run_module("source_fix", path=root, fixes=[], isa=["amx"])
    assert clones_onednn(root)
