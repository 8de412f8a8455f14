#!/usr/bin/python
# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: model_fetch
short_description: Download the files of a model, over a bad link
version_added: "0.1.0"
author:
  - The cpufleet maintainers (@cpufleet)
description:
  - Downloads what is missing of a model from the first address that serves it whole and with the right digest. Room on
    the disk is compared first. A download that is cut goes on where it was, also in the next run.
  - A file becomes visible under its name when it is whole and verified. One with another digest is fetched again.
extends_documentation_fragment:
  - cpufleet.vllm.attributes
  - cpufleet.vllm.options.model_files
  - cpufleet.vllm.options.download
attributes:
  diff_mode:
    support: none
    details:
      - The digests say everything.
options:
  urls:
    description: The addresses of each file, as RV(cpufleet.vllm.model_lookup#module:model.urls).
    type: dict
    required: true
  source:
    description: How the token is told.
    type: str
    choices: [huggingface, modelscope, url]
    default: url
  token:
    description:
      - A token of the hub. It is sent over TLS to the hosts of O(urls) and not to where these send the download on to,
        and is written to no file.
    type: str
    default: ""
  workers:
    description: How many files are downloaded at the same time. V(0) is one on a host with one or two CPUs, else two.
    type: int
    default: 0
"""

EXAMPLES = r"""
- name: Look at a model on a hub or its mirror
  cpufleet.vllm.model_lookup:
    source: huggingface
    model: Qwen/Qwen2.5-0.5B-Instruct
    endpoints: [https://hub.example.com, https://huggingface.co]
    cache: ~/.cache/cpufleet/models
  delegate_to: localhost
  register: found

- name: Download it
  cpufleet.vllm.model_fetch:
    path: "/opt/vllm/models/{{ found.model.sha256[:12] }}"
    files: "{{ found.model.files }}"
    urls: "{{ found.model.urls }}"
    source: huggingface
    memory: "/opt/vllm/models/{{ found.model.sha256[:12] }}.json"
"""

RETURN = r"""
fetched:
  description: The names of the files that were downloaded, or would be in check mode.
  returned: success
  type: list
  elements: str
"""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.cpufleet.vllm.plugins.module_utils._download import check_address, download, locked
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._files import digest_files, list_files, remember_digest
from ansible_collections.cpufleet.vllm.plugins.module_utils._hub_read import ask_as
from ansible_collections.cpufleet.vllm.plugins.module_utils._model_fetch import (
    PART,
    by_last,
    check_entries,
    check_space,
    free_bytes,
    still_missing,
    still_to_come,
)

MANY_CPUS = 3


class Fetcher:
    """The writer of one model's folder."""

    def __init__(self, given: dict[str, Any], check: bool) -> None:
        self.given, self.check = given, check
        self.path: str = given["path"]
        self.urls: dict[str, list[str]] = given["urls"]
        check_entries(given["files"], self.urls)
        every = [url for urls in self.urls.values() for url in urls]
        for url in every:
            check_address(url, "urls")
        self.ask = ask_as(given["source"], given["token"], every)
        self.last = ""
        self.remembering = threading.Lock()

    def missing(self) -> list[dict[str, Any]]:
        """Return what is to be fetched."""
        there, wanted = list_files(self.path), self.given["files"]
        same_size = {
            e["name"]: there[e["name"]] for e in wanted if e["name"] in there and there[e["name"]].st_size == e["size"]
        }
        found = digest_files(self.path, same_size, "" if self.check else self.given["memory"])
        return still_missing(wanted, {entry["name"]: entry["sha256"] for entry in found})

    def fetch(self) -> list[str]:
        """Fetch what is missing and return its names."""
        if self.check:
            return [entry["name"] for entry in self.missing()]
        try:
            os.makedirs(self.path, exist_ok=True)
        except OSError as error:
            raise CpufleetError(f"Cannot make {self.path}: {error.strerror}", path=self.path) from error
        with locked(self.path):
            missing = self.missing()
            sizes = {name: status.st_size for name, status in list_files(self.path).items()}
            check_space(self.path, still_to_come(missing, sizes), free_bytes(self.path), "the model")
            workers = self.given["workers"] or (2 if (os.cpu_count() or 1) >= MANY_CPUS else 1)
            with ThreadPoolExecutor(workers) as pool:
                running = [pool.submit(self.fetch_file, entry) for entry in missing]
                try:
                    for future in running:
                        future.result()
                finally:
                    for future in running:
                        future.cancel()
        return [entry["name"] for entry in missing]

    def fetch_file(self, entry: dict[str, Any]) -> None:
        """Make one file."""
        dest = os.path.join(self.path, entry["name"])
        os.makedirs(os.path.dirname(dest), mode=0o755, exist_ok=True)
        urls = by_last(self.urls[entry["name"]], self.last)
        self.last = download(urls, dest + PART, entry["sha256"], self.given["timeout"], "this machine", self.ask)
        # Whatever the umask: it is read by the users of services.
        os.chmod(dest + PART, 0o644)
        os.replace(dest + PART, dest)
        with self.remembering:
            remember_digest(self.path, entry["name"], entry["sha256"], self.given["memory"])


def main() -> None:
    """Run the module."""
    entry = {
        "name": {"type": "str", "required": True},
        "size": {"type": "int", "required": True},
        "sha256": {"type": "str", "required": True},
    }
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "files": {"type": "list", "elements": "dict", "required": True, "options": entry},
            "urls": {"type": "dict", "required": True},
            "source": {"type": "str", "choices": ["huggingface", "modelscope", "url"], "default": "url"},
            "token": {"type": "str", "default": "", "no_log": True},
            "memory": {"type": "path", "required": True},
            "workers": {"type": "int", "default": 0},
            "timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    try:
        fetched = Fetcher(module.params, module.check_mode).fetch()
    except CpufleetError as error:
        module.fail_json(msg=str(error), **error.details)
    except OSError as error:
        module.fail_json(msg=f"Cannot keep the model in {module.params['path']}: {error.strerror}. Free space there.")
    module.exit_json(changed=bool(fetched), fetched=fetched)


if __name__ == "__main__":
    main()
