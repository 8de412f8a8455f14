# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Run after each link. Fails where the library lacks a symbol of oneDNN; else keeps the oneDNN that it was linked with.
cmake_minimum_required(VERSION 3.21)
include("${used}")
execute_process(
  COMMAND "${nm}" --dynamic --undefined-only "${library}" OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY
)
string(REGEX MATCH "[^ \n]*(4dnnl|dnnl_)[^ \n]*" missing "${symbols}")
if(missing)
  file(REMOVE_RECURSE "${cache}/${key}")
  file(WRITE "${list}.lacks" "${missing}\n")
  # Indented, so that CMake does not break the line.
  message(FATAL_ERROR "  cpufleet: oneDNN lacks ${missing}, which ${library} needs")
endif()

if(archive AND EXISTS "${archive}" AND NOT EXISTS "${cache}/${key}")
  string(RANDOM LENGTH 12 part)
  file(MAKE_DIRECTORY "${cache}/.${part}")
  file(COPY_FILE "${archive}" "${cache}/.${part}/libdnnl.a")
  file(RENAME "${cache}/.${part}" "${cache}/${key}" RESULT taken)
  file(REMOVE_RECURSE "${cache}/.${part}")
endif()
