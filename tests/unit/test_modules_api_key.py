# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""api_key: a secret in two files that only its owner reads, and nowhere else."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.run_module import run_module


def modes(folder: Path) -> dict[str, str]:
    paths = [folder, *sorted(folder.iterdir())]
    return {path.name: oct(path.stat().st_mode & 0o7777) for path in paths}


def keep(folder: Path, check: bool = False, **arguments: Any) -> dict[str, Any]:
    return run_module("api_key", check=check, path=folder, **arguments)


def test_a_key_is_made_once_and_kept(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    first = keep(folder)
    key = (folder / "api_key").read_text()
    assert first == {
        "changed": True,
        "api_key_file": str(folder / "api_key"),
        "environment_file": str(folder / "api_key.env"),
    }
    assert (len(key.strip()), key[-1]) == (43, "\n")
    assert (folder / "api_key.env").read_text() == f"VLLM_API_KEY={key}"
    assert modes(folder) == {"secrets": "0o700", "api_key": "0o600", "api_key.env": "0o600"}
    assert key.strip() not in json.dumps(first)
    assert keep(folder) == {**first, "changed": False}
    assert (folder / "api_key").read_text() == key


def test_two_hosts_get_two_keys(tmp_path: Path) -> None:
    keep(tmp_path / "a")
    keep(tmp_path / "b")
    assert (tmp_path / "a" / "api_key").read_text() != (tmp_path / "b" / "api_key").read_text()


def test_a_given_key_wins_and_is_kept_without_being_given_again(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    keep(folder)
    given = keep(folder, value="given-key", variable="OTHER_KEY")
    assert given["changed"] is True
    assert "given-key" not in json.dumps(given)
    assert (folder / "api_key.env").read_text() == "OTHER_KEY=given-key\n"
    assert keep(folder, variable="OTHER_KEY")["changed"] is False
    assert (folder / "api_key").read_text() == "given-key\n"


@pytest.mark.parametrize(("name", "mode"), [("api_key", 0o644), ("api_key.env", 0o640), ("", 0o755)])
def test_loosened_permissions_are_put_right(tmp_path: Path, name: str, mode: int) -> None:
    folder = tmp_path / "secrets"
    keep(folder)
    key = (folder / "api_key").read_text()
    os.chmod(folder / name, mode)
    assert keep(folder)["changed"] is True
    assert modes(folder) == {"secrets": "0o700", "api_key": "0o600", "api_key.env": "0o600"}
    assert (folder / "api_key").read_text() == key


def test_an_environment_file_that_was_lost_is_written_from_the_key(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    keep(folder)
    (folder / "api_key.env").unlink()
    assert keep(folder)["changed"] is True
    assert (folder / "api_key.env").read_text() == "VLLM_API_KEY=" + (folder / "api_key").read_text()


@pytest.mark.parametrize("value", ["two words", "line\nEVIL=1", 'quo"te', "back\\slash", "schlüssel"])
def test_a_key_that_cannot_be_a_bearer_token_is_refused_and_not_shown(tmp_path: Path, value: str) -> None:
    failed = keep(tmp_path / "secrets", value=value)
    assert failed["msg"] == (
        "The API key holds a character that no Bearer token may hold. "
        "Use letters, digits and the characters - . _ ~ + / = only."
    )
    assert value not in json.dumps(failed)
    assert not (tmp_path / "secrets").exists()


def test_check_mode_writes_nothing(tmp_path: Path) -> None:
    assert keep(tmp_path / "secrets", check=True)["changed"] is True
    assert not (tmp_path / "secrets").exists()
