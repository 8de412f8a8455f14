# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the parsers behind host_info make of real and hand-written files, and the whole of it under another root."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils import _host_cpu as cpu
from ansible_collections.cpufleet.vllm.plugins.module_utils import _host_memory as memory
from ansible_collections.cpufleet.vllm.plugins.module_utils import _host_probe as probe
from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._host import gather_host
from ansible_collections.cpufleet.vllm.plugins.module_utils._host_mounts import mount_of, parse_mountinfo
from ansible_collections.cpufleet.vllm.plugins.module_utils._host_net import parse_listeners, unit_of_cgroup
from ansible_collections.cpufleet.vllm.plugins.module_utils._host_os import libstdcxx_version, parse_os_release
from ansible_collections.cpufleet.vllm.plugins.module_utils._host_read import Root, read_virtualization

FIXTURES = Path(__file__).parent / "fixtures" / "host"
GIB = 1 << 30
KIB = 1024


def text(*parts: str) -> str:
    return FIXTURES.joinpath(*parts).read_text(encoding="utf-8")


# model, logical, cores, threads a core, sockets
CPUS = {
    "broadwell-1-core-2-threads": ("Intel(R) Xeon(R) CPU E5-2682 v4 @ 2.50GHz", 2, 1, 2, 1),
    "cascade-lake": ("Intel(R) Xeon(R) Platinum 8269CY CPU @ 2.50GHz", 4, 2, 2, 1),
    "genoa-firecracker": ("AMD EPYC", 2, 2, 1, 1),
    "graviton-3": ("Neoverse-V1", 2, 2, 1, 1),
    "haswell-avx2-masked-on-one-cpu": ("Intel(R) Xeon(R) CPU E5-2680 v3 @ 2.50GHz", 2, 2, 1, 1),
    "hygon-7285": ("Hygon C86 7285 32-core Processor", 2, 2, 1, 1),
    "ice-lake": ("Intel(R) Xeon(R) Platinum 8369B CPU @ 2.70GHz", 4, 2, 2, 2),
    "ivy-bridge-avx-only": ("Intel(R) Xeon(R) CPU E5-2670 v2 @ 2.50GHz", 4, 4, 1, 2),
    "knights-landing": ("Intel(R) Xeon Phi(TM) CPU 7250 @ 1.40GHz", 4, 1, 4, 1),
    "kunpeng-920": ("Kunpeng-920", 2, 2, 1, 1),
    "milan": ("AMD EPYC 7T83 64-Core Processor", 2, 1, 2, 1),
    "power9": ("POWER9 (architected), altivec supported", 4, 4, 1, 1),
    "qemu64": ("QEMU Virtual CPU version 2.5+", 2, 2, 1, 2),
    "raspberry-pi-4": ("Cortex-A72", 4, 4, 1, 1),
    "riscv64": ("unknown", 2, 2, 1, 1),
    "sapphire-rapids-amx": ("Intel(R) Xeon(R) Platinum 8475B", 2, 1, 2, 1),
    "sapphire-rapids-amx-masked": ("Intel(R) Xeon(R) Platinum 8475B", 2, 1, 2, 1),
    "yitian-710": ("Neoverse-N2", 4, 4, 1, 1),
}


@pytest.mark.parametrize("name", sorted(path.name for path in (FIXTURES / "cpuinfo").iterdir()))
def test_every_cpuinfo(name: str) -> None:
    found = cpu.parse_cpuinfo(text("cpuinfo", name))
    assert CPUS[name] == (found.model, found.logical_cpus, found.cores, found.threads_per_core, found.sockets)


def test_siblings_stand_in_where_cpuinfo_has_no_core_ids() -> None:
    siblings = {0: "0-1\n", 1: "0-1\n", 2: "2-3\n", 3: "2-3\n"}
    found = cpu.parse_cpuinfo(text("cpuinfo", "yitian-710"), siblings)
    assert (found.cores, found.threads_per_core) == (2, 2)


def test_empty_cpuinfo_is_one_unknown_cpu() -> None:
    assert cpu.parse_cpuinfo("") == cpu.CpuInfo("unknown", "", (), 1, 1, 1, 1)


