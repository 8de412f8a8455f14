# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The CMake reader: what a made-up host meets in a made-up build file."""

from __future__ import annotations

import pytest
from ansible_collections.cpufleet.vllm.plugins.module_utils import _source_cmake as cmake

BUILD = r"""
# a comment with if(parentheses)
#[[ a bracket comment
   set(HIDDEN 1) ]]
set(ENABLE_BF16 $ENV{WANT_BF16})
execute_process(COMMAND cat /proc/cpuinfo RESULT_VARIABLE RET OUTPUT_VARIABLE CPUINFO)
if (NOT RET EQUAL 0)
  message(FATAL_ERROR "no cpuinfo")
endif()
function (find_isa CPUINFO TARGET OUT)
  message(FATAL_ERROR "bodies are passed over")
endfunction()
find_isa(${CPUINFO} "avx2" AVX2_FOUND)
find_isa(${CPUINFO} "avx512f" AVX512_FOUND)
is_avx512_disabled(OFF_SWITCH)
if (AVX512_FOUND AND NOT OFF_SWITCH)
  if (CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND
      CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 12.3)
    list(APPEND FLAGS "-mavx512bf16")
  else()
    message(WARNING "no bf16")
  endif()
  FetchContent_Declare(oneDNN GIT_REPOSITORY https://example.org/x.git GIT_TAG v${NUMBER})
elseif (AVX2_FOUND)
  message(STATUS "avx2 ; only")
else()
  message(FATAL_ERROR "nothing fits")
endif()
list(APPEND LIBS numa)
foreach(name IN ITEMS a b)
  message(FATAL_ERROR "loops are passed over")
endforeach()
define_gpu_extension_target(_C DESTINATION vllm)
"""


def rehearse(flags: str, **given: object) -> cmake.Rehearsal:
    return cmake.Rehearsal(flags, **given).run(cmake.parse(BUILD))  # type: ignore[arg-type]


def test_commands_have_names_arguments_and_lines() -> None:
    commands = cmake.parse('set(A "b c" d) # x\n\nIF(NOT (A AND B))\nendif()')
    assert [(command.name, command.texts, command.line) for command in commands] == [
        ("set", ["A", "b c", "d"], 1),
        ("if", ["NOT", "(", "A", "AND", "B", ")"], 3),
        ("endif", [], 4),
    ]


def test_strong_host_with_new_compiler_fetches_onednn() -> None:
    met = rehearse("avx2 avx512f", variables={"NUMBER": "3.6"})
    assert [command.texts[-1] for command in met.declared] == ["v3.6"]
    assert met.messages == []
    assert met.variables["FLAGS"] == "-mavx512bf16"
    assert met.links == {"numa"}
    assert met.targets == {"_C": BUILD[: BUILD.index("define_gpu")].count("\n") + 1}


def test_old_compiler_gets_the_warning_only() -> None:
    assert [(kind, text) for kind, text, _line in rehearse("avx2 avx512f", compiler="12.2.0").messages] == [
        ("WARNING", "no bf16")
    ]


def test_off_switch_must_say_true() -> None:
    assert rehearse("avx2 avx512f", environment={"VLLM_CPU_DISABLE_AVX512": "1"}).declared
    assert not rehearse("avx2 avx512f", environment={"VLLM_CPU_DISABLE_AVX512": "true"}).declared


def test_weak_hosts() -> None:
    assert rehearse("avx2").messages[0][:2] == ("STATUS", "avx2 ; only")
    assert rehearse("sse4_2").messages[0][:2] == ("FATAL_ERROR", "nothing fits")


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("TRUE", True),
        ("OFF", False),
        ("UNSET", False),
        ("SET", True),
        ('"SET"', False),
        ("NOT UNSET AND SET", True),
        ("UNSET OR SET AND UNSET", False),
        ("(UNSET OR SET) AND SET", True),
        ("DEFINED SET", True),
        ("DEFINED ENV{HOME_TOWN}", True),
        ("NOT DEFINED ENV{NOWHERE}", True),
        ("SET STREQUAL yes", True),
        ('CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|amd64"', True),
        ("9.10 VERSION_GREATER 9.9", True),
        ("12.3 VERSION_GREATER_EQUAL 12.3.0", True),
        ("12.2 VERSION_LESS 12.3", True),
        ("12.3 VERSION_LESS 12.3", False),
        ("3 GREATER 20", False),
        ("EXISTS /proc/cpuinfo", False),
        ('A MATCHES "("', False),
        ("", False),
    ],
)
def test_conditions(condition: str, holds: bool) -> None:
    (command,) = cmake.parse(f"if({condition})")
    rehearsal = cmake.Rehearsal("", variables={"SET": "yes"}, environment={"HOME_TOWN": ""})
    assert rehearsal.holds(command.arguments) is holds


def test_one_branch_of_a_chain_is_entered() -> None:
    text = "if(ON)\nset(A 1)\nelseif(ON)\nset(A 2)\nelseif(ON)\nset(A 3)\nelse()\nset(A 4)\nendif()"
    assert cmake.Rehearsal("").run(cmake.parse(text)).variables["A"] == "1"
    text = "if(OFF)\nset(A 1)\nelseif(ON)\nset(A 2)\nelseif(ON)\nset(A 3)\nelse()\nset(A 4)\nendif()"
    assert cmake.Rehearsal("").run(cmake.parse(text)).variables["A"] == "2"
    nested = "if(OFF)\nif(ON)\nset(A 1)\nelse()\nset(A 2)\nendif()\nendif()"
    assert "A" not in cmake.Rehearsal("").run(cmake.parse(nested)).variables


def test_compiler_floors_are_all_versions_that_conditions_name() -> None:
    text = """
    if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS "9.3")
    elseif(CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 12.3 AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 15)
    endif()
    """
    assert cmake.compiler_floors(cmake.parse(text)) == ["9.3", "12.3", "15"]


def test_broken_text_ends_in_no_command() -> None:
    assert cmake.parse('set(A "never closed') == []
    assert cmake.parse(")))") == []
