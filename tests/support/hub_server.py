# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A real HTTP server that answers as the model hubs do, and a small model for it, in the shapes of their APIs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

from tests.support.file_server import FileServer
from tests.support.safetensors import head, safetensors

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONFIG = Path(__file__).resolve().parents[1] / "unit/fixtures/model/SmolLM2-135M-Instruct.json"
WEIGHTS = safetensors({"w": ("BF16", 400_000)}, b"w")
MODEL = {
    "config.json": CONFIG.read_bytes(),
    "tokenizer.json": b'{"version": "1.0"}',
    "tokenizer_config.json": b'{"chat_template": "{{ messages }}"}',
    "model.safetensors": WEIGHTS,
    "pytorch_model.bin": b"pickle" * 100,
    "README.md": b"# A model\n",
    "onnx/model.onnx": b"onnx" * 100,
}
LARGE = (".safetensors", ".bin", ".gguf", ".onnx", ".data")


class Sparse:
    """A file of ``size`` bytes of which only the head exists: as large as real weights are."""

    def __init__(self, head: bytes, size: int) -> None:
        self.head, self.size = head, size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, part: slice) -> bytes:
        start, end = part.start or 0, min(part.stop, self.size)
        return self.head[start:end].ljust(end - start, b"\0")


def seven_billion() -> dict[str, Any]:
    """Return a model of the 7B shape: 15.2 GB of weights in four files, of which there are the heads."""
    names = [f"model-0000{number}-of-00004.safetensors" for number in range(1, 5)]
    first, weights = head({f"layers.{number}.weight": ("BF16", 19_000_000) for number in range(100)})
    index = {"metadata": {"total_size": 4 * weights}, "weight_map": {f"w{name}": name for name in names}}
    return {
        "config.json": (CONFIG.parents[1] / "serve_plan/configs/qwen2-7b.json").read_bytes(),
        "tokenizer.json": MODEL["tokenizer.json"],
        "model.safetensors.index.json": json.dumps(index).encode(),
        "consolidated.safetensors": Sparse(first, 1 << 34),
        **{name: Sparse(first, len(first) + weights) for name in names},
    }


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def publish(server: FileServer, model: Mapping[str, Any], repository: str = "org/Tiny", revision: str = "main") -> None:
    """Let ``server`` have ``model`` as the Hugging Face hub has it."""
    siblings = []
    for name, content in model.items():
        known = content.head if isinstance(content, Sparse) else content
        sha1 = hashlib.new("sha1", b"blob %d\0" % len(content) + known, usedforsecurity=False)
        entry: dict[str, object] = {"rfilename": name, "size": len(content), "blobId": sha1.hexdigest()}
        if name.endswith(LARGE):
            entry["lfs"] = {"sha256": sha256(known), "size": len(content), "pointerSize": 134}
        siblings.append(entry)
        server.files[f"{repository}/resolve/{COMMIT}/{name}"] = content
    listing = json.dumps({"id": repository, "sha": COMMIT, "siblings": siblings}).encode()
    for asked in (revision, COMMIT):
        server.files[f"api/models/{repository}/revision/{asked}?blobs=true"] = listing


def publish_modelscope(server: FileServer, model: dict[str, bytes], repository: str = "org/Tiny") -> None:
    """Let ``server`` have ``model`` as ModelScope has it: digests for all, and of the commit the first digits."""
    files: list[dict[str, object]] = [{"Path": "onnx", "Name": "onnx", "Type": "tree", "Size": 0, "Revision": COMMIT}]
    for name, content in model.items():
        entry = {"Path": name, "Name": name.rpartition("/")[2], "Type": "blob", "Size": len(content)}
        commit = COMMIT if name == "model.safetensors" else "f" * 40
        files.append({**entry, "Sha256": sha256(content), "Revision": commit, "IsLFS": name.endswith(LARGE)})
        address = f"api/v1/models/{repository}/repo?Revision={COMMIT}&FilePath={quote_plus(name)}"
        server.files[address] = content
    data = {"Files": files, "LatestCommitter": {"Id": "", "ShortId": COMMIT[:8]}}
    for revision, found in (("master", data), (COMMIT, data), ("none", {"Files": None, "LatestCommitter": None})):
        address = f"api/v1/models/{repository}/repo/files?Revision={revision}&Recursive=true"
        server.files[address] = json.dumps({"Code": 200, "Success": True, "Data": found}).encode()
