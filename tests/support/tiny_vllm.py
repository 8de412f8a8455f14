# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A small project that is built as vLLM is: setup.py runs CMake and ninja, takes MAX_JOBS, and finds ccache itself.

What a file costs is chosen: ``cells`` numbers in a table that the compiler computes take about 0.4 KB each while it
compiles (400 000: 160 MiB, two seconds), 8 bytes in the object and 8 in the library.
"""

from __future__ import annotations

from pathlib import Path

PROJECT = """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "vllm"
version = "0.0.1+cpu"
"""

SETUP = """\
import os, shutil, subprocess
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = os.path.dirname(os.path.abspath(__file__))


class Build(build_ext):
    def build_extensions(self):
        for command in os.environ.get("TINY_FETCH", "").splitlines():
            subprocess.call(command, shell=True)
        os.makedirs(self.build_temp, exist_ok=True)
        words = ["cmake", ROOT, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=RelWithDebInfo"]
        if shutil.which("ccache"):
            words.append("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
        subprocess.check_call(words, cwd=self.build_temp)
        jobs = os.environ["MAX_JOBS"]
        subprocess.check_call(["cmake", "--build", ".", f"-j={jobs}", "--target=_C"], cwd=self.build_temp)
        library = self.get_ext_fullpath(self.extensions[0].name)
        os.makedirs(os.path.dirname(library), exist_ok=True)
        shutil.copy(os.path.join(self.build_temp, "_C.so"), library)


setup(
    packages=["vllm"],
    ext_modules=[Extension("vllm._C", sources=[], py_limited_api=True)],
    cmdclass={"build_ext": Build},
)
"""

CMAKE = """\
cmake_minimum_required(VERSION 3.16)
project(tiny LANGUAGES CXX)
file(GLOB files csrc/*.cpp)
add_library(_C MODULE ${files})
set_target_properties(_C PROPERTIES PREFIX "")
target_compile_options(_C PRIVATE -fconstexpr-ops-limit=10000000000 -fconstexpr-loop-limit=1000000000)
"""

SOURCE = """\
// %(number)d
template <int N> struct Table {
    unsigned long cell[N];
    constexpr Table() : cell() { for (int i = 0; i < N; ++i) cell[i] = i * 2654435761ul + %(number)d; }
};
extern const Table<%(cells)d> table_%(number)d;
constexpr Table<%(cells)d> table_%(number)d{};
"""


def write(folder: Path, cells: list[int]) -> Path:
    """Write the project with one C++ file for each of ``cells``; they are compiled in this order."""
    (folder / "vllm").mkdir(parents=True)
    (folder / "csrc").mkdir()
    (folder / "vllm/__init__.py").write_text("", encoding="utf-8")
    for name, text in {"pyproject.toml": PROJECT, "setup.py": SETUP, "CMakeLists.txt": CMAKE}.items():
        (folder / name).write_text(text, encoding="utf-8")
    for number, count in enumerate(cells):
        text = SOURCE % {"number": number, "cells": count}
        (folder / "csrc" / f"table_{number:02}.cpp").write_text(text, encoding="utf-8")
    return folder
