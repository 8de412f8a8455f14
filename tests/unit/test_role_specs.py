# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The contracts around the roles: defaults, argument specs, fallbacks, asserts and README tables say the same."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Iterator

import pytest
import yaml

from scripts.lib import role_docs

REPOSITORY = Path(__file__).resolve().parents[2]
ROLES = sorted(path.name for path in (REPOSITORY / "roles").iterdir() if path.is_dir())
TYPES = {"str", "path", "int", "float", "bool", "list", "dict", "raw"}
# What several roles and the playbooks read. Whoever reads one has to fall back to the same value.
SHARED = (
    "vllm_version",
    "vllm_root",
    "vllm_user",
    "vllm_isa_class",
    "vllm_environment",
    "vllm_serial",
    "vllm_mirror",
    "vllm_wheel_store",
    "vllm_stage_only",
    "vllm_rollback_to",
    "vllm_depot",
    "vllm_depot_url",
    "vllm_bundle",
)
FALLBACK = re.compile(r"\b([a-z]\w*)\s*\|\s*default\(([^(),]*)(?:, true)?\)")


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def defaults_of(role: str) -> dict[str, Any]:
    return dict(load(REPOSITORY / "roles" / role / "defaults/main.yml") or {})


def entry_points() -> list[tuple[str, str]]:
    return [(role, point) for role in ROLES for point in role_docs.read_specs(REPOSITORY / "roles" / role)]


def options_of(role: str, point: str = "main") -> dict[str, Any]:
    options: dict[str, Any] = role_docs.read_specs(REPOSITORY / "roles" / role)[point]["options"]
    return options


def as_specified(value: Any, option: dict[str, Any]) -> Any:
    """Return what a spec has to say of the default ``value``: the same, literally.

    The documentation tools want a dict to be one, and the plan checks specs whose defaults nobody templates: for a dict
    or a bool that reads a shared variable it is the fallback.
    """
    shared = role_docs.SHARED.match(value) if isinstance(value, str) else None
    return yaml.safe_load(shared[2]) if shared and option.get("type") in ("dict", "bool") else value


def texts(role: str, *folders: str) -> dict[Path, str]:
    """Return what stands in the YAML files and templates of ``folders`` of ``role``."""
    places = [REPOSITORY / "roles" / role / folder for folder in folders]
    return {path: path.read_text(encoding="utf-8") for place in places for path in sorted(place.glob("*"))}


def owner_of(variable: str) -> str:
    """Return the role whose name begins ``variable``, "" for none."""
    return max((role for role in ROLES if variable.startswith(f"{role}_")), key=len, default="")


def fallbacks() -> Iterator[tuple[Path, str, Any]]:
    """Yield (file, variable, value) for each ``variable | default(value)`` in roles and playbooks."""
    for path in sorted([*REPOSITORY.glob("roles/*/*/*"), *REPOSITORY.glob("playbooks/*.yml")]):
        if path.suffix in (".yml", ".j2") and path.name != "argument_specs.yml":
            for variable, value in FALLBACK.findall(path.read_text(encoding="utf-8")):
                if value == "omit":
                    continue  # no value of its own
                yield path.relative_to(REPOSITORY), variable, yaml.safe_load(value)


def tasks_in(document: Any) -> Iterator[dict[str, Any]]:
    """Yield every task of a task file, those inside blocks too."""
    for task in document or []:
        yield task
        for part in ("block", "rescue", "always"):
            yield from tasks_in(task.get(part))


def table_rows(readme: str) -> list[str]:
    """Return the names in the first column of the README's tables."""
    return re.findall(r"^\| `(\w+)` \|", readme, re.MULTILINE)


@pytest.mark.parametrize("role", ROLES)
def test_role_has_its_spec(role: str) -> None:
    assert (REPOSITORY / "roles" / role / "meta/argument_specs.yml").is_file()
    assert "main" in role_docs.read_specs(REPOSITORY / "roles" / role)


@pytest.mark.parametrize(("role", "point"), entry_points())
def test_spec_equals_defaults_in_names_and_values(role: str, point: str) -> None:
    specified = {name: option.get("default") for name, option in options_of(role, point).items()}
    wanted = {
        name: as_specified(value, options_of(role, point).get(name, {})) for name, value in defaults_of(role).items()
    }
    assert specified == wanted
    for name, value in wanted.items():
        assert type(specified[name]) is type(value), f"{name}: {value!r} is not of the type of {specified[name]!r}"


@pytest.mark.parametrize(("role", "point"), entry_points())
def test_option_is_typed_and_described(role: str, point: str) -> None:
    spec = role_docs.read_specs(REPOSITORY / "roles" / role)[point]
    assert spec["short_description"] and spec["description"]
    for name, option in spec["options"].items():
        assert option.get("type") in TYPES, name
        assert ("elements" in option) == (option["type"] == "list"), name
        sentences = option.get("description")
        for sentence in [sentences] if isinstance(sentences, str) else sentences or [""]:
            assert sentence.endswith("."), f"{name}: {sentence!r} is not a sentence"
        assert option["default"] in option.get("choices", [option["default"]]), name


@pytest.mark.parametrize("role", ROLES)
def test_secret_is_not_logged(role: str) -> None:
    for name, option in options_of(role).items():
        secret = re.search(r"(?:_key|_token|_password|_secret)$", name) is not None
        assert bool(option.get("no_log")) is secret, name


@pytest.mark.parametrize("role", ROLES)
def test_default_carries_the_name_of_its_role(role: str) -> None:
    assert [name for name in defaults_of(role) if owner_of(name) != role] == []


