# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """Options that several modules take."""

    # What edits a vLLM.
    EDITS = r"""
notes:
  - A file that is a symbolic link is edited where it points to, and the link stays a link.
options:
  path:
    description:
      - The root of a vLLM source tree, or the C(vllm) folder of an installed package.
    type: path
    required: true
  state:
    description:
      - Whether what is edited is to be in place.
    type: str
    choices:
      - present
      - absent
    default: present
  backup:
    description:
      - Keep a copy of each file beside it before it is changed.
    type: bool
    default: false
"""

    # What builds in a unit that outlives the connection.
    BUILD = r"""
options:
  environment:
    description: Environment variables of the build.
    type: dict
    default: {}
  manifest:
    description: What else goes into the manifest of what is built.
    type: dict
    default: {}
  ccache_dir:
    description:
      - The folder of the compiler cache, which all builds on this host share; empty for none. It is used where the
        command C(ccache) is in the C(PATH) of O(environment), and is no part of the identity.
    type: path
    default: ""
  ccache_size:
    description: How large the compiler cache may become, as ccache spells it.
    type: str
    default: 2G
  memory_max:
    description: The memory that the build may take, as systemd spells it, such as V(6G); empty for no limit of its own.
    type: str
    default: ""
  attached:
    description: Set by the action plugin on every call after the first; a failure is then reported, not started again.
    type: bool
    default: false
  wait:
    description: Set by the action plugin; the seconds to wait for the end of the build before its state is told.
    type: int
    default: 0
  progress_interval:
    description: Seconds between two lines of progress.
    type: int
    default: 30
"""

    # What compares or completes a model's folder.
    MODEL_FILES = r"""
options:
  path:
    description: The folder of the model.
    type: path
    required: true
  files:
    description:
      - The manifest, as RV(cpufleet.vllm.model_info#module:model.files) or
        RV(cpufleet.vllm.model_lookup#module:model.files).
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name relative to O(path).
        type: str
        required: true
      size:
        description: Size in bytes.
        type: int
        required: true
      sha256:
        description: Digest.
        type: str
        required: true
  memory:
    description: A file outside O(path) that remembers digests.
    type: path
    required: true
"""

    # Where uv takes packages from.
    PACKAGES = r"""
options:
  find_links:
    description: Folders or pages with wheels.
    type: list
    elements: str
    default: []
  index_urls:
    description: Package indexes beside the default one.
    type: list
    elements: str
    default: []
"""

    # What fetches one release of a package.
    RELEASE = r"""
options:
  indexes:
    description:
      - Package indexes to ask before the one that uv is configured with, in this order.
      - One that lacks the release or gives no upload time is passed over.
    type: list
    elements: str
    default: []
  uv:
    description: The uv command; when not given, the one beside Ansible's Python, then the one on E(PATH).
    type: path
"""

    # What downloads over a bad link.
    DOWNLOAD = r"""
options:
  timeout:
    description: Seconds without a byte after which a download is tried again.
    type: int
    default: 60
"""
