// SPDX-License-Identifier: Apache-2.0
// Whether this peer reaches a quorum, more than half of its epoch's members, and whether its model
// is of one. Without a quorum a peer cannot know what the others do meanwhile: it trains at the
// usual pace, and takes the majority's model when it is back.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/recent_median.h"
#include "core/protocol/peer_messages.h"

namespace starling::gossip {

// Of two members neither is a majority: there a quorum is always held.
class Quorum {
 public:
  // Of an exchange after so much work, for who has no quorum and has never seen how long one takes:
  // the others may be starting, and must not find the run over.
  static Duration assumed_pace(Duration work);

  // `before`: what was said of the model in an earlier epoch or process.
  Quorum(std::size_t members, TimePoint now, const protocol::Support& before = {});

  // Failure detection's word; all are reachable at first. True: a quorum was lost or is back.
  bool reach(protocol::Member member, bool reachable, TimePoint now);
  bool held() const { return exempt_ || 2 * reachable_ > members_.size(); }
  std::string tell() const;  // a sentence

  // The model grew without a quorum, and no majority's has taken its place: from the loss until
  // rejoin(), or until a quorum was held for so long that no majority can be elsewhere.
  bool is_minority(TimePoint now) const;
  // Whether to use what a peer sends and says that has this support. Not a minority's, once this
  // model has been no minority's for long enough: such a peer is about to take a majority's model.
  bool counts(const protocol::Support& theirs, TimePoint now) const;
  // The model is a minority's, and a neighbour that said this at `told_at`, a moment after this
  // peer had its quorum back, had one before: its model replaces ours.
  bool outranked_by(const protocol::Support& theirs, TimePoint told_at, TimePoint now) const;
  // The model is now that of such a neighbour.
  void rejoin(const protocol::Support& theirs, TimePoint told_at);
  // What is said of the model.
  protocol::Support support(TimePoint now) const;

  // Whether an exchange that lacked messages may have done so because a quorum is about to be lost:
  // it is not held, or somebody was lost a moment ago. Failure detection finds one after the other.
  bool in_doubt(TimePoint now) const;
  // An exchange with all that was expected, among a quorum, took so long.
  void learn(Duration exchange);
  // The usual time of an exchange; as long as it is not known, twice one's own work, or without a
  // quorum assumed_pace().
  Duration pace(Duration work) const;
  bool knows_pace() const { return pace_.size() > 0; }

 private:
  TimePoint settled_at() const;

  const bool exempt_;
  std::vector<bool> members_;  // who is reachable
  std::size_t reachable_;
  TimePoint since_;      // when the quorum began that the model is of
  bool lost_ = false;    // since then, and the model is not of another one yet
  TimePoint back_at_{};  // while lost_ and held()
  std::optional<TimePoint> somebody_lost_at_;
  RecentMedian pace_;  // of the means of a few exchanges in a row, seconds
  double sum_ = 0;     // of the latest exchanges, which are not in it yet
  int summed_ = 0;
};

}  // namespace starling::gossip
