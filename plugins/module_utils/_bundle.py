# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""What stands in a bundle: facts of wheels and distribution packages from their own metadata, and the manifest.

The same files give the same manifest, wherever and whenever they were fetched.
"""

from __future__ import annotations

import email.parser
import re
from typing import Any, Iterable, Mapping

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._identity import digest

__all__ = (
    "bundle_manifest",
    "deb_facts",
    "only_wheels",
    "package_stanza",
    "wheel_facts",
    "wheel_page",
)

UNKNOWN = "NOASSERTION"
LONGEST_LICENCE = 80
COPYRIGHT_LICENCE = re.compile(r"^License:[ \t]*(\S.*)$", re.MULTILINE)
# Where the copyright file is not in the form that machines read, it still points at what Debian keeps once for all.
COMMON_LICENCE = re.compile(r"/usr/share/common-licenses/([A-Za-z]+(?:-[0-9.]*[0-9])?)")
# A name, and not a sentence of a licence's text.
LICENCE_NAME = re.compile(r"[A-Za-z0-9.+-]+(?: (?:and|or|with|AND|OR|WITH) [A-Za-z0-9.+-]+)*")


def normalized(name: str) -> str:
    """Return the name of a Python project as indexes spell it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def only_wheels(names: Iterable[str], lock: str) -> None:
    """Raise CpufleetError where something of ``lock`` came as a source: compiling it takes more than the bundle has."""
    sources = sorted(name for name in names if not name.endswith(".whl"))
    if sources:
        raise CpufleetError(
            f"Cannot bundle {', '.join(sources)}: the package index has it as a source only, and a host without "
            f"network could not compile it. It is in the lock {lock}",
            "Put a wheel of it into the folder torch_cpu_find_links and resolve the lock anew",
            sources=sources,
        )


def wheel_facts(metadata: str) -> dict[str, str]:
    """Return ``name``, ``version``, ``licence`` and ``source`` of a wheel from its METADATA."""
    message = email.parser.HeaderParser().parsestr(metadata)
    name, version = str(message["Name"]), str(message["Version"])
    classifiers = [str(value) for value in message.get_all("Classifier", [])]
    classified = [text.rpartition(" :: ")[2] for text in classifiers if text.startswith("License :: ")]
    written = str(message["License"] or "").strip()
    # Some projects put the whole text there.
    short = written if written and "\n" not in written and len(written) <= LONGEST_LICENCE else ""
    licence = str(message["License-Expression"] or "") or short or " AND ".join(sorted(classified)) or UNKNOWN
    return {
        "name": normalized(name),
        "version": version,
        "licence": licence,
        "source": f"pkg:pypi/{normalized(name)}@{version.replace('+', '%2B')}",
    }


def control_fields(control: str) -> dict[str, str]:
    """Return the one-line fields of a package's control file."""
    return {match[1]: match[2] for match in re.finditer(r"^([A-Za-z-]+):[ \t]*(.*)$", control, re.MULTILINE)}


def deb_facts(control: str, copyright_text: str, distribution: str) -> dict[str, str]:
    """Return ``name``, ``version``, ``licence`` and ``source`` of a distribution package."""
    fields = control_fields(control)
    named = {text.strip() for text in COPYRIGHT_LICENCE.findall(copyright_text)}
    licences = {text for text in named if LICENCE_NAME.fullmatch(text)} or set(COMMON_LICENCE.findall(copyright_text))
    version = fields["Version"].replace("+", "%2B").replace(":", "%3A").replace("~", "%7E")
    return {
        "name": fields["Package"],
        "version": fields["Version"],
        "licence": " AND ".join(sorted(licences)) or UNKNOWN,
        "source": f"pkg:deb/{distribution}/{fields['Package']}@{version}?arch={fields['Architecture']}",
    }


def package_stanza(control: str, filename: str, size: int, sha256: str) -> str:
    """Return the entry of a package in the index of a local repository."""
    return f"{control.strip()}\nFilename: ./{filename}\nSize: {size}\nSHA256: {sha256}\n"


def wheel_page(files: Iterable[Mapping[str, Any]]) -> str:
    """Return a page of links to wheels, which uv and pip read where a folder is served and not mounted."""
    links = [f'<a href="{name_of(file)}#sha256={file["sha256"]}">{name_of(file)}</a><br>\n' for file in files]
    return "<!DOCTYPE html>\n<title>Wheels</title>\n" + "".join(sorted(links))


def name_of(file: Mapping[str, Any]) -> str:
    """Return the last part of a file's path."""
    return str(file["path"]).rpartition("/")[2]


def bundle_manifest(facts: Mapping[str, Any], files: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the manifest of a bundle: ``facts`` about it, every file, and the digest over both as its ``id``."""
    listed = sorted((dict(file) for file in files), key=lambda file: file["path"])
    twice = {file["path"] for file in listed if sum(other["path"] == file["path"] for other in listed) > 1}
    if twice:
        raise CpufleetError(f"The bundle has {', '.join(sorted(twice))} twice", "Make it anew in an empty folder")
    return {**facts, "files": listed, "id": digest([dict(facts), listed])}
