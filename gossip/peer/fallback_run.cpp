// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/fallback_run.h"

namespace starling::gossip {

fallback::Trained FallbackRun::trained(std::span<const float> model) const {
  const TrainingProgress progress =
      mixed.value_or(TrainingProgress{.exchange = before.exchanges, .step = before.steps});
  const std::uint64_t steps = before.steps + progress.loss_steps;
  const double loss_sum = before.loss * static_cast<double>(before.steps) + progress.loss_sum;
  return {.model = SharedBytes::own(to_bytes(as_bytes(model))),
          .exchanges = progress.exchange,
          .steps = progress.step,
          .loss = steps > 0 ? loss_sum / static_cast<double>(steps) : 0.0};
}

}  // namespace starling::gossip
