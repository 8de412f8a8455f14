# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How fast the service is against upstream's documented command, and the engines side by side; 1 where one is missed.

    python benchmarks/serve.py [VERSION] [--only ROW ...] [--again ROW ...]

One stand-in host, random weights in real shapes, medians with the spread. A row is a model that site.yml serves there,
planned for 32 requests at once; ``upstream`` is what the release's own page for CPUs says to run, in a unit without any
setting of ours: ``vllm serve MODEL --dtype=bfloat16`` with tcmalloc and Intel's OpenMP preloaded. What
was measured is kept in the cache by machine and release. Hours on 2 cores, quiet ones: they are speeds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / ".ansible" / "collections")]

from ansible_collections.cpufleet.vllm.plugins.module_utils._host import gather_host  # noqa: E402 the path comes first
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan import plan_serve  # noqa: E402
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan_read import read_candidates  # noqa: E402
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan_types import Wish  # noqa: E402
from ansible_collections.cpufleet.vllm.plugins.module_utils._source import read_source  # noqa: E402

from benchmarks import kept  # noqa: E402
from benchmarks.build_overhead import machine  # noqa: E402
from scripts.lib import bench  # noqa: E402
from tests.support import onednn, plays, trees  # noqa: E402

HOST = os.environ.get("CPUFLEET_HOST_PREFIX", "cpufleet") + "-benchserve"
KEPT = "serve"
STREAMS = (1, 8, 32)
VOCABULARY = 151_000
UPSTREAM_PORT = 8077
CLIENT = "/root/serve_streams.py"
DECODE, FIRST, READY, AUTO = 1.4, 0.75, 0.5, 0.95


@dataclass(frozen=True)
class Row:
    """One model with one engine."""

    name: str
    model: str
    engine: str
    shape: str


ROWS = (
    Row("0.5b bf16, vllm", "qwen2-0.5b", "vllm", "0.5b"),
    Row("0.5b int4, vllm", "qwen2-0.5b-awq", "vllm", "0.5b"),
    Row("0.5b Q4_0, llama_cpp", "qwen2-0.5b-q4_0", "llama_cpp", "0.5b"),
    Row("7b int4, vllm", "qwen2-7b-awq", "vllm", "7b"),
    Row("7b Q4_0, llama_cpp", "qwen2-7b-q4_0", "llama_cpp", "7b"),
)
UPSTREAM = "0.5b bf16, upstream"


def on_host(*command: str) -> str:
    """Return what a command prints on the host."""
    return bench.run("docker", "exec", HOST, *command).stdout.strip()


def deploy(version: str, row: Row) -> None:
    """Serve the row's model with site.yml; what was built once is taken from the store."""
    folder = bench.cache() / "benchmarks"
    given = {
        **plays.variables(),
        "vllm_version": version,
        "vllm_wheel_store": str(folder / "serve-store"),
        "vllm_source_build_onednn": str(onednn.archive()),
        "toolchain_allow_newer_suite": True,
        "model_serve_model": f"/srv/models/{row.model}",
        "model_serve_model_source": "host",
        "model_serve_name": "m",
        "model_serve_engine": row.engine,
        "model_serve_concurrency": max(STREAMS),
        "model_serve_max_model_len": 2048,
    }
    plays.play(["site.yml"], HOST, given, folder / "serve-inventory.json", folder / f"serve-{row.model}.log")


def ask(given: dict[str, Any]) -> dict[str, Any]:
    """Start what ``given`` names on the host and return its figures."""
    bench.run("docker", "cp", str(REPOSITORY / "benchmarks" / "serve_streams.py"), f"{HOST}:{CLIENT}")
    standard = {"model": "m", "vocabulary": VOCABULARY, "streams": STREAMS, "rounds": 3, "starts": 3, "key_file": ""}
    found: dict[str, Any] = json.loads(on_host("python3", CLIENT, json.dumps({**standard, **given})).splitlines()[-1])
    return found


def ours(version: str, row: Row) -> dict[str, Any]:
    """Return the figures of the service as it is installed, and what it was planned as."""
    deploy(version, row)
    # Seven billion weights answer slowly: fewer rounds.
    less = {"rounds": 1, "starts": 1} if row.shape == "7b" else {}
    found = ask({"unit": "vllm", "port": 8000, "key_file": "/opt/vllm/secrets/api_key", **less})
    return {**found, "release": json.loads(on_host("cat", "/opt/vllm/current/manifest.json"))["release"]}


def upstream(version: str) -> dict[str, Any]:
    """Return the figures of the documented command, with the same wheel and model."""
    deploy(version, ROWS[0])
    release = json.loads(on_host("cat", "/opt/vllm/current/manifest.json"))["release"]
    folder = f"/opt/vllm/releases/{release}/venv"
    on_host("systemctl", "stop", "vllm")
    allocator = "find /usr/lib -name libtcmalloc_minimal.so.4 | head -1"
    preload = ":".join(on_host("sh", "-c", f"{allocator}; find {folder} -name libiomp5.so | head -1").split())
    compilers = on_host("sh", "-c", "ls /usr/bin/g++ /usr/bin/g++-* 2>/dev/null | tail -1")
    variables = {"LD_PRELOAD": preload, "CXX": compilers, "HF_HUB_OFFLINE": "1", "HOME": "/root"}
    variables["PATH"] = f"{folder}/bin:/usr/bin:/bin"
    start = [f"{folder}/bin/vllm", "serve", f"/srv/models/{ROWS[0].model}", "--dtype=bfloat16"]
    start += ["--served-model-name", "m", "--port", str(UPSTREAM_PORT)]
    try:
        return ask({"unit": "upstream", "port": UPSTREAM_PORT, "start": start, "variables": variables})
    finally:
        on_host("systemctl", "start", "vllm")


