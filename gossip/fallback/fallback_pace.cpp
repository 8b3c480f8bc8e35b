// SPDX-License-Identifier: Apache-2.0
#include "gossip/fallback/fallback_pace.h"

#include <algorithm>

#include "core/base/check.h"

namespace starling::gossip {

std::optional<TimePoint> FallbackPace::due(std::uint64_t more) const {
  STARLING_CHECK(steps > 0);
  const std::uint64_t rounds_left = rounds - std::min(round, rounds);
  if (earlier + more > rounds_left * steps) return std::nullopt;
  const double in_rounds = static_cast<double>(spent + more) / static_cast<double>(steps);
  return from + from_seconds(in_rounds * to_seconds(per_round));
}

Round FallbackPace::round_at(std::uint64_t before) const {
  const std::uint64_t gone = (earlier + before) / steps;
  return std::min<Round>(rounds,
                         round + 1 + static_cast<Round>(std::min<std::uint64_t>(gone, rounds)));
}

}  // namespace starling::gossip
