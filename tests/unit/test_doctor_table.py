# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The table of what the doctor said of a fleet."""

from __future__ import annotations

import json

from ansible_collections.cpufleet.vllm.plugins.module_utils._doctor_table import (
    WORST_FIRST,
    doctor_table,
    doctor_verdict,
)

from tests.support import doctor_file

HUNG = {
    "verdict": "HUNG",
    "line": "HUNG vllm.service: it does nothing: 0 tokens. Next: cpufleet-doctor --snapshot /x",
    "causes": [{"code": "no_progress", "unit": "vllm.service"}, {"code": "oom_kills", "unit": ""}],
    "snapshot": "/x/web1-1",
}
WELL = {"verdict": "OK", "line": "OK all is well", "causes": [{"code": "restarts", "unit": "vllm.service"}]}


def test_verdict_is_read_from_the_document() -> None:
    assert doctor_verdict(json.dumps(HUNG), 11) == {
        "verdict": "HUNG",
        "line": HUNG["line"],
        "code": "no_progress",
        "unit": "vllm.service",
        "snapshot": "/x/web1-1",
    }
    assert doctor_verdict(json.dumps(WELL), 0)["code"] == "", "a note is no cause"


def test_output_that_is_no_document_is_told() -> None:
    said = doctor_verdict("sh: 1: \n  broken", 127)
    assert said == {"verdict": "UNKNOWN", "line": "the doctor failed with status 127: sh: 1: broken"}
    assert doctor_verdict("", 3)["line"].endswith("no output")
    assert doctor_verdict("[]", 0)["verdict"] == "UNKNOWN"


def test_table_has_the_worst_host_first() -> None:
    said = {name: doctor_verdict(json.dumps(document), 0) for name, document in (("web2", WELL), ("web1", HUNG))}
    assert doctor_table({**said, "web3": {}, "web4": doctor_verdict("no python", 3)}) == [
        "host  verdict      cause        service",
        "----  -----------  -----------  ------------",
        "web3  UNREACHABLE  -            -",
        "web4  UNKNOWN      -            -",
        "web1  HUNG         no_progress  vllm.service",
        "web2  OK           -            -",
        "",
        "web3: could not be asked",
        "",
        "web4: the doctor failed with status 3: no python",
        "",
        "web1: HUNG vllm.service: it does nothing: 0 tokens. Next: cpufleet-doctor --snapshot /x",
        "    saved on the host: /x/web1-1",
    ]


def test_every_verdict_has_its_place() -> None:
    assert WORST_FIRST[2:] == doctor_file.load().VERDICTS
