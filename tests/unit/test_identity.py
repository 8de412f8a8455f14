# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Identities: the same inputs give the same name everywhere, any other input gives another."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._identity import (
    deployment_id,
    digest,
    release_id,
    wheel_identity,
)

INPUTS: dict[str, Any] = {
    "vllm_version": "0.6.5",
    "source_sha256": "0c" * 32,
    "edits": [],
    "isa": ["avx2"],
    "python_tag": "cp311",
    "torch": "2.5.1+cpu",
    "compiler": "g++ 12.2.0",
    "onednn": "",
    "flags": {"VLLM_TARGET_DEVICE": "cpu"},
}


def test_a_digest_is_over_canonical_json() -> None:
    expected = hashlib.sha256('{"a":1,"b":["ü"]}'.encode()).hexdigest()
    assert digest({"b": ["ü"], "a": 1}) == digest({"a": 1, "b": ("ü",)}) == expected
    assert len(digest("a name with a byte that is no text: \udcff")) == 64


@pytest.mark.parametrize("key", sorted(INPUTS))
def test_every_input_counts(key: str) -> None:
    assert wheel_identity({**INPUTS, key: "other"}) != wheel_identity(INPUTS)


def test_the_order_of_the_inputs_does_not_count() -> None:
    assert wheel_identity(dict(reversed(INPUTS.items()))) == wheel_identity(INPUTS)


def test_a_missing_or_unknown_input_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match=r"missing inputs \['isa'\], unknown inputs \['issa'\]"):
        wheel_identity({**{key: value for key, value in INPUTS.items() if key != "isa"}, "issa": []})


def test_a_release_is_named_by_version_wheel_and_lock() -> None:
    name = release_id("0.6.5", "1" * 64, "2" * 64)
    assert name == "0.6.5-" + digest(["1" * 64, "2" * 64])[:12]
    assert len({name, release_id("0.6.5", "3" * 64, "2" * 64), release_id("0.6.5", "1" * 64, "3" * 64)}) == 3


def test_a_deployment_is_named_by_release_model_and_settings() -> None:
    names = {
        deployment_id("r", "m", {"port": 1}),
        deployment_id("s", "m", {"port": 1}),
        deployment_id("r", "n", {"port": 1}),
        deployment_id("r", "m", {"port": 2}),
    }
    assert len(names) == 4
    assert all(len(name) == 12 for name in names)
