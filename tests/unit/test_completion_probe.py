# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module against a real local HTTP server in every state that it has to tell apart."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

MODULE = "ansible_collections.cpufleet.vllm.plugins.modules.completion_probe"
KEY = "sk-very-secret-0123456789"
CHAT = [{"role": "user", "content": "What is the capital of France?"}]
FIXTURES = Path(__file__).parent / "fixtures" / "journal"


class Server(ThreadingHTTPServer):
    """A server whose behaviour a test sets: every answer of it is one that real servers give."""

    daemon_threads = True
    mode = "well"
    key = ""
    ready_at = 0.0
    asked: list[dict[str, Any]]

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    """Answers /health, /v1/models and the two kinds of completion."""

    server: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def send(self, status: int, body: str) -> None:
        content = body.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def refused(self) -> bool:
        if self.server.key and self.headers.get("Authorization") != f"Bearer {self.server.key}":
            self.send(401, '{"error": "Unauthorized"}')
            return True
        return False

    def do_GET(self) -> None:
        if self.path == "/health":
            self.send(200, "")
        elif self.server.mode == "not-a-model-server":
            self.send(404, "<html>Not Found</html>")
        elif time.monotonic() < self.server.ready_at:
            self.send(503, '{"error": {"message": "Loading model", "code": 503}}')
        elif not self.refused():
            self.send(200, '{"object": "list", "data": [{"id": "smollm2", "object": "model"}]}')

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append({"path": self.path, **body})
        if self.refused():
            return
        if self.server.mode == "fails":
            self.send(500, f'{{"object": "error", "message": "Internal Server Error {KEY}", "code": 500}}')
        elif self.server.mode == "hangs":
            time.sleep(5)
        else:
            self.stream("chat" in self.path)

    def stream(self, chat: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        words = {"empty": ["", " "], "wrong": ["The", " capital", " is", " London."]}
        for word in words.get(self.server.mode, ["The", " capital", " is", " Paris."]):
            self.event({"choices": [{"delta": {"content": word}} if chat else {"text": word}]})
            time.sleep(0.02)
            if self.server.mode == "breaks":
                self.close_connection = True
                return
            if self.server.mode == "errors":
                self.event({"error": {"message": "EngineCore died", "code": 500}})
        self.event({"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": None})
        self.event({"choices": [], "usage": {"completion_tokens": 5}})
        self.chunk(b"data: [DONE]\n\n")
        self.chunk(b"")

    def event(self, document: dict[str, Any]) -> None:
        self.chunk(b"data: " + json.dumps(document).encode() + b"\n\n")

    def chunk(self, content: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(content), content))
        self.wfile.flush()


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    threading.Thread(target=running.serve_forever, args=(0.05,), daemon=True).start()
    yield running
    running.shutdown()
    running.server_close()


