// SPDX-License-Identifier: Apache-2.0
// Members that are asked one after the other for the mean that an exchange is said to have ended
// with. Until one gives it, a member takes part as before: a commit may be of a liar, or of members
// that were started again since.
#pragma once

#include <algorithm>
#include <set>
#include <utility>

#include "gossip/collective/reducer.h"

namespace starling::collective {

class MeanSearch {
 public:
  // Asks the first of `sources`. Requires: there is one.
  MeanSearch(Commit commit, Members sources, TimePoint now)
      : commit_(std::move(commit)), sources_(std::move(sources)), asked_at_(now) {}

  const Commit& commit() const { return commit_; }
  Member asked() const { return sources_[next_ - 1]; }
  TimePoint asked_at() const { return asked_at_; }
  // Also those that were given up: what they may send still counts.
  bool was_asked(Member member) const {
    const auto end = sources_.begin() + static_cast<std::ptrdiff_t>(next_);
    return std::find(sources_.begin(), end, member) != end;
  }
  // Another that has it, as it says, and is asked next. False: too many are known already.
  bool add(Member source, std::size_t most) {
    if (sources_.size() >= most) return false;
    sources_.insert(sources_.begin() + static_cast<std::ptrdiff_t>(next_), source);
    return true;
  }
  // Asks the next one that is none of these. False: nobody is left.
  bool ask_next(const std::set<Member>& false_donors, TimePoint now) {
    while (next_ < sources_.size() && false_donors.contains(sources_[next_])) ++next_;
    if (next_ == sources_.size()) return false;
    ++next_;
    asked_at_ = now;
    return true;
  }

 private:
  Commit commit_;
  Members sources_;
  std::size_t next_ = 1;  // to be asked
  TimePoint asked_at_;
};

}  // namespace starling::collective
