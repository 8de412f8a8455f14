# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""model_info and model_store on real folders: what is missing, what differs, what is remembered."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.gguf import gguf
from tests.support.run_module import run_module
from tests.support.safetensors import safetensors

CONFIG = Path(__file__).parent / "fixtures" / "model" / "SmolLM2-135M-Instruct.json"


WEIGHTS = safetensors({"w": ("BF16", 400)}, b"w")


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    (folder / "extra").mkdir(parents=True)
    shutil.copy(CONFIG, folder / "config.json")
    (folder / "model.safetensors").write_bytes(WEIGHTS)
    (folder / "tokenizer.json").write_text("{}")
    (folder / "extra" / "notes.txt").write_text("n")
    return folder


def describe(path: Path, check: bool = False, **arguments: Any) -> dict[str, Any]:
    result = run_module("model_info", check=check, path=path, **arguments)
    assert result["changed"] is False
    found: dict[str, Any] = result["model"]
    return found


def test_a_model_folder_and_its_manifest(model: Path) -> None:
    found = describe(model)
    assert (found["path"], found["architecture"], found["weights_bytes"]) == (
        str(model),
        "LlamaForCausalLM",
        len(WEIGHTS),
    )
    assert [entry["name"] for entry in found["files"]] == [
        "config.json",
        "extra/notes.txt",
        "model.safetensors",
        "tokenizer.json",
    ]
    assert found["files"][2] == {"name": "model.safetensors", "size": len(WEIGHTS), "sha256": sha(WEIGHTS)}
    assert describe(model)["sha256"] == found["sha256"]


def test_every_byte_counts_and_the_place_does_not(model: Path, tmp_path: Path) -> None:
    before = describe(model)["sha256"]
    shutil.copytree(model, tmp_path / "copy")
    assert describe(tmp_path / "copy")["sha256"] == before
    (tmp_path / "copy" / "model.safetensors").write_bytes(WEIGHTS[:-1] + b"x")
    assert describe(tmp_path / "copy")["sha256"] != before


def test_a_cache_is_used_and_belongs_to_one_folder(model: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = describe(model, cache=cache)
    (remembered,) = cache.iterdir()
    document = json.loads(remembered.read_text())
    document["model.safetensors"]["sha256"] = "remembered"
    remembered.write_text(json.dumps(document))
    assert describe(model, cache=cache)["files"][2]["sha256"] == "remembered"
    shutil.copytree(model, tmp_path / "copy")
    assert describe(tmp_path / "copy", cache=cache)["sha256"] == first["sha256"]


@pytest.mark.parametrize("check", [False, True])
def test_a_folder_with_problems_is_told_and_not_read(tmp_path: Path, check: bool) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"w")
    found = describe(tmp_path, check=check)
    assert (len(found["problems"]), found["files"], found["sha256"]) == (2, [], "")
    assert describe(tmp_path / "none")["problems"] == [
        f"the model folder {tmp_path}/none does not exist or is empty. Name a folder with config.json and the weights."
    ]


def test_weights_that_are_cut_off_are_told(model: Path) -> None:
    (model / "model.safetensors").write_bytes(WEIGHTS[:-1])
    found = describe(model)
    assert found["problems"] == [
        f"Cannot use {model}/model.safetensors: it has {len(WEIGHTS) - 1} bytes, its header speaks of {len(WEIGHTS)}. "
        "The file is cut off or damaged: fetch it again."
    ]
    assert (found["candidates"], found["files"]) == ([], [])


def test_configuration_without_the_keys_that_decide(model: Path) -> None:
    document = json.loads(CONFIG.read_text())
    del document["num_hidden_layers"]
    (model / "config.json").write_text(json.dumps(document))
    assert describe(model)["problems"] == [
        f"Cannot plan for the model of {model}/config.json: it does not say num_hidden_layers. "
        "Restore the file from the model's source."
    ]


