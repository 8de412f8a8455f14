# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run the real ``vllm/platforms`` of a source tree, with nothing of vLLM's installed.

A process of its own gets a ``vllm`` package whose modules are the tree's, an installed version of the test's choosing,
and stand-ins for every third-party package: torch that has no device, and, where asked for, an NVML that reports one
GPU. The packages that vLLM takes for the sign of other hardware stay missing.
"""

from __future__ import annotations

import ast
import importlib
import importlib.abc
import importlib.machinery
import json
import os
import subprocess
import sys
import tempfile
import types
from abc import ABCMeta
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Importing one of these is how vLLM finds other hardware, so they must not be there.
MISSING = frozenset(
    {
        "amdsmi",
        "habana_frameworks",
        "intel_extension_for_pytorch",
        "libtpu",
        "neuronx_distributed_inference",
        "oneccl_bindings_for_pytorch",
        "openvino",
        "pynvml",
        "torch_neuronx",
        "torch_xla",
        "tpu_commons",
        "tpu_inference",
        "transformers_neuronx",
        "triton",
        "zentorch",
    }
)
#: Small libraries whose behaviour is wanted, taken from the environment that runs the tests.
REAL = frozenset({"packaging", "typing_extensions"})


@dataclass(frozen=True)
class Detection:
    """What a tree made of its surroundings: the class it chose, or the error it raised."""

    platform: str = ""
    error: str = ""
    kernels: tuple[str, ...] = ()
    async_output: bool | None = None
    verdicts: dict[str, Any] | None = None


def detect(tree: Path, version: str | None, *, fallback: Path | None = None, **options: Any) -> Detection:
    """Detect the platform with the modules of ``tree``, installed as ``version``.

    What ``tree`` lacks comes from ``fallback``. Options: ``gpu`` (NVML reports one), ``present`` (those of MISSING that
    are to be there), ``environment``, ``avx`` (what torch says of the CPU: "", "avx512" or "avx512_bf16"; asks for the
    kernel libraries too), ``asynchronous`` (ask ``verify_async_output_proc`` too), ``plugins`` (ask each plugin too),
    ``ask`` (names of functions and constants, as "module:name", to be asked too).
    """
    with tempfile.TemporaryDirectory() as folder:
        for name, installed in (("vllm", version), ("torch", _Module.__version__)):
            metadata = Path(folder) / f"{name}-{installed}.dist-info" / "METADATA"
            if installed:
                metadata.parent.mkdir()
                metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {installed}\n")
        paths = [str(root / "vllm") for root in (tree, fallback) if root]
        request = json.dumps({"site": folder, "paths": paths, **options})
        environment = {name: value for name, value in os.environ.items() if not name.startswith("VLLM_")}
        answer = subprocess.run(
            [sys.executable, "-B", __file__, request],
            env={**environment, "VLLM_LOGGING_LEVEL": "ERROR", **options.get("environment", {})},
            capture_output=True,
            check=False,
            text=True,
        )
    if answer.returncode:
        raise RuntimeError(answer.stderr)
    found = json.loads(answer.stdout.splitlines()[-1])
    return Detection(**{**found, "kernels": tuple(found.get("kernels", ()))})


class _Meta(ABCMeta):
    """Classes that have every attribute and take part in every expression that a module evaluates when imported."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _stand_in(name)

    def __getitem__(cls, _key: object) -> Any:
        return cls

    def __or__(cls, _other: object) -> Any:
        return cls

    __ror__ = __or__

    def __iter__(cls) -> Any:
        return iter(())

    def __bool__(cls) -> bool:
        return False


class _Anything(metaclass=_Meta):
    def __init__(self, *_arguments: object, **_named: object) -> None:
        """Take anything."""

    def __init_subclass__(cls, **_named: object) -> None:
        """Be anything's base."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _stand_in(name)

    def __call__(self, *arguments: Any, **_named: object) -> Any:
        # A decorator with arguments gives back what it decorates.
        return arguments[0] if len(arguments) == 1 and callable(arguments[0]) else _Anything()

    def __getitem__(self, _key: object) -> Any:
        return self

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 1

    def __bool__(self) -> bool:
        return False


def _stand_in(name: str) -> Any:
    return _Meta(name, (_Anything,), {})


class _Module(types.ModuleType):
    __version__ = "2.9.0"
    __file__ = ""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _stand_in(name)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives a stand-in for every module that neither Python nor the tree has."""

    def __init__(self, nvml: str, present: list[str]) -> None:
        self.nvml = nvml
        self.missing = MISSING - set(present)

    def find_spec(self, name: str, _path: object, _target: object = None) -> importlib.machinery.ModuleSpec | None:
        top = name.partition(".")[0]
        if name == self.nvml:
            return importlib.machinery.ModuleSpec(name, self)
        if (
            top in sys.stdlib_module_names
            or top in self.missing
            or top in REAL
            or (top == "vllm" and "._C" not in name)
        ):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        if module.__name__ == self.nvml:
            module.nvmlDeviceGetCount = lambda: 1  # type: ignore[attr-defined]
            module.NVMLError = type("NVMLError", (Exception,), {})  # type: ignore[attr-defined]
        if module.__name__ == "triton.backends":  # as a triton for GPUs is, on a host that has one
            driver = types.SimpleNamespace(is_active=lambda: True)
            module.backends = {"nvidia": types.SimpleNamespace(driver=driver)}  # type: ignore[attr-defined]


