# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a package index said of a release. The answers were captured, see the fixtures' README."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._index import Archive, read_pylock

FIXTURES = Path(__file__).parent / "fixtures" / "index"
URL = (
    "https://files.example.org/packages/0c/2b/ce6f381d484d7d998f6540f6368c3ebca5452cb5f5be36c48d746f1c0f91/"
    "vllm-0.6.5.tar.gz"
)
SHA256 = "0cafd6b3be45ede8f30b8c6dd70bc584f2d8d5d7e1098c3fdf6f5778237ac5fd"


def answer(name: str) -> str:
    return (FIXTURES / f"{name}.toml").read_text()


def test_a_release_with_a_source_distribution() -> None:
    assert read_pylock(answer("vllm-0.6.5"), "0.6.5") == Archive(URL, SHA256, "2024-12-18T00:02:57Z")


def test_an_index_that_gives_no_dates() -> None:
    assert read_pylock(answer("no-upload-time"), "0.6.5") == Archive(URL, SHA256, "")


def test_a_release_of_wheels_only_is_refused() -> None:
    with pytest.raises(CpufleetError) as refused:
        read_pylock(answer("vllm-0.15.0"), "0.15.0")
    assert str(refused.value) == (
        "vLLM 0.15.0 has no source distribution on the package index. "
        "Choose another vllm_version; 0.15.0 and 0.15.1, for example, are wheels only."
    )


def test_an_index_that_gives_no_digest_is_refused() -> None:
    with pytest.raises(CpufleetError) as refused:
        read_pylock(answer("no-hash"), "0.6.5")
    assert str(refused.value) == (
        "The package index gives no address with a SHA-256 for the source of vLLM 0.6.5. "
        "Use another index, or set vllm_source_build_sdist and vllm_source_build_sha256."
    )
