// SPDX-License-Identifier: Apache-2.0
// Floats that nobody changes any more, with whoever keeps them alive: what is passed on to be sent
// is not copied.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace starling::collective {

struct Floats {
  std::shared_ptr<const void> owner;
  std::span<const float> values;

  // The same owner, fewer floats.
  Floats part(std::size_t begin, std::size_t end) const {
    return {owner, values.subspan(begin, end - begin)};
  }
};

inline Floats share(std::vector<float> values) {
  auto owner = std::make_shared<const std::vector<float>>(std::move(values));
  return {owner, *owner};
}

// The square of |sum / count - own|. O(d). Requires: as many elements.
double squared_distance(std::span<const float> sum, std::span<const float> own, double count = 1);

}  // namespace starling::collective
