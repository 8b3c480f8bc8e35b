// SPDX-License-Identifier: Apache-2.0
// The largest Euclidean norm that a round takes of an update: a number, or a multiple of the lower
// median norm in the committed rounds before it. It follows from committed records alone, so that a
// restart, a replay and a simulation bound a round alike.
#pragma once

#include <deque>
#include <optional>
#include <string_view>
#include <vector>

#include "core/base/error.h"

namespace starling::coordinator {

// The norms of the updates in the last committed rounds, a vector a round, oldest first.
using RecentNorms = std::deque<std::vector<double>>;

class NormBound {
 public:
  static constexpr std::size_t kRounds = 5;  // how many rounds the median is taken over

  // "off", "12.5" or "10x". "setting-invalid"
  [[nodiscard]] static Result<NormBound> parse(std::string_view text);

  // Nothing: no bound, also where a multiple has no norm above 0 to refer to (the first round).
  std::optional<double> limit(const RecentNorms& norms) const;

 private:
  enum class Kind { kOff, kAbsolute, kMultiple };
  NormBound(Kind kind, double value) : kind_(kind), value_(value) {}

  Kind kind_;
  double value_;
};

}  // namespace starling::coordinator
