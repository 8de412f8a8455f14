#!/usr/bin/python
# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: source_info
short_description: Tell how a vLLM source is built and detects the CPU
version_added: "0.1.0"
description:
  - Reads a vLLM source, 0.6.3 or newer, and returns what a CPU build and a CPU service of it need to know.
  - Nothing of the source is run or imported. Python and TOML are parsed, and CMake is walked through for a made-up host
    of each ISA class. No archive is unpacked to disk.
  - Generations are told by the shape of the files. A source newer than this collection gives everything that can be
    read, and what was not recognised stands in RV(source.unknown).
  - Edits made by this collection are seen through, so that a patched tree has the facts of its release.
  - Meant for the controller, where a Python new enough to parse current vLLM is.
extends_documentation_fragment:
  - cpufleet.vllm.attributes.info
author:
  - The cpufleet maintainers (@cpufleet)
requirements:
  - Python 3.11, or tomli on an older Python
options:
  path:
    description:
      - An unpacked source, a git checkout, a source distribution or other archive (C(.tar.gz), C(.zip)), or a wheel.
    type: path
    required: true
seealso:
  - module: cpufleet.vllm.platform_info
"""

EXAMPLES = r"""
- name: Read a source on the controller
  cpufleet.vllm.source_info:
    path: /srv/sources/vllm-0.6.5.tar.gz
  delegate_to: localhost
  register: __facts

