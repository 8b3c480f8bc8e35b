// SPDX-License-Identifier: Apache-2.0
// One epoch of a run at one member, as a deterministic machine: the protocol of the algorithm,
// failure detection among the members, the model that is taken over from others or given to them.
// The peer's machine passes on to it what concerns the epoch, and ends it with the epoch.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "core/identity/roster.h"
#include "gossip/membership/swim_machine.h"
#include "gossip/peer/apart_members.h"
#include "gossip/peer/checkpoint.h"
#include "gossip/peer/copy_rules.h"
#include "gossip/peer/local_steps.h"
#include "gossip/peer/make_protocol.h"
#include "gossip/peer/model_copy.h"
#include "gossip/peer/peer_events.h"
#include "gossip/peer/training_protocol.h"

namespace starling::gossip {

// With whom there is a link, and what they said last.
using UpLinks = std::map<Member, protocol::PeerHello>;

// The settings that do not change with the members.
Settings lasting_settings(Settings settings);

class EpochSession {
 public:
  struct Setup {
    const identity::Roster& roster;  // for the call
    Member self = 0;
    NetworkRun run;
    std::shared_ptr<LocalSteps> local;
    ProtocolStart start;
    std::set<Member> absent = {};  // as of ProtocolPlace
    ProtocolPatience patience;
    membership::SwimOptions membership;
    Rng rng;
    Duration checkpoint_every{};
    std::optional<FallbackPace> pace = {};  // of a fallback's run, which keeps no checkpoints
  };
  // What became of the model at its last mixing, as far as it was to be had.
  struct Mixed {
    std::shared_ptr<const Checkpoint> checkpoint;
    TrainingProgress progress;
  };
  struct Begin {};       // before all others
  struct EarlierHello {  // of a member whose link is older than the epoch: its last one
    Member member = 0;
    protocol::PeerHello hello;
  };
  struct GreetedAgain {  // over a link that is up, in this epoch
    Member member = 0;
    protocol::PeerHello hello;
  };
  // What others say only while is_open(); a LinkUp's hello is of this epoch.
  using Event =
      std::variant<Begin, EarlierHello, GreetedAgain, peer::LinkUp, peer::LinkDown,
                   peer::MessageReceived, peer::TransferReceived, peer::TransferProgressed,
                   peer::TransferRefused, peer::Computed, peer::Tick>;
  // What an event came to.
  struct Outcome {
    std::vector<peer::Action> actions;
    std::optional<Mixed> mixed;  // the latest
    bool advanced = false;       // an exchange ended
    bool all_heard = false;      // ... in which everybody was heard
    bool finished = false;
    std::optional<Error> failure;  // it cannot go on, and is to be ended
  };

  // `up` must outlive it.
  EpochSession(Setup setup, const UpLinks& up, TimePoint now);

  Outcome on(Event event, TimePoint now);
  std::optional<TimePoint> next_deadline() const;

  // No training begins any more. With `links_changed` nothing is sent either: the places of the
  // members are other ones already.
  void leave(bool links_changed);
  // Ends the task of a trainer soon, whose result is of no use.
  void cancel_training() { local_->cancel(); }
  // Whether a thread is at work for it, since computing_since().
  bool is_computing() const { return training_->is_computing() && !held_back_; }
  TimePoint computing_since() const { return computing_since_; }

  // Whether an announced transfer is of use.
  [[nodiscard]] Result<void> check(Member from, const protocol::VectorTransfer& transfer) const;
  protocol::PeerHello greeting() const;  // what it says of its model
  const TrainingProtocol& training() const { return *training_; }
  protocol::Support support() const { return training_->support(now_); }
  std::size_t reachable() const { return members_->reachable(); }
  // What is wrong with other members, for as long as it is; empty: nothing.
  std::string problem() const { return apart_.problem(); }
  // Of all members, by name: who was there to the end.
  std::map<std::string, bool> who_is_there() const;
  // What a session would go on with; none while the model is being computed.
  std::optional<Checkpoint> checkpoint() const;
  bool holds_back_training() const { return held_back_.has_value(); }
  std::optional<Handover> hand_over() { return training_->hand_over(); }

