#!/usr/bin/python
# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: completion_probe
short_description: Ask an OpenAI-compatible server a real question and judge the answer
version_added: "0.1.0"
description:
  - Waits until the server lists the model, then asks for a completion and fails unless its text matches O(expect).
    A server whose health page is fine but which answers no question fails.
  - Asks through no proxy, whatever the environment says, and takes the answer as a stream, so that the time to the
    first token is measured.
  - With O(unit), waiting ends as soon as the unit has failed, is stopped, or was restarted twice; an answer counts only
    while the unit runs; and a failure names the first cause in the unit's journal since that start, rather than the
    last line of it.
extends_documentation_fragment:
  - cpufleet.vllm.attributes.info
author:
  - The cpufleet maintainers (@cpufleet)
options:
  url:
    description:
      - The address of the server, with or without C(/v1) at its end.
    type: str
    required: true
  model:
    description:
      - The name under which the server lists the model. Empty means the only model that it lists.
    type: str
    default: ''
  messages:
    description:
      - The messages of a chat, each with C(role) and C(content).
    type: list
    elements: dict
    default: []
  prompt:
    description:
      - Text for a plain completion. With O(messages) as well, both are asked, the chat first.
    type: str
    default: ''
  expect:
    description:
      - A regular expression that has to be found in the answer (of the chat, where one is asked).
      - Empty accepts every answer that has a text.
    type: str
    default: ''
  api_key_file:
    description:
      - The file that holds the API key. The key is in no result and in no message.
    type: path
  timeout:
    description:
      - How many seconds there are for all of it, waiting included.
    type: int
    default: 600
  max_tokens:
    description:
      - How many tokens the answer may have.
    type: int
    default: 32
  temperature:
    description:
      - The temperature; V(0) asks for the most likely answer, which stays the same.
    type: float
    default: 0
  unit:
    description:
      - The systemd unit of the server, on the same host.
    type: str
    default: ''
notes:
  - In check mode the question is asked as well, since asking changes nothing.
seealso:
  - module: cpufleet.vllm.platform_info
"""

EXAMPLES = r"""
- name: Ask the model a question with a known answer
  cpufleet.vllm.completion_probe:
    url: http://127.0.0.1:8000
    model: smollm2
    messages:
      - role: user
        content: What is the capital of France?
    expect: Paris
    api_key_file: /opt/vllm/secrets/api_key
    unit: vllm.service
    timeout: 600
  register: __answer

- name: Ask for a plain completion of the only model
  cpufleet.vllm.completion_probe:
    url: http://127.0.0.1:8000/v1
    prompt: The capital of France is
    max_tokens: 8
    timeout: 60
"""

RETURN = r"""
answer:
  description: The text of the answer.
  returned: success
  type: str
  sample: The capital of France is Paris.
completion:
  description: The text of the plain completion; empty when none was asked beside a chat.
  returned: success
  type: str
  sample: ''
model:
  description: The model that answered.
  returned: success
  type: str
  sample: smollm2
models:
  description: The models that the server lists; empty when it did not come so far.
  returned: always
  type: list
  elements: str
  sample: [smollm2]
ttft_s:
  description: Seconds from the request to the first text.
  returned: success
  type: float
  sample: 0.21
tokens_per_s:
  description: Tokens a second after the first one; V(0) when the answer has one token only.
  returned: success
  type: float
  sample: 17.3
tokens:
  description: How many tokens the answer has.
  returned: success
  type: int
  sample: 8
finish_reason:
  description: Why the answer ended, in the server's word.
  returned: success
  type: str
  sample: stop
waited_s:
  description: Seconds until the server listed the model.
  returned: success
  type: float
  sample: 14.2
first_cause:
  description: The first cause in the unit's journal; empty when there is none or no O(unit) was given.
  returned: failure
  type: dict
  contains:
    code:
      description: A stable code, V(unknown) for a fault that is not in the table.
      type: str
      sample: port_in_use
    text:
      description: What it means.
      type: str
      sample: Another process listens on the service's port
    remedy:
      description: What to do.
      type: str
      sample: Find it with `ss -ltnp`, stop it, or set model_serve_port to a free port
    line:
      description: The line of the journal.
      type: str
      sample: "[Errno 98] error while attempting to bind on address ('127.0.0.1', 8000): address already in use"
unit_state:
  description: The unit when the probe gave up; empty when no O(unit) was given.
  returned: failure
  type: dict
  sample: {active: failed, sub: failed, result: exit-code, restarts: 5}
"""

import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.cpufleet.vllm.plugins.module_utils._completion import (
    Answer,
    check_answer,
    check_expect,
    redact,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._io import read_text
from ansible_collections.cpufleet.vllm.plugins.module_utils._journal import FirstCause, first_cause
from ansible_collections.cpufleet.vllm.plugins.module_utils._openai_client import Client, NotReadyError, Wish
from ansible_collections.cpufleet.vllm.plugins.module_utils._unit import (
    UnitState,
    hopeless,
    journal_command,
    parse_unit,
    show_command,
)

PAUSE = 0.5
ATTEMPT = 10.0  # a server that is loading may accept a connection and not answer it


class Unit:
    """The systemd unit of the server: its state, and the journal of the starts that were seen."""

    def __init__(self, module: AnsibleModule, name: str) -> None:
        self._run = module.run_command
        self._name = name
        self._invocations: list[str] = []
        self.first = self.state = self.look()

    def look(self) -> UnitState:
        """Return the state now, and remember the start that it belongs to."""
        self.state = parse_unit(self._run(show_command(self._name))[1])
        if self.state.invocation and self.state.invocation not in self._invocations:
            self._invocations.append(self.state.invocation)
        return self.state

    def check(self) -> None:
        """Raise when waiting for the unit makes no sense any more."""
        reason = hopeless(self.first, self.look())
        if reason:
            raise CpufleetError(f"The unit {self._name} does not serve: {reason}")

    def check_running(self) -> None:
        """Raise unless the unit runs: an answer that came while it does not was another process's."""
        if self.look().active != "active":
            raise CpufleetError(
                f"The question was answered, but not by the unit {self._name}: it is {self.state.active}",
                "Find out with `ss -ltnp` which process listens on that port",
            )

    def cause(self) -> FirstCause | None:
        """Return the first cause in the journal of the oldest start that tells one."""
        self.look()
        self._run(["journalctl", "--sync"])
        for invocation in [*self._invocations, ""]:
            journal = self._run(journal_command(self._name, invocation), errors="replace")[1]
            found = first_cause(journal.splitlines())
            if found is not None:
                return found
        return None


