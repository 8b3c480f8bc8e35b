// SPDX-License-Identifier: Apache-2.0
// A limit to the frames that are read of one identity, however many connections it has: whoever
// exceeds it is read more slowly, and TCP slows it down.
#pragma once

#include <algorithm>
#include <cstddef>

#include "core/base/clock.h"
#include "core/net/frame.h"

namespace starling::net {

class FrameBudget {
 public:
  struct Options {
    double per_second = 2000;  // on average; a second's worth may come at once
  };
  // A frame with as much payload is not counted: flow control and bandwidth limit those, and a
  // model that arrives at full speed consists of them.
  static constexpr std::size_t kBulkBytes = 16 * 1024;

  explicit FrameBudget(const Options& options) : options_(options), level_(options.per_second) {}

  // Counts a frame that was read, as so many small ones: what it makes us do. Bulk counts where it
  // costs more than one. How long to wait before the next one is read; mostly 0.
  Duration take(const Frame& frame, TimePoint now, double cost = 1);
  // What this side does itself calls for so many frames of a kind: they may come beside all others,
  // at most a second's worth at once.
  void grant(double frames) { granted_ = std::min(granted_ + frames, options_.per_second); }
  // Of a frame of that kind. Whatever exceeds the grants counts as any other.
  Duration take_granted(const Frame& frame, TimePoint now);

 private:
  Options options_;
  double level_;  // frames that may still come at once
  double granted_ = 0;
  TimePoint updated_{};
};

}  // namespace starling::net
