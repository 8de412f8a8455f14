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
    complete_hashes,
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


SHA = "5a" * 32
PAGE = (
    f'<a href="torch-2.5.1%2Bcpu-cp311-cp311-linux_x86_64.whl#sha256={SHA}">torch</a>\n'
    f"<a href='/whl/Torch-2.5.1%2Bcpu-cp312-cp312-linux_x86_64.whl#sha256={'5b' * 32}'>torch</a>\n"
    f'<a href="torch-2.5.10%2Bcpu-cp311-cp311-linux_x86_64.whl#sha256={"5c" * 32}">torch</a>\n'
    f'<a href="https://files.example.com/x/zope_interface-7.1.tar.gz#sha256={"5d" * 32}">zope</a>\n'
)


def test_a_digest_that_uv_leaves_out_is_taken_from_the_page_of_links() -> None:
    whole = f"numpy==1.26.4 \\\n    --hash=sha256:{'aa' * 32}\n"
    lock = f'{whole}torch==2.5.1+cpu\nzope-interface==7.1 ; python_version < "3.12"\n'
    assert complete_hashes(lock, [PAGE]) == (
        f"{whole}torch==2.5.1+cpu \\\n    --hash=sha256:{SHA} \\\n    --hash=sha256:{'5b' * 32}\n"
        f'zope-interface==7.1 ; python_version < "3.12" \\\n    --hash=sha256:{"5d" * 32}\n'
    )


def test_a_whole_lock_stays_as_it_is() -> None:
    lock = f"# cpufleet inputs: ab\nnumpy==1.26.4 \\\n    --hash=sha256:{'aa' * 32} \\\n    --hash=sha256:{'bb' * 32}\n"
    assert complete_hashes(lock, []) == lock


def test_a_lock_without_a_digest_is_refused() -> None:
    with pytest.raises(CpufleetError) as refused:
        complete_hashes("torch==2.5.1+cpu\n", [PAGE.replace("2.5.1%2Bcpu", "2.5.1")])
    assert str(refused.value) == (
        "The lock has no digest for torch 2.5.1+cpu. "
        "Name a page whose links end in #sha256=, or a folder of wheels, in torch_cpu_find_links."
    )
