// SPDX-License-Identifier: Apache-2.0
// Files of runs, as simulate writes them.
#pragma once

#include <string>

namespace starling::report::testing {

std::string summary(const std::string& topology = "ring");
// Steps 0, 10, 20, ...; some values are null.
std::string metrics_lines(int count);
// run.json with as many committed rounds, and an abandoned attempt of round 2.
std::string federated_run(int rounds);

}  // namespace starling::report::testing
