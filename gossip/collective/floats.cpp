// SPDX-License-Identifier: Apache-2.0
#include "gossip/collective/floats.h"

#include <array>
#include <cstddef>
#include <numeric>

namespace starling::collective {

// In lanes that a compiler makes vectors of.
double squared_distance(std::span<const float> sum, std::span<const float> own, double count) {
  constexpr std::size_t kLanes = 8;
  std::array<double, kLanes> squares{};
  const auto add = [&](std::size_t lane, std::size_t at) {
    const double away = static_cast<double>(sum[at]) / count - static_cast<double>(own[at]);
    squares[lane] += away * away;
  };
  const std::size_t whole = sum.size() / kLanes * kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) add(lane, i + lane);
  }
  for (std::size_t i = whole; i < sum.size(); ++i) add(0, i);
  return std::accumulate(squares.begin(), squares.end(), 0.0);
}

}  // namespace starling::collective
