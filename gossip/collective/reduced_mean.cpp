// SPDX-License-Identifier: Apache-2.0
#include "gossip/collective/reduced_mean.h"

#include <algorithm>
#include <vector>

#include "core/base/check.h"

namespace starling::collective {
namespace {

// Columns that are summed along a tree at a time.
constexpr std::size_t kColumns = 512;

void add(const float* values, std::span<float> sum) {
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
}

// Segment k begins at member k and goes round.
void sum_ring(std::span<const std::span<const float>> inputs, std::span<float> sum) {
  const std::size_t members = inputs.size();
  for (std::size_t k = 0; k < members; ++k) {
    const std::uint64_t begin = segment_begin(k, members, sum.size());
    const auto part = sum.subspan(begin, segment_size(k, members, sum.size()));
    std::ranges::copy(inputs[k].subspan(begin, part.size()), part.begin());
    for (std::size_t i = 1; i < members; ++i) add(inputs[(k + i) % members].data() + begin, part);
  }
}

// Each member adds the sums of its children in their order, the smallest subtree first.
void sum_tree(std::span<const std::span<const float>> inputs, std::span<float> sum) {
  const std::size_t members = inputs.size();
  std::vector<float> sums(members * kColumns);
  for (std::size_t begin = 0; begin < sum.size(); begin += kColumns) {
    const std::size_t width = std::min(kColumns, sum.size() - begin);
    const auto of = [&](std::size_t member) {
      return std::span(sums).subspan(member * kColumns, width);
    };
    for (std::size_t i = 0; i < members; ++i) {
      std::ranges::copy(inputs[i].subspan(begin, width), of(i).begin());
    }
    for (std::size_t child = 1; child < members; child *= 2) {
      for (std::size_t i = 0; i + child < members; i += 2 * child) add(of(i + child).data(), of(i));
    }
    std::ranges::copy(of(0), sum.begin() + static_cast<std::ptrdiff_t>(begin));
  }
}

}  // namespace

void reduced_mean(std::span<const std::span<const float>> inputs, const ShapeRule& rule,
                  std::span<float> mean) {
  STARLING_CHECK(!inputs.empty());
  if (inputs.size() == 1) {
    std::ranges::copy(inputs[0], mean.begin());
    return;
  }
  if (choose_shape(rule, inputs.size(), mean.size()) == Shape::kRing) {
    sum_ring(inputs, mean);
  } else {
    sum_tree(inputs, mean);
  }
  const auto divisor = static_cast<float>(inputs.size());
  for (float& value : mean) value /= divisor;
}

}  // namespace starling::collective
