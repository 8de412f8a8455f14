# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""source_info on small trees made here: shapes that are known, shapes that are not, and failures."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils import _source
from ansible_collections.cpufleet.vllm.plugins.module_utils import _source_build as build
from ansible_collections.cpufleet.vllm.plugins.module_utils import _source_requirements as requirements
from ansible_collections.cpufleet.vllm.plugins.module_utils import _source_runtime as runtime
from ansible_collections.cpufleet.vllm.plugins.module_utils._edits import Edit, apply_edit
from ansible_collections.cpufleet.vllm.plugins.module_utils._source_reading import Reading
from ansible_collections.cpufleet.vllm.plugins.module_utils._source_tree import MemoryTree

from tests.support.run_module import run_module


def reading(**files: str) -> Reading:
    content = {name: text.encode() for name, text in files.items()}
    return Reading(MemoryTree("made up", "tree", content))


def rule(branch: str, before: str = "version = get_version()", around: str = "if True:") -> str:
    lines = (
        "def get_vllm_version():",
        f"    {before}",
        f"    {around}",
        "        if _is_cpu():",
        f"            {branch}",
    )
    return "\n".join((*lines, "    return version", ""))


CPU_CLASS = {"vllm/platforms/cpu.py": "class CpuPlatform: pass\n"}
PLUGIN = "def cuda_platform_plugin():\n    {gpu}\ndef cpu_platform_plugin():\n    {cpu}\n"


@pytest.mark.parametrize(
    ("text", "generation"),
    [
        ('def get_vllm_version():\n    return "0.6.2"\n', "S1"),
        ('def get_vllm_version():\n    return find_version("x")\n', "S0"),
        (rule('version += "+cpu"'), "S2"),
        (rule('if envs.VLLM_TARGET_DEVICE == "cpu":\n                version += "+cpu"'), "S3"),
        (rule('if VLLM_TARGET_DEVICE == "cpu":\n                version += "+cpu"'), "S4"),
        (rule('version += "+cpu"', around="if not envs.VLLM_SKIP_VERSION_SUFFIX:"), "S5"),
        ("def get_vllm_version():\n    return ask_the_moon()\n", None),
        ("", None),
    ],
)
def test_suffix_by_shape(text: str, generation: str | None) -> None:
    assert build.suffix(reading(**{"setup.py": text})) == generation


@pytest.mark.parametrize(
    ("text", "generation"),
    [
        ("is_cpu = False\n", "D1"),
        (PLUGIN.format(gpu="pass", cpu='return platform.machine().startswith("arm")'), "D2"),
        (PLUGIN.format(gpu='vllm_version_matches_substr("cpu")', cpu='return "arm"'), "D3"),
        (PLUGIN.format(gpu='vllm_version_matches_substr("cpu")', cpu='return sys.platform == "darwin"'), "D4"),
        (PLUGIN.format(gpu="pass", cpu='import zentorch; return "darwin"'), "D5"),
        (PLUGIN.format(gpu="pass", cpu='import zentorch; return envs.VLLM_TARGET_DEVICE == "cpu"'), "D6"),
        (PLUGIN.format(gpu="pass", cpu="return read_minds()"), None),
        ("PLATFORMS = []\n", None),
    ],
)
def test_detection_by_shape(text: str, generation: str | None) -> None:
    read = reading(**{"vllm/platforms/__init__.py": text, **CPU_CLASS})
    assert runtime.detection(read) == generation
    assert bool(read.unknown) == (generation is None)


def test_selection_follows_the_branches_of_the_release() -> None:
    text = """
class CpuPlatform:
    def import_kernels(cls):
        if Platform.get_cpu_architecture() in (CpuArchEnum.X86,):
            if not torch.cpu._is_avx512_supported():
                try:
                    import vllm._C_AVX2
                except ImportError: pass
            elif torch.cpu._is_avx512_bf16_supported() and torch.cpu._is_amx_tile_supported():
                import vllm._C
            else:
                import vllm._C_AVX512
"""
    found = build.isa(reading(**{"vllm/platforms/cpu.py": text}))
    assert found["selection"] == {"avx2": "_C_AVX2", "avx512": "_C_AVX512", "avx512_bf16": "_C_AVX512", "amx": "_C"}
    assert found["chosen_at"] == "import"


