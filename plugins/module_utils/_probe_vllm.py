# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This file is private to the cpufleet.vllm collection and may change at any time.

"""A standalone script: says what an installed vLLM makes of this machine. Standard library only, Python 3.8 and newer.

Run by the Python of a release's venv as ``python -I -B -c <this text> <json arguments>`` from an empty folder.
Each finding leaves as one JSON line as soon as it is known, because the next step may kill the process: a kernel
library built for another CPU ends in SIGILL, a broken extension in SIGSEGV. The reader then has all that was found
before, and the ``begin`` line of the step that died. What vLLM and torch print goes to standard error.

Arguments: ``parts`` (true: import the platform package only, for releases whose whole import fails) and ``folders``
(where the service would also look for modules: its PYTHONPATH and its working folder).
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.metadata
import importlib.util
import json
import logging
import os
import re
import sys
import traceback
import types
from typing import Any, Callable, Iterator

OPERATORS = ("silu_and_mul", "rms_norm")

# What each built-in detector looks for, to give a reason where the release itself gives none.
LOOKS_FOR = {
    "tpu": "libtpu",
    "cuda": "pynvml",
    "rocm": "amdsmi",
    "hpu": "habana_frameworks",
    "xpu": "intel_extension_for_pytorch",
    "neuron": "transformers_neuronx",
}

CHANNEL = sys.stdout


def emit(kind: str, data: Any) -> None:
    """Write one finding to the channel that was standard output before this script took it away."""
    CHANNEL.write(json.dumps({"kind": kind, "data": data}, default=str) + "\n")
    CHANNEL.flush()


def describe(error: BaseException) -> dict[str, str]:
    """Return type, text and the last frames of an exception."""
    frames = traceback.format_exception(type(error), error, error.__traceback__)
    return {"type": type(error).__name__, "text": str(error), "trace": "".join(frames)[-4000:]}


def take_standard_output() -> None:
    """Keep standard output for findings alone: whatever the imported code prints goes to standard error."""
    global CHANNEL  # noqa: PLW0603 - one process, one channel
    CHANNEL = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)


# --- the installation, read without importing anything ---------------------------------------------------------------


def normalized(name: str) -> str:
    """Return a distribution name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name or "").lower()


def provides_vllm(distribution: Any) -> bool:
    """Whether the distribution installs the import package ``vllm``, whatever its own name is."""
    name = normalized(distribution.metadata["Name"])
    if name == "vllm":
        return True
    top_level = distribution.read_text("top_level.txt")
    if top_level is not None:
        return "vllm" in top_level.split()
    return name.startswith("vllm") and any(str(file) == "vllm/__init__.py" for file in distribution.files or ())


def is_editable(distribution: Any) -> bool:
    """Whether the distribution is an editable install, whose package lies in a source folder by intention."""
    try:
        origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    except ValueError:
        return False
    return bool(origin.get("dir_info", {}).get("editable"))


def describe_distribution(distribution: Any) -> dict[str, Any]:
    """Return what is told of one dist-info or egg-info folder."""
    return {
        "name": distribution.metadata["Name"],
        "version": distribution.version,
        "path": str(getattr(distribution, "_path", "")),
        "folder": os.path.realpath(str(distribution.locate_file(""))),
        "editable": is_editable(distribution),
    }


def required_names(distribution: Any) -> set[str]:
    """Return what a distribution requires by itself, without its extras, by name."""
    lines = (line for line in distribution.requires or () if "extra ==" not in line)
    return {normalized(match[0]) for match in (re.match(r"[\w.-]+", line) for line in lines) if match}


def is_stray(distribution: Any, required: set[str]) -> bool:
    """Whether the distribution belongs to a GPU installation: CUDA's triton, or NVIDIA's libraries."""
    name = normalized(distribution.metadata["Name"])
    if name in ("triton", "pytorch-triton"):
        if name in required:  # some CPU releases ask for it themselves
            return False
        backends = str(distribution.locate_file(os.path.join("triton", "backends")))
        return not os.path.isdir(os.path.join(backends, "cpu"))  # a triton with a CPU back end is wanted
    return name.startswith("nvidia-") and name != "nvidia-ml-py"  # the latter only asks the driver for its GPUs


def package_folder() -> str | None:
    """Return the folder that ``import vllm`` would take, without importing it and without following links."""
    try:
        spec = importlib.util.find_spec("vllm")
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if spec.origin and spec.origin != "namespace":
        return os.path.dirname(os.path.abspath(spec.origin))
    places = list(spec.submodule_search_locations or ())
    return os.path.abspath(places[0]) if places else None


