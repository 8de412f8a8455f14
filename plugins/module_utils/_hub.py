# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Model hubs: what to ask them for, and what they answered, as a list of files with their digests."""

from __future__ import annotations

import dataclasses
import re
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError

__all__ = (
    "ENDPOINTS",
    "HUGGINGFACE",
    "MODELSCOPE",
    "REVISIONS",
    "HubFile",
    "Listing",
    "check_repository",
    "check_token",
    "file_url",
    "is_commit",
    "is_sha256",
    "listing_url",
    "parse_listing",
    "secret_headers",
)

HUGGINGFACE, MODELSCOPE = "huggingface", "modelscope"
ENDPOINTS = {HUGGINGFACE: ["https://huggingface.co"], MODELSCOPE: ["https://www.modelscope.cn"]}
REVISIONS = {HUGGINGFACE: "main", MODELSCOPE: "master"}
COMMIT = re.compile(r"[0-9a-f]{40}")
REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
SHA256 = re.compile(r"[0-9a-f]{64}")
LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclasses.dataclass(frozen=True)
class HubFile:
    """One file of a repository. ``digest`` is its SHA-256, or the git SHA-1 of a small one."""

    name: str
    size: int
    digest: str


@dataclasses.dataclass(frozen=True)
class Listing:
    """What a repository held at one commit."""

    commit: str
    files: tuple[HubFile, ...]


def is_commit(revision: str) -> bool:
    """Return whether ``revision`` is a whole commit, which is the same for ever, unlike a branch or a tag."""
    return bool(COMMIT.fullmatch(revision))


def is_sha256(digest: str) -> bool:
    """Return whether ``digest`` is a whole SHA-256."""
    return bool(SHA256.fullmatch(digest))


def check_repository(repository: str) -> None:
    """Raise CpufleetError where ``repository`` does not look like OWNER/NAME."""
    if not REPOSITORY.fullmatch(repository):
        raise CpufleetError(
            f"model_serve_model is {repository!r}, which names no repository of a model hub",
            "Write OWNER/NAME as on the model's page, such as Qwen/Qwen2.5-0.5B-Instruct",
        )


def check_token(token: str, endpoints: list[str]) -> None:
    """Raise CpufleetError where the token would cross a network in the clear."""
    for endpoint in endpoints:
        parts = urlsplit(endpoint)
        if token and parts.scheme != "https" and parts.hostname not in LOOPBACK:
            raise CpufleetError(
                f"model_serve_hub_token would be sent to {parts.hostname} over plain HTTP, where others can read it",
                "Use https:// in model_serve_model_endpoints, or leave the token out",
            )


def secret_headers(hub: str, token: str) -> dict[str, str]:
    """Return the headers that carry the token."""
    if not token:
        return {}
    cookie = {"Cookie": f"m_session_id={token}"} if hub == MODELSCOPE else {}
    return {"Authorization": f"Bearer {token}", **cookie}


def listing_url(hub: str, endpoint: str, repository: str, revision: str) -> str:
    """Return the address that lists the files of ``repository``."""
    base = f"{endpoint.rstrip('/')}/api"
    if hub == HUGGINGFACE:
        return f"{base}/models/{repository}/revision/{quote(revision, safe='')}?blobs=true"
    return f"{base}/v1/models/{repository}/repo/files?{urlencode({'Revision': revision, 'Recursive': 'true'})}"


def file_url(hub: str, endpoint: str, repository: str, commit: str, name: str) -> str:
    """Return the address of one file at ``commit``."""
    base = endpoint.rstrip("/")
    if hub == HUGGINGFACE:
        return f"{base}/{repository}/resolve/{quote(commit, safe='')}/{quote(name)}"
    return f"{base}/api/v1/models/{repository}/repo?{urlencode({'Revision': commit, 'FilePath': name})}"


def parse_listing(hub: str, document: Any, repository: str, revision: str) -> Listing:
    """Return what a hub listed; raise CpufleetError where it is no listing, or names files that are not to be had."""
    try:
        listing = _huggingface(document) if hub == HUGGINGFACE else _modelscope(document, revision)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CpufleetError(
            f"Cannot read the list of files of {repository}: {type(error).__name__} {error}",
            "The address may belong to something other than a model hub: check model_serve_model_endpoints",
        ) from error
    if not listing.files:
        raise CpufleetError(
            f"The hub lists no files of {repository} at revision {revision}",
            "Check model_serve_model and model_serve_model_revision on the model's page",
        )
    for file in listing.files:
        if file.name.startswith("/") or ".." in file.name.split("/") or "\\" in file.name:
            raise CpufleetError(f"Refused {repository}: it lists a file {file.name!r}", "Use another source")
    return listing


def _huggingface(document: Any) -> Listing:
    commit, files = str(document["sha"]), []
    for entry in document["siblings"]:
        large = entry.get("lfs") or {}
        digest = str(large.get("sha256") or large.get("oid") or entry.get("blobId") or "")
        files.append(_file(entry["rfilename"], large.get("size") or entry["size"], digest))
    if not is_commit(commit):
        raise ValueError(f"of commit {commit!r}")
    return Listing(commit, tuple(files))


def _modelscope(document: Any, revision: str) -> Listing:
    # An unknown revision is answered with success and no files.
    data = document["Data"] or {}
    entries = [entry for entry in data.get("Files") or [] if entry["Type"] == "blob"]
    latest = data.get("LatestCommitter") or {}
    short = str(latest.get("ShortId") or "")
    # Of the commit itself only the first digits are always told; the file that it changed has all of them.
    changed = [str(entry.get("Revision") or "") for entry in entries]
    whole = [commit for commit in (revision, str(latest.get("Id") or "")) if is_commit(commit)]
    whole += [commit for commit in changed if short and is_commit(commit) and commit.startswith(short)]
    files = tuple(_file(entry["Path"], entry["Size"], str(entry.get("Sha256") or "")) for entry in entries)
    return Listing((whole or [revision])[0], files)


def _file(name: Any, size: Any, digest: str) -> HubFile:
    if not (is_sha256(digest) or is_commit(digest)):
        raise ValueError(f"no digest of {name}")
    return HubFile(str(name), int(size), digest)
