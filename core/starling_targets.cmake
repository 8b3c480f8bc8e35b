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
  target_sources(${target} ${scope} FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${ARG_HEADERS})
  target_link_libraries(${target} ${scope} starling_options)
  foreach(dependency ${ARG_DEPENDS})
    if(TARGET starling_${dependency})
      target_link_libraries(${target} ${scope} starling_${dependency})
    else()
      target_link_libraries(${target} ${scope} ${dependency})
    endif()
  endforeach()
  if(ARG_PRIVATE)
    target_link_libraries(${target} PRIVATE ${ARG_PRIVATE})
  endif()
  set_property(TARGET ${target} PROPERTY VERIFY_INTERFACE_HEADER_SETS ${PROJECT_IS_TOP_LEVEL})
  install(TARGETS ${target} EXPORT starling ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/starling)
endfunction()

# starling_program(NAME SOURCES main.cpp LINK coordinator): an installed executable.
function(starling_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE starling_private_options)
  foreach(dependency ${ARG_LINK})
    if(TARGET starling_${dependency})
      target_link_libraries(${name} PRIVATE starling_${dependency})
    else()
      target_link_libraries(${name} PRIVATE ${dependency})
    endif()
  endforeach()
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
