// SPDX-License-Identifier: Apache-2.0
// What decides the bits of a simulated run: a checkpoint is continued where all of it is the same.
#pragma once

#include <string_view>

#include "core/base/digest.h"
#include "core/base/settings.h"
#include "gossip/simulation/experiment.h"

namespace starling::gossip {

// Of the settings, the program's version, the instruction set, and what data sets, models and other
// files said when the experiment was prepared.
Sha256Digest identity_of(const Experiment& experiment, const Settings& settings,
                         std::string_view version);

}  // namespace starling::gossip
