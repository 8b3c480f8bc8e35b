// SPDX-License-Identifier: Apache-2.0
// One run as a machine: it opens phases one after the other (the training of a round, then perhaps
// its evaluation by clients), sends their tasks, takes what comes of them, and closes each phase
// with what counted or abandons it. Transfers in both directions belong to the open phase.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/machine/client_table.h"
#include "coordinator/machine/coordinator_events.h"
#include "coordinator/machine/round_machine.h"
#include "coordinator/machine/turn.h"
#include "core/base/deadlines.h"

namespace starling::coordinator {

class RunMachine {
 public:
  // All references must outlive the machine.
  RunMachine(RunStart start, const CoordinatorOptions& options, ClientTable& clients, Turn& turn);

  const RunStart& start() const { return start_; }
  RunId id() const { return start_.id; }
  // The open phase, also while it is committed; null: none.
  const RoundMachine* phase() const { return phase_ ? &phase_->tasks : nullptr; }
  bool committing() const { return phase_ && phase_->committing; }
  bool over() const { return over_; }
  // For how many clients it waits; 0: it does not.
  std::size_t awaited() const { return awaited_; }
  // As "4 clients (3 connected, 2 of them can do this run)"; empty: it does not wait.
  std::string waits_for() const;
  // The admitted clients as this run sees them.
  struct Reach {
    struct LeftOut {
      std::string client;
      std::string reason;
      bool trains = false;  // it may be asked to train: it is among the able ones
    };
    std::size_t admitted = 0;
    std::size_t able = 0;  // as far as they said what they can
    std::size_t connected = 0;
    std::size_t connected_able = 0;
    std::vector<LeftOut> left_out;  // in order of name
  };
  Reach reach() const;
  std::optional<TimePoint> next_deadline() const;

  // Opens the next phase if its time has come and enough clients are free, unless it is the turn of
  // the run `yields_to`. Requires: none is open.
  void try_open(std::optional<RunId> yields_to = std::nullopt);
  // Whether it waits though enough clients for it are connected: they are at work for other runs.
  bool held_up_by_others() const;
  // What is due in the open phase: retries, absent clients, its end.
  void advance();
  void stop();

  void came(const std::string& name, const ClientTable::Client& client);
  void went_away(const std::string& name, const ClientTable::Client& client);
  void revoked(const std::string& name);
  void turn_came(const std::string& name, TaskId task) { ask(name, task); }

  // Of a task of the open phase that was issued to this client, and only then. Requires: the phase
  // is not being committed.
  void receive(SessionId session, const protocol::ModelRequest& request);
  void receive(SessionId session, const protocol::Credit& credit);
  void receive(SessionId session, const std::string& client, const protocol::UpdateOffer& offer);
  void receive(SessionId session, const protocol::Chunk& chunk, const SharedBytes& payload);
  void receive(const std::string& client, const protocol::TaskFailed& failed);
  // Of a task that is of no open phase.
  void offered_late(const std::string& client, TaskId task);

  // Of a task of the open phase.
  void handle(const UploadOpened& event);
  void handle(const UploadStalled& event);
  void handle(const UploadSummed& event);
  void handle(RoundDurable& event);

  // How many tasks and clients were looked at.
  std::uint64_t work() const;

 private:
  struct Download {
    protocol::TransferSender sender;
    std::uint16_t input;
  };
  struct Upload {
    update::ContributionHead head;
    std::optional<protocol::TransferReceiver> receiver;  // once there is room for it
  };
  struct Phase {
    explicit Phase(RoundMachine machine) : tasks(std::move(machine)) {}
    protocol::TaskKind kind() const { return tasks.options().kind; }
    RoundMachine tasks;
    update::Schema schema;
    std::uint64_t traffic_recorded = 0;  // bytes out
    double median_rows = 0;  // of its clients that announced any, the lower median; 0: none did
    std::map<TaskId, Download> downloads;
    std::map<TaskId, Upload> uploads;
    Deadlines<TaskId> retries;         // of uploads for which there was no room
    std::map<TaskId, Error> refusals;  // why, until there is some
    std::map<TaskId, Error> stalled;   // uploads that lost their room, also where they got another
    Deadlines<TaskId> absent;  // asked, and the client is not connected: when it is given up
    bool said_disk_full = false;
    bool is_repetition = false;  // earlier attempts of the round lacked room again and again
    bool committing = false;
    RoundSummary closing;  // while committing
  };

