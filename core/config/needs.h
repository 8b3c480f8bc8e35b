// SPDX-License-Identifier: Apache-2.0
// Keys that have no effect unless another one is set: no errors, because one file may serve several
// programs, but said.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/settings.h"

namespace starling::config {

struct Needs {
  std::string_view owner;
  std::string_view unset;  // its value where it is not set
  std::vector<std::string_view> keys;
};

// A sentence for each key that differs from its default while its owner is not set. Requires: all
// keys of the rules are in both.
std::vector<std::string> unmet_needs(const std::vector<Needs>& rules, const Settings& settings,
                                     const Settings& defaults);

// Of the simulated nodes and links: `[network]` and `[nodes]`.
const std::vector<Needs>& needs_of_simulation();

}  // namespace starling::config
