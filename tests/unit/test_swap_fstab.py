# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""fstab is edited by exact entry; every other byte stays."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._swap_fstab import (
    our_swap_paths,
    with_entry,
    without_entry,
)

FSTAB = Path(__file__).parent / "fixtures" / "host" / "fstab"
NAMES = sorted(path.name.partition(".")[0] for path in FSTAB.iterdir())
OURS = "/swapfile none swap sw,x-cpufleet.swap 0 0\n"
# What an entry that is there already becomes; in all other files one line is added.
KEPT = {"ours", "foreign-entry-same-path", "twice", "three-fields"}
CHANGED = {"foreign-noauto-same-path": ("noauto,pri=3", "pri=3")}


def read(name: str) -> str:
    # What is no plain text is kept in base64: a checkout or an editor would mend it.
    packed = FSTAB / f"{name}.base64"
    content = base64.b64decode(packed.read_bytes()) if packed.exists() else (FSTAB / name).read_bytes()
    return content.decode("utf-8", "surrogateescape")


@pytest.mark.parametrize("name", NAMES)
def test_present_adds_one_line_or_keeps_what_serves(name: str) -> None:
    before = read(name)
    after = with_entry(before, "/swapfile")
    if name in KEPT:
        assert after == before
    elif name in CHANGED:
        assert after == before.replace(*CHANGED[name])
    else:
        gap = "" if before.endswith("\n") or not before else "\n"
        assert after == before + gap + OURS
    assert with_entry(after, "/swapfile") == after


@pytest.mark.parametrize("name", NAMES)
def test_absent_removes_exactly_the_entries_of_the_path(name: str) -> None:
    before = read(name)
    kept = [line for line in before.split("\n") if line.split()[:1] != ["/swapfile"] or line.split()[2:3] != ["swap"]]
    assert without_entry(before, "/swapfile") == "\n".join(kept)


@pytest.mark.parametrize("name", sorted(set(NAMES) - KEPT - set(CHANGED)))
def test_adding_and_removing_gives_back_every_byte(name: str) -> None:
    before = read(name)
    end = "" if before.endswith("\n") or not before else "\n"
    assert without_entry(with_entry(before, "/swapfile"), "/swapfile") == before + end


def test_priority_changes_the_options_and_nothing_else() -> None:
    before = read("foreign-entry-same-path")
    after = with_entry(before, "/swapfile", 7)
    assert after == before.replace("    defaults   0", "    defaults,pri=7   0")
    assert with_entry(after, "/swapfile", 8) == before.replace("    defaults   0", "    defaults,pri=8   0")
    assert with_entry(after, "/swapfile", None) == after


def test_priority_of_a_new_entry() -> None:
    assert with_entry("", "/swapfile", 0) == "/swapfile none swap sw,x-cpufleet.swap,pri=0 0 0\n"


def test_taking_over_marks_the_entry_that_is_there() -> None:
    before = read("foreign-entry-same-path")
    after = with_entry(before, "/swapfile", None, take_over=True)
    assert after == before.replace("defaults   0", "defaults,x-cpufleet.swap   0")
    assert our_swap_paths(after) == {"/swapfile"}


def test_entry_without_options_gets_them() -> None:
    assert with_entry("/swapfile none swap\n", "/swapfile", 3) == "/swapfile none swap defaults,pri=3\n"


def test_path_with_a_space_is_escaped_and_found_again() -> None:
    text = with_entry("", "/data/my swap")
    assert text == "/data/my\\040swap none swap sw,x-cpufleet.swap 0 0\n"
    assert text == read("escaped-space")
    assert our_swap_paths(text) == {"/data/my swap"}
    assert without_entry(text, "/data/my swap") == ""


@pytest.mark.parametrize(
    ("name", "paths"), [("ours", {"/swapfile"}), ("twice", {"/swapfile"}), ("debian-uuid", set()), ("empty", set())]
)
def test_ours_are_known_by_their_mark(name: str, paths: set[str]) -> None:
    assert our_swap_paths(read(name)) == paths
