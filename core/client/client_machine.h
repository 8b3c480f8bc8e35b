// SPDX-License-Identifier: Apache-2.0
// A client's side of a federation as a deterministic machine: dial, greet, fetch a model, train,
// keep the update safe, offer it until it is settled, reconnect for ever. It owns no socket, clock,
// thread or file: events come in with the time, actions go out for a shell (or the simulator) to
// perform in order.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/backoff.h"
#include "core/base/log.h"
#include "core/protocol/messages.h"
#include "core/protocol/transfer.h"
#include "core/strategy/state.h"

namespace starling::client {

using strategy::StateSnapshot;

// A finished update that the coordinator has not settled yet.
struct PendingUpdate {
  update::ContributionHead head;
  SharedBytes payload;
  StateSnapshot state = nullptr;  // this client's from the commit on; null: its strategy has none
  // Tells what a training began with beside its model: see made_from(). 0: an earlier version made
  // it.
  std::uint64_t made_from = 0;
};
// Of the state and the inputs that a plan's training begins with; not 0.
std::uint64_t made_from(const protocol::RoundPlan& plan);

// This client's state in a run: the outcome of its last update that counted.
struct CommittedState {
  RunId run;
  Round round = 0;  // in which it counted
  TaskId task;      // whose update brought it
  StateSnapshot state;
};

// What an earlier process left behind.
struct Leftovers {
  std::vector<PendingUpdate> pending;
  std::vector<CommittedState> states;  // of a run the last one, and ahead of it the one before
};

// --- events -------------------------------------------------------------------------------------
struct Connected {};
struct Disconnected {
  Error error;
};
struct Received {
  protocol::Envelope envelope;  // a payload without an owner holds for the event
};
struct TrainingFinished {
  TaskId task;
  Result<PendingUpdate> update;
};
struct UpdateStored {  // the answer to StoreUpdate
  TaskId task;
  Result<void> result;
};
struct Drained {};  // little waits to be sent on the link
struct Tick {};     // next_deadline() has passed
struct Stop {};     // say goodbye; what is pending stays for the next start
using Event = std::variant<Connected, Disconnected, Received, TrainingFinished, UpdateStored,
                           Drained, Tick, Stop>;

// --- actions ------------------------------------------------------------------------------------
struct Dial {};  // answered by Connected or Disconnected
struct HangUp {
  Error reason;
};
struct Send {
  protocol::Envelope envelope;
};
// A trainer's error where what its strategy kept of the client's updates is gone.
inline constexpr std::string_view kStateLost = "state-lost";
// Where only what is held for other runs, which may end, leaves too little memory or no place for
// an update.
inline constexpr std::string_view kMemoryInUse = "memory-in-use";
struct Train {  // answered by TrainingFinished
  protocol::RoundPlan plan;
  SharedBytes base;
  std::vector<SharedBytes> inputs = {};  // as the plan's
  StateSnapshot state = nullptr;         // null: none yet
  bool state_lost = false;               // the one that belongs to its last update that counted
  std::uint64_t other_states_bytes = 0;  // in memory, of other runs
};
struct CancelTraining {  // its TrainingFinished is ignored
  TaskId task;
};
struct StoreUpdate {  // durably, then UpdateStored
  PendingUpdate update;
};
struct KeepState {  // durably; the run's earlier one becomes the one before
  CommittedState state;
};
struct RestoreState {  // durably: the one before is the run's state again
  CommittedState state;
};
struct ForgetUpdate {  // only if what was to be kept before it is kept
  TaskId task;
};
struct ForgetState {
  RunId run;
};
struct Say {
  LogLevel level;
  std::string line;
};
using Action = std::variant<Dial, HangUp, Send, Train, CancelTraining, StoreUpdate, KeepState,
                            RestoreState, ForgetUpdate, ForgetState, Say>;

struct ClientOptions {
  std::string software = "starling-edge";
  std::uint64_t rows = 0;              // training rows held
  std::vector<std::string> abilities;  // see abilities.h
  std::vector<std::uint32_t> input;    // shape of a row; empty: not said
  std::uint32_t classes = 0;
  std::uint64_t held_out = 0;                  // rows to evaluate on
  std::uint64_t model_bytes_max = 4ULL << 30;  // a larger model is refused by name
  // Where set, refuses a task by its plan, before its inputs are fetched; kOverloaded where it
  // would fit without the states of other runs. See check_memory().
  std::function<Result<void>(const protocol::RoundPlan&, std::uint64_t other_states_bytes)> check;
  // Beyond, the oldest unsettled one that brings no state is dropped; where all bring one, tasks of
  // other runs are refused.
  std::size_t pending_updates_max = 8;
  // Of runs; beyond, the one that has ended goes, else the one that was asked for longest ago. Of
  // those that are known to have ended only the last one's state is kept.
  std::size_t states_max = 8;
  Duration greeting_deadline = std::chrono::seconds(10);  // from connected to welcomed
  Duration silence_max = std::chrono::seconds(60);        // nothing heard: the link is dead
  Duration disk_retry = std::chrono::seconds(5);          // after the disk was full
  // A link that lasted so long, or on which an update was received whole, was a good one: the
  // waits begin small again. After others (two processes with one identity, a coordinator that
  // dies of its first round) they grow.
  Duration good_link_min = std::chrono::seconds(10);
  Backoff::Options backoff;
  protocol::TransferOptions transfer;
};

class ClientMachine {
 public:
  // The first Dial comes from the first Tick.
  ClientMachine(ClientOptions options, Rng backoff_rng, Leftovers leftovers);

