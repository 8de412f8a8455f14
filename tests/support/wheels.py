# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tiny wheels made by hand, and the uv to install them with: package folders that need no index and no network."""

from __future__ import annotations

import base64
import hashlib
import shutil
import sysconfig
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path


def offline(cache: Path) -> dict[str, str]:
    """Return the environment in which uv and pip see nothing but the folders that a test names."""
    uv = {"UV_OFFLINE": "1", "UV_NO_CONFIG": "1", "UV_PYTHON_DOWNLOADS": "never", "UV_CACHE_DIR": str(cache)}
    return {**uv, "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def find_uv() -> str:
    """Return the uv beside the interpreter that runs the tests, or the one on PATH."""
    beside = Path(sysconfig.get_path("scripts")) / "uv"
    found = str(beside) if beside.exists() else shutil.which("uv")
    if not found:
        raise LookupError("uv is missing: run scripts/setup --test, or put uv on PATH")
    return found


def tiny_wheel(
    folder: Path,
    name: str,
    version: str = "1.0",
    requires: Iterable[str] = (),
    modules: Mapping[str, str] | None = None,
    build: str = "",
) -> Path:
    """Write a pure wheel with ``modules`` (text by file name; one that holds the version by default)."""
    plain = name.replace("-", "_")
    information = f"{plain}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    files = dict(modules or {f"{plain}.py": f"version = {version + build!r}\n"})
    files[f"{information}/METADATA"] = metadata + "".join(f"Requires-Dist: {line}\n" for line in requires)
    files[f"{information}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = f"{information}/RECORD"
    lines = [f"{path},sha256={_record_digest(text)},{len(text.encode())}" for path, text in files.items()]
    files[record] = "\n".join([*lines, f"{record},,"]) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{plain}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(target, "w") as archive:
        for path, text in files.items():
            archive.writestr(zipfile.ZipInfo(path, (2024, 1, 1, 0, 0, 0)), text)
    return target


def _record_digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return ``environment`` without what a caller set for uv and pip."""
    return {name: value for name, value in environment.items() if not name.startswith(("UV_", "PIP_"))}
