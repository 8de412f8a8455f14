# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""Whether a host can run a wheel: every requirement that it does not meet, with what to do."""

from __future__ import annotations

import re
from typing import Any

from ansible_collections.cpufleet.vllm.plugins.module_utils._isa import supports
from ansible_collections.cpufleet.vllm.plugins.module_utils._plan_compiler import version_key

__all__ = ("misfits", "python_fits", "range_fits")

# What each kernel library takes for granted where a wheel has several and one is picked by the CPU.
KERNEL_CLASS = {"_C": "avx512_bf16", "_C_AVX512": "avx512", "_C_AVX2": "avx2"}
# Names of manylinux from before they carried the version of libc.
OLD_PLATFORMS = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}
# A library of these names is linked by GPU builds only.
GPU_LIBRARIES = re.compile(r"^lib(?:cuda|cudart|cublas|cublasLt|nvrtc|nccl|amdhip64|hipblas|rocblas|ze_loader)\.so")
ELSE = "or use a wheel made for such hosts"


def misfits(host: dict[str, Any], python_version: str, manifest: dict[str, Any], torch: str = "") -> list[str]:
    """Return what of the wheel's requirements ``host`` does not meet, each as requirement, need, state and remedy.

    ``host`` is HostInfo, ``python_version`` that of the interpreter which is to run the wheel, ``manifest`` the wheel's
    with ``requires`` (as ``wheel_requirements`` gives it), ``isa`` (the classes that it was built for) and, where the
    library is picked at import, ``selection`` (the library by class). ``torch`` is the version that the release gets.
    """
    requires = manifest.get("requires") or {}
    if architecture(host, requires):
        return architecture(host, requires)  # the rest would only repeat it
    return [
        *isa(host, manifest, requires),
        *libc(host, requires),
        *libstdcxx(host, requires),
        *python(python_version, requires),
        *torches(torch, manifest, requires),
    ]


def architecture(host: dict[str, Any], requires: dict[str, Any]) -> list[str]:
    """Compare the machine of the libraries, or that of the platform tag, with the host's."""
    tag = re.search(
        r"(x86_64|aarch64|ppc64le|s390x|riscv64|armv7l|i686|arm64|amd64)$", str(requires.get("platform", ""))
    )
    machine, own = str(requires.get("machine") or (tag[1] if tag else "")), str(host["arch"])
    if not machine or machine == own:
        return []
    return [f"architecture: the wheel is for {machine}, this host is {own}. Build on a host that is {own}, {ELSE}."]


def isa(host: dict[str, Any], manifest: dict[str, Any], requires: dict[str, Any]) -> list[str]:
    """Compare the instruction sets of the kernels with the CPU's class."""
    own, built = host["cpu"]["isa_class"], [str(name) for name in manifest.get("isa") or []]
    kernels, selection = list(requires.get("libraries") or []), manifest.get("selection") or {}
    has = f"this host's CPU offers {own or 'less than any build needs'}"
    if own in selection and len(set(selection.values())) > 1:
        library = str(selection[own])
        if library not in kernels:
            return [
                f"ISA: a CPU of class {own} loads {library}, the wheel has only {', '.join(kernels) or 'none'}. "
                f"Build for {own} (vllm_isa_class), {ELSE}."
            ]
        wanted = KERNEL_CLASS.get(library, "")
        if wanted and not supports(own, wanted):
            return [f"ISA: the wheel loads {library} here, made for {wanted}, {has}. Build for {own}, {ELSE}."]
        return []
    if not built:
        return [
            "ISA: the wheel does not say for which CPUs it was made. Ask its maker, and set vllm_isa_class to that "
            "class; a wrong one ends the service with an illegal instruction."
        ]
    if any(supports(own, name) for name in built):
        return []
    return [f"ISA: the wheel needs {' or '.join(built)}, {has}. Build for {own or 'another CPU'}, {ELSE}."]


def libc(host: dict[str, Any], requires: dict[str, Any]) -> list[str]:
    """Compare kind and version of the C library."""
    kind, own, _glibcxx, _cxxabi = offered(host)
    platforms = str(requires.get("platform", "")).split(".")
    foreign = all(name.startswith("musllinux") for name in platforms) or any(
        "musl" in name for name in requires.get("needed") or []
    )
    if foreign != (kind == "musl") and platforms != ["any"]:
        names = ("the GNU C library", "musl")
        return [f"libc: the wheel needs {names[foreign]}, this host has {names[not foreign]}. Use another wheel."]
    need = str(requires.get("glibc") or tagged(platforms))
    if foreign or not need or version_key(own) >= version_key(need):
        return []
    return [
        f"libc: the wheel needs GLIBC_{need}, this host has {own or 'none'}. "
        f"Build on a host with glibc {own or need} or older, {ELSE}."
    ]


