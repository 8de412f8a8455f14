# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a build takes, in CPU-seconds, against the release's own documented commands; exits 1 where it is over a limit.

    python benchmarks/build.py [VERSION] [--isa avx512_bf16] [--only SIDE ...] [--again SIDE ...]

Sides, each with the same compiler, torch and oneDNN, in one stand-in host:

- ``documented``: what the release's installation guide says, ``uv build --wheel --no-build-isolation`` in its own tree
- ``ours``: the plan and the build of this collection, for one class of CPU, with nothing in any cache
- ``onednn``: the same again with the finished oneDNN in its cache, without the compiler cache
- ``ccache``: the same from an empty tree with the compiler cache of ``ours``, and the finished oneDNN
- ``edit``: the same as ``ccache`` after an edit to one Python file of the source

What the library of the class links of oneDNN is compared too: the same members of the archive, or the exit status is 1.

Hours on 2 cores. A side that was measured is kept in the cache, by machine and release, and not measured again unless
``--again`` names it; a documented build that was begun goes on. The host is kept until all sides are there.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from benchmarks import kept  # noqa: E402 the path comes first
from benchmarks.build_overhead import machine  # noqa: E402
from scripts.lib import bench  # noqa: E402
from tests.support import onednn, plays  # noqa: E402

HOST = os.environ.get("CPUFLEET_HOST_PREFIX", "cpufleet") + "-benchbuild"
KEPT = "build"
ROOT = "/opt/vllm"
SIDES = ("documented", "ours", "onednn", "ccache", "edit")
LIMITS = {"onednn": 0.22, "ccache": 0.10, "edit": 0.05}
OURS = {"avx512_bf16": 0.50, "avx512": 0.42, "avx2": 0.42}
LIBRARIES = {"avx512_bf16": "_C", "avx512": "_C_AVX512", "avx2": "_C_AVX2"}
DOCUMENTED = f"{ROOT}/documented"
SCRIPT = """\
cd {folder}/source
export CC={cc} CXX={cxx} HOME=/root PATH={venv}/bin:{root}/tools/uv/bin:/usr/bin:/bin UV_PYTHON_DOWNLOADS=never
export CCACHE_DISABLE=1 CMAKE_POLICY_VERSION_MINIMUM=3.5 FETCHCONTENT_SOURCE_DIR_ONEDNN={folder}/onednn
VLLM_TARGET_DEVICE=cpu uv build --wheel --no-build-isolation --python {venv}/bin/python >{folder}/build.log 2>&1
echo $? >{folder}/status.part
times >>{folder}/status.part
mv {folder}/status.part {folder}/status
"""


def on_host(command: str, check: bool = True) -> str:
    """Return what a shell command prints on the host."""
    return bench.run("docker", "exec", HOST, "sh", "-c", command, check=check).stdout.strip()


def source(version: str, edited: bool) -> str:
    """Return the source distribution, with a line more in one Python file where it is to be edited."""
    original = bench.cache() / "sources" / f"vllm-{version}.tar.gz"
    if not edited:
        return str(original) if original.exists() else ""
    changed = bench.cache() / "benchmarks" / f"edited-{version}" / original.name
    changed.parent.mkdir(exist_ok=True)
    with tarfile.open(original) as old, tarfile.open(changed, "w:gz", compresslevel=1) as new:
        for member in old:
            stream = old.extractfile(member) if member.isfile() else None
            content = stream.read() if stream else b""
            if member.name.endswith("/vllm/version.py"):
                content += b"\n# edited\n"
                member.size = len(content)
            new.addfile(member, io.BytesIO(content))
    return str(changed)


def variables(version: str, isa: str, store: Path, **more: Any) -> dict[str, Any]:
    """Return the host's variables."""
    return {
        **plays.variables(),
        "vllm_version": version,
        "vllm_isa_class": isa,
        "vllm_wheel_store": str(store),
        "vllm_source_build_onednn": str(onednn.archive()),
        "vllm_source_build_keep": True,
        "model_serve_model": str(bench.cache() / "models" / "smollm2"),
        "toolchain_allow_newer_suite": True,
        **more,
    }


