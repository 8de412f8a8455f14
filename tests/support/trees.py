# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Real vLLM source trees for tests: fetched by name and version from the caller's package index, cached.

``python -m tests.support.trees 0.6.5`` prints where a tree lies (and fetches it when it is not there yet).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import ssl
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tomllib

VERSIONS_CI = ("0.6.5", "0.8.5", "0.17.1", "0.32.0")
VERSIONS_FULL = (
    "0.6.3.post1",
    "0.6.5",
    "0.6.6.post1",
    "0.7.2",
    "0.7.3",
    "0.8.5",
    "0.9.2",
    "0.10.2",
    "0.11.2",
    "0.13.0",
    "0.16.0",
    "0.17.1",
    "0.18.1",
    "0.20.2",
    "0.22.1",
    "0.26.0",
    "0.28.0",
    "0.31.0",
    "0.32.0",
    "0.33.0",
)

#: What the edits and the reading of a tree touch; the rest (GPU kernels, docs, tests) is most of the size.
NEEDED = (
    "*.toml",
    "*.txt",
    "*.in",
    "setup.py",
    "PKG-INFO",
    "cmake",
    "csrc/cpu",
    "requirements",
    "vllm.egg-info",
    "vllm/*.py",
    "vllm/config",
    "vllm/engine/arg_utils.py",
    "vllm/model_executor/layers/linear.py",
    "vllm/model_executor/layers/utils.py",
    "vllm/platforms",
    "vllm/plugins",
    "vllm/triton_utils",
    "vllm/utils",
    "vllm/v1/attention/backends/cpu_attn.py",
    "vllm/v1/worker/block_table.py",
)


@dataclass(frozen=True)
class Sdist:
    """Where the index keeps a source distribution and what its bytes must hash to."""

    url: str
    sha256: str


def cache_folder() -> Path:
    """Return the cache's folder: below $CPUFLEET_CACHE where that is set, else in the user's own cache."""
    root = os.environ.get("CPUFLEET_CACHE")
    return (Path(root) if root else Path.home() / ".cache" / "cpufleet") / "trees"


def tree(version: str) -> Path:
    """Return the unpacked, pristine tree of vLLM ``version``. Treat it as read-only; edit a copy."""
    target = cache_folder() / f"vllm-{version}"
    if not target.is_dir():
        _unpack(sdist(version), target)
    return target


def sdist(version: str) -> Path:
    """Return the source distribution of vLLM ``version``, downloaded once and verified by SHA-256."""
    target = cache_folder() / f"vllm-{version}.tar.gz"
    if not target.is_file():
        _download(_locate(version), target)
    return target


def copy_tree(version: str, destination: Path, parts: Sequence[str] = NEEDED) -> Path:
    """Copy ``parts`` (globs below the root) of the tree of ``version`` to ``destination`` and return that."""
    source = tree(version)
    for part in parts:
        for found in source.glob(part):
            target = destination / found.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            if found.is_dir():
                shutil.copytree(found, target, symlinks=True, dirs_exist_ok=True)
            else:
                shutil.copy2(found, target)
    return destination


def _locate(version: str) -> Sdist:
    lock = tomllib.loads(
        subprocess.run(
            [
                _uv(),
                "pip",
                "compile",
                "--quiet",
                "--no-deps",
                "--format",
                "pylock.toml",
                *_index_arguments(),
                "-",
            ],
            input=f"vllm=={version}\n",
            env={**os.environ, **_certificates()},
            check=True,
            text=True,
            stdout=subprocess.PIPE,
        ).stdout
    )
    (package,) = lock["packages"]
    if "sdist" not in package:
        raise LookupError(f"The package index has no source distribution of vLLM {version}")
    return Sdist(package["sdist"]["url"], package["sdist"]["hashes"]["sha256"])


def _uv() -> str:
    beside = Path(sysconfig.get_path("scripts")) / "uv"
    found = str(beside) if beside.exists() else shutil.which("uv")
    if not found:
        raise LookupError("uv is missing: run scripts/setup --test, or put uv on PATH")
    return found


def _index_arguments() -> list[str]:
    """uv does not read pip's configuration: hand over the index that the caller set for pip."""
    if any(os.environ.get(name) for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_CONFIG_FILE")):
        return []
    answer = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.index-url"],
        capture_output=True,
        text=True,
        check=False,
    )
    url = os.environ.get("PIP_INDEX_URL") or answer.stdout.strip()
    return ["--default-index", url] if url else []


def _certificates() -> dict[str, str]:
    bundle = os.environ.get("SSL_CERT_FILE") or os.environ.get("PIP_CERT")
    return {"SSL_CERT_FILE": bundle} if bundle else {}


def _download(source: Sdist, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    context = ssl.create_default_context(cafile=_certificates().get("SSL_CERT_FILE"))
    digest = hashlib.sha256()
    with tempfile.TemporaryDirectory(prefix=".download-", dir=target.parent) as folder:
        temporary = Path(folder) / target.name
        # The address is the index's own answer, and the bytes are checked against the index's hash.
        answer = urllib.request.urlopen(source.url, timeout=120, context=context)  # noqa: S310
        with answer, temporary.open("wb") as stream:
            while chunk := answer.read(1 << 20):
                digest.update(chunk)
                stream.write(chunk)
        if digest.hexdigest() != source.sha256:
            raise ValueError(f"{target.name} has SHA-256 {digest.hexdigest()}, the index says {source.sha256}")
        temporary.replace(target)


def _unpack(archive: Path, target: Path) -> None:
    """Unpack beside ``target`` and rename: two test runs at once never see half a tree."""
    with tempfile.TemporaryDirectory(prefix=".unpack-", dir=target.parent) as folder:
        with tarfile.open(archive) as content:
            content.extractall(folder, filter="data")
        (root,) = Path(folder).iterdir()
        try:
            root.rename(target)
        except OSError:
            if not target.is_dir():
                raise


if __name__ == "__main__":
    for wanted in sys.argv[1:] or VERSIONS_CI:
        print(tree(wanted))  # noqa: T201
