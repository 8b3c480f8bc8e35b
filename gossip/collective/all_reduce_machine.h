// SPDX-License-Identifier: Apache-2.0
// All-reduce among peers without a coordinator, as a deterministic machine. Members register with a
// gatherer, reduce among those that it lists, and end the exchange with its commit. Whatever a
// member waits for has a deadline; after it the exchange goes on in another attempt, with the mean
// that a member holds already. README.md of this folder has the protocol and why members agree.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gossip/collective/ahead_claims.h"
#include "gossip/collective/gathering.h"
#include "gossip/collective/member_liveness.h"
#include "gossip/collective/member_records.h"
#include "gossip/collective/participation.h"
#include "gossip/collective/reducer.h"

namespace starling::collective {

class AllReduceMachine final : public Reducer {
 public:
  // A member that is further behind than this catches up by copying a model. In quick exchanges
  // it may be near all the same, by the time that they take.
  static constexpr Exchange kNear = 16;
  // An event that comes so much after the time of a tick: this process did not run, and what others
  // sent meanwhile waits to be read.
  static constexpr Duration kStopped = std::chrono::milliseconds(500);

  // `names`: of all members, for sentences. Requires: self < names.size(). `next`: what the first
  // Begin will be of, or before. `absent`: not waited for until they are heard.
  AllReduceMachine(const AllReduceOptions& options, Epoch epoch, Member self,
                   std::vector<std::string> names, Progress next = {},
                   const std::set<Member>& absent = {}, Memory memory = Memory::kWhole);

  std::optional<EndedExchange> backed_mean() const override;
  // That of the epoch before, which had these members in these places. Requires: no event yet.
  void offer(EndedExchange former);
  // What that machine has learned of times, with the same options among other members of the run.
  void learn_from(const AllReduceMachine& former);
  // Of members, in place of records of its own. Requires: no event yet.
  void share(std::shared_ptr<MemberRecords> records) { records_ = std::move(records); }

  // Leaves the exchange at hand, so that the model of others can be copied. Members that were asked
  // and have not answered count as silent. A Begin of the same exchange goes on with what was
  // promised and held; any other Begin forgets that. Requires: busy().
  void set_aside(TimePoint now);
  // As MemberLiveness::pass_over(), in the exchange at hand.
  std::vector<Action> pass_over(Member member, TimePoint from, TimePoint now);
  // That of the exchange that was left: the model that was copied takes its place.
  void forget_mean();

  std::vector<Action> on(Event event, TimePoint now) override;
  std::optional<TimePoint> next_deadline() const override;
  Duration piece_wait() const override;
  // An exchange has begun here and not ended.
  bool busy() const { return current_.has_value(); }
  bool has_ended() const { return last_.has_value(); }
  // It did not answer in time, and was not heard since of an exchange at hand.
  bool is_silent(Member member) const { return liveness_.silent_since(member).has_value(); }
  // Whom this member waits for, if for a single one.
  std::optional<Member> waiting_for() const {
    return current_ ? current_->waiting_for() : std::nullopt;
  }
  // Since when all others owe an answer whether they are there; none: they were not asked, or were
  // judged by it.
  std::optional<TimePoint> others_asked_at() const {
    return current_ ? current_->probed_at : std::nullopt;
  }
  Memory memory() const override { return memory_; }
  bool is_explainable(Progress at) const override { return claims_.is_explainable(at, now_); }
  std::optional<Duration> pace() const override { return claims_.pace().usual(); }
  bool takes_part(Member, Progress) const override { return true; }
  std::size_t members() const override { return names_.size(); }
  // Floats that came before the attempt they belong to; at most d of each other member.
  std::size_t early_floats() const { return current_ ? current_->early.floats() : 0; }

 private:
  static constexpr std::size_t kNamedMax = 8;  // members in a sentence

  // Of an exchange that was given up to copy a model, in case nobody gives one.
  struct GivenUp {
    Participation current;
    Member gatherer = 0;
    std::set<Member> expected;
  };
  struct AskedFor {  // before we have begun
    Progress at;
    Attempt attempt = 0;
    Member by = 0;
    friend auto operator<=>(const AskedFor&, const AskedFor&) = default;
  };
  struct Told {  // where we are
    Progress at;
    TimePoint when{};
  };
  struct Gathered {  // the last commit, if here
    TimePoint from{};
    Duration lateness_max{};
  };