def play(name: str, given: dict[str, Any]) -> None:
    """Plan and build, as site.yml does."""
    folder = bench.cache() / "benchmarks"
    plays.play(
        ["playbooks/plan.yml", "playbooks/build.yml"], HOST, given, folder / "inventory.json", folder / f"{name}.log"
    )


def ours(version: str, isa: str, side: str) -> dict[str, Any]:
    """Return what the build of this collection took; what it may find in a cache depends on the side."""
    store = bench.cache() / "benchmarks" / "store"
    subprocess.run(["rm", "-rf", str(store)], check=True)
    gone = {"ours": "cache/onednn cache/ccache"}.get(side, "")
    on_host("rm -rf " + " ".join(f"{ROOT}/{name}" for name in f"wheels build {gone}".split()))
    with_ccache = side != "onednn"
    play(
        side,
        variables(
            version,
            isa,
            store,
            vllm_source_build_ccache=with_ccache,
            vllm_source_build_sdist=source(version, side == "edit"),
        ),
    )
    manifest = json.loads(on_host(f"cat {ROOT}/wheels/*/manifest.json"))
    steps = re.findall(r"cpufleet: (.*)$", on_host(f"cat {ROOT}/build/*/build.log"), re.MULTILINE)
    return {
        "cpu_seconds": manifest["took"]["cpu_seconds"],
        "seconds": manifest["took"]["seconds"],
        "onednn": steps,
        "linked": linked(f"{ROOT}/build"),
    }


def linked(tree: str) -> dict[str, list[str]]:
    """Return, for every library of a tree that was built, what it takes of oneDNN's archive: each linked once more."""
    folder = str(Path(on_host(f"find {tree} -name build.ninja -not -path '*/CMakeFiles/*' | head -1")).parent)
    ninja = on_host(f"ls {ROOT}/build/*/venv/bin/ninja {DOCUMENTED}/venv/bin/ninja 2>/dev/null | head -1", check=False)
    found = {}
    for library in LIBRARIES.values():
        command = on_host(f"{ninja} -C {folder} -t commands {library} 2>/dev/null | tail -1", check=False)
        link = re.search(r"(\S*g\+\+\S* .*? -o )(\S+)( .*?)(?: && |$)", command)
        # A library of another class stands in the build's rules too, but was not made.
        if not link or "libdnnl" not in command or not on_host(f"cd {folder} && ls {link[2]}", check=False):
            continue
        on_host(f"cd {folder} && {link[1]}linked.so -Wl,-Map=linked.map{link[3]}")
        head = on_host(f"sed '/^Discarded input sections\\|^Memory Configuration/,$d' {folder}/linked.map")
        found[library] = sorted(re.findall(r"libdnnl\.a\((\S+?)\)$", head, re.MULTILINE))
    return found


def documented(version: str, isa: str) -> dict[str, Any]:
    """Return what the documented commands take, in the environment that ``ours`` was built with."""
    if on_host(f"test -d {DOCUMENTED} && echo yes", check=False) != "yes":
        begin_documented(version, isa)
    while on_host(f"test -f {DOCUMENTED}/status && echo yes", check=False) != "yes":
        time.sleep(20)
    status, *times = on_host(f"cat {DOCUMENTED}/status").split()
    if status != "0":
        sys.exit(f"build: the documented build failed, see {DOCUMENTED}/build.log on {HOST}")
    # "times" prints minutes and seconds of the shell, then of its children.
    children = [float(part[0]) * 60 + float(part[1]) for part in re.findall(r"(\d+)m([\d.]+)s", " ".join(times))[2:]]
    return {"cpu_seconds": round(sum(children), 1), "linked": linked(f"{DOCUMENTED}/source")}