def tagged(platforms: list[str]) -> str:
    """Return the lowest version of libc among the platform tags, for a wheel whose libraries do not say."""
    found = [
        f"{match[1]}.{match[2]}" for match in (re.match(r"manylinux_(\d+)_(\d+)_", one) for one in platforms) if match
    ]
    found += [version for name, version in OLD_PLATFORMS.items() for one in platforms if one.startswith(name + "_")]
    return min(found, key=version_key, default="")


def libstdcxx(host: dict[str, Any], requires: dict[str, Any]) -> list[str]:
    """Compare the C++ library: torch's wheels bring none, so the one of the distribution has to do."""
    _kind, _libc, glibcxx, cxxabi = offered(host)
    found = []
    for prefix, key, own in (("GLIBCXX", "glibcxx", glibcxx), ("CXXABI", "cxxabi", cxxabi)):
        need = str(requires.get(key, ""))
        # Facts from before this one was read do not have it.
        if need and own is not None and version_key(own) < version_key(need):
            found.append(
                f"libstdc++: the wheel needs {prefix}_{need}, this host's libstdc++6 offers {own or 'none'}. "
                f"Build with a g++ as old as this host's distribution has, {ELSE}."
            )
    return found[:1]


def offered(host: dict[str, Any]) -> tuple[str, str, str, str | None]:
    """Return kind and version of the host's libc, and its GLIBCXX and CXXABI versions."""
    libraries, system = host.get("libc") or {}, host["os"]
    return (
        str(libraries.get("kind", "glibc")),
        str(libraries.get("version") or system.get("libc", "")),
        str(libraries.get("glibcxx") or system.get("libstdcxx", "")),
        str(libraries["cxxabi"]) if "cxxabi" in libraries else None,
    )


def python(version: str, requires: dict[str, Any]) -> list[str]:
    """Compare the Python tag and the range in the metadata with the interpreter."""
    tag, bounds = str(requires.get("python_tag", "")), str(requires.get("python_requires", ""))
    if tag and not python_fits(tag, version):
        return [f"Python: the wheel is for {tag}, this host would run it with {version or 'none'}. {other_python()}"]
    if bounds and not range_fits(bounds, version):
        return [f"Python: the wheel needs {bounds}, this host would run it with {version or 'none'}. {other_python()}"]
    return []


def other_python() -> str:
    """Return what to do about another Python."""
    return f"Install such a Python or set toolchain_python to uv, {ELSE}."


def python_fits(tag: str, version: str) -> bool:
    """Return whether CPython ``version`` loads a wheel of ``tag``, such as cp311-cp311, cp38-abi3 or py3-none."""
    own = version_key(version)[:2]
    pythons, _dash, abis = tag.partition("-")
    for name in pythons.split("."):
        match = re.fullmatch(r"(cp|py)(\d)(\d*)", name)
        if not match or not own or int(match[2]) != own[0]:
            continue
        minor = int(match[3] or 0)
        for abi in abis.split("."):
            exact = minor == own[1] and abi in (name, "none")
            if exact or (minor <= own[1] and (abi == "abi3" or (match[1] == "py" and abi == "none"))):
                return True
    return False


def range_fits(bounds: str, version: str) -> bool:
    """Return whether Python ``version`` lies within ``bounds``, such as >=3.11,<3.15, as far as they are understood."""
    own = version_key(version)
    for operator, bound in re.findall(r"(>=|<=|==|!=|~=|<|>)\s*([\d.]+)", bounds):
        limit = version_key(bound)
        same = own[: len(limit)] == limit
        fits = {
            ">=": own >= limit,
            "<=": own <= limit or same,
            "==": same,
            "!=": not same,
            "~=": own >= limit and own[: len(limit) - 1] == limit[:-1],
            "<": own < limit and not same,
            ">": own > limit and not same,
        }[operator]
        if not fits:
            return False
    return bool(own)


def torches(torch: str, manifest: dict[str, Any], requires: dict[str, Any]) -> list[str]:
    """Compare the torch that the wheel was built against with the release's, and see that it was a CPU build."""
    linked = [name for name in requires.get("needed") or [] if GPU_LIBRARIES.match(name)]
    if linked:
        return [f"torch: the wheel is a GPU build, it needs {', '.join(linked)}. Use a wheel for CPU, or build one."]
    built = str((manifest.get("inputs") or {}).get("torch") or requires.get("torch", ""))
    if torch and built and torch.partition("+")[0] != built.partition("+")[0]:
        return [
            f"torch: the wheel was built against {built}, this release gets {torch}. "
            f"Set torch_cpu_version to auto, {ELSE}."
        ]
    return []
