#!/usr/bin/python
# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: source_fetch
short_description: Fetch the source distribution of a vLLM release into a cache
version_added: "0.1.0"
author:
  - The cpufleet maintainers (@cpufleet)
description:
  - Asks the package index that uv is configured with for address, SHA-256 and upload time of a release's source
    distribution, and downloads it into O(cache), resuming a broken download and verifying the digest.
  - Runs on the controller. A verified file in the cache is used without asking the index again.
extends_documentation_fragment:
  - cpufleet.vllm.attributes
attributes:
  check_mode:
    support: partial
    details:
      - The cache on the controller is filled in check mode too, since the plan is made from the source.
      - No host is touched.
  diff_mode:
    support: none
    details:
      - A cache has nothing to show.
options:
  version:
    description: The vLLM release.
    type: str
    required: true
  cache:
    description: The cache folder, made when it is missing.
    type: path
    required: true
  path:
    description: A source distribution that is already on the controller; the index is not asked.
    type: path
  sha256:
    description: The digest that the file must have; the index's own when empty.
    type: str
    default: ""
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
  timeout:
    description: Seconds without a byte after which a download is tried again.
    type: int
    default: 60
"""

EXAMPLES = r"""
- name: Fetch the source of vLLM 0.6.5
  cpufleet.vllm.source_fetch:
    version: "0.6.5"
    cache: ~/.cache/cpufleet/sources
  delegate_to: localhost
"""

RETURN = r"""
downloaded:
  description: Whether the file was downloaded now.
  returned: always
  type: bool
source_archive:
  description: The verified file.
  returned: always
  type: dict
  contains:
    path:
      description: The file in the cache.
      type: str
    sha256:
      description: Its digest.
      type: str
    upload_time:
      description: When the index received the release (ISO 8601), empty where it does not say.
      type: str
    url:
      description: Where it came from.
      type: str
