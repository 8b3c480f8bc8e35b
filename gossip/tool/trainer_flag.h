// SPDX-License-Identifier: Apache-2.0
// --trainer of `simulate` and `launch`.
#pragma once

#include <string>

#include "core/base/error.h"
#include "core/config/binder.h"

namespace CLI {
class App;
}

namespace starling::gossip {

void add_trainer_flag(CLI::App& command, std::string& trainer);

// Whether the flag and the network fit together: model.kind = "external" needs it, and the data are
// the trainer's then. "setting-invalid".
[[nodiscard]] Result<void> check_trainer_flags(const config::Binder& binder,
                                               const std::string& trainer);

}  // namespace starling::gossip
