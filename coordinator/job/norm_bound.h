// SPDX-License-Identifier: Apache-2.0
// The largest Euclidean norm that a round takes of an update: a number, or a multiple of the lower
// median norm in the committed rounds before it. It follows from the store's records alone, so that
// a restart and a simulation bound a round alike. A replay has no bound.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"

namespace starling::coordinator {

// The norms of the updates in the last committed rounds, a vector a round, oldest first.
using RecentNorms = std::deque<std::vector<double>>;

// After a round that committed: of the last rounds, and of the first ones, both since `recent` was
// forgotten.
void add_norms(std::vector<double> norms, RecentNorms& recent, RecentNorms& first);

// The reason code of an update that the bound refuses.
inline constexpr std::string_view kNormAboveBound = "norm-above-bound";

class NormBound {
 public:
  static constexpr std::size_t kRounds = 5;  // how many rounds the median is taken over

  // "off", "12.5" or "10x". "setting-invalid"
  [[nodiscard]] static Result<NormBound> parse(std::string_view text);

  bool is_multiple() const { return kind_ == Kind::kMultiple; }
  // Nothing: no bound, also where a multiple has no norm above 0 to refer to (the first round).
  // Each raise multiplies a multiple by itself, and by 2 at least.
  std::optional<double> limit(const RecentNorms& norms, int raises = 0) const;

 private:
  enum class Kind { kOff, kAbsolute, kMultiple };
  NormBound(Kind kind, double value) : kind_(kind), value_(value) {}

  Kind kind_;
  double value_;
};

// How often a multiple is raised by itself because it refuses the majority, as for clients with
// skewed data that another run held until now. An attempt that is abandoned raises it if it refused
// more than half of the clients that the attempt asked, and, over the attempts of the round since
// the last raise, at least kRefusedMin clients and more than half of all that were asked. So in
// small cohorts a single client that is drawn several times does not raise it. Attackers do only
// where the draws of a round hold more of them than of others.
class NormRaises {
 public:
  static constexpr std::size_t kRefusedMin = 3;  // clients

  NormRaises() = default;
  explicit NormRaises(const NormBound& bound) : multiple_(bound.is_multiple()) {}

  int count() const { return count_; }
  // At the end of an attempt, with who counted in it and who failed. Returns whether its clients
  // are to blame for refusals. A round that commits ends the raises; if there were any, the norms
  // before it are forgotten: they are those of other clients.
  template <class Contributors, class Failures>
  bool attempt_ended(const Contributors& counted, const Failures& failures, bool committed,
                     RecentNorms& norms) {
    std::size_t refused = 0;
    for (const auto& failure : failures) {
      const bool by_norm = failure.code == kNormAboveBound;
      refused += by_norm ? 1 : 0;
      if (multiple_ && !committed) clients_[failure.client] |= by_norm;
    }
    for (const auto& contributor : counted) {
      if (multiple_ && !committed) clients_.try_emplace(contributor.client, false);
    }
    return attempt_ended(counted.size() + failures.size(), refused, committed, norms);
  }

 private:
  bool attempt_ended(std::size_t asked, std::size_t refused, bool committed, RecentNorms& norms);
  bool majority_was_refused() const;
  void raise(bool in_advance);

  bool multiple_ = true;
  int count_ = 0;
  bool in_advance_ = false;  // the last one was not for a majority
  // That the round asked since the last raise: whether the bound refused one of its updates.
  std::map<std::string, bool> clients_;
};

}  // namespace starling::coordinator
