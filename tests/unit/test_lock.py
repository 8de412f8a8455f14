# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Locks: what they are resolved from, and what uv is asked."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._lock import (
    LockRequest,
    compile_arguments,
    locked_versions,
    override_lines,
    recorded_inputs,
    resolve_date,
    with_inputs,
)

REQUEST = LockRequest(
    requirements=("aiohttp",),
    overrides=("numpy<2",),
    exclude=("triton",),
    python_version="3.11",
    exclude_newer="2024-12-25",
    undated=("torch",),
    find_links=(),
    index_urls=(),
)


@pytest.mark.parametrize(
    ("upload", "day"),
    [
        ("2024-12-18T00:02:57Z", "2024-12-25"),
        ("2024-12-18T00:02:57.123456+08:00", "2024-12-25"),
        ("2024-02-25", "2024-03-03"),
        ("", ""),
    ],
)
def test_a_lock_is_resolved_as_of_a_week_after_the_release(upload: str, day: str) -> None:
    assert resolve_date(upload) == day


def test_a_date_that_cannot_be_read_is_told() -> None:
    with pytest.raises(CpufleetError) as refused:
        resolve_date("last week")
    assert str(refused.value) == (
        "Cannot read the release date 'last week'. Set torch_cpu_resolve_as_of to YYYY-MM-DD."
    )


@pytest.mark.parametrize(
    "change",
    [
        {"requirements": ("aiohttp", "six")},
        {"overrides": ()},
        {"exclude": ()},
        {"python_version": "3.12"},
        {"exclude_newer": ""},
        {"undated": ()},
    ],
)
def test_every_part_of_a_request_counts(change: dict[str, Any]) -> None:
    assert dataclasses.replace(REQUEST, **change).inputs() != REQUEST.inputs()


def test_the_place_of_the_files_does_not_count() -> None:
    elsewhere = dataclasses.replace(REQUEST, find_links=("/srv/wheels",), index_urls=("https://mirror.example.org",))
    assert elsewhere.inputs() == REQUEST.inputs()


def test_what_uv_is_asked() -> None:
    request = dataclasses.replace(REQUEST, find_links=("/srv/wheels",), index_urls=("https://cpu.example.org/whl",))
    assert " ".join(compile_arguments(request, "in.txt", "over.txt", "out.txt")) == (
        "pip compile --quiet --generate-hashes --no-header --no-annotate --python-version 3.11 --override over.txt "
        "--output-file out.txt --exclude-newer 2024-12-25 --exclude-newer-package torch=false "
        "--find-links /srv/wheels --index https://cpu.example.org/whl --index-strategy unsafe-best-match in.txt"
    )


def test_without_a_date_no_package_is_told_apart() -> None:
    words = compile_arguments(dataclasses.replace(REQUEST, exclude_newer=""), "in", "over", "out")
    assert "--exclude-newer" not in words
    assert "--exclude-newer-package" not in words
    assert "--index-strategy" not in words


def test_an_excluded_package_is_overridden_by_a_marker_that_never_holds() -> None:
    assert override_lines(REQUEST) == ["numpy<2", 'triton ; python_version < "3"']


def test_a_lock_tells_what_it_was_resolved_from() -> None:
    text = with_inputs("aiohttp==3.11.11 \\\n    --hash=sha256:aa\n", REQUEST)
    assert recorded_inputs(text) == REQUEST.inputs()
    assert recorded_inputs("aiohttp==3.11.11\n") == recorded_inputs("") == ""


def test_versions_by_normalized_name() -> None:
    lock = (
        "# cpufleet inputs: 00\nTyping_Extensions==4.12.2 \\\n    --hash=sha256:aa\ntorch==2.5.1+cpu ; x\nsix==1.16.0\n"
    )
    assert locked_versions(lock) == {"typing-extensions": "4.12.2", "torch": "2.5.1+cpu", "six": "1.16.0"}
