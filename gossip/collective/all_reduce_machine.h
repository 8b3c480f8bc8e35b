// SPDX-License-Identifier: Apache-2.0
// All-reduce among peers without a coordinator, as a deterministic machine: whoever is reachable
// ends an exchange with the same mean over the same members, also when members die at any message.
// An exchange is named by its number and by what its inputs rest on (Progress): what half of the
// members or fewer did apart gives way to what a majority did meanwhile. Pieces move as Reduction
// says; README.md of this folder has the protocol and why it agrees.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/protocol/peer_messages.h"
#include "gossip/collective/arrival_deadline.h"
#include "gossip/collective/exchange_pace.h"
#include "gossip/collective/floats.h"
#include "gossip/collective/reduction.h"

namespace starling::collective {

using protocol::Epoch;
using protocol::Exchange;
using protocol::Member;
using protocol::Progress;

// --- events -------------------------------------------------------------------------------------
struct Begin {  // local steps are done; an exchange that is left unfinished may be passed over
  Progress at;
  Floats input;
};
// From failure detection and links. All are reachable at first. When a connection breaks, both ends
// hear Unreachable before Reachable, and nothing of the old connection afterwards. Of who is
// reachable: its link is up only now, so notes that were sent to it before may be lost.
struct Reachable {
  Member member = 0;
};
struct Unreachable {
  Member member = 0;
  bool for_good = false;  // no other link takes its place in the next moment
};
struct NoteReceived {
  Member from = 0;
  protocol::ReduceNote note;
};
struct PieceReceived {  // whole
  Member from = 0;
  Epoch epoch = 0;
  Progress at;
  std::uint32_t attempt = 0;
  std::uint64_t place = 0;
  Floats floats;
};
struct Tick {};  // next_deadline() has passed
using Event = std::variant<Begin, Reachable, Unreachable, NoteReceived, PieceReceived, Tick>;

// --- actions, to be performed in order ----------------------------------------------------------
struct SendNote {
  Member to = 0;
  protocol::ReduceNote note;
};
struct SendPiece {  // as a parcel of kind kReduce; its floats never change
  Member to = 0;
  Progress at;
  std::uint32_t attempt = 0;
  std::uint64_t place = 0;
  Floats floats;
};
struct Finished {
  Progress at;
  Progress next;  // to begin
  std::uint32_t attempt = 0;
  std::vector<Member> members;  // whose mean it is, in order; oneself not, if one came too late
  Floats mean;
};
// Others, `by`, have come to `next`, and what we are at is given up: copy a model of theirs, then
// Begin there or further; or, where nobody gives one, begin again where we were.
struct Behind {
  Progress next;
  std::vector<Member> by;
};
struct Say {
  LogLevel level = LogLevel::kWarning;
  std::string line;
};
using Action = std::variant<SendNote, SendPiece, Finished, Behind, Say>;

// The same on all members, but for the times.
struct AllReduceOptions {
  ArrivalDeadline::Options stragglers;        // from the first who has begun to the last
  Duration repeat = std::chrono::seconds(2);  // an unanswered question is put again
  ShapeRule shape;
};

class AllReduceMachine {
 public:
  // `names`: of all members, for sentences. Requires: self < names.size(). `next`: what the first
  // Begin will be of, or before.
  AllReduceMachine(const AllReduceOptions& options, Epoch epoch, Member self,
                   std::vector<std::string> names, Progress next = {});

  std::vector<Action> on(Event event, TimePoint now);
  // When Tick is due; nothing while no one waits.
  std::optional<TimePoint> next_deadline() const;
  // An exchange has begun here and not ended.
  bool busy() const { return current_.has_value(); }
  // Whom this member itself waits for. Who answers failure detection but not its peers holds them
  // up: a shell that sees neither notes nor bytes from one of these calls it unreachable.
  std::vector<Member> waiting_for() const;
  // Whether a majority can be there by now, as far as the pace of exchanges tells.
  bool is_explainable(Progress at) const;
  // What an exchange of a majority takes, local steps included; none: not seen yet.
  std::optional<Duration> pace() const { return pace_.usual(); }
  // Floats that came before the attempt they belong to; at most d of each other member.
  std::size_t early_floats() const;

