// SPDX-License-Identifier: Apache-2.0
#include "topologies/robustness.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace starling::topologies {
namespace {

constexpr double kEqual = 1e-9;  // sums and eigenvalues that are equal in exact numbers

std::vector<double> weights_of(const MixingMatrix& matrix, Node node) {
  std::vector<double> weights;
  for (const Weight& sender : matrix.senders(node)) weights.push_back(sender.weight);
  std::ranges::sort(weights, std::greater());
  return weights;
}

// [k]: the most that k + 1 neighbours of one node weigh.
std::vector<double> bad_weights(const MixingMatrix& matrix) {
  std::vector<double> most;
  for (Node node = 0; node < matrix.nodes(); ++node) {
    double sum = 0;
    std::size_t k = 0;
    for (const double weight : weights_of(matrix, node)) {
      sum += weight;
      if (k == most.size()) most.push_back(most.empty() ? 0 : most.back());
      most[k] = std::max(most[k], sum);
      ++k;
    }
    for (; k < most.size(); ++k) most[k] = std::max(most[k], sum);
  }
  return most;
}

bool has_equal_weights(const MixingMatrix& matrix, double heaviest) {
  for (Node node = 0; node < matrix.nodes(); ++node) {
    for (const Weight& sender : matrix.senders(node)) {
      if (sender.weight < heaviest * (1 - kEqual)) return false;
    }
  }
  return true;
}

// The most k with factor * b(k) < mu2 - b(k).
Node bears(const std::vector<double>& bad, double factor, double mu2) {
  Node k = 0;
  while (k < bad.size() && (factor + 1) * bad[k] < mu2 * (1 - kEqual)) ++k;
  return k;
}

}  // namespace

std::optional<Robustness> robustness(const Topology& topology, const SpectralReport& report) {
  if (!report.lambda_2) return std::nullopt;
  const auto matrix = topology.at(0);
  const std::vector<double> bad = bad_weights(*matrix);
  if (bad.empty()) return std::nullopt;
  Figure mu2{1 - report.lambda_2->value, report.lambda_2->certainty};
  if (mu2.value < kEqual * bad.front()) mu2.value = 0;  // not connected
  const double clip_rho = has_equal_weights(*matrix, bad.front()) ? 2 : 3;
  Robustness found{.clip_sure = bears(bad, 2 * clip_rho, mu2.value),
                   .remove_sure = bears(bad, 8, mu2.value),
                   .possible = bears(bad, 2, mu2.value)};
  mu2.value /= bad.front();
  found.mu2 = mu2;
  return found;
}

Node nodes_cut_off(const MixingMatrix& matrix, bool clips, std::size_t bad) {
  Node cut_off = 0;
  for (Node node = 0; node < matrix.nodes(); ++node) {
    const std::vector<double> weights = weights_of(matrix, node);
    const auto end = weights.begin() + static_cast<std::ptrdiff_t>(std::min(bad, weights.size()));
    const double b = std::accumulate(weights.begin(), end, 0.0);
    const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
    // clip: 2 b must lie beyond the nearest, at best the lightest. remove: more than b.
    const bool mixes = weights.empty() ? false
                       : clips         ? all - weights.back() >= 2 * b * (1 - kEqual)
                                       : all > b * (1 + kEqual);
    if (!mixes) ++cut_off;
  }
  return cut_off;
}

}  // namespace starling::topologies
