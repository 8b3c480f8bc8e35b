// SPDX-License-Identifier: Apache-2.0
// What `simulate` and `launch` say of settings that do nothing as the others are.
#pragma once

#include <string>
#include <vector>

#include "core/config/binder.h"
#include "gossip/training/options.h"

namespace starling::gossip {

// A sentence each; those of warnings() in gossip/simulation/experiment.h too. `binder`: to which
// `options` are bound.
std::vector<std::string> warnings_of_keys(const config::Binder& binder, const NetOptions& options);

}  // namespace starling::gossip
