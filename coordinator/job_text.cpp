// SPDX-License-Identifier: Apache-2.0
#include "coordinator/job_text.h"

#include <fmt/format.h>

namespace starling::coordinator {
namespace {

// A TOML basic string.
std::string toml_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\u{:04X}", byte);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace

std::string to_toml(const config::Binder& binder) {
  const Settings settings = binder.settings();
  std::string toml;
  for (std::size_t i = 0; i < settings.size(); ++i) {
    const std::string& written = binder.documents()[i].default_value;
    const bool is_text = written.starts_with('"');
    toml += fmt::format("{} = {}\n", settings[i].first,
                        is_text ? toml_string(settings[i].second) : written);
  }
  return toml;
}

std::string job_to_toml(Job job) {
  config::Binder binder;
  job.bind(binder);
  return to_toml(binder);
}

}  // namespace starling::coordinator
