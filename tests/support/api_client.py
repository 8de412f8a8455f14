# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The API of a stand-in host as a client on another machine sees it: the openai package, from the controller."""

from __future__ import annotations

import json
import re
import threading
import time
from typing import Any

import openai

from scripts.lib import bench

ROOT = "/opt/vllm"
CHINESE = "请把这句话原样重复一遍:北京的秋天很美。"


class Api:
    """What the host serves, with its own key or another one."""

    def __init__(self, host: Any) -> None:
        self.model = str(json.loads(host.file(f"{ROOT}/current/manifest.json").content_string)["name"])
        self.base = f"http://{bench.host_address(host.backend.host)}:8000/v1"
        self.key = host.file(f"{ROOT}/secrets/api_key").content_string.strip()
        self.client = self.with_key(self.key)

    def with_key(self, key: str) -> openai.OpenAI:
        """Return a client with that key; it asks once and waits long."""
        return openai.OpenAI(base_url=self.base, api_key=key, timeout=600, max_retries=0)

    def say(self, text: str, tokens: int = 24, client: openai.OpenAI | None = None) -> str:
        """Return the answer to ``text``."""
        answer = (client or self.client).chat.completions.create(
            model=self.model, messages=[{"role": "user", "content": text}], temperature=0, max_tokens=tokens
        )
        return str(answer.choices[0].message.content)

    def refusal(self, key: str) -> int:
        """Return the status that a question with ``key`` is refused with."""
        try:
            self.say("Hello", client=self.with_key(key))
        except openai.AuthenticationError as error:
            return error.status_code
        return 200

    def streamed(self, text: str) -> list[str]:
        """Return the pieces of a streamed answer that have text in them."""
        stream = self.client.chat.completions.create(
            model=self.model,
            messages=[{"role": "user", "content": text}],
            temperature=0,
            max_tokens=24,
            stream=True,
        )
        pieces = [part.choices[0].delta.content or "" for part in stream if part.choices]
        return [piece for piece in pieces if piece]

    def at_once(self, requests: int, gauge: str) -> tuple[list[str], float]:
        """Send requests at the same time; return the answers, and how many ran together by a gauge at /metrics."""
        answers: list[str] = []
        threads = [
            threading.Thread(target=lambda: answers.append(self.say("Tell me a long story.", 200)))
            for _each in range(requests)
        ]
        for thread in threads:
            thread.start()
        together = [0.0]
        while any(thread.is_alive() for thread in threads):
            together += self.gauge(gauge)
            time.sleep(0.05)
        return [answer for answer in answers if answer], max(together)

    def gauge(self, name: str) -> list[float]:
        """Return the values of a metric."""
        text = self.client.get("/../metrics", cast_to=str)
        return [float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)", text, re.MULTILINE)]

    def post(self, path: str, **body: object) -> dict[str, Any]:
        """Ask what lies beside the API of OpenAI."""
        answer: dict[str, Any] = self.client.post(f"/../{path}", cast_to=object, body=body)  # type: ignore[assignment]
        return answer
