// SPDX-License-Identifier: Apache-2.0
#include "core/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace starling {

void check_failed(const char* condition, const char* file, int line) noexcept {
  std::fprintf(stderr, "starling: bug: %s does not hold at %s:%d\n", condition, file, line);
  std::abort();
}

}  // namespace starling
