// SPDX-License-Identifier: Apache-2.0
#include "core/config/needs.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/nearest_name.h"

namespace starling::config {
namespace {

const std::string& find(const Settings& all, std::string_view key) {
  return std::ranges::find(all, key, &Settings::value_type::first)->second;
}

}  // namespace

std::vector<std::string> unread_keys(const std::vector<ReadBy>& rules, const Settings& settings,
                                     const Settings& defaults) {
  std::vector<std::string> sentences;
  for (const ReadBy& rule : rules) {
    const std::string_view value = find(settings, rule.owner);
    if (std::ranges::count(rule.values, value.substr(0, value.find(':'))) > 0) continue;
    for (const std::string_view key : rule.keys) {
      if (find(settings, key) == find(defaults, key)) continue;
      sentences.push_back(fmt::format("{} has no effect: {} is {} (it needs {})", key, rule.owner,
                                      value, join_names(rule.values, "or")));
    }
  }
  return sentences;
}

std::vector<ReadBy> readers_in_training(std::string_view step_every) {
  return {
      ReadBy{"model.kind", {"mlp"}, {"model.hidden"}},
      ReadBy{"model.kind", {"cnn"}, {"model.channels", "model.kernel-size", "model.dense"}},
      ReadBy{"train.optimizer", {"momentum", "nesterov"}, {"train.momentum"}},
      ReadBy{"train.optimizer", {"adam", "adamw"}, {"train.beta1", "train.beta2", "train.epsilon"}},
      ReadBy{"train.schedule", {"step"}, {step_every, "train.gamma"}},
  };
}

std::vector<std::string> unmet_needs(const std::vector<Needs>& rules, const Settings& settings,
                                     const Settings& defaults) {
  std::vector<std::string> sentences;
  for (const Needs& rule : rules) {
    if (find(settings, rule.owner) != rule.unset) continue;
    for (const std::string_view key : rule.keys) {
      const std::string& value = find(settings, key);
      // A 0 turns off what is not on.
      if (value == find(defaults, key) || value == "0") continue;
      sentences.push_back(fmt::format("{} has no effect: {} is not set", key, rule.owner));
    }
  }
  return sentences;
}

const std::vector<Needs>& needs_of_simulation() {
  static const std::vector<Needs> kRules = {
      Needs{"network.loss", "0", {"network.retransmit-after"}},
      Needs{"nodes.stragglers", "0", {"nodes.slowdown"}},
      Needs{"nodes.crash-every", "0s", {"nodes.return-after"}},
  };
  return kRules;
}

}  // namespace starling::config
