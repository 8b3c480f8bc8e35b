// SPDX-License-Identifier: Apache-2.0
#include "core/client/tensor_memory.h"

#include <gtest/gtest.h>

namespace starling::client {
namespace {

TEST(TensorMemory, ASecondTensorBeginsHalfAPageBeyondAPageBoundary) {
  for (const std::uint64_t bytes : {0U, 4U, 4092U, 4096U, 4100U, 400'003'072U}) {
    const std::uint64_t place = TensorMemory::place_after(bytes);
    EXPECT_EQ(place % 4096, 2048U) << bytes;
    EXPECT_EQ(place % TensorMemory::kAlignment, 0U) << bytes;
    EXPECT_GE(place, bytes);
    EXPECT_LE(place, bytes + 3 * 2048) << bytes;
  }
}

}  // namespace
}  // namespace starling::client
