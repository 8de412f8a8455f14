# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""model_lookup and model_fetch against real HTTP servers: what is read, what is fetched, and over which troubles."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.file_server import FileServer, serving_files
from tests.support.gguf import KEYS, gguf
from tests.support.hub_server import COMMIT, MODEL, WEIGHTS, publish, publish_modelscope, seven_billion, sha256
from tests.support.run_module import run_module

TAKEN = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
TOKEN = "hf_secretsecretsecret"  # noqa: S105 - a made-up one, looked for in what comes out


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    with serving_files() as one:
        publish(one, MODEL)
        yield one


@pytest.fixture
def mirror() -> Iterator[FileServer]:
    with serving_files() as one:
        publish(one, MODEL)
        yield one


def look_up(tmp_path: Path, *servers: FileServer, **more: Any) -> dict[str, Any]:
    given = {"source": "huggingface", "model": "org/Tiny", "cache": tmp_path / "cache"}
    endpoints = [server.url("").rstrip("/") for server in servers]
    result = run_module("model_lookup", **{**given, "endpoints": endpoints, **more})
    return result if result.get("failed") else dict(result["model"])


def fetch(tmp_path: Path, model: dict[str, Any], *, check: bool = False, **more: Any) -> dict[str, Any]:
    given = {name: model[name] for name in ("files", "urls", "source")}
    folders = {"path": tmp_path / "store", "memory": tmp_path / "memory.json"}
    return run_module("model_fetch", check=check, **{**given, **folders, **more})


def stored(tmp_path: Path) -> dict[str, bytes]:
    store = tmp_path / "store"
    return {str(path.relative_to(store)): path.read_bytes() for path in store.rglob("*") if path.is_file()}


def test_model_is_known_before_it_is_downloaded(tmp_path: Path, server: FileServer) -> None:
    model = look_up(tmp_path, server)
    assert [entry["name"] for entry in model["files"]] == TAKEN
    assert {entry["name"]: entry["sha256"] for entry in model["files"]} == {name: sha256(MODEL[name]) for name in TAKEN}
    assert (model["problems"], model["revision"], model["context"]) == ([], COMMIT, 8192)
    (candidate,) = model["candidates"]
    assert (candidate["name"], candidate["narrow_bytes"], candidate["source"]) == ("Tiny", 800_000, "header")
    # Of the weights only the head was asked for.
    ranges = [wanted for name, wanted in server.asked if name.endswith("model.safetensors")]
    assert ranges == ["bytes=0-65535"]
    # The description of a whole copy is the same, so that a deployment does not depend on the way it came.
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in TAKEN:
        (copy / name).write_bytes(MODEL[name])
    assert run_module("model_info", path=copy)["model"]["sha256"] == model["sha256"]


def test_seven_billion_weights_are_known_from_little(tmp_path: Path, server: FileServer) -> None:
    publish(server, seven_billion(), "org/Large")
    model = look_up(tmp_path, server, model="org/Large")
    large = [entry["name"] for entry in model["files"] if entry["size"] > 10**9]
    assert large == [f"model-0000{number}-of-00004.safetensors" for number in range(1, 5)]
    assert [candidate["narrow_bytes"] for candidate in model["candidates"]] == [15_200_000_000]
    assert server.sent < 10**6
    # What stands in for the weights takes no space either.
    used = sum(path.stat().st_blocks * 512 for path in (tmp_path / "cache").rglob("*"))
    assert used < 10**6


def test_pinned_commit_is_found_without_asking_again(tmp_path: Path, server: FileServer) -> None:
    first = look_up(tmp_path, server, revision=COMMIT)
    asked = len(server.asked)
    assert look_up(tmp_path, server, revision=COMMIT) == first
    assert len(server.asked) == asked


@pytest.mark.parametrize("workers", [1, 3])
def test_files_are_fetched_once(tmp_path: Path, server: FileServer, workers: int) -> None:
    model = look_up(tmp_path, server)
    assert sorted(fetch(tmp_path, model, check=True)["fetched"]) == TAKEN
    assert not (tmp_path / "store").exists()
    first = fetch(tmp_path, model, workers=workers)
    assert (first["changed"], sorted(first["fetched"])) == (True, TAKEN)
    assert stored(tmp_path) == {name: MODEL[name] for name in TAKEN}
    # model_store takes the digests that were just compared.
    memory = json.loads((tmp_path / "memory.json").read_text())
    assert {name: entry["sha256"] for name, entry in memory.items()} == {name: sha256(MODEL[name]) for name in TAKEN}
    asked = len(server.asked)
    assert fetch(tmp_path, model) == {"changed": False, "fetched": []}
    assert len(server.asked) == asked