def probe(arguments: dict[str, Any], path: Path | None = None, **environment: str) -> dict[str, Any]:
    """Run the module in a process of its own, as Ansible does; return its result."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    if path is not None:
        variables["PATH"] = f"{path}:{variables['PATH']}"
    command = [sys.executable, "-m", MODULE]
    done = subprocess.run(
        command,
        input=json.dumps({"ANSIBLE_MODULE_ARGS": arguments}),
        capture_output=True,
        text=True,
        env=variables,
        timeout=60,
        check=False,
    )
    assert KEY not in done.stdout + done.stderr
    assert done.stdout, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def fake_systemd(folder: Path, states: list[str], journal: str) -> Path:
    """Put a systemctl that shows one of ``states`` after the other and a journalctl into ``folder``."""
    shows = " ".join(f"'{state}'" for state in states)
    scripts = {
        "systemctl": f"#!/bin/bash\nn=$(cat {folder}/n 2>/dev/null || echo 0); s=({shows}); l=$((${{#s[@]}}-1))\n"
        f'echo $((n+1)) > {folder}/n; [ $n -gt $l ] && n=$l; printf "LoadState=loaded\\n${{s[$n]}}\\n"\n',
        "journalctl": f'#!/bin/bash\n[ "$1" = --sync ] || cat {journal}\n',
    }
    for name, text in scripts.items():
        file = folder / name
        file.write_text(text, encoding="utf-8")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return folder


def test_a_good_answer(server: Server, tmp_path: Path) -> None:
    server.key = KEY
    key_file = tmp_path / "api_key"
    key_file.write_text(KEY + "\n", encoding="ascii")
    result = probe(
        {
            "url": server.url + "/v1/",
            "model": "smollm2",
            "messages": CHAT,
            "prompt": "The capital of France",
            "expect": "Paris",
            "api_key_file": str(key_file),
            "timeout": 20,
        }
    )
    assert result["answer"] == result["completion"] == "The capital is Paris."
    assert result["models"] == ["smollm2"]
    assert (result["changed"], result["tokens"], result["finish_reason"]) == (False, 5, "stop")
    assert 0 < result["ttft_s"] < 5
    assert 0 < result["tokens_per_s"] <= 4 / 0.06
    assert [asked["path"] for asked in server.asked] == ["/v1/chat/completions", "/v1/completions"]
    assert all(asked["temperature"] == 0 and asked["stream"] for asked in server.asked)


def test_no_proxy_is_asked_whatever_the_environment_says(server: Server) -> None:
    nowhere = "http://127.0.0.1:9"
    arguments = {"url": server.url, "prompt": "x", "timeout": 10}
    result = probe(arguments, http_proxy=nowhere, HTTP_PROXY=nowhere, ALL_PROXY=nowhere)
    assert result["answer"] == "The capital is Paris."
    assert result["model"] == "smollm2"


def test_a_server_that_is_loading_is_waited_for(server: Server) -> None:
    server.ready_at = time.monotonic() + 1.5
    result = probe({"url": server.url, "model": "smollm2", "messages": CHAT, "timeout": 20})
    assert result["answer"]
    assert result["waited_s"] >= 1


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("fails", "The server at {url} answers /v1/chat/completions with status 500: Internal Server Error ***."),
        ("breaks", "The server at {url} broke the connection during the answer: "),
        ("errors", "The server broke the answer off: EngineCore died."),
        ("hangs", "The server at {url} takes connections but does not finish /v1/chat/completions in time."),
        ("empty", "The model answered with no text. Check that the model has a chat template."),
        ("wrong", "The model answered 'The capital is London.', in which 'Paris' is not found. "),
        ("not-a-model-server", "The server at {url} answers /v1/models with status 404: <html>Not Found</html>."),
    ],
)
def test_a_server_that_is_healthy_but_does_not_answer_fails(
    server: Server, tmp_path: Path, mode: str, message: str
) -> None:
    server.mode = mode
    server.key = KEY
    (tmp_path / "key").write_text(KEY, encoding="ascii")
    arguments = {"url": server.url, "model": "smollm2", "messages": CHAT, "expect": "Paris", "timeout": 3}
    result = probe({**arguments, "api_key_file": str(tmp_path / "key")})
    assert result["failed"]
    assert result["msg"].startswith(message.format(url=server.url))
    assert result["first_cause"] == {}


def test_a_wrong_key_fails_at_once_and_is_not_told(server: Server, tmp_path: Path) -> None:
    server.key = "another"
    (tmp_path / "key").write_text(KEY, encoding="ascii")
    started = time.monotonic()
    result = probe({"url": server.url, "prompt": "x", "api_key_file": str(tmp_path / "key"), "timeout": 60})
    assert time.monotonic() - started < 20
    assert result["msg"] == (
        f"The server at {server.url} refuses the API key with status 401. "
        "Compare the key in api_key_file with the one that the service was started with."
    )


def test_a_model_that_is_not_listed_fails_at_once(server: Server) -> None:
    result = probe({"url": server.url, "model": "qwen", "messages": CHAT, "timeout": 60})
    assert result["msg"] == (
        f"The server at {server.url} lists smollm2, asked for was qwen. "
        "Correct the option model, or look whether another service answers at that address."
    )
    assert result["models"] == ["smollm2"]


def test_nothing_that_answers_is_a_failure_after_the_timeout() -> None:
    result = probe({"url": "http://127.0.0.1:9", "prompt": "x", "timeout": 1})
    assert result["msg"].startswith("Nothing answers at http://127.0.0.1:9: ")
    assert result["msg"].endswith(", for 1 s.")


@pytest.mark.parametrize(
    ("states", "reason"),
    [
        (["ActiveState=active", "ActiveState=failed\\nResult=exit-code"], "it has failed (exit-code)"),
        (
            [f"ActiveState=active\\nNRestarts={restarts}" for restarts in (0, 1, 2)],
            "systemd restarted it 2 times while it was waited for",
        ),
        (["ActiveState=inactive"], "it is stopped"),
    ],
)
def test_a_unit_that_does_not_come_up_is_not_waited_for(tmp_path: Path, states: list[str], reason: str) -> None:
    path = fake_systemd(tmp_path, states, str(FIXTURES / "vllm_0.6.5_port_in_use.log"))
    started = time.monotonic()
    result = probe({"url": "http://127.0.0.1:9", "prompt": "x", "timeout": 60, "unit": "vllm.service"}, path)
    assert time.monotonic() - started < 20
    assert result["msg"] == (
        f"The unit vllm.service does not serve: {reason}. First cause in the journal of vllm.service: "
        "OSError: [Errno 98] Address already in use: Another process listens on the service's port. "
        "Find it with `ss -ltnp`, stop it, or set model_serve_port to a free port."
    )
    assert result["first_cause"]["code"] == "port_in_use"
    assert set(result["unit_state"]) == {"active", "sub", "result", "restarts"}


def test_the_cause_of_a_failed_completion_is_told_with_it(server: Server, tmp_path: Path) -> None:
    server.mode = "fails"
    (tmp_path / "key").write_text(KEY, encoding="ascii")
    path = fake_systemd(tmp_path, ["ActiveState=active"], str(FIXTURES / "vllm_0.32_first_request.log"))
    arguments = {"url": server.url, "messages": CHAT, "timeout": 10, "unit": "vllm.service"}
    result = probe({**arguments, "api_key_file": str(tmp_path / "key")}, path)
    assert result["first_cause"]["code"] == "slot_mapping_stand_in"
    assert "with status 500" in result["msg"]


def test_an_answer_of_another_process_does_not_count(server: Server, tmp_path: Path) -> None:
    path = fake_systemd(tmp_path, ["ActiveState=activating"], str(FIXTURES / "systemd_port.log"))
    result = probe({"url": server.url, "messages": CHAT, "timeout": 10, "unit": "vllm.service"}, path)
    assert result["msg"].startswith(
        "The question was answered, but not by the unit vllm.service: it is activating. "
        "Find out with `ss -ltnp` which process listens on that port. First cause in the journal of vllm.service: "
    )
    assert result["first_cause"]["code"] == "port_in_use"


def test_a_good_answer_of_a_unit(server: Server, tmp_path: Path) -> None:
    path = fake_systemd(tmp_path, ["ActiveState=active"], str(FIXTURES / "systemd_port.log"))
    result = probe({"url": server.url, "messages": CHAT, "timeout": 10, "unit": "vllm.service"}, path)
    assert result["answer"] == "The capital is Paris."


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"url": "http://127.0.0.1:9"},
            "There is nothing to ask. Give messages for a chat or prompt for a plain completion.",
        ),
        (
            {"url": "127.0.0.1:8000", "prompt": "x"},
            "The address '127.0.0.1:8000' is not usable. Give one such as http://127.0.0.1:8000.",
        ),
        (
            {"url": "http://127.0.0.1:9", "prompt": "x", "expect": "("},
            "The option expect is '(', which is no regular expression: "
            "missing ), unterminated subpattern at position 0. Correct the pattern.",
        ),
        (
            {"url": "http://127.0.0.1:9", "prompt": "x", "api_key_file": "/nonexistent/key"},
            "Cannot read /nonexistent/key: No such file or directory. Check that the file exists and may be read.",
        ),
    ],
)
def test_arguments_that_make_no_sense(arguments: dict[str, Any], message: str) -> None:
    assert probe(arguments)["msg"] == message
