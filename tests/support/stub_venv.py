# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A scratch venv that holds a real vLLM's Python files under a wanted version, and stand-ins for all below them.

What is real: the interpreter, the venv, the release's own Python code, the metadata folders. What is not: torch and
every other third-party package, which the venv's sitecustomize makes up on import. Packages that vLLM takes for the
sign of other hardware stay absent, NVML unless asked for.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.detection import MISSING

STAND_IN = """
import importlib.abc, importlib.machinery, os, sys, types

REAL_OR_ABSENT = {absent!r}
NAMES = {names!r}


class Anything:
    def __init__(self, *a, **k): pass
    def __init_subclass__(cls, **k): pass
    def __call__(self, *a, **k): return a[0] if len(a) == 1 and callable(a[0]) and not k else Anything()
    def __getattr__(self, name):
        if name.startswith("__"): raise AttributeError(name)
        return Anything()
    def __iter__(self): return iter(())
    def __bool__(self): return False
    def __instancecheck__(self, other): return False
    def __or__(self, other): return self
    def __ror__(self, other): return self
    def __getitem__(self, key): return self
    def __lt__(self, other): return False
    def __ge__(self, other): return True
    def __enter__(self): return self
    def __exit__(self, *a): return False
    def __class_getitem__(cls, key): return cls
    def __hash__(self): return id(self)
    def __mro_entries__(self, bases): return (Anything,)


class Module(types.ModuleType):
    __version__ = "9.9.9"
    def __getattr__(self, name):
        if name.startswith("__"): raise AttributeError(name)
        return NAMES.get(self.__name__ + "." + name, Anything())


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        root = name.split(".")[0]
        if root in ("vllm", "usercustomize", "sitecustomize") or root in sys.stdlib_module_names:
            return None
        if root in REAL_OR_ABSENT:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)
    def create_module(self, spec):
        return Module(spec.name)
    def exec_module(self, module):
        if module.__name__ == "torch":
            module.__file__ = "/nowhere/torch/__init__.py"
        module.__version__ = NAMES.get(module.__name__ + ".__version__", "9.9.9")


sys.meta_path.append(Finder())
"""

FAKE_NVML = """
class NVMLError(Exception): pass
def nvmlInit(): pass
def nvmlShutdown(): pass
def nvmlDeviceGetCount(): return 1
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetCudaComputeCapability(handle): return (9, 0)
def nvmlDeviceGetName(handle): return "made up"
def __getattr__(name):
    if name.startswith("__"): raise AttributeError(name)
    return lambda *a, **k: 0
"""

#: Small libraries whose behaviour is wanted, taken from the environment that runs the tests.
REAL = ("packaging", "typing_extensions")

TORCH_NAMES = {"torch.__version__": "2.5.1+cpu", "torch.version": None, "torch.__file__": ""}


def stub_venv(folder: Path, package: Path, version: str, gpu: bool = False) -> Path:
    """Make the venv in ``folder`` with the vLLM package at ``package``; return its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for name in REAL:
        _copy_module(name, site)
    (site / "sitecustomize.py").write_text(
        STAND_IN.format(
            absent=sorted((MISSING - {"pynvml"} if gpu else MISSING) | {*REAL, "modelscope"}), names=TORCH_NAMES
        )
    )
    shutil.copytree(package, site / "vllm", copy_function=_link, ignore=_python_only)
    add_metadata(site, "vllm", version)
    (site / "vllm" / "_C.py").write_text("")  # GPU platforms import it while they are being detected
    if gpu:
        (site / "pynvml.py").write_text(FAKE_NVML)
        vendored = site / "vllm" / "third_party" / "pynvml.py"
        if vendored.exists():
            vendored.unlink()
            vendored.write_text(FAKE_NVML)
    return folder / "bin" / "python"


def add_metadata(site: Path, name: str, version: str) -> Path:
    """Add a dist-info folder as an installer would leave it."""
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (folder / "top_level.txt").write_text("vllm\n")
    return folder


def _copy_module(name: str, site: Path) -> None:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        return
    origin = Path(spec.origin)
    if origin.name == "__init__.py":
        shutil.copytree(origin.parent, site / name, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy2(origin, site)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _python_only(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if not name.endswith(".py") and not (Path(folder) / name).is_dir()]
