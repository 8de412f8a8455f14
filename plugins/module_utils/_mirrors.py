# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Mirrors for every download: which there are, what to ask each, and which to take by what they answered.

The one place where mirrors of other people are named. Their order is that in which they are asked; after the last one
comes what the host is configured with anyway.
"""

from __future__ import annotations

import dataclasses
import datetime
import re
from typing import Any
from urllib.parse import urlsplit

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError

__all__ = (
    "HOPS",
    "MIRRORS",
    "Answer",
    "Candidate",
    "Want",
    "choose_mirrors",
    "mirror_addresses",
    "mirror_candidates",
    "netrc_text",
    "verdict",
)

# What is downloaded: distribution packages, Python packages, CPU builds of torch, source, models, Pythons.
HOPS = ("apt", "index", "torch", "code", "hub", "python")
# A page of links instead of an index is written "links+https://...". No mirror of a code host is run by someone who
# answers for what it serves, so none stands here; toolchain_mirror_urls takes one of your own.
MIRRORS: dict[str, dict[str, tuple[str, ...]]] = {
    "aliyun": {
        # The first one answers inside of Alibaba Cloud only, and costs no traffic there.
        "apt": ("http://mirrors.cloud.aliyuncs.com", "https://mirrors.aliyun.com"),
        "index": ("https://mirrors.aliyun.com/pypi/simple",),
        "torch": ("links+https://mirrors.aliyun.com/pytorch-wheels/cpu/",),
        "code": (),
        "hub": ("https://hf-mirror.com",),
        "python": ("https://registry.npmmirror.com/-/binary/python-build-standalone",),
    },
    "tuna": {
        "apt": ("https://mirrors.tuna.tsinghua.edu.cn",),
        "index": ("https://pypi.tuna.tsinghua.edu.cn/simple",),
        # It carries neither torch's CPU builds nor uv's Pythons; this neighbour does, of the Pythons only the newest.
        "torch": ("https://mirrors.nju.edu.cn/pytorch/whl/cpu",),
        "code": (),
        "hub": ("https://hf-mirror.com",),
        "python": (
            "https://mirror.nju.edu.cn/github-release/astral-sh/python-build-standalone",
            "https://registry.npmmirror.com/-/binary/python-build-standalone",
        ),
    },
}
LINKS = "links+"
CODE_HOST = "https://github.com/"
STALE_DAYS = 14
RELEASE_DATE = re.compile(r"^Date: \w{3}, +(\d{1,2} \w{3} \d{4})", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Want:
    """What a host has to get: the mirror's name and own addresses, its distribution, versions, and whether by date."""

    mirror: str
    urls: dict[str, Any]
    distribution: str
    codename: str
    uv: str
    torch: str
    python_tag: str
    dated: bool


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One address of one hop: what to fetch of it, and the texts that must be in it (one of each tuple)."""

    hop: str
    mirror: str
    url: str
    probe: str
    needs: tuple[tuple[str, ...], ...] = ()


@dataclasses.dataclass(frozen=True)
class Answer:
    """What came of asking a candidate: "" and the seconds it took, or why it is not taken."""

    candidate: Candidate
    problem: str
    seconds: float


def mirror_candidates(want: Want) -> list[Candidate]:
    """Return whom to ask, in order, hop by hop: own addresses first, then those of the named mirror."""
    foreign = sorted(set(want.urls) - set(HOPS))
    if foreign:
        raise CpufleetError(
            f"toolchain_mirror_urls has {', '.join(foreign)}, which nothing is downloaded by",
            f"Use the keys {', '.join(HOPS)}",
        )
    found = []
    for hop in HOPS:
        if hop != "apt" or want.distribution:
            named = addresses(want.mirror, want.urls, hop)
            found += [candidate(hop, mirror, url, want) for mirror, url in named]
    return found


def addresses(mirror: str, urls: dict[str, Any], hop: str) -> list[tuple[str, str]]:
    """Return whose address and the address itself, in the order of asking."""
    if mirror == "none":
        return []
    own = urls.get(hop) or []
    named = [("own", str(url)) for url in ([own] if isinstance(own, str) else own)]
    return named + [(mirror, url) for url in MIRRORS.get(mirror, {}).get(hop, ())]


def mirror_addresses(mirror: str, urls: dict[str, Any], hop: str) -> list[str]:
    """Return the addresses of one hop in the order of asking."""
    return [url for _whose, url in addresses(mirror, urls, hop)]


def candidate(hop: str, mirror: str, url: str, want: Want) -> Candidate:
    """Return how to find out whether ``url`` has what is wanted by this hop."""
    address = url[len(LINKS) :] if url.startswith(LINKS) else url
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https", "file") or (parts.scheme != "file" and not parts.hostname):
        raise CpufleetError(f"toolchain_mirror_urls.{hop} is no address", "Write it with http:// or https://")
    if parts.username or parts.password:
        raise CpufleetError(
            f"toolchain_mirror_urls.{hop} has credentials in its address, which would show in logs and process lists",
            "Put them into toolchain_mirror_username and toolchain_mirror_password, from a vault",
        )
    base = address.rstrip("/")
    if hop == "apt":
        archive = base if mirror == "own" else f"{base}/{want.distribution}"
        return Candidate(hop, mirror, archive, f"{archive}/dists/{want.codename}-updates/InRelease", (("Date:",),))
    if hop == "index":
        dates = (('"upload-time"',),) if want.dated else ()
        return Candidate(hop, mirror, base, f"{base}/uv/", ((f"uv-{want.uv}-", f"uv-{want.uv}."), *dates))
    if hop == "torch":
        page = base + "/" if url.startswith(LINKS) else f"{base}/torch/"
        files = tuple(f"torch-{version}-{want.python_tag}-" for version in spellings(want.torch))
        return Candidate(hop, mirror, url, page, (files,))
    # What uv asks a mirror of Pythons for, uv alone knows: it is asked by installing.
    return Candidate(hop, mirror, base, "" if hop == "python" else base + "/")


def spellings(version: str) -> tuple[str, ...]:
    """Return a version as file names and as addresses have it."""
    return (version, version.replace("+", "%2B")) if "+" in version else (version,)


def verdict(asked: Candidate, text: str, today: datetime.date) -> str:
    """Return why what ``asked`` answered is not good enough, "" where it is."""
    for words in asked.needs:
        if not any(word in text for word in words):
            if words == ('"upload-time"',):
                return "gives no upload times, without which dependencies cannot be resolved as of a date"
            return f"is stale or not whole: it has no {words[0]}"
    found = RELEASE_DATE.search(text) if asked.hop == "apt" else None
    if found:
        day = datetime.datetime.strptime(found[1], "%d %b %Y").date()
        if (today - day).days > STALE_DAYS:
            return f"is stale: it is of {day.isoformat()}"
    return ""


def choose_mirrors(want: Want, answers: list[Answer]) -> dict[str, Any]:
    """Return the first good address of each hop, what follows from them for the downloads, and a line for each hop."""
    taken: dict[str, Candidate] = {}
    lines = []
    for hop in HOPS:
        asked = [answer for answer in answers if answer.candidate.hop == hop]
        good = next((answer for answer in asked if not answer.problem), None)
        lines += [f"{hop}: {answer.candidate.url} {answer.problem}" for answer in asked if answer.problem]
        if good:
            taken[hop] = good.candidate
            how = f"answered in {good.seconds:.1f} s" if good.candidate.probe else "is tried when it is needed"
            lines.append(f"{hop}: {good.candidate.url} {how}")
        elif asked:
            lines.append(f"{hop}: none of them; what the host is configured with is used")
    return {
        "hops": {hop: {"mirror": one.mirror, "url": one.url} for hop, one in taken.items()},
        "environment": environment(taken),
        "apt_sources": apt_sources(want, taken["apt"].url) if "apt" in taken else "",
        **torch_places(taken),
        "pythons": [answer.candidate.url for answer in answers if answer.candidate.hop == "python"],
        "lines": lines,
    }


def environment(taken: dict[str, Candidate]) -> dict[str, str]:
    """Return the variables by which pip, uv, git and the hub's client find the chosen mirrors."""
    variables: dict[str, str] = {}
    if "index" in taken:
        variables.update(PIP_INDEX_URL=taken["index"].url, UV_DEFAULT_INDEX=taken["index"].url)
    if "code" in taken:
        variables.update(
            GIT_CONFIG_COUNT="1",
            GIT_CONFIG_KEY_0=f"url.{taken['code'].url}/.insteadOf",
            GIT_CONFIG_VALUE_0=CODE_HOST,
        )
    if "hub" in taken:
        variables["HF_ENDPOINT"] = taken["hub"].url
    return variables


