#!/usr/bin/python
# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: mirror_info
short_description: Find out which mirror answers for each kind of download
version_added: "0.1.0"
author:
  - The cpufleet maintainers (@cpufleet)
description:
  - Asks all mirrors of distribution packages, Python packages, CPU builds of torch, source and models at once whether
    they have what is wanted, and takes the first good one of each kind.
  - A mirror that answers but lacks the wanted file, is weeks behind, or gives no upload times where they are needed, is
    passed over. Where none is good, what the host is configured with stays in use.
  - Changes nothing. Run it where the downloads will be made.
extends_documentation_fragment:
  - cpufleet.vllm.attributes
  - cpufleet.vllm.attributes.info
options:
  mirror:
    description: The set of mirrors; V(custom) has only those in O(urls), V(none) asks nobody.
    type: str
    choices: [none, aliyun, tuna, custom]
    required: true
  urls:
    description:
      - Addresses of one's own, asked before the set's. The keys are V(apt), V(index), V(torch), V(code), V(hub) and
        V(python), each with an address or a list of them.
      - V(apt) is the archive of the distribution, which for Debian has its security archive beside it under the same
        name with C(-security). V(torch) is an index, or with C(links+) before it a page of links.
    type: dict
    default: {}
  username:
    description: The user for the hosts in O(urls).
    type: str
    default: ""
  password:
    description: The password for the hosts in O(urls).
    type: str
    default: ""
  distribution:
    description: The distribution as archives call it; empty where its packages come from no mirror.
    type: str
    choices: ["", debian, ubuntu, ubuntu-ports]
    default: ""
  codename:
    description: The distribution's release.
    type: str
    default: ""
  uv:
    description: The version of uv that the index has to have.
    type: str
    required: true
  torch:
    description: The version of torch that its index has to have.
    type: str
    required: true
  python_tag:
    description: The interpreter that torch has to be there for.
    type: str
    required: true
  dated:
    description: Whether the index has to give upload times.
    type: bool
    default: true
  timeout:
    description: Seconds after which a mirror counts as silent.
    type: int
    default: 8
"""

EXAMPLES = r"""
- name: Ask the mirrors
  cpufleet.vllm.mirror_info:
    mirror: aliyun
    distribution: debian
    codename: bookworm
    uv: 0.13.9
    torch: 2.5.1+cpu
    python_tag: cp311
"""

RETURN = r"""
mirrors:
  description: What to download from.
  returned: success
  type: dict
  contains:
    hops:
      description: Name and address of the chosen mirror by kind of download.
      type: dict
    environment:
      description: Environment variables by which pip, uv, git and the hub's client find them.
      type: dict
    apt_sources:
      description: A source list of the distribution from its mirror, empty where there is none.
      type: str
    torch_index_urls:
      description: The index of torch, where it is one.
      type: list
      elements: str
    torch_find_links:
      description: The page of torch, where it is one.
      type: list
      elements: str
    pythons:
      description: Mirrors of uv's Pythons, to be tried in this order.
      type: list
      elements: str
    lines:
      description: What each mirror answered, for people.
      type: list
      elements: str
"""

import base64
import datetime
import http.client
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._mirrors import (
    Answer,
    Candidate,
    Want,
    choose_mirrors,
    mirror_candidates,
    verdict,
)

CHUNK = 1 << 16
LIMIT = 32 << 20
JSON_INDEX = "application/vnd.pypi.simple.v1+json, text/html;q=0.5, */*;q=0.1"


class Asker:
    """Asks one mirror after another, several at a time."""

    def __init__(self, timeout: int, username: str, password: str) -> None:
        self.timeout = timeout
        token = base64.b64encode(f"{username}:{password}".encode()).decode()
        self.authorization = {"Authorization": f"Basic {token}"} if password else {}

    def ask(self, asked: Candidate) -> Answer:
        """Return what came of asking ``asked``."""
        if not asked.probe:
            return Answer(asked, "", 0.0)
        started = time.monotonic()
        try:
            problem = verdict(asked, self.fetch(asked), datetime.datetime.now(datetime.timezone.utc).date())
        except urllib.error.HTTPError as error:
            problem = f"answers {error.code} {error.reason}"
        except (OSError, http.client.HTTPException) as error:
            cause = getattr(error, "reason", error)
            problem = f"does not answer: {cause or type(error).__name__}"
        return Answer(asked, problem, time.monotonic() - started)

    def fetch(self, asked: Candidate) -> str:
        """Return the text at the probe's address, as far as is needed to judge it."""
        own = self.authorization if asked.mirror == "own" else {}
        headers = {"Accept": JSON_INDEX, "User-Agent": "cpufleet", **own}
        request = urllib.request.Request(asked.probe, headers=headers)  # noqa: S310 - the scheme was checked
        deadline = time.monotonic() + 2 * self.timeout
        text = ""
        with urllib.request.build_opener().open(request, timeout=self.timeout) as answer:
            for chunk in iter(lambda: answer.read(CHUNK), b""):
                text += chunk.decode("utf-8", "replace")
                whole = all(any(word in text for word in words) for words in asked.needs)
                if whole or len(text) > LIMIT or time.monotonic() > deadline:
                    break
        return text


def build_want(module: AnsibleModule) -> Want:
    """Return what the host has to get."""
    given = module.params
    return Want(
        mirror=given["mirror"],
        urls=given["urls"],
        distribution=given["distribution"],
        codename=given["codename"],
        uv=given["uv"],
        torch=given["torch"],
        python_tag=given["python_tag"],
        dated=given["dated"],
    )


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "mirror": {"type": "str", "choices": ["none", "aliyun", "tuna", "custom"], "required": True},
            "urls": {"type": "dict", "default": {}},
            "username": {"type": "str", "default": ""},
            "password": {"type": "str", "default": "", "no_log": True},
            "distribution": {"type": "str", "choices": ["", "debian", "ubuntu", "ubuntu-ports"], "default": ""},
            "codename": {"type": "str", "default": ""},
            "uv": {"type": "str", "required": True},
            "torch": {"type": "str", "required": True},
            "python_tag": {"type": "str", "required": True},
            "dated": {"type": "bool", "default": True},
            "timeout": {"type": "int", "default": 8},
        },
        supports_check_mode=True,
    )
    want = build_want(module)
    asker = Asker(module.params["timeout"], module.params["username"], module.params["password"])
    try:
        asked = mirror_candidates(want)
    except CpufleetError as error:
        module.fail_json(msg=str(error), **error.details)
    with ThreadPoolExecutor(max_workers=8) as pool:
        answers = list(pool.map(asker.ask, asked))
    module.exit_json(changed=False, mirrors=choose_mirrors(want, answers))


if __name__ == "__main__":
    main()
