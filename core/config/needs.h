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

// Keys that only some values of another key read.
struct ReadBy {
  std::string_view owner;
  std::vector<std::string_view> values;
  std::vector<std::string_view> keys;
};

// A sentence for each key that differs from its default while its owner has none of the values that
// read it; of an owner's value only what stands before a colon counts. Requires: as below.
std::vector<std::string> unread_keys(const std::vector<ReadBy>& rules, const Settings& settings,
                                     const Settings& defaults);

// Of the built-in models and local optimizers; `step_every`: the key of the step schedule's period.
std::vector<ReadBy> readers_in_training(std::string_view step_every);

// A sentence for each key that differs from its default while its owner is not set. Requires: all
// keys of the rules are in both.
std::vector<std::string> unmet_needs(const std::vector<Needs>& rules, const Settings& settings,
                                     const Settings& defaults);

// Of the simulated nodes and links: `[network]` and `[nodes]`.
const std::vector<Needs>& needs_of_simulation();

}  // namespace starling::config
