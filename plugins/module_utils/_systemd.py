# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Values as systemd reads them: in environment files and in command lines of units (systemd.exec, systemd.service)."""

from __future__ import annotations

import re

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError

__all__ = ("environment_file", "unit_command")

NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")


def environment_file(variables: dict[str, object]) -> str:
    """Return the text of an environment file, one variable a line, sorted by name.

    Raises CpufleetError for a name that is none and for a value with a line break; the value is not shown.
    """
    lines = []
    for name, value in sorted(variables.items()):
        if not NAME.match(name):
            raise CpufleetError(f"{name!r} is not the name of an environment variable", "Use letters, digits and _")
        lines.append(f'{name}="{_escaped(_one_line(str(value), name))}"\n')
    return "".join(lines)


def unit_command(words: list[str]) -> str:
    """Return a command line for ``ExecStart=`` in which every word reaches the program as it is."""
    quoted = []
    for word in words:
        text = _escaped(_one_line(str(word), "the command line")).replace("%", "%%").replace("$", "$$")
        plain = re.match(r"^[A-Za-z0-9_./:=@,+%$-]+$", text)
        quoted.append(text if plain else f'"{text}"')
    return " ".join(quoted)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _one_line(text: str, where: str) -> str:
    if re.search(r"[\n\r\0]", text):
        raise CpufleetError(f"A value of {where} holds a line break, which systemd cannot take", "Remove it")
    return text
