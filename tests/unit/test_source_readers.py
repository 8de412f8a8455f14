# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Python, requirements, metadata and git references are read, and what is unfamiliar stays unknown."""

from __future__ import annotations

import ast
import os
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils import _source_python as python
from ansible_collections.cpufleet.vllm.plugins.module_utils import _source_requirements as requirements
from ansible_collections.cpufleet.vllm.plugins.module_utils import _source_runtime as runtime
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._source_reading import Reading
from ansible_collections.cpufleet.vllm.plugins.module_utils._source_tree import open_tree
from ansible_collections.cpufleet.vllm.plugins.module_utils._source_version import source_version


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ('lambda: int(os.getenv("X", "0"))', 0),
        ('lambda: os.getenv("X", "all")', "all"),
        ('lambda: os.environ.get("X")', None),
        ('lambda: bool(int(os.getenv("X", "1")))', True),
        ('lambda: int(os.getenv("X", "0")) if "X" in os.environ else None', None),
        ('lambda: (int(os.getenv("X", "7")) if "X" not in os.environ else None)', 7),
        ('maybe_convert_int(os.getenv("X", None))', None),
        ("lambda: something_new()", python.UNKNOWN),
        ('lambda: int(os.getenv("X", "many"))', python.UNKNOWN),
        ('lambda: float(os.getenv("X", "0.5"))', 0.5),
    ],
)
def test_value_of_a_variable_that_is_not_set(expression: str, value: object) -> None:
    found = python.when_unset(ast.parse(expression, mode="eval").body)
    assert found is value if value is python.UNKNOWN or value is None else found == value


def test_mentions_sees_names_imports_and_whole_strings_but_no_documentation() -> None:
    tree = python.parse('def f():\n    """darwin"""\n    import zentorch\n    return x.arm == "cpu"\n')
    assert [python.mentions(tree, name) for name in ("zentorch", "arm", "cpu", "darwin", "c")] == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_a_file_that_does_not_parse_is_none() -> None:
    assert python.parse("def f(:\n") is None
    assert python.parse("a\0b") is None
    assert python.parse(None) is None


@pytest.mark.parametrize(
    ("line", "tidy"),
    [
        ("torch == 2.5.1", "torch==2.5.1"),
        ("setuptools >= 77.0.3, <81.0.0", "setuptools>=77.0.3,<81.0.0"),
        ('fastapi >= 0.107.0, != 0.113.*;python_version<"3.9"', 'fastapi>=0.107.0,!=0.113.* ; python_version<"3.9"'),
        ("uvicorn[standard]", "uvicorn[standard]"),
        (
            'triton @ https://example.org/triton-3.8.0+cpu.whl ; python_version == "3.11"',
            'triton @ https://example.org/triton-3.8.0+cpu.whl ; python_version == "3.11"',
        ),
    ],
)
def test_requirements_in_one_spelling(line: str, tidy: str) -> None:
    assert requirements.tidy(line) == tidy
    assert requirements.tidy(tidy) == tidy


@pytest.mark.parametrize(
    ("marker", "machine", "holds"),
    [
        ("", "x86_64", True),
        ('platform_machine == "x86_64"', "x86_64", True),
        ('platform_machine != "ppc64le" and platform_machine != "aarch64"', "aarch64", False),
        ('platform_system == "Darwin" or platform_machine == "ppc64le"', "x86_64", False),
        ('python_version >= "3.9"', "x86_64", True),
        ("python_version < '3.9'", "x86_64", False),
        ('platform_machine in "x86_64 amd64"', "x86_64", True),
        ('platform_machine not in "x86_64"', "x86_64", False),
        ('extra == "audio"', "x86_64", False),
        ('something_new == "x"', "x86_64", True),
        ("not a marker (", "x86_64", True),
    ],
)
def test_markers(marker: str, machine: str, holds: bool) -> None:
    assert requirements.applies(marker, machine) is holds


def tree_at(folder: Path, **files: str) -> Path:
    for name, text in {"vllm/__init__.py": "", **files}.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return folder


def test_included_files_are_followed_once_and_options_kept_apart(tmp_path: Path) -> None:
    tree_at(
        tmp_path,
        **{
            "requirements/cpu.txt": "-r common.txt\n--extra-index-url https://example.org/cpu\ntorch==2.6.0+cpu; "
            'platform_machine == "x86_64" # why\n-r ../requirements/common.txt',
            "requirements/common.txt": "# only words\nnumpy < 2.0.0\n\npsutil # no newline",
        },
    )
    found, options, files = requirements.read_requirements(open_tree(str(tmp_path)), "requirements/cpu.txt")
    assert [(entry.text, entry.file, entry.line) for entry in found] == [
        ("numpy<2.0.0", "requirements/common.txt", 2),
        ("psutil", "requirements/common.txt", 4),
        ('torch==2.6.0+cpu ; platform_machine == "x86_64"', "requirements/cpu.txt", 3),
    ]
    assert options == ["--extra-index-url https://example.org/cpu"]
    assert files == ["requirements/cpu.txt", "requirements/common.txt"]


