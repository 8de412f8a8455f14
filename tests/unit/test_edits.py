# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The engine of named edits, on small files made here; the real trees are in tests/integration."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils import _edits as edits
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError

SOURCE = b"import os\n\n\ndef answer():\n    return 41\n\n\nLAST = True\n"
REPLACE = edits.Edit("right-answer", "a.py", ("    return 41",), ("    return 42",), 0, 1)
INSERT = edits.Edit("first-line", "a.py", ("def answer():",), ("    print()",), 1, 1)
BEFORE = edits.Edit("decorate", "a.py", ("def answer():",), ("@cached",))
DELETE = edits.Edit("no-last", "a.py", ("LAST = True",), (), 0, 1)
MIDDLE = edits.Edit("middle", "a.py", ("", "", "LAST = True"), ("# one blank line",), 1, 2)
ALL = (REPLACE, INSERT, BEFORE, DELETE, MIDDLE)


def reader(**files: bytes) -> edits.Reader:
    return lambda path: files.get(path.replace(".", "_"))


def test_edit_is_a_block_that_keeps_what_it_replaced() -> None:
    edited = edits.apply_edit(SOURCE, REPLACE)
    assert edited == (
        b"import os\n\n\ndef answer():\n"
        b"# >>> cpufleet.vllm right-answer 6f20aaa4af48\n"
        b"#-     return 41\n"
        b"    return 42\n"
        b"# <<< cpufleet.vllm right-answer\n"
        b"\n\nLAST = True\n"
    )


CONTENTS = {
    "plain": SOURCE,
    "crlf": SOURCE.replace(b"\n", b"\r\n"),
    "mixed line ends": SOURCE.replace(b"41\n", b"41\r\n").replace(b"os\n", b"os\r\n"),
    "byte order mark": b"\xef\xbb\xbf" + SOURCE,
    "latin-1, declared": b"# -*- coding: latin-1 -*-\n# caf\xe9\n" + SOURCE,
    "not utf-8, not declared": b"# caf\xe9\n" + SOURCE,
    "no final newline": SOURCE + b"# end",
    "form feed and lone carriage return": b"# a\x0cb\rc\n" + SOURCE,
}


@pytest.mark.parametrize("edit", ALL, ids=lambda edit: edit.name)
@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_edit_applies_once_and_reverts_to_the_same_bytes(content: bytes, edit: edits.Edit) -> None:
    edited = edits.apply_edit(content, edit)
    assert edits.state_of(content, edit) == "applicable"
    assert edits.state_of(edited, edit) == "applied"
    assert edits.apply_edit(edited, edit) == edited
    assert edits.revert_edit(edited, edit.name, "a.py") == content


@pytest.mark.parametrize("edit", ALL, ids=lambda edit: edit.name)
def test_line_ends_of_the_file_are_taken_over(edit: edits.Edit) -> None:
    plain = edits.apply_edit(SOURCE, edit)
    assert edits.apply_edit(CONTENTS["crlf"], edit) == plain.replace(b"\n", b"\r\n")


def test_edits_of_one_file_are_independent_of_their_order_of_removal() -> None:
    edited = SOURCE
    for edit in (REPLACE, DELETE, INSERT):
        edited = edits.apply_edit(edited, edit)
    for order in ((REPLACE, DELETE, INSERT), (INSERT, DELETE, REPLACE)):
        content = edited
        for edit in order:
            content = edits.revert_edit(content, edit.name, "a.py")
        assert content == SOURCE


def test_older_form_of_an_edit_is_replaced() -> None:
    old = edits.apply_edit(SOURCE, replace(REPLACE, lines=("    return 40",)))
    assert edits.state_of(old, REPLACE) == "applicable"
    assert edits.apply_edit(old, REPLACE) == edits.apply_edit(SOURCE, REPLACE)


def test_conversion_of_line_ends_does_not_lock_an_edit_in() -> None:
    converted = edits.apply_edit(SOURCE, REPLACE).replace(b"\n", b"\r\n")
    assert edits.revert_edit(converted, REPLACE.name, "a.py") == SOURCE.replace(b"\n", b"\r\n")


def test_other_changes_of_the_file_survive_the_removal() -> None:
    edited = edits.apply_edit(SOURCE, REPLACE).replace(b"import os", b"import os, sys")
    assert edits.revert_edit(edited, REPLACE.name, "a.py") == SOURCE.replace(b"import os", b"import os, sys")


FOREIGN = {
    "anchor altered": (SOURCE.replace(b"return 41", b"return  41"), "is not there", 0),
    "anchor twice": (SOURCE + b"    return 41\n", "stands there 2 times", 2),
    "anchor only within a line": (SOURCE.replace(b"return 41", b"return 41  # why"), "is not there", 0),
    "anchor is the last line and has no line end": (SOURCE[: SOURCE.index(b"\n\n\nLAST")], "is not there", 1),
}


