// SPDX-License-Identifier: Apache-2.0
#include "coordinator/job/job_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>

#include "core/config/settings_json.h"

namespace starling::coordinator {

std::string to_toml(const config::Binder& binder) {
  const Settings settings = binder.settings();
  std::string toml;
  for (std::size_t i = 0; i < settings.size(); ++i) {
    toml += fmt::format("{} = {}\n", settings[i].first, binder.documents()[i].default_value);
  }
  return toml;
}

std::string job_to_toml(Job job) {
  config::Binder binder;
  job.bind(binder);
  return to_toml(binder);
}

Settings job_settings(Job job) {
  config::Binder binder;
  job.bind(binder);
  return binder.settings();
}

std::string settings_to_json(const Settings& settings) {
  return boost::json::serialize(config::to_json(settings));
}

Result<Settings> parse_settings(std::string_view text) {
  const Error bad = rejected("bad-settings", "the settings are not a JSON object of texts");
  boost::system::error_code code;
  const boost::json::value value = boost::json::parse({text.data(), text.size()}, code);
  if (code || !value.is_object()) return bad;
  Settings settings;
  for (const auto& [key, member] : value.get_object()) {
    if (!member.is_string()) return bad;
    settings.emplace_back(key, member.get_string());
  }
  return settings;
}

Settings telling_settings(const Settings& settings) {
  const Settings defaults = job_settings(Job());
  Settings telling;
  for (const auto& setting : settings) {
    if (std::ranges::find(defaults, setting) == defaults.end()) telling.push_back(setting);
  }
  return telling;
}

}  // namespace starling::coordinator