  void begin_event(TimePoint now);
  std::vector<Action> end_event();
  void handle(Begin&);
  void handle(Copied&);
  void handle(LinkUp&);
  void meet(Member member);
  void handle(LinkDown&);
  void handle(NoteReceived&);
  void handle(PieceReceived&);
  void handle(Tick&);
  bool is_answer(Member from, const Note& note) const;
  void note_heard(Member from, Progress at);
  void hear(Member from, Progress at, Attempt attempt, reduce::What what);

  // Which attempt a member takes part in (all_reduce_attempt.cpp).
  Attempt first_attempt();
  Attempt attempt_after(Attempt former, Member gatherer) const;
  Attempt next_attempt(Member gatherer) const;
  bool may_gather(Member member) const;
  Member gatherer_after(Member former) const;
  bool is_plausible(Member from, Attempt attempt);
  void take_part_in(Attempt attempt);
  void follow(Member asker, Attempt attempt);
  bool may_leave_for(Member asker, Attempt attempt) const;
  void put_off(Member asker, Attempt attempt);
  std::optional<TimePoint> leaves_gatherer_at() const;
  void try_again_with(Member gatherer);
  void promise(Attempt attempt);
  void report();
  Registration registration() const;
  void receive(Member from, Progress at, Attempt attempt, reduce::Ask&);
  void receive(Member from, Progress at, Attempt, reduce::AskProgress&);

  // A member's side of an attempt (all_reduce_member.cpp).
  bool is_awaited(Member from, Progress at, Attempt attempt, const Members& members) const;
  void begin_attempt(Attempt attempt, bool weak, const Members& members);
  void receive(Member from, Progress at, Attempt attempt, reduce::List& list);
  void receive(Member from, Progress at, Attempt attempt, reduce::Standing& standing);
  void join(Members members);
  Reduction::Taken reduce(Member from, std::uint64_t place, const Floats& piece);
  void refuse_numbers(Member from);
  void emit(std::vector<Reduction::Outgoing>& out);
  void after_progress();
  void accept(Participation::Mean mean);
  void send_done();

  // Waiting (all_reduce_waiting.cpp).
  Patience patience() const;
  void receive(Member from, Progress at, Attempt attempt, reduce::Wait&);
  void probe_others();
  void ask_where_others_are();
  void find_silent();
  void find_unanswering();
  void say_end_is_missing();
  void stop_waiting();
  void resend(Member to);

  // The mean of others (all_reduce_mean.cpp).
  void fetch(reduce::Standing standing);
  void give_up_source();
  void ask_holder();
  void receive_mean(PieceReceived& piece);
  bool is_unheard_by_gatherer(Member teller, const Commit& commit) const;
  void go_on_without(const Members& ended);
  void look_for(Commit commit, Member teller);
  void ask_source();
  void give_up_donor();
  void try_next_source();
  std::optional<TimePoint> source_gives_up_at() const;
  bool look_for_told();
  void receive(Member from, Progress at, Attempt attempt, reduce::NotYet&);
  void receive(Member from, Progress at, Attempt attempt, reduce::Want& want);

  // The end of an exchange (all_reduce_end.cpp).
  void receive(Member from, Progress at, Attempt attempt, reduce::Commit& its);
  void end_with(Commit commit);
  void settle(const Commit& commit);
  void finish(Commit commit, Floats mean);
  void tell_left_out(const Commit& commit);
  void say_who_is_missing(const Commit& commit);
  void say_who_was_slow(const Commit& commit);
  Progress after(Progress at, std::size_t support) const;
  std::size_t support_of(std::size_t members, bool weak) const;
  const EndedExchange* ended_with(Progress at) const;
  bool may_tell_again(Member to);
  bool answer_if_over(Member to, Progress at, Attempt attempt, reduce::What otherwise);
  void send_commit(Member to, const Commit& commit);
  void tell_registered(const Commit& commit);

  // Others are further (all_reduce_ahead.cpp).
  void receive(Member from, Progress at, Attempt, reduce::Ahead& ahead);
  void hear_of_further(Member from, Progress next, Members donors);
  void hear_of_later(Member from, Progress at);
  bool may_follow(Progress at) const;
  void look_ahead();
  void catch_up(AheadClaims::Further further);
  void give_up();
  void note_unheard();
  bool has_been_long(TimePoint since) const;
  void note_no_list();
  bool resume(Begin& begin);

