// SPDX-License-Identifier: Apache-2.0
// The order in which a round becomes durable: compute, write the model's file, commit the attempt,
// remove old files, and only then tell. A full disk is waited out with a new file each time; any
// other failure of the disk ends the service, and the next start recovers.
#pragma once

#include <optional>

#include "coordinator/coordinator_machine.h"
#include "coordinator/round_executor.h"
#include "coordinator/run_log.h"
#include "coordinator/state_directory.h"
#include "core/net/alarm.h"

namespace starling::coordinator {

class RoundCommitter {
 public:
  struct Handlers {
    std::function<void(RoundDurable)> on_durable;
    std::function<void(const Error&)> on_broken;
  };
  struct Plan {  // what the run's job says of its rounds
    Round rounds = 0;
    std::uint32_t keep = 0;
  };

  // All references must outlive the committer.
  RoundCommitter(net::EventLoop& loop, store::Store& store, const StateDirectory& state,
                 RoundExecutor& executor, RunLog& run_log, Log& log, Duration disk_retry,
                 Handlers handlers);

  void set_plan(Plan plan) { plan_ = plan; }
  // Requires: no commit is under way.
  void commit(RoundSummary summary);
  bool busy() const { return summary_.has_value(); }

 private:
  void computed(Result<RoundOutcome> outcome);
  void write();
  void written(Result<void> result);
  void stored();
  void try_again(const Error& error);
  store::Checkpoints checkpoints() const { return store::Checkpoints(state_.models(run())); }
  RunId run() const { return summary_->run; }

  net::EventLoop& loop_;
  store::Store& store_;
  const StateDirectory& state_;
  RoundExecutor& executor_;
  RunLog& run_log_;
  Log& log_;
  Duration disk_retry_;
  Handlers handlers_;
  Plan plan_;
  std::optional<RoundSummary> summary_;
  RoundOutcome outcome_;
  net::Alarm retry_;
};

}  // namespace starling::coordinator
