// SPDX-License-Identifier: Apache-2.0
// A run that stands in for a coordinator's while that one is gone, and what came of it so far.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "gossip/fallback/fallback_machine.h"
#include "gossip/peer/training_protocol.h"

namespace starling::gossip {

struct FallbackRun {
  std::string run_id;
  Duration start_patience{};
  std::uint64_t steps_before = 0;  // in earlier absences of the coordinator
  FallbackPace pace;
  fallback::Trained before;                    // by earlier processes in this one
  std::optional<TrainingProgress> mixed = {};  // when the model was mixed last

  // `model`: as it was mixed last. What lies after that is no network's yet.
  fallback::Trained trained(std::span<const float> model) const;
};

}  // namespace starling::gossip
