# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan of a fleet as a table: readable for one host and for a hundred."""

from __future__ import annotations

from typing import Any

from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_serve import NO_SERVICE
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_table import HEADINGS, fleet_table

GIB = 1 << 30


SERVED: dict[str, Any] = {
    **NO_SERVICE,
    "engine": "vllm",
    "kv_cache_gib": 4,
    "max_model_len": 8192,
    "max_num_seqs": 4,
    "expected_tokens_per_s": 61.6,
}


def planned(**changes: Any) -> dict[str, Any]:
    """Return the part of a plan that the table shows."""
    return {
        "isa_class": "avx512_bf16",
        "python": {"version": "3.11.2"},
        "compiler": {"version": "12.2.0"},
        "torch": {"version": "2.5.1+cpu"},
        "builder": True,
        "serves": True,
        "wheel": {"source": "build", "builders": []},
        "jobs": 2,
        "swap": {"add_bytes": 0},
        "disk": [{"needed": 8 * GIB}, {"needed": GIB // 2}],
        "model": SERVED,
        "minutes": 6,
        "refused": [],
        **changes,
    }


NOTHING_FITS: dict[str, Any] = {
    "isa_class": "",
    "python": {"version": ""},
    "compiler": {"version": ""},
    "builder": False,
    "wheel": {"source": "host", "builders": []},
    "jobs": 0,
    "disk": [],
    "model": NO_SERVICE,
    "refused": [
        {"code": "isa", "text": "the CPU cannot run vLLM. Use another host."},
        {"code": "disk", "text": "the filesystem at / has 1.0 GiB free but " + "much more " * 20 + "is needed."},
    ],
}


def test_one_row_a_host_sorted_by_name() -> None:
    fast = {"swap": {"add_bytes": GIB}, "model": {**SERVED, "expected_tokens_per_s": 1234.5}}
    lines = fleet_table({"b": planned(**NOTHING_FITS), "a": planned(), "c": planned(**fast, minutes=31)})
    assert lines[:5] == [
        "host  ISA class    Python  g++     torch      build    jobs  swap      disk     engine  context  tok/s  min",
        "----  -----------  ------  ------  ---------  -------  ----  --------  -------  ------  -------  -----  ---",
        "a     avx512_bf16  3.11.2  12.2.0  2.5.1+cpu  compile  2     -         8.5 GiB  vllm    4x8192   61.6   6",
        "b     none         none    none    2.5.1+cpu  present  -     -         -        -       -        -      6",
        "c     avx512_bf16  3.11.2  12.2.0  2.5.1+cpu  compile  2     +1.0 GiB  8.5 GiB  vllm    4x8192   1234   31",
    ]


def test_refusals_stand_together_below_the_table_and_are_wrapped() -> None:
    lines = fleet_table({"b": planned(**NOTHING_FITS), "a": planned()})
    assert lines[4:] == [
        "",
        "Impossible on 1 of 2 host(s):",
        "b: [isa] the CPU cannot run vLLM. Use another host.",
        "b: [disk] the filesystem at / has 1.0 GiB free but much more much more much more much more much more",
        "    much more much more much more much more much more much more much more much more much more much",
        "    more much more much more much more much more much more is needed.",
    ]


def test_a_fleet_without_refusals_ends_with_its_last_host() -> None:
    lines = fleet_table({"a": planned()})
    assert len(lines) == 3
    assert lines[-1].startswith("a ")


def test_what_is_forced_is_warned_of_for_each_host() -> None:
    forced = planned(model={**SERVED, "forced": "the model needs 9 GiB, this host has 3. " + "much more " * 10})
    lines = fleet_table({"b": planned(**NOTHING_FITS), "a": forced})
    assert lines[4:6] == [
        "[WARNING] a is made to serve what does not fit: the model needs 9 GiB, this host has 3. much more",
        "    much more much more much more much more much more much more much more much more much more",
    ]
    assert lines[7] == "Impossible on 1 of 2 host(s):"


def test_a_hundred_hosts_stay_readable() -> None:
    plans = {f"vllm-{number:03}.example.org": planned() for number in range(1, 101)}
    for number in (7, 42):
        plans[f"vllm-{number:03}.example.org"] = planned(**NOTHING_FITS)
    lines = fleet_table(plans)
    rows = lines[2:102]
    assert [row.split()[0] for row in rows] == sorted(plans)
    assert max(map(len, lines)) <= 120
    # Cells stand under their headings: the eye can run down a column.
    starts = [lines[0].index(heading) for heading in HEADINGS]
    assert all(row[start - 1] == " " and row[start] != " " for row in rows for start in starts[1:])
    assert lines[102:104] == ["", "Impossible on 2 of 100 host(s):"]
    told = {line.split(":")[0] for line in lines[104:] if not line.startswith(" ")}
    assert told == {"vllm-007.example.org", "vllm-042.example.org"}


def test_a_reader_of_the_log_sees_every_line_without_trailing_blanks() -> None:
    assert all(line == line.rstrip() for line in fleet_table({"a": planned(), "b": planned(**NOTHING_FITS)}))
