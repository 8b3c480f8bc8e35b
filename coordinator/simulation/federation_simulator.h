// SPDX-License-Identifier: Apache-2.0
// A whole federation in one process: the processes that run as a service and on devices, around
// them a virtual time, a network and disks, with training on all cores. Messages may be delayed,
// sessions broken and processes killed, all from one seed; the order of events never depends on
// threads. A killed process loses all but its disk and, of the coordinator, the store.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/job/simulated_world.h"
#include "coordinator/rounds/coordinator_core.h"
#include "coordinator/simulation/simulated_fallback.h"
#include "coordinator/simulation/simulation_journal.h"
#include "core/client/client_shell.h"
#include "core/client/local_trainer.h"
#include "core/sim/simulated_disk.h"
#include "core/sim/virtual_computation.h"

namespace starling::coordinator {

// What may go wrong. Nothing does by default.
struct SimulatedFaults {
  std::uint64_t seed = 1;
  Duration latency_max{};        // of a message, uniform from 0; order within a session is kept
  Duration training_max{};       // virtual time of a training, uniform from 0
  double disconnect = 0;         // probability, per message, that its session breaks instead
  double client_crash = 0;       // ... that the receiving client's process is killed
  double coordinator_crash = 0;  // ... that the receiving coordinator is killed
  double disk_crash = 0;         // per change of a disk: its process is killed in it
  std::uint64_t kill_at_message = 0;  // the receiver of this one, from 1, is killed; 0: none
  std::uint64_t cut_at_message = 0;   // this one does not arrive: its session breaks; 0: none
  bool power_cuts = false;            // a coordinator that is killed loses its machine's power
  Duration restart_after = std::chrono::seconds(1);
  TimePoint until = TimePoint::max();  // faults end here, so that a run can finish
  // What a dishonest client makes of the update that it trained, on any thread; none: all are
  // honest.
  std::function<void(const std::string& client, client::PendingUpdate&)> forge;
  // How long a client holds back a message that it is about to send, and all after it; none: it
  // never sends this one. Without a world.
  std::function<std::optional<Duration>(const std::string& client, const protocol::Message&)>
      hold_back;
  std::map<std::string, std::uint64_t> announces;  // the rows that dishonest clients say they have
  // The fault that each change of a disk meets, the "coordinator"'s or a client's; empty: drawn by
  // disk_crash.
  std::function<sim::SimulatedDisk::Fault(const std::string& process, const std::filesystem::path&)>
      disk;
};

class FederationSimulator {
 public:
  // The coordinator's process, as in a sim::ProcessCrash.
  static constexpr std::uint32_t kCoordinator = UINT32_MAX;

  struct Options {
    unsigned threads = 1;
    SimulatedFaults faults;
    std::optional<SimulatedWorld> world;  // of as many clients as are added; none: no time passes
    protocol::TransferOptions transfer{.chunk_bytes_max = UINT64_MAX, .window_bytes = UINT64_MAX};
    // Uploads stay in memory; in files, they are on the coordinator's simulated disk.
    store::UploadSpool::Options spool{
        .directory = "spool", .memory_bytes_max = UINT64_MAX, .disk_bytes_max = 0};
    // Of the run; none: on the simulated disk, which keeps only the first, best and last model.
    std::optional<store::Checkpoints> checkpoints;
    // What clients know; must outlive the simulator. The coordinator's are those of the context.
    const strategy::Catalogue* strategies = &strategy::builtin_strategies();
    // Of what clients know, what those of an earlier version do not: words of client/abilities.h.
    std::map<std::string, std::set<std::string>> lacks;
    // Custom trainers instead of the built-in one, and what they can do (client/abilities.h). One
    // of kEvaluatorClient evaluates at the coordinator.
    // `make` is called on the worker's thread; a trainer is used there and then.
    struct Trainers {
      std::function<std::unique_ptr<client::Trainer>(const std::string& client, unsigned worker)>
          make;
      std::vector<std::string> abilities;
    };
    std::optional<Trainers> trainers;
    // Of a simulation that may be stopped and gone on with, by its clock; null: it may not. Without
    // a fallback. Must outlive the simulator.
    SimulationJournal* journal = nullptr;
    TimePoint give_up_at = TimePoint(std::chrono::hours(24 * 3650));  // virtual
  };
  struct Hooks {
    std::function<void(const std::string& line)> on_line;
    std::function<void(const RoundSummary&, const RoundOutcome&)> on_round;
    // Each message that a process sends, before anything can happen to it.
    std::function<void(const protocol::Envelope&)> on_message;
    // The journal has been repeated to its end: what happens from now on is new. An error ends the
    // simulation, as it does in the next one.
    std::function<Result<void>()> on_repeated = [] { return Result<void>(); };
    // After a turn in which a phase was committed: a journal may be saved.
    std::function<Result<void>(RunId)> on_commit = [](RunId) { return Result<void>(); };
  };

  // `store` survives simulated crashes; `clock` dates its records. Both must outlive the simulator.
  FederationSimulator(store::Store& store, const Clock& clock, Options options, Hooks hooks);
  ~FederationSimulator();
  FederationSimulator(const FederationSimulator&) = delete;
  FederationSimulator& operator=(const FederationSimulator&) = delete;

  void add_client(const std::string& name, client::ClientData data);
  // Submits the context's job, runs it to its end and returns the run's id in the store.
  // Once.
  [[nodiscard]] Result<RunId> run(const RunContext& context, Replay replay);

