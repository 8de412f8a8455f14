# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bundles: facts from real metadata, the packed file, the manifest and the bill of materials, twice the same."""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._bundle import (
    bundle_manifest,
    deb_facts,
    only_wheels,
    package_stanza,
    wheel_facts,
    wheel_page,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError

from tests.support.run_module import run_module

# As the packages of Debian 12 and the wheels have them, shortened.
LIBNUMA = """\
Package: libnuma1
Source: numactl
Version: 2.0.16-1
Architecture: amd64
Depends: libc6 (>= 2.34)
Description: Libraries for controlling NUMA policy
 Library to control specific NUMA (Non-Uniform Memory Architecture)
"""
LIBNUMA_COPYRIGHT = """\
libnuma is under the GNU Lesser General Public License, v2.1.
The full text of the License may be found in /usr/share/common-licenses/GPL.
The full text of the License may be found in
/usr/share/common-licenses/LGPL.
"""
MACHINE_READABLE = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Files: *
License: GPL-2+ and LGPL-2+

License: Expat
 Permission is hereby granted

License: Permission to use, copy, modify, and distribute this software and
"""
FACTS: dict[str, Any] = {"version": "0.6.5", "arch": "x86_64"}


def file(path: str, **more: str) -> dict[str, Any]:
    return {"path": path, "name": path, "version": "1", "size": 3, "sha256": "ab" * 32, "licence": "MIT", **more}


@pytest.mark.parametrize(
    ("lines", "licence"),
    [
        (
            "License-Expression: Unlicense\nClassifier: License :: OSI Approved :: The Unlicense (Unlicense)",
            "Unlicense",
        ),
        ("License: Apache-2.0", "Apache-2.0"),
        ("Classifier: License :: OSI Approved :: MIT License", "MIT License"),
        (
            "License: Copyright (c) 2004\n  all rights\nClassifier: License :: OSI Approved :: BSD License",
            "BSD License",
        ),
        ("Classifier: Programming Language :: Python :: 3", "NOASSERTION"),
    ],
)
def test_wheel_says_its_licence_in_one_of_four_ways(lines: str, licence: str) -> None:
    found = wheel_facts(f"Metadata-Version: 2.1\nName: Typing_Extensions\nVersion: 2.13.0+cpu\n{lines}\n\nText\n")
    assert found == {
        "name": "typing-extensions",
        "version": "2.13.0+cpu",
        "licence": licence,
        "source": "pkg:pypi/typing-extensions@2.13.0%2Bcpu",
    }


@pytest.mark.parametrize(
    ("text", "licence"),
    [(LIBNUMA_COPYRIGHT, "GPL AND LGPL"), (MACHINE_READABLE, "Expat AND GPL-2+ and LGPL-2+"), ("", "NOASSERTION")],
)
def test_package_says_its_licence_in_two_ways(text: str, licence: str) -> None:
    assert deb_facts(LIBNUMA, text, "debian") == {
        "name": "libnuma1",
        "version": "2.0.16-1",
        "licence": licence,
        "source": "pkg:deb/debian/libnuma1@2.0.16-1?arch=amd64",
    }


def test_index_of_packages_has_the_control_file_and_the_digest() -> None:
    stanza = package_stanza(LIBNUMA, "libnuma1_2.0.16-1_amd64.deb", 100, "ab" * 32)
    assert stanza == LIBNUMA + f"Filename: ./libnuma1_2.0.16-1_amd64.deb\nSize: 100\nSHA256: {'ab' * 32}\n"


def test_page_of_links_has_digests() -> None:
    page = wheel_page([file("wheels/b-1-py3-none-any.whl"), file("wheels/a-1-py3-none-any.whl")])
    assert page.index('href="a-1-py3-none-any.whl#sha256=abab') < page.index('href="b-1-py3-none-any.whl#sha256=abab')


def test_source_is_refused_by_name() -> None:
    only_wheels(["a-1-py3-none-any.whl"], "lock")
    with pytest.raises(CpufleetError) as caught:
        only_wheels(["a-1-py3-none-any.whl", "fire-0.7.tar.gz"], "/opt/vllm/locks/x.txt")
    assert str(caught.value) == (
        "Cannot bundle fire-0.7.tar.gz: the package index has it as a source only, and a host without network could "
        "not compile it. It is in the lock /opt/vllm/locks/x.txt. Put a wheel of it into the folder "
        "torch_cpu_find_links and resolve the lock anew."
    )


def test_order_does_not_count_and_every_byte_does() -> None:
    first = bundle_manifest(FACTS, [file("a"), file("b")])
    assert bundle_manifest(FACTS, [file("b"), file("a")]) == first
    assert [entry["path"] for entry in first["files"]] == ["a", "b"]
    assert bundle_manifest(FACTS, [file("a"), file("b", sha256="cd" * 32)])["id"] != first["id"]
    assert bundle_manifest({**FACTS, "arch": "aarch64"}, [file("a"), file("b")])["id"] != first["id"]


def test_file_that_is_there_twice_is_refused() -> None:
    with pytest.raises(CpufleetError, match="The bundle has a twice"):
        bundle_manifest(FACTS, [file("a"), file("b"), file("a")])


def make_wheel(folder: Path, name: str, when: int = 1980) -> Path:
    """Write a wheel with what is read of one."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nLicense: MIT\n"
        wheel.writestr(zipfile.ZipInfo(f"{name}-1.0.dist-info/METADATA", (when, 1, 1, 0, 0, 0)), metadata)
    return path


