// SPDX-License-Identifier: Apache-2.0
#include "gossip/simulation/mean_model.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/linalg/sum.h"

namespace starling::gossip {
namespace {

// Part of every recorded distance: another width sums in another order.
constexpr std::size_t kColumns = 512;

using Means = std::array<double, kColumns>;

// The means of the columns [begin, begin + width).
void column_means(std::span<const std::span<const float>> models, std::size_t begin,
                  std::size_t width, Means& means) {
  means.fill(0);
  for (const std::span<const float> model : models) {
    const float* x = model.data() + begin;
    for (std::size_t c = 0; c < width; ++c) means[c] += static_cast<double>(x[c]);
  }
  for (std::size_t c = 0; c < width; ++c) means[c] /= static_cast<double>(models.size());
}

template <class Body>
void for_each_tile(std::size_t size, ComputePool& pool, const Body& body) {
  pool.for_each((size + kColumns - 1) / kColumns, [&](std::size_t tile, unsigned) {
    const std::size_t begin = tile * kColumns;
    body(tile, begin, std::min(kColumns, size - begin));
  });
}

}  // namespace

void mean_of(std::span<const std::span<const float>> models, std::span<float> out,
             ComputePool& pool) {
  for_each_tile(out.size(), pool, [&](std::size_t, std::size_t begin, std::size_t width) {
    Means means;
    column_means(models, begin, width, means);
    for (std::size_t c = 0; c < width; ++c) out[begin + c] = static_cast<float>(means[c]);
  });
}

double consensus_distance(std::span<const std::span<const float>> models, ComputePool& pool) {
  const std::size_t size = models.front().size();
  std::vector<double> squares((size + kColumns - 1) / kColumns);
  for_each_tile(size, pool, [&](std::size_t tile, std::size_t begin, std::size_t width) {
    Means means;
    column_means(models, begin, width, means);
    Means sums{};
    for (const std::span<const float> model : models) {
      const float* x = model.data() + begin;
      for (std::size_t c = 0; c < width; ++c) {
        const double difference = static_cast<double>(x[c]) - means[c];
        sums[c] += difference * difference;
      }
    }
    squares[tile] = linalg::pairwise_sum(std::span(sums).first(width));
  });
  return std::sqrt(linalg::pairwise_sum(squares) / static_cast<double>(models.size()));
}

}  // namespace starling::gossip
