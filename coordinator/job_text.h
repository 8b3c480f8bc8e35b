// SPDX-License-Identifier: Apache-2.0
// Options as TOML: every key with its value, so that a later version's defaults change nothing
// about a run that was submitted.
#pragma once

#include <string>

#include "coordinator/job.h"

namespace starling::coordinator {

// What is bound, as its values were when it was bound.
std::string to_toml(const config::Binder& binder);

// parse_job reads the same job from it.
std::string job_to_toml(Job job);

}  // namespace starling::coordinator
