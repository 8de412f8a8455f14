#!/usr/bin/python
# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: serve_plan
short_description: Plan how a model is served on a host, or tell what fits instead
version_added: "0.1.0"
author:
  - The cpufleet maintainers (@cpufleet)
description:
  - Decides from numbers, before anything is downloaded or changed, whether a model can be served on a host, by which
    engine, with how much memory, how it is told so, and about how fast it will be.
  - Of the model only C(config.json), the index and the heads of the weight files are read. Weights that are not there
    yet are counted from the index or the shape.
  - Where nothing fits the module fails with the numbers and with the nearest thing that does fit.
extends_documentation_fragment:
  - cpufleet.vllm.attributes
  - cpufleet.vllm.attributes.info
options:
  model:
    description:
      - A folder with C(config.json), a GGUF file, or a C(config.json) with C(model.safetensors.index.json) beside it.
      - A GGUF file is told by its first bytes. A folder may hold both kinds; the faster one that fits is planned.
    type: path
    required: true
  host:
    description: What M(cpufleet.vllm.host_info) returned for the host that is to serve.
    type: dict
    required: true
  source:
    description:
      - What M(cpufleet.vllm.source_info) returned for the release of vLLM.
      - Without it only O(engine=llama_cpp) can be planned.
    type: dict
  context:
    description: Tokens of one request, prompt and answer together; V(0) for as much as model and memory allow.
    type: int
    default: 0
  concurrency:
    description: How many requests are to be answered at the same time.
    type: int
    default: 1
  engine:
    description:
      - V(auto) takes the engine that decodes fastest for O(concurrency) of those that can serve the model here.
    type: str
    choices: [auto, vllm, llama_cpp]
    default: auto
  dtype:
    description: The number format of vLLM; V(auto) takes 16 bits of the kind that suits the CPU.
    type: str
    choices: [auto, bfloat16, float16, float32]
    default: auto
  force:
    description: Whether to return a plan with a warning where the model does not fit, instead of failing.
    type: bool
    default: false
seealso:
  - module: cpufleet.vllm.host_info
  - module: cpufleet.vllm.source_info
  - module: cpufleet.vllm.model_info
"""

EXAMPLES = r"""
- name: Ask what the host is
  cpufleet.vllm.host_info:
  register: described

- name: Ask how the release is driven
  cpufleet.vllm.source_info:
    path: /srv/sources/vllm-0.6.5.tar.gz
  delegate_to: localhost
  register: facts

- name: Plan for one user and 4096 tokens
  cpufleet.vllm.serve_plan:
    model: /srv/models/Qwen2.5-0.5B-Instruct
    host: "{{ described.host }}"
    source: "{{ facts.source }}"
    context: 4096
  delegate_to: localhost
  register: planned
"""

RETURN = r"""
plan:
  description: The plan; also returned when the module fails because the model does not fit.
  returned: when the model could be read
  type: dict
  contains:
    fits:
      description: Whether the host can serve the model so.
      type: bool
      sample: true
    engine:
      description: V(vllm) or V(llama_cpp).
      type: str
      sample: vllm
    weights_bytes:
      description: What the weights take in RV(plan.dtype).
      type: int
      sample: 988097536
    overhead_bytes:
      description: What the engine takes beside weights and KV cache while it reads its longest prompts.
      type: int
      sample: 1300000000
    kv_bytes_per_token:
      description: What one token takes in the KV cache.
      type: int
      sample: 12288
    kv_bytes:
      description: The KV cache, in the unit in which the release takes it.
      type: int
      sample: 1073741824
    max_model_len:
      description: The tokens of one request.
      type: int
      sample: 4096
    max_num_seqs:
      description: The requests that are answered at the same time.
      type: int
      sample: 1
    dtype:
      description: The number format.
      type: str
      sample: bfloat16
    threads:
      description: How many threads compute.
      type: int
      sample: 2
    thread_binding:
      description: The CPUs that they are bound to; V(all) or V(nobind) where they are not, empty with llama.cpp.
      type: str
      sample: 0-1
    environment:
      description: Environment variables of the service, only such as the release knows.
      type: dict
      sample: {OMP_NUM_THREADS: "2", VLLM_CPU_KVCACHE_SPACE: "1"}
    arguments:
      description: Words of the engine's command line, only such as the release knows.
      type: list
      elements: str
      sample: [--dtype, bfloat16, --max-model-len, "4096", --max-num-seqs, "1", --enforce-eager]
    preload:
      description:
        - Libraries that vLLM is to load first where they are there.
        - The host's allocator by its path, the OpenMP that the release brings by its name.
      type: list
      elements: str
      sample: [/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4, libiomp5.so]
    memory_max_bytes:
      description: The limit for the whole service, weights, overhead and KV cache together.
      type: int
      sample: 3361839360
    expected_tokens_per_s:
      description: The tokens a second of all RV(plan.max_num_seqs) requests together, at short context.
      type: float
      sample: 12.5
    reasons:
      description: Why each number is what it is.
      type: list
      elements: dict
      contains:
        decision:
          description: What was decided, most often the name of another key.
          type: str
        text:
          description: The reason.
          type: str
    refusal:
      description: Why it does not fit.
      type: dict
      contains:
        text:
          description: The reason in numbers, and the nearest thing that fits; empty where the plan fits.
          type: str
        alternatives:
          description: What does fit, nearest first.
          type: list
          elements: dict
          contains:
            engine:
              description: V(vllm) or V(llama_cpp).
              type: str
            model:
              description: The name of the model.
              type: str
            repository:
              description: Where it is published; empty for the model that was asked about.
              type: str
            licence:
              description: The licence of the weights; empty for the model that was asked about.
              type: str
            quantization:
              description: The form of the weights, V(none) for 16-bit floats.
              type: str
            parameters:
              description: How many weights it has.
              type: int
            weights_bytes:
              description: What they take.
              type: int
            needed_bytes:
              description: What the whole service takes.
              type: int
            max_model_len:
              description: The tokens of one request.
              type: int
            max_num_seqs:
              description: The requests at the same time.
              type: int
            expected_tokens_per_s:
              description: The tokens a second of all of them together.
              type: float
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan import plan_serve
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan_read import read_candidates
from ansible_collections.cpufleet.vllm.plugins.module_utils._serve_plan_types import Wish


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "model": {"type": "path", "required": True},
            "host": {"type": "dict", "required": True},
            "source": {"type": "dict"},
            "context": {"type": "int", "default": 0},
            "concurrency": {"type": "int", "default": 1},
            "engine": {"type": "str", "choices": ["auto", "vllm", "llama_cpp"], "default": "auto"},
            "dtype": {"type": "str", "choices": ["auto", "bfloat16", "float16", "float32"], "default": "auto"},
            "force": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    given = module.params
    wish = Wish(given["context"], given["concurrency"], given["engine"], given["dtype"])
    try:
        plan = plan_serve(read_candidates(given["model"]), given["host"], given["source"], wish)
    except CpufleetError as error:
        module.fail_json(msg=str(error), **error.details)
    if not plan["fits"]:
        if not given["force"]:
            module.fail_json(msg=plan["refusal"]["text"], plan=plan)
        module.warn(f"Forced: {plan['refusal']['text']}")
    module.exit_json(changed=False, plan=plan)


if __name__ == "__main__":
    main()
