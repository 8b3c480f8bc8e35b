// SPDX-License-Identifier: Apache-2.0
// A whole federation in one process: the very machines that the service and the devices run, under
// a virtual clock, with training on all cores. Messages may be delayed, sessions broken and
// processes killed, all from one seed; the order of events never depends on threads.
#pragma once

#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/coordinator_machine.h"
#include "coordinator/round_aggregate.h"
#include "coordinator/simulated_fallback.h"
#include "coordinator/simulated_world.h"
#include "core/base/compute_pool.h"
#include "core/client/client_machine.h"
#include "core/client/local_trainer.h"
#include "core/sim/event_queue.h"
#include "core/store/checkpoints.h"
#include "core/store/store.h"

namespace starling::coordinator {

// What may go wrong. Nothing does by default.
struct SimulatedFaults {
  std::uint64_t seed = 1;
  Duration latency_max{};        // of a message, uniform from 0; order within a session is kept
  Duration training_max{};       // virtual time of a training, uniform from 0
  double disconnect = 0;         // probability, per message, that its session breaks instead
  double client_crash = 0;       // ... that the receiving client's process is killed
  double coordinator_crash = 0;  // ... that the receiving coordinator is killed
  Duration restart_after = std::chrono::seconds(1);
  TimePoint until = TimePoint::max();  // faults end here, so that a run can finish
  // What a dishonest client makes of the update that it trained; none: all are honest.
  std::function<void(const std::string& client, client::PendingUpdate&)> forge;
  std::map<std::string, std::uint64_t> announces;  // the rows that dishonest clients say they have
};

class FederationSimulator {
 public:
  struct Options {
    unsigned threads = 1;
    SimulatedFaults faults;
    std::optional<SimulatedWorld> world;  // of as many clients as are added; none: no time passes
    protocol::TransferOptions transfer{.chunk_bytes_max = UINT64_MAX, .window_bytes = UINT64_MAX};
    std::optional<store::Checkpoints> checkpoints;                    // none: models stay in memory
    TimePoint give_up_at = TimePoint(std::chrono::hours(24 * 3650));  // virtual
  };
  struct Hooks {
    std::function<void(const std::string& line)> on_line;
    std::function<void(const RoundSummary&, const RoundOutcome&)> on_round;
  };

  // `store` survives simulated crashes; `clock` dates its records. Both must outlive the simulator.
  FederationSimulator(store::Store& store, const Clock& clock, Options options, Hooks hooks);
  ~FederationSimulator();

  void add_client(const std::string& name, data::DatasetView data);
  // Runs the job to its end and returns the run's id in the store. `recorded`: see RunStart.
  [[nodiscard]] Result<RunId> run(const RunContext& context, const std::string& job_text,
                                  std::map<Round, std::vector<std::string>> recorded);

  std::uint64_t crashes() const { return crashes_; }
  std::uint64_t disconnects() const { return disconnects_; }
  TimePoint now() const { return queue_.now(); }
  // When each attempt was committed or abandoned, virtual seconds from the start.
  const std::map<std::pair<Round, Attempt>, double>& ended_at() const { return ended_at_; }

 private:
  struct Training {
    protocol::RoundPlan plan;
    SharedBytes base;
    std::shared_ptr<client::Trainer> instead;  // of the client's own training
    std::atomic<bool> stop = false;
    bool submitted = false;
    std::promise<Result<client::PendingUpdate>> promise;
  };
  struct Node {
    std::string name;
    data::DatasetView data;
    std::uint64_t rows = 0;                          // announced
    std::unique_ptr<client::ClientMachine> machine;  // null while the process is down
    std::uint64_t incarnation = 0;
    std::optional<SessionId> session;
    TimePoint link_free_at{};  // messages of a session arrive in order
    std::optional<TimePoint> tick_at;
    std::map<TaskId, client::PendingUpdate> disk;
    std::map<TaskId, std::shared_ptr<Training>> trainings;
  };
  struct Upload {
    std::uint64_t bytes = 0;
    std::uint64_t received = 0;
    SharedBytes whole;  // where it came in one piece
    std::shared_ptr<std::vector<float>> memory;
  };

