# Copyright: (c) 2026, The cpufleet maintainers
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Read by CMake right after oneDNN's own project(). At the end of oneDNN's directory it takes out of the build what the
# release does not link, or all of it where a finished library of the same inputs is in the cache.
#   CPUFLEET_ONEDNN_SOURCES     file with the .cpp files to compile, below src/, one a line; empty file: all of them
#   CPUFLEET_ONEDNN_PRIMITIVES  the primitives that this list was made for
#   CPUFLEET_ONEDNN_DIGEST      digest of oneDNN's source
#   CPUFLEET_ONEDNN_CACHE       folder of finished libraries
#   CPUFLEET_ONEDNN_SCRIPTS     folder of this file
cmake_language(DEFER CALL cpufleet_onednn)
cmake_language(DEFER DIRECTORY "${CMAKE_SOURCE_DIR}" CALL cpufleet_check)

# Every directory below one, itself first.
function(cpufleet_directories directory result)
  set(found "${directory}")
  get_property(below DIRECTORY "${directory}" PROPERTY SUBDIRECTORIES)
  foreach(one IN LISTS below)
    cpufleet_directories("${one}" more)
    list(APPEND found ${more})
  endforeach()
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

# The object libraries that the archive is made of.
function(cpufleet_objects result)
  set(found "")
  cpufleet_directories("${CMAKE_CURRENT_SOURCE_DIR}" directories)
  foreach(directory IN LISTS directories)
    get_property(targets DIRECTORY "${directory}" PROPERTY BUILDSYSTEM_TARGETS)
    foreach(target IN LISTS targets)
      get_target_property(type ${target} TYPE)
      if(type STREQUAL "OBJECT_LIBRARY")
        list(APPEND found ${target})
      endif()
    endforeach()
  endforeach()
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

# All that makes two libraries of the same list different.
function(cpufleet_key list objects result)
  file(READ "${CMAKE_CURRENT_BINARY_DIR}/include/oneapi/dnnl/dnnl_config.h" text)
  foreach(name ID VERSION)
    string(APPEND text "${CMAKE_CXX_COMPILER_${name}} ${CMAKE_C_COMPILER_${name}}\n")
  endforeach()
  string(APPEND text "${CPUFLEET_ONEDNN_DIGEST}\n${list}\n${CMAKE_CXX_STANDARD}\n${CMAKE_SYSTEM_PROCESSOR}\n")
  foreach(target IN LISTS objects)
    get_target_property(directory ${target} SOURCE_DIR)
    foreach(name CMAKE_CXX_FLAGS CMAKE_C_FLAGS CMAKE_CXX_FLAGS_RELEASE CMAKE_BUILD_TYPE)
      get_directory_property(value DIRECTORY "${directory}" DEFINITION ${name})
      string(APPEND text "${name}=${value}\n")
    endforeach()
    foreach(name COMPILE_OPTIONS COMPILE_DEFINITIONS POSITION_INDEPENDENT_CODE)
      get_target_property(value ${target} ${name})
      string(APPEND text "${name}=${value}\n")
    endforeach()
  endforeach()
  # Where the build lies says nothing of what comes of it.
  string(REPLACE "${CMAKE_SOURCE_DIR}" "" text "${text}")
  string(REPLACE "${CMAKE_CURRENT_SOURCE_DIR}" "" text "${text}")
  string(SHA256 digest "${text}")
  string(SUBSTRING "${digest}" 0 24 digest)
  set(${result} "${digest}" PARENT_SCOPE)
endfunction()

