# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The depot: which names it serves, its index, and depot_publish on real folders, also while somebody reads."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.cpufleet.vllm.plugins.filter.depot import FilterModule
from ansible_collections.cpufleet.vllm.plugins.module_utils._depot import (
    check_name,
    index_of,
    manifest_kind,
    stale_files,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError

from tests.support.run_module import run_module

WHEEL = b"wheel" * 1000
NAME = "vllm-0.6.5+cpu-cp38-abi3-linux_x86_64.whl"


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def depot(tmp_path: Path) -> Path:
    for folder in ("public", "staging", "incoming", "digests"):
        (tmp_path / folder).mkdir()
    return tmp_path


def upload(depot: Path, content: bytes, name: str = "") -> str:
    """Leave what a builder uploads, under the digest that it names."""
    (depot / "incoming" / (name or sha(content))).write_bytes(content)
    return name or sha(content)


def publish(depot: Path, content: bytes = WHEEL, check: bool = False, **more: Any) -> dict[str, Any]:
    arguments = {
        "folder": "wheels/0123456789ab",
        "files": [{"name": NAME, "sha256": sha(content)}],
        "manifest": {"identity": "0123456789ab", "file": NAME, "sha256": sha(content)},
        **more,
    }
    return run_module("depot_publish", check=check, root=depot, **arguments)


def index(depot: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((depot / "public/index.json").read_text())
    return found


@pytest.mark.parametrize("name", ["wheels/0123456789ab", NAME, "models/smollm2.json", "a_b/c~d.txt"])
def test_name_that_is_served(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "/etc/passwd", "../secrets", "a/../../b", "a//b", ".git/x", "a/.b", "a b", "a\nb", "ä"]
)
def test_name_that_leads_elsewhere(name: str) -> None:
    with pytest.raises(CpufleetError) as caught:
        check_name(name)
    assert str(caught.value) == (
        f"Cannot publish {name!r}: it is no relative name of plain letters, digits and the characters _ . + ~ -. "
        "Rename the file or folder."
    )


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("wheels/0123456789ab/manifest.json", ("wheels", "0123456789ab")),
        ("locks/0.6.5-py3.11/manifest.json", ("locks", "0.6.5-py3.11")),
        ("bundles/a/manifest.json", ("bundles", "a")),
        ("models/smollm2.json", ("models", "smollm2")),
        ("models/0123456789ab/config.json", ("", "")),
        ("wheels/a/b/manifest.json", ("", "")),
        ("index.json", ("", "")),
    ],
)
def test_manifest_and_what_it_describes(path: str, kind: tuple[str, str]) -> None:
    assert manifest_kind(path) == kind


def test_index_has_manifests_whole_and_of_models_what_identifies_them() -> None:
    documents = {
        "wheels/0123456789ab/manifest.json": {"file": NAME},
        "wheels/broken/manifest.json": {},
        "models/smollm2.json": {"sha256": "ab", "folder": "models/ab", "files": [1, 2]},
    }
    assert index_of(documents) == {
        "wheels": {"0123456789ab": {"file": NAME}},
        "locks": {},
        "models": {"smollm2": {"sha256": "ab", "folder": "models/ab"}},
        "bundles": {},
    }


def test_file_without_a_digest_is_refused() -> None:
    with pytest.raises(CpufleetError, match=r"Cannot publish a: 'latest' is no SHA-256. Give its 64 hex digits."):
        stale_files([{"name": "a", "sha256": "latest"}], [])


def test_upload_is_published_once(depot: Path) -> None:
    upload(depot, WHEEL)
    result = publish(depot)
    file = depot / "public/wheels/0123456789ab" / NAME
    assert (result["changed"], result["published"]) == (True, [f"wheels/0123456789ab/{NAME}"])
    assert file.read_bytes() == WHEEL
    assert file.stat().st_mode & 0o777 == 0o644
    assert index(depot)["wheels"]["0123456789ab"]["sha256"] == sha(WHEEL)
    assert list((depot / "incoming").iterdir()) == list((depot / "staging").iterdir()) == []
    assert publish(depot)["changed"] is False


def test_second_upload_of_the_same_leaves_nothing_behind(depot: Path) -> None:
    upload(depot, WHEEL)
    publish(depot)
    upload(depot, WHEEL)
    assert publish(depot)["changed"] is False
    assert list((depot / "incoming").iterdir()) == []


def test_check_mode_tells_and_changes_nothing(depot: Path) -> None:
    result = publish(depot, check=True)
    assert (result["changed"], result["published"]) == (True, [f"wheels/0123456789ab/{NAME}"])
    assert list((depot / "public").iterdir()) == []


def test_check_mode_where_there_is_no_depot_yet(tmp_path: Path) -> None:
    assert publish(tmp_path / "none", check=True)["changed"] is True


