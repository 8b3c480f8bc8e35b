// SPDX-License-Identifier: Apache-2.0
// A peer's training through a synchronous algorithm, step by step: train, send, wait for the
// neighbours, mix. It decides whom it waits for and how long, what a lost message means for the
// algorithm's shared state, and how who fell behind catches up. It holds no model and no socket.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/seldom_line.h"
#include "core/base/shared_bytes.h"
#include "core/protocol/peer_messages.h"
#include "gossip/progress/ahead_bound.h"
#include "gossip/progress/era_plan.h"
#include "gossip/progress/jump_bound.h"
#include "gossip/progress/lost_time.h"
#include "gossip/progress/quorum.h"
#include "gossip/progress/wait_budget.h"
#include "gossip/training/step_schedule.h"
#include "gossip/training/traffic.h"
#include "topologies/topology.h"

namespace starling::gossip {

namespace exchange {

using protocol::Exchange;
using protocol::Member;

// A neighbour's message, whole.
struct Arrival {
  Member from = 0;
  protocol::MixMessage message;
  protocol::Support support;  // of the sender's model
  SharedBytes data;
};

// --- events -------------------------------------------------------------------------------------
struct Begin {
  bool trained = false;  // the local phase of the first exchange is done already
};
struct Trained {};  // answers Train
struct Mixed {      // answers Mix
  // A neighbour's messages began to be left out of the mixing, or to count again.
  bool unsettled = false;
};
struct MessageReceived {
  Arrival arrival;
};
struct MessageUnused {  // a message that is not taken: it came too late, or is of no use
  Member from = 0;
  Exchange exchange = 0;
  protocol::Support support;
};
struct HelloReceived {  // a neighbour's hello: where it stands
  Member from = 0;
  Exchange exchange = 0;
  bool begun = false;
  protocol::Support support;
};
struct Asked {  // where is our message of this exchange? It waits for it.
  Member from = 0;
  Exchange exchange = 0;
  protocol::Support support;
};
struct Answered {  // to Ask
  Member from = 0;
  Exchange asked = 0;
  Exchange exchange = 0;  // where it is
  bool sent = false;      // the message that was asked for
  protocol::Support support;
};
struct Absent {  // before Begin: it is not starting with us, and not waited for before it is heard
  Member member = 0;
};
struct LinkUp {
  Member member = 0;
};
struct LinkDown {
  Member member = 0;
};
struct Reach {  // failure detection's word
  Member member = 0;
  bool reachable = true;
};
struct Copied {  // answers Copy: the model is others' of this exchange; none: nobody gave one
  std::optional<Exchange> exchange;
  std::size_t givers = 0;
};
struct Tick {};
using Event = std::variant<Begin, Trained, Mixed, MessageReceived, MessageUnused, HelloReceived,
                           Asked, Answered, Absent, LinkUp, LinkDown, Reach, Copied, Tick>;

// --- actions ------------------------------------------------------------------------------------
struct Train {  // local steps [step, step + steps), then Trained
  Exchange exchange = 0;
  std::uint64_t step = 0;
  int steps = 1;
  bool restart = false;  // the algorithm's state begins anew from its own model first
  // Without what neighbours share, as a common beginning is still to come: ExchangeOptions.
  bool plain = false;
};
struct Announce {  // send the message for receivers[place] of this exchange's matrix
  Member to = 0;
  std::size_t place = 0;
  Exchange exchange = 0;
  protocol::Eras eras;
};
struct Ask {  // where its message of this exchange is; question and answer may get lost
  Member to = 0;
  Exchange exchange = 0;
};
struct Answer {  // to Asked
  Member to = 0;
  Exchange asked = 0;
  Exchange exchange = 0;
  bool sent = false;
};
// Then Mixed. One entry a sender of the matrix, in order, none where nothing came; of loss-safe
// algorithms it may be of an earlier exchange.
struct Mix {
  Exchange exchange = 0;
  std::vector<std::optional<Arrival>> inbox;
};
struct Copy {  // take the model of these, then Copied
  std::vector<Member> donors;
};
struct Say {
  LogLevel level = LogLevel::kInfo;
  std::string line;
};
struct Finish {};  // the last step is mixed; once, unless the peer falls back
using Action = std::variant<Train, Announce, Ask, Answer, Mix, Copy, Say, Finish>;

}  // namespace exchange

struct ExchangeOptions {
  StepSchedule schedule;
  // A message that does not come costs accuracy only; else state that is shared along edges begins
  // anew everywhere at an exchange that all agree on.
  bool loss_safe = true;
  // That state only corrects the local steps. It is left out while a common beginning is planned,
  // as what corrections of members that went away would balance is missing, and all who do so mix
  // their models.
  bool corrects_steps = false;
  // The process has just begun, perhaps from a checkpoint: what it shared with its neighbours is
  // gone.
  bool new_process = false;
  std::uint64_t spread = 1;  // exchanges until a word has reached everybody: the diameter
  // Messages of so many exchanges before one's own are sent again to a neighbour whose link is new.
  std::uint64_t resent = 2;
  // Messages of one neighbour that are kept until their exchange comes: the one that is needed
  // first and the latest ones.
  std::size_t held_max = 2;
  // A neighbour that gives no sign of life for so long while it is waited for is not waited for any
  // more until it is heard; at first, see Neighbour::patience.
  Duration patience_min = std::chrono::seconds(2);
  // Nobody is waited for longer, whatever it answers. Who was, twice, is waited for half as long
  // from then on, and so on; once that is below patience_min it is not waited for at all. 16
  // messages in time make up for one such wait.
  Duration patience_max = std::chrono::seconds(60);
  // Who has no link is given so long to come back, then not waited for until it has one.
  Duration link_grace = std::chrono::seconds(1);
  // For those who were never heard: how long the first exchange waits for the others to start.
  Duration start_patience = std::chrono::seconds(60);
  std::size_t donors_max = 4;
  // How long the run has been going on; see JumpBound.
  std::optional<Duration> run_age = {};
};

// Who is waited for is asked where its message is. As long as it has not sent it, it is slow, and
// waited for, unless it has left out that exchange, or is further behind than a word takes to
// spread; what is sent is on its way or lost; without an answer it is dead or cut off. So what one
// peer waits for does not make its neighbours give it up, and nothing has to be learned from waits.
// A message that comes after the mixing is not lost: it is mixed at the next exchange with its
// sender, unless a newer one is there, as in the simulation (StepClock).
class ExchangeMachine {
 public:
  // A neighbour that claims more often than this to be far ahead, and is not, would cause one
  // common beginning after another. It is left out until EraPlan::span() exchanges have passed
  // without that.
  static constexpr unsigned kContradictionsMax = 2;