  protocol::Epoch epoch() const { return epoch_; }
  const std::string& run_id() const { return run_id_; }  // Roster::run_identity()
  const std::string& run_name() const { return run_name_; }
  const Settings& settings() const { return settings_; }  // lasting_settings()
  const NetworkRun& run() const { return run_; }
  const std::shared_ptr<LocalSteps>& local() const { return local_; }
  bool is_external() const { return run_.model == nullptr; }
  // Whether it hears others: not once their places are of the next epoch.
  bool is_open() const { return !links_changed_; }

 private:
  struct Ask {
    Member from = 0;
    protocol::ColumnsAsk columns;
    bool put_off = false;  // was told that it has to wait
  };

  void handle(const Begin&);
  void handle(EarlierHello& earlier);
  void handle(const GreetedAgain& again);
  void handle(const peer::LinkUp& up);
  void greeted(Member member, const protocol::PeerHello& hello, bool is_met);
  void handle(const peer::LinkDown& down);
  void handle(peer::MessageReceived& came);
  void handle(peer::TransferReceived& came);
  void handle(const peer::TransferProgressed& event);
  void handle(peer::TransferRefused& refused);
  void handle(peer::Computed& computed);
  void handle(const peer::Tick&);

  void tell_training(training::Event event);
  void perform(peer::Send& send) {
    if (may_send(send.to)) act(std::move(send));
  }
  void perform(peer::SendTransfer& send);
  void perform(training::Train& train);
  void perform(peer::Compute& compute);
  void perform(training::CopyModel& copy);
  void perform(peer::Say& said) { act(std::move(said)); }
  void perform(const training::Advanced&);
  void perform(const training::Finished&);
  void perform(training::Failed& failed) { outcome_.failure = std::move(failed.error); }

  void act(peer::Action action) { outcome_.actions.push_back(std::move(action)); }
  void say(LogLevel level, std::string line) { act(peer::Say{level, std::move(line)}); }
  bool may_send(Member to) const { return !links_changed_ && !apart_.contains(to); }
  void heard(Member member);
  void set_apart(Member member);
  void refuse_if_alone(std::uint64_t size_of_others);
  void lose(Member member);
  void perform(const std::vector<membership::Action>& actions);
  void take_columns(Member from, const protocol::ModelColumns& columns,
                    const TransferFlow::Whole& whole);
  void note_where(Member from, const protocol::VectorTransfer& transfer);
  void answer_asks();
  void put_off(Ask& ask);
  std::optional<Member> other_donor(const std::vector<Member>& than) const;
  void continue_copy();
  void hand_in_model();
  void keep_checkpoint(bool model_too);

  const protocol::Epoch epoch_;
  const std::string run_id_;
  const std::string run_name_;
  const Settings settings_;
  const Member self_;
  const std::vector<std::string> names_;
  const NetworkRun run_;
  const std::shared_ptr<LocalSteps> local_;
  const UpLinks& up_;
  const Duration checkpoint_every_;
  const std::optional<FallbackPace> pace_;
  TimePoint now_;
  Outcome outcome_;
  std::set<Member> silent_;  // were absent when it began, and were not heard since
  ApartMembers apart_;
  std::unique_ptr<TrainingProtocol> training_;
  std::unique_ptr<membership::SwimMachine> members_;
  std::map<Member, protocol::Swim> unsent_;  // probes that wait for a link
  std::optional<ModelCopy> copy_;
  std::map<Member, bool> greeted_;  // over the link that is up; with its model
  std::set<Member> no_donors_;      // gave nothing when they were asked last
  const Duration copy_patience_;
  CopyRules copies_;            // of this member's model, for others
  std::set<Member> often_;      // ask for it too often, as was said
  std::vector<Ask> asks_;       // for columns of this member's model, until it may be read
  std::uint64_t handed_in_at_;  // evaluations so far
  TimePoint checkpoint_at_;
  struct HeldBack {
    std::optional<TimePoint> until;  // none: the run is over
    peer::Compute phase;
  };
  std::optional<HeldBack> held_back_;  // a local phase that the pace does not allow yet
  TimePoint computing_since_{};
  bool links_changed_ = false;
};

}  // namespace starling::gossip