def test_download_goes_on_where_it_was_cut(tmp_path: Path, server: FileServer) -> None:
    model = look_up(tmp_path, server)
    rest = "resolve/" + COMMIT + "/model.safetensors"
    server.asked.clear()
    server.before = lambda name: server.faults.append("cut") if name.endswith(rest) and len(server.faults) < 1 else None
    failed = fetch(tmp_path, model)
    server.before = lambda _name: None
    assert "the connection was cut" in failed["msg"]
    assert "(tries: 5)" in failed["msg"]
    assert "Check the connection and proxy of this machine." in failed["msg"]
    have = (tmp_path / "store/model.safetensors.part").stat().st_size
    assert len(WEIGHTS) // 2 < have < len(WEIGHTS)
    server.asked.clear()
    assert fetch(tmp_path, model)["fetched"] == ["model.safetensors"]
    assert [wanted for _name, wanted in server.asked] == [f"bytes={have}-"]
    assert stored(tmp_path) == {name: MODEL[name] for name in TAKEN}


@pytest.mark.parametrize("damage", [WEIGHTS[:-5], WEIGHTS[:-1] + b"x"], ids=["truncated", "one byte"])
def test_damaged_file_is_fetched_again(tmp_path: Path, server: FileServer, damage: bytes) -> None:
    model = look_up(tmp_path, server)
    fetch(tmp_path, model)
    (tmp_path / "store/model.safetensors").write_bytes(damage)
    assert fetch(tmp_path, model)["fetched"] == ["model.safetensors"]
    assert stored(tmp_path)["model.safetensors"] == WEIGHTS


def test_begun_file_that_is_another_one_is_fetched_from_its_start(tmp_path: Path, server: FileServer) -> None:
    model = look_up(tmp_path, server)
    (tmp_path / "store").mkdir()
    (tmp_path / "store/model.safetensors.part").write_bytes(b"x" * 1000)
    fetch(tmp_path, model)
    assert stored(tmp_path)["model.safetensors"] == WEIGHTS


def test_other_bytes_than_the_hub_told_are_refused(tmp_path: Path, server: FileServer) -> None:
    model = look_up(tmp_path, server)
    server.files[f"org/Tiny/resolve/{COMMIT}/model.safetensors"] = WEIGHTS[:-1] + b"x"
    failed = fetch(tmp_path, model)
    assert failed["msg"] == (
        f"Refused {tmp_path}/store/model.safetensors.part: its SHA-256 is {sha256(WEIGHTS[:-1] + b'x')}, expected "
        f"{sha256(WEIGHTS)}. The file was removed. Run again; if it happens twice, the mirror serves another file."
    )
    assert "model.safetensors" not in stored(tmp_path)


def test_small_file_is_held_against_gits_digest(tmp_path: Path, server: FileServer) -> None:
    server.files[f"org/Tiny/resolve/{COMMIT}/config.json"] = b"<html>Sign in</html>"
    assert "config.json: its git SHA-1 is " in look_up(tmp_path, server)["msg"]


def test_second_endpoint_where_the_first_is_dead(tmp_path: Path, mirror: FileServer, server: FileServer) -> None:
    with serving_files() as gone:
        pass
    model = look_up(tmp_path, gone, server)
    # The one that answered is asked first from then on.
    assert model["urls"]["config.json"] == [one.url(f"org/Tiny/resolve/{COMMIT}/config.json") for one in (server, gone)]
    fetch(tmp_path, {**model, "urls": {name: urls[::-1] for name, urls in model["urls"].items()}})
    assert stored(tmp_path) == {name: MODEL[name] for name in TAKEN}
    failed = look_up(tmp_path, gone, model="org/Other")
    assert failed["msg"].startswith(f"Cannot find the model org/Other: {gone.url('')[:-1]}: ")


