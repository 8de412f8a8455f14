#!/usr/bin/python
# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: host_info
short_description: Tell what a host is and what it has to spare
version_added: "0.1.0"
description:
  - Gathers what decisions about building and serving vLLM on a CPU are made from, out of files and a few cheap
    commands.
  - Memory is what this process may use, that is, bounded by the limits of its control groups (v1 and v2).
  - Needs no root and nothing but the standard library of Python 3.8 or newer. What only root can see, such as the
    process behind another user's port, is left empty.
author:
  - The cpufleet maintainers (@cpufleet)
extends_documentation_fragment:
  - cpufleet.vllm.attributes.info
options:
  root:
    description:
      - The folder under which to read.
      - With any other value than V(/) only files are read and nothing is run, so that an image that is being baked or
        a captured host can be analysed. Versions of compilers and Pythons, free space and the clock are then V(null).
    type: path
    default: /
  paths:
    description:
      - Places whose free space, filesystem and mount are wanted. For a path that does not exist the nearest existing
        parent is taken.
    type: list
    elements: str
    default:
      - /
      - /tmp
"""

EXAMPLES = r"""
- name: Look at this host
  cpufleet.vllm.host_info:
  register: result

- name: Also ask for the space under the places that a build uses
  cpufleet.vllm.host_info:
    paths:
      - /opt/vllm
      - /var/tmp

- name: Analyse a host that was captured elsewhere
  cpufleet.vllm.host_info:
    root: /srv/captured/host-a