def _prepare(request: dict[str, Any]) -> list[str]:
    loaded: list[str] = []
    sys.path.insert(0, request["site"])
    # vLLM brought its own pynvml from 0.7.0 on.
    own = any((Path(path) / "third_party" / "pynvml.py").is_file() for path in request["paths"])
    nvml = ("vllm.third_party.pynvml" if own else "pynvml") if request.get("gpu") else ""
    sys.meta_path.insert(0, _Finder(nvml, request.get("present", [])))
    package = types.ModuleType("vllm")
    package.__path__ = request["paths"]
    sys.modules["vllm"] = package
    if request.get("gpu") and not own:
        importlib.import_module("pynvml")  # 0.7.0 to 0.7.2 take a loaded one, or search the disk
    torch: Any = importlib.import_module("torch")

    torch.version = types.SimpleNamespace(cuda=None, hip=None, xpu=None)
    if "avx" in request:
        has = {"avx512": request["avx"] != "", "bf16": request["avx"] == "avx512_bf16"}
        torch.cpu = torch._C._cpu = types.SimpleNamespace(
            _is_avx512_supported=lambda: has["avx512"],
            _is_avx512_bf16_supported=lambda: has["bf16"],
            _is_amx_tile_supported=lambda: False,
        )
        torch._C = types.SimpleNamespace(_cpu=torch.cpu)
        sys.meta_path.insert(0, _Libraries(loaded))
    return loaded


class _Libraries(importlib.abc.MetaPathFinder):
    """Notes which kernel library is asked for, and has none."""

    def __init__(self, loaded: list[str]) -> None:
        self.loaded = loaded

    def find_spec(self, name: str, _path: object, _target: object = None) -> None:
        if name in ("vllm._C", "vllm._C_AVX2", "vllm._C_AVX512"):
            self.loaded.append(name.removeprefix("vllm."))


def _verify_async_output(paths: list[str]) -> bool:
    """Call the tree's own method, cut out of its class: the class needs half of vLLM and all of transformers."""
    files = [Path(path) / name for path in paths for name in ("config.py", "config/__init__.py")]
    source = next(file for file in files if file.is_file()).read_bytes()
    method = next(
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and node.name == "verify_async_output_proc"
    )
    platform = importlib.import_module("vllm.platforms").current_platform
    scope = {"logger": _Anything(), "envs": _Anything(), "current_platform": platform}
    method.args.args = [ast.arg(argument.arg) for argument in method.args.args]
    code = ast.fix_missing_locations(ast.Module([method], []))
    exec(compile(code, "config.py", "exec"), scope)  # noqa: S102 - the code under test
    config = types.SimpleNamespace(use_async_output_proc=True, enforce_eager=True, runner_type="generate")
    parallel = types.SimpleNamespace(pipeline_parallel_size=1)
    device = types.SimpleNamespace(device_type="cpu")
    scope["verify_async_output_proc"](config, parallel, None, device)
    return bool(config.use_async_output_proc)


def _main(request: dict[str, Any]) -> dict[str, Any]:
    loaded = _prepare(request)
    result: dict[str, Any] = {}
    try:
        current_platform = importlib.import_module("vllm.platforms").current_platform
        result["platform"] = type(current_platform).__name__
        if "avx" in request:
            loaded.clear()
            current_platform.import_kernels()
            result["kernels"] = loaded
        if request.get("plugins"):
            plugins = importlib.import_module("vllm.platforms").builtin_platform_plugins
            result["verdicts"] = {name: plugin() for name, plugin in plugins.items()}
        for name in request.get("ask", ()):
            module, _colon, attribute = name.partition(":")
            value = getattr(importlib.import_module(module), attribute)
            result.setdefault("verdicts", {})[attribute] = value() if callable(value) else value
        if request.get("asynchronous"):
            result["async_output"] = _verify_async_output(request["paths"])
    except Exception as error:
        result["error"] = f"{type(error).__name__}: {error}"
        if os.environ.get("DETECTION_DEBUG"):
            raise
    return result


if __name__ == "__main__":
    print(json.dumps(_main(json.loads(sys.argv[1]))))  # noqa: T201
