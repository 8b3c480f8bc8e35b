// SPDX-License-Identifier: Apache-2.0
// Gaussian clusters, one a class, for tests and first steps without a file. With m_c ~ N(0, I) the
// centre of class c, row i is  x_i = m_c + noise * z_i,  c = i mod classes,  z_i ~ N(0, I).
// The best classifier is the nearest centre: two centres lie about sqrt(2 features) apart.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"

namespace starling::data {

struct SyntheticSpec {
  std::uint32_t rows = 10'000;  // of each split; 1 .. 2^31
  int features = 20;            // 1 .. 2^20
  int classes = 4;              // 1 .. 65536
  double noise = 1.5;           // standard deviation around the centre, [0, 1e6]
  std::uint64_t seed = 1;

  // "rows=10000,features=20,classes=4,noise=1.5,seed=1", any subset, any order; empty: defaults.
  [[nodiscard]] static Result<SyntheticSpec> parse(std::string_view text);
  std::string to_string() const;
  friend bool operator==(const SyntheticSpec&, const SyntheticSpec&) = default;
};

// Writes row `row`'s features. Centres depend on the seed alone; each row of each split ("train",
// "test") has a stream of its own, so that any subset of rows can be made in any order.
class SyntheticGenerator {
 public:
  SyntheticGenerator(const SyntheticSpec& spec, std::string_view split);

  std::int32_t label(std::uint32_t row) const {
    return static_cast<std::int32_t>(row % static_cast<std::uint32_t>(spec_.classes));
  }
  std::span<const float> centre(std::int32_t label) const;
  // Requires: out.size() == spec.features.
  void fill(std::uint32_t row, std::span<float> out) const;

 private:
  SyntheticSpec spec_;
  std::uint64_t split_;
  std::vector<float> centres_;  // [classes, features]
};

}  // namespace starling::data