@pytest.mark.parametrize(("content", "how", "found"), FOREIGN.values(), ids=FOREIGN)
def test_foreign_source_fails_with_file_and_anchor(content: bytes, how: str, found: int) -> None:
    assert edits.state_of(content, REPLACE) == "foreign"
    with pytest.raises(CpufleetError) as caught:
        edits.plan_present(reader(a_py=content), [REPLACE])
    assert str(caught.value) == (
        f"Cannot apply the edit right-answer to a.py: its anchor 'return 41' {how}, so this is not a source that the "
        "edit knows; nothing was written. Restore the file from the release's source distribution and run again."
    )
    assert caught.value.details == {"path": "a.py", "edit": "right-answer", "anchor": "    return 41", "found": found}


EDITED = edits.apply_edit(SOURCE, REPLACE)
DAMAGED = {
    "new line altered": EDITED.replace(b"return 42", b"return 43"),
    "kept line altered": EDITED.replace(b"return 41", b"return 40"),
    "end marker gone": EDITED.replace(b"# <<< cpufleet.vllm right-answer\n", b""),
    "end marker of another edit": EDITED.replace(b"<<< cpufleet.vllm right-answer", b"<<< cpufleet.vllm other"),
    "block twice": EDITED + EDITED[EDITED.index(b"# >>>") :],
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_block_changed_by_hand_is_left_alone(content: bytes) -> None:
    assert edits.state_of(content, REPLACE) == "foreign"
    for plan in (
        lambda: edits.plan_present(reader(a_py=content), [REPLACE]),
        lambda: edits.plan_absent(reader(a_py=content), [("a.py", "right-answer")]),
    ):
        with pytest.raises(CpufleetError, match=r"Cannot revert the edit right-answer in a\.py: what stands between"):
            plan()


def test_result_that_does_not_parse_is_refused() -> None:
    broken = replace(REPLACE, lines=("    return (42",))
    with pytest.raises(CpufleetError, match=r"Cannot edit a\.py: the result would not parse \(.*\); nothing"):
        edits.plan_present(reader(a_py=SOURCE), [broken])


def test_source_that_does_not_parse_is_not_edited() -> None:
    """A release may be newer than the Python that runs the module: without a check, nothing is written."""
    with pytest.raises(CpufleetError) as caught:
        edits.plan_present(reader(a_py=SOURCE + b"match (\n"), [REPLACE])
    assert caught.value.problem.startswith(
        "Cannot edit a.py: it does not parse under the Python that runs this module ("
    )
    assert caught.value.remedy.startswith("Run the module under a Python that the release supports")


def test_only_python_is_parsed() -> None:
    edit = edits.Edit("stop", "a.cpp", ("#elif B",), ("#else",), 0, 1, "//")
    (change,) = edits.plan_present(reader(a_cpp=b"#if A\n#elif B\n#endif\n"), [edit])
    assert change.after == (
        b"#if A\n// >>> cpufleet.vllm stop bcea85554846\n//- #elif B\n#else\n// <<< cpufleet.vllm stop\n#endif\n"
    )
    assert edits.revert_edit(change.after, "stop", "a.cpp") == change.before


def test_one_foreign_file_stops_the_plan_of_all() -> None:
    other = replace(REPLACE, path="b.py")
    with pytest.raises(CpufleetError) as caught:
        edits.plan_present(reader(a_py=SOURCE, b_py=b"pass\n"), [REPLACE, other])
    assert caught.value.details["path"] == "b.py"


def test_missing_file() -> None:
    with pytest.raises(CpufleetError, match=r"Cannot edit a\.py: there is no such file in this tree"):
        edits.plan_present(reader(), [REPLACE])
    assert edits.plan_absent(reader(), [("a.py", "right-answer")]) == ()


def test_diff_is_unified_and_shows_undecodable_bytes() -> None:
    content = SOURCE.replace(b"    return 41\n", b"    return 41\n    # caf\xe9\n")
    diff = edits.unified_diff(edits.plan_present(reader(a_py=content), [REPLACE]))
    assert diff.splitlines()[:2] == ["--- a/a.py", "+++ b/a.py"]
    assert "+    return 42\n" in diff
    assert "     # caf\\xe9\n" in diff
    assert edits.unified_diff([]) == ""


def test_removal_tells_whether_there_was_something_to_remove() -> None:
    there = edits.remove(reader(a_py=EDITED), [("a.py", "right-answer")], "G1")
    assert (there.status, there.generation, there.files) == ("removed", "G1", ("a.py",))
    assert there.changes[0].after == SOURCE
    gone = edits.remove(reader(a_py=SOURCE), [("a.py", "right-answer")], "G1")
    assert (gone.status, gone.reason, gone.changes) == ("removed", "The edit is not in this tree", ())
