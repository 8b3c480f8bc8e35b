# SPDX-License-Identifier: Apache-2.0
# How every target of Starling is declared: warnings, sanitizers, header sets, install and export.

add_library(starling_options INTERFACE)
set_target_properties(starling_options PROPERTIES EXPORT_NAME options)
target_compile_features(starling_options INTERFACE cxx_std_20)
add_library(starling_private_options INTERFACE)
target_compile_options(starling_private_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wconversion -Wno-sign-conversion
  -Wno-missing-field-initializers  # designated initialisers name what they set
  $<$<BOOL:${STARLING_WERROR}>:-Werror>
  $<$<CXX_COMPILER_ID:GNU>:-Wno-psabi -Wno-restrict>)  # g++ 12 bug 105329: false -Wrestrict on string +
if(STARLING_SANITIZE)
  add_compile_options(-fsanitize=${STARLING_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all -O1 -g1)
  add_link_options(-fsanitize=${STARLING_SANITIZE})
endif()

find_package(Threads REQUIRED)
find_package(Boost 1.81 REQUIRED)

# The headers that most files begin with are compiled once for all libraries and once for all tests,
# which takes a third off the time to build. Files include what they use all the same: only the preset
# `dev` and clang-tidy, which build without, notice where one does not.
option(STARLING_PRECOMPILE "Precompile the headers that most files share" ${PROJECT_IS_TOP_LEVEL})

# starling_precompiled(TARGET [NET] HEADERS <sstream> LINK GTest::gmock)
# Makes the target one whose headers others reuse; NET: those of Asio too. Both sides must be compiled
# with the same flags and macros, or compilers refuse.
function(starling_precompiled target)
  cmake_parse_arguments(ARG "NET" "" "HEADERS;LINK" ${ARGN})
  target_precompile_headers(${target} PRIVATE <algorithm> <array> <cmath> <cstdint> <filesystem>
    <functional> <map> <memory> <optional> <set> <span> <string> <string_view> <vector>
    <fmt/format.h> ${ARG_HEADERS})
  target_link_libraries(${target} PRIVATE starling_options starling_private_options fmt::fmt
    ${ARG_LINK})
  target_compile_options(${target} PRIVATE
    $<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>)  # else compiler caches miss
  if(ARG_NET)
    target_precompile_headers(${target} PRIVATE <boost/asio/as_tuple.hpp>
      <boost/asio/awaitable.hpp> <boost/asio/co_spawn.hpp> <boost/asio/io_context.hpp>
      <boost/asio/ip/tcp.hpp> <boost/asio/post.hpp> <boost/asio/steady_timer.hpp>
      <boost/asio/use_awaitable.hpp>)
    target_link_libraries(${target} PRIVATE Boost::headers)
    target_compile_definitions(${target} PRIVATE BOOST_ASIO_SEPARATE_COMPILATION)  # as core/net has
  endif()
endfunction()

# Lets the target reuse the headers of `starling_precompiled_KIND`, or those with Asio if it links net.
function(starling_reuse_precompiled target kind)
  if(STARLING_PRECOMPILE)
    get_target_property(net ${target} STARLING_NET)
    if(net)
      set(kind ${kind}_net)
    endif()
    target_precompile_headers(${target} REUSE_FROM starling_precompiled_${kind})
    # g++ 12 bug 105329 again: it forgets that precompiled code is a system header's.
    target_compile_options(${target} PRIVATE
      $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds -Wno-stringop-overflow>)
  endif()
endfunction()

if(STARLING_PRECOMPILE)
  find_package(fmt REQUIRED)
  set(starling_empty_source ${PROJECT_BINARY_DIR}/empty.cpp)  # a target needs a file to compile
  file(CONFIGURE OUTPUT ${starling_empty_source} CONTENT "")
  add_library(starling_precompiled_library OBJECT ${starling_empty_source})
  starling_precompiled(starling_precompiled_library)
  add_library(starling_precompiled_library_net OBJECT ${starling_empty_source})
  starling_precompiled(starling_precompiled_library_net NET)
endif()

# The sources of a library or program are compiled together, some twenty at a time, so that the headers
# they share are read once: a whole build takes half as long. Names in unnamed namespaces must therefore
# differ within a folder. The preset `dev` compiles each source alone, which is quicker after a change.
option(STARLING_UNITY "Compile the sources of a target together" ${PROJECT_IS_TOP_LEVEL})

function(starling_compile_together target)
  if(STARLING_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 20)
    # g++ takes each source for a header of the file that includes them all.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

# Links Starling's own libraries, named without their prefix, or other targets.
function(starling_link target scope)
  foreach(dependency ${ARGN})
    if(TARGET starling_${dependency})
      target_link_libraries(${target} ${scope} starling_${dependency})
      get_target_property(net starling_${dependency} STARLING_NET)
      if(net)
        set_target_properties(${target} PROPERTIES STARLING_NET ON)
      endif()
    else()
      target_link_libraries(${target} ${scope} ${dependency})
    endif()
  endforeach()
endfunction()

# A header x.h with a source x.cpp is the first that this includes: where sources are compiled one by one
# and nothing is precompiled (the preset `dev`; clang-tidy on the sources that changed) it must compile
# alone. Builds with precompiled headers or sources compiled together do not notice a missing include.
# The other headers are compiled by themselves (target all_verify_interface_header_sets).
macro(starling_split_headers)
  set(included_first ${ARG_HEADERS})
  set(included_later)
  foreach(header ${ARG_HEADERS})
    string(REGEX REPLACE "\\.h$" ".cpp" source ${header})
    if(NOT source IN_LIST ARG_SOURCES)
      list(REMOVE_ITEM included_first ${header})
      list(APPEND included_later ${header})
    endif()
  endforeach()
endmacro()

# starling_library(NAME SOURCES a.cpp HEADERS a.h DEPENDS base PRIVATE OpenSSL::Crypto)
# Declares starling_NAME with the alias starling::NAME from the files of the current folder.
# DEPENDS are Starling's own libraries (public) or other targets that headers need; PRIVATE stay inside.
function(starling_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;HEADERS;DEPENDS;PRIVATE" ${ARGN})
  set(target starling_${name})
  if(ARG_SOURCES)
    add_library(${target} STATIC ${ARG_SOURCES})
    set(scope PUBLIC)
    target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:starling_private_options>)
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  add_library(starling::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  starling_split_headers()
  target_sources(${target} ${scope}
    FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${included_first}
    FILE_SET included_later TYPE HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${included_later})
  target_link_libraries(${target} ${scope} starling_options)
  starling_link(${target} ${scope} ${ARG_DEPENDS})
  if(ARG_PRIVATE)
    target_link_libraries(${target} PRIVATE ${ARG_PRIVATE})
  endif()
  if(name STREQUAL "net")
    set_target_properties(${target} PROPERTIES STARLING_NET ON)
  endif()
  if(ARG_SOURCES)
    starling_reuse_precompiled(${target} library)
    starling_compile_together(${target})
  endif()
  set_target_properties(${target} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ${PROJECT_IS_TOP_LEVEL}
    INTERFACE_HEADER_SETS_TO_VERIFY included_later)
  install(TARGETS ${target} EXPORT starling ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/starling
    FILE_SET included_later DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/starling)
endfunction()

# starling_program(NAME SOURCES main.cpp LINK coordinator): an installed executable.
function(starling_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE starling_private_options)
  starling_link(${name} PRIVATE ${ARG_LINK})
  starling_compile_together(${name})
  install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endfunction()

function(starling_install_package)
  install(TARGETS starling_options EXPORT starling)
  install(EXPORT starling NAMESPACE starling:: FILE starlingTargets.cmake
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/starling)
  include(CMakePackageConfigHelpers)
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/starlingConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)
  configure_file(${PROJECT_SOURCE_DIR}/core/starlingConfig.cmake.in
    ${PROJECT_BINARY_DIR}/starlingConfig.cmake @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/starlingConfig.cmake
    ${PROJECT_BINARY_DIR}/starlingConfigVersion.cmake
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/starling)
endfunction()
