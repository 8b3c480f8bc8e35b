// SPDX-License-Identifier: Apache-2.0
#include "core/base/core_dumps.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <cstdlib>

#include "core/base/sanitizers.h"

namespace starling {
namespace {

[[noreturn]] void forbid_and_exit() {
  forbid_core_dumps();
  rlimit limit{};
  const bool no_file = ::getrlimit(RLIMIT_CORE, &limit) == 0 && limit.rlim_max == 0;
  const bool no_reading = kSanitized || ::prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 0;
  std::exit(no_file && no_reading ? 0 : 1);
}

// In a process of its own: it cannot be taken back.
TEST(CoreDumps, AreForbidden) { EXPECT_EXIT(forbid_and_exit(), ::testing::ExitedWithCode(0), ""); }

}  // namespace
}  // namespace starling
