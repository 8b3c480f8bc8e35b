// SPDX-License-Identifier: Apache-2.0
#include "gossip/tool/trainer_flag.h"

#include <algorithm>

#include "core/model/model_spec.h"

namespace starling::gossip {

Result<void> check_trainer_flags(const config::Binder& binder, const std::string& trainer) {
  const Settings settings = binder.settings();
  const bool external = std::ranges::any_of(settings, [](const auto& setting) {
    return setting.first == "model.kind" && setting.second == model::kExternalKind;
  });
  if (external && trainer.empty()) {
    return wrong_setting("setting-invalid",
                         "model.kind = \"external\" needs the program that trains it, as in "
                         "--trainer \"python3 train.py\"");
  }
  if (!external && !trainer.empty()) {
    return wrong_setting("setting-invalid",
                         "--trainer is for models of your own: set model.kind = \"external\"");
  }
  if (external && binder.says("data")) {
    return wrong_setting("setting-invalid",
                         "[data] means nothing with a trainer, which picks each node's rows by its "
                         "task's client, node-0001 and so on");
  }
  return {};
}

Settings settings_of_run(const config::Binder& binder, const std::string& trainer) {
  Settings settings = binder.settings();
  if (trainer.empty()) return settings;
  // The trainer chooses the rows: the defaults of [data] were not used.
  std::erase_if(settings, [](const auto& s) { return s.first.starts_with("data."); });
  settings.emplace_back("trainer.command", trainer);
  return settings;
}

}  // namespace starling::gossip