  // Clients.
  void start_client(std::size_t index);
  void kill_client(std::size_t index);  // its disk stays
  void crash_client(std::size_t index);
  void to_client(std::size_t index, client::Event event);
  void perform(std::size_t index, client::Action& action);
  void schedule_client_tick(std::size_t index);
  void connect(std::size_t index);
  void train(std::size_t index, client::Train& action);
  void finish_training(std::size_t index, std::uint64_t incarnation, TaskId task);
  void submit(std::size_t index, const std::shared_ptr<Training>& training);
  void submit_waiting();

  // The coordinator.
  void start_coordinator();
  void submit_when_connected();
  void submit();
  void kill_coordinator(Duration restart_after);
  void to_coordinator(Event event);
  void perform(Action& action);
  void begin_round(const BeginRound& begin);
  void open_upload(const OpenUpload& open);
  void write_upload(const WriteUpload& write);
  void sum_upload(SumUpload& sum);
  void commit_round(const CommitRound& commit);
  Result<std::pair<update::ModelVersion, model::Snapshot>> make_durable(const RoundSummary& summary,
                                                                        RoundOutcome& outcome);
  void abandon_round(const AbandonRound& abandon);
  void finish_run(const FinishRun& finish);
  void look_up(const LookUpTask& look_up);
  void schedule_coordinator_tick();

  // The network and the nodes (federation_simulator_world.cpp).
  using Direction = SimulatedWorld::Way;
  double seconds_now() const { return to_seconds(queue_.now() - TimePoint{}); }
  Result<void> begin_world();
  void appear(std::size_t index, double time);
  void disappear(std::size_t index, double time);
  void separate();
  Duration training_time(std::size_t index);
  void carry(std::size_t index, SessionId session, Direction direction,
             std::shared_ptr<protocol::Envelope> envelope);
  void transmit(std::size_t index, SessionId session, Direction direction,
                protocol::Envelope envelope);
  void deliver(std::size_t index, SessionId session, Direction direction,
               protocol::Envelope& envelope);
  void break_session(std::size_t index, const Error& reason);
  bool happens(double probability);
  void say(const std::string& line);
  void fail(const Error& error);

  store::Store& store_;
  const Clock& clock_;
  Options options_;
  Hooks hooks_;
  std::vector<client::TrainerCache> caches_;  // one a worker; they outlive the workers
  ComputePool pool_;
  Rng fault_rng_;
  sim::EventQueue<std::function<void()>> queue_;

  std::vector<Node> nodes_;
  std::map<std::string, std::size_t> node_of_;
  std::map<SessionId, std::size_t> node_of_session_;
  std::uint64_t last_session_ = 0;
  std::deque<std::pair<std::size_t, std::shared_ptr<Training>>> waiting_;
  std::size_t in_flight_ = 0;

  const RunContext* context_ = nullptr;
  RunId run_;
  std::map<Round, std::vector<std::string>> recorded_;
  std::unique_ptr<CoordinatorMachine> machine_;  // null while the process is down
  std::uint64_t coordinator_incarnation_ = 0;
  std::optional<TimePoint> coordinator_tick_at_;
  std::unique_ptr<RoundAggregate> aggregate_;
  std::unique_ptr<SimulatedFallback> fallback_;  // null: none, or no time passes
  std::map<TaskId, Upload> uploads_;
  std::map<Round, model::Snapshot> models_;  // durable ones; older than the last are dropped
  TimePoint round_started_{};                // wall
  bool submitted_ = false;
  bool finished_ = false;
  std::optional<Error> failure_;
  std::map<std::pair<Round, Attempt>, double> ended_at_;
  std::uint64_t crashes_ = 0;
  std::uint64_t disconnects_ = 0;
};

}  // namespace starling::coordinator
