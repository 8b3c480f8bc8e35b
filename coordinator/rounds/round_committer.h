// SPDX-License-Identifier: Apache-2.0
// The order in which a phase becomes durable: compute, write the files of model and state, commit
// the phase, remove old files, and only then tell. A full disk is waited out with new files each
// time; any other failure of the disk ends the service, and the next start recovers.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "coordinator/machine/coordinator_events.h"
#include "coordinator/rounds/round_executor.h"
#include "coordinator/rounds/run_loader.h"
#include "coordinator/rounds/run_log.h"
#include "core/base/scheduler.h"

namespace starling::coordinator {

class RoundCommitter {
 public:
  struct Handlers {
    std::function<void(RoundDurable)> on_durable;
    // Computed, or failed to be: the phase's updates are not read any more.
    std::function<void(RunId)> on_computed = [](RunId) {};
    // Stored; `lines` are what the run's log will say of it, which may be added to.
    std::function<void(const RoundSummary&, const RoundOutcome&, std::vector<std::string>& lines)>
        on_committed;
    std::function<void(const Error&)> on_broken;
  };
  struct Plan {  // what the run's job says of its rounds
    Round rounds = 0;
    std::uint32_t keep = 0;
    std::optional<store::Metric> metric = {};             // of the best model
    std::shared_ptr<const std::string> settings;          // of the models' metadata
    std::shared_ptr<const RunContext> context = nullptr;  // says what a trainer evaluates
  };

  // All references must outlive the committer.
  struct Parts {
    Scheduler& scheduler;
    const Clock& clock;
    store::RunStore& store;
    CheckpointsOf checkpoints;
    RoundExecutor& executor;
    RunLog& run_log;
    Log& log;
    const ModelEvaluator* external = nullptr;  // null: nothing evaluates external models
  };

  RoundCommitter(Parts parts, Duration disk_retry, Handlers handlers);

  // A phase of the run begins.
  void begin(RunId run, Plan plan);
  // It ended without a model.
  void abandon(RunId run) { begun_.erase(run); }
  // Requires: begin(); no commit of the run is under way.
  void commit(RoundSummary summary);
  bool busy() const { return !commits_.empty(); }
  // Why the run's commit waits for the disk; empty: it does not.
  std::string waits_for_disk(RunId run) const;
  // The coordinator's trainer, which evaluates the run's model or that of another one; empty: it is
  // not needed.
  std::string waits_for_trainer(RunId run) const;

 private:
  struct Begun {
    Plan plan;
    TimePoint at{};
  };
  struct Commit {
    RoundSummary summary;
    RoundOutcome outcome = {};
    std::optional<store::ModelRecord> model = std::nullopt;
    std::unique_ptr<Timer> retry = nullptr;
    std::uint64_t retries = 0;
    std::string waits_for = {};                               // the disk's last error
    std::optional<TimePoint> evaluated_since = std::nullopt;  // by the trainer, until it is done
    std::unique_ptr<Timer> slow = nullptr;                    // the log says that it takes long
    bool is_slow = false;
  };

  void watch_trainer(RunId run, Commit& commit);
  std::string trainer_time(const Commit& commit) const;
  void say_slow(RunId run);
  void trainer_done(RunId run, bool measured);
  void say_of_round(RunId run, const std::string& what);
  void computed(RunId run, Result<RoundOutcome> outcome);
  void write(RunId run);
  void written(RunId run, Result<store::ModelRecord> model);
  void store(RunId run);
  void stored(RunId run);
  void check(RunId run, const Error& error, std::function<void()> again);
  void prune(RunId run, const Plan& plan);

  Parts parts_;
  Duration disk_retry_;
  Handlers handlers_;
  std::map<RunId, Begun> begun_;  // of runs whose phase is open or being committed
  std::map<RunId, Commit> commits_;
};

}  // namespace starling::coordinator