class Probe:
    """One run of the probe: wait for the model, ask, judge."""

    def __init__(self, module: AnsibleModule, key: str) -> None:
        self._options: dict[str, Any] = module.params
        self._started = time.monotonic()
        self._deadline = self._started + self._options["timeout"]
        self._client = Client(self._options["url"], key)
        self.unit = Unit(module, self._options["unit"]) if self._options["unit"] else None
        self.models: list[str] = []

    def run(self) -> dict[str, Any]:
        """Return the module's result; raise CpufleetError on every way to fail."""
        model = self._wait()
        waited = round(time.monotonic() - self._started, 2)
        answer, plain = self._ask(model)
        check_answer(answer.text, self._options["expect"])
        if self.unit is not None:
            self.unit.check_running()
        return {
            "answer": answer.text,
            "completion": plain,
            "model": model,
            "ttft_s": answer.ttft_s,
            "tokens_per_s": answer.tokens_per_s,
            "tokens": answer.tokens,
            "finish_reason": answer.finish_reason,
            "waited_s": waited,
        }

    def _wait(self) -> str:
        """Wait until the server lists the model; return the model's name."""
        while True:
            try:
                self.models = self._client.models(min(self._deadline, time.monotonic() + ATTEMPT))
                return self._choose()
            except NotReadyError as error:
                if self.unit is not None:
                    self.unit.check()
                if time.monotonic() + PAUSE >= self._deadline:
                    raise CpufleetError(f"{error.problem}, for {self._options['timeout']} s", error.remedy) from error
            time.sleep(PAUSE)

    def _choose(self) -> str:
        wanted = str(self._options["model"])
        if wanted in self.models or (not wanted and len(self.models) == 1):
            return wanted or self.models[0]
        listed = ", ".join(self.models) or "no model"
        raise CpufleetError(
            f"The server at {self._options['url']} lists {listed}, asked for was {wanted or 'its only model'}",
            "Correct the option model, or look whether another service answers at that address",
        )

    def _ask(self, model: str) -> tuple[Answer, str]:
        """Return the answer to judge, and the text of a plain completion asked beside a chat."""
        options = self._options
        limits = {"max_tokens": options["max_tokens"], "temperature": options["temperature"]}
        if not options["messages"]:
            return self._client.ask(model, Wish(prompt=options["prompt"], **limits), self._deadline), ""
        chat = self._client.ask(model, Wish(messages=tuple(options["messages"]), **limits), self._deadline)
        if not options["prompt"]:
            return chat, ""
        plain = self._client.ask(model, Wish(prompt=options["prompt"], **limits), self._deadline)
        check_answer(plain.text, "")
        return chat, plain.text


def fail(module: AnsibleModule, error: CpufleetError, probe: Probe | None, key: str) -> None:
    """End the module with the error, and with the first cause in the unit's journal where one is found.

    A wrong answer has no cause there: what the journal holds then is older than the question.
    """
    unit = probe.unit if probe is not None else None
    cause = unit.cause() if unit is not None and "answer" not in error.details else None
    message = str(error)
    result: dict[str, Any] = {"first_cause": {}, "unit_state": {}, "models": probe.models if probe is not None else []}
    if unit is not None:
        state = unit.state
        result["unit_state"] = {
            "active": state.active,
            "sub": state.sub,
            "result": state.result,
            "restarts": state.restarts,
        }
    if cause is not None:
        message += f" First cause in the journal of {module.params['unit']}: {cause.sentence()}"
        result["first_cause"] = {name: redact(value, key) for name, value in cause.as_dict().items()}
    module.fail_json(msg=redact(message, key), **{**error.details, **result})


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "model": {"type": "str", "default": ""},
            "messages": {"type": "list", "elements": "dict", "default": []},
            "prompt": {"type": "str", "default": ""},
            "expect": {"type": "str", "default": ""},
            "api_key_file": {"type": "path", "no_log": False},
            "timeout": {"type": "int", "default": 600},
            "max_tokens": {"type": "int", "default": 32, "no_log": False},
            "temperature": {"type": "float", "default": 0},
            "unit": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    key, probe = "", None
    try:
        if not module.params["messages"] and not module.params["prompt"]:
            raise CpufleetError("There is nothing to ask", "Give messages for a chat or prompt for a plain completion")
        check_expect(module.params["expect"])
        if module.params["api_key_file"]:
            key = read_text(module.params["api_key_file"]).strip()
        probe = Probe(module, key)
        result = probe.run()
        module.exit_json(changed=False, models=probe.models, **result)
    except CpufleetError as error:
        fail(module, error, probe, key)


if __name__ == "__main__":
    main()