def pack(folder: Path, check: bool = False) -> dict[str, Any]:
    arguments = {
        "path": folder,
        "dest": folder.parent / f"{folder.name}.tar",
        "lock": "x.txt",
        "distribution": "debian",
    }
    (folder / "apt").mkdir(parents=True, exist_ok=True)
    return run_module("bundle_pack", check=check, **arguments)


def test_packed_file_depends_on_names_and_bytes_alone(tmp_path: Path) -> None:
    for name in ("one", "two"):
        for wheel in ("b", "a") if name == "one" else ("a", "b"):
            os.chmod(make_wheel(tmp_path / name / "wheels", wheel), 0o600 if name == "one" else 0o644)
    first, second = pack(tmp_path / "one"), pack(tmp_path / "two")
    assert first["changed"] is True
    assert first["archive"]["sha256"] == second["archive"]["sha256"]
    assert first["files"] == second["files"]
    assert pack(tmp_path / "one")["changed"] is False
    with tarfile.open(tmp_path / "one.tar") as archive:
        members = {member.name: (member.mode, member.uid, member.mtime) for member in archive}
    assert sorted(members) == [
        "apt/Packages",
        "wheels/a-1.0-py3-none-any.whl",
        "wheels/b-1.0-py3-none-any.whl",
        "wheels/index.html",
    ]
    assert set(members.values()) == {(0o644, 0, 0)}


def test_check_mode_describes_and_packs_nothing(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "one" / "wheels", "a")
    result = pack(tmp_path / "one", check=True)
    assert [entry["sha256"] for entry in result["files"]] == [hashlib.sha256(wheel.read_bytes()).hexdigest()]
    assert not (tmp_path / "one.tar").exists()


def test_wheel_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "one/wheels").mkdir(parents=True)
    (tmp_path / "one/wheels/a-1.0-py3-none-any.whl").write_bytes(b"half a download")
    result = pack(tmp_path / "one")
    assert result["msg"].startswith(f"Cannot read the wheel {tmp_path}/one/wheels/a-1.0-py3-none-any.whl: ")
    assert result["msg"].endswith("Remove it and run again.")


def write_manifest(folder: Path, packed: list[dict[str, Any]], check: bool = False) -> dict[str, Any]:
    sources = {
        "source/": {"source": "pkg:pypi/vllm@0.6.5", "licence": "Apache-2.0"},
        "model/": {"source": "", "licence": "Apache-2.0"},
    }
    arguments = {"path": folder, "facts": FACTS, "packed": packed, "sources": sources}
    return run_module("bundle_manifest", check=check, **arguments)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    (tmp_path / "source").mkdir()
    (tmp_path / "source/vllm-0.6.5.tar.gz").write_bytes(b"source")
    (tmp_path / "packages.tar").write_bytes(b"packed")
    return tmp_path


def test_manifest_and_bill_of_materials_are_the_same_twice(bundle: Path) -> None:
    packed = [file("wheels/a.whl", source="pkg:pypi/a@1", name="a"), file("apt/b.deb", licence="GPL-2+ and Expat")]
    assert write_manifest(bundle, packed, check=True)["changed"] is True
    assert not (bundle / "manifest.json").exists()
    assert write_manifest(bundle, packed)["files"] == 4
    texts = [(bundle / name).read_bytes() for name in ("manifest.json", "bom.cdx.json")]
    assert write_manifest(bundle, packed)["changed"] is False
    for name in ("manifest.json", "bom.cdx.json"):
        (bundle / name).unlink()
    write_manifest(bundle, list(reversed(packed)))
    assert texts == [(bundle / name).read_bytes() for name in ("manifest.json", "bom.cdx.json")]


def test_bill_of_materials_has_digest_source_and_licence_of_every_file(bundle: Path) -> None:
    write_manifest(bundle, [file("wheels/a.whl", source="pkg:pypi/a@1", name="a")])
    bill = json.loads((bundle / "bom.cdx.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    parts = {part["bom-ref"]: part for part in bill["components"]}
    assert sorted(parts) == ["packages.tar", "packages.tar/wheels/a.whl", "source/vllm-0.6.5.tar.gz"]
    source = parts["source/vllm-0.6.5.tar.gz"]
    assert source["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(b"source").hexdigest()}]
    assert source["licenses"] == [{"license": {"acknowledgement": "declared", "id": "Apache-2.0"}}]
    assert source["purl"] == "pkg:pypi/vllm@0.6.5"
    assert parts["packages.tar/wheels/a.whl"]["licenses"][0]["license"]["id"] == "MIT"
    assert "licenses" not in parts["packages.tar"]
    assert sorted(bill["metadata"]) == ["component", "timestamp"]


def test_changed_file_changes_the_name_of_the_bundle(bundle: Path) -> None:
    before = write_manifest(bundle, [])["bundle"]["id"]
    (bundle / "packages.tar").write_bytes(b"other")
    assert write_manifest(bundle, [])["bundle"]["id"] != before