def shadowing(package: str | None, found: list[dict[str, Any]], folders: list[str]) -> list[str]:
    """Return folders that hide the installed package or its metadata from the service, first in search order."""
    hiding = []
    home = os.path.realpath(os.path.dirname(package)) if package else None
    for folder in folders:
        here = os.path.realpath(folder)
        inside = os.path.join(here, "vllm")
        if os.path.isfile(os.path.join(inside, "__init__.py")) and here != home:
            hiding.append(inside)
        elif os.path.isdir(os.path.join(here, "vllm.egg-info")) and not any(d["folder"] == here for d in found):
            hiding.append(os.path.join(here, "vllm.egg-info"))
    homes = [entry["folder"] for entry in found]
    if package and found and home not in homes and not any(entry["editable"] for entry in found):
        hiding.append(package)
    return hiding


def all_distributions() -> Iterator[Any]:
    """Yield what is installed, in search order, broken metadata folders left out."""
    for distribution in importlib.metadata.distributions():
        if distribution.metadata is not None and distribution.metadata["Name"]:
            yield distribution


def read_installation(folders: list[str]) -> dict[str, Any]:
    """Return versions, metadata and strays of the venv as the files on the disk tell them."""
    unique: dict[str, Any] = {}
    for entry in all_distributions():
        unique.setdefault(str(getattr(entry, "_path", id(entry))), entry)
    providers = [entry for entry in unique.values() if provides_vllm(entry)]
    found = [describe_distribution(entry) for entry in providers]
    required = {name for entry in providers for name in required_names(entry)}
    strays = [f"{entry.metadata['Name']}=={entry.version}" for entry in unique.values() if is_stray(entry, required)]
    try:
        version = importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        version = None
    package = package_folder()
    libraries = sorted(name for name in os.listdir(package) if name.endswith(".so")) if package else []
    return {
        "python": ".".join(str(part) for part in sys.version_info[:3]),
        "package": package,
        "version": version,
        "dist_infos": found,
        "strays": sorted(strays),
        "shadowed_by": shadowing(package, found, folders),
        "libraries": libraries,
    }


# --- imports ---------------------------------------------------------------------------------------------------------


def import_torch() -> dict[str, Any]:
    """Return version and build of the torch that vLLM would get."""
    torch = importlib.import_module("torch")
    capability = None
    with contextlib.suppress(AttributeError):  # torch before 2.1 does not tell
        capability = torch.backends.cpu.get_cpu_capability()
    version = getattr(torch, "version", None)
    return {
        "version": torch.__version__,
        "cuda": getattr(version, "cuda", None),
        "hip": getattr(version, "hip", None),
        "cpu_capability": capability,
        "path": os.path.dirname(torch.__file__ or ""),
    }


class KernelRecorder:
    """A finder that finds nothing: it notes which kernel libraries the release tries to import, in order."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Note the name, tell it before the library may kill the process, and leave the search to other finders."""
        if re.fullmatch(r"vllm\._C(_\w+)?", name) and name not in self.asked:
            self.asked.append(name)
            emit("asked", self.asked)


def install_hollow_package(package: str) -> None:
    """Put an empty ``vllm`` in place of the real one, so that its parts import without its ``__init__``."""
    hollow = types.ModuleType("vllm")
    hollow.__path__ = [package]
    hollow.__file__ = os.path.join(package, "__init__.py")
    sys.modules["vllm"] = hollow


def import_vllm() -> dict[str, Any]:
    """Import the package as the service would."""
    module = importlib.import_module("vllm")
    return {"ok": True, "reported_version": getattr(module, "__version__", None)}


# --- detectors -------------------------------------------------------------------------------------------------------


class Listener(logging.Handler):
    """Collects what the detectors say about themselves."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message."""
        self.lines.append(record.getMessage())


def own_reason(name: str, verdict: bool, version: str | None) -> str:
    """Give the reason for a verdict where the release gives none."""
    if name in ("cpu", "openvino"):
        said = f'the version of the distribution "vllm" is {version or "not to be found"}'
        expected = name in (version or "")
        if expected == verdict:
            return said + (f', which contains "{name}"' if verdict else f', which does not contain "{name}"')
        return said + ("; something else than the version decided" if verdict else "; the detector still said no")
    module = LOOKS_FOR.get(name)
    if module is None:
        return "the detector gave no reason"
    if verdict:
        return f"the module {module} is installed and reports a device"
    try:
        present = importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        present = False
    return f"the module {module} is installed but reports no device" if present else f"no module {module}"