 private:
  using Attempt = std::uint64_t;  // of a leader l: k n + l + 1; 32 bits on the wire
  using Members = std::vector<Member>;
  struct Peer {
    bool reachable = true;
    // Its last kState, and when it was the first of its exchange.
    std::optional<Progress> begun;
    TimePoint begun_at{};
    Attempt attempt = 0;
    Attempt held = 0;
    Members members;
    // Its last kNotYet, and the attempt whose question it answers.
    std::optional<Progress> not_yet;
    Attempt not_yet_attempt = 0;
    bool declined = false;  // we told it to go on without us in `begun`
    // It said that these have come so far, beyond what we are at.
    std::optional<Progress> ahead;
    Members ahead_by;
    bool sounded = false;  // asked how far it is
    bool elsewhere =
        false;           // what it says of them is not believed: it is neither led by nor awaited
    Attempt asked = 0;   // of the current exchange
    bool done = false;   // with the attempt we lead
    unsigned wants = 0;  // served in this exchange
    // It was lost, or said that it lost others: a link may only be replaced by another.
    bool unsure = false;
    std::optional<TimePoint> unsure_since;
  };
  struct Mean {
    Attempt attempt = 0;  // 0: none
    Members members;
    Floats floats;
  };
  struct Run {
    Members members;
    Reduction reduction;
  };
  struct Want {
    enum class For { kFinish, kStanding, kLead };  // a commit, a leader's kAttempt, our own
    For purpose = For::kFinish;
    Member from = 0;
    Attempt attempt = 0;
    Members members;
  };
  struct Lead {
    enum class Stage { kGathering, kFetching, kRunning };
    Stage stage = Stage::kGathering;
    Attempt attempt = 0;
    bool recovering = false;  // somebody was lost: ask at once
    Members awaited;          // kRunning: who has to be done, without us
  };
  struct Current {
    Progress at;
    Floats input;
    TimePoint first_at{};  // who was the first to begin it
    TimePoint repeat_at{};
    TimePoint stays_until{};  // falls behind nobody
    Attempt promised = 0;     // in no attempt below this
    TimePoint promised_at{};
    unsigned renewals = 0;                // of what seemed to be stuck
    std::optional<TimePoint> sounded_at;  // others were asked, of a word that was not believed
    Attempt joined = 0;                   // the last attempt taken part in
    Member reported_to = 0;               // the leader; oneself, perhaps
    std::optional<Run> run;
    Mean held;
    std::optional<Want> want;
    std::optional<Lead> lead;
  };
  struct Last {
    Progress at;
    Mean mean;
    std::optional<TimePoint> first_at;  // if we led it
  };
  struct Early {
    Attempt attempt = 0;
    Floats floats;
  };

  void handle(Begin&);
  void handle(Reachable&);
  void handle(Unreachable&);
  void handle(NoteReceived&);
  void handle(PieceReceived&);
  void handle(Tick&);

  void receive_state(Member from, protocol::ReduceNote& note);
  void receive_attempt(Member from, protocol::ReduceNote& note);
  void receive_done(Member from, const protocol::ReduceNote& note);
  void receive_commit(Member from, protocol::ReduceNote& note);
  void receive_want(Member from, const protocol::ReduceNote& note);
  void receive_ask(Member from, const protocol::ReduceNote& note);
  void receive_not_yet(Member from, const protocol::ReduceNote& note);

  // A member's side.
  Member leader() const;
  Attempt next_attempt(Member leader) const;
  void report();
  void promise(Attempt attempt);
  void send_state(Member to);
  void join(Attempt attempt, Members members);
  void emit(std::vector<Reduction::Outgoing>& out);
  void after_progress();
  void take_early();
  void hold_early(PieceReceived& piece);
  void want(Want want);
  void take_result(const Floats& floats);
  void finish(Mean mean);
  void hear_of_further(Member from, Progress next, Members by);
  bool follow_the_further();
  void look_ahead();
  bool is_believed(Progress next, std::size_t witnesses) const;
  void sound_others();
  void go_on_without_strays();
  static void be_with_us(Peer& peer);
  void fall_behind(Progress next, Members by);
  void decline(Member member);
  bool declined(Progress at) const;
  void repeat();
  void put_again(Member member);
  Progress after(Progress at, const Members& members) const;
  Progress open() const;
  bool is_beyond_next(Progress at) const;
  bool may_follow(Progress at) const;
  bool is_long_over(Progress at) const;
  void say_it_is_over(Member to);
  void say_who_is_missing(Exchange exchange, const Members& members);
  bool is_undone() const;
  Attempt highest_promise() const;

  // A leader's side (all_reduce_leader.cpp).
  void lead(Attempt attempt, bool recovering);
  bool is_late() const;
  void be_unsure(Peer& peer) const;
  TimePoint unsure_until() const;
  bool has_answered(Member member) const;
  void ask_missing();
  void ask_ahead(Member member);
  void consider();
  void decide();
  void let_stand(Attempt attempt);
  Members choose() const;
  void announce(const Members& to, const Members& members, Attempt held);
  void check_done();

  bool is_overdue(Member member) const;  // has waited too long for us to begin
  bool is_plausible(Attempt attempt) const;
  bool waits(Member member) const;  // for our result of the current exchange
  Member owner(Attempt attempt) const;
  bool are_members(const Members& members) const;
  bool is_reachable(Member member) const { return member == self_ || peers_[member].reachable; }
  void send(Member to, protocol::ReduceNote::Kind kind, Progress at, Attempt attempt,
            Attempt held = 0, Members members = {});
  void send_last(Member to);
  void say(LogLevel level, std::string line);

  AllReduceOptions options_;
  Epoch epoch_;
  Member self_;
  std::vector<std::string> names_;
  Progress next_;             // to begin, or before it while one is current
  bool is_left_out_ = false;  // ourselves, as was said last
  Members missing_;           // others, as was said last
  std::optional<TimePoint> missing_said_at_;
  Members further_;  // whose model we were told to copy, until we end an exchange
  std::vector<Peer> peers_;
  ArrivalDeadline arrivals_;
  ExchangePace pace_;
  TimePoint now_{};
  std::vector<Action> actions_;
  std::optional<Current> current_;
  std::optional<Last> last_;
  std::map<std::pair<Member, std::uint64_t>, Early> early_;  // by sender and place
};

}  // namespace starling::collective
