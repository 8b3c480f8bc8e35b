# SPDX-License-Identifier: Apache-2.0
# Hardening as distributions build with: position-independent programs, stack protector, protection
# against stack clashes, control-flow integrity where the processor has it, read-only relocations
# bound at start, and checked copies (fortify) in optimised code. The same for all targets, because
# precompiled headers are shared; sanitizers bring checks of their own instead of fortify.
# tests/hardening looks at the programs.
#
# Control-flow integrity (CET) takes effect only where the C library has it too: the linker marks a
# program only if all of its objects are marked. All of ours are; Debian's start files (Scrt1.o,
# crti.o, crtn.o of libc6-dev) are not, so programs linked there run without it.

include(CheckCXXCompilerFlag)
include(CheckCXXSourceCompiles)
include(CheckLinkerFlag)
include(CheckPIESupported)

# Programs are linked as what CMAKE_POSITION_INDEPENDENT_CODE has them compiled as.
check_pie_supported(OUTPUT_VARIABLE starling_pie_output LANGUAGES CXX)
if(NOT CMAKE_CXX_LINK_PIE_SUPPORTED)
  message(STATUS "Programs are not position-independent: ${starling_pie_output}")
endif()

set(flags -fstack-protector-strong -fstack-clash-protection)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|i[3-6]86)$")
  list(APPEND flags -fcf-protection=full)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  list(APPEND flags -mbranch-protection=standard)
endif()
foreach(flag ${flags})
  string(MAKE_C_IDENTIFIER "STARLING_HAS${flag}" supported)
  set(CMAKE_REQUIRED_FLAGS -Werror)  # clang only warns of what it does not use
  check_cxx_compiler_flag(${flag} ${supported})
  unset(CMAKE_REQUIRED_FLAGS)
  if(${supported})
    target_compile_options(starling_private_options INTERFACE ${flag})
  endif()
endforeach()

foreach(flag -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)
  string(MAKE_C_IDENTIFIER "STARLING_HAS${flag}" supported)
  check_linker_flag(CXX ${flag} ${supported})
  if(${supported})
    target_link_options(starling_private_options INTERFACE ${flag})
  endif()
endforeach()

# The highest level that compiler and C library know; a compiler that has one built in accepts that.
# Without optimisation it only warns, and the tests' own code is not optimised.
if(NOT STARLING_SANITIZE)
  foreach(level 3 2)
    set(CMAKE_REQUIRED_FLAGS "-O2 -Werror -D_FORTIFY_SOURCE=${level}")
    check_cxx_source_compiles("#include <cstring>\nint main() {}" STARLING_HAS_FORTIFY_${level})
    unset(CMAKE_REQUIRED_FLAGS)
    if(STARLING_HAS_FORTIFY_${level})
      set(unoptimised "$<IN_LIST:-O0,$<TARGET_PROPERTY:COMPILE_OPTIONS>>")
      target_compile_definitions(starling_private_options INTERFACE
        $<$<NOT:$<OR:$<CONFIG:Debug>,${unoptimised}>>:_FORTIFY_SOURCE=${level}>)
      break()
    endif()
  endforeach()
endif()
