# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Only what is linked of a oneDNN is compiled, on a host with a real CMake, ninja and linker.

The library is a small one of oneDNN's layout, which the build takes as vLLM's takes the real one.
"""

from __future__ import annotations

import re
import tarfile
from pathlib import Path

import pytest

from scripts.lib import bench
from tests.support import onednn, tiny_onednn
from tests.support.build_host import ROOT, Build, BuildHost
from tests.support.run_module import run_module

SCRIPTS = bench.REPOSITORY / "roles/vllm_source_build/files/onednn"
EXPECTED = Path(__file__).parent / "expected"
ANSWER = "import ctypes, glob; print(ctypes.CDLL(glob.glob('{folder}/_C*.so')[0]).run(21))"


@pytest.fixture
def host(build_host: BuildHost) -> BuildHost:
    """The host that all builds share."""
    return build_host


def prepare(host: BuildHost, local: Path, listed: tuple[str, ...], cache: str) -> Build:
    """Put a build on the host, as the role does: sources, list, scripts, and what hands them to CMake."""
    build = host.tiny(local / "build", [])
    tiny_onednn.write(local / "release", tiny_onednn.RELEASE)
    tiny_onednn.write(local / "onednn", tiny_onednn.LIBRARY)
    (local / "sources.txt").write_text("".join(f"{name}\n" for name in listed), encoding="utf-8")
    (local / "onednn.cmake").write_text(
        f"""\
set(CMAKE_PROJECT_oneDNN_INCLUDE "{build.folder}/scripts/trim.cmake")
set(CPUFLEET_ONEDNN_SCRIPTS "{build.folder}/scripts")
set(CPUFLEET_ONEDNN_SOURCES "{build.folder}/sources.txt")
set(CPUFLEET_ONEDNN_PRIMITIVES "matmul;reorder")
set(CPUFLEET_ONEDNN_DIGEST "of-the-source")
set(CPUFLEET_ONEDNN_CACHE "{cache}")
""",
        encoding="utf-8",
    )
    for source, place in ((local / "release", "source"), (SCRIPTS, "scripts"), (local / "onednn", "onednn")):
        host.run(f"mkdir -p {build.folder}/{place}")
        bench.run("docker", "cp", f"{source}/.", f"{host.name}:{build.folder}/{place}")
    for name in ("sources.txt", "onednn.cmake"):
        bench.run("docker", "cp", str(local / name), f"{host.name}:{build.folder}/{name}")
    return build


def compile_it(build: Build) -> str:
    """Build the wheel; return what is printed."""
    handed = {
        "CMAKE_TOOLCHAIN_FILE": f"{build.folder}/onednn.cmake",
        "FETCHCONTENT_SOURCE_DIR_ONEDNN": f"{build.folder}/onednn",
    }
    out, status = build.play(environment=handed)
    assert status == 0, out + build.host.run(f"cat {build.folder}/build.log", check=False)
    return out


def compiled(build: Build, log: str = "build.log") -> set[str]:
    """Return the sources of oneDNN that were compiled, by a build's own log."""
    text = build.host.run(f"cat {build.folder}/{log}")
    return {f"{part}/{name}" for part, name in re.findall(r"/dnnl_(\w+)\.dir/(\w+\.cpp)\.o", text)}


def answer(build: Build) -> str:
    """Return what the built library computes, loaded from the wheel."""
    folder = f"{build.folder}/unpacked"
    script = ANSWER.format(folder=f"{folder}/vllm")
    return build.host.run(f'python3 -m zipfile -e {build.wheels}/*.whl {folder} && python3 -c "{script}"').strip()


def test_what_is_not_linked_is_not_compiled_and_the_next_build_compiles_nothing(
    host: BuildHost, tmp_path: Path
) -> None:
    cache = f"{ROOT}/cache/onednn-1"
    host.run(f"for n in 1 2 3 4; do mkdir -p {cache}/$n; touch -d 2026-01-0$n {cache}/$n/libdnnl.a; done")
    first = prepare(host, tmp_path / "first", tiny_onednn.NEEDED, cache)
    compile_it(first)
    assert compiled(first) == set(tiny_onednn.NEEDED)
    assert answer(first) == "42"
    # The cache keeps the four that were used last.
    (key,) = set(host.run(f"ls {cache}").split()) - {"2", "3", "4"}
    second = prepare(host, tmp_path / "second", tiny_onednn.NEEDED, cache)
    compile_it(second)
    assert compiled(second) == set()
    assert answer(second) == "42"
    # Another list is another library, and an empty one is all.
    whole = prepare(host, tmp_path / "whole", (), cache)
    compile_it(whole)
    assert compiled(whole) == {*tiny_onednn.NEEDED, "common/convolution.cpp", "cpu/convolution.cpp"}
    assert len(set(host.run(f"ls {cache}").split()) - {key, "3", "4"}) == 1


def test_a_list_that_lacks_a_symbol_ends_in_a_whole_build(host: BuildHost, tmp_path: Path) -> None:
    cache = f"{ROOT}/cache/onednn-2"
    short = tuple(name for name in tiny_onednn.NEEDED if name != "cpu/gemm_by_hand.cpp")
    build = prepare(host, tmp_path / "short", short, cache)
    out = compile_it(build)
    assert re.search(
        r"goes on with 1 job\(s\): the part of oneDNN that was compiled is not all .* oneDNN lacks \S+gemm", out
    )
    # What was compiled stayed.
    assert compiled(build, "build.log.old") == set(short)
    assert compiled(build) == {"cpu/gemm_by_hand.cpp", "common/convolution.cpp", "cpu/convolution.cpp"}
    assert answer(build) == "42"
    assert [retry["kind"] for retry in build.manifest()["retries"]] == ["onednn_part"]
    # The library that lacked something is not in the cache, the whole one is.
    assert len(host.run(f"ls {cache}").split()) == 1
    assert host.run(f"cat {build.folder}/sources.txt.lacks").strip().endswith("gemm_t7executeEi")


def test_of_the_real_source_all_is_listed_that_a_real_release_links(tmp_path: Path) -> None:
    with tarfile.open(onednn.archive()) as archive:
        archive.extractall(tmp_path, filter="data")
    (tree,) = tmp_path.iterdir()
    found = run_module("onednn_sources", path=str(tree), dest=str(tmp_path / "list"))
    listed = set((tmp_path / "list").read_text(encoding="utf-8").split())
    # Seen in the link of vLLM 0.32.0's library, g++ 14.
    linked = set((EXPECTED / "onednn-3.7.2-linked.txt").read_text(encoding="utf-8").split())
    assert linked - listed == set()
    assert len(linked) <= found["count"] <= 1.1 * len(linked)
    assert found["total"] > 400
    assert not [name for name in listed if "convolution" in name and not name.endswith(("_list.cpp", "_pd.cpp"))]
