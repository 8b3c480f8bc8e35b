// SPDX-License-Identifier: Apache-2.0
// The list that a gatherer has sent in an attempt, and what its members say that they hold.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "gossip/collective/member_liveness.h"
#include "gossip/collective/registrations.h"

namespace starling::collective {

struct SentList {
  Members to;            // who is to hold the mean
  NamedMean mean = {};   // that stands; attempt 0: none does, and its members reduce
  Members holders = {};  // of that mean
  std::optional<std::pair<Member, Member>> apart = {};  // the attempt before failed: by, of
  bool weak = false;                                    // what they are to hold
  std::set<Member> awaited = {};                        // who has not said that it is done
  std::map<Sha256Digest, Members> done = {};            // who holds which mean
  std::vector<std::pair<Member, Waited>> waits = {};    // of each, for a piece
  std::optional<std::pair<Member, Duration>> last =
      {};  // to be done, and how long after the others
  TimePoint sent_at = {};
  TimePoint progress_at = {};

  bool stands() const { return mean.attempt != 0; }
  bool has(Member member) const { return std::ranges::binary_search(to, member); }
  bool is_any_done() const { return awaited.size() < to.size(); }
  // What it says to this member, which registered so.
  reduce::What note(Member member, const Registration& its) const;
  // All are done, but with more than one mean; or one with another than the one that stands.
  bool differs() const;
  // Who holds another mean than the one that stands, or else than `self` or most. Requires: some
  // are done.
  Members others(Member self) const;
  // Of all who waited long for a piece, the others waited because of this one; null: nobody waited.
  const std::pair<Member, Waited>* first_wait() const;
  // Nothing is expected of its members any more, each of which waits so long for a piece.
  TimePoint ends_at(Duration piece, const MemberLiveness& liveness) const;
};

}  // namespace starling::collective
