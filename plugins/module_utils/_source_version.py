# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Which version a vLLM source is of: from its metadata, a generated file, or the tag that a checkout stands on."""

from __future__ import annotations

import os
import re
import zlib

from ansible_collections.cpufleet.vllm.plugins.module_utils._source_reading import Reading

__all__ = ("source_version",)

TAG = re.compile(r"v(\d+\.\d+.*)")


def source_version(reading: Reading) -> str | None:
    """Return the version of the source, None where nothing in it tells."""
    tree = reading.tree
    if tree.kind == "git":
        tagged = _tag_version(tree.location)
        if tagged:
            reading.saw("version", ".git", "tag")
            return tagged
    wheels = {name.partition("/")[0] for name in getattr(tree, "content", ()) if ".dist-info/" in name}
    for path in [f"{folder}/METADATA" for folder in sorted(wheels)] + ["PKG-INFO", "vllm.egg-info/PKG-INFO"]:
        match = re.search(r"^Version:\s*(\S+)", tree.text(path) or "", re.M)
        if match:
            reading.saw("version", path, 1 + (tree.text(path) or "").count("\n", 0, match.start()))
            return match[1]
    for path in ("vllm/_version.py", "vllm/version.py"):
        match = re.search(r"""^__version__\s*=.*?['"]([^'"]+)['"]\s*$""", tree.text(path) or "", re.M)
        if match and match[1] != "dev":
            reading.saw("version", path, 1 + (tree.text(path) or "").count("\n", 0, match.start()))
            return match[1]
    return None


def _tag_version(location: str) -> str | None:
    """Return the version whose tag is the commit that is checked out."""
    folder = _git_folder(location)
    head = _read(os.path.join(folder, "HEAD")).strip()
    shared = _read(os.path.join(folder, "commondir")).strip()
    common = os.path.normpath(os.path.join(folder, shared)) if shared else folder
    packed = _packed(common)
    if head.startswith("ref: "):
        name = head[len("ref: ") :]
        head = (
            _read(os.path.join(folder, name)).strip()
            or _read(os.path.join(common, name)).strip()
            or packed.get(name, "")
        )
    if not head:
        return None
    tags = {name: commit for name, commit in packed.items() if name.startswith("refs/tags/")}
    loose = os.path.join(common, "refs", "tags")
    for name in sorted(os.listdir(loose)) if os.path.isdir(loose) else ():
        tags[f"refs/tags/{name}"] = _peel(common, _read(os.path.join(loose, name)).strip())
    names = [name.rpartition("/")[2] for name, commit in tags.items() if commit == head]
    versions = [match[1] for match in map(TAG.fullmatch, sorted(names)) if match]
    return versions[0] if versions else None


def _git_folder(location: str) -> str:
    """Return the repository of a checkout; in a worktree ``.git`` is a file that names it."""
    entry = os.path.join(location, ".git")
    if os.path.isfile(entry):
        return os.path.normpath(os.path.join(location, _read(entry).partition("gitdir:")[2].strip()))
    return entry


def _packed(folder: str) -> dict[str, str]:
    """Return the packed references; an annotated tag counts as the commit it points to."""
    found: dict[str, str] = {}
    last = ""
    for line in _read(os.path.join(folder, "packed-refs")).splitlines():
        if line.startswith("^") and last:
            found[last] = line[1:].strip()
        elif re.match(r"[0-9a-f]{40,64} ", line):
            commit, last = line.split(" ", 1)
            found[last] = commit
    return found


def _peel(folder: str, name: str) -> str:
    """Return the commit behind a loose reference, following an annotated tag that is stored loose."""
    try:
        with open(os.path.join(folder, "objects", name[:2], name[2:]), "rb") as stream:
            content = zlib.decompress(stream.read())
    except (OSError, zlib.error):
        return name
    match = re.match(rb"tag \d+\0object ([0-9a-f]+)", content)
    return match[1].decode() if match else name


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""