def flag_order(source: str) -> list[str]:
    """Return the names of the ``is_x`` flags in the order in which the release's if/elif chain asks them."""
    order: list[str] = []
    for node in ast.parse(source).body:
        while isinstance(node, ast.If):
            flags = [n.id for n in ast.walk(node.test) if isinstance(n, ast.Name) and n.id.startswith("is_")]
            order += [flag for flag in flags if flag not in order]
            node = node.orelse[0] if len(node.orelse) == 1 else None  # type: ignore[assignment] # noqa: PLW2901
    return order


def read_flags(platforms: Any, version: str | None) -> list[dict[str, Any]]:
    """Read the verdicts of a release that keeps them as module-level flags (0.6.2 to 0.6.6)."""
    with open(platforms.__file__, encoding="utf-8", errors="replace") as stream:
        order = flag_order(stream.read())
    verdicts = []
    for flag in order:
        verdict = getattr(platforms, flag, None)
        name = flag[len("is_") :]
        if isinstance(verdict, bool):
            verdicts.append({"name": name, "verdict": verdict, "reason": own_reason(name, verdict, version)})
    return verdicts


def recorded(name: str, detector: Callable[[], Any], asked: dict[str, Any], listener: Listener) -> Callable[[], Any]:
    """Wrap a detector: it answers as before, and its answer and what it said are kept."""

    def ask() -> Any:
        start = len(listener.lines)
        try:
            answer = detector()
        except Exception as error:
            asked[name] = {"verdict": False, "reason": f"{type(error).__name__}: {error}", "class": None}
            raise
        said = "; ".join(line for line in dict.fromkeys(listener.lines[start:]) if not line.startswith("Checking if"))
        asked[name] = {"verdict": answer is not None, "reason": said, "class": answer}
        return answer

    return ask


def instrument(platforms: Any, asked: dict[str, Any], listener: Listener) -> list[str]:
    """Put a recording wrapper around every detector, built in or from a plugin; return their names in order."""
    table = platforms.builtin_platform_plugins
    names = list(table)
    for name, detector in list(table.items()):
        wrapper = recorded(name, detector, asked, listener)
        table[name] = wrapper
        for attribute, value in list(vars(platforms).items()):
            if value is detector:  # some releases call the function by its own name
                setattr(platforms, attribute, wrapper)
    load = platforms.load_plugins_by_group

    def load_recorded(*arguments: Any, **keywords: Any) -> Any:
        plugins = dict(load(*arguments, **keywords))
        names.extend(name for name in plugins if name not in names)
        return {name: recorded(name, plugin, asked, listener) for name, plugin in plugins.items()}

    platforms.load_plugins_by_group = load_recorded
    return names


def ask_plugins(platforms: Any, version: str | None) -> dict[str, Any]:
    """Let the release resolve its platform and note every detector that it asked (0.7.0 and newer)."""
    asked: dict[str, Any] = {}
    listener = Listener()
    logger = platforms.logger
    logger.addHandler(listener)
    level = logger.level
    logger.setLevel(logging.DEBUG)
    names = instrument(platforms, asked, listener)
    outcome: dict[str, Any] = {"resolved": None, "error": None}
    try:
        outcome["resolved"] = platforms.resolve_current_platform_cls_qualname()
    except Exception as error:
        outcome["error"] = describe(error)
    finally:
        logger.removeHandler(listener)
        logger.setLevel(level)
    verdicts = []
    for name in names:
        heard = asked.get(name)
        if heard is None:
            verdicts.append({"name": name, "verdict": None, "reason": "not asked: another rule decided before"})
        else:
            reason = heard["reason"] or own_reason(name, heard["verdict"], version)
            verdicts.append({"name": name, "verdict": heard["verdict"], "reason": reason})
    return {"style": "plugins", "detectors": verdicts, **outcome}


def detect(version: str | None) -> dict[str, Any]:
    """Run the detectors of this release by its own means."""
    platforms = importlib.import_module("vllm.platforms")
    if hasattr(platforms, "builtin_platform_plugins"):
        return ask_plugins(platforms, version)
    return {"style": "flags", "detectors": read_flags(platforms, version), "resolved": None, "error": None}


