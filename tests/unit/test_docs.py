# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The written pages agree with the code: links, variables, modules, roles, codes, and the sample inventories."""

from __future__ import annotations

import ipaddress
import json
import re
from pathlib import Path

import pytest
import yaml
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible_collections.cpufleet.vllm.plugins.module_utils._build_failure import CODES as BUILD_CODES
from ansible_collections.cpufleet.vllm.plugins.module_utils._journal_causes import CAUSES
from ansible_collections.cpufleet.vllm.plugins.module_utils._platform_causes import CODES

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md"), *REPOSITORY.glob("roles/*/README.md")])
INVENTORIES = sorted(REPOSITORY.glob("inventories/*.ini"))
ROLES = sorted(path.name for path in (REPOSITORY / "roles").iterdir() if path.is_dir())
# What the chain shares; tests/unit/test_role_specs.py compares its fallbacks.
SHARED = {
    "vllm_version",
    "vllm_root",
    "vllm_user",
    "vllm_isa_class",
    "vllm_environment",
    "vllm_serial",
    "vllm_mirror",
    "vllm_hosts",
    "vllm_depot",
    "vllm_depot_url",
    "vllm_builders",
    "vllm_bundle",
    "vllm_wheel_store",
    "vllm_stage_only",
    "vllm_rollback_to",
}
SHARED_OR_ROLE = re.compile(rf"`((?:vllm|{'|'.join(ROLES)})_\w+)(?:[=:][^`]*)?`")
DOCUMENTATION_NETWORKS = [ipaddress.ip_network(text) for text in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")]
LONGEST_README = 170


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def defaults() -> set[str]:
    return {name for role in ROLES for name in yaml.safe_load(read(REPOSITORY / "roles" / role / "defaults/main.yml"))}


def facts() -> set[str]:
    """Return the facts that roles leave for the ones that follow."""
    tasks = "\n".join(read(path) for path in REPOSITORY.glob("roles/*/tasks/*.yml"))
    return {name for name in re.findall(r"^ +([a-z]\w+):", tasks, re.MULTILINE) if name.startswith(tuple(ROLES))}


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", read(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", read(page)):
        if "://" in target:
            continue
        name, _hash, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), f"{target} is not there"
        assert not anchor or anchor in anchors(file), f"{target}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_variable_in_a_page_exists(page: Path) -> None:
    filters = {path.stem for path in REPOSITORY.glob("plugins/filter/*.yml")}
    modules = {path.stem for path in REPOSITORY.glob("plugins/modules/*.py")}
    known = defaults() | facts() | filters | modules | SHARED | set(ROLES)
    assert {name for name in SHARED_OR_ROLE.findall(read(page)) if name not in known} == set()


def test_readme_fits_on_few_pages() -> None:
    assert len(read(REPOSITORY / "README.md").splitlines()) <= LONGEST_README


def test_readme_lists_every_module_and_role() -> None:
    readme = read(REPOSITORY / "README.md")
    modules = re.findall(r"^\| `(\w+)` \|", readme, re.MULTILINE)
    assert modules == sorted(path.stem for path in REPOSITORY.glob("plugins/modules/*.py"))
    for page in (readme, read(REPOSITORY / "README.zh-CN.md")):
        assert sorted(re.findall(r"^\| \[(\w+)\]\(roles/\1/README\.md\) \|", page, re.MULTILINE)) == ROLES


def test_readme_marks_every_release_that_is_read() -> None:
    readme = read(REPOSITORY / "README.md")
    marked = {version for line in readme.splitlines() if line.startswith("| vLLM") for version in line.split("|")[1:2]}
    listed = {version for text in marked for version in re.findall(r"\d+\.\d+\.\d+(?:\.post\d+)?", text)}
    known = {path.stem for path in REPOSITORY.glob("tests/integration/expected/*.json")}
    assert known <= listed
    # What is marked beyond those was built, and stands in the table of builds.
    table = read(REPOSITORY / "docs/verification.md")
    assert [version for version in sorted(listed - known) if f"| {version} |" not in table] == []


def test_sample_in_the_readme_is_part_of_the_sample() -> None:
    sample = set(read(REPOSITORY / "inventories/aliyun.ini").splitlines())
    for name in ("README.md", "README.zh-CN.md"):
        block = re.findall(r"```ini\n(.*?)```", read(REPOSITORY / name), re.DOTALL)[0]
        lines = {line for line in block.splitlines() if line and not line.startswith("#")}
        assert lines - sample == set(), name


def test_troubleshooting_has_every_code() -> None:
    page = read(REPOSITORY / "docs/troubleshooting.md")
    plans = "\n".join(read(path) for path in REPOSITORY.glob("plugins/module_utils/_plan_*.py"))
    refusals = set(re.findall(r'\.refuse\(\s*"(\w+)"', plans))
    assert len(refusals) >= 8
    wanted = refusals | set(BUILD_CODES) | set(CODES) | {known.code for known in CAUSES}
    assert {code for code in wanted if f"`{code}`" not in page} == set()


@pytest.mark.parametrize("file", INVENTORIES, ids=lambda path: path.name)
def test_inventory_has_the_group_and_known_variables(file: Path) -> None:
    inventory = InventoryManager(loader=DataLoader(), sources=[str(file)])
    hosts = inventory.get_hosts("vllm_hosts")
    assert hosts
    named = {name for host in hosts for name in host.get_vars()} | set(inventory.groups["vllm_hosts"].get_vars())
    named |= set(re.findall(r"^# (\w+)=", read(file), re.MULTILINE))
    own = {name for name in named if not name.startswith(("ansible_", "inventory_", "group_names"))}
    assert own - defaults() - SHARED == set()


@pytest.mark.parametrize("file", INVENTORIES, ids=lambda path: path.name)
def test_address_in_an_inventory_is_nobodys(file: Path) -> None:
    found = [ipaddress.ip_address(text) for text in re.findall(r"\b\d+\.\d+\.\d+\.\d+\b", read(file))]
    loose = [address for address in found if not address.is_loopback and not address.is_unspecified]
    assert [a for a in loose if not any(a in network for network in DOCUMENTATION_NETWORKS)] == []


def test_sample_says_what_is_default() -> None:
    """A commented line shows the default, or an example where the default is empty."""
    inventory = read(REPOSITORY / "inventories/aliyun.ini")
    values = {}
    for role in ROLES:
        values.update(yaml.safe_load(read(REPOSITORY / "roles" / role / "defaults/main.yml")))
    for name, text in re.findall(r"^# (\w+)=(.*)$", inventory, re.MULTILINE):
        default = values.get(name, "")
        shown = default if isinstance(default, str) else json.dumps(default)
        assert shown in ("", "auto", text), f"{name} is {shown} by default, the sample shows {text}"
