# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The page of models: what it offers for a VM is what the plan says fits there, at the size that the plan says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._hub import is_commit
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan_draft import draft, read_place
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan_models import STARTERS, forms_of
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan_types import Wish

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs/models.md").read_text(encoding="utf-8")
FIXTURES = Path(__file__).parent / "fixtures"
SOURCE = json.loads((FIXTURES / "serve_plan/source-0.28.0.json").read_text(encoding="utf-8"))
# What a VM that is sold with so many GB has in GiB.
TOTAL = {"2 GB": 1.8, "4 GB": 3.6, "8 GB": 7.6, "16 GB": 15.4, "32 GB": 31.0}
ROWS = re.findall(
    r"^\| (\d+ GB) \| (\w+) \| `(\S+)` \| (?:`.*` )?\| (\S+) \| `(\w+)` \| ([\d.]+) GiB \|$", PAGE, re.MULTILINE
)


def test_every_class_has_a_model() -> None:
    assert {row[0] for row in ROWS} == set(TOTAL)


@pytest.mark.parametrize(("vm", "engine", "repository", "licence", "revision", "needs"), ROWS)
def test_model_that_is_offered_fits(
    vm: str, engine: str, repository: str, licence: str, revision: str, needs: str
) -> None:
    (form,) = (
        form
        for starter in STARTERS
        for form in forms_of(starter)
        if (form.repository, form.engine) == (repository, engine)
    )
    host = json.loads((FIXTURES / "plan/host-debian12.json").read_text(encoding="utf-8"))
    host["memory"]["total_bytes"] = int(TOTAL[vm] * (1 << 30))
    host["cpu"].update(isa_class="avx512_bf16", usable_cpus=2, cpuset=[0, 1])
    found = draft(form.candidate, form.engine, read_place(host, SOURCE), Wish(context=4096, concurrency=1))
    assert found.fits, (found.problems, found.short)
    assert (licence, needs, is_commit(revision)) == (form.licence, f"{found.needed / (1 << 30):.1f}", True)