  std::uint64_t crashes() const { return crashes_; }
  std::uint64_t disconnects() const { return disconnects_; }
  std::uint64_t messages() const { return messages_; }  // that reached a process
  // Of updates, which clients sent: also what a broken session lost.
  std::uint64_t upload_bytes() const { return upload_bytes_; }
  TimePoint now() const { return scheduler_.now(); }
  // The disk of a process, "coordinator" or a client's name, with what the run left on it.
  sim::SimulatedDisk& disk_of(const std::string& process);
  // When each attempt was committed or abandoned, virtual seconds from the start.
  const std::map<std::pair<Round, Attempt>, double>& ended_at() const { return ended_at_; }

 private:
  class ClientProcess;
  struct Node {
    Node(std::uint32_t id, std::string its_name, client::ClientData its_data,
         std::uint64_t its_rows);
    ~Node();
    std::string name;
    client::ClientData data;
    std::uint64_t rows;  // announced
    sim::SimulatedDisk disk;
    std::unique_ptr<ClientProcess> process;  // null while it is down
    std::uint64_t incarnation = 0;
    std::optional<SessionId> session;
    TimePoint link_free_at{};  // messages of a session arrive in order
    TimePoint held_until{};    // those to the coordinator, by the client itself
    bool at_once = false;      // what is about to be computed takes no time
  };
  class Sessions;
  class Evaluator;

  // The clients (federation_simulator_clients.cpp).
  void start_client(std::size_t index);
  void kill_client(std::size_t index);
  void crash_client(std::size_t index);
  void to_client(std::size_t index, client::Event event);
  void dial(std::size_t index);
  void connect(std::size_t index);

  // The coordinator.
  Result<void> admit_clients();
  void start_coordinator();
  void make_core();
  void kill_coordinator(Duration restart_after);
  void to_coordinator(Event event);
  CoordinatorCore::Handlers core_handlers();
  void submit_when_connected();
  Result<void> look_for_end();
  Result<void> end_turn();
  Result<void> tend_journal(SimulationJournal& journal, bool committed);
  std::set<Round> rounds_at_work() const;
  void visit_held_states(const SimulationJournal::VisitState& visit);
  std::optional<Error> too_few_clients() const;
  void coordinator_broke(const Error& error);

  // Runs a turn of some process, which may be killed in it.
  void run_turn(const std::function<void()>& turn);
  void crash(std::uint32_t process);
  sim::SimulatedDisk::Fault draw_fault(const std::string& process,
                                       const std::filesystem::path& path);

  // The network and the nodes (federation_simulator_world.cpp).
  using Direction = SimulatedWorld::Way;
  double seconds_now() const { return to_seconds(scheduler_.now() - TimePoint{}); }
  Result<void> begin_world();
  void appear(std::size_t index, double time);
  void disappear(std::size_t index, double time);
  void separate();
  Duration training_time(std::size_t index);
  void carry(std::size_t index, SessionId session, Direction direction,
             std::shared_ptr<protocol::Envelope> envelope);
  void transmit(std::size_t index, SessionId session, Direction direction,
                const protocol::Envelope& envelope);
  void deliver(std::size_t index, SessionId session, Direction direction,
               protocol::Envelope& envelope);
  // A client that hung up itself is not told.
  void break_session(std::size_t index, const Error& reason, bool tell_client = true);
  bool happens(double probability);
  void fail(const Error& error) { failure_ = error; }

  store::Store& store_;
  const Clock& clock_;
  Options options_;
  Hooks hooks_;
  NullLog log_;
  std::vector<client::TrainerCache> caches_;  // one a worker; they outlive the workers
  ComputePool pool_;
  Rng fault_rng_;
  sim::VirtualScheduler scheduler_;
  sim::ImmediateComputation immediate_{scheduler_};
  sim::SharedProcessors processors_{scheduler_, pool_};

  std::vector<std::unique_ptr<Node>> nodes_;
  std::map<std::string, std::size_t> node_of_;
  std::map<SessionId, std::size_t> node_of_session_;
  std::uint64_t last_session_ = 0;

  std::shared_ptr<const RunContext> context_;
  std::string job_text_;
  RunId run_;
  Replay replay_;
  sim::SimulatedDisk disk_{kCoordinator};
  const std::unique_ptr<Sessions> sessions_;
  const std::unique_ptr<Evaluator> evaluator_;   // null: models are built in
  std::unique_ptr<CoordinatorCore> core_;        // null while the process is down
  std::unique_ptr<SimulatedFallback> fallback_;  // null: none, or no time passes
  bool submitted_ = false;
  // The hook for the round that has ended, once its lines have been said.
  std::function<void()> after_lines_;
  std::size_t lines_left_ = 0;
  bool may_have_ended_ = false;  // the run, since its state was looked at
  bool finished_ = false;
  std::optional<Error> failure_;
  std::map<std::pair<Round, Attempt>, double> ended_at_;
  std::uint64_t turns_ = 0;
  bool committed_ = false;      // in the turn at work
  std::size_t models_max_ = 4;  // in the journal, before it forgets some
  std::uint64_t crashes_ = 0;
  std::uint64_t disconnects_ = 0;
  std::uint64_t messages_ = 0;
  std::uint64_t upload_bytes_ = 0;
};

}  // namespace starling::coordinator
