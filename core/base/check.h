// SPDX-License-Identifier: Apache-2.0
// STARLING_CHECK: a bug, not an expected failure. Prints where and aborts, in every build.
#pragma once

namespace starling {

[[noreturn]] void check_failed(const char* condition, const char* file, int line) noexcept;

}  // namespace starling

#define STARLING_CHECK(condition)                               \
  do {                                                          \
    if (!(condition)) [[unlikely]] {                            \
      ::starling::check_failed(#condition, __FILE__, __LINE__); \
    }                                                           \
  } while (false)