# Takes out of the object libraries every .cpp that is not in the list.
function(cpufleet_take_out list objects)
  set(all 0)
  set(kept 0)
  foreach(target IN LISTS objects)
    get_target_property(sources ${target} SOURCES)
    get_target_property(directory ${target} SOURCE_DIR)
    foreach(source IN LISTS sources)
      if(NOT source MATCHES "\\.cpp$")
        continue()
      endif()
      math(EXPR all "${all} + 1")
      get_filename_component(path "${source}" ABSOLUTE BASE_DIR "${directory}")
      file(RELATIVE_PATH name "${CMAKE_CURRENT_SOURCE_DIR}/src" "${path}")
      if(name IN_LIST list)
        math(EXPR kept "${kept} + 1")
      else()
        set_source_files_properties("${path}" TARGET_DIRECTORY ${target} PROPERTIES HEADER_FILE_ONLY ON)
      endif()
    endforeach()
  endforeach()
  message(STATUS "cpufleet: ${kept} of ${all} sources of oneDNN are compiled")
endfunction()

# The list, or nothing where all has to be compiled; an earlier build may have found out that the list does not do.
function(cpufleet_list result)
  file(STRINGS "${CPUFLEET_ONEDNN_SOURCES}" list)
  string(TOLOWER "${ONEDNN_ENABLE_PRIMITIVE}" primitives)
  if(list AND NOT primitives STREQUAL CPUFLEET_ONEDNN_PRIMITIVES)
    message(STATUS "cpufleet: oneDNN is compiled as a whole: its primitives are ${primitives}")
    set(list "")
  endif()
  if(list AND EXISTS "${CPUFLEET_ONEDNN_SOURCES}.lacks")
    message(STATUS "cpufleet: oneDNN is compiled as a whole: an earlier build lacked a symbol")
    set(list "")
  endif()
  set(${result} "${list}" PARENT_SCOPE)
endfunction()

function(cpufleet_onednn)
  cpufleet_list(list)
  cpufleet_objects(objects)
  cpufleet_key("${list}" "${objects}" key)
  set(cached "${CPUFLEET_ONEDNN_CACHE}/${key}/libdnnl.a")
  set(archive "${CMAKE_CURRENT_BINARY_DIR}/src/libdnnl.a")
  if(EXISTS "${cached}")
    set(archive "")
    message(STATUS "cpufleet: oneDNN is taken finished from the cache: ${key}")
    cpufleet_take_out("none" "${objects}")
    file(WRITE "${CMAKE_CURRENT_BINARY_DIR}/nothing.cpp" "namespace { int nothing [[maybe_unused]]; }\n")
    target_sources(dnnl PRIVATE "${CMAKE_CURRENT_BINARY_DIR}/nothing.cpp")
    target_link_libraries(dnnl INTERFACE "${cached}")
    file(TOUCH_NOCREATE "${cached}")
  elseif(list)
    cpufleet_take_out("${list}" "${objects}")
  endif()
  file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/cpufleet-onednn.cmake" @ONLY CONTENT [[
set(archive "@archive@")
set(cache "@CPUFLEET_ONEDNN_CACHE@")
set(key "@key@")
]])
endfunction()

# The release's own libraries must not lack anything of oneDNN: an extension module with a missing symbol links all the
# same, and fails on import.
function(cpufleet_check)
  cpufleet_directories("${CMAKE_SOURCE_DIR}" directories)
  foreach(directory IN LISTS directories)
    get_property(targets DIRECTORY "${directory}" PROPERTY BUILDSYSTEM_TARGETS)
    foreach(target IN LISTS targets)
      get_target_property(type ${target} TYPE)
      get_target_property(home ${target} SOURCE_DIR)
      if(type MATCHES "^(MODULE|SHARED)_LIBRARY$" AND home STREQUAL CMAKE_SOURCE_DIR)
        add_custom_command(TARGET ${target} POST_BUILD VERBATIM
          COMMAND "${CMAKE_COMMAND}" "-Dlibrary=$<TARGET_FILE:${target}>" "-Dnm=${CMAKE_NM}"
            "-Dlist=${CPUFLEET_ONEDNN_SOURCES}" "-Dused=${CMAKE_BINARY_DIR}/cpufleet-onednn.cmake"
            -P "${CPUFLEET_ONEDNN_SCRIPTS}/check.cmake")
      endif()
    endforeach()
  endforeach()
endfunction()