@pytest.mark.parametrize(
    ("list_text", "cpus"), [("0-3,8,10-11\n", (0, 1, 2, 3, 8, 10, 11)), ("", ()), ("0", (0,)), ("a-b", ())]
)
def test_cpu_lists(list_text: str, cpus: tuple[int, ...]) -> None:
    assert cpu.parse_cpu_list(list_text) == cpus


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"cpu_max": "150000 100000\n"}, 1.5),
        ({"cpu_max": "max 100000\n"}, None),
        ({"cpu_max": ""}, None),
        ({"quota_us": "200000\n", "period_us": "100000\n"}, 2.0),
        ({"quota_us": "-1\n", "period_us": "100000\n"}, None),
        ({"cpu_max": "100000 0"}, None),
    ],
)
def test_cpu_quotas(files: dict[str, str], quota: float | None) -> None:
    assert cpu.parse_cpu_quota(**files) == quota


@pytest.mark.parametrize(
    ("logical", "allowed", "quotas", "usable"),
    [
        (8, [], [], 8),
        (8, [0, 1, 2], [], 3),
        (8, range(8), [1.5, 4.0], 1),
        (8, range(8), [0.5], 1),
        (2, [0, 1], [4.0], 2),
    ],
)
def test_usable_cpus(logical: int, allowed: list[int], quotas: list[float], usable: int) -> None:
    assert cpu.usable_cpus(logical, allowed, quotas) == usable


# id, version, family, EL level
SYSTEMS = {
    "alinux-2": ("alinux", "2.1903", "rpm", 7),
    "alinux-3": ("alinux", "3", "rpm", 8),
    "almalinux-8": ("almalinux", "8.10", "rpm", 8),
    "alpine-3.20": ("alpine", "3.20.3", "other", None),
    "anolis-8": ("anolis", "8.9", "rpm", 8),
    "broken-quote": ("ubuntu", "22.04", "debian", None),
    "centos-7": ("centos", "7", "rpm", 7),
    "debian-12": ("debian", "12", "debian", None),
    "debian-13": ("debian", "13", "debian", None),
    "openeuler-22.03": ("openeuler", "22.03", "rpm", None),
    "opensuse-leap-15": ("opensuse-leap", "15.6", "suse", None),
    "rhel-9": ("rhel", "9.5", "rpm", 9),
    "rocky-9": ("rocky", "9.4", "rpm", 9),
    "ubuntu-22.04": ("ubuntu", "22.04", "debian", None),
    "ubuntu-24.04": ("ubuntu", "24.04", "debian", None),
    "unknown-like-debian": ("somerespin", "", "debian", None),
    "uos-20-desktop": ("uos", "20", "debian", None),
    "uos-20-server": ("uos", "20", "rpm", None),
}


@pytest.mark.parametrize("name", sorted(path.name for path in (FIXTURES / "os_release").iterdir()))
def test_every_os_release(name: str) -> None:
    found = parse_os_release(text("os_release", name))
    assert SYSTEMS[name] == (found.id, found.version, found.family, found.el_level)


def test_os_release_details() -> None:
    assert parse_os_release("").family == "other"
    assert parse_os_release(text("os_release", "unknown-like-debian")).name == "It's a respin"
    assert parse_os_release(text("os_release", "debian-12")).codename == "bookworm"
    assert libstdcxx_version("/usr/lib64/libstdc++.so.6.0.30") == "3.4.30"
    assert libstdcxx_version("/usr/lib64/libstdc++.so.6.0.30-gdb.py") == ""


