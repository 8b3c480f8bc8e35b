// SPDX-License-Identifier: Apache-2.0
// A job as text: TOML with every key and its value, so that a later version's defaults change
// nothing about a run that was submitted; and the settings that a run has begun with, as JSON.
#pragma once

#include <string>

#include "coordinator/job/job.h"

namespace starling::coordinator {

// What is bound, as its values were when it was bound.
std::string to_toml(const config::Binder& binder);

// parse_job reads the same job from it.
std::string job_to_toml(Job job);

// Every key of the job with its value, in the order of their documentation.
Settings job_settings(Job job);
// {"key": "value", ...} in the same order, as the store and a model's metadata hold them.
std::string settings_to_json(const Settings& settings);
// "bad-settings" where `text` is not such an object.
[[nodiscard]] Result<Settings> parse_settings(std::string_view text);
// Those that a default job has otherwise, and the shape of the data.
Settings telling_settings(const Settings& settings);

}  // namespace starling::coordinator