# From the command line: ansible localhost -m cpufleet.vllm.source_info -a path=/srv/sources/vllm
"""

RETURN = r"""
source:
  description: What the source says.
  returned: success
  type: dict
  contains:
    source_kind:
      description: What was read, V(tree), V(git), V(sdist), V(archive) or V(wheel).
      type: str
      sample: sdist
    version:
      description: The version; null in a tree whose files do not tell, such as an archive made by a code host.
      type: str
      sample: 0.6.5
    python_requires:
      description: The range of Python versions in the metadata.
      type: str
      sample: ">=3.9"
    python_supported:
      description: The Python versions that CMake lets through, which can be fewer.
      type: list
      elements: str
      sample: ["3.9", "3.10", "3.11", "3.12"]
    abi3:
      description: Whether the extensions keep to Python's stable ABI, so that one wheel serves every Python.
      type: bool
    torch_cpu:
      description: The torch that a CPU build on x86_64 is pinned to.
      type: str
      sample: 2.5.1+cpu
    torch_build:
      description: The torch that C([build-system]) pins, which build isolation would install.
      type: str
      sample: 2.5.1
    torch_pins:
      description: All pins of torch, by V(x86_64), V(aarch64), V(build_system) and V(build_file).
      type: dict
      sample: {x86_64: 2.5.1+cpu, aarch64: 2.5.1, build_system: 2.5.1, build_file: null}
    build_requires:
      description: The requirements in C([build-system]).
      type: list
      elements: str
      sample: ["cmake>=3.26", "ninja", "torch==2.5.1"]
    gcc_floor:
      description: The version of g++ below which something is refused or left out.
      type: str
      sample: "12.3"
    gcc_floor_hard:
      description: Whether an older g++ is refused. Otherwise it builds without BF16 and what else the conditions name.
      type: bool
      sample: false
    gcc_conditions:
      description: Every condition on the version of g++ with RV(ignore:floor), RV(ignore:hard), its message and place.
      type: list
      elements: dict
      sample: []
    cxx_standard:
      description: The C++ standard that the CPU extensions are compiled for, V(null) where none is set.
      type: int
      sample: 20
    onednn:
      description:
        - The oneDNN of an x86_64 build, with C(repository), C(tag), C(condition) and C(override), and in C(aarch64)
          repository and tag of such a build, null where it fetches none.
        - The condition is V(never), V(preinstalled), V(avx512) (AVX512 builds only) or V(always).
        - The override is V(X0) (nothing is fetched), V(X1) (it must be installed), V(X2) (by a CMake variable in a tool
          chain file or a git URL rewrite only) or V(X3) (by the environment variable
          E(FETCHCONTENT_SOURCE_DIR_ONEDNN)).
      type: dict
      sample:
        repository: https://github.com/oneapi-src/oneDNN.git
        tag: v3.6
        condition: avx512
        override: X2
        aarch64: {repository: null, tag: null}
    arm_compute:
      description:
        - The Arm Compute Library of an aarch64 build, with C(repository), C(tag) and C(override).
        - The override is V(A0) (the release knows none), V(A1) (a compiled one can be linked, none is by default) or
          V(A2) (fetched and compiled, or compiled from the source that the environment variable E(ACL_ROOT_DIR) names).
      type: dict
      sample: {repository: "https://github.com/ARM-software/ComputeLibrary.git", tag: v52.6.0, override: A2}
    isa:
      description: How instruction sets are served on x86_64.
      type: dict
      contains:
        generation:
          description: V(I0) to V(I5), see the guide on source facts.
          type: str
          sample: I0
        targets:
          description: The kernel libraries that a build makes.
          type: list
          elements: str
          sample: [_C]
        chosen_at:
          description: V(build) where the one library suits the build host, V(import) where one of several is loaded.
          type: str
          sample: build
        selection:
          description: The library that is loaded on a CPU of each ISA class.
          type: dict
          sample: {avx2: _C, avx512: _C, avx512_bf16: _C, amx: _C}
        switches:
          description: The environment variables that the build files read.
          type: list
          elements: str
          sample: [VLLM_CPU_AVX512BF16, VLLM_CPU_DISABLE_AVX512]
    detection:
      description: Generation of the platform detection, V(D0) to V(D6).
      type: str
      sample: D1
    suffix:
      description: Generation of the rule that puts C(+cpu) into the version, V(S0) to V(S5).
      type: str
      sample: S2
    async_output:
      description: Whether C(verify_async_output_proc) is there (C(present)), and in which C(file).
      type: dict
      sample: {present: true, file: vllm/config.py}
    arguments:
      description: For C(device), C(swap_space) and C(enforce_eager), V(present), V(forced), V(ignored) or V(absent).
      type: dict
      sample: {device: present, swap_space: present, enforce_eager: forced}
    cpu_environment:
      description: The C(VLLM_CPU_*) variables of a running engine with their defaults; null where none is set.
      type: dict
      sample: {VLLM_CPU_KVCACHE_SPACE: 0, VLLM_CPU_OMP_THREADS_BIND: all}
    quantization:
      description:
        - For each ISA class the quantization methods that have CPU kernels, each with what they run through.
        - V(ipex) is a package of its own, which the release's requirements may not name.
      type: dict
      sample: {avx2: {awq: ipex, gptq: ipex}, avx512: {int8_w8a8: onednn, awq: ipex, gptq: ipex}}
    serving:
      description: How the installed engine is driven; null where the source does not tell.
      type: dict
      contains:
        engine:
          description: V(v0) or V(v1), the engine that serves on the CPU.
          type: str
          sample: v0
        arguments:
          description: The names of the engine's arguments; on the command line they have dashes.
          type: list
          elements: str
          sample: [dtype, max_model_len, max_num_seqs]
        kv_argument:
          description: Whether C(kv_cache_memory_bytes) is V(used) on the CPU, V(ignored) there or V(absent).
          type: str
          sample: absent
        kv_unset:
          description: What the KV cache takes when nothing is said, V(4_gib), V(half_of_free) or V(share_of_total).
          type: str
          sample: 4_gib
        head_sizes:
          description: The sizes of an attention head that the CPU kernels take.
          type: list
          elements: int
          sample: [64, 80, 96, 112, 128, 192, 256]
        experts:
          description: How models of several experts run, V(native), V(ipex) (through a package of Intel's) or V(none).
          type: str
          sample: none
        nobind:
          description: Whether C(VLLM_CPU_OMP_THREADS_BIND) takes V(nobind).
          type: bool
          sample: false
        sliding_window:
          description: Whether models with a sliding window are served with it.
          type: bool
          sample: true
    rust:
      description: V(none), V(optional) or V(required).
      type: str
      sample: none
    requirements_files:
      description: The requirements files for the CPU with the files they include, for C(cpu) (run time) and C(build).
      type: dict
      sample: {cpu: [requirements-cpu.txt, requirements-common.txt], build: []}
    requirements:
      description:
        - The requirement lines of these files, comments removed and included files followed, for C(cpu) (run time)
          and C(build), and the option lines such as additional indexes in C(options).
        - Without a build file, C(build) is what C([build-system]) requires.
      type: dict
      sample: {cpu: ["psutil", "torch==2.5.1+cpu ; platform_machine == 'x86_64'"], build: ["ninja"], options: []}
    known_fixes:
      description: The known faults of this release on the CPU that M(cpufleet.vllm.source_fix) mends.
      type: list
      elements: dict
      contains:
        name:
          description: Name of the fix.
          type: str
        releases:
          description: The releases that have the fault.
          type: str
        symptom:
          description: How it shows.
          type: str
        evidence:
          description: What in the source causes it.
          type: str
        state:
          description: V(applicable), or V(applied) in a tree that has the fix.
          type: str
        torch:
          description: The first torch with which the fault shows, empty where it shows with the release's own.
          type: str
    edits:
      description: The edits of this collection that stand in the tree.
      type: list
      elements: str
      sample: []
    evidence:
      description: Where the main facts were read, as file and line.
      type: dict
      sample: {torch_cpu: "requirements-cpu.txt:5", detection: "vllm/platforms/__init__.py:73"}
    unknown:
      description: What was not recognised; empty for the releases that this collection knows.
      type: list
      elements: str
      sample: []
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._source import read_source


def main() -> None:
    module = AnsibleModule(
        argument_spec={"path": {"type": "path", "required": True}},
        supports_check_mode=True,
    )
    try:
        facts = read_source(module.params["path"])
    except CpufleetError as error:
        module.fail_json(msg=str(error), **error.details)
    for remark in facts.unknown:
        module.warn(f"vLLM source {module.params['path']}: {remark}")
    module.exit_json(changed=False, source=facts.to_result())


if __name__ == "__main__":
    main()
