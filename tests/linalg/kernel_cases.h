// SPDX-License-Identifier: Apache-2.0
// What the kernel tests share: every instruction set of this processor, random operands.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/base/rng.h"
#include "core/linalg/kernels.h"

namespace starling::linalg {

class EachKernels : public ::testing::TestWithParam<const Kernels*> {
 protected:
  const Kernels& kernels() const { return *GetParam(); }
};

inline std::string kernels_name(const ::testing::TestParamInfo<const Kernels*>& info) {
  return info.param->name;
}

inline std::vector<float> random_floats(std::size_t count, Rng& rng) {
  std::vector<float> values(count);
  for (float& v : values) v = static_cast<float>(rng.uniform(-1, 1));
  return values;
}

// |x - y| in units of what rounding may do to a sum of `terms` products of magnitude 1.
inline void expect_close(double x, double y, std::size_t terms, const std::string& where) {
  const double tolerance = 4e-7 * (4 + std::sqrt(static_cast<double>(terms)) * 2);
  EXPECT_NEAR(x, y, tolerance) << where;
}

}  // namespace starling::linalg
