// SPDX-License-Identifier: Apache-2.0
// A job as the TOML that is stored with its run: every key with its value, so that a later
// version's defaults change nothing about a run that was submitted.
#pragma once

#include <string>

#include "coordinator/job.h"

namespace starling::coordinator {

// parse_job reads the same job from it.
std::string job_to_toml(Job job);

}  // namespace starling::coordinator
