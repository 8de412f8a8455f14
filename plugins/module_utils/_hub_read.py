# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""What is read over HTTP of a model that is not there yet: lists, small files, and the heads of large ones."""

from __future__ import annotations

import http.client
import json
import urllib.error
from http import HTTPStatus
from typing import Any, Sequence
from urllib.parse import urljoin, urlsplit

from ansible.module_utils.urls import open_url
from ansible_collections.cpufleet.vllm.plugins.module_utils._download import FINAL, Ask, ask_openly, back_off
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._hub import (
    HubFile,
    Listing,
    check_token,
    listing_url,
    parse_listing,
    secret_headers,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._model import no_gguf
from ansible_collections.cpufleet.vllm.plugins.module_utils._model_gguf import MAGIC, parse_gguf
from ansible_collections.cpufleet.vllm.plugins.module_utils._model_safetensors import LENGTH_BYTES, header_size

__all__ = ("Source", "ask_as", "read_listing")

FIRST = 1 << 16
MOST_REDIRECTS = 10
ROUNDS = 3
REDIRECTS = (301, 302, 303, 307, 308)
DENIED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


def ask_as(hub: str, token: str, urls: Sequence[str]) -> Ask:
    """Return how to open addresses with ``token``, which goes to the hosts of ``urls`` and never to another.

    Hubs send clients on to other people's storage, which has no business with the token and may refuse it.
    """
    if not token:
        return ask_openly
    check_token(token, list(urls))
    trusted = {urlsplit(url)[:2] for url in urls}

    def ask(url: str, headers: dict[str, str], timeout: int) -> Any:
        for _hop in range(MOST_REDIRECTS):
            secret = secret_headers(hub, token) if urlsplit(url)[:2] in trusted else {}
            try:
                return open_url(
                    url,
                    headers={**headers, **secret},
                    timeout=timeout,
                    decompress=False,
                    follow_redirects="none",
                    use_netrc=False,
                )
            except urllib.error.HTTPError as error:
                target = error.headers.get("Location") if error.code in REDIRECTS else None
                if not target:
                    raise
                url = urljoin(url, target)
        raise urllib.error.URLError(f"more than {MOST_REDIRECTS} redirects")

    return ask


class Source:
    """Addresses of files, which are asked one after the other; the first one that answered is asked first again."""

    def __init__(self, ask: Ask, timeout: int) -> None:
        self.ask, self.timeout = ask, timeout

    def read(self, urls: Sequence[str], start: int, length: int) -> tuple[bytes, int]:
        """Return up to ``length`` bytes from ``start`` on, and the size of the whole file."""
        causes: dict[str, tuple[str, bool]] = {}
        for tries in range(ROUNDS):
            back_off(tries)
            for url in urls:
                if causes.get(url, ("", True))[1]:
                    try:
                        return self._read(url, start, length)
                    except urllib.error.HTTPError as error:
                        causes[url] = (str(error), error.code not in FINAL)
                    except (OSError, http.client.HTTPException) as error:
                        causes[url] = (str(error) or type(error).__name__, True)
        told = "; ".join(f"{url}: {cause}" for url, (cause, _passing) in causes.items())
        raise CpufleetError(f"Cannot read {told}", "Check the address, and the connection and proxy of this machine")

    def _read(self, url: str, start: int, length: int) -> tuple[bytes, int]:
        answer = self.ask(url, {"Range": f"bytes={start}-{start + length - 1}"}, self.timeout)
        try:
            if answer.getcode() == HTTPStatus.PARTIAL_CONTENT:
                size = int(answer.headers["Content-Range"].rpartition("/")[2])
            else:
                # It knows no ranges: what comes before is passed over.
                size = int(answer.headers.get("Content-Length") or 0)
                answer.read(start)
            content = answer.read(length)
        finally:
            answer.close()
        if len(content) < min(length, size - start):
            raise OSError("the connection was cut")
        return content, size

    def write_head(self, urls: Sequence[str], path: str, file: HubFile, where: str) -> None:
        """Make ``path`` as long as ``file`` is and true as far as its head goes; what lies beyond takes no space."""
        label, size = f"{file.name} of {where}", file.size
        with open(path, "wb") as stream:
            stream.truncate(size)

            def fetch(start: int, length: int) -> bytes:
                content, _size = self.read(urls, start, min(length, size - start))
                stream.seek(start)
                stream.write(content)
                return content

            first = fetch(0, FIRST) if size else b""
            if first.startswith(MAGIC):
                parse_gguf(fetch, size, label)
            elif file.name.endswith(".gguf"):
                raise no_gguf(label, first)
            elif file.name.endswith(".safetensors"):
                end = LENGTH_BYTES + header_size(first[:LENGTH_BYTES], label)
                if end > len(first):
                    fetch(0, end)


def read_listing(
    hub: str, endpoints: Sequence[str], repository: str, revision: str, source: Source
) -> tuple[str, Listing]:
    """Return the endpoint that answered first, and what it lists."""
    causes: dict[str, str] = {}
    left = list(endpoints)
    for tries in range(ROUNDS):
        back_off(tries)
        for endpoint in list(left):
            try:
                with source.ask(listing_url(hub, endpoint, repository, revision), {}, source.timeout) as answer:
                    document = json.loads(answer.read())
                return endpoint, parse_listing(hub, document, repository, revision)
            except urllib.error.HTTPError as error:
                causes[endpoint] = f"{endpoint} says {_meaning(error.code, repository, revision)}"
                if error.code in FINAL:
                    left.remove(endpoint)
            except (CpufleetError, ValueError) as error:
                told = (
                    error.problem if isinstance(error, CpufleetError) else "it answers with something other than JSON"
                )
                causes[endpoint] = f"{endpoint}: {told}"
                left.remove(endpoint)
            except (OSError, http.client.HTTPException) as error:
                causes[endpoint] = f"{endpoint}: {str(error) or type(error).__name__}"
    raise CpufleetError(
        f"Cannot find the model {repository}: {'; '.join(causes.values())}",
        "Check model_serve_model, model_serve_model_revision and model_serve_model_endpoints, and the proxy of this "
        "machine",
    )


def _meaning(code: int, repository: str, revision: str) -> str:
    if code in DENIED:
        return (
            f"{code}: {repository} does not exist there, or is private, or its terms have to be accepted on its page "
            "by the owner of model_serve_hub_token"
        )
    if code == HTTPStatus.NOT_FOUND:
        return f"{code}: it has no {repository} at revision {revision}"
    return str(code)