def test_selection_by_an_unknown_question_is_noted() -> None:
    text = "def import_kernels(cls):\n    if torch.cpu._is_avx1024_supported():\n        import vllm._C_AVX1024\n"
    read = reading(**{"vllm/platforms/cpu.py": text})
    assert build.isa(read)["selection"]["amx"] == "_C"
    assert read.unknown == ["the rule by which vllm/platforms/cpu.py picks a kernel library was not understood"]


def test_new_set_of_libraries_is_noted() -> None:
    text = "define_extension_target(_C)\ndefine_extension_target(_C_AVX1024)"
    read = reading(**{"cmake/cpu_extension.cmake": text})
    assert build.isa(read)["generation"] is None
    assert build.isa(read)["targets"] == ["_C", "_C_AVX1024"]
    assert "cmake/cpu_extension.cmake builds _C, _C_AVX1024, which is no set of libraries known here" in read.unknown


@pytest.mark.parametrize(
    ("cmake", "expected"),
    [
        ("if(X)\nendif()", ("never", "X0", None)),
        ('list(APPEND LIBS "dnnl" "numa")', ("preinstalled", "X1", None)),
        ("FetchContent_Declare(oneDNN GIT_REPOSITORY u GIT_TAG v9)", ("always", "X2", "v9")),
        (
            'find_isa(${CPUINFO} "avx512f" F)\nif(F)\n'
            "FetchContent_Declare(oneDNN GIT_REPOSITORY u GIT_TAG v9)\nendif()",
            ("avx512", "X2", "v9"),
        ),
        (
            'set(FETCHCONTENT_SOURCE_DIR_ONEDNN "$ENV{FETCHCONTENT_SOURCE_DIR_ONEDNN}" CACHE PATH "")\n'
            "if(FETCHCONTENT_SOURCE_DIR_ONEDNN)\nFetchContent_Declare(oneDNN SOURCE_DIR x)\nelse()\n"
            "FetchContent_Declare(oneDNN GIT_REPOSITORY u GIT_TAG v9)\nendif()",
            ("always", "X3", "v9"),
        ),
    ],
)
def test_onednn(cmake: str, expected: tuple[str, str, str | None]) -> None:
    text = "execute_process(OUTPUT_VARIABLE CPUINFO)\n" + cmake
    found = build.onednn(reading(**{"cmake/cpu_extension.cmake": text}))
    assert (found["condition"], found["override"], found["tag"]) == expected


HOST = "execute_process(OUTPUT_VARIABLE CPUINFO)\n"


@pytest.mark.parametrize(
    ("cmake", "generation"),
    [
        ('find_isa(${CPUINFO} "avx2" A)', "I0"),
        ('find_isa(${CPUINFO} "avx2" A)\nfind_isa(${CPUINFO} "avx512_vnni" V)', "I1"),
        ('find_isa(${CPUINFO} "avx512_vnni" V)\nfind_isa(${CPUINFO} "amx_bf16" X)', "I2"),
        ('set(E $ENV{VLLM_CPU_AVX512})\nfind_isa(${CPUINFO} "amx_bf16" X)', "I3"),
        ("define_extension_target(_C_AVX2)", "I4"),
        ("define_extension_target(_C_AVX512)\ndefine_extension_target(_C_AVX2)", "I5"),
    ],
)
def test_isa_generation_by_shape(cmake: str, generation: str) -> None:
    text = f"{HOST}define_gpu_extension_target(_C)\n{cmake}\n"
    read = reading(**{"cmake/cpu_extension.cmake": text})
    assert build.isa(read)["generation"] == generation
    assert read.unknown == []


def test_a_refusal_counts_before_a_warning() -> None:
    text = """
if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14.1)
  message(WARNING "slow")
endif()
if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12.3)
  message(FATAL_ERROR "too old")
endif()
"""
    found = build.compiler(reading(**{"cmake/cpu_extension.cmake": text}))
    assert (found["floor"], found["hard"]) == ("12.3", True)
    assert [(entry["floor"], entry["hard"]) for entry in found["conditions"]] == [("14.1", False), ("12.3", True)]


