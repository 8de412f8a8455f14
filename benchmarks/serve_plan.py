# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hold the memory that serve_plan plans against what a real service takes at full context and concurrency.

Usage: python benchmarks/serve_plan.py (--source SOURCE | --llama-cpp) --container NAME [options] MODEL...

NAME is a running stand-in host with an installed release (scripts/demo leaves one); each MODEL is a folder whose name
is one of the models that every stand-in host sees. The planned service runs there as a systemd unit under the planned
limit without swap, while as many requests as planned, each as long as planned, are answered for a while. Prints the
plan and the peak of each model; exits 1 where the peak is above the plan, the plan more than MARGIN above the peak, or
the service was killed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / ".ansible" / "collections"))

from ansible_collections.cpufleet.vllm.plugins.module_utils._host import gather_host  # noqa: E402 the path comes first
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan import plan_serve  # noqa: E402
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan_read import read_candidates  # noqa: E402
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan_types import Wish  # noqa: E402
from ansible_collections.cpufleet.vllm.plugins.module_utils._source import read_source  # noqa: E402

MARGIN = 1.12


def main() -> int:
    """Plan each model, measure it, and print both."""
    options = parse()
    source, red = None if options.llama_cpp else read_source(str(options.source)).to_result(), False
    engine, version = ("llama_cpp", "llama.cpp") if source is None else ("vllm", source["version"])
    for model in options.model:
        candidates = read_candidates(str(model))
        if source is None:
            candidates = [one for one in candidates if one.form == "gguf"]
        wish = Wish(options.context, options.concurrency, engine, options.dtype, whole_gib=options.whole_gib)
        plan = plan_serve(candidates, gather_host(), source, wish)
        preload = {"LD_PRELOAD": ":".join(options.preload)} if options.preload else {}
        command, environment = service(options, engine)
        given = {
            "command": command,
            "model": f"{options.models}/{model.name}" + (f"/{Path(candidates[0].path).name}" if source is None else ""),
            "arguments": plan["arguments"],
            "environment": {**plan["environment"], **preload, **environment},
            "limit": 0 if options.unlimited else plan["memory_max_bytes"],
            "context": plan["max_model_len"],
            "sequences": plan["max_num_seqs"],
            "vocabulary": candidates[0].shape.vocab,
            "seconds": options.seconds,
        }
        found = measure(options.container, given)
        red |= not tell(f"{version} {model.name}", plan, found)
    return int(red)


def parse() -> argparse.Namespace:
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(description="Planned against measured memory of a service.")
    engine = parser.add_mutually_exclusive_group(required=True)
    engine.add_argument("--source", type=Path, help="the source of the installed release of vLLM")
    engine.add_argument("--llama-cpp", action="store_true", help="the installed llama-server, with GGUF models")
    parser.add_argument("--container", required=True, help="the stand-in host")
    parser.add_argument("--python", default="", help="the release's Python there; empty: the newest release's")
    parser.add_argument("--models", default="/srv/models", help="where the host has the models")
    parser.add_argument("--context", type=int, default=0)
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--whole-gib", action="store_true", help="tell the KV cache as the roles do")
    parser.add_argument("--preload", action="append", default=[], help="a library there that the service loads first")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--unlimited", action="store_true", help="measure without the limit")
    parser.add_argument("model", nargs="+", type=Path)
    return parser.parse_args()


def service(options: argparse.Namespace, engine: str) -> tuple[list[str], dict[str, str]]:
    """Return the first words of the service's command, and its variables, as the roles have them."""
    if engine == "llama_cpp":
        off = {"CACHE_RAM": "0", "CTX_CHECKPOINTS": "0", "FIT": "off", "OFFLINE": "1"}
        environment = {f"LLAMA_ARG_{name}": value for name, value in off.items()}
        command = [installed(options.container, "llama_cpp-*/bin/llama-server"), "--alias", "m"]
        return command, {**environment, "GOMP_SPINCOUNT": "1000"}
    python = options.python or installed(options.container, "*/venv/bin/python")
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--served-model-name", "m"]
    return command, {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}


def installed(container: str, program: str) -> str:
    """Return the program of the release that was installed last."""
    command = ["docker", "exec", container, "sh", "-c", f"ls -td /opt/vllm/releases/{program} | head -1"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def measure(container: str, given: dict[str, Any]) -> dict[str, Any]:
    """Run the load on the stand-in host."""
    command = ["docker", "exec", "-i", container, "python3", "-", json.dumps(given)]
    with (REPOSITORY / "benchmarks" / "serve_load.py").open("rb") as script:
        done = subprocess.run(command, stdin=script, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}")
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def tell(name: str, plan: dict[str, Any], found: dict[str, Any]) -> bool:
    """Print both; return whether they agree and the service lived."""
    mib = 1 << 20
    planned, peak = plan["memory_max_bytes"], found["peak"]["Pss"]
    good = found["held"] <= peak <= planned <= MARGIN * peak and not found["failed"] and found["state"] == "active"
    print(
        f"{name}: planned {planned / mib:.0f} MiB = {plan['weights_bytes'] / mib:.0f} weights + "
        f"{plan['overhead_bytes'] / mib:.0f} overhead + {plan['kv_bytes'] / mib:.0f} KV; peak {peak / mib:.0f} MiB "
        f"(held {found['held'] / mib:.0f}, idle {found['idle']['Pss'] / mib:.0f}), plan/peak {planned / peak:.3f}; "
        f"{plan['max_num_seqs']} x {plan['max_model_len']} tokens, {found['requests']} requests, "
        f"{found['tokens']} tokens, ready after {found['ready_s']} s, {found['state']}/{found['result']}: "
        f"{'ok' if good else 'NOT OK'}",
        flush=True,
    )
    print("DETAILS " + json.dumps(found))
    return good


if __name__ == "__main__":
    sys.exit(main())
