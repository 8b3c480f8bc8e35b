// SPDX-License-Identifier: Apache-2.0
#include "gossip/training/key_warnings.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "core/config/needs.h"
#include "core/data/load.h"
#include "gossip/algorithms/make_algorithm.h"

namespace starling::gossip {
namespace {

using config::Needs;
using config::ReadBy;

std::vector<Needs> needs_of_network() {
  std::vector<Needs> needs = config::needs_of_simulation();
  needs.push_back({"robust.rule", "off", {"robust.bad"}});
  needs.push_back({"attack.kind", "none", {"attack.nodes", "attack.scale"}});
  return needs;
}

// An algorithm of one's own may read any key of [algorithm].
bool is_built_in(const AlgorithmOptions& options) {
  return std::ranges::find(kAlgorithms, kind_of(options)) != kAlgorithms.end();
}

std::vector<ReadBy> readers_of_network(const NetOptions& options) {
  std::vector<ReadBy> rules = config::readers_in_training("train.step-every");
  rules.push_back({"evaluate.dataset", {"auto"}, {"evaluate.hold-out"}});
  if (!is_built_in(options.algorithm)) return rules;
  constexpr std::string_view kOwner = "algorithm.name";
  rules.push_back({kOwner, {"dpsgd", "choco"}, {"algorithm.order"}});
  rules.push_back({kOwner, {"qg-dsgdm"}, {"algorithm.momentum"}});
  rules.push_back({kOwner, {"choco"}, {"algorithm.compressor", "algorithm.consensus-step"}});
  rules.push_back(
      {kOwner, {"diloco", "diloco-all"}, {"algorithm.outer-rate", "algorithm.outer-momentum"}});
  rules.push_back({kOwner, {"detag"}, {"algorithm.gossip-rounds"}});
  if (kind_of(options.algorithm) == "choco") {
    rules.push_back({"algorithm.compressor", {"top-k"}, {"algorithm.ratio"}});
    rules.push_back({"algorithm.compressor", {"qsgd"}, {"algorithm.bits"}});
  } else {
    rules.push_back({kOwner, {"choco"}, {"algorithm.ratio", "algorithm.bits"}});
  }
  return rules;
}

// Keys of what the run does not have.
std::vector<std::string> without_use(const NetOptions& options, const Settings& settings,
                                     const Settings& defaults) {
  std::vector<std::string> sentences;
  const auto unless_default = [&](std::string_view key, const std::string& why) {
    const auto value_in = [&](const Settings& all) {
      return std::ranges::find(all, key, &Settings::value_type::first)->second;
    };
    if (value_in(settings) == value_in(defaults)) return;
    sentences.push_back(fmt::format("{} has no effect: {}", key, why));
  };
  if (traits(options.algorithm).pattern == Pattern::kMean) {
    for (const char* key : {"topology.spec", "topology.mixing", "topology.seed"}) {
      unless_default(key, fmt::format("with algorithm.name = {} each node averages with all others "
                                      "or a drawn group",
                                      options.algorithm.name));
    }
  }
  if (options.train.train.local_steps == 1) {
    unless_default("train.local-steps-from", "train.local-steps is 1");
  }
  return sentences;
}

// A test split is evaluated on, and no rows need be held out. A 0 turns off what is not on.
bool holds_out_for_nothing(const NetOptions& options) {
  const NetEvaluateOptions& evaluate = options.evaluate;
  if (evaluate.dataset != "auto" || options.model.is_external()) return false;
  if (evaluate.hold_out == 0 || evaluate.hold_out == data::kHoldOut) return false;
  const auto spec = data::DatasetSpec::parse(options.data.dataset);
  return spec && spec->has_test_split();
}

}  // namespace

std::vector<std::string> warnings_of_keys(const NetOptions& options) {
  const Settings settings = options.settings();
  const Settings defaults = NetOptions().settings();
  auto sentences = config::unmet_needs(needs_of_network(), settings, defaults);
  for (auto&& more : {config::unread_keys(readers_of_network(options), settings, defaults),
                      without_use(options, settings, defaults)}) {
    std::ranges::copy(more, std::back_inserter(sentences));
  }
  if (holds_out_for_nothing(options)) {
    sentences.push_back("evaluate.hold-out has no effect: data.dataset has a test split");
  }
  return sentences;
}

}  // namespace starling::gossip
