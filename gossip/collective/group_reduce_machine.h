// SPDX-License-Identifier: Apache-2.0
// All-reduce in groups (drawn_groups.h), as a deterministic machine: for each exchange one
// AllReduceMachine among the members of this member's group. The last ones are kept to answer those
// who come late; the next ones may be there before this member begins, since others are ahead and
// register with it. In notes members are named by their place in the group, which all draw alike.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gossip/collective/ahead_claims.h"
#include "gossip/collective/all_reduce_machine.h"
#include "gossip/collective/drawn_groups.h"
#include "gossip/progress/quorum.h"

namespace starling::collective {

// Nothing is agreed among groups: a mean of those of a group who came in time counts as any other.
// A member that reaches no quorum of all members goes on all the same, and copies the model of one
// that does when they meet again: until then `backed` of its Progress stays where it was.
class GroupReduceMachine final : public Reducer {
 public:
  // A member that is up to so many exchanges behind still gets a mean; further back it has to copy
  // a model.
  static constexpr Exchange kKept = 2;
  // A message for an exchange that is further ahead only tells where its sender is. Groups get as
  // far ahead as this without a fault.
  static constexpr Exchange kAhead = 16;
  // The limit while a wait for some member is remembered, so that members that are held up leave
  // their exchange sooner.
  static constexpr Exchange kAheadAfterWaits = 4;
  // A member that was missed so often is not waited for until it is heard near our exchange.
  static constexpr unsigned kMissedMax = 2;

  struct Options {
    AllReduceOptions exchange;
    // The first exchange begins when all were met, or after this: they may be starting. None: the
    // network runs.
    std::optional<Duration> start;
  };
  // `names`: of all members. `next`: what the first Begin will be of. `absent`: not waited for
  // until they are heard. `before`: what was said of the model in an earlier epoch or process.
  // Requires: self < names.size() == draw.members.
  GroupReduceMachine(const Options& options, Epoch epoch, const GroupDraw& draw, Member self,
                     std::vector<std::string> names, Progress next, const std::set<Member>& absent,
                     const protocol::Support& before, TimePoint now);

  std::vector<Action> on(Event event, TimePoint now) override;
  std::optional<TimePoint> next_deadline() const override;
  Duration piece_wait() const override;
  Memory memory() const override { return Memory::kWhole; }
  bool is_explainable(Progress at) const override { return claims_.is_explainable(at, now_); }
  std::optional<Duration> pace() const override { return claims_.pace().usual(); }
  std::optional<EndedExchange> backed_mean() const override { return std::nullopt; }
  bool takes_part(Member member, Progress at) const override;
  std::size_t members() const override;
  // Exchanges that have a machine now.
  std::size_t machines() const { return groups_.size(); }

 private:
  struct Group {
    std::vector<Member> members;  // by place, ascending
    AllReduceMachine machine;
    std::optional<Member> place_of(Member member) const;
  };
  struct Peer {
    bool met = false;
    std::optional<TimePoint> down_since;  // its link, as far as was said
    // Exchanges of ours in a row that ended without it, and it did not come near meanwhile.
    unsigned missed = 0;
    // Since its link was made, or it was silent; who only dials again and again does not.
    bool came_near = true;
    // Exchanges that ended without it since one ended with it, although it said that it is further.
    unsigned not_followed = 0;
    bool is_asked = false;  // whether it is there; it was not heard since
    bool is_missing() const { return missed >= kMissedMax; }
  };

  void handle(Begin& begin);
  void handle(Copied& copied);
  void handle(LinkUp& up);
  void handle(LinkDown& down);
  void handle(NoteReceived& came);
  void handle(PieceReceived& came);
  void handle(Tick&);

