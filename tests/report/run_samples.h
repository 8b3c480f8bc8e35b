// SPDX-License-Identifier: Apache-2.0
// Files of runs, as simulate writes them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/report/run.h"

namespace starling::report::testing {

std::string summary(const std::string& topology = "ring");
// Steps 0, 10, 20, ...; some values are null.
std::string metrics_lines(int count);
// run.json with as many committed rounds, and an abandoned attempt of round 2.
std::string federated_run(int rounds);

// A gossip run whose accuracy at step s is `accuracy` x s / 100, at steps 0, 50 and 100.
Run sample_run(std::vector<std::pair<std::string, std::string>> settings, double accuracy);
// The runs of a study: three topologies, numbers of local steps and learning rates, three seeds.
std::vector<Run> sample_study();

}  // namespace starling::report::testing
