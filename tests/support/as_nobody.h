// SPDX-License-Identifier: Apache-2.0
// While it lives, tests that run as root act as the user nobody: root may read every file.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

namespace starling::testing {

class AsNobody {
 public:
  AsNobody() : is_root_(::geteuid() == 0) {
    if (is_root_) {
      EXPECT_EQ(::seteuid(65534), 0);
    }
  }
  ~AsNobody() {
    if (is_root_) {
      EXPECT_EQ(::seteuid(0), 0);
    }
  }

 private:
  const bool is_root_;
};

}  // namespace starling::testing