@pytest.mark.parametrize("role", ROLES)
def test_default_is_used(role: str) -> None:
    """By the role itself, or by the plan, which decides for it."""
    used = "\n".join({**texts(role, "tasks", "vars", "templates", "handlers"), **texts("plan", "vars")}.values())
    assert [name for name in defaults_of(role) if not re.search(rf"\b{name}\b", used)] == []


@pytest.mark.parametrize("role", ROLES)
def test_default_is_documented(role: str) -> None:
    """In the README's table, and there is nothing else in it: so no variable is there for tests alone."""
    readme = (REPOSITORY / "roles" / role / "README.md").read_text(encoding="utf-8")
    assert sorted(table_rows(readme)) == sorted(defaults_of(role))


def test_readme_tables_are_up_to_date() -> None:
    assert [path.parent.name for path in role_docs.stale_readmes()] == []
    assert role_docs.main(["--check"]) == 0


def test_stale_table_is_found_and_written_anew(tmp_path: Path) -> None:
    role = tmp_path / "roles/sample"
    (role / "meta").mkdir(parents=True)
    options = {
        "sample_size": {"type": "str", "default": "auto", "choices": ["auto", "8G"], "description": "See V(8G)."},
        "sample_root": {
            "type": "path",
            "default": "{{ vllm_root | default('/opt/vllm') }}",
            "description": ["One.", "Two."],
        },
        "sample_words": {"type": "list", "elements": "str", "default": [], "description": "Words."},
        "sample_on": {"type": "bool", "default": True, "description": "Whether."},
    }
    specs = {"argument_specs": {"main": {"options": options}}}
    (role / "meta/argument_specs.yml").write_text(yaml.safe_dump(specs, sort_keys=False))
    readme = f"# sample\n\n{role_docs.BEGIN}\nold\n{role_docs.END}\n\nEnd.\n"
    (role / "README.md").write_text(readme)
    fresh = role_docs.stale_readmes(tmp_path)[role / "README.md"]
    assert fresh.splitlines()[4:10] == [
        "| Variable | Type | Default | Meaning |",
        "| --- | --- | --- | --- |",
        "| `sample_size` | str | `auto` | See `8G`. One of `auto`, `8G`. |",
        "| `sample_root` | path | `vllm_root`, else `/opt/vllm` | One. Two. |",
        "| `sample_words` | list of str | empty | Words. |",
        "| `sample_on` | bool | `true` | Whether. |",
    ]
    assert fresh.startswith("# sample\n") and fresh.endswith("\n\nEnd.\n")
    (role / "README.md").write_text(fresh)
    assert role_docs.stale_readmes(tmp_path) == {}


def test_plan_falls_back_to_what_the_owning_role_defaults_to() -> None:
    wishes = load(REPOSITORY / "roles/plan/vars/main.yml")["plan_wishes"]
    for wish, text in wishes.items():
        found = FALLBACK.findall(text)
        assert len(found) == 1, f"{wish} reads no variable, or several: {text}"
        variable = found[0][0]
        assert owner_of(variable) or variable in SHARED, f"{wish} reads {variable}, which belongs to no role"


def test_fallback_equals_the_default_of_the_role_that_owns_the_variable() -> None:
    seen = 0
    for path, variable, value in fallbacks():
        owner = owner_of(variable)
        if not owner or variable not in defaults_of(owner):
            # plan_result and the like are facts; but what begins like a wish has to exist.
            assert "roles/plan/vars" not in str(path) or variable in SHARED, f"{path}: {variable} is no role's default"
            continue
        own = defaults_of(owner)[variable]
        assert (value, type(value)) == (own, type(own)), f"{path}: {variable} falls back to {value!r}, not {own!r}"
        seen += 1
    assert seen >= 10


def test_shared_variable_falls_back_to_one_value() -> None:
    values: dict[str, dict[str, list[str]]] = {}
    for path, variable, value in fallbacks():
        if variable in SHARED:
            values.setdefault(variable, {}).setdefault(repr(value), []).append(str(path))
    assert {"vllm_version", "vllm_root", "vllm_user", "vllm_isa_class"} <= set(values)
    assert {name: places for name, places in values.items() if len(places) > 1} == {}


def test_variable_that_begins_like_the_chain_is_known() -> None:
    """A misspelt vllm_roott would silently fall back."""
    for path, variable, _value in fallbacks():
        assert not variable.startswith("vllm_") or owner_of(variable) or variable in SHARED, f"{path}: {variable}"


@pytest.mark.parametrize("role", ROLES)
def test_assert_has_a_message_and_is_quiet(role: str) -> None:
    for path, text in texts(role, "tasks", "handlers").items():
        for task in tasks_in(yaml.safe_load(text)):
            assert "assert" not in task, f"{path}: {task['name']} needs the full name ansible.builtin.assert"
            if "ansible.builtin.assert" in task:
                assert task["ansible.builtin.assert"].get("fail_msg"), f"{path}: {task['name']} has no fail_msg"
                assert task["ansible.builtin.assert"].get("quiet") is True, f"{path}: {task['name']} is not quiet"


@pytest.mark.parametrize("role", ROLES)
def test_message_names_variables_that_exist(role: str) -> None:
    for path, text in texts(role, "tasks", "handlers").items():
        for task in tasks_in(yaml.safe_load(text)):
            message = str(task.get("ansible.builtin.assert", {}).get("fail_msg", ""))
            words = re.sub(r"\{\{.*?\}\}", "", message, flags=re.DOTALL)
            for name in re.findall(r"\b[a-z]+(?:_[a-z0-9]+)+\b", words):
                assert name in SHARED or name in defaults_of(owner_of(name) or role), f"{path}: {name} is no variable"
