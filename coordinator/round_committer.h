// SPDX-License-Identifier: Apache-2.0
// The order in which a round becomes durable: compute, write the model's file, commit the attempt,
// remove old files, and only then tell. A full disk is waited out with a new file each time; any
// other failure of the disk ends the service, and the next start recovers.
#pragma once

#include <optional>

#include "coordinator/coordinator_machine.h"
#include "coordinator/round_executor.h"
#include "coordinator/run_loader.h"
#include "coordinator/run_log.h"
#include "core/base/scheduler.h"

namespace starling::coordinator {

class RoundCommitter {
 public:
  struct Handlers {
    std::function<void(RoundDurable)> on_durable;
    // Stored; `lines` are what the run's log will say of it, which may be added to.
    std::function<void(const RoundSummary&, const RoundOutcome&, std::vector<std::string>& lines)>
        on_committed;
    std::function<void(const Error&)> on_broken;
  };
  struct Plan {  // what the run's job says of its rounds
    Round rounds = 0;
    std::uint32_t keep = 0;
  };

  // All references must outlive the committer.
  struct Parts {
    Scheduler& scheduler;
    const Clock& clock;
    store::Store& store;
    CheckpointsOf checkpoints;
    RoundExecutor& executor;
    RunLog& run_log;
    Log& log;
  };

  RoundCommitter(Parts parts, Duration disk_retry, Handlers handlers);

  // A round begins.
  void begin(Plan plan);
  // Requires: no commit is under way.
  void commit(RoundSummary summary);
  bool busy() const { return summary_.has_value(); }

 private:
  void computed(Result<RoundOutcome> outcome);
  void write();
  void written(Result<void> result);
  void stored();
  void try_again(const Error& error);
  RunId run() const { return summary_->run; }

  Parts parts_;
  Duration disk_retry_;
  Handlers handlers_;
  Plan plan_;
  TimePoint began_{};
  std::optional<RoundSummary> summary_;
  RoundOutcome outcome_;
  const std::unique_ptr<Timer> retry_;
};

}  // namespace starling::coordinator
