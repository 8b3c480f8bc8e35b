// SPDX-License-Identifier: Apache-2.0
// One attempt that is gathered here: who has registered, who is still waited for, until when,
// and whether the members that are here may go on.
#pragma once

#include <optional>
#include <set>
#include <utility>

#include "gossip/collective/gather_history.h"
#include "gossip/collective/patience.h"
#include "gossip/collective/sent_list.h"

namespace starling::collective {

// What a gatherer goes by beside the registrations.
struct GatherView {
  const AllReduceOptions& options;
  const MemberLiveness& liveness;
  const GatherHistory& history;
  const std::set<Member>& expected;   // to take part
  std::optional<TimePoint> ended_at;  // the exchange before, as far as is known
  Duration arrivals;                  // from the first registration to the last, as was learned
  Patience patience;
  bool awaits_mean = false;  // somebody may send the mean of a majority: no reason to go on apart
  TimePoint now;
};

class Gathering {
 public:
  // Members are asked so often at most before those who do not come are not waited for.
  static constexpr unsigned kAsksMax = 3;
  // A member that another waited for in vain is given this part of the longest silence to answer.
  static constexpr int kGraceParts = 10;

  // `none`: nobody has registered yet.
  Gathering(Progress at, Attempt attempt, Registrations none, const GatherView& view);

  Progress at() const { return at_; }
  Attempt attempt() const { return attempt_; }
  TimePoint first_at() const { return first_at_; }
  // Most members had registered (Registrations::are_most()).
  std::optional<TimePoint> most_at() const { return most_at_; }
  // Who came after these last, before the list, and when.
  const std::optional<std::pair<Member, TimePoint>>& last() const { return last_; }
  // Also those who came too late for the list.
  const Registrations& registered() const { return registered_; }
  void add(Member member, Registration registration, TimePoint now);
  void remove(Member member) { registered_.remove(member); }

  // Those who have not registered are asked to. Returns them.
  Members ask_all(const GatherView& view);
  // All were asked last, in place of waiting for them to begin.
  std::optional<TimePoint> asked_at() const { return asked_at_; }
  // It answered, and has not begun.
  void call_late(Member member) { late_.insert(member); }
  bool is_late(Member member) const { return late_.contains(member); }
  // Who is to hear now that we are there: who waits for the list, or came too late for it.
  Members heartbeat(const GatherView& view);

  // No list was sent yet, and nobody else is waited for.
  bool is_due(const GatherView& view) const;
  // Whether all are asked before a list is made: who is behind hears of it, and who answers is
  // there.
  bool asks_first(const GatherView& view) const;
  // Whether those who are here may: as a quorum, or because nobody can gather more.
  bool may_go_on(const GatherView& view) const;
  // All are there who can be expected.
  bool is_complete(const GatherView& view) const;
  // Members that are waited for although most have registered.
  Members stragglers(const GatherView& view) const;
  // Where no quorum is here and nobody else is heard: somebody who may hear more of them.
  std::optional<Member> hears_more(const GatherView& view) const;
  // How much later than the first one the last one may register, and is learned from.
  Duration lateness_max(const GatherView& view) const;
  // The same since `from`, where more than half of the others had begun at `others`.
  static Duration lateness_max(const GatherView& view, TimePoint others, TimePoint from);

  // Null: not sent yet.
  SentList* list() { return list_ ? &*list_ : nullptr; }
  const SentList* list() const { return list_ ? &*list_ : nullptr; }
  const SentList& set_list(SentList list, TimePoint now);

  // Nothing is expected of the list's members any more. Requires: list().
  TimePoint run_ends_at(const GatherView& view) const;
  // This process did not run for a while: what has come meanwhile is read before anybody is called
  // late. Once: one that is always late would wait for ever.
  void resume(const GatherView& view);
  TimePoint deadline(const GatherView& view) const;

 private:
  bool is_here(Member member, const GatherView& view) const;
  enum class Late { kAwaited, kLeftOut };
  bool may_be_minority(const GatherView& view, Late late) const;
  TimePoint closes_at(const GatherView& view) const;
  TimePoint grace_ends_at(const GatherView& view) const;

  Progress at_;
  Attempt attempt_;
  Registrations registered_;
  TimePoint first_at_;
  TimePoint heartbeat_at_;
  std::optional<TimePoint> most_at_;
  std::optional<std::pair<Member, TimePoint>> last_;
  std::optional<TimePoint> asked_at_;
  unsigned asked_ = 0;     // so often
  std::set<Member> late_;  // they have not begun, or only talk
  std::optional<SentList> list_;
  bool has_resumed_ = false;
  TimePoint reads_until_{};
};

}  // namespace starling::collective
