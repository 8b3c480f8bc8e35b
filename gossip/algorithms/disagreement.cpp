// SPDX-License-Identifier: Apache-2.0
#include "gossip/algorithms/disagreement.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/base/rng.h"
#include "topologies/contraction.h"

namespace starling::gossip {
namespace {

constexpr double kOperations = 4e8;  // of all mixings: about a second
constexpr double kDrawing = 20;      // times as long as mixing
constexpr double kStepsLeast = 60;
constexpr double kStepsMost = 400;
constexpr double kRoundingShare = 1e-9;  // of the first disagreement

using Values = std::vector<double>;

std::uint64_t steps_of(const topologies::Topology& topology) {
  const double messages = static_cast<double>(topology.at(0)->messages());
  const double cost =
      10.0 * topology.nodes() + messages * (topology.period() == 0 ? kDrawing : 1.0);
  return static_cast<std::uint64_t>(std::clamp(kOperations / cost, kStepsLeast, kStepsMost));
}

struct State {
  Values x;
  Values m;
  Values before;  // scratch: x, or what is mixed
  Values mixed;   // scratch

  explicit State(topologies::Node nodes) : x(nodes), m(nodes), before(nodes), mixed(nodes) {
    Rng rng({.seed = 1, .purpose = Purpose::kTopology, .node = hash_name("disagreement")});
    for (double& value : x) value = rng.uniform(-1, 1);
    const double mean = std::accumulate(x.begin(), x.end(), 0.0) / nodes;
    for (double& value : x) value -= mean;
  }

  void step(const topologies::MixingMatrix& matrix, const MomentumMixing& mixing) {
    const double mu = mixing.momentum;
    if (mixing.kind == MomentumKind::kOuter) {
      topologies::mix(matrix, x, mixed);
      for (std::size_t i = 0; i < x.size(); ++i) {
        m[i] = mu * m[i] + mixing.rate * (mixed[i] - x[i]);
        x[i] += m[i];
      }
      return;
    }
    for (std::size_t i = 0; i < x.size(); ++i) before[i] = x[i] - mu * m[i];
    topologies::mix(matrix, before, mixed);
    for (std::size_t i = 0; i < x.size(); ++i) {
      m[i] = mu * m[i] + (1 - mu) * (x[i] - mixed[i]);
      x[i] = mixed[i];
    }
  }

  double norm() const { return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0)); }
};

}  // namespace

// The largest disagreement in the second quarter of the way, when what dies out soon is gone,
// against that in the last: within a quarter a mode that turns shows its full length.
bool ends_disagreement(const topologies::Topology& topology, const MomentumMixing& mixing) {
  if (topology.nodes() == 1) return true;
  const std::uint64_t quarter = steps_of(topology) / 4;
  State state(topology.nodes());
  const double first = state.norm();
  double early = 0;
  double late = 0;
  for (std::uint64_t t = 0; t < 4 * quarter; ++t) {
    state.step(*topology.at(t), mixing);
    const double now = state.norm();
    if (!std::isfinite(now)) return false;
    if (t / quarter == 1) early = std::max(early, now);
    if (t / quarter == 3) late = std::max(late, now);
  }
  return late <= early * (1 + kRoundingShare) || late <= kRoundingShare * first;
}

}  // namespace starling::gossip
