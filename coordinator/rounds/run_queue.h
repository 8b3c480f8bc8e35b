// SPDX-License-Identifier: Apache-2.0
// Which runs the machine holds: at the start those that were running, then the pending ones in
// order of submission, each loaded when its turn comes: when fewer than runs-max are active, which
// one that waits for clients is not, and clients enough that can do it are connected; once
// runs-max runs are held, only if these clients are free. The first one is loaded even without
// them, so that its log says what it waits for. A job that does not say the shape of its data waits
// until as many clients as it needs are there, and takes the shape that they announce. A run whose
// job does not name its initial model has the coordinator's trainer make it, while other runs
// begin.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "coordinator/machine/client_fit.h"
#include "coordinator/machine/coordinator_machine.h"
#include "coordinator/machine/data_shape.h"
#include "coordinator/rounds/model_evaluator.h"
#include "coordinator/rounds/run_loader.h"
#include "coordinator/rounds/run_log.h"
#include "core/base/computation.h"

namespace starling::coordinator {

class RunQueue {
 public:
  struct Handlers {
    // The run is running in the store; hand it to the machine.
    std::function<void(const LoadedRun& run, RunStart start)> on_ready;
    // ... and it was asked to stop before the restart.
    std::function<void(RunId)> on_stop;
    std::function<std::size_t()> runs_active;      // which do not wait for clients
    std::function<std::size_t()> runs_contending;  // and those that others hold up
    std::function<const ClientTable&()> clients;
    std::function<void(const Error&)> on_broken;
  };

  // All references must outlive the queue.
  struct Parts {
    Scheduler& scheduler;
    const Clock& clock;
    store::Store& store;
    CheckpointsOf checkpoints;
    PrepareContext prepare;
    const strategy::Catalogue& strategies;
    Computation& computation;  // loads runs, one after another
    Computation& waiting;      // waits for `external`
    RunLog& run_log;
    Log& log;
    ModelEvaluator* external = nullptr;  // makes initial models; null: nothing does
  };

  struct Options {
    Duration disk_retry = std::chrono::seconds(5);
    std::size_t runs_max = 4;     // active at a time
    std::size_t waiting_max = 4;  // held beside them: each has its data and a model in memory
  };

  RunQueue(Parts parts, Options options, Handlers handlers);

  // Loads the runs that an earlier process was at, in this turn, which may take long. A run fails
  // whose job or models are damaged. Errors are those of the store.
  [[nodiscard]] Result<void> load_running();
  // Hands over what load_running() loaded, before any client is heard: their tasks must be known
  // again. A run whose data cannot be read waits for them and keeps its place.
  [[nodiscard]] Result<void> resume();
  // Whether a run of this job could be loaded, which takes as long as loading it: with the shape of
  // its data as far as it is known. "no-data-shape" also where no client that has joined
  // can say it, "shapes-differ" where they disagree.
  void try_job(const Job& job, Completion<TriedJob> done);
  // Loads the next pending run if its turn has come. To be called when a run was submitted or has
  // begun to wait.
  void load_next();
  // The same, when a client has connected or was revoked, or a phase has begun, which leaves
  // clients free: looks only if that can matter.
  void clients_changed();
  // A run that was held has ended.
  void ended(RunId run);
  // A pending run was stopped: its initial model is not needed any more.
  void stopped(RunId run);
  // No run begins any more. What is being made of one is given up, and the run stays pending.
  void drain();
  // Why `run`, which the machine does not hold, is not under way; empty where it is being loaded or
  // has ended.
  std::string waits_for(const store::Run& run) const;

 private:
  struct Wait {
    std::uint64_t times = 0;
    std::string why;
  };

  // What decides whether a pending run may begin.
  struct Pending {
    Job job;  // with the shape of its data, once put_back() knows it
    std::vector<std::string> abilities;
  };

  std::optional<Pending> find_pending(const store::Run& run) const;
  std::optional<LearnedShape> learn_shape(const Job& job) const;
  std::size_t held_max() const { return options_.runs_max + options_.waiting_max; }
  bool another_may_be_active() const { return handlers_.runs_active() < options_.runs_max; }
  bool may_begin(const Pending& pending) const;
  bool lacks_clients(const Pending& pending, const client::DataShape& shape,
                     std::size_t others) const;
  AbleClients count_able(const Pending& pending, const client::DataShape& shape) const;
  bool put_back(RunId run, const client::DataShape& shape);
  void wait_for_disk(RunId run, const Error& error, std::function<void()> step);
  void try_again(RunId run, std::function<void()> step);
  void try_all_again();
  bool trainer_initializes(const Job& job) const;
  void initialize(const store::Run& run, const Job& job);
  void initialized(const store::Run& run, const Result<model::Snapshot>& made);
  void load(const store::Run& run, const std::optional<LearnedShape>& learned,
            const model::Snapshot& made = nullptr);
  void loaded(const store::Run& run, const std::optional<LearnedShape>& learned,
              const Result<LoadedRun>& loaded);
  void write_initial(const store::Run& run, const std::optional<LearnedShape>& learned,
                     const LoadedRun& loaded);
  Result<void> record_start(RunId run, const LoadedRun& loaded, const store::ModelRecord& initial);
  void start(const store::Run& run, const std::optional<LearnedShape>& learned,
             const LoadedRun& loaded, const store::ModelRecord& initial);
  struct Running {
    store::Run run;
    store::ModelRecord last;
    Result<LoadedRun> loaded;
  };
  Result<void> load_running(const store::Run& run);
  Result<void> resumed(const store::Run& run, const store::ModelRecord& last,
                       const LoadedRun& loaded);
  bool can_read_job(const store::Run& run);
  std::optional<store::Run> find_waiting(RunId id);
  void load_again(RunId id);
  void models_came(const store::Run& run, const std::vector<store::ModelRecord>& models,
                   const Result<std::string>& damage);
  void wait_to_resume(const store::Run& run, const Error& error, std::function<void()> again);
  void wait_for_data(const store::Run& run, const store::ModelRecord& last, const Error& error);
  void resume_again(const store::Run& run, const store::ModelRecord& last);
  // These end the run that is held, once the disk has room for the record.
  void fail(RunId run, const Error& error);
  void stop(RunId run);
  void finish(RunId run, const store::RunEnd& end);
  void check(const Error& error);

  Parts parts_;
  Options options_;
  Handlers handlers_;
  std::vector<Running> running_;  // until resume()
  std::set<RunId> held_;          // being loaded, or begun and not ended
  std::optional<RunId> loading_;  // of them, for the first time
  struct Initializing {
    RunId run;
    std::stop_source stop;
  };
  std::optional<Initializing> initializing_;  // of them, whose initial model is being made
  bool draining_ = false;
  // Those that could not begin when last asked, and the one that is being loaded.
  std::map<RunId, Pending> pending_;
  std::map<RunId, std::string> complaints_;       // the last one, of runs that wait for data
  std::map<RunId, std::function<void()>> again_;  // what waits for the disk
  std::map<RunId, Wait> waits_;                   // for it, of runs that begin or end
  const std::unique_ptr<Timer> retry_;
  const std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace starling::coordinator
