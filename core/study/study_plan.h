// SPDX-License-Identifier: Apache-2.0
// The runs of a study: every combination of the values that --sweep and --seeds name.
#pragma once

#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/settings.h"
#include "core/config/binder.h"
#include "core/config/command_line.h"

namespace starling::study {

inline constexpr std::size_t kRunsMax = 10'000;

struct Axis {
  std::string key;                  // "topology.spec", "seed"
  std::vector<std::string> values;  // as Binder::settings() writes them
};

struct PlannedRun {
  std::string name;   // of its directory: "topology.spec=ring,seed=3"
  Settings settings;  // the values that set it apart, in the order of the axes
};

struct Plan {
  std::vector<Axis> axes;
  std::vector<PlannedRun> runs;  // the last axis changes fastest
};

// The axes in the order of the flags, the seeds last. `binder` has been applied and is left as it
// was, except that the swept keys count as said. Fails with a sentence about the flag:
// "study-plan", "unknown-key" or "setting-invalid".
[[nodiscard]] Result<Plan> make_plan(const config::StudyFlags& flags, config::Binder& binder);

// "27 runs: topology.spec (3) x train.local-steps (3) x seed (3)"
std::string describe(const Plan& plan);

// Each text is a directory's name: letters, digits and "._=,+-" stay, all else becomes '-'; very
// long ones end in a digest instead, and equal ones are numbered.
std::vector<std::string> directory_names(const std::vector<std::string>& texts);

}  // namespace starling::study
