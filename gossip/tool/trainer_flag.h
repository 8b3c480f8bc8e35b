// SPDX-License-Identifier: Apache-2.0
// --trainer of `simulate` and `launch`.
#pragma once

#include <string>

#include "core/base/error.h"
#include "core/config/binder.h"

namespace starling::gossip {

inline constexpr const char* kTrainerHelp =
    "with model.kind = \"external\": the command of your own trainer, as in \"python3 train.py\" "
    "(one program and its arguments; \"env A=1 python3 train.py\" sets a variable)";

// Whether the flag and the network fit together: model.kind = "external" needs it, and the data are
// the trainer's then. "setting-invalid".
[[nodiscard]] Result<void> check_trainer_flags(const config::Binder& binder,
                                               const std::string& trainer);

// What a run records of its settings: every key, and the trainer's command where it has one.
Settings settings_of_run(const config::Binder& binder, const std::string& trainer);

}  // namespace starling::gossip