@pytest.mark.parametrize(
    ("faults", "told"),
    [
        (
            ["401"],
            "says 401: org/Tiny does not exist there, or is private, or its terms have to be accepted on its page",
        ),
        (["404"], "says 404: it has no org/Tiny at revision main"),
        (["500", "500", "500"], "says 500"),
    ],
)
def test_listing_that_is_not_given(tmp_path: Path, server: FileServer, faults: list[str], told: str) -> None:
    server.faults = faults
    assert told in look_up(tmp_path, server)["msg"]


def test_page_in_place_of_a_listing(tmp_path: Path, server: FileServer) -> None:
    server.files["api/models/org/Tiny/revision/main?blobs=true"] = b"<html>Welcome</html>"
    assert "it answers with something other than JSON" in look_up(tmp_path, server)["msg"]


def test_token_opens_and_goes_no_further(tmp_path: Path, server: FileServer, mirror: FileServer) -> None:
    server.token = TOKEN
    name = f"org/Tiny/resolve/{COMMIT}/model.safetensors"
    server.moved[name] = mirror.url(name)
    # A hub also sends clients on within itself, and wants the token there as well.
    server.moved[f"org/Tiny/resolve/{COMMIT}/config.json"] = "/api/kept/config.json"
    server.files["api/kept/config.json"] = MODEL["config.json"]
    refused = look_up(tmp_path, server)
    assert "says 401" in refused["msg"]
    model = look_up(tmp_path, server, token=TOKEN)
    assert fetch(tmp_path, model, token=TOKEN)["changed"] is True
    assert stored(tmp_path) == {name: MODEL[name] for name in TAKEN}
    # What the hub sends the download on to never sees it, and no file has it.
    assert mirror.secrets
    assert set(mirror.secrets) == {""}
    assert TOKEN not in json.dumps(model)
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or TOKEN.encode() not in path.read_bytes()


def test_token_is_not_sent_in_the_clear(tmp_path: Path, server: FileServer) -> None:
    failed = look_up(tmp_path, server, token=TOKEN, endpoints=["http://hub.example.com"])
    assert failed["msg"].startswith("model_serve_hub_token would be sent to hub.example.com over plain HTTP")
    assert TOKEN not in json.dumps(failed)
    failed = look_up(tmp_path, server, endpoints=["https://me:word@hub.example.com"])
    assert failed["msg"].startswith("model_serve_model_endpoints has credentials in an address of hub.example.com")
    assert "word" not in json.dumps(failed)


def test_modelscope(tmp_path: Path, server: FileServer) -> None:
    publish_modelscope(server, MODEL)
    model = look_up(tmp_path, server, source="modelscope")
    assert (model["revision"], [entry["name"] for entry in model["files"]]) == (COMMIT, TAKEN)
    fetch(tmp_path, model)
    assert stored(tmp_path) == {name: MODEL[name] for name in TAKEN}
    # The same bytes are the same model, whichever hub they came from.
    assert look_up(tmp_path, server)["sha256"] == model["sha256"]
    failed = look_up(tmp_path, server, source="modelscope", revision="none")
    assert "The hub lists no files of org/Tiny at revision none" in failed["msg"]


def test_gguf_by_its_pattern(tmp_path: Path, server: FileServer) -> None:
    packed = gguf()
    publish(server, {"tiny-q4_0.gguf": packed, "tiny-q8_0.gguf": packed + b"", "README.md": b"#"}, "org/Packed")
    assert look_up(tmp_path, server, model="org/Packed")["msg"].startswith("The model comes in 2 forms: ")
    model = look_up(tmp_path, server, model="org/Packed", files=["*q4_0.gguf"])
    assert [entry["name"] for entry in model["files"]] == ["tiny-q4_0.gguf"]
    assert [candidate["form"] for candidate in model["candidates"]] == ["gguf"]
    assert (model["problems"], model["architecture"]) == ([], "qwen2")
    fetch(tmp_path, model)
    assert stored(tmp_path) == {"tiny-q4_0.gguf": packed}


def test_head_of_a_gguf_is_read_as_far_as_it_goes(tmp_path: Path, server: FileServer) -> None:
    words = [f"word{number:020}" for number in range(100_000)]
    packed = gguf({**KEYS, "tokenizer.ggml.tokens": words}) + bytes(20 << 20)
    publish(server, {"tiny.gguf": packed}, "org/Words")
    model = look_up(tmp_path, server, model="org/Words")
    assert model["candidates"][0]["shape"]["vocab"] == 100_000
    assert len(packed) - (20 << 20) < server.sent < 6 << 20