  // `names` [members], for sentences. Goes on with `exchange` (0: from the beginning) and a model
  // of this support. The topology must outlive the machine.
  ExchangeMachine(ExchangeOptions options, const topologies::Topology& topology,
                  exchange::Member self, std::vector<std::string> names,
                  exchange::Exchange exchange, TimePoint now,
                  const protocol::Support& support = {});

  std::vector<exchange::Action> on(exchange::Event event, TimePoint now);
  std::optional<TimePoint> next_deadline() const { return due_; }

  // kPacing: between two exchanges, until the next may begin.
  enum class State { kIdle, kTraining, kWaiting, kMixing, kCopying, kFinished, kPacing };
  State state() const { return state_; }
  exchange::Exchange exchange() const { return exchange_; }  // at work, or about to be
  std::uint64_t step() const { return options_.schedule.after(exchange_); }
  const topologies::MixingMatrix& matrix() const { return *matrix_; }
  // Of the last mixing.
  std::uint32_t heard() const { return heard_count_; }
  std::uint32_t expected() const { return expected_count_; }
  // What its messages and greetings say of its model.
  protocol::Support support(TimePoint now) const { return quorum_.support(now); }
  // How long a donor may be silent: it answers between two of its exchanges.
  Duration donor_patience() const;
  // When another is asked in its place, if nothing has come. A machine that knows no pace yet, as
  // after a start, asks once more than others.
  Duration donor_begins_within() const;
  // Whether this message may still be of use, so that nothing is stored for liars.
  bool wants(exchange::Member from, exchange::Exchange exchange) const;
  // Whether it has no link or is not reachable, or gave no sign of life for too long.
  bool is_away(exchange::Member member) const;
  // Messages to others, and what became of those to this peer, so far.
  const Traffic& traffic() const { return traffic_; }

