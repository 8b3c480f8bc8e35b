// SPDX-License-Identifier: Apache-2.0
#include "coordinator/machine/repetition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace starling::coordinator {
namespace {

TEST(Repetition, IsLoggedLessAndLessOften) {
  std::vector<std::uint64_t> logged;
  for (std::uint64_t n = 1; n <= 100; ++n) {
    if (is_logged(n)) logged.push_back(n);
  }
  EXPECT_THAT(logged, ::testing::ElementsAre(1, 2, 3, 4, 8, 16, 32, 64));
}

}  // namespace
}  // namespace starling::coordinator
