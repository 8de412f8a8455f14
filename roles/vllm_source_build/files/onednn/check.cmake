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

  # As many as a host's releases need; the time of a library is that of its last use.
  file(GLOB libraries "${cache}/*/libdnnl.a")
  set(used_at "")
  foreach(library IN LISTS libraries)
    file(TIMESTAMP "${library}" time "%s")
    list(APPEND used_at "${time} ${library}")
  endforeach()
  list(SORT used_at COMPARE NATURAL ORDER DESCENDING)
  list(LENGTH used_at count)
  if(count GREATER 4)
    list(SUBLIST used_at 4 -1 old)
    foreach(entry IN LISTS old)
      string(REGEX REPLACE "^[0-9]+ (.*)/libdnnl.a$" "\\1" folder "${entry}")
      file(REMOVE_RECURSE "${folder}")
    endforeach()
  endif()
endif()
