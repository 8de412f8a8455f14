# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is asked of model hubs, what is read from their answers, and which files are picked. Answers written by hand."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._hub import (
    HUGGINGFACE,
    MODELSCOPE,
    HubFile,
    check_repository,
    check_token,
    file_url,
    listing_url,
    parse_listing,
    secret_headers,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._hub_pick import pick
from ansible_collections.cpufleet.vllm.plugins.module_utils._model_fetch import (
    by_last,
    check_entries,
    check_space,
    still_missing,
    still_to_come,
)

COMMIT, SHA1, SHA256 = "0123456789abcdef" * 2 + "01234567", "a" * 40, "b" * 64
GIB = 1 << 30


def test_addresses() -> None:
    hub = "https://hub.example.com/"
    assert (
        listing_url(HUGGINGFACE, hub, "o/n", "refs/pr/1")
        == "https://hub.example.com/api/models/o/n/revision/refs%2Fpr%2F1?blobs=true"
    )
    assert file_url(HUGGINGFACE, hub, "o/n", COMMIT, "a/b c.json") == (
        f"https://hub.example.com/o/n/resolve/{COMMIT}/a/b%20c.json"
    )
    assert listing_url(MODELSCOPE, hub, "o/n", "master") == (
        "https://hub.example.com/api/v1/models/o/n/repo/files?Revision=master&Recursive=true"
    )
    assert file_url(MODELSCOPE, hub, "o/n", "master", "a/b.json") == (
        "https://hub.example.com/api/v1/models/o/n/repo?Revision=master&FilePath=a%2Fb.json"
    )


def test_a_small_file_has_gits_digest_and_a_large_one_its_own() -> None:
    document = {
        "sha": COMMIT,
        "siblings": [
            {"rfilename": "config.json", "size": 3, "blobId": SHA1},
            {"rfilename": "m.safetensors", "size": 9, "blobId": SHA1, "lfs": {"sha256": SHA256, "size": 9}},
        ],
    }
    listing = parse_listing(HUGGINGFACE, document, "o/n", "main")
    assert listing.commit == COMMIT
    assert listing.files == (HubFile("config.json", 3, SHA1), HubFile("m.safetensors", 9, SHA256))


@pytest.mark.parametrize(
    ("latest", "commit"),
    [
        ({"Id": "", "ShortId": COMMIT[:8]}, COMMIT),
        ({"Id": "c" * 40, "ShortId": "c" * 8}, "c" * 40),
        ({}, "v1.0"),
        (None, "v1.0"),
    ],
    ids=["short", "whole", "not told", "nobody"],
)
def test_commit_that_modelscope_tells(latest: Any, commit: str) -> None:
    files = [
        {"Path": "sub", "Type": "tree", "Size": 0},
        {"Path": "old.json", "Type": "blob", "Size": 1, "Sha256": SHA256, "Revision": "d" * 40},
        {"Path": "new.json", "Type": "blob", "Size": 2, "Sha256": SHA256, "Revision": COMMIT},
    ]
    listing = parse_listing(MODELSCOPE, {"Data": {"Files": files, "LatestCommitter": latest}}, "o/n", "v1.0")
    assert listing.commit == commit
    assert [file.name for file in listing.files] == ["old.json", "new.json"]


@pytest.mark.parametrize(
    ("hub", "document", "message"),
    [
        (HUGGINGFACE, {"error": "x"}, "Cannot read the list of files of o/n: KeyError 'sha'."),
        (HUGGINGFACE, [], "Cannot read the list of files of o/n: TypeError"),
        (HUGGINGFACE, {"sha": "main", "siblings": []}, "Cannot read the list of files of o/n: ValueError of commit"),
        (HUGGINGFACE, {"sha": COMMIT, "siblings": []}, "The hub lists no files of o/n at revision r."),
        (
            HUGGINGFACE,
            {"sha": COMMIT, "siblings": [{"rfilename": "a", "size": 1}]},
            "Cannot read the list of files of o/n: ValueError no digest of a.",
        ),
        (
            HUGGINGFACE,
            {"sha": COMMIT, "siblings": [{"rfilename": "../a", "size": 1, "blobId": SHA1}]},
            "Refused o/n: it lists a file '../a'.",
        ),
        # What ModelScope says of an unknown revision.
        (
            MODELSCOPE,
            {"Data": {"Files": None, "LatestCommitter": None}},
            "The hub lists no files of o/n at revision r.",
        ),
    ],
)
def test_answer_that_is_no_listing(hub: str, document: Any, message: str) -> None:
    with pytest.raises(CpufleetError) as caught:
        parse_listing(hub, document, "o/n", "r")
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("repository", ["", "gpt2", "/srv/models/x", "a/b/c", "a/b?c", "https://hub.example.com/a/b"])
def test_what_is_no_repository(repository: str) -> None:
    with pytest.raises(CpufleetError, match="names no repository of a model hub"):
        check_repository(repository)


def test_token_travels_in_the_dark() -> None:
    check_token("secret", ["https://hub.example.com", "http://127.0.0.1:8000"])
    check_token("", ["http://hub.example.com"])
    with pytest.raises(CpufleetError) as caught:
        check_token("secret", ["https://hub.example.com", "http://mirror.example.com:80/x"])
    assert str(caught.value) == (
        "model_serve_hub_token would be sent to mirror.example.com over plain HTTP, where others can read it. "
        "Use https:// in model_serve_model_endpoints, or leave the token out."
    )
    assert secret_headers(HUGGINGFACE, "") == {}
    assert secret_headers(MODELSCOPE, "t") == {"Authorization": "Bearer t", "Cookie": "m_session_id=t"}


def files(*names: str) -> list[HubFile]:
    return [HubFile(name, GIB, SHA256) for name in names]