  // The gatherer's side (all_reduce_gather.cpp).
  void receive(Member from, Progress at, Attempt attempt, reduce::Register& registration);
  void receive(Member from, Progress at, Attempt attempt, reduce::Done& done);
  bool moves_to(Member from, Progress at, Attempt attempt, std::optional<Member> accused);
  bool is_awaited_here(Member member) const;
  Gathering& open_gather(Progress at, Attempt attempt);
  void drop_gather(Attempt instead);
  void begin_again(Member gatherer);
  GatherView view() const;
  void ask_all();
  void close();
  void call_unheard_silent();
  void decide();
  void take_over(NamedMean standing);
  void reduce_anew();
  void send_lists(SentList sent);
  void note_done(Member member, const reduce::Done& done);
  void tick_gather();

  // Whom the gatherer leaves out (all_reduce_exclusion.cpp).
  void settle_difference();
  bool exclude_silent_holders(const Members& held_by);
  void exclude(Member member, std::string_view why);
  void bar(Progress at);
  // Not while links may still be made; the members of a group have met before.
  bool charges_waits() const { return is_running_ || options_.any_mean; }
  void charge_waits();
  void charge_late();
  void charge_last(Member member, const std::optional<protocol::Waited>& waited);
  void charge_leaving(Member from, std::optional<Member> cause);
  void charge(Member by, const Blame& blame, TimePoint since);
  Duration charged_wait(TimePoint since) const;
  Member cause_of(Member by, const Blame& blame);

  // The exchange at hand, or to begin.
  Progress open() const { return current_ ? current_->at : next_; }
  // So old that its sender is not waited for because of it.
  bool is_past(Progress at) const;
  Member owner(Attempt attempt) const { return owner_of(attempt, names_.size()); }
  bool is_quorum(std::size_t members) const { return majority_.is_quorum(members); }
  bool are_members(const Members& members) const;
  void send(Member to, Progress at, Attempt attempt, reduce::What what);
  void send_to_others(Progress at, Attempt attempt, const reduce::What& what);
  void say(LogLevel level, std::string line);
  // Where a liar could cause this line in each exchange.
  void say_seldom(const std::string& topic, std::string line, LogLevel level = LogLevel::kWarning);

  AllReduceOptions options_;
  Epoch epoch_;
  Member self_;
  std::vector<std::string> names_;
  MajorityRule majority_;
  Memory memory_;
  std::optional<GivenUp> given_up_;
  Progress next_;             // to begin, or before it while one is current
  bool is_left_out_ = false;  // ourselves, as was said last
  Members missing_;           // others, as was said last
  std::optional<TimePoint> missing_said_at_;
  Members donors_;  // whose model we were told to copy, until we end an exchange
  MemberLiveness liveness_;
  std::map<Member, unsigned> wants_served_;  // in this exchange
  std::map<Member, Told> told_ahead_;        // members that ask about old exchanges
  // By the last commit: who gathers the next exchange, and who is waited for.
  Member gatherer_ = 0;
  std::set<Member> expected_;
  ArrivalDeadline arrivals_;
  ArrivalDeadline pieces_;
  AheadClaims claims_;
  TimePoint now_{};
  std::optional<TimePoint> due_;  // next_deadline() after the last event
  TimePoint stopped_until_{};     // this process did not run
  std::vector<Action> actions_;
  std::optional<Participation> current_;
  std::optional<Gathering> gather_;  // here, for the exchange at hand or the next one
  std::optional<Commit> committed_;  // of next_, which has not begun here
  // The same: one of each teller. Until so many say the same, or all others, members register here
  // as if there were none.
  std::map<Member, Commit> told_;
  static constexpr int kTellersMin = 2;
  GatherHistory history_;
  std::shared_ptr<MemberRecords> records_ =
      std::make_shared<MemberRecords>(MemberRecords::Options{});
  std::optional<AskedFor> asked_for_;  // others have come so far
  std::set<Member> askers_;  // where we are in this exchange: who gathers may not be in their reach
  // An exchange has ended here, or in the machine that this one has learned from: links are made.
  bool is_running_ = false;
  std::optional<EndedExchange> last_;
  // Of the epoch before, until an exchange has ended in this one.
  std::optional<EndedExchange> former_;
  std::optional<Progress> settled_;
  std::optional<TimePoint> ended_at_;  // the last exchange, as far as is known here
  std::optional<Gathered> gathered_;
};

}  // namespace starling::collective