  std::vector<Action> on(Event event, TimePoint now);
  // When Tick is due; nothing while only others can move.
  std::optional<TimePoint> next_deadline() const;

  enum class Link { kDown, kDialing, kGreeting, kUp, kStopped };
  // kSettling: the outcome of an earlier round, on which this one builds, is asked for.
  enum class Activity { kIdle, kFetching, kTraining, kStoring, kSettling };
  Link link() const { return link_; }
  Activity activity() const;
  // The task at work; null when idle. Valid until the next event.
  const protocol::RoundPlan* plan() const { return task_ ? &task_->plan : nullptr; }
  std::size_t pending_updates() const { return pending_.size(); }
  std::uint64_t updates_counted() const { return updates_counted_; }

 private:
  struct Task {
    protocol::RoundPlan plan;
    TaskId training;  // under which Train was issued; an earlier attempt's, perhaps
    Activity activity = Activity::kFetching;
    std::vector<SharedBytes> inputs = {};  // that are there: the model, then the plan's
    std::optional<protocol::ModelAssembler> assembler;  // of the next one
  };
  struct Pending {
    update::ContributionHead head;
    SharedBytes payload;
    StateSnapshot state;
    std::uint64_t made_from = 0;
    std::uint64_t order = 0;
    bool stored = false;  // only then offered
    protocol::TransferSender sender;
    std::optional<TimePoint> store_again_at = {};  // the disk was full
    bool waits_for_disk = false;                   // and that was said
    Round rounds = 0;                              // of its run; 0: of an earlier process
    bool offered = false;                          // since it was accepted last
    // Earlier attempts' tasks, whose files have it until it is stored as this one's.
    std::vector<TaskId> replaced = {};
  };
  // What a task asks for.
  struct Work {
    update::ModelVersion base;
    bool trains = true;  // otherwise it evaluates

    static Work of(const protocol::RoundPlan& plan);
    static Work of(const update::ContributionHead& head);
    std::string name() const;  // "run 1 round 3: ", and after it "evaluation " where it is one
  };
  struct Failure {
    Work work;
    Error error;
  };

  void handle(Connected&);
  void handle(Disconnected&);
  void handle(Received&);
  void handle(TrainingFinished&);
  void handle(UpdateStored&);
  void handle(Drained&);
  void handle(Tick&);
  void handle(Stop&);

  void receive(const protocol::Welcome&);
  void receive(const protocol::RoundPlan&);
  void receive(const protocol::Chunk&, const SharedBytes& payload);
  void receive(const protocol::Credit&);
  void receive(const protocol::UpdateAccept&);
  void receive(const protocol::UpdateReceived&);
  void receive(const protocol::RoundCommitted&);
  void receive(const protocol::TaskEnded&);
  void receive(const protocol::Bye&);

  void begin(const protocol::RoundPlan& plan);
  void forget_another_past(const protocol::RoundPlan& plan);
  bool continue_for(const protocol::RoundPlan& plan);
  bool reuse_update_for(const protocol::RoundPlan& plan);
  void fetch_inputs();
  void request_input();
  void ask_about(TaskId task);
  void start_when_settled();
  bool builds_on_unsettled(const protocol::RoundPlan& plan) const;
  void start_training();
  bool lacks_state(const protocol::RoundPlan& plan) const;
  std::uint64_t other_states_bytes(RunId run) const;
  std::uint64_t state_bytes(RunId run) const;
  Result<void> find_place(const protocol::RoundPlan& plan) const;
  Result<void> make_room(const protocol::RoundPlan& plan);
  Error with_holders(const Error& error, RunId run) const;
  void drop_state(RunId run);
  void drop_ended_but(RunId run);
  std::optional<RunId> ended_with_state_but(RunId run) const;
  void fail_task(TaskId task, const Work& work, const Error& error);
  void keep(PendingUpdate update, bool stored, Round rounds = 0);
  void keep_and_store(PendingUpdate update);
  void store_again();
  std::optional<TimePoint> link_deadline() const;
  bool is_readable(const update::ContributionHead& head) const;
  void drop_unreadable();
  void offer(Pending& pending);
  void pump(Pending& pending);
  void settle(TaskId task);
  void commit(const Pending& pending);
  void commit_state(const Pending& pending);
  void take_state_back(const protocol::RoundPlan& plan);
  void remember(CommittedState state);
  void drop_task();
  void hang_up(Error reason);
  void schedule_dial();
  void send(protocol::Message message, SharedBytes payload = {});
  void say(LogLevel level, std::string line);

  ClientOptions options_;
  Backoff backoff_;
  TimePoint now_{};
  std::vector<Action> actions_;

  Link link_ = Link::kDown;
  TimePoint dial_at_{};
  std::optional<TimePoint> welcomed_at_;
  bool reads_sparse_ = true;  // the coordinator, as it said last
  TimePoint greet_by_{};
  TimePoint heard_at_{};
  TimePoint sent_at_{};
  Duration heartbeat_ = std::chrono::seconds(10);
  std::optional<Task> task_;
  std::map<Sha256Digest, SharedBytes> held_;  // inputs of the last task, by content
  std::map<TaskId, Pending> pending_;
  std::map<RunId, CommittedState> states_;
  std::map<RunId, CommittedState> before_;  // the one before, in case that its round is taken back
  std::list<RunId> recent_;                 // of them, the one that was asked for last at the end
  std::set<RunId> ended_;  // as far as this process knows; a run that is restored may go on
  std::map<TaskId, Failure> failures_;  // told until the coordinator ends the task
  std::uint64_t order_ = 0;
  std::uint64_t updates_counted_ = 0;
};

}  // namespace starling::client