"""

import contextlib
import http.client
import os
import shutil
import sys
import tempfile
import time
import urllib.error
from http import HTTPStatus

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import open_url
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._index import Archive, read_pylock
from ansible_collections.cpufleet.vllm.plugins.module_utils._io import (
    read_json,
    read_text,
    sha256_file,
    write_atomic,
    write_json,
)

ATTEMPTS = 5
CHUNK = 1 << 18
# Asking again does not help: wrong address, no permission, gone.
FINAL = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.GONE)


def find_uv(given: str | None) -> str:
    """Return the uv command to use; raise CpufleetError where there is none."""
    beside = os.path.join(os.path.dirname(sys.executable), "uv")
    for candidate in (given, beside, shutil.which("uv")):
        if candidate and os.access(candidate, os.X_OK):
            return candidate
    raise CpufleetError(
        "Cannot find uv on the controller, which asks the package index for the source of vLLM",
        "Install it beside Ansible (python -m pip install uv), or set vllm_source_build_sdist to a file",
    )


def ask_indexes(module: AnsibleModule, version: str) -> Archive:
    """Return what the first index says that has ``version`` and dates it; the configured one is asked last."""
    for index in module.params["indexes"]:
        with contextlib.suppress(CpufleetError):
            archive = ask_index(module, version, {"UV_DEFAULT_INDEX": index})
            if archive.upload_time:
                return archive
    return ask_index(module, version, {})


def ask_index(module: AnsibleModule, version: str, environment: dict[str, str]) -> Archive:
    """Return address, digest and date of the source distribution of ``version`` from the configured index."""
    with tempfile.TemporaryDirectory(prefix="cpufleet-index-") as folder:
        wish, answer = os.path.join(folder, "wish.txt"), os.path.join(folder, "pylock.toml")
        write_atomic(wish, f"vllm=={version}\n".encode())
        command = [find_uv(module.params["uv"]), "pip", "compile", "--quiet", "--no-deps", "--python-version", "3.11"]
        command += ["--format", "pylock.toml", "--output-file", answer, wish]
        status, _out, error = module.run_command(command, cwd=folder, environ_update=environment)
        if status:
            raise CpufleetError(
                f"Cannot find vLLM {version} on the package index: {error.strip()[-800:]}",
                "Check vllm_version and the index that uv is configured with on the controller",
            )
        return read_pylock(read_text(answer), version)


def download(url: str, dest: str, timeout: int) -> None:
    """Fetch ``url`` into ``dest``, going on from what is there; raise CpufleetError after ATTEMPTS tries."""
    tries, cause, passing = 0, "", True
    while passing and tries < ATTEMPTS:
        if tries:
            time.sleep(min(2**tries, 20))
        tries += 1
        cause, passing = fetch_rest(url, dest, timeout)
        if not cause:
            return
    raise CpufleetError(
        f"Cannot download {url}: {cause} (tries: {tries})",
        "Check the connection and proxy of the controller",
        url=url,
    )


def fetch_rest(url: str, dest: str, timeout: int) -> tuple[str, bool]:
    """Fetch what ``dest`` lacks of ``url``; return why that failed ("" when it did not), and whether that may pass."""
    have = os.path.getsize(dest) if os.path.exists(dest) else 0
    headers = {"Range": f"bytes={have}-"} if have else None
    try:
        # Some mirrors declare the archive's own compression as that of the transfer: take the bytes as they are.
        answer = open_url(url, headers=headers, timeout=timeout, decompress=False)
        resumed = answer.getcode() == HTTPStatus.PARTIAL_CONTENT
        with open(dest, "ab" if resumed else "wb") as stream:
            shutil.copyfileobj(answer, stream, CHUNK)
    except urllib.error.HTTPError as error:
        whole = bool(have) and error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
        return "" if whole else str(error), error.code not in FINAL
    except (OSError, http.client.HTTPException) as error:
        return str(error) or type(error).__name__, True
    length = answer.headers.get("Content-Length")
    cut = length is not None and os.path.getsize(dest) < int(length) + (have if resumed else 0)
    return "the connection was cut" if cut else "", True


def verify(path: str, expected: str) -> None:
    """Raise CpufleetError, and remove the file, unless ``path`` has the digest ``expected``."""
    found = sha256_file(path)
    if found != expected:
        os.unlink(path)
        raise CpufleetError(
            f"Refused {path}: its SHA-256 is {found}, expected {expected}. The file was removed",
            "Run again; if it happens twice, the mirror serves another file",
            path=path,
        )


def fetch(module: AnsibleModule) -> tuple[dict[str, str], bool]:
    """Return the verified file's description and whether it was downloaded now."""
    cache, version, wanted = (module.params[key] for key in ("cache", "version", "sha256"))
    try:
        os.makedirs(cache, exist_ok=True)
    except OSError as error:
        raise CpufleetError(
            f"Cannot make the cache {cache}: {error.strerror}", "Set plan_cache to a folder that you may write to"
        ) from error
    record = os.path.join(cache, f"vllm-{version}.json")
    known = read_json(record, default={})
    if known and os.path.isfile(known["path"]) and (not wanted or wanted == known["sha256"]):
        verify(known["path"], known["sha256"])
        return known, False
    archive = ask_indexes(module, version)
    target = os.path.join(cache, f"vllm-{version}.tar.gz")
    download(archive.url, target + ".part", module.params["timeout"])
    verify(target + ".part", wanted or archive.sha256)
    os.replace(target + ".part", target)
    known = {
        "path": target,
        "sha256": wanted or archive.sha256,
        "upload_time": archive.upload_time,
        "url": archive.url,
    }
    write_json(record, known)
    return known, True


def local_file(path: str, wanted: str) -> dict[str, str]:
    """Return the description of a file that the user named."""
    if wanted and sha256_file(path) != wanted:
        raise CpufleetError(
            f"Refused {path}: its SHA-256 is {sha256_file(path)}, expected {wanted}",
            "Correct vllm_source_build_sha256 or the file",
            path=path,
        )
    return {"path": path, "sha256": sha256_file(path), "upload_time": "", "url": ""}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "version": {"type": "str", "required": True},
            "cache": {"type": "path", "required": True},
            "path": {"type": "path"},
            "sha256": {"type": "str", "default": ""},
            "indexes": {"type": "list", "elements": "str", "default": []},
            "uv": {"type": "path"},
            "timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    try:
        if module.params["path"]:
            archive, changed = local_file(module.params["path"], module.params["sha256"]), False
        else:
            archive, changed = fetch(module)
    except CpufleetError as error:
        module.fail_json(msg=str(error), **error.details)
    # The controller's cache is no part of any host's state: a filled cache is not a change of the host.
    module.exit_json(changed=False, downloaded=changed, source_archive=archive)


if __name__ == "__main__":
    main()