def picked(names: list[str], patterns: tuple[str, ...] = (), indexed: tuple[str, ...] = ()) -> list[str]:
    found = pick(files(*names), patterns, indexed, lambda file: file.name.endswith((".gguf", ".data")))
    return [file.name for file in found.files]


BESIDE = ["LICENSE", "config.json", "generation_config.json", "merges.txt", "tokenizer.json", "tokenizer_config.json"]
NOISE = ["README.md", ".gitattributes", "modeling_x.py", "onnx/model.onnx", "requirements.txt", "training_args.bin"]


@pytest.mark.parametrize(
    ("weights", "indexed", "taken"),
    [
        (["model.safetensors", "pytorch_model.bin", "pytorch_model.bin.index.json"], (), ["model.safetensors"]),
        (["model.safetensors", "model.fp16.safetensors", "adapter_config.json"], (), ["model.safetensors"]),
        (
            ["model-1.safetensors", "model-2.safetensors", "consolidated.safetensors", "model.safetensors.index.json"],
            ("model-1.safetensors", "model-2.safetensors"),
            ["model-1.safetensors", "model-2.safetensors", "model.safetensors.index.json"],
        ),
        (["weights.safetensors", "tf_model.h5"], (), ["weights.safetensors"]),
        (["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"], (), None),
    ],
    ids=["twins", "variants", "shards", "other name", "pickles only"],
)
def test_one_set_of_weights_and_what_belongs_to_it(
    weights: list[str], indexed: tuple[str, ...], taken: list[str] | None
) -> None:
    assert picked([*NOISE, *BESIDE, *weights], (), indexed) == sorted(BESIDE + (weights if taken is None else taken))


def test_gguf_needs_nothing_beside_it_but_its_licence() -> None:
    assert picked(["m-q4_0.gguf", "mmproj-m.gguf", *BESIDE]) == ["LICENSE", "m-q4_0.gguf"]
    parts = ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"]
    assert picked([*parts, "README.md"]) == parts
    assert picked(["m-q4_0.gguf", "m-q8_0.gguf", "config.json"], ("*q8_0.gguf",)) == ["m-q8_0.gguf"]
    # Told by its first bytes.
    assert picked(["m.data", "model.safetensors", "config.json"], ("*.data",)) == ["m.data"]


@pytest.mark.parametrize(
    ("names", "patterns", "message"),
    [
        (
            ["m-q4_0.gguf", "m-q8_0.gguf"],
            (),
            "The model comes in 2 forms: m-q4_0.gguf (1.0 GiB), m-q8_0.gguf (1.0 GiB). "
            "Name one in model_serve_model_files, such as *q4_0.gguf or *Q4_K_M.gguf.",
        ),
        (
            ["config.json", "m.h5"],
            (),
            "The model has no weights that can be served (*.safetensors, *.gguf); it has config.json, m.h5. "
            "Choose another repository, or name the files in model_serve_model_files.",
        ),
        (
            ["m-q8_0.gguf", "README.md"],
            ("*q4_0*",),
            "model_serve_model_files has '*q4_0*', which no file of the model matches. Weights there: m-q8_0.gguf.",
        ),
        (
            ["model.safetensors", "pytorch_model.bin"],
            ("*.bin",),
            "model_serve_model_files names pytorch_model.bin, which can run code when they are read, and the model has "
            "the same weights as safetensors. Name those, or leave model_serve_model_files out.",
        ),
    ],
)
def test_what_cannot_be_picked(names: list[str], patterns: tuple[str, ...], message: str) -> None:
    with pytest.raises(CpufleetError) as caught:
        picked(names, patterns)
    assert str(caught.value) == message


def test_index_that_names_more_than_there_is() -> None:
    with pytest.raises(CpufleetError, match=r"names weights that the hub does not have: b\.safetensors"):
        picked(["a.safetensors"], (), ("a.safetensors", "b.safetensors"))


def entry(name: str, size: int, sha256: str = SHA256) -> dict[str, Any]:
    return {"name": name, "size": size, "sha256": sha256}


def test_what_is_still_to_come() -> None:
    wanted = [entry("large", 1000), entry("there", 10), entry("other", 20)]
    missing = still_missing(wanted, {"there": SHA256, "other": "c" * 64})
    assert [one["name"] for one in missing] == ["other", "large"]
    assert still_to_come(missing, {"large.part": 400, "other.part": 30, "there": 10}) == 600


def test_room_is_compared_first() -> None:
    check_space("/m", 0, 0, "the model")
    check_space("/m", 3 * GIB, 4 * GIB, "the model")
    with pytest.raises(CpufleetError) as caught:
        check_space("/m", 3 * GIB, 3 * GIB, "the model")
    assert str(caught.value) == (
        "Cannot download the model to /m: 3.0 GiB are to come, the filesystem has 3.0 GiB free, and 64 MiB stay free. "
        "Free space there or use a larger disk; nothing was downloaded, and what is there already is kept."
    )


def test_host_that_served_the_last_file_is_asked_first() -> None:
    urls = ["https://a.example.com/x", "https://b.example.com/x"]
    assert by_last(urls, "") == urls
    assert by_last(urls, "https://b.example.com/y") == urls[::-1]


@pytest.mark.parametrize(
    ("name", "urls", "message"),
    [
        ("a", {}, "Cannot download a: urls has no address for it"),
        ("../a", {"../a": ["https://a.example.com"]}, "Refused to download '../a': it lies outside"),
        ("/a", {"/a": ["https://a.example.com"]}, "Refused to download '/a': it lies outside"),
    ],
)
def test_entry_that_cannot_be(name: str, urls: dict[str, list[str]], message: str) -> None:
    with pytest.raises(CpufleetError, match=message):
        check_entries([entry(name, 1)], urls)
