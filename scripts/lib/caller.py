# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the caller's own pip, uv and apt say about indexes, wheel folders, certificates and proxies.

The stand-in hosts are handed the same, so that no script has to know where packages come from. Pure over the
environment and the files it is pointed at; standard library only.
"""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomllib

HOST_WHEELS = "/srv/wheels"
HOST_CERTIFICATES = "/srv/ca-certificates.crt"
PROXIES = ("http_proxy", "https_proxy", "no_proxy")
CERTIFICATE_VARIABLES = (
    "SSL_CERT_FILE",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
)
TORCH_WHEEL = re.compile(r"^torch-(?P<version>[^-]+\+cpu[^-]*)-cp(?P<python>\d+)-[^-]+-(?P<platform>.+)\.whl$")


@dataclass(frozen=True)
class Caller:
    """The caller's package settings. Lists hold what a host can use; ``wheels`` are folders of this machine."""

    index: str = ""
    extra_indexes: tuple[str, ...] = ()
    wheels: str = ""
    find_links: tuple[str, ...] = ()
    certificates: str = ""
    timeout: str = ""
    proxies: Mapping[str, str] = field(default_factory=dict)


def pip_files(environ: Mapping[str, str]) -> list[Path]:
    """Return pip's configuration files, weakest first, in the order that pip documents."""
    home = Path(environ.get("HOME", "/root"))
    files = [Path(folder) / "pip/pip.conf" for folder in environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":")]
    files += [Path("/etc/pip.conf"), home / ".pip/pip.conf"]
    files += [Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "pip/pip.conf"]
    if environ.get("VIRTUAL_ENV"):
        files += [Path(environ["VIRTUAL_ENV"]) / "pip.conf"]
    if environ.get("PIP_CONFIG_FILE"):
        files += [Path(environ["PIP_CONFIG_FILE"])]
    return files


def pip_settings(environ: Mapping[str, str], files: list[Path]) -> dict[str, str]:
    """Return pip's settings under their option names: files, then PIP_* variables, the later one winning."""
    settings: dict[str, str] = {}
    for file in files:
        parser = configparser.RawConfigParser()
        parser.read(file, encoding="utf-8")
        for section in ("global", "install"):
            if parser.has_section(section):
                settings.update({key.replace("_", "-"): value for key, value in parser.items(section)})
    for name, value in environ.items():
        if name.startswith("PIP_") and value:
            settings[name[4:].lower().replace("_", "-")] = value
    return settings


def uv_settings(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return uv's index, extra indexes and wheel folders from its configuration file and UV_* variables."""
    home = Path(environ.get("HOME", "/root"))
    candidates = [Path("/etc/uv/uv.toml"), Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "uv/uv.toml"]
    if environ.get("UV_CONFIG_FILE"):
        candidates = [Path(environ["UV_CONFIG_FILE"])]
    document: dict[str, Any] = {}
    for file in candidates:
        if file.is_file():
            document.update(tomllib.loads(file.read_text(encoding="utf-8")))
    indexes = document.get("index", [])
    defaults = [entry["url"] for entry in indexes if entry.get("default")]
    extras = [entry["url"] for entry in indexes if not entry.get("default")]
    named_extras = environ.get("UV_INDEX") or environ.get("UV_EXTRA_INDEX_URL") or ""
    return {
        "index": environ.get("UV_DEFAULT_INDEX")
        or environ.get("UV_INDEX_URL")
        or (defaults[0] if defaults else document.get("index-url", "")),
        "extra": named_extras.split() or extras or document.get("extra-index-url", []),
        "find_links": re.split(r"[,\s]+", environ.get("UV_FIND_LINKS", "")) + document.get("find-links", []),
    }


def read_caller(environ: Mapping[str, str] | None = None, files: list[Path] | None = None) -> Caller:
    """Read the caller's settings. ``file://`` indexes stay behind: they are this machine's, not a host's."""
    environ = os.environ if environ is None else environ
    pip = pip_settings(environ, pip_files(environ) if files is None else files)
    uv = uv_settings(environ)
    links = [link for link in pip.get("find-links", "").split() + uv["find_links"] if link]
    local = [path for path in (link.removeprefix("file://") for link in links) if Path(path).is_dir()]
    certificates = [pip.get("cert", ""), *(environ.get(name, "") for name in CERTIFICATE_VARIABLES)]
    extras = pip.get("extra-index-url", "").split() + list(uv["extra"])
    return Caller(
        index=uv["index"] or pip.get("index-url", ""),
        extra_indexes=tuple(dict.fromkeys(url for url in extras if url.startswith("http"))),
        wheels=local[0] if local else "",
        find_links=tuple(dict.fromkeys(link for link in links if link.startswith("http"))),
        certificates=next((path for path in certificates if path and Path(path).is_file()), ""),
        timeout=pip.get("default-timeout") or pip.get("timeout", ""),
        proxies={name: value for name in PROXIES if (value := environ.get(name) or environ.get(name.upper(), ""))},
    )


def torch_wheel(names: list[str], python: str, machine: str) -> str:
    """Return the newest CPU torch version among wheel file ``names`` for ``python`` ("3.11") and ``machine``."""
    tag = python.replace(".", "")
    found = [match for name in names if (match := TORCH_WHEEL.match(name))]
    fitting = [match for match in found if match["python"] == tag and match["platform"].endswith(machine)]
    versions = [match["version"] for match in fitting]
    return max(versions, key=lambda version: [int(part) for part in re.findall(r"\d+", version)], default="")


def mounts(caller: Caller) -> list[str]:
    """Return the Docker volumes that carry the caller's wheel folder and certificates, read-only."""
    volumes = []
    if caller.wheels:
        volumes.append(f"{caller.wheels}:{HOST_WHEELS}:ro")
    if caller.certificates:
        volumes.append(f"{Path(caller.certificates).resolve()}:{HOST_CERTIFICATES}:ro")
    return volumes


def download_environment(caller: Caller, certificates: str) -> dict[str, str]:
    """Return the environment that pip, uv, curl and git need to download as the caller does."""
    environment: dict[str, str] = {}
    if certificates:
        environment.update(dict.fromkeys(CERTIFICATE_VARIABLES, certificates))
    if caller.index.startswith("http"):
        environment.update(PIP_INDEX_URL=caller.index, UV_DEFAULT_INDEX=caller.index)
    if caller.extra_indexes:
        joined = " ".join(caller.extra_indexes)
        environment.update(PIP_EXTRA_INDEX_URL=joined, UV_INDEX=joined)
    if caller.timeout.isdigit():
        environment.update(PIP_DEFAULT_TIMEOUT=caller.timeout, UV_HTTP_TIMEOUT=caller.timeout)
    for name, value in caller.proxies.items():
        environment[name] = environment[name.upper()] = value
    return environment


def host_variables(caller: Caller, python: str, machine: str) -> dict[str, Any]:
    """Return the Ansible variables that make the roles download on a host as the caller does here."""
    variables: dict[str, Any] = {}
    version = torch_wheel(sorted(os.listdir(caller.wheels)), python, machine) if caller.wheels else ""
    if version:
        variables.update(torch_cpu_find_links=HOST_WHEELS, torch_cpu_version=version)
    environment = download_environment(caller, HOST_CERTIFICATES if caller.certificates else "")
    if environment:
        variables["vllm_environment"] = environment
    return variables
