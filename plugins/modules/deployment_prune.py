#!/usr/bin/python
# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: deployment_prune
short_description: Remove old deployments, and the releases and models that only they needed
version_added: "0.1.0"
author:
  - The cpufleet maintainers (@cpufleet)
description:
  - Keeps the O(keep) newest deployments below O(root). The one that serves, the one that served before it and every
    one that a unit of the host starts are always kept.
  - A release and the copy of a model go when only deployments that go were made of them. Wheels and locks stay, which
    spare a build.
  - Only what manifests below O(root) name is removed. A model that is served in place stays where it is.
  - What the instances below C(instances) of the installation need is kept, too, when it is not O(root) itself.
  - Nothing is removed while a switch of deployments is unfinished.
extends_documentation_fragment:
  - cpufleet.vllm.attributes
options:
  root:
    description: The root folder of the installation.
    type: path
    default: /opt/vllm
  keep:
    description: How many deployments to keep; V(0) keeps all.
    type: int
    default: 5
  retired:
    description: Whether O(root) is an instance that serves no more. All its deployments go, and O(root) itself.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Keep the three newest deployments
  cpufleet.vllm.deployment_prune:
    keep: 3

- name: Remove an instance whose units are gone
  cpufleet.vllm.deployment_prune:
    root: /opt/vllm/instances/chat
    retired: true
"""

RETURN = r"""
deployments:
  description: The deployments that were (or would be) removed.
  returned: always
  type: list
  elements: str
releases:
  description: The releases that were (or would be) removed.
  returned: always
  type: list
  elements: str
models:
  description: The models that were (or would be) removed, by the first 12 digits of their digest.
  returned: always
  type: list
  elements: str
"""

import os
import re
import shutil

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.cpufleet.vllm.plugins.module_utils._deployments import (
    INSTANCES,
    SERVED,
    Deployment,
    Surplus,
    before,
    read_served,
    surplus,
    without,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._io import read_json, read_text

UNIT_FOLDER = "/etc/systemd/system"


def read_deployments(root: str) -> list[Deployment]:
    """Return the deployments below ``root`` whose manifest names them."""
    folder, found = os.path.join(root, "deployments"), []
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        path = os.path.join(folder, name, "manifest.json")
        manifest = read_json(path, default={})
        if isinstance(manifest, dict) and manifest.get("id") == name:
            found.append(Deployment.of(manifest, os.stat(path).st_mtime))
    return found


def named_by_units(root: str) -> set[str]:
    """Return the deployments below ``root`` that a unit file of the host starts."""
    pattern, found = re.compile(re.escape(os.path.join(root, "deployments")) + r"/([^/\s]+)/"), set()
    names = sorted(os.listdir(UNIT_FOLDER)) if os.path.isdir(UNIT_FOLDER) else []
    for name in names:
        path = os.path.join(UNIT_FOLDER, name)
        if name.endswith(".service") and os.path.isfile(path):
            found.update(pattern.findall(read_text(path)))
    return found


def read_elsewhere(root: str) -> list[Deployment]:
    """Return the deployments of the other services on the host, which share releases and models with ``root``."""
    whole = os.path.dirname(os.path.realpath(os.path.join(root, "releases")))
    folder = os.path.join(whole, INSTANCES)
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    others = {whole, *(os.path.join(folder, name) for name in names)} - {os.path.realpath(root)}
    return [one for other in sorted(others) for one in read_deployments(other)]


def decide(root: str, keep: int, retired: bool) -> Surplus:
    """Return what to remove below ``root``."""
    elsewhere = read_elsewhere(root)
    if retired:
        return without(read_deployments(root), elsewhere)
    link = os.path.join(root, "current")
    if os.path.exists(link + ".pending") or not os.path.islink(link):
        return Surplus((), (), ())
    current = os.path.basename(os.readlink(link))
    deployments = read_deployments(root)
    served = read_served(read_json(os.path.join(root, SERVED), default={}))
    return surplus(deployments, current, before(current, served, deployments), named_by_units(root), keep, elsewhere)


def paths_of(root: str, found: Surplus) -> list[str]:
    """Return what to remove, the deployments last: their manifests tell a later call of what is left."""
    releases = [os.path.join(root, "releases", name) for name in found.releases]
    models = [os.path.join(root, "models", name) for name in found.models]
    memories = [path + ".json" for path in models]
    deployments = [os.path.join(root, "deployments", name) for name in found.deployments]
    return [path for path in releases + models + memories + deployments if os.path.lexists(path)]


def remove(path: str) -> None:
    """Remove a file or a folder, a folder's manifest first: without it nothing takes the folder for a whole one."""
    try:
        if os.path.islink(path) or not os.path.isdir(path):
            os.unlink(path)
            return
        manifest = os.path.join(path, "manifest.json")
        if os.path.exists(manifest):
            os.unlink(manifest)
        shutil.rmtree(path)
    except OSError as error:
        raise CpufleetError(f"Cannot remove {path}: {error.strerror}", "Remove it by hand", path=path) from error


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "default": "/opt/vllm"},
            "keep": {"type": "int", "default": 5},
            "retired": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    root = module.params["root"]
    try:
        retired = module.params["retired"]
        if retired and named_by_units(root):
            raise CpufleetError(f"Units of this host start deployments below {root}", "Remove the units first")
        found = decide(root, module.params["keep"], retired)
        paths = paths_of(root, found) + ([root] if retired and os.path.isdir(root) else [])
        for path in [] if module.check_mode else paths:
            remove(path)
    except CpufleetError as error:
        module.fail_json(msg=str(error), **error.details)
    module.exit_json(
        changed=bool(paths),
        deployments=list(found.deployments),
        releases=list(found.releases),
        models=list(found.models),
        diff={"before": "".join(f"{path}\n" for path in paths), "after": ""},
    )


if __name__ == "__main__":
    main()
