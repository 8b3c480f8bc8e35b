// SPDX-License-Identifier: Apache-2.0
#include "core/net/frame_budget.h"

#include <algorithm>

namespace starling::net {
namespace {

// At least: a timer for each frame would cost as much as the frame.
constexpr Duration kFramePauseMin = std::chrono::milliseconds(20);

bool is_bulk(const Frame& frame) { return frame.payload.size() >= FrameBudget::kBulkBytes; }

}  // namespace

Duration FrameBudget::take_granted(const Frame& frame, TimePoint now) {
  if (is_bulk(frame)) return Duration::zero();
  if (granted_ < 1) return take(frame, now);
  granted_ -= 1;
  return Duration::zero();
}

Duration FrameBudget::take(const Frame& frame, TimePoint now, double cost) {
  if (is_bulk(frame) && cost <= 1) return Duration::zero();
  const double earned = to_seconds(now - updated_) * options_.per_second;
  level_ = std::min(options_.per_second, level_ + earned) - cost;
  updated_ = now;
  if (level_ >= 1) return Duration::zero();
  return std::max(kFramePauseMin, from_seconds((1 - level_) / options_.per_second));
}

}  // namespace starling::net
