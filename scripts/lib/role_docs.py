# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write the table of variables into the README of every role that has the two marks, from the role's argument specs.

``python -m scripts.lib.role_docs`` writes, ``--check`` only tells which READMEs are out of date and then ends with 1.
Needs PyYAML, which Ansible brings.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
BEGIN = "<!-- variables: written by scripts/lib/role_docs.py from meta/argument_specs.yml -->"
END = "<!-- end of variables -->"
HEAD = ("| Variable | Type | Default | Meaning |", "| --- | --- | --- | --- |")
MARKUP = re.compile(r"\b[A-Z]+\(([^()]+)\)")
SHARED = re.compile(r"^\{\{ (\w+) \| default\((.+)\) \}\}$")


def read_specs(role: Path) -> dict[str, Any]:
    """Return the entry points of ``role`` by name."""
    document = yaml.safe_load((role / "meta/argument_specs.yml").read_text(encoding="utf-8"))
    specs: dict[str, Any] = document["argument_specs"]
    return specs


def plain(text: str) -> str:
    """Return ``text`` with Ansible's markup, such as ``V(x)``, turned into Markdown."""
    return MARKUP.sub(r"`\1`", text)


def shown_default(value: Any) -> str:
    """Return a default as people read it: a shared variable by its name and what stands in for it."""
    shared = SHARED.match(value) if isinstance(value, str) else None
    if shared:
        return f"`{shared[1]}`, else `{yaml.safe_load(shared[2])}`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return "empty" if value in ("", [], {}) else f"`{value}`"


def variables_table(options: dict[str, Any]) -> list[str]:
    """Return the lines of the table for one entry point's ``options``."""
    lines = list(HEAD)
    for name, option in options.items():
        parts = option["description"]
        meaning = plain(parts if isinstance(parts, str) else " ".join(parts))
        if "choices" in option:
            meaning += f" One of {', '.join(f'`{choice}`' for choice in option['choices'])}."
        kind = f"list of {option['elements']}" if option["type"] == "list" else option["type"]
        lines.append(f"| `{name}` | {kind} | {shown_default(option['default'])} | {meaning} |")
    return lines


def with_table(readme: str, options: dict[str, Any]) -> str:
    """Return ``readme`` with a fresh table between the marks."""
    head, rest = readme.split(BEGIN, 1)
    tail = rest.split(END, 1)[1]
    return "\n".join([head + BEGIN, "", *variables_table(options), "", END + tail])


def stale_readmes(repository: Path = REPOSITORY) -> dict[Path, str]:
    """Return by file what it should hold, for every README whose table is out of date."""
    found = {}
    for readme in sorted(repository.glob("roles/*/README.md")):
        text = readme.read_text(encoding="utf-8")
        if BEGIN in text and (wanted := with_table(text, read_specs(readme.parent)["main"]["options"])) != text:
            found[readme] = wanted
    return found


def main(arguments: list[str]) -> int:
    """Write or check, and name every file that is or was out of date."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; end with 1 when a table is out of date")
    check = parser.parse_args(arguments).check
    stale = stale_readmes()
    for path, text in stale.items():
        print(f"role_docs: {path.relative_to(REPOSITORY)} {'is out of date' if check else 'written'}")
        if not check:
            path.write_text(text, encoding="utf-8")
    return 1 if stale and check else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