@pytest.mark.parametrize(("asks", "methods"), [("is_cpu", {"awq": "ipex", "gptq": "ipex"}), ("is_xpu", {})])
def test_ipex_that_is_for_other_hardware_is_not_counted(asks: str, methods: dict[str, str]) -> None:
    text = f"""
def override_quantization_method(cls, method):
    if current_platform.{asks}() and method in ["awq", "gptq"]:
        return cls.get_name()
"""
    files = {"csrc/cpu/torch_bindings.cpp": "", f"{runtime.METHODS}/ipex_quant.py": text}
    assert runtime.quantization(reading(**files))["avx2"] == methods


def test_edits_are_seen_through() -> None:
    edit = Edit("by-hand", "setup.py", ("    return find_version()",), ('    return "1.2.3"',), 0, 1)
    edited = apply_edit(b"def get_vllm_version():\n    return find_version()\n", edit)
    read = reading(**{"setup.py": edited.decode()})
    assert build.suffix(read) == "S0"
    assert read.edits == ["by-hand"]
    changed = edited.replace(b"1.2.3", b"1.2.4")
    read = reading(**{"setup.py": changed.decode()})
    assert build.suffix(read) == "S1"
    assert read.unknown == [
        "Cannot revert the edit by-hand in setup.py: what stands between its markers was changed by hand"
    ]


def test_arguments_by_use() -> None:
    fields = "class EngineArgs:\n    device: str = 'auto'\n    enforce_eager: bool = False\n"
    used = fields + "    def create(self):\n        return DeviceConfig(device=self.device)\n"
    ignored = fields + "    def create(self):\n        return DeviceConfig(device=current_platform.device_type)\n"
    swallowed = "class LLM:\n    def __init__(self, **kwargs):\n        kwargs.pop('swap_space')\n"
    forced = "def check(config):\n    config.enforce_eager = True\n"
    table: list[tuple[dict[str, str], dict[str, Any]]] = [
        ({"vllm/engine/arg_utils.py": used}, {"device": "present", "swap_space": "absent", "enforce_eager": "present"}),
        (
            {
                "vllm/engine/arg_utils.py": ignored,
                "vllm/entrypoints/llm.py": swallowed,
                "vllm/platforms/cpu.py": forced,
            },
            {"device": "ignored", "swap_space": "ignored", "enforce_eager": "forced"},
        ),
        ({}, {"device": None, "swap_space": None, "enforce_eager": None}),
    ]
    for files, expected in table:
        assert runtime.arguments(reading(**files)) == expected


# --- the module ------------------------------------------------------------------------------------------------------


def strange_tree(folder: Path) -> Path:
    for name, text in {
        "vllm/__init__.py": "",
        "vllm/platforms/__init__.py": "def choose(): ...\n",
        "vllm/platforms/cpu.py": "class CpuPlatform: ...\n",
        "vllm/envs.py": 'variables = {"VLLM_CPU_NEW": lambda: ask(), "VLLM_CPU_OLD": lambda: os.getenv("X", "a")}\n',
        "vllm/engine/arg_utils.py": "match = (\n",
        "setup.py": "def get_vllm_version(): return compute()\n",
        "cmake/cpu_extension.cmake": "define_extension_target(_C_SVE)\n",
        "requirements/cpu.txt": "torch>=9\n",
        "pyproject.toml": '[build-system]\nrequires = ["torch == 9.1"]\n[project]\nrequires-python = ">=3.20"\n',
        "PKG-INFO": "Version: 7.0.0\n",
    }.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return folder