def current_platform() -> dict[str, Any]:
    """Return class and device type of the platform that the release settled on."""
    current = importlib.import_module("vllm.platforms").current_platform
    device_type = getattr(current, "device_type", None)
    if not isinstance(device_type, str):  # before 0.6.4 the platforms have only a member of an enumeration
        member = getattr(getattr(current, "_enum", None), "name", "UNSPECIFIED")
        device_type = None if member == "UNSPECIFIED" else str(member).lower()
    return {"class": type(current).__name__, "module": type(current).__module__, "device_type": device_type}


# --- kernels ---------------------------------------------------------------------------------------------------------


def mapped_libraries(package: str) -> list[str]:
    """Return the kernel libraries of the package that are mapped into this process: loaded beyond doubt."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as stream:
        places = {line[line.index("/") :].strip() for line in stream if "/" in line}
    return sorted(
        os.path.basename(place)
        for place in places
        if os.path.dirname(os.path.realpath(place)) == os.path.realpath(package)
        and os.path.basename(place).startswith("_C")
    )


def module_name(library: str) -> str:
    """Return the import name of a library file: ``_C_AVX2.abi3.so`` is ``vllm._C_AVX2``."""
    return "vllm." + library.split(".", 1)[0]


def import_error_of(name: str) -> str | None:
    """Import one kernel library again for the error that the release swallowed."""
    try:
        importlib.import_module(name)
    except ImportError as error:
        return str(error)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def registered_operators() -> Iterator[tuple[str, bool]]:
    """Yield the operators that every release has, and whether a kernel for the CPU is registered for each."""
    torch = importlib.import_module("torch")
    for name in OPERATORS:
        try:
            present = bool(torch._C._dispatch_has_kernel_for_dispatch_key(f"_C::{name}", "CPU"))
        except Exception:  # the operator itself is unknown
            present = False
        yield name, present


def load_kernels(package: str, recorder: KernelRecorder) -> dict[str, Any]:
    """Let the release load its kernels, then look at what is really in the process."""
    failure = None
    try:
        importlib.import_module("vllm._custom_ops")
    except Exception as caught:
        failure = describe(caught)
    loaded = mapped_libraries(package)
    selected = recorder.asked[0] if recorder.asked else (module_name(loaded[0]) if loaded else None)
    error = None
    if selected is not None and not any(module_name(library) == selected for library in loaded):
        error = import_error_of(selected)
        loaded = mapped_libraries(package)
    return {
        "selected": selected,
        "asked": recorder.asked,
        "loaded": loaded,
        "operators": dict(registered_operators()),
        "error": error,
        "failure": failure,
    }


def run_kernel() -> dict[str, Any]:
    """Compute with one operator and compare with torch: code for another CPU dies here."""
    torch = importlib.import_module("torch")
    torch.manual_seed(0)
    wide = torch.randn(4, 256, dtype=torch.float32)
    got = torch.empty(4, 128, dtype=torch.float32)
    torch.ops._C.silu_and_mul(got, wide)
    wanted = torch.nn.functional.silu(wide[:, :128]) * wide[:, 128:]
    return {"ok": bool(torch.allclose(got, wanted, atol=1e-4)), "error": None}


# --- order -----------------------------------------------------------------------------------------------------------


def step(kind: str, work: Callable[..., Any], *arguments: Any) -> Any:
    """Do one step, tell what came of it, and go on whatever happened."""
    emit("begin", kind)
    try:
        data = work(*arguments)
    except (Exception, SystemExit) as error:
        emit("error", {"step": kind, **describe(error)})
        return None
    emit(kind, data)
    return data


def main() -> None:
    """Go from what is read to what is run, the dangerous steps last."""
    take_standard_output()
    arguments = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    installation = step("installation", read_installation, arguments.get("folders", []))
    if not installation or not installation["package"]:
        return
    recorder = KernelRecorder()
    sys.meta_path.insert(0, recorder)
    if step("torch", import_torch) is None:
        return
    if arguments.get("parts"):
        install_hollow_package(installation["package"])
    elif step("import", import_vllm) is None:
        return  # half an import is no ground to go on from: the reader starts again with "parts"
    step("detect", detect, installation["version"])
    step("platform", current_platform)
    kernels = step("kernels", load_kernels, installation["package"], recorder)
    if kernels and kernels["operators"].get("silu_and_mul"):
        step("run", run_kernel)


if __name__ == "__main__":
    main()
