# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The demo: site.yml against a stand-in VM or the user's own inventory, and the answer for people and programs."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from scripts.lib import bench, image

HOST = "cpufleet-demo"
QUESTION = "What is the capital of France?"
EXPECT = "Paris"
PORT = 8000
RECAP = re.compile(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.MULTILINE)


def stand_in() -> tuple[Path, str]:
    """Make Docker, image, model and a bare host ready; return its inventory and address."""
    bench.start_docker()
    image.ensure(bench.cache(), bench.as_root)
    print("demo: making the model SmolLM2-135M-Instruct (kept for the next time)", flush=True)
    subprocess.run([sys.executable, "scripts/make_models.py", "smollm2"], cwd=bench.REPOSITORY, check=True)
    store = bench.cache() / "demo-store"
    if not bench.host_exists(HOST):
        # A new host is shown the whole way: what an earlier demo built must not spare it the compile.
        shutil.rmtree(store, ignore_errors=True)
        print(f"demo: starting the bare host {HOST}", flush=True)
        bench.start_host(HOST)
    else:
        bench.run("docker", "start", HOST)
        bench.wait_for_host(HOST)
    variables = {
        **bench.host_variables(),
        "ansible_connection": "community.docker.docker",
        "vllm_version": "0.6.5",
        "vllm_wheel_store": str(store),
        # An avx512 build of 0.6.5 clones oneDNN from a code host; an avx2 build fetches nothing.
        "vllm_isa_class": "avx2",
        # The avx2 code of 0.6.5 rounds bfloat16 so coarsely that a small model's answers change.
        "model_serve_dtype": "float32",
        "model_serve_model": str(bench.cache() / "models" / "smollm2"),
        "model_serve_name": "SmolLM2-135M-Instruct",
        "model_serve_address": "0.0.0.0",  # noqa: S104 - inside the stand-in VM, so that its address answers here
        "model_serve_port": PORT,
        "model_serve_gate_question": QUESTION,
        "model_serve_gate_expect": EXPECT,
        "swap_file": f"{bench.HOST_SWAP}/{HOST}",
        "swap_size": "1G",
    }
    inventory = bench.cache() / "demo-inventory.json"
    document = {"all": {"children": {"vllm_hosts": {"hosts": {HOST: variables}}}}}
    inventory.write_text(json.dumps(document, indent=2), encoding="utf-8")
    return inventory, bench.host_address(HOST)


def play(inventory: Path, report: Path, extra: list[str]) -> tuple[str, int]:
    """Run site.yml, showing its output as it comes; return the output and the exit status."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = ["ansible-playbook", "site.yml", "-i", str(inventory), "-e", f"model_serve_report={report}", *extra]
    lines = []
    with subprocess.Popen(
        command, cwd=bench.REPOSITORY, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            lines.append(line)
    return "".join(lines), process.returncode


def tell(host: str, found: dict[str, Any], changed: int, address: str, seconds: float) -> dict[str, Any]:
    """Print the result of one host for people and return it for programs."""
    url = found["url"].replace("127.0.0.1", address) if address else found["url"]
    print()
    print(f"Host       {host}")
    print(f"Question   {found['question']}")
    print(f"Answer     {found['answer']}")
    print(f"Speed      first token after {found['ttft_s']} s, then {found['tokens_per_s']} tokens/s")
    print(f"Release    {found['release']}")
    print(f"Address    {url}/v1  (the API key is in {found['api_key_file']} on the host)")
    print(f"Run        {seconds:.0f} s; " + ("nothing changed" if not changed else f"{changed} changes"))
    if host == HOST:
        print(f"Remove it  scripts/bench stop {HOST}")
    keys = ("answer", "ttft_s", "tokens_per_s", "release")
    return {"host": host, **{key: found[key] for key in keys}, "url": url, "changed": changed}


def main() -> int:
    """Run the demo and print the machine-readable last line."""
    parser = argparse.ArgumentParser(
        prog="scripts/demo",
        usage="%(prog)s [-h] [--host INVENTORY] [WORD ...]",
        description="From a bare host to an answered question. Further words go to ansible-playbook, such as "
        "-v or -e model_serve_port=8001.",
    )
    parser.add_argument("--host", metavar="INVENTORY", type=Path, help="run on the hosts of this inventory instead")
    options, extra = parser.parse_known_args()
    inventory, address = (options.host.resolve(), "") if options.host else stand_in()
    report = bench.cache() / "demo-report"
    for old in report.parent.glob(f"{report.name}.*.json"):
        old.unlink()
    started = time.monotonic()
    output, status = play(inventory, report, extra)
    recap = {host: int(changed) for host, changed, _unreachable, _failed in RECAP.findall(output)}
    if status:
        print(f"demo: ansible-playbook ended with status {status}; what failed and what to do stands above")
        return status
    answered = [host for host in sorted(recap) if Path(f"{report}.{host}.json").is_file()]
    if not answered:
        print(f"demo: no host of {inventory} was asked. Put your hosts into the group vllm_hosts of that file")
        return 1
    for host in answered:
        changed = recap[host]
        found = json.loads(Path(f"{report}.{host}.json").read_text(encoding="utf-8"))
        result = tell(host, found, changed, address, time.monotonic() - started)
        print("RESULT " + json.dumps(result, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
