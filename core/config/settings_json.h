// SPDX-License-Identifier: Apache-2.0
// Settings as the JSON files and answers of all programs have them: an object of texts.
#pragma once

#include <boost/json/object.hpp>

#include "core/base/settings.h"

namespace starling::config {

boost::json::object to_json(const Settings& settings);

}  // namespace starling::config