 private:
  struct Neighbour {
    std::map<exchange::Exchange, exchange::Arrival> arrivals;
    exchange::Exchange next = 0;      // messages of earlier exchanges are mixed or given up
    exchange::Exchange latest = 0;    // the last exchange it is known to be at
    protocol::Support support;        // as it said last
    TimePoint support_at{};           // when that was
    exchange::Exchange heard_at = 0;  // ours when that was
    bool overtaken = false;           // it did far more than we did since it was heard before
    bool met = false;
    bool sends = false;  // it was a sender of a matrix
    bool reachable = true;
    std::optional<TimePoint> down_since;  // without a link
    TimePoint alive_at{};                 // its last sign of life
    TimePoint asked_at{};
    std::optional<exchange::Exchange> sent;  // its message of this exchange is sent, as it answered
    // How long it may be silent, or its message under way: doubled when that was too short, until
    // it has another link. 0: options' least.
    Duration patience{};
    // A deadline passed without its message, or it was absent, and nothing came since: not waited
    // for.
    bool missed = false;
    std::optional<exchange::Exchange> given_up;   // of this exchange, and nothing came since
    int lost_in_a_row = 0;                        // given up, though it answered
    WaitBudget budget;                            // how long it may hold us up
    std::optional<exchange::Exchange> wait_over;  // in this exchange
    SeldomLine lost_line;                         // its messages are lost
    // It is not followed: at which exchange of ours, and when, that began.
    std::optional<std::pair<exchange::Exchange, TimePoint>> ahead_since;
    SeldomLine ahead_line;  // and named
    bool present = true;    // its message came at the last mixing that it should have come for
    // How often it said that it is far ahead and then that it is not, and our exchange when it did
    // so last.
    unsigned contradictions = 0;
    exchange::Exchange contradicted_at = 0;
  };

  void handle(const exchange::Begin&);
  void handle(const exchange::Absent&);
  void handle(const exchange::Trained&);
  void handle(const exchange::Mixed&);
  void handle(exchange::MessageReceived&);
  void handle(const exchange::MessageUnused&);
  void handle(const exchange::HelloReceived&);
  void handle(const exchange::Asked&);
  void handle(const exchange::Answered&);
  exchange::Exchange surely_past(exchange::Exchange exchange) const;
  bool has_sent(exchange::Exchange exchange) const;
  void handle(const exchange::LinkUp&);
  void handle(const exchange::LinkDown&);
  void handle(const exchange::Reach&);
  void handle(const exchange::Copied&);
  void handle(const exchange::Tick&);

