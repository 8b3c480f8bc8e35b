// SPDX-License-Identifier: Apache-2.0
#include "gossip/training/options.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/check.h"
#include "core/data/load.h"
#include "gossip/training/initial_models.h"

namespace starling::gossip {
namespace {

constexpr std::uint64_t kEvaluations = 20;

}  // namespace

void NetOptions::bind(config::Binder& binder) {
  binder.bind("", run);
  binder.bind("topology", topology);
  binder.bind("algorithm", algorithm);
  binder.bind("robust", robust);
  binder.bind("train", train);
  binder.bind("model", model);
  binder.bind("trainer", trainer);
  binder.take_table("trainer", "settings");
  binder.bind("data", data);
  binder.bind("evaluate", evaluate);
  binder.bind("network", network);
  binder.bind("nodes", nodes);
  binder.bind("attack", attack);
}

Settings NetOptions::settings() const {
  NetOptions copy = *this;
  config::Binder binder;
  copy.bind(binder);
  return binder.settings();
}

Settings NetOptions::device_settings() const {
  const Settings defaults = NetOptions().settings();
  Settings told = settings();
  std::erase_if(told, [&](const auto& setting) {
    const std::string_view key = setting.first;
    if (key.starts_with("attack.")) return true;
    const bool is_later = key.starts_with("robust.") || key.starts_with("trainer.") ||
                          key == "network.links" || key == "nodes.speeds" ||
                          key == "nodes.presence" || key == "evaluate.hold-out" ||
                          key == "data.columns";
    return is_later && std::ranges::find(defaults, setting) != defaults.end();
  });
  return told;
}

Result<void> NetOptions::validate() const {
  if (algorithm.name == "detag" && (train.train.optimizer != "sgd" || train.train.clip_norm > 0)) {
    return wrong_setting(
        "algorithm-options",
        "detag steps along the gradient that it tracks, without a local optimizer: set "
        "train.optimizer = sgd and train.clip-norm = 0, or use gradient-tracking");
  }
  std::vector<std::string> names = data.columns;
  std::ranges::sort(names);
  if (const auto twice = std::ranges::adjacent_find(names); twice != names.end()) {
    return wrong_setting("setting-invalid", fmt::format("data.columns names '{}' twice", *twice));
  }
  STARLING_TRY(initial_spread(model));
  STARLING_TRY(client::check_settings(trainer, model));
  return train::validate(train.train);
}

std::uint64_t NetOptions::evaluate_every() const {
  if (evaluate.every > 0) return evaluate.every;
  return std::max<std::uint64_t>(1, run.steps / kEvaluations);
}

double NetOptions::held_out() const {
  if (model.is_external() || evaluate.dataset != "auto") return 0;
  const auto spec = data::DatasetSpec::parse(data.dataset);
  STARLING_CHECK(spec);
  return spec->has_test_split() ? 0 : evaluate.hold_out;
}

StepSchedule NetOptions::schedule() const {
  return {.steps = run.steps,
          .local_steps = static_cast<std::uint64_t>(train.train.local_steps),
          .local_steps_from = train.local_steps_from};
}

}  // namespace starling::gossip
