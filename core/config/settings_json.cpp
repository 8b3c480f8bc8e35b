// SPDX-License-Identifier: Apache-2.0
#include "core/config/settings_json.h"

namespace starling::config {

boost::json::object to_json(const Settings& settings) {
  boost::json::object object;
  for (const auto& [key, value] : settings) object[key] = value;
  return object;
}

}  // namespace starling::config