"""

RETURN = r"""
host:
  description: What was found.
  returned: success
  type: dict
  contains:
    os:
      description:
        - RV(host.os.id), RV(host.os.version), RV(host.os.name) and RV(host.os.codename) are those of os-release.
      type: dict
      returned: success
      contains:
        id:
          description: Lower-case C(ID), or V(unknown).
          type: str
          returned: success
        version:
          description: C(VERSION_ID).
          type: str
          returned: success
        name:
          description: C(PRETTY_NAME).
          type: str
          returned: success
        codename:
          description: C(VERSION_CODENAME), empty where there is none.
          type: str
          returned: success
        family:
          description: How packages are handled, one of V(debian), V(rpm), V(suse), V(other).
          type: str
          returned: success
        el_level:
          description: The release of RHEL that an rpm system is built like, such as V(8) for Alibaba Cloud Linux 3.
          type: int
          returned: success
        libc:
          description: Version of the GNU C library, empty where unknown; the same as RV(host.libc.version).
          type: str
          returned: success
        libstdcxx:
          description: Highest C(GLIBCXX) version of the installed C++ library, empty where there is none.
          type: str
          returned: success
      sample: {"id": "debian", "version": "12", "family": "debian", "libc": "2.36", "libstdcxx": "3.4.30"}
    allocator:
      description: The path of C(libtcmalloc_minimal.so.4), an allocator that vLLM is faster with; empty without it.
      type: str
      returned: success
    libc:
      description: What the 64-bit C and C++ run-time libraries offer, read from the files themselves.
      type: dict
      returned: success
      contains:
        kind:
          description: V(glibc), V(musl), or V(unknown) where no C library was found.
          type: str
          returned: success
        version:
          description: The newest C(GLIBC) symbol version, empty where unknown.
          type: str
          returned: success
        glibcxx:
          description: The newest C(GLIBCXX) symbol version of C(libstdc++.so.6), empty where there is none.
          type: str
          returned: success
        cxxabi:
          description: The newest C(CXXABI) symbol version of C(libstdc++.so.6), empty where there is none.
          type: str
          returned: success
      sample: {"kind": "glibc", "version": "2.36", "glibcxx": "3.4.30", "cxxabi": "1.3.13"}
    kernel:
      description: Release of the running kernel.
      type: str
      returned: success
    arch:
      description: Machine architecture.
      type: str
      returned: success
      sample: x86_64
    cpu:
      description: The processor, and how much of it may be used.
      type: dict
      returned: success
      contains:
        model:
          description: Name of the processor.
          type: str
          returned: success
        vendor:
          description: Its maker, as the kernel spells it.
          type: str
          returned: success
        flags:
          description: The features that all processors of the host have.
          type: list
          elements: str
          returned: success
        isa_class:
          description:
            - One of V(avx2), V(avx512), V(avx512_bf16), V(amx), V(neon), V(neon_bf16).
            - V(null) where no vLLM build can run.
          type: str
          returned: success
        isa_reason:
          description: What decided RV(host.cpu.isa_class).
          type: str
          returned: success
        logical_cpus:
          description: Processors that are online, hyper-threads counted.
          type: int
          returned: success
        cores:
          description: Physical cores that are online.
          type: int
          returned: success
        threads_per_core:
          description: Hyper-threads of a core.
          type: int
          returned: success
        sockets:
          description: Processor packages.
          type: int
          returned: success
        numa_nodes:
          description: Number of NUMA nodes.
          type: int
          returned: success
        numa:
          description: Each NUMA node with its processors and memory.
          type: list
          elements: dict
          returned: success
        usable_cpus:
          description: Processors that this process may keep busy, after affinity, cpuset and time quota.
          type: int
          returned: success
        cpuset:
          description: Numbers of the processors that this process may run on.
          type: list
          elements: int
          returned: success
        quota_cpus:
          description: Processors' worth of time that the control group grants, V(null) without a quota.
          type: float
          returned: success
    memory:
      description: Memory that this process may use.
      type: dict
      returned: success
      contains:
        total_bytes:
          description: C(MemTotal).
          type: int
          returned: success
        available_bytes:
          description: C(MemAvailable), bounded by what every control group limit leaves.
          type: int
          returned: success
        cgroup:
          description: The version of the control groups that limit memory, V(0) without any.
          type: int
          returned: success
        limit_bytes:
          description: The lowest limit that is below C(MemTotal), V(null) without one.
          type: int
          returned: success
        limit_source:
          description: The file that sets RV(host.memory.limit_bytes).
          type: str
          returned: success
        swap_limit_bytes:
          description: How much swap the control groups let this process use, V(null) where they set no limit.
          type: int
          returned: success
        swap_total_bytes:
          description: C(SwapTotal), compressed memory included.
          type: int
          returned: success
        swap_free_bytes:
          description: C(SwapFree), compressed memory included.
          type: int
          returned: success
    swap:
      description:
        - Active swap devices with C(path), C(kind) (V(file), V(partition) or V(zram)), C(size_bytes), C(used_bytes),
          C(priority) and C(ours) (whether M(cpufleet.vllm.swapfile) wrote the fstab entry).
      type: list
      elements: dict
      returned: success
    disks:
      description:
        - For each of O(paths) C(nearest) (the existing parent), C(mount), C(filesystem), C(source), C(tmpfs),
          C(network), C(read_only), C(noexec), C(total_bytes) and C(free_bytes) (what an ordinary user may still take).
      type: dict
      returned: success
    shm_free_bytes:
      description: Free space of C(/dev/shm), V(0) where there is none.
      type: int
      returned: success
    virtualization:
      description: The innermost layer, such as V(docker), V(lxc), V(kvm), or V(none).
      type: str
      returned: success
    compilers:
      description: Each gcc and g++ with C(path), C(language) (V(c) or V(c++)) and C(version).
      type: list
      elements: dict
      returned: success
    pythons:
      description:
        - Each Python 3 with C(path), C(version), C(venv) (whether it can make a venv with pip) and C(headers)
          (whether C(Python.h) is there).
      type: list
      elements: dict
      returned: success
    gpus:
      description: GPUs that vLLM would notice, with C(address) and C(driver); none of them is used.
      type: list
      elements: dict
      returned: success
    listeners:
      description:
        - Listening TCP sockets with C(port), C(address), C(user), C(pid), C(process) and the systemd C(unit) of that
          process.
        - What a user may not see of another user's process, as root in an unprivileged container, is V(null) or empty.
      type: list
      elements: dict
      returned: success
    systemd:
      description: Whether systemd is the running init.
      type: bool
      returned: success
    clock:
      description: The host's time, seconds since 1970.
      type: int
      returned: success
    uptime_s:
      description: Seconds since the host started.
      type: int
      returned: success
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._host import gather_host


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "default": "/"},
            "paths": {"type": "list", "elements": "str", "default": ["/", "/tmp"]},  # noqa: S108
        },
        supports_check_mode=True,
    )
    try:
        host = gather_host(module.params["root"], tuple(module.params["paths"]))
    except CpufleetError as error:
        module.fail_json(msg=str(error), **error.details)
    module.exit_json(changed=False, host=host)


if __name__ == "__main__":
    main()
