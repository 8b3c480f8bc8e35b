// SPDX-License-Identifier: Apache-2.0
// The largest Euclidean norm that a round takes of an update: a number, or a multiple of the lower
// median norm in the committed rounds before it. It follows from the store's records alone, so that
// a restart, a replay and a simulation bound a round alike.
#pragma once

#include <algorithm>
#include <deque>
#include <optional>
#include <string_view>
#include <vector>

#include "core/base/error.h"

namespace starling::coordinator {

// The norms of the updates in the last committed rounds, a vector a round, oldest first.
using RecentNorms = std::deque<std::vector<double>>;

// The reason code of an update that the bound refuses.
inline constexpr std::string_view kNormAboveBound = "norm-above-bound";

// How often a multiple is raised by itself because it refused more than half of the clients that an
// attempt asked. Attackers in the minority cannot bring that about, so it is the bound that is
// wrong, as for clients with skewed data that another run held until now.
class NormRaises {
 public:
  int count() const { return count_; }
  // At the end of an attempt, with the codes of its failures. Returns whether its clients are to
  // blame for refusals. Once a round commits under a raised bound, the norms before it are
  // forgotten: they are those of other clients.
  template <class Failures>
  bool attempt_ended(std::size_t asked, const Failures& failures, bool committed,
                     RecentNorms& norms) {
    const auto refused = static_cast<std::size_t>(std::ranges::count_if(
        failures, [](const auto& f) { return std::string_view(f.code) == kNormAboveBound; }));
    return attempt_ended(asked, refused, committed, norms);
  }

 private:
  bool attempt_ended(std::size_t asked, std::size_t refused, bool committed, RecentNorms& norms);

  int count_ = 0;
  bool in_advance_ = false;  // the last one was not for a majority
};

class NormBound {
 public:
  static constexpr std::size_t kRounds = 5;  // how many rounds the median is taken over

  // "off", "12.5" or "10x". "setting-invalid"
  [[nodiscard]] static Result<NormBound> parse(std::string_view text);

  // Nothing: no bound, also where a multiple has no norm above 0 to refer to (the first round).
  // Each raise multiplies a multiple by itself, and by 2 at least.
  std::optional<double> limit(const RecentNorms& norms, int raises = 0) const;

 private:
  enum class Kind { kOff, kAbsolute, kMultiple };
  NormBound(Kind kind, double value) : kind_(kind), value_(value) {}

  Kind kind_;
  double value_;
};

}  // namespace starling::coordinator
