# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""The bill of materials of a bundle as CycloneDX. On the controller only, which has the library for it."""

from __future__ import annotations

import datetime
import traceback
import uuid
from typing import Any, Mapping

try:
    from cyclonedx.contrib.license.factories import LicenseFactory
    from cyclonedx.model import HashAlgorithm, HashType, Property
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.model.license import LicenseAcknowledgement
    from cyclonedx.output.json import JsonV1Dot6
    from packageurl import PackageURL
except ImportError:
    MISSING = traceback.format_exc()
else:
    MISSING = ""

__all__ = ("MISSING", "bill_of_materials")

NAMESPACE = uuid.UUID("8c3b2a14-5d0e-5f6a-9d3c-2f1b7a60c4e5")
# A time of making would differ each time.
TIMELESS = datetime.datetime(1980, 1, 1, tzinfo=datetime.timezone.utc)


def component_of(file: Mapping[str, Any]) -> Component:
    """Return one file as a component; its path in the bundle names it."""
    source, licence = str(file.get("source", "")), str(file.get("licence", ""))
    licences = [] if licence in ("", "NOASSERTION") else [licence]
    return Component(
        type=ComponentType.LIBRARY if source.startswith("pkg:") else ComponentType.FILE,
        name=str(file["name"]),
        version=str(file.get("version", "")) or None,
        bom_ref=str(file["path"]),
        purl=PackageURL.from_string(source) if source.startswith("pkg:") else None,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=str(file["sha256"]))],
        licenses=[
            LicenseFactory().make_from_string(text, license_acknowledgement=LicenseAcknowledgement.DECLARED)
            for text in licences
        ],
        properties=[
            Property(name="cpufleet:path", value=str(file["path"])),
            Property(name="cpufleet:size", value=str(file["size"])),
            *([Property(name="cpufleet:source", value=source)] if source and not source.startswith("pkg:") else []),
        ],
    )


def bill_of_materials(manifest: Mapping[str, Any]) -> str:
    """Return the CycloneDX document of the bundle that ``manifest`` describes, with a final newline."""
    root = Component(
        type=ComponentType.APPLICATION, name="vllm-bundle", version=str(manifest["version"]), bom_ref=manifest["id"]
    )
    components = [component_of(file) for file in manifest["files"]]
    bom = Bom(components=components, serial_number=uuid.uuid5(NAMESPACE, str(manifest["id"])))
    bom.metadata.timestamp = TIMELESS
    bom.metadata.component = root
    bom.register_dependency(root, components)
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"
