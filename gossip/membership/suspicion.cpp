// SPDX-License-Identifier: Apache-2.0
#include "gossip/membership/suspicion.h"

#include <algorithm>
#include <cmath>

namespace starling::gossip::membership {

SuspicionTimes SuspicionTimes::of(const SwimOptions& options, std::size_t members) {
  const double nodes = std::max(1.0, std::log10(static_cast<double>(members)));
  const double shortest = options.suspicion_min_factor * nodes * to_seconds(options.probe_period);
  return {.min = from_seconds(shortest),
          .max = from_seconds(options.suspicion_max_factor * shortest),
          .confirmations = members < 2 ? 0 : std::min(options.confirmations, members - 2)};
}

bool Suspicion::confirm(protocol::Member by, const SuspicionTimes& times) {
  if (accusers_.size() > times.confirmations) return false;
  if (std::ranges::find(accusers_, by) != accusers_.end()) return false;
  accusers_.push_back(by);
  return true;
}

Duration Suspicion::lasts(const SuspicionTimes& times) const {
  if (times.confirmations == 0) return times.min;
  const double part = std::log(static_cast<double>(accusers_.size())) /
                      std::log(static_cast<double>(times.confirmations + 1));
  return times.max - from_seconds(part * to_seconds(times.max - times.min));
}

}  // namespace starling::gossip::membership