  std::optional<TimePoint> find_deadline() const;
  void begin_exchange();
  void go_on_or_finish();
  void announce_to(std::size_t place);
  bool is_starting() const;
  bool is_linked(const Neighbour& neighbour) const;
  bool awaits(exchange::Member member) const;
  bool awaits_anybody() const;
  Duration patience(const Neighbour& neighbour) const;
  TimePoint give_up_at(exchange::Member member) const;
  Duration longest_wait(const Neighbour& neighbour) const;
  std::optional<TimePoint> ask_at(exchange::Member member) const;
  void ask_and_give_up();
  void end_wait(Neighbour& neighbour);
  void mix_if_complete();
  void say_who_is_slow(exchange::Member last);
  void mix();
  std::vector<std::optional<exchange::Arrival>> take_inbox();
  std::optional<exchange::Arrival> take_message(Neighbour& neighbour);
  bool fits(const exchange::Arrival& arrival) const;
  bool is_sender_soon(exchange::Member member, exchange::Exchange until) const;
  bool is_left_out(const Neighbour& neighbour) const;
  void contradict(exchange::Member member);
  void settle_given_up(Neighbour& neighbour, exchange::Exchange exchange);
  void keep(exchange::Arrival arrival);
  void move_on();
  bool rejoin_majority();
  bool note(exchange::Member member, exchange::Exchange exchange, const protocol::Support& support);
  void go_back(Neighbour& neighbour, exchange::Exchange exchange);
  void follow(exchange::Member member, exchange::Exchange exchange,
              const protocol::Support& support);
  bool is_there(const Neighbour& neighbour) const;
  bool is_heeded(const Neighbour& neighbour) const;
  bool is_past(const Neighbour& neighbour) const;
  std::size_t witnesses_needed() const;
  bool is_whole_graph() const;
  bool may_be_neighbour(exchange::Member member) const;
  exchange::Exchange furthest() const;
  void say_who_is_not_followed(exchange::Exchange target);
  std::vector<exchange::Member> donors_at(exchange::Exchange target) const;
  exchange::Exchange made_up_for() const;
  void stood_still(Duration time);
  void worked(Duration time);
  void copy_from(exchange::Copy copy);
  exchange::Exchange explainable(std::size_t witnesses) const;
  bool is_stale() const;
  void go_to(exchange::Exchange target);
  std::optional<TimePoint> held_back_until() const;
  std::optional<exchange::Exchange> nearest_behind() const;
  std::optional<TimePoint> others_come_at() const;
  void say(LogLevel level, std::string line);
  void say(const std::optional<EraPlan::TooOften>& too_often);

  ExchangeOptions options_;
  const topologies::Topology& topology_;
  exchange::Member self_;
  std::vector<std::string> names_;
  std::vector<exchange::Action> actions_;
  TimePoint now_{};

  State state_ = State::kIdle;
  exchange::Exchange exchange_;
  const exchange::Exchange first_;
  exchange::Exchange resumed_;     // since this one, none was left out
  const exchange::Exchange last_;  // its end is the run's
  std::shared_ptr<const topologies::MixingMatrix> matrix_;
  // Its neighbours in the graph; where each step draws a new graph, those in the first one.
  const std::vector<exchange::Member> graph_;
  std::map<exchange::Member, Neighbour> neighbours_;  // everybody who was a sender or spoke
  TimePoint began_{};                                 // the exchange
  TimePoint waiting_{};                               // since
  TimePoint patient_since_{};  // waiting_, or later: when it was seen that the network runs already
  Duration work_{};            // of the last local steps
  SeldomLine slow_;            // who lets others wait
  bool gave_up_ = false;       // in this exchange a neighbour's deadline passed
  TimePoint resume_{};         // kPacing: until
  std::optional<TimePoint> awaits_others_since_;  // kPacing: for neighbours that are behind
  WaitBudget waits_for_others_;                   // how long those may hold us up
  Quorum quorum_;
  Traffic traffic_;
  AheadBound ahead_;  // in step: all were heard, or a common exchange was found
  JumpBound jumps_;
  LostTime lost_;
  std::optional<TimePoint> due_;  // since the last event
  TimePoint mixing_{};            // since
  TimePoint copying_{};           // since
  std::size_t donors_ = 0;        // that are asked for a model
  bool trained_before_ = false;   // the present local phase, before Begin
  // kCopying: of the majority, whose word this is; none: only of those who are further.
  std::optional<std::pair<protocol::Support, TimePoint>> majority_;
  // No majority is at an earlier exchange. 0: the quorum was lost before the machine began.
  exchange::Exchange majority_from_ = 0;
  std::uint32_t heard_count_ = 0;
  std::uint32_t expected_count_ = 0;
  // Messages that came for it, also those that are not mixed since they are of another era: their
  // senders are where we are.
  std::uint32_t came_count_ = 0;
  EraPlan eras_;        // of the state that is shared along edges
  bool plain_ = false;  // the exchange at work
};

}  // namespace starling::gossip