def begin_documented(version: str, isa: str) -> None:
    """Start the documented build as a unit, so that it outlives this program."""
    found = on_host(f"ls -d {ROOT}/build/*/venv")
    folder = str(Path(found.splitlines()[0]).parent)
    manifest = json.loads(on_host(f"cat {ROOT}/wheels/*/manifest.json"))
    compiler = manifest["inputs"]["compiler"]
    major = re.search(r"(\d+)\.", compiler)
    number = major.group(1) if major else ""
    on_host(f"mkdir -p {DOCUMENTED}.new/source")
    on_host(f"tar -xzf {folder}/source.tar.gz --strip-components=1 -C {DOCUMENTED}.new/source")
    on_host(f"cp -a {folder}/venv {folder}/onednn {DOCUMENTED}.new/ && mv {DOCUMENTED}.new {DOCUMENTED}")
    script = SCRIPT.format(
        folder=DOCUMENTED, root=ROOT, venv=f"{folder}/venv", cc=f"/usr/bin/gcc-{number}", cxx=f"/usr/bin/g++-{number}"
    )
    on_host(f"cat >{DOCUMENTED}/run.sh <<'END'\n{script}END")
    on_host(f"systemd-run --quiet --unit=documented --property=Nice=5 /bin/bash {DOCUMENTED}/run.sh")


def report(key: str, isa: str) -> int:
    """Print the table; return 1 where a ratio is over its limit."""
    found, over = kept.known(KEPT, key), 0
    base = found["documented"]["cpu_seconds"]
    sys.stdout.write(f"{key}\n| side | CPU-seconds | ratio | limit |\n| --- | --- | --- | --- |\n")
    for side in SIDES:
        if side not in found:
            continue
        limit = {**LIMITS, "ours": OURS[isa]}.get(side)
        ratio = found[side]["cpu_seconds"] / base
        over |= int(limit is not None and ratio > limit)
        shown = "" if limit is None else f"{limit:.2f}"
        sys.stdout.write(f"| {side} | {found[side]['cpu_seconds']:.0f} | {ratio:.3f} | {shown} |\n")
    library = LIBRARIES[isa]
    members = {side: found[side]["linked"].get(library) for side in ("documented", "ours") if side in found}
    if "documented" in members and "ours" in members:
        same = members["documented"] == members["ours"]
        over |= int(not same)
        count = len(members["ours"] or [])
        sys.stdout.write(f"{library} links {'the same' if same else 'other'} members of oneDNN: {count}\n")
    return over


def main() -> int:
    """Measure what is not known yet, and print all."""
    parser = argparse.ArgumentParser(description="CPU-seconds of builds.")
    parser.add_argument("version", nargs="?", default="0.32.0")
    parser.add_argument("--isa", choices=sorted(OURS), default="avx512_bf16")
    parser.add_argument("--only", nargs="*", choices=SIDES, default=SIDES)
    parser.add_argument("--again", nargs="*", choices=SIDES, default=())
    options = parser.parse_args()
    bench.start_docker()
    if not bench.host_exists(HOST):
        bench.start_host(HOST)
    key = f"{options.version}, {options.isa}, {machine()}"
    base = f"{options.version}, documented, {machine()}"
    # The documented build needs an environment, which ours makes: it comes second.
    for side in ("ours", "onednn", "ccache", "edit", "documented"):
        place = base if side == "documented" else key
        if side not in options.only or (side in kept.known(KEPT, place) and side not in options.again):
            continue
        figures = (
            documented(options.version, options.isa)
            if side == "documented"
            else ours(options.version, options.isa, side)
        )
        kept.keep(KEPT, place, side, figures)
        sys.stdout.write(f"build: {side} {figures['cpu_seconds']:.0f} CPU-seconds\n")
        sys.stdout.flush()
    if "documented" not in kept.known(KEPT, base):
        return 0
    kept.keep(KEPT, key, "documented", kept.known(KEPT, base)["documented"])
    status = report(key, options.isa)
    if set(kept.known(KEPT, key)) == set(SIDES):
        bench.stop_host(HOST)
    return status


if __name__ == "__main__":
    sys.exit(main())
