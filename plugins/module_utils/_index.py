# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""What a package index said of a release, read from the PEP 751 file that uv writes."""

from __future__ import annotations

import dataclasses
import re
from urllib.parse import unquote, urlsplit

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError

__all__ = ("Archive", "IndexedWheel", "read_pylock", "read_pylock_wheels")

SDIST = re.compile(r"^sdist = \{(?P<body>.*)\}\s*$", re.MULTILINE)
FIELD = {
    "url": re.compile(r'\burl = "([^"]+)"'),
    "sha256": re.compile(r'\bsha256 = "([0-9a-f]{64})"'),
    "upload_time": re.compile(r'\bupload-time = "?([0-9TZ:.+-]+)'),
}

REMEDIES = (
    "Choose another vllm_version; 0.15.0 and 0.15.1, for example, are wheels only",
    "Use another index, or set vllm_source_build_sdist and vllm_source_build_sha256",
)
OTHER_REMEDIES = ("Choose another version", "Use another index, or name a file and its SHA-256")


@dataclasses.dataclass(frozen=True)
class Archive:
    """A source distribution on an index; ``upload_time`` is ISO 8601 or empty."""

    url: str
    sha256: str
    upload_time: str


@dataclasses.dataclass(frozen=True)
class IndexedWheel:
    """A wheel on an index; ``upload_time`` and ``sha256`` are empty where the index does not tell."""

    file: str
    url: str
    sha256: str
    upload_time: str


def read_pylock(text: str, version: str, title: str = "vLLM") -> Archive:
    """Return the source distribution named in ``text``, of what people call ``title``.

    uv writes each ``sdist`` as one inline table on one line; a TOML parser is only there from Python 3.11 on.
    Raises CpufleetError where the release has no source distribution or the index gives no digest.
    """
    remedies = REMEDIES if title == "vLLM" else OTHER_REMEDIES
    match = SDIST.search(text)
    if match is None:
        raise CpufleetError(
            f"{title} {version} has no source distribution on the package index",
            remedies[0],
        )
    found = {name: pattern.search(match["body"]) for name, pattern in FIELD.items()}
    url, sha256 = found["url"], found["sha256"]
    if url is None or sha256 is None:
        raise CpufleetError(
            f"The package index gives no address with a SHA-256 for the source of {title} {version}",
            remedies[1],
        )
    upload = found["upload_time"]
    return Archive(url[1], sha256[1], upload[1] if upload else "")


def read_pylock_wheels(text: str) -> list[IndexedWheel]:
    """Return the wheels named in ``text``, of one package, in its order; each begins with its address."""
    found = []
    for entry in re.split(r"(?=\burl = \")", text)[1:]:
        fields = {name: pattern.search(entry) for name, pattern in FIELD.items()}
        values = {name: match[1] if match else "" for name, match in fields.items()}
        file = unquote(urlsplit(values["url"]).path.rpartition("/")[2])
        if file.endswith(".whl"):
            found.append(IndexedWheel(file, **values))
    return found
