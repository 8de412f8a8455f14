# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A few files laid out as oneDNN is, and a library that links them as vLLM's does."""

from __future__ import annotations

from pathlib import Path

GLOB = """\
file(GLOB SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/*.[ch]pp)
add_library(dnnl_%(part)s OBJECT ${SOURCES})
set_property(GLOBAL APPEND PROPERTY DNNL_LIB_DEPS $<TARGET_OBJECTS:dnnl_%(part)s>)
"""
LIBRARY = {
    "CMakeLists.txt": """\
cmake_minimum_required(VERSION 3.13)
set(PROJECT_NAME "oneDNN")
project(${PROJECT_NAME} VERSION 3.7.2 LANGUAGES C CXX)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
file(WRITE ${PROJECT_BINARY_DIR}/include/oneapi/dnnl/dnnl_config.h "#define BUILD_MATMUL 1\\n")
add_subdirectory(src)
""",
    "src/CMakeLists.txt": """\
include_directories(${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/../include)
add_subdirectory(common)
add_subdirectory(cpu)
get_property(LIB_DEPS GLOBAL PROPERTY DNNL_LIB_DEPS)
add_library(dnnl STATIC ../include/dnnl.h ${LIB_DEPS})
target_include_directories(dnnl PUBLIC ${CMAKE_CURRENT_LIST_DIR}/../include)
""",
    "src/common/CMakeLists.txt": GLOB % {"part": "common"},
    "src/cpu/CMakeLists.txt": GLOB % {"part": "cpu"},
    "include/dnnl.h": 'extern "C" int dnnl_run(int kind, int number);\n',
    "src/common/run.cpp": """\
#include "dnnl.h"
#include "cpu/cpu_engine.hpp"
extern "C" int dnnl_run(int kind, int number) { return dnnl::impl::cpu::run(kind, number); }
""",
    "src/cpu/cpu_engine.hpp": """\
namespace dnnl { namespace impl { namespace cpu {
int run(int kind, int number);
int get_matmul_impl_list(int number);
int get_convolution_impl_list(int number);
} } }
""",
    "src/cpu/cpu_engine.cpp": """\
#include "cpu/cpu_engine.hpp"
namespace dnnl { namespace impl { namespace cpu {
int run(int kind, int number) { return kind ? get_convolution_impl_list(number) : get_matmul_impl_list(number); }
} } }
""",
    "src/cpu/cpu_matmul_list.cpp": """\
#include "cpu/cpu_engine.hpp"
#include "cpu/gemm.hpp"
namespace dnnl { namespace impl { namespace cpu {
int get_matmul_impl_list(int number) { return gemm_t().execute(number); }
} } }
""",
    "src/cpu/gemm.hpp": """\
#pragma once
namespace dnnl { namespace impl { namespace cpu {
struct gemm_t { int execute(int number); };
} } }
""",
    "src/cpu/gemm_by_hand.cpp": """\
#include "cpu/gemm.hpp"
namespace dnnl { namespace impl { namespace cpu {
int gemm_t::execute(int number) { return 2 * number; }
} } }
""",
    "src/cpu/cpu_convolution_list.cpp": """\
#include "cpu/cpu_engine.hpp"
#include "cpu/convolution.hpp"
#define REG_CONV_P(...) 0
namespace dnnl { namespace impl { namespace cpu {
int get_convolution_impl_list(int number) { return REG_CONV_P(convolution_t().execute(number)); }
} } }
""",
    "src/cpu/convolution.hpp": """\
#pragma once
namespace dnnl { namespace impl { namespace cpu {
struct convolution_t { int execute(int number); };
} } }
""",
    "src/common/convolution.cpp": """\
#include "cpu/cpu_engine.hpp"
extern "C" int dnnl_convolution(int number) { return dnnl::impl::cpu::run(1, number); }
""",
    "src/cpu/convolution.cpp": """\
#include "cpu/convolution.hpp"
namespace dnnl { namespace impl { namespace cpu {
int convolution_t::execute(int number) { return 3 * number; }
} } }
""",
}
RELEASE = {
    "CMakeLists.txt": """\
cmake_minimum_required(VERSION 3.21)
project(tiny LANGUAGES CXX)
include(FetchContent)
set(ONEDNN_ENABLE_PRIMITIVE "MATMUL;REORDER")
FetchContent_Declare(oneDNN SOURCE_DIR $ENV{FETCHCONTENT_SOURCE_DIR_ONEDNN})
FetchContent_MakeAvailable(oneDNN)
add_library(dnnl_ext OBJECT csrc/helper.cpp)
set_property(TARGET dnnl_ext PROPERTY POSITION_INDEPENDENT_CODE ON)
target_link_libraries(dnnl_ext dnnl)
add_library(_C MODULE csrc/extension.cpp)
set_target_properties(_C PROPERTIES PREFIX "")
target_link_libraries(_C PRIVATE dnnl_ext)
""",
    "csrc/helper.cpp": '#include "dnnl.h"\nint help(int number) { return dnnl_run(0, number); }\n',
    "csrc/extension.cpp": 'int help(int);\nextern "C" int run(int number) { return help(number); }\n',
}
NEEDED = (
    "common/run.cpp",
    "cpu/cpu_convolution_list.cpp",
    "cpu/cpu_engine.cpp",
    "cpu/cpu_matmul_list.cpp",
    "cpu/gemm_by_hand.cpp",
)


def write(folder: Path, files: dict[str, str]) -> Path:
    """Write files below a folder and return it."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def sources() -> dict[str, str]:
    """Return the C++ files by their paths below ``src``."""
    return {name[4:]: text for name, text in LIBRARY.items() if name.startswith("src/") and name.endswith("pp")}
