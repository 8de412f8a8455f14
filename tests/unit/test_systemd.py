# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Values as systemd reads them."""

from __future__ import annotations

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._systemd import environment_file, unit_command


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("plain", 'A="plain"\n'),
        (2, 'A="2"\n'),
        ("two words", 'A="two words"\n'),
        ('say "x"', 'A="say \\"x\\""\n'),
        ("back\\slash", 'A="back\\\\slash"\n'),
        ("http://user:p%40ss@host/$x", 'A="http://user:p%40ss@host/$x"\n'),
        ("", 'A=""\n'),
    ],
)
def test_environment_file(value: object, line: str) -> None:
    assert environment_file({"A": value}) == line


def test_environment_file_is_sorted() -> None:
    assert environment_file({"B": 1, "A": 2}) == 'A="2"\nB="1"\n'


def test_a_line_break_is_refused_and_not_shown() -> None:
    with pytest.raises(CpufleetError) as refused:
        environment_file({"TOKEN": "secret\nEVIL=1"})
    assert str(refused.value) == "A value of TOKEN holds a line break, which systemd cannot take. Remove it."


def test_what_is_no_name_is_refused() -> None:
    with pytest.raises(CpufleetError, match="is not the name of an environment variable"):
        environment_file({"A B": "1"})


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["/opt/v/bin/python", "-m", "vllm.x"], "/opt/v/bin/python -m vllm.x"),
        (["--model", "/srv/my models/a"], '--model "/srv/my models/a"'),
        (["--json", '{"a": 1}'], '--json "{\\"a\\": 1}"'),
        (["100%", "$HOME"], "100%% $$HOME"),
        ([""], '""'),
    ],
)
def test_unit_command(words: list[str], line: str) -> None:
    assert unit_command(words) == line
