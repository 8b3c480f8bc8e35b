// SPDX-License-Identifier: Apache-2.0
// What is said of settings that do nothing as the others are.
#pragma once

#include <string>
#include <vector>

#include "gossip/training/options.h"

namespace starling::gossip {

// A sentence each.
std::vector<std::string> warnings_of_keys(const NetOptions& options);

}  // namespace starling::gossip