@pytest.mark.parametrize("name", ["model.gguf", "model.data"])
def test_gguf_is_told_by_its_first_bytes(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(gguf())
    found = describe(tmp_path)
    assert (found["problems"], found["architecture"], found["context"]) == ([], "qwen2", 2048)
    assert [candidate["form"] for candidate in found["candidates"]] == ["gguf"]
    assert [entry["name"] for entry in found["files"]] == [name]


def test_page_that_is_called_gguf_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_text("<!DOCTYPE html><html>Sign in</html>")
    assert describe(tmp_path)["problems"] == [
        f"Refused {tmp_path}/model.gguf: it is no GGUF, whose first bytes are the letters GGUF, but begins with "
        "'<!DOCTYPE html><'. It may be a page that was saved in place of the file: fetch it again from its source."
    ]


def test_file_in_place_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(gguf())
    path = tmp_path / "model.gguf"
    assert describe(path)["problems"] == [f"{path} is a file. Name the folder that it lies in."]


@pytest.mark.parametrize("content", ["not JSON", "[]", ""])
def test_a_configuration_that_is_none(model: Path, content: str) -> None:
    (model / "config.json").write_text(content)
    (problem,) = describe(model)["problems"]
    assert problem.startswith(f"the model folder {model} has no readable config.json.")


def test_digests_can_be_left_out_and_check_mode_writes_no_cache(model: Path, tmp_path: Path) -> None:
    assert describe(model, digests=False)["files"] == []
    assert describe(model, check=True, cache=tmp_path / "cache")["sha256"]
    assert not (tmp_path / "cache").exists()


def compare(store: Path, files: list[dict[str, Any]], check: bool = False, **arguments: Any) -> dict[str, Any]:
    given = {"path": store, "files": files, "memory": store.parent / "memory.json", **arguments}
    return run_module("model_store", check=check, **given)


def test_what_has_to_be_copied(model: Path, tmp_path: Path) -> None:
    files, store = describe(model)["files"], tmp_path / "store"
    everything = compare(store, files)
    assert everything["missing"] == ["config.json", "extra/notes.txt", "model.safetensors", "tokenizer.json"]
    assert (everything["folders"], everything["changed"]) == (["extra"], False)
    shutil.copytree(model, store)
    assert compare(store, files)["missing"] == []
    (store / "model.safetensors").write_bytes(b"x" * len(WEIGHTS))  # same size, other content
    (store / "tokenizer.json").write_bytes(b"")  # cut
    (store / "extra" / "notes.txt").unlink()
    assert compare(store, files)["missing"] == ["extra/notes.txt", "model.safetensors", "tokenizer.json"]


def test_more_files_than_the_manifest_names_do_no_harm(model: Path, tmp_path: Path) -> None:
    files = describe(model)["files"]
    (model / "more.txt").write_text("m")
    assert compare(model, files, memory=tmp_path / "memory")["missing"] == []


def test_an_incomplete_store_is_refused(model: Path, tmp_path: Path) -> None:
    files = describe(model)["files"]
    (model / "model.safetensors").write_bytes(WEIGHTS[:-1] + b"x")
    failed = compare(model, files, complete=True, memory=tmp_path / "memory")
    assert failed["msg"] == (
        f"The model in {model} does not match its manifest: model.safetensors. "
        "Copy the files again from a source that you trust."
    )
    assert failed["missing"] == ["model.safetensors"]


def test_digests_are_remembered_until_a_file_changes(model: Path, tmp_path: Path) -> None:
    files, memory = describe(model)["files"], tmp_path / "memory.json"
    compare(model, files)
    document = json.loads(memory.read_text())
    assert set(document) == {"config.json", "extra/notes.txt", "model.safetensors", "tokenizer.json"}
    document["model.safetensors"]["sha256"] = "remembered"
    memory.write_text(json.dumps(document))
    assert compare(model, files)["missing"] == ["model.safetensors"]
    os.utime(model / "model.safetensors", ns=(1, 1))
    assert compare(model, files)["missing"] == []


def test_check_mode_remembers_nothing(model: Path, tmp_path: Path) -> None:
    compare(model, describe(model)["files"], check=True)
    assert not (tmp_path / "memory.json").exists()