# available, limit, and the file that limits
MEMORY = {
    "bench-hybrid": (23424228 * KIB, None, ""),
    "hybrid-limit-above-ram": (3 * GIB, None, ""),
    "no-memavailable": ((16 * GIB) // 8 + (16 * GIB) // 64 + (16 * GIB) // 4, None, ""),
    "v1-docker-limit-2g": (3 * GIB // 2, 2 * GIB, "cgroup v1: /sys/fs/cgroup/memory/memory.limit_in_bytes"),
    "v1-nested-tighter-parent": (GIB, 4 * GIB, "cgroup v1: /sys/fs/cgroup/memory/outer/memory.limit_in_bytes"),
    "v1-sentinel": (12 * GIB, None, ""),
    "v2-container-limit-4g": (3 * GIB + GIB // 4, 4 * GIB, "cgroup v2: /sys/fs/cgroup/memory.max"),
    "v2-high-below-max": (GIB, 6 * GIB, "cgroup v2: /sys/fs/cgroup/a.slice/memory.max"),
    "v2-limit-in-parent": (6 * GIB, 8 * GIB, "cgroup v2: /sys/fs/cgroup/user.slice/user-1000.slice/memory.max"),
    "v2-no-limit": (12 * GIB, None, ""),
    "v2-outside-namespace": (3 * GIB, 3 * GIB, "cgroup v2: /sys/fs/cgroup/memory.max"),
    "v2-used-up": (0, GIB, "cgroup v2: /sys/fs/cgroup/memory.max"),
}


@pytest.mark.parametrize("name", sorted(path.name for path in (FIXTURES / "memory").iterdir()))
def test_memory_is_bounded_by_every_cgroup(name: str) -> None:
    found = gather_host(str(FIXTURES / "memory" / name))["memory"]
    assert MEMORY[name] == (found["available_bytes"], found["limit_bytes"], found["limit_source"])


# How much swap the control groups let a process use; without an entry here all that there is.
SWAP_LIMITS = {
    "hybrid-limit-above-ram": 124 * GIB,
    "v1-docker-limit-2g": GIB,
    "v2-container-limit-4g": 0,
    "v2-limit-in-parent": GIB,
}


@pytest.mark.parametrize("name", sorted(path.name for path in (FIXTURES / "memory").iterdir()))
def test_swap_is_bounded_by_every_cgroup(name: str) -> None:
    found = gather_host(str(FIXTURES / "memory" / name))["memory"]
    assert found["swap_limit_bytes"] == SWAP_LIMITS.get(name)


def test_cpu_quota_of_a_cgroup_bounds_the_usable_cpus() -> None:
    found = gather_host(str(FIXTURES / "memory" / "v1-docker-limit-2g"))["cpu"]
    assert found["quota_cpus"] == 1.5
    assert found["usable_cpus"] == 1


DEVICES = {
    "deleted": [("/swapfile (deleted)", "file", 65532, 0, -2)],
    "file": [("/swapfile", "file", 2097148, 1024, -2)],
    "large-page": [("/swapfile", "file", 8388544, 0, -2)],
    "mixed": [
        ("/dev/zram0", "zram", 1003516, 12, 100),
        ("/swapfile", "file", 8388604, 0, -2),
        ("/dev/dm-1", "partition", 4194300, 77824, -3),
    ],
    "none": [],
    "partition": [("/dev/vda2", "partition", 1048572, 0, -2)],
    "space-in-path": [("/data/swap space/file", "file", 65532, 0, 5)],
    "two-files-old-columns": [
        ("/swapfile", "file", 2097148, 1024, -2),
        ("/swapfile.cpufleet-new", "file", 2097148, 0, -3),
    ],
    "zram": [("/dev/zram0", "zram", 1003516, 523012, 100)],
}


@pytest.mark.parametrize("name", sorted(path.name for path in (FIXTURES / "swaps").iterdir()))
def test_every_proc_swaps(name: str) -> None:
    wanted = [memory.SwapDevice(p, k, size * KIB, used * KIB, prio) for p, k, size, used, prio in DEVICES[name]]
    assert list(memory.parse_swaps(text("swaps", name))) == wanted


@pytest.mark.parametrize(
    ("path", "point", "filesystem"),
    [
        ("/", "/", "ext4"),
        ("/var/tmp", "/", "ext4"),
        ("/tmp/x", "/tmp", "tmpfs"),
        ("/tmpfile", "/", "ext4"),
        ("/data/models", "/data", "xfs"),
        ("/data/nfs share/a", "/data/nfs share", "nfs4"),
        ("/opt/vllm", "/opt", "btrfs"),
    ],
)
def test_mount_of_a_path(path: str, point: str, filesystem: str) -> None:
    mount = mount_of(path, parse_mountinfo(text("mountinfo", "vm")))
    assert mount is not None
    assert (mount.point, mount.filesystem) == (point, filesystem)


def test_listeners_of_both_families() -> None:
    found = [(one.port, one.address) for name in ("tcp", "tcp6") for one in parse_listeners(text("net", name))]
    assert found == [(8000, "127.0.0.1"), (22, "0.0.0.0"), (22, "::"), (8001, "::1")]


@pytest.mark.parametrize(
    ("cgroup", "unit"),
    [
        ("0::/system.slice/vllm.service\n", "vllm.service"),
        ("4:memory:/system.slice\n1:name=systemd:/system.slice/ssh.service\n0::/\n", "ssh.service"),
        ("0::/user.slice/user-0.slice/session-3.scope\n", "session-3.scope"),
        ("0::/system.slice/vllm.service/worker\n", "vllm.service"),
        ("0::/\n", ""),
        ("", ""),
    ],
)
def test_unit_of_a_process(cgroup: str, unit: str) -> None:
    assert unit_of_cgroup(cgroup) == unit


COMPILERS = {
    "centos-7": "4.8.5",
    "clang-called-g++": "",
    "debian-12": "12.2.0",
    "debian-13-g++-14": "14.2.0",
    "el8": "8.5.0",
    "el9": "11.5.0",
    "gcc-toolset-13": "13.3.1",
    "major-alone": "12",  # what -dumpversion alone prints
    "no-answer": "",
    "ubuntu-22.04": "11.4.0",
    "ubuntu-22.04-g++-12": "12.3.0",
    "ubuntu-24.04": "13.3.0",
}


@pytest.mark.parametrize("name", sorted(path.name for path in (FIXTURES / "gcc_version").iterdir()))
def test_every_answer_of_dumpfullversion(name: str) -> None:
    assert probe.parse_dump_version(text("gcc_version", name)) == COMPILERS[name]


@pytest.mark.parametrize(
    ("files", "flags", "name"),
    [
        ({}, (), "none"),
        ({}, ("hypervisor",), "vm-other"),
        ({"sys/class/dmi/id/sys_vendor": "Alibaba Cloud\n"}, ("hypervisor",), "kvm"),
        ({"sys/class/dmi/id/sys_vendor": "QEMU\n", "run/systemd/container": "lxc\n"}, ("hypervisor",), "lxc"),
        ({".dockerenv": ""}, (), "docker"),
        ({"proc/1/environ": "PATH=/bin\0container=podman\0"}, (), "podman"),
        ({"proc/vz/version": ""}, (), "openvz"),
        ({"proc/sys/kernel/osrelease": "5.15.90.1-microsoft-standard-WSL2\n"}, (), "wsl"),
    ],
)
def test_virtualization(tmp_path: Path, files: dict[str, str], flags: tuple[str, ...], name: str) -> None:
    fill(tmp_path, files)
    assert read_virtualization(Root(str(tmp_path)), flags) == name


def fill(root: Path, files: dict[str, str]) -> None:
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content, encoding="utf-8")


@pytest.fixture
def captured(tmp_path: Path) -> dict[str, Any]:
    """HostInfo of a host put together from fixtures under another root, with a compiler that must not be run."""
    fill(
        tmp_path,
        {
            "proc/cpuinfo": text("cpuinfo", "yitian-710"),
            "proc/meminfo": text("memory", "v2-no-limit", "proc", "meminfo"),
            "proc/self/mountinfo": text("mountinfo", "vm"),
            "proc/self/status": "Name:\tcat\nCpus_allowed_list:\t0-2\n",
            "proc/swaps": text("swaps", "mixed"),
            "proc/uptime": "1234.56 2000.00\n",
            "proc/net/tcp": text("net", "tcp"),
            "etc/fstab": text("fstab", "ours"),
            "usr/lib/os-release": text("os_release", "alinux-3"),
            "usr/lib64/libstdc++.so.6.0.25": "",
            "sys/devices/system/node/node0/cpulist": "0-1\n",
            "sys/devices/system/node/node0/meminfo": "Node 0 MemTotal:  1048576 kB\n",
            "sys/devices/system/node/node1/cpulist": "2-3\n",
            "run/systemd/system/keep": "",
            "usr/bin/g++": "#!/bin/sh\ntouch /tmp/must-not-run\n",
            "usr/bin/python3.6": "",
        },
    )
    (tmp_path / "usr/bin/g++").chmod(0o755)
    (tmp_path / "etc/os-release").symlink_to("/usr/lib/os-release")
    return gather_host(str(tmp_path), ("/", "/opt/vllm/releases", "/tmp"))


def test_captured_host_is_read_from_files_only(captured: dict[str, Any]) -> None:
    assert (captured["os"]["id"], captured["os"]["family"], captured["os"]["el_level"]) == ("alinux", "rpm", 8)
    assert captured["os"]["libstdcxx"] == "3.4.25"
    assert (captured["arch"], captured["cpu"]["isa_class"]) == ("aarch64", "neon_bf16")
    assert (captured["cpu"]["usable_cpus"], captured["cpu"]["numa_nodes"]) == (3, 2)
    assert captured["cpu"]["numa"][0] == {"id": 0, "cpus": [0, 1], "total_bytes": GIB}
    assert [(one["path"], one["kind"], one["ours"]) for one in captured["swap"]] == [
        ("/dev/zram0", "zram", False),
        ("/swapfile", "file", True),
        ("/dev/dm-1", "partition", False),
    ]
    assert captured["compilers"] == [{"path": "/usr/bin/g++", "language": "c++", "version": None}]
    assert captured["pythons"] == [{"path": "/usr/bin/python3.6", "version": None, "venv": None, "headers": None}]
    assert [one["port"] for one in captured["listeners"]] == [22, 8000]
    assert captured["disks"]["/opt/vllm/releases"] == {
        "nearest": "/opt/vllm/releases",
        "mount": "/opt",
        "filesystem": "btrfs",
        "source": "/dev/vdb",
        "tmpfs": False,
        "network": False,
        "read_only": False,
        "noexec": False,
        "total_bytes": None,
        "free_bytes": None,
    }
    assert captured["disks"]["/tmp"]["tmpfs"] is True
    assert (captured["uptime_s"], captured["clock"], captured["systemd"]) == (1234, None, True)


def test_this_machine_answers_every_field_as_plain_json(captured: dict[str, Any]) -> None:
    here = gather_host()
    assert json.loads(json.dumps(here)) == here
    assert set(here) == set(captured)
    assert here["memory"]["total_bytes"] > 0
    assert here["disks"]["/"]["free_bytes"] > 0
    assert here["cpu"]["usable_cpus"] >= 1
    assert here["pythons"], "the Python that runs this test was not found"


def test_this_machine_knows_its_compiler() -> None:
    path = shutil.which("g++")
    found = {one["path"]: one["version"] for one in gather_host()["compilers"]}
    assert path is None or found[path]


def test_root_that_is_no_folder_is_refused() -> None:
    with pytest.raises(CpufleetError) as caught:
        gather_host("/nowhere/at/all")
    assert str(caught.value) == (
        "Cannot read a host under /nowhere/at/all: it is not a folder. "
        "Name the folder that holds the host's etc and proc, or leave root out for this machine."
    )


def test_gpus_are_those_whose_driver_reports_them(tmp_path: Path) -> None:
    devices = tmp_path / "sys/bus/pci/devices"
    cards = (("0000:01:00.0", "0x030000", "nvidia"), ("0000:02:00.0", "0x038000", "amdgpu"))
    others = (
        ("0000:03:00.0", "0x030000", "nouveau"),
        ("0000:04:00.0", "0x030000", ""),
        ("0000:05:00.0", "0x020000", "nvidia"),
    )
    for address, kind, driver in (*cards, *others):
        (devices / address).mkdir(parents=True)
        (devices / address / "class").write_text(kind + "\n")
        if driver:
            (tmp_path / "sys/bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
            (devices / address / "driver").symlink_to(f"../../drivers/{driver}")
    found = gather_host(str(tmp_path), ["/"])["gpus"]
    assert found == [{"address": address, "driver": driver} for address, _kind, driver in cards]


# Where memory is limited by version 1, a hybrid host is one of version 1.
CGROUPS = {
    "bench-hybrid": 1,
    "hybrid-limit-above-ram": 1,
    "v1-docker-limit-2g": 1,
    "v1-nested-tighter-parent": 1,
    "v1-sentinel": 1,
    "no-memavailable": 0,
}


@pytest.mark.parametrize("name", sorted(path.name for path in (FIXTURES / "memory").iterdir()))
def test_version_of_the_cgroups_that_limit_memory(name: str) -> None:
    assert gather_host(str(FIXTURES / "memory" / name))["memory"]["cgroup"] == CGROUPS.get(name, 2)