  // Its link is. Who was never met may still be starting, whatever others say of the network.
  bool is_down(const Peer& peer) const {
    return peer.down_since && (peer.met || now_ >= starts_until_);
  }
  // An exchange, to its own machine: what else a Progress says is between the groups' members.
  static Progress of_machine(Exchange exchange) {
    return {.backed = exchange, .exchange = exchange};
  }
  const Members& own_group(Exchange exchange);
  Group& open(Exchange exchange);
  const Group* find(Exchange exchange) const;
  void pass_over(Exchange exchange, Member place, TimePoint from);
  void give(Exchange exchange, Event event);
  void perform(Exchange exchange, std::vector<Action> actions);
  void perform(const Group& group, Finished finished);
  void note_whether_alone(bool is_with_others);
  void remember_silent(const Group& group);
  void reach(Member member, bool reachable);
  bool is_minority() const { return at_.backed < at_.exchange; }
  void tell_where_we_are(Member to);
  void send(Member to, Exchange exchange, Attempt attempt, reduce::What what);
  // A minority says that it is one.
  Exchange backed_in_note(Exchange exchange) const;

  // How exchanges begin (group_reduce_begin.cpp).
  bool has_met_all() const;
  void hear_that_it_runs(Member from, Exchange exchange);
  void begin_now();
  void forget_groups(Exchange former);
  bool has_put_off(Exchange exchange) const;
  void tell_put_off();

  // Who of the next groups is silent (group_reduce_silent.cpp).
  void ask_next_groups();
  std::optional<TimePoint> judges_next_at() const;
  void judge_next_groups();
  static void call_silent(Peer& peer);
  void forget_questions();

  // Who is elsewhere (group_reduce_ahead.cpp).
  void hear_of_further(Member from, Progress theirs);
  bool has_left_us(Member member, Exchange theirs);
  Exchange ahead_max() const { return records_->has_waits(now_) ? kAheadAfterWaits : kAhead; }
  void pass_over_further(Member place);
  void look_ahead();
  void catch_up(AheadClaims::Further further);
  void leave_exchange();
  std::size_t heard_others() const;
  bool one_gives_way(Member from, Progress theirs, bool asks);
  bool gives_way(Progress theirs) const;
  bool is_outranked_by(Progress theirs) const;
  void copy_model_of_quorum();

  const Options options_;
  const Epoch epoch_;
  const GroupDraw draw_;
  const Member self_;
  const std::vector<std::string> names_;
  Progress at_;                         // the exchange at hand, or to begin
  std::optional<Begin> held_;           // until all were met
  TimePoint held_until_{};              // or then
  bool is_starting_;                    // nothing has begun yet
  TimePoint starts_until_;              // others may begin
  std::set<Member> running_;            // who said meanwhile that the network runs already
  bool busy_ = false;                   // it has begun, and neither ended nor given up
  std::vector<Peer> peers_;             // by member
  gossip::Quorum quorum_;               // of all members
  std::map<Exchange, Group> groups_;    // around at_
  std::map<Exchange, Members> drawn_;   // our groups, from at_ on: to draw one takes O(n log n)
  std::optional<Exchange> ended_last_;  // its group is kept: what it has learned
  std::shared_ptr<MemberRecords> records_;
  AheadClaims claims_;        // of all members, whatever group they are in
  bool is_alone_ = false;     // nobody that is heard was waited for
  bool is_left_out_ = false;  // ourselves, as was said last
  bool copied_ = false;       // a model, and has not begun from it
  // Exchanges before this one: others may have come to them while we were elsewhere.
  Exchange away_until_ = 0;
  // Who registered, or asked for another attempt or a mean, in an exchange that we were too far
  // behind for: of the last one.
  std::map<Member, Exchange> put_off_;
  std::optional<TimePoint> next_asked_at_;   // those of the next groups, and not judged yet
  std::optional<TimePoint> next_judged_at_;  // they were, last
  // A member that has a quorum, met by a minority, and where it is.
  std::optional<std::pair<Member, Progress>> outranked_by_;
  TimePoint returns_again_at_{};  // not before
  std::optional<TimePoint> due_;  // next_deadline() after the last event, while a question is open
  TimePoint now_{};
  std::vector<Action> actions_;
};

}  // namespace starling::collective
