// SPDX-License-Identifier: Apache-2.0
// A member's part in an exchange: what it has promised and holds, and for whom it waits, and until
// when.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "gossip/collective/attempt_bounds.h"
#include "gossip/collective/early_pieces.h"
#include "gossip/collective/mean_search.h"
#include "gossip/collective/member_liveness.h"
#include "gossip/collective/patience.h"
#include "gossip/collective/reduction.h"
#include "gossip/collective/registrations.h"

namespace starling::collective {

struct Participation {
  struct Mean : NamedMean {
    Floats floats;
  };
  struct Run {
    Members members;
    Reduction reduction;
  };

  // Of `own`, one of so many.
  Participation(const Begin& begin, Member own, std::size_t count, TimePoint now);

  // For whom this member waits, if for a single one.
  std::optional<Member> waiting_for() const;
  bool waits_for_list() const { return !run && !fetch && held.attempt != promised; }
  // Of the attempt at hand. Requires: promised != 0.
  Member gatherer() const { return owner_of(promised, members); }
  bool holds(const Sha256Digest& sha256) const;
  // Something came of it: waits from now on.
  void wait(TimePoint now);
  // This process did not run for a while, and waits anew. Once for each wait: one that is always
  // late would wait for ever.
  void resume(TimePoint now);
  // For the piece of this step, which has come.
  void note_wait(Member of, std::size_t step, TimePoint now);
  reduce::Done done() const { return {.sha256 = held.sha256, .waited = waited}; }
  std::optional<TimePoint> gives_up_at(const Patience& patience,
                                       const MemberLiveness& liveness) const;
  // When the others are to be asked whether they are there, or judged by their answers.
  TimePoint probes_at(const Patience& patience) const;
  // For whom it has waited in vain, or for so long that it may be the cause of others' waiting.
  std::optional<Blame> blame_at(const Patience& patience, const MemberLiveness& liveness,
                                TimePoint now) const;
  unsigned failed_max() const;  // by one gatherer
  void leave_attempt();

  Member self;
  std::size_t members;
  Progress at;
  Floats input;
  double distance_max;
  bool was_away;
  TimePoint begun_at;
  Attempt promised = 0;  // takes part in nothing below
  TimePoint promised_at{};
  Attempt joined = 0;  // the last one whose list has come
  TimePoint joined_at{};
  TimePoint charged_until;  // for what it waits, to those that it waited for
  bool weak = false;        // its mean is
  Mean held;                // attempt 0: none
  TimePoint held_at{};
  std::optional<Run> run;
  std::optional<reduce::Standing> fetch;   // to be accepted in the attempt at hand
  std::optional<MeanSearch> search;        // for the mean of a commit
  std::set<Member> false_donors;           // that sent another mean than the one asked for
  std::map<Member, Sha256Digest> tellers;  // of commits, and what they said first
  AttemptBounds bounds;
  unsigned passed_on = 0;              // so often to another gatherer who might hear more
  std::map<Member, unsigned> failed;   // attempts that we left in vain, by gatherer
  std::map<Member, unsigned> refused;  // the same, since we got wrong numbers
  std::optional<Blame> blame;          // of the attempt before
  std::vector<SendPiece> sent;         // in the attempt at hand
  EarlyPieces early;                   // of the attempt promised, until its list comes
  TimePoint waits_since;               // for waiting_for()
  bool has_resumed = false;            // that wait was begun again
  Duration longest_wait{};             // for a piece
  std::optional<Waited> waited;        // in the attempt at hand, the first of the long ones
  std::optional<Duration> work;        // from the end of the last exchange to this beginning
  std::optional<TimePoint> probed_at;  // the others, not judged yet
  TimePoint judged_at{};               // they were, last
};

}  // namespace starling::collective