def torch_places(taken: dict[str, Candidate]) -> dict[str, list[str]]:
    """Return torch's place as index or as page of links."""
    if "torch" not in taken:
        return {"torch_index_urls": [], "torch_find_links": []}
    url = taken["torch"].url
    if url.startswith(LINKS):
        return {"torch_index_urls": [], "torch_find_links": [url[len(LINKS) :]]}
    return {"torch_index_urls": [url.rstrip("/")], "torch_find_links": []}


def apt_sources(want: Want, archive: str) -> str:
    """Return a source list of the release and its updates from ``archive``."""
    if want.distribution.startswith("ubuntu"):
        parts, suites = "main universe", [(archive, pocket) for pocket in ("", "-updates", "-security")]
    else:
        parts, suites = "main", [(archive, ""), (archive, "-updates"), (f"{archive}-security", "-security")]
    lines = [f"deb {place} {want.codename}{pocket} {parts}\n" for place, pocket in suites]
    return "# Written by the role cpufleet.vllm.toolchain; the host's own lists are as they were.\n" + "".join(lines)


def netrc_text(urls: dict[str, Any], username: str, password: str) -> str:
    """Return a netrc for the hosts of one's own addresses."""
    if re.search(r"""[\s"'#\\]""", username + password):
        raise CpufleetError(
            "toolchain_mirror_username or toolchain_mirror_password has a blank, a quote, a # or a backslash in it, "
            "which a netrc cannot hold",
            "Use another password for the mirror",
        )
    addresses: list[str] = []
    for own in urls.values():
        addresses += [own] if isinstance(own, str) else list(own)
    hosts = {
        urlsplit(address[len(LINKS) :] if address.startswith(LINKS) else address).hostname for address in addresses
    }
    return "".join(f"machine {host} login {username} password {password}\n" for host in sorted(filter(None, hosts)))