def test_gguf_is_told_by_its_magic(tmp_path: Path, server: FileServer) -> None:
    publish(server, {"weights.data": gguf(), "model.gguf": b"<!DOCTYPE html><html>Sign in"}, "org/Packed")
    model = look_up(tmp_path, server, model="org/Packed", files=["weights.data"])
    assert [candidate["form"] for candidate in model["candidates"]] == ["gguf"]
    assert look_up(tmp_path, server, model="org/Packed", files=["model.gguf"])["msg"] == (
        "Refused model.gguf of org/Packed: it is no GGUF, whose first bytes are the letters GGUF, but begins with "
        "'<!DOCTYPE html><'. It may be a page that was saved in place of the file: fetch it again from its source."
    )


def test_model_that_cannot_be_served_is_told_before_the_download(tmp_path: Path, server: FileServer) -> None:
    config = json.loads(MODEL["config.json"])
    del config["hidden_size"]
    publish(server, {**MODEL, "config.json": json.dumps(config).encode()}, "org/Broken")
    assert look_up(tmp_path, server, model="org/Broken")["problems"] == [
        "Cannot plan for the model of org/Broken/config.json: it does not say hidden_size. "
        "Restore the file from the model's source."
    ]
    publish(server, {**MODEL, "model.safetensors": WEIGHTS[:-100]}, "org/Cut")
    (problem,) = look_up(tmp_path, server, model="org/Cut")["problems"]
    assert problem.startswith(f"Cannot use org/Cut/model.safetensors: it has {len(WEIGHTS) - 100} bytes, its header")


def test_file_at_an_address(tmp_path: Path, server: FileServer) -> None:
    packed = gguf()
    server.files["tiny.gguf"] = packed
    url = server.url("tiny.gguf")
    model = look_up(tmp_path, source="url", model=url, sha256=sha256(packed))
    assert model["files"] == [{"name": "tiny.gguf", "size": len(packed), "sha256": sha256(packed)}]
    assert (model["urls"], model["copy_from"], model["problems"]) == ({"tiny.gguf": [url]}, "", [])
    assert look_up(tmp_path, source="url", model=url, sha256=sha256(packed)) == model
    assert fetch(tmp_path, model)["changed"] is True
    assert stored(tmp_path) == {"tiny.gguf": packed}


@pytest.mark.parametrize("top", ["Tiny/", "./", ""], ids=["folder", "dot", "flat"])
def test_archive_at_an_address(tmp_path: Path, server: FileServer, top: str) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name in TAKEN:
            info = tarfile.TarInfo(top + name)
            info.size = len(MODEL[name])
            archive.addfile(info, io.BytesIO(MODEL[name]))
    server.files["models/Tiny.tar.gz"] = packed.getvalue()
    given = {"source": "url", "model": server.url("models/Tiny.tar.gz"), "sha256": sha256(packed.getvalue())}
    model = look_up(tmp_path, **given)
    assert (model["problems"], model["urls"]) == ([], {})
    folder = Path(model["copy_from"])
    assert folder.name == "Tiny"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {name: MODEL[name] for name in TAKEN}
    asked = len(server.asked)
    assert look_up(tmp_path, **given) == model
    assert len(server.asked) == asked


@pytest.mark.parametrize(
    ("model", "sha", "message"),
    [
        ("tiny.zip", "a" * 64, "it is neither a GGUF nor a tar archive, but begins with 'PK'"),
        ("page", "a" * 64, "it is neither a GGUF nor a tar archive, but begins with '<html>'"),
        ("page.gguf", "a" * 64, "it is no GGUF, whose first bytes are the letters GGUF, but begins with '<html>'"),
        ("page", "", "with the SHA-256 (none). Set model_serve_model to the http(s) address of a file"),
        ("gone", "a" * 64, "HTTP Error 404: Not Found. Check the address"),
        ("Tiny.tar.gz", "a" * 64, "expected " + "a" * 64),
    ],
)
def test_what_an_address_may_not_be(tmp_path: Path, server: FileServer, model: str, sha: str, message: str) -> None:
    server.files = {"tiny.zip": b"PK", "page": b"<html>", "page.gguf": b"<html>", "Tiny.tar.gz": b"\x1f\x8b" * 99}
    assert message in look_up(tmp_path, source="url", model=server.url(model), sha256=sha)["msg"]
