# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host's C and C++ libraries offer: this machine's own, and made-up roots with real libraries in them."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._host_libs import (
    LibraryInfo,
    find_allocator,
    read_libraries,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._host_read import Root

UNKNOWN = LibraryInfo("unknown", "", "", "")
ARCH = platform.machine()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="this machine has another C library")
def test_this_machine() -> None:
    found = read_libraries(Root("/"), ARCH)
    assert (found.kind, found.version) == ("glibc", platform.libc_ver()[1])
    assert found.glibcxx.startswith("3.4.")
    assert found.cxxabi.startswith("1.3.")


def system_libraries() -> tuple[Path, Path]:
    for folder in (f"/usr/lib/{ARCH}-linux-gnu", "/usr/lib64"):
        pair = Path(folder, "libc.so.6"), Path(folder, "libstdc++.so.6")
        if all(path.exists() for path in pair):
            return pair
    pytest.skip("libc.so.6 and libstdc++.so.6 are not where distributions put them")


@pytest.mark.parametrize("folder", ["usr/lib64", f"usr/lib/{ARCH}-linux-gnu", "lib64"])
def test_another_root_with_links_that_stay_in_it(tmp_path: Path, folder: str) -> None:
    libc, libstdcxx = system_libraries()
    place = tmp_path / folder
    place.mkdir(parents=True)
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "libc-2.so").write_bytes(libc.read_bytes())
    (place / "libstdc++.so.6.0.1").write_bytes(libstdcxx.read_bytes())
    (place / "libc.so.6").symlink_to("/store/libc-2.so")
    (place / "libstdc++.so.6").symlink_to("libstdc++.so.6.0.1")
    assert read_libraries(Root(str(tmp_path)), ARCH) == read_libraries(Root("/"), ARCH)


def test_a_folder_that_is_an_absolute_link(tmp_path: Path) -> None:
    libc, _libstdcxx = system_libraries()
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "libc.so.6").write_bytes(libc.read_bytes())
    os.symlink("/real", tmp_path / "lib64")
    assert read_libraries(Root(str(tmp_path)), ARCH).kind == "glibc"


def test_nothing_there_and_a_link_in_a_circle(tmp_path: Path) -> None:
    assert read_libraries(Root(str(tmp_path)), "x86_64") == UNKNOWN
    (tmp_path / "lib64").symlink_to("/lib64")
    assert read_libraries(Root(str(tmp_path)), "x86_64") == UNKNOWN


def test_a_library_of_another_architecture_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "lib64").mkdir()
    libc = bytearray(system_libraries()[0].read_bytes())
    place = tmp_path / "lib64" / "libc.so.6"
    place.write_bytes(bytes(libc))
    assert read_libraries(Root(str(tmp_path)), ARCH).kind == "glibc"
    libc[18] = 21  # the machine: ppc64le
    place.write_bytes(bytes(libc))
    assert read_libraries(Root(str(tmp_path)), ARCH) == UNKNOWN


def test_musl(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "ld-musl-x86_64.so.1").write_bytes(b"")
    assert read_libraries(Root(str(tmp_path)), "x86_64") == LibraryInfo("musl", "", "", "")


def test_allocator_is_named_by_its_path_on_the_host(tmp_path: Path) -> None:
    libc, _libstdcxx = system_libraries()
    there = f"/usr/lib/{ARCH}-linux-gnu/libtcmalloc_minimal.so.4"
    place = tmp_path / there.lstrip("/")
    place.parent.mkdir(parents=True)
    assert find_allocator(Root(str(tmp_path)), ARCH) == ""
    place.write_text("no library")
    assert find_allocator(Root(str(tmp_path)), ARCH) == ""
    place.with_name("libtcmalloc_minimal.so.4.5.9").write_bytes(libc.read_bytes())
    place.unlink()
    place.symlink_to("libtcmalloc_minimal.so.4.5.9")
    assert find_allocator(Root(str(tmp_path)), ARCH) == there
    assert find_allocator(Root(str(tmp_path)), "riscv64") == ""