KERNELS = """
#ifdef __AVX512F__
  ops.impl("wide", torch::kCPU, &wide);
#elif defined(__powerpc64__)
  ops.impl("power", torch::kCPU, &power);
#endif  // __AVX512F__
#if defined(__AVX2__) || \\
    (defined(__aarch64__) && !defined(__APPLE__))
  ops.impl("both",
           torch::kCPU, &both);
  #ifndef __AVX512F__
  ops.impl("narrow", torch::kCPU, &narrow);
  #else
  ops.impl("inner", torch::kCPU, &inner);
  #endif
#endif
#if SOME_NUMBER > 3
  ops.impl("never", torch::kCPU, &never);
#endif
"""


@pytest.mark.parametrize(
    ("name", "operators"),
    [("avx2", {"both", "narrow"}), ("avx512", {"wide", "both", "inner"}), ("neon", {"both", "narrow"})],
)
def test_operators_by_what_the_compiler_defines(name: str, operators: set[str]) -> None:
    assert runtime.registered(KERNELS, runtime.DEFINED[name]) == operators


# --- what a source can come as ---------------------------------------------------------------------------------------


def pack(folder: Path, target: Path) -> Path:
    with tarfile.open(target, "w:gz") as archive:
        archive.add(folder, "vllm-9.9.9")
    return target


def test_kinds_of_sources(tmp_path: Path) -> None:
    folder = tree_at(tmp_path / "tree", **{"setup.py": "x = 1\n"})
    archive = pack(folder, tmp_path / "github.tar.gz")
    (folder / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 9.9.9\n")
    sdist = pack(folder, tmp_path / "vllm-9.9.9.tar.gz")
    wheel = tmp_path / "vllm-9.9.9-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as content:
        content.writestr("vllm/__init__.py", "")
        content.writestr("vllm-9.9.9+cpu.dist-info/METADATA", "Name: vllm\nVersion: 9.9.9+cpu\n")
    trees = {path.name: open_tree(str(path)) for path in (folder, archive, sdist, wheel)}
    assert [tree.kind for tree in trees.values()] == ["tree", "archive", "sdist", "wheel"]
    assert trees["github.tar.gz"].read("setup.py") == b"x = 1\n"
    assert trees["github.tar.gz"].files("") == ["setup.py"]
    assert trees["tree"].files("") == ["PKG-INFO", "setup.py"]
    assert trees["tree"].read("vllm") is None
    assert [source_version(Reading(tree)) for tree in trees.values()] == ["9.9.9", None, "9.9.9", "9.9.9+cpu"]


def test_what_is_no_source(tmp_path: Path) -> None:
    with pytest.raises(CpufleetError, match="it does not exist"):
        open_tree(str(tmp_path / "nothing"))
    with pytest.raises(CpufleetError, match=r"holds no vllm/__init__\.py\. Name the folder that contains setup\.py"):
        open_tree(str(tmp_path))
    (tmp_path / "broken.tar.gz").write_bytes(b"\x1f\x8b not really")
    with pytest.raises(CpufleetError, match="as an archive"):
        open_tree(str(tmp_path / "broken.tar.gz"))


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tree_at(tmp_path / "clone")
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "x")
    return folder


def test_version_of_a_checkout_is_the_tag_it_stands_on(checkout: Path) -> None:
    def version() -> str | None:
        return source_version(Reading(open_tree(str(checkout))))

    assert version() is None
    git(checkout, "tag", "nightly")
    assert version() is None
    git(checkout, "tag", "v0.7.2")
    assert version() == "0.7.2"
    git(checkout, "tag", "-d", "v0.7.2")
    git(checkout, "tag", "-a", "v0.7.3", "-m", "annotated")
    assert version() == "0.7.3"
    git(checkout, "pack-refs", "--all")
    assert version() == "0.7.3"
    git(checkout, "worktree", "add", "--quiet", "--detach", str(checkout.parent / "beside"))
    assert source_version(Reading(open_tree(str(checkout.parent / "beside")))) == "0.7.3"
    (checkout / "more.txt").write_text("x")
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "-m", "y")
    assert version() is None


def test_unreadable_file_is_an_error_with_its_path(tmp_path: Path) -> None:
    folder = tree_at(tmp_path, **{"setup.py": ""})
    (folder / "loop.py").symlink_to(folder / "loop.py")
    with pytest.raises(CpufleetError, match=r"Cannot read .*loop\.py: Too many levels") as caught:
        open_tree(str(folder)).read("loop.py")
    assert caught.value.details["path"] == os.path.join(folder, "loop.py")
