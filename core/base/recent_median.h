// SPDX-License-Identifier: Apache-2.0
// The median of the latest values: what was usual, whatever a few outliers among them are.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

namespace starling {

class RecentMedian {
 public:
  void add(double value) { values_[added_++ % values_.size()] = value; }
  std::size_t size() const { return std::min(added_, values_.size()); }
  // The upper one of an even number of values. Requires: size() > 0.
  double median() const {
    auto sorted = values_;
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.begin() + static_cast<std::ptrdiff_t>(size()));
    return *middle;
  }

 private:
  std::array<double, 31> values_{};
  std::size_t added_ = 0;
};

}  // namespace starling