def test_what_was_not_uploaded_is_named(depot: Path) -> None:
    result = publish(depot)
    assert result["msg"] == (
        f"Cannot publish {NAME} from {depot}/incoming/{sha(WHEEL)}: No such file or directory. "
        "Upload it to the depot first."
    )
    assert not (depot / "public/index.json").exists()


def test_half_an_upload_is_refused_and_what_was_served_stays(depot: Path) -> None:
    upload(depot, WHEEL)
    publish(depot)
    other = WHEEL + b"more"
    upload(depot, other[:100], sha(other))
    result = publish(depot, other)
    assert result["msg"] == (
        f"Refused to publish {NAME}: its SHA-256 is {sha(other[:100])}, expected {sha(other)}. "
        "Upload it again; what was served before is untouched."
    )
    assert (depot / "public/wheels/0123456789ab" / NAME).read_bytes() == WHEEL
    assert index(depot)["wheels"]["0123456789ab"]["sha256"] == sha(WHEEL)
    assert list((depot / "staging").iterdir()) == []


def test_file_that_was_changed_on_the_depot_is_found_and_replaced(depot: Path) -> None:
    upload(depot, WHEEL)
    publish(depot)
    (depot / "public/wheels/0123456789ab" / NAME).write_bytes(b"x" * len(WHEEL))
    upload(depot, WHEEL)
    assert publish(depot)["published"] == [f"wheels/0123456789ab/{NAME}"]
    assert (depot / "public/wheels/0123456789ab" / NAME).read_bytes() == WHEEL


def test_model_folder_is_copied_and_stays(depot: Path, tmp_path: Path) -> None:
    source = tmp_path / "model"
    (source / "extra").mkdir(parents=True)
    (source / "extra/config.json").write_text("{}")
    files = [{"name": "extra/config.json", "size": 2, "sha256": sha(b"{}")}]
    manifest = {"sha256": "ab" * 32, "folder": "models/abababababab", "files": files}
    arguments = {"source": source, "manifest": manifest, "manifest_name": "models/tiny.json"}
    publish(depot, folder="models/abababababab", files=files, **arguments)
    assert (source / "extra/config.json").exists()
    assert (depot / "public/models/abababababab/extra/config.json").read_text() == "{}"
    assert json.loads((depot / "public/models/tiny.json").read_text()) == manifest
    assert index(depot)["models"] == {"tiny": {"sha256": "ab" * 32, "folder": "models/abababababab"}}


def test_what_was_removed_by_hand_leaves_the_index(depot: Path) -> None:
    upload(depot, WHEEL)
    publish(depot)
    (depot / "public/wheels/0123456789ab/manifest.json").unlink()
    assert run_module("depot_publish", root=depot)["changed"] is True
    assert index(depot)["wheels"] == {}
    assert run_module("depot_publish", root=depot)["changed"] is False


def test_reader_sees_one_state_or_the_other_while_files_are_replaced(depot: Path) -> None:
    states = [bytes([letter]) * 300_000 for letter in b"ab"]
    upload(depot, states[0])
    publish(depot, states[0])
    path, seen, done = depot / "public/wheels/0123456789ab" / NAME, set(), threading.Event()

    def read() -> None:
        while not done.is_set():
            seen.add(sha(path.read_bytes()))

    reader = threading.Thread(target=read)
    reader.start()
    for turn in range(1, 20):
        upload(depot, states[turn % 2])
        publish(depot, states[turn % 2])
    done.set()
    reader.join()
    assert seen <= {sha(state) for state in states}


def test_umask_of_a_careful_root_does_not_hide_what_is_served(depot: Path) -> None:
    upload(depot, WHEEL)
    before = os.umask(0o077)
    try:
        publish(depot)
    finally:
        os.umask(before)
    folder = depot / "public/wheels/0123456789ab"
    modes = [path.stat().st_mode & 0o777 for path in (folder.parent, folder, folder / "manifest.json", folder / NAME)]
    assert modes == [0o755, 0o755, 0o644, 0o644]


def test_which_wheels_the_depot_lacks() -> None:
    lacks = FilterModule().filters()["depot_lacks"]
    plans = {
        "a": {"wheel": {"identity": "a" * 64, "source": "store"}},
        "b": {"wheel": {"identity": "b" * 64, "source": "given"}},
        "c": {"wheel": {"identity": "c" * 64, "source": "host"}},
        "d": {"wheel": {"identity": "d" * 64, "source": "store"}},
    }
    wheels = {letter * 12: {"file": f"{letter}.whl"} for letter in "abc"}
    stored = {"wheels": {**wheels, "e" * 12: {"file": "e.whl"}}}
    assert lacks({"wheels": {"a" * 12: {}}}, stored, plans) == {"b" * 12: {"file": "b.whl"}}