  // Opening.
  void try_open_training();
  void open_evaluation();
  void open(OpenAttempt open, bool resumed);
  std::vector<std::string> who_may_be_asked(protocol::TaskKind kind);
  std::uint64_t count_able() const;  // admitted clients whose data and program suit the run
  std::string inability(const ClientTable::Client& client, protocol::TaskKind kind) const;
  std::string why_left_out(const std::string& name, const ClientTable::Client& client) const;
  bool may_be_asked(const std::string& name, const ClientTable::Client& client,
                    protocol::TaskKind kind) const;
  void prefer_those_in_time(std::vector<std::string>& names, Round round, std::size_t needed) const;
  bool all_connected(const std::vector<std::string>& names);
  void wait_for_clients(std::size_t awaited);
  void say_who_cannot();
  bool evaluation_is_due() const;
  std::string why_too_few_evaluate() const;
  bool is_last_round() const;

  // The open phase.
  void ask(const std::string& name, TaskId task);
  update::Schema schema_for(const Greeting& greeting) const;
  void await(TaskId task, const ClientTable::Client& client);
  Duration absence_max(const ClientTable::Client& client) const;
  void ask_or_await(const std::string& name, TaskId task);
  void ask_again(const std::string& name, TaskId task);
  void no_room(TaskId task, const Error& error);
  void fail_late_uploads();
  void pump(SessionId session, TaskId task);
  void record_traffic();
  Result<double> counted_weight(const std::string& client, double weight) const;
  Result<void> bound_scalars(const std::string& client, update::ContributionHead& head) const;
  double rows_max(double announced) const;
  std::uint64_t announced_rows(const Greeting& greeting) const;
  double median_rows(const std::vector<Participant>& participants) const;
  void sum_next();
  void fail_task(TaskId task, const Error& error);
  void blame(const std::string& client, const Error& error, bool permanent);
  void note_evaluation(const RoundSummary& summary);
  void note_missed(const RoundSummary& summary);
  void note_returns(const RoundSummary& summary, ClientPauses& pauses);
  void blame_for_norms(const RoundSummary& summary, bool commits);
  void tell_task_end(TaskId task);
  void end_all_tasks(const Error& reason);
  void give_up_absent();
  void retry_uploads();
  void close_if_due();
  void abandon(RoundSummary summary);
  void say_abandoned(const Error& reason);
  void end_with(RoundSummary summary, const Error& reason);
  void abandon_training(RoundSummary summary, const Error& reason);
  void forget_lost_states(const std::vector<std::string>& lost);
  void end_abandoned_tasks(const Error& reason);
  void committed(const RoundSummary& summary, Durable durable);
  void close_phase();
  void finish(FinishRun::State state, std::optional<Error> error);
  std::string label(const RoundMachine::Options& phase) const;

  RunStart start_;
  const CoordinatorOptions& options_;
  ClientTable& clients_;
  Turn& turn_;
  std::optional<Phase> phase_;
  bool over_ = false;
  bool stop_requested_ = false;
  std::size_t awaited_ = 0;
  // The last task of clients that only abandoned attempts of the present round asked: they may be
  // at work on it still, for a later attempt to take it over.
  std::map<std::string, TaskId> abandoned_;
  std::optional<RunId> yields_to_;
  std::uint64_t looked_at_version_ = 0;  // of the clients' table, when too few were there
  std::optional<TimePoint> retry_at_;
  Deadlines<std::string> away_;  // clients that were seen and may come back, until when
  mutable std::pair<std::uint64_t, bool> held_up_;  // by the clients' presence_version()
  std::string missing_;  // of a replay's contributors, when they were last looked at
  bool said_who_cannot_ = false;
  mutable std::uint64_t work_ = 0;  // but that of the open phase
};

}  // namespace starling::coordinator
