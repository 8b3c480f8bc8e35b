// SPDX-License-Identifier: Apache-2.0
// Which local steps lie between two mixings of a synchronous algorithm: H of them, after a
// beginning in which every step mixes.
#pragma once

#include <algorithm>
#include <cstdint>

namespace starling::gossip {

struct StepSchedule {
  std::uint64_t steps = 1000;          // of the run
  std::uint64_t local_steps = 1;       // H, at least 1
  std::uint64_t local_steps_from = 0;  // every step mixes before this one

  // The steps that a node has done after so many mixings; of any number of them.
  constexpr std::uint64_t after(std::uint64_t mixings) const {
    const std::uint64_t some = std::min(mixings, steps);  // each follows a step at least
    const std::uint64_t single = std::min(some, local_steps_from);
    const std::uint64_t periods = some - single;
    if (periods > steps / local_steps) return steps;
    return std::min(steps, single + periods * local_steps);
  }

  // The fewest mixings after which a node has done `step` steps. Requires: step <= steps.
  constexpr std::uint64_t mixings_until(std::uint64_t step) const {
    const std::uint64_t single = std::min(step, local_steps_from);
    return single + (step - single + local_steps - 1) / local_steps;
  }
};

}  // namespace starling::gossip
