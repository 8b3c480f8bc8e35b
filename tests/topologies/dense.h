// SPDX-License-Identifier: Apache-2.0
// Mixing matrices as plain dense ones, for checks that share no code with the library.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "topologies/topology.h"

namespace starling::testing {

using Dense = std::vector<std::vector<double>>;

inline std::unique_ptr<const topologies::Topology> topology(topologies::TopologyOptions options) {
  auto made = topologies::Topology::make(options);
  EXPECT_TRUE(made) << options.spec << ": " << (made ? "" : made.error().message());
  return std::move(made).value();
}

inline std::unique_ptr<const topologies::Topology> topology(const std::string& spec,
                                                            topologies::Node nodes,
                                                            std::uint64_t seed = 1) {
  return topology({.spec = spec, .nodes = nodes, .seed = seed});
}

inline Error refusal(topologies::TopologyOptions options) {
  const auto made = topologies::Topology::make(options);
  EXPECT_FALSE(made) << options.spec << " with " << options.nodes << " nodes";
  return made ? Error() : made.error();
}

inline Dense dense(const topologies::MixingMatrix& matrix) {
  Dense result(matrix.nodes(), std::vector<double>(matrix.nodes()));
  for (topologies::Node i = 0; i < matrix.nodes(); ++i) {
    result[i][i] = matrix.self(i);
    for (const auto& sender : matrix.senders(i)) result[i][sender.node] = sender.weight;
  }
  return result;
}

inline Dense product(const Dense& a, const Dense& b) {
  Dense result(a.size(), std::vector<double>(a.size()));
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t k = 0; k < a.size(); ++k) {
      if (a[i][k] == 0) continue;
      for (std::size_t j = 0; j < a.size(); ++j) result[i][j] += a[i][k] * b[k][j];
    }
  }
  return result;
}

// Of the first `steps` steps, the last one leftmost.
inline Dense product(const topologies::Topology& topology, std::uint64_t steps) {
  Dense result = dense(*topology.at(0));
  for (std::uint64_t t = 1; t < steps; ++t) result = product(dense(*topology.at(t)), result);
  return result;
}

// The largest |P_ij - 1/n|.
inline double distance_from_mean(const Dense& product) {
  double largest = 0;
  for (const auto& row : product) {
    for (const double value : row) {
      largest = std::max(largest, std::abs(value - 1.0 / static_cast<double>(product.size())));
    }
  }
  return largest;
}

inline std::size_t degree_max(const topologies::MixingMatrix& matrix) {
  std::size_t largest = 0;
  for (topologies::Node i = 0; i < matrix.nodes(); ++i) {
    largest = std::max(largest, matrix.receivers(i).size());
  }
  return largest;
}

}  // namespace starling::testing
