# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A second suite from the host's own archive: source files as they are written by hand, by images and by installers."""

from __future__ import annotations

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils._apt_suite import (
    Entry,
    parse_entries,
    preferences_text,
    second_suite,
    sources_text,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError

ONE_LINE = """\
# deb http://old.example.com/debian bullseye main
deb http://mirror.example.com/debian/ bookworm main
deb-src http://mirror.example.com/debian/ bookworm main

deb [signed-by=/usr/share/keyrings/own.gpg] http://mirror.example.com/debian/ bookworm-updates main contrib # x
deb http://security.example.com/debian-security bookworm-security main
"""
DEB822 = """\
# Modernized
Types: deb deb-src
URIs: http://mirror.example.com/debian
Suites: bookworm bookworm-updates
Components: main non-free-firmware
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://off.example.com/debian
Suites: bookworm
Components: main
Enabled: no

Types: deb
URIs: http://security.example.com/debian-security
Suites: bookworm-security
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mDMEY865UxYJKwYBBAHaRw8BAQdAd7Z0srwuhlB6JKFkcf4HU4SSS/xcRfwEQWzr
"""
KEY = "/usr/share/keyrings/debian-archive-keyring.gpg"


def test_one_line_files() -> None:
    assert parse_entries({"/etc/apt/sources.list": ONE_LINE}) == [
        Entry("http://mirror.example.com/debian/", "bookworm", ("main",)),
        Entry(
            "http://mirror.example.com/debian/", "bookworm-updates", ("main", "contrib"), "/usr/share/keyrings/own.gpg"
        ),
        Entry("http://security.example.com/debian-security", "bookworm-security", ("main",)),
    ]


def test_deb822_files() -> None:
    components = ("main", "non-free-firmware")
    assert parse_entries({"/etc/apt/sources.list.d/debian.sources": DEB822}) == [
        Entry("http://mirror.example.com/debian", "bookworm", components, KEY),
        Entry("http://mirror.example.com/debian", "bookworm-updates", components, KEY),
        Entry("http://security.example.com/debian-security", "bookworm-security", ("main",)),
    ]


def test_the_other_suite_comes_from_the_same_archives_and_keys() -> None:
    entries = parse_entries({"/etc/apt/sources.list.d/debian.sources": DEB822})
    offered = second_suite(entries, "bookworm", "trixie")
    assert offered == [
        Entry("http://mirror.example.com/debian", "trixie", ("main",), KEY),
        Entry("http://mirror.example.com/debian", "trixie-updates", ("main",), KEY),
        Entry("http://security.example.com/debian-security", "trixie-security", ("main",)),
    ]
    text = sources_text(offered)
    assert parse_entries({"x.sources": text}) == offered
    assert text.startswith("# Written by cpufleet.vllm.package_suite")


def test_every_pocket_is_pinned_low() -> None:
    offered = [Entry("u", "trixie", ("main",)), Entry("u", "trixie-updates", ("main",))]
    assert preferences_text(offered).split("\n", 1)[1] == (
        "Package: *\nPin: release n=trixie\nPin-Priority: 100\n\n"
        "Package: *\nPin: release n=trixie-updates\nPin-Priority: 100\n"
    )


@pytest.mark.parametrize("text", ["", "deb http://security.example.com bookworm-security main\n"])
def test_a_host_without_its_own_archive_is_refused(text: str) -> None:
    with pytest.raises(CpufleetError) as refused:
        second_suite(parse_entries({"/etc/apt/sources.list": text}), "bookworm", "trixie")
    assert str(refused.value) == (
        "Cannot add the suite trixie: no source file of this host names bookworm main. "
        "Add the distribution's own archive to the host's package sources."
    )


def test_an_archive_without_main_is_passed_over() -> None:
    entries = [Entry("http://extra.example.com", "bookworm", ("contrib",)), Entry("http://own", "bookworm", ("main",))]
    assert second_suite(entries, "bookworm", "trixie") == [Entry("http://own", "trixie", ("main",))]
