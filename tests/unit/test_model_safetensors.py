# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sizes from the heads of safetensors files and from the index: true to the byte; a file cut off is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._model_safetensors import (
    SafetensorsSize,
    header_size,
    parse_header,
    read_safetensors,
)

from tests.support.safetensors import safetensors


def index(folder: Path, total: int, *names: str) -> None:
    document = {"metadata": {"total_size": total}, "weight_map": {f"t{name}": name for name in names}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(document))


def read(folder: Path) -> SafetensorsSize | None:
    return read_safetensors(str(folder), sorted(path.name for path in folder.iterdir()))


def test_one_file(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(safetensors({"a": ("BF16", 100), "b": ("F32", 10), "q": ("I32", 5)}))
    size = read(tmp_path)
    assert size == SafetensorsSize(total_bytes=260, float_elements=110, float_bytes=240, complete=True)
    assert (size.served(2), size.served(4)) == (240, 460)


def test_several_files_by_their_index(tmp_path: Path) -> None:
    index(tmp_path, 300, "m-1.safetensors", "m-2.safetensors")
    assert read(tmp_path) == SafetensorsSize(total_bytes=300, float_elements=0, float_bytes=0, complete=False)
    (tmp_path / "m-1.safetensors").write_bytes(safetensors({"a": ("BF16", 100)}))
    with pytest.raises(CpufleetError) as caught:
        read(tmp_path)
    assert str(caught.value) == (
        f"Cannot use the model in {tmp_path}: of its 2 weight files these are missing: m-2.safetensors. "
        "Copy or fetch the whole model."
    )
    (tmp_path / "m-2.safetensors").write_bytes(safetensors({"b": ("F16", 50)}))
    # A file that the index does not name is not served, so it does not count.
    (tmp_path / "old.safetensors").write_bytes(safetensors({"c": ("F32", 1000)}))
    size = read(tmp_path)
    assert size is not None
    assert (size.total_bytes, size.complete) == (300, True)


def test_nothing_there(tmp_path: Path) -> None:
    assert read(tmp_path) is None


@pytest.mark.parametrize("change", [-1, 1])
def test_a_file_of_another_length_is_refused(tmp_path: Path, change: int) -> None:
    whole = safetensors({"a": ("BF16", 100)})
    path = tmp_path / "model.safetensors"
    path.write_bytes(whole[:change] if change < 0 else whole + b"x")
    with pytest.raises(CpufleetError) as caught:
        read(tmp_path)
    assert str(caught.value) == (
        f"Cannot use {path}: it has {len(whole) + change} bytes, its header speaks of {len(whole)}. "
        "The file is cut off or damaged: fetch it again."
    )


@pytest.mark.parametrize("first", [b"", b"\0" * 8, b"\xff" * 8, b"<html><h"])
def test_another_kind_of_file_is_refused(first: bytes) -> None:
    with pytest.raises(CpufleetError, match="does not begin as a safetensors file"):
        header_size(first, "/m/model.safetensors")


@pytest.mark.parametrize("header", [b"{", b"[]", b'{"a": {"dtype": "F32"}}', b'{"a": 1}'])
def test_a_damaged_header_is_refused(header: bytes) -> None:
    with pytest.raises(CpufleetError, match=r"Cannot read the header of /m/model\.safetensors"):
        parse_header(header, "/m/model.safetensors", 100)


def test_an_index_without_files_is_refused(tmp_path: Path) -> None:
    index(tmp_path, 300)
    with pytest.raises(CpufleetError, match="it names no files or no total size"):
        read(tmp_path)