def test_a_tree_newer_than_the_data_gives_what_can_be_read(tmp_path: Path) -> None:
    result = run_module("source_info", path=strange_tree(tmp_path))
    source = result["source"]
    assert result["changed"] is False
    assert (source["version"], source["python_requires"]) == ("7.0.0", ">=3.20")
    assert (source["torch_cpu"], source["torch_build"]) == (">=9", "9.1")
    assert source["cpu_environment"] == {"VLLM_CPU_NEW": None, "VLLM_CPU_OLD": "a"}
    assert source["requirements"]["cpu"] == ["torch>=9"]
    assert source["unknown"] == [
        "no test of the compiler's version in cmake/cpu_extension.cmake",
        "cmake/cpu_extension.cmake builds _C_SVE, which is no set of libraries known here",
        "vllm/platforms/__init__.py has neither a flag is_cpu nor a function cpu_platform_plugin",
        "the rule of setup.py that puts +cpu into the version was not understood",
        "vllm/engine/arg_utils.py is not Python that this Python can parse",
        "vllm/engine/arg_utils.py has no class EngineArgs",
        "the default of VLLM_CPU_NEW in vllm/envs.py was not understood",
        "detection was not found",
        "suffix was not found",
        "7.0.0 is newer than 0.33.0, the newest release that this reader was compared with",
    ]


def test_no_source_is_a_failure_that_says_what_to_do(tmp_path: Path) -> None:
    assert run_module("source_info", path=tmp_path) == {
        "failed": True,
        "path": str(tmp_path),
        "msg": f"Cannot read {tmp_path} as a vLLM source: it holds no vllm/__init__.py. Name the folder that contains "
        "setup.py and the folder vllm, or an archive of it.",
    }


def test_a_wheel_tells_what_its_files_do(tmp_path: Path) -> None:
    wheel = tmp_path / "vllm-0.32.0+cpu-cp38-abi3-linux_x86_64.whl"
    metadata = "Name: vllm\nVersion: 0.32.0+cpu\nRequires-Python: >=3.11\n"
    requires = 'Requires-Dist: torch==2.13.0+cpu; platform_machine == "x86_64"\nRequires-Dist: x; extra == "audio"\n'
    libraries = ("_C_AVX2.abi3.so", "_C.abi3.so", "_C_AVX512.abi3.so", "fs_io_C.abi3.so")
    with zipfile.ZipFile(wheel, "w") as content:
        content.writestr("vllm/__init__.py", "")
        content.writestr("vllm-0.32.0+cpu.dist-info/METADATA", metadata + requires + "\nRequires-Dist: not-this\n")
        content.writestr("vllm-0.32.0+cpu.dist-info/RECORD", "".join(f"vllm/{name},sha256=x,1\n" for name in libraries))
    source = run_module("source_info", path=wheel)["source"]
    assert (source["source_kind"], source["version"], source["python_requires"]) == ("wheel", "0.32.0+cpu", ">=3.11")
    assert (source["torch_cpu"], source["requirements"]["cpu"]) == (
        "2.13.0+cpu",
        ['torch==2.13.0+cpu ; platform_machine == "x86_64"'],
    )
    assert source["isa"]["generation"] == "I5"
    assert source["isa"]["targets"] == ["_C", "_C_AVX512", "_C_AVX2"]
    assert (source["abi3"], source["python_supported"]) == (True, [])
    # What only a build needs is not missing.
    assert not [line for line in source["unknown"] if line.startswith(("suffix", "rust"))]


def test_broken_project_file_is_a_failure(tmp_path: Path) -> None:
    (strange_tree(tmp_path) / "pyproject.toml").write_text("[build-system\n")
    assert "Cannot read pyproject.toml" in run_module("source_info", path=tmp_path)["msg"]


def test_python_without_a_toml_reader_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("tomllib", "tomli"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    message = run_module("source_info", path=strange_tree(tmp_path))["msg"]
    assert message == (
        "Cannot read pyproject.toml: this Python has no TOML reader. "
        "Run on Python 3.11 or newer, or install tomli for this Python."
    )


def test_facts_of_a_plain_python_call(tmp_path: Path) -> None:
    facts = _source.read_source(str(strange_tree(tmp_path)))
    assert facts.to_result()["source_kind"] == facts.source_kind == "tree"
    assert requirements.split_requirement("a[b]>=1 ; x") == ("a", ">=1", "x")
