#!/usr/bin/python
# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: release_info
short_description: Read the manifests of installed releases and deployments
version_added: "0.1.0"
author:
  - The cpufleet maintainers (@cpufleet)
description:
  - Reads C(manifest.json) of every release, deployment and wheel below O(root), and where C(current) points.
  - A release or deployment without a readable manifest was interrupted; it is listed under RV(state.unfinished).
extends_documentation_fragment:
  - cpufleet.vllm.attributes
  - cpufleet.vllm.attributes.info
options:
  root:
    description: The root folder of the installation, or a store of wheels and locks.
    type: path
    default: /opt/vllm
  kinds:
    description: What to read.
    type: list
    elements: str
    choices: [releases, deployments, wheels, locks]
    default: [releases, deployments, wheels]
"""

EXAMPLES = r"""
- name: Read what is installed
  cpufleet.vllm.release_info:
    root: /opt/vllm
  register: installed
"""

RETURN = r"""
state:
  description: What is installed below O(root).
  returned: always
  type: dict
  contains:
    current:
      description: The id of the deployment that C(current) points at, empty where there is none.
      type: str
    before:
      description: The deployment that served before it, empty where none did.
      type: str
    releases:
      description: Manifest by release id.
      type: dict
    deployments:
      description: Manifest by deployment id.
      type: dict
    wheels:
      description: Manifest by wheel identity (its first 12 digits).
      type: dict
    locks:
      description: Manifest by lock name.
      type: dict
    building:
      description: Identities (their first 12 digits) of wheels whose build was begun and has not ended.
      type: list
      elements: str
    instances:
      description: For each instance by name C(current), its deployment, and C(unit). Absent where there is none.
      type: dict
    models:
      description: Bytes of each model's folder, whole or begun, by its name.
      type: dict
    unfinished:
      description: Folders that have no readable manifest.
      type: list
      elements: str
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.cpufleet.vllm.plugins.module_utils._deployments import (
    INSTANCES,
    SERVED,
    Deployment,
    before,
    read_served,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._files import list_files
from ansible_collections.cpufleet.vllm.plugins.module_utils._io import read_json

KINDS = ("releases", "deployments", "wheels", "locks")


def read_manifests(root: str, kind: str) -> tuple[dict[str, Any], list[str]]:
    """Return the manifests below ``root/kind`` by folder name, and the folders without one."""
    folder, found, unfinished = os.path.join(root, kind), {}, []
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        document = read_json(os.path.join(folder, name, "manifest.json"), default={})
        if isinstance(document, dict) and document:
            found[name] = document
        else:
            unfinished.append(os.path.join(folder, name))
    return found, unfinished


def begun_builds(root: str) -> list[str]:
    """Return the build folders below ``root`` that say that a build was started in them."""
    folder = os.path.join(root, "build")
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return [name for name in names if os.path.exists(os.path.join(folder, name, "started.json"))]


def kept_models(root: str) -> dict[str, int]:
    """Return the bytes below ``root`` of each model, also of files that are still being fetched."""
    folder = os.path.join(root, "models")
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    paths = {name: os.path.join(folder, name) for name in names}
    return {
        name: sum(status.st_size for status in list_files(path).values())
        for name, path in paths.items()
        if os.path.isdir(path)
    }


def kept_instances(root: str) -> dict[str, dict[str, str]]:
    """Return what each instance below ``root`` serves, and by which unit."""
    folder, found = os.path.join(root, INSTANCES), {}
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        current = serving(os.path.join(folder, name))
        path = os.path.join(folder, name, "deployments", current, "manifest.json")
        unit = read_json(path, default={}).get("settings", {}).get("unit", "") if current else ""
        found[name] = {"current": current, "unit": f"{unit}.service" if unit else ""}
    return found


def serving(root: str) -> str:
    """Return the deployment that ``current`` below ``root`` points at, empty where there is none."""
    link = os.path.join(root, "current")
    return os.path.basename(os.path.realpath(link)) if os.path.islink(link) and os.path.exists(link) else ""


def served_before(root: str, current: str, manifests: dict[str, Any]) -> str:
    """Return the deployment that served before ``current``."""
    folder = os.path.join(root, "deployments")
    times = {name: os.stat(os.path.join(folder, name, "manifest.json")).st_mtime for name in manifests}
    deployments = [Deployment.of({**manifests[name], "id": name}, times[name]) for name in manifests]
    served = read_served(read_json(os.path.join(root, SERVED), default={}))
    return before(current, served, deployments) if current else ""


def main() -> None:
    """Run the module."""
    kinds = {"type": "list", "elements": "str", "choices": list(KINDS), "default": list(KINDS[:3])}
    arguments = {"root": {"type": "path", "default": "/opt/vllm"}, "kinds": kinds}
    module = AnsibleModule(argument_spec=arguments, supports_check_mode=True)
    root = module.params["root"]
    state: dict[str, Any] = {
        "current": serving(root),
        "building": begun_builds(root),
        "models": kept_models(root),
        "unfinished": [],
    }
    for kind in module.params["kinds"]:
        state[kind], unfinished = read_manifests(root, kind)
        state["unfinished"] += unfinished
    state["before"] = served_before(root, state["current"], state.get("deployments", {}))
    instances = kept_instances(root)
    if instances:
        state["instances"] = instances
    module.exit_json(changed=False, state=state)


if __name__ == "__main__":
    main()
