// SPDX-License-Identifier: Apache-2.0
#include "gossip/simulation/attack.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/rng.h"
#include "gossip/simulation/parallel.h"

namespace starling::gossip {
namespace {

constexpr std::size_t kPart = 4096;  // columns a job

double scale_of(const AttackOptions& options) {
  if (options.scale > 0) return options.scale;
  if (options.kind == "alie") return 1.5;
  return options.kind == "outlier" ? 100 : 1;
}

struct Moments {
  double mean = 0;
  double deviation = 0;
};

Moments moments(std::span<const std::span<const float>> models, std::size_t column) {
  const auto count = static_cast<double>(models.size());
  double sum = 0, squares = 0;
  for (const auto& model : models) sum += static_cast<double>(model[column]);
  const double mean = sum / count;
  for (const auto& model : models) {
    const double off = static_cast<double>(model[column]) - mean;
    squares += off * off;
  }
  return {mean, std::sqrt(squares / count)};
}

}  // namespace

Result<void> check_attack(const NetOptions& options) {
  const AttackOptions& attack = options.attack;
  if (attack.kind == "none") return {};
  if (!traits(options.algorithm).mixes_models) {
    return wrong_setting("attack",
                         fmt::format("attack.kind = {} forges models, and {} sends something else; "
                                     "use one of the algorithms {}",
                                     attack.kind, options.algorithm.name, names_that_mix_models()));
  }
  if (static_cast<Node>(attack.nodes) < options.topology.nodes) return {};
  return wrong_setting("attack",
                       fmt::format("attack.nodes = {} leaves none of the {} nodes honest; name "
                                   "fewer",
                                   attack.nodes, options.topology.nodes));
}

Attack::Attack(const Experiment& experiment) : options_(experiment.options.attack) {
  if (options_.kind == "none") return;
  std::vector<Node> drawn(experiment.nodes());
  std::iota(drawn.begin(), drawn.end(), Node{0});
  Rng rng({.seed = experiment.options.run.seed,
           .purpose = Purpose::kNodes,
           .node = hash_name("liars")});
  rng.shuffle(std::span(drawn));
  liars_.assign(experiment.nodes(), false);
  for (int i = 0; i < options_.nodes; ++i) liars_[drawn[static_cast<std::size_t>(i)]] = true;
  const auto initial = experiment.initial.values();
  forged_.assign(initial.begin(), initial.end());
  message_.first = forged_;
}

void Attack::forge(std::span<const std::span<const float>> honest, ComputePool& pool) {
  if (honest.empty()) return;
  const double scale = scale_of(options_);
  for_each_in(pool, forged_.size(), kPart, [&](std::size_t i, unsigned) {
    const Moments of = moments(honest, i);
    double value = of.mean;  // of an outlier, until it is shifted
    if (options_.kind == "sign-flip") value = -scale * of.mean;
    if (options_.kind == "alie") value = of.mean - scale * of.deviation;
    forged_[i] = static_cast<float>(value);
  });
  if (options_.kind != "outlier") return;
  double squares = 0;
  for (const float value : forged_) {
    squares += static_cast<double>(value) * static_cast<double>(value);
  }
  const double shift = scale * std::sqrt(squares / static_cast<double>(forged_.size()));
  for (float& value : forged_) value = static_cast<float>(static_cast<double>(value) + shift);
}

}  // namespace starling::gossip
