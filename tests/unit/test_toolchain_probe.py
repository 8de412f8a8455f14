# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The probe that is compiled before a long build knows every ISA class; molecule/toolchain compiles it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from ansible_collections.cpufleet.vllm.plugins.module_utils._isa import ISA_CLASSES

VARIABLES: dict[str, Any] = yaml.safe_load(
    (Path(__file__).resolve().parents[2] / "roles/toolchain/vars/main.yml").read_text(encoding="utf-8")
)
FLAGS: dict[str, list[str]] = VARIABLES["__toolchain_isa_flags"]


def test_every_class_has_flags_and_a_stronger_one_has_those_of_the_weaker() -> None:
    assert list(FLAGS) == list(ISA_CLASSES)
    assert set(FLAGS["avx512"]) < set(FLAGS["avx512_bf16"]) < set(FLAGS["amx"])


def test_headers_are_those_of_the_architecture() -> None:
    assert "'immintrin.h' if plan_host_facts.arch == 'x86_64' else 'arm_neon.h'" in VARIABLES["__toolchain_probe"]
