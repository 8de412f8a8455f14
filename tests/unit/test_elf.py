# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ELF reader, against a compiled library, against this machine's own libraries and what readelf says of them."""

from __future__ import annotations

import io
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._elf import numbered, read_elf
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError

TINY = (Path(__file__).parent / "fixtures" / "wheel" / "tiny.so").read_bytes()


def installed() -> list[Path]:
    """Return libraries of this machine that differ much: libc, C++, maths, the loader."""
    names = ("libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libpthread.so.0", "libdl.so.2")
    places = [Path(folder) / name for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64") for name in names]
    return [place for place in places if place.exists()]


def test_a_compiled_library() -> None:
    elf = read_elf(io.BytesIO(TINY), "tiny.so")
    assert elf.machine == "x86_64"
    assert elf.needed == ("libstdc++.so.6", "libm.so.6", "libgcc_s.so.1", "libc.so.6")
    assert sorted(elf.versions) == [
        ("libc.so.6", "GLIBC_2.14"),
        ("libc.so.6", "GLIBC_2.2.5"),
        ("libgcc_s.so.1", "GCC_3.0"),
        ("libm.so.6", "GLIBC_2.29"),
        ("libstdc++.so.6", "CXXABI_1.3"),
        ("libstdc++.so.6", "CXXABI_1.3.9"),
        ("libstdc++.so.6", "GLIBCXX_3.4.21"),
    ]
    assert elf.defines == ()


@pytest.mark.skipif(not shutil.which("readelf"), reason="binutils is not installed here")
@pytest.mark.parametrize("path", installed(), ids=str)
def test_readelf_says_the_same(path: Path) -> None:
    elf = read_elf(io.BytesIO(path.read_bytes()), str(path))
    text = subprocess.run(["readelf", "-dVW", str(path)], capture_output=True, text=True, check=True).stdout
    needs = re.findall(r"Name: (\S+)\s+Flags: none\s+Version: \d+\s*$", text.split("Version needs section")[-1], re.M)
    names = re.findall(r"Flags: \S+(?: \| \S+)*\s+Index: \d+\s+Cnt: \d+\s+Name: (\S+)", text)
    assert sorted(version for _library, version in elf.versions) == sorted(needs if "Version needs" in text else [])
    assert list(elf.defines) == names
    assert list(elf.needed) == re.findall(r"\(NEEDED\).*\[(.*)\]", text)


def test_a_version_that_is_marked_weak_may_be_missing() -> None:
    entry = TINY.index(struct.pack("<HHI", 0, 7, 0)[:4], 0x688)  # flags and index of GLIBC_2.29
    weak = TINY[:entry] + struct.pack("<H", 2) + TINY[entry + 2 :]
    versions = read_elf(io.BytesIO(weak), "weak.so").versions
    assert ("libm.so.6", "GLIBC_2.29") not in versions
    assert len(versions) == 6


def test_versions_are_compared_as_numbers() -> None:
    assert numbered(("GLIBC_2.9", "GLIBC_2.10", "GLIBC_2.2.5", "GLIBC_PRIVATE"), "GLIBC") == (2, 10)
    assert numbered(("GLIBCXX_3.4.30", "GLIBC_2.9"), "GLIBC") == (2, 9)
    assert numbered(("CXXABI_TM_1", "CXXABI_FLOAT128"), "CXXABI") == ()


KIND = "a.so is a {} library; vLLM runs on 64-bit little-endian systems. Use another one."
CUT = "Cannot read a.so as an ELF library: it is cut or damaged. Fetch or build it again."


@pytest.mark.parametrize(
    ("content", "text"),
    [
        pytest.param(b"\x7fELF\x01\x01" + TINY[6:], KIND.format("32-bit"), id="32-bit"),
        pytest.param(b"\x7fELF\x02\x02" + TINY[6:], KIND.format("big-endian"), id="big-endian"),
        pytest.param(b"MZ" + TINY[2:], "a.so is no ELF library. Fetch or build it again.", id="no ELF"),
        pytest.param(TINY[:900], CUT, id="cut"),
        pytest.param(TINY[:40], CUT, id="cut in the header"),
        pytest.param(TINY[:54] + b"\xff" * 10 + TINY[64:], CUT, id="absurd header"),
    ],
)
def test_what_cannot_be_read_is_told(content: bytes, text: str) -> None:
    with pytest.raises(CpufleetError) as refused:
        read_elf(io.BytesIO(content), "a.so")
    assert str(refused.value) == text


def test_every_cut_of_a_library_is_an_error_or_a_whole_answer() -> None:
    whole = read_elf(io.BytesIO(TINY), "a.so")
    for length in range(0, len(TINY), 37):
        try:
            assert read_elf(io.BytesIO(TINY[:length]), "a.so") == whole
        except CpufleetError:
            continue
