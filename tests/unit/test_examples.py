# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What every module documents is what it takes and returns: options, examples, results, check mode."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from tests.support.run_module import PACKAGE

MODULES = sorted(
    path.stem for path in (Path(__file__).parents[2] / "plugins" / "modules").glob("*.py") if path.stem != "__init__"
)
FRAGMENTS = "ansible_collections.cpufleet.vllm.plugins.doc_fragments"
RULES = ("mutually_exclusive", "required_together", "required_one_of", "required_if", "required_by")
# Values for arguments that an example takes from a variable.
STAND_INS: dict[str, Any] = {"list": [], "dict": {}, "int": 1, "float": 1.0, "bool": True}


def load(name: str) -> Any:
    return importlib.import_module(f"{PACKAGE}.{name}")


def documented(name: str) -> dict[str, Any]:
    """Return a module's documentation with the options of the fragments that it extends."""
    found: dict[str, Any] = yaml.safe_load(load(name).DOCUMENTATION)
    options: dict[str, Any] = {}
    for fragment in found["extends_documentation_fragment"]:
        file, _dot, section = fragment.removeprefix("cpufleet.vllm.").partition(".")
        text = getattr(
            importlib.import_module(f"{FRAGMENTS}.{file}").ModuleDocFragment, (section or "documentation").upper()
        )
        options.update(yaml.safe_load(text).get("options") or {})
    return {**found, "options": {**options, **(found.get("options") or {})}}


class _Declared(Exception):  # noqa: N818 - it is no error
    pass


def declaration(name: str) -> dict[str, Any]:
    """Return what the module's main() hands to AnsibleModule."""
    found: dict[str, Any] = {}

    def take(_self: object, **arguments: Any) -> None:
        found.update(arguments)
        raise _Declared

    with mock.patch.object(AnsibleModule, "__init__", take), pytest.raises(_Declared):
        load(name).main()
    return found


def as_documented(options: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of documented options that an argument_spec states too."""
    return {
        name: {
            "type": option.get("type", "str"),
            "required": option.get("required", False),
            "default": option.get("default"),
            "choices": list(option["choices"]) if "choices" in option else None,
            "elements": option.get("elements"),
            "aliases": option.get("aliases", []),
            "options": as_documented(option["suboptions"]) if "suboptions" in option else None,
        }
        for name, option in (options or {}).items()
    }


def as_taken(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the same facts of an argument_spec."""
    return as_documented(
        {
            name: {("suboptions" if key == "options" else key): value for key, value in option.items()}
            for name, option in spec.items()
        }
    )


def fill(arguments: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    """Put stand-ins where an example has nothing but a template."""
    filled = {}
    for name, value in arguments.items():
        templated = isinstance(value, str) and value.startswith("{{") and value.endswith("}}")
        filled[name] = STAND_INS.get(spec.get(name, {}).get("type", "str"), value) if templated else value
    return filled


def exits(name: str) -> list[ast.Call]:
    """Return the calls of exit_json in the module."""
    tree = ast.parse(Path(load(name).__file__).read_text())
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "exit_json"
    ]


def test_there_are_modules() -> None:
    assert {"wheel_build", "deployment_switch", "host_info"} <= set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_every_module_supports_check_mode(name: str) -> None:
    assert declaration(name)["supports_check_mode"] is True


@pytest.mark.parametrize("name", MODULES)
def test_documented_options_are_the_ones_that_are_taken(name: str) -> None:
    documentation = documented(name)
    assert documentation["module"] == name
    assert as_documented(documentation["options"]) == as_taken(declaration(name)["argument_spec"])


@pytest.mark.parametrize("name", MODULES)
def test_every_option_says_what_it_is(name: str) -> None:
    def undescribed(options: dict[str, Any]) -> list[str]:
        below = [word for option in options.values() for word in undescribed(option.get("suboptions") or {})]
        return below + [key for key, option in options.items() if not option.get("description")]

    assert undescribed(documented(name)["options"]) == []


@pytest.mark.parametrize("name", MODULES)
def test_every_example_is_a_task_that_the_module_takes(name: str) -> None:
    declared = declaration(name)
    validator = ArgumentSpecValidator(
        declared["argument_spec"], **{rule: declared[rule] for rule in RULES if rule in declared}
    )
    tasks = yaml.safe_load(load(name).EXAMPLES)
    own = [task for task in tasks if f"cpufleet.vllm.{name}" in task]
    assert own, "no example uses the module by its full name"
    for task in own:
        arguments = fill(task[f"cpufleet.vllm.{name}"] or {}, declared["argument_spec"])
        assert validator.validate(arguments).error_messages == [], task["name"]


@pytest.mark.parametrize("name", MODULES)
def test_what_is_returned_is_documented(name: str) -> None:
    returned = yaml.safe_load(load(name).RETURN)
    assert all({"description", "returned", "type"} <= set(entry) for entry in returned.values())
    calls = exits(name)
    named = {keyword.arg for call in calls for keyword in call.keywords if keyword.arg}
    assert named - {"changed", "diff"} <= set(returned)
    if all(keyword.arg for call in calls for keyword in call.keywords):
        assert set(returned) <= named
