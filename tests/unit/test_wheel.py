# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a wheel demands of a host, read from a real library inside it."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._wheel import wheel_requirements

LIBRARY = (Path(__file__).parent / "fixtures" / "wheel" / "tiny.so").read_bytes()
NAME = "vllm-0.6.5+cpu-cp311-cp311-linux_x86_64.whl"


def wheel(**files: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return stream.getvalue()


def test_floors_are_the_newest_symbols_of_all_libraries() -> None:
    older = LIBRARY.replace(b"GLIBC_2.29\0", b"GLIBC_2.17\0").replace(b"GLIBCXX_3.4.21\0", b"GLIBCXX_3.4.9\0\0")
    content = wheel(**{"vllm/_C.abi3.so": LIBRARY, "vllm/_old.so": older, "vllm/notes.txt": b"\0GLIBC_9.9\0"})
    assert wheel_requirements(NAME, content) == {
        "version": "0.6.5+cpu",
        "python_tag": "cp311-cp311",
        "platform": "linux_x86_64",
        "glibc": "2.29",
        "glibcxx": "3.4.21",
    }


def test_versions_are_compared_as_numbers() -> None:
    assert wheel_requirements(NAME, wheel(**{"a.so": b"\0GLIBC_2.9\0GLIBC_2.10\0GLIBC_2.2.5\0"}))["glibc"] == "2.10"


def test_a_wheel_without_libraries_has_no_floors() -> None:
    assert set(wheel_requirements("x-1.0-1-py3-none-any.whl", wheel())) == {"version", "python_tag", "platform"}


@pytest.mark.parametrize("name", ["vllm-0.6.5.tar.gz", "vllm.whl"])
def test_what_is_no_wheel_is_refused(name: str) -> None:
    with pytest.raises(CpufleetError) as refused:
        wheel_requirements(name, wheel())
    assert str(refused.value) == f"{name} is not the name of a wheel. Look at the build's log."
