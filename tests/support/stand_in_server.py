# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the doctor sees of a vLLM, for faults that need none: a server with an engine in a process of its own.

Real are the processes, their command lines, the port, HTTP, the counters and what faults do to all of them. Made up is
the text: every word of a prompt and every token asked for costs the engine a twentieth of a second of computing.
Installed as ``vllm/entrypoints/openai/api_server.py`` of a venv, so that it is started the way that vLLM is.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from typing import Any

COST_S = 0.05
HANG = -1


def compute(seconds: float) -> None:
    """Keep a processor busy for ``seconds`` of its time."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        sum(range(1000))


def engine(pipe: Connection, megabytes: int) -> None:
    """Be the engine: compute what is asked for, one request after another, and tell about every token."""
    memory = bytearray(megabytes << 20)
    for page in range(0, len(memory), 4096):
        memory[page] = 1
    pipe.send(("ready", 0))
    while True:
        words, tokens = pipe.recv()
        if words == HANG:
            threading.Event().wait()
        compute(COST_S * words)
        pipe.send(("prompt", words))
        for _token in range(tokens):
            compute(COST_S)
            pipe.send(("generation", 1))
        pipe.send(("done", 0))


class Server(ThreadingHTTPServer):
    """Takes requests, hands one at a time to the engine, and counts."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, options: argparse.Namespace) -> None:
        self.key = os.environ.get("VLLM_API_KEY", "")
        self.name = options.served_model_name
        self.text = options.answer
        self.counts = {"prompt": 0, "generation": 0, "running": 0, "waiting": 0}
        self.turn = threading.Lock()
        # As vLLM: the port is taken first, so that one that is taken is found before the model is loaded.
        super().__init__((options.host, options.port), Handler, bind_and_activate=False)
        self.allow_reuse_address = True
        self.server_bind()
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=engine, args=(other, options.allocate))
        self.process.start()
        other.close()
        try:
            self.pipe.recv()
        except EOFError:
            self.process.join()
            raise RuntimeError(f"the engine has ended with exit code {self.process.exitcode}") from None
        self.server_activate()

    def complete(self, words: int, tokens: int) -> bool:
        """Have the engine compute one request; False when it is gone."""
        self.counts["waiting"] += 1
        with self.turn:
            self.counts["waiting"] -= 1
            self.counts["running"] += 1
            try:
                self.pipe.send((words, tokens))
                kind = ""
                while kind != "done":
                    kind, value = self.pipe.recv()
                    if kind in self.counts:
                        self.counts[kind] += value
            except (EOFError, OSError):
                return False
            finally:
                self.counts["running"] -= 1
        return True


class Handler(BaseHTTPRequestHandler):
    """Answers as vLLM's server does."""

    server: Server

    def log_message(self, *_arguments: Any) -> None:
        """Say nothing."""

    def answer(self, status: int, text: str) -> None:
        """Send one answer."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def refused(self) -> bool:
        """Refuse a request without the key."""
        known = not self.server.key or self.headers.get("Authorization") == f"Bearer {self.server.key}"
        if not known:
            self.answer(401, '{"error": "Unauthorized"}')
        return not known

    def do_GET(self) -> None:
        """Answer health, metrics and models."""
        if self.path == "/health":
            self.answer(200, "")
        elif self.path == "/metrics":
            counts = self.server.counts
            self.answer(
                200,
                f'vllm:prompt_tokens_total{{model_name="m"}} {counts["prompt"]:.1f}\n'
                f'vllm:generation_tokens_total{{model_name="m"}} {counts["generation"]:.1f}\n'
                f'vllm:num_requests_running{{model_name="m"}} {counts["running"]:.1f}\n'
                f'vllm:num_requests_waiting{{model_name="m"}} {counts["waiting"]:.1f}\n',
            )
        elif not self.refused():
            self.answer(200, json.dumps({"data": [{"id": self.server.name}]}))

    def do_POST(self) -> None:
        """Answer a completion."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.refused():
            return
        asked = str(body.get("prompt") or body["messages"][-1]["content"])
        words = HANG if asked == "hang" else len(asked.split())
        if not self.server.complete(words, int(body["max_tokens"])):
            self.answer(500, "Internal Server Error")
        elif body.get("stream"):
            self.stream(self.server.text)
        else:
            self.answer(200, "{}")

    def stream(self, text: str) -> None:
        """Send one answer as a stream, whether a chat or a plain completion was asked for."""
        piece = {"index": 0, "delta": {"content": text}, "text": text, "finish_reason": None}
        end = {"index": 0, "delta": {}, "text": "", "finish_reason": "stop"}
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for choice in (piece, end):
            self.wfile.write(f"data: {json.dumps({'choices': [choice]})}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")


def main() -> None:
    """Serve until ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="")
    parser.add_argument("--served-model-name", default="made-up")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--answer", default="made up", help="what it says to a request that streams")
    parser.add_argument("--allocate", type=int, default=0, help="memory that the engine takes, in MiB")
    Server(parser.parse_args()).serve_forever()


if __name__ == "__main__":
    main()