def rate(found: dict[str, Any], streams: int) -> float:
    """Return the median tokens a second."""
    return float(found["streams"][str(streams)]["tokens_per_s"]["median"])


def verdict(good: bool, text: str) -> str:
    """Return the sentence about a limit."""
    return text if good else f"MISSED: {text}"


def judge(found: dict[str, Any], version: str) -> list[str]:
    """Return the sentences about the limits."""
    told = []
    own, other = found.get(ROWS[0].name), found.get(UPSTREAM)
    if own and other:
        first = own["streams"]["1"]["ttft_s"]["median"] / other["streams"]["1"]["ttft_s"]["median"]
        decode, ready = rate(own, 1) / rate(other, 1), own["ready_s"]["median"] / other["ready_s"]["median"]
        told.append(verdict(decode >= DECODE, f"decode {decode:.2f} of upstream's, at least {DECODE}"))
        told.append(verdict(first <= FIRST, f"first token {first:.2f} of upstream's, at most {FIRST}"))
        told.append(verdict(ready <= READY, f"time to ready {ready:.2f} of upstream's, at most {READY}"))
    for shape in sorted({row.shape for row in ROWS}):
        rows = [row for row in ROWS if row.shape == shape and row.name in found]
        for streams in STREAMS:
            told += fastest(found, version, rows, streams)
    return told


def fastest(found: dict[str, Any], version: str, rows: list[Row], streams: int) -> list[str]:
    """Return whether the engine that ``auto`` takes for so many streams is as fast as the fastest."""
    engines = sorted({row.engine for row in rows})
    if len(engines) <= 1:
        return []
    by_engine = {
        engine: max(rate(found[row.name], streams) for row in rows if row.engine == engine) for engine in engines
    }
    chosen = chosen_engine(version, rows[0].shape, streams)
    best = max(by_engine.values())
    took = f"auto takes {chosen} with {by_engine[chosen]:.1f} of {best:.1f} tokens/s"
    return [verdict(by_engine[chosen] >= AUTO * best, f"{rows[0].shape}, {streams} stream(s): {took}")]


def chosen_engine(version: str, shape: str, streams: int) -> str:
    """Return what serve_plan takes where both forms of the shape are there."""
    models = bench.cache() / "models"
    both = bench.cache() / "benchmarks" / f"both-{shape}"
    both.mkdir(parents=True, exist_ok=True)
    for name in (f"qwen2-{shape}-awq" if shape == "7b" else f"qwen2-{shape}", f"qwen2-{shape}-q4_0"):
        for file in (models / name).iterdir():
            (both / file.name).unlink(missing_ok=True)
            os.link(file, both / file.name)
    source = read_source(str(trees.sdist(version))).to_result()
    plan = plan_serve(read_candidates(str(both)), gather_host(), source, Wish(2048, streams, "auto", "auto"))
    return str(plan["engine"])


def table(found: dict[str, Any]) -> list[str]:
    """Return the figures as Markdown: median (least to most)."""
    lines = ["| row | ready, s | first token, s | " + " | ".join(f"tokens/s, {n}" for n in STREAMS) + " |"]
    lines.append("| --- " * (3 + len(STREAMS)) + "|")
    for name in (UPSTREAM, *(row.name for row in ROWS)):
        if name not in found:
            continue
        one = found[name]
        values = [one["ready_s"], one["streams"]["1"]["ttft_s"]]
        values += [one["streams"][str(count)]["tokens_per_s"] for count in STREAMS]
        cells = [f"{v['median']:.3g} ({v['least']:.3g} to {v['most']:.3g})" for v in values]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def main() -> int:
    """Measure what is not known yet, print all, and judge."""
    names = [UPSTREAM, *(row.name for row in ROWS)]
    parser = argparse.ArgumentParser(description="Speed of the service.")
    parser.add_argument("version", nargs="?", default="0.32.0")
    parser.add_argument("--only", nargs="*", choices=names, default=names)
    parser.add_argument("--again", nargs="*", choices=names, default=())
    options = parser.parse_args()
    bench.start_docker()
    models = sorted({row.model for row in ROWS if row.name in options.only} | {ROWS[0].model})
    subprocess.run([sys.executable, "scripts/make_models.py", *models], cwd=REPOSITORY, check=True)
    if not bench.host_exists(HOST):
        bench.start_host(HOST)
    key = f"{options.version}, {machine()}"
    for name in names:
        if name not in options.only or (name in kept.known(KEPT, key) and name not in options.again):
            continue
        row = next((row for row in ROWS if row.name == name), None)
        kept.keep(KEPT, key, name, ours(options.version, row) if row else upstream(options.version))
        sys.stdout.write(f"serve: {name} measured\n")
        sys.stdout.flush()
    told = judge(kept.known(KEPT, key), options.version)
    sys.stdout.write("\n".join([key, *table(kept.known(KEPT, key)), *told, ""]))
    if set(kept.known(KEPT, key)) == set(names):
        bench.stop_host(HOST)
    return int(any(text.startswith("MISSED") for text in told))


if __name__ == "__main__":
    sys.exit(main())
