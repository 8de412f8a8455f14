# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Reads a host's files under any root: the running machine, an image that is being baked, a captured host."""

from __future__ import annotations

import glob
import os
import re
from typing import Any

from ansible_collections.cpufleet.vllm.plugins.module_utils._errors import CpufleetError
from ansible_collections.cpufleet.vllm.plugins.module_utils._host_mounts import (
    MEMORY_FILESYSTEMS,
    NETWORK_FILESYSTEMS,
    Mount,
    mount_of,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._host_net import (
    Listener,
    parse_listeners,
    unit_of_cgroup,
    user_name,
)
from ansible_collections.cpufleet.vllm.plugins.module_utils._io import read_text

__all__ = ("Root", "read_disk", "read_gpus", "read_listeners", "read_virtualization")

# Drivers through which NVML or ROCm report a GPU, which is what vLLM asks; a card without one is not seen.
_GPU_DRIVERS = ("nvidia", "amdgpu")

_DMI_VENDORS = (
    ("alibaba cloud", "kvm"),
    ("qemu", "kvm"),
    ("kvm", "kvm"),
    ("amazon ec2", "amazon"),
    ("google", "google"),
    ("openstack", "kvm"),
    ("vmware", "vmware"),
    ("innotek", "oracle"),
    ("virtualbox", "oracle"),
    ("microsoft corporation virtual machine", "microsoft"),
    ("xen", "xen"),
    ("parallels", "parallels"),
    ("bochs", "bochs"),
)


class Root:
    """The file tree to read. Nothing here raises for a missing or unreadable file: it reads as empty."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        self.live = self.path == "/"

    def where(self, name: str) -> str:
        """Return the real path of ``name``; an absolute link inside another root stays inside that root."""
        if self.live:
            return name
        place = self.path + name
        if os.path.islink(place) and os.readlink(place).startswith("/"):
            place = self.path + os.readlink(place)
        return place

    def text(self, name: str) -> str:
        try:
            return read_text(self.where(name))
        except CpufleetError:
            return ""

    def exists(self, name: str) -> bool:
        return os.path.exists(self.where(name))

    def glob(self, pattern: str) -> list[str]:
        """Return the names (without the root) that match, sorted."""
        prefix = "" if self.live else glob.escape(self.path)
        cut = 0 if self.live else len(self.path)
        return sorted(found[cut:] for found in glob.glob(prefix + pattern))


def read_disk(root: Root, path: str, mounts: tuple[Mount, ...]) -> dict[str, Any]:
    """Say where ``path`` would land: its nearest existing parent, that one's mount and its free space.

    Under another root sizes are None: a captured host's space is not the space of the disk that holds the capture.
    """
    nearest = _nearest(root, path)
    real = os.path.realpath(nearest) if root.live else nearest
    mount = mount_of(real, mounts)
    total, free = _space(real) if root.live else (None, None)
    filesystem = mount.filesystem if mount else "unknown"
    return {
        "nearest": nearest,
        "mount": mount.point if mount else "",
        "filesystem": filesystem,
        "source": mount.source if mount else "",
        "tmpfs": filesystem in MEMORY_FILESYSTEMS,
        "network": filesystem in NETWORK_FILESYSTEMS,
        "read_only": bool(mount and "ro" in mount.options),
        "noexec": bool(mount and "noexec" in mount.options),
        "total_bytes": total,
        "free_bytes": free,
    }


def read_gpus(root: Root) -> list[dict[str, str]]:
    """List the GPUs that vLLM would notice: PCI address, and the driver that holds the device."""
    found = []
    for device in root.glob("/sys/bus/pci/devices/*"):
        driver = os.path.basename(os.path.realpath(root.where(f"{device}/driver")))
        if root.text(f"{device}/class").startswith("0x03") and driver in _GPU_DRIVERS:
            found.append({"address": os.path.basename(device), "driver": driver})
    return found


def read_listeners(root: Root) -> list[dict[str, Any]]:
    """List listening TCP sockets with the process and unit that hold them, where this user may see that."""
    base = "/proc/net" if root.live or root.exists("/proc/net/tcp") else "/proc/self/net"
    found: list[Listener] = []
    for name in ("tcp", "tcp6"):
        found += parse_listeners(root.text(f"{base}/{name}"))
    owners = _socket_owners({one.inode for one in found}) if root.live and found else {}
    rows = [_listener_row(root, one, owners.get(one.inode)) for one in found]
    return sorted(rows, key=lambda row: (row["port"], row["address"]))


def read_virtualization(root: Root, flags: tuple[str, ...]) -> str:
    """Return the innermost layer by systemd's names (docker, lxc, openvz, wsl, kvm ...), ``none`` on bare metal."""
    container = _container(root)
    if container:
        return container
    identity = " ".join(
        root.text(f"/sys/class/dmi/id/{name}").strip() for name in ("sys_vendor", "product_name", "bios_vendor")
    ).lower()
    for word, name in _DMI_VENDORS:
        if word in identity:
            return name
    if root.text("/sys/hypervisor/type").strip() == "xen":
        return "xen"
    return "vm-other" if "hypervisor" in flags else "none"


def _container(root: Root) -> str:
    told = root.text("/run/systemd/container").strip()
    if told:
        return told
    if root.exists("/proc/vz") and not root.exists("/proc/bc"):
        return "openvz"
    environ = re.search(r"(?:^|\0)container=([\w-]+)", root.text("/proc/1/environ"))
    if environ:
        return environ.group(1)
    if root.exists("/.dockerenv"):
        return "docker"
    if root.exists("/run/.containerenv"):
        return "podman"
    return "wsl" if "microsoft" in root.text("/proc/sys/kernel/osrelease").lower() else ""


def _nearest(root: Root, path: str) -> str:
    place = os.path.normpath("/" + path.lstrip("/"))
    if not root.live:  # a capture has few of the host's folders, but its mountinfo knows them all
        return place
    while place != "/" and not root.exists(place):
        place = os.path.dirname(place)
    return place


def _space(path: str) -> tuple[int | None, int | None]:
    try:
        status = os.statvfs(path)
    except OSError:
        return None, None
    return status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize


def _socket_owners(inodes: set[int]) -> dict[int, int]:
    """Map socket inodes to process ids; other users' processes show their sockets to root only."""
    owners: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            links = [os.readlink(entry.path) for entry in os.scandir(f"/proc/{name}/fd")]
        except OSError:  # gone, or not ours to see
            continue
        for link in links:
            if link.startswith("socket:[") and int(link[8:-1]) in inodes:
                owners.setdefault(int(link[8:-1]), int(name))
    return owners


def _listener_row(root: Root, listener: Listener, pid: int | None) -> dict[str, Any]:
    return {
        "port": listener.port,
        "address": listener.address,
        "user": user_name(root.text("/etc/passwd"), listener.uid),
        "pid": pid,
        "process": root.text(f"/proc/{pid}/comm").strip() if pid else "",
        "unit": unit_of_cgroup(root.text(f"/proc/{pid}/cgroup")) if pid else "",
    }
