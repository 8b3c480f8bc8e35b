// SPDX-License-Identifier: Apache-2.0
// Which run the machine holds: at the start the one that was running, then the pending ones in
// order of submission, each loaded when its turn comes.
#pragma once

#include <functional>
#include <optional>

#include "coordinator/coordinator_machine.h"
#include "coordinator/round_executor.h"
#include "coordinator/run_loader.h"
#include "coordinator/run_log.h"
#include "coordinator/state_directory.h"
#include "core/net/alarm.h"

namespace starling::coordinator {

class RunQueue {
 public:
  struct Handlers {
    // The run is running in the store; hand it to the machine.
    std::function<void(const LoadedRun& run, RunStart start)> on_ready;
    // ... and it was asked to stop before the restart.
    std::function<void(RunId)> on_stop;
    std::function<void(const Error&)> on_broken;
  };

  // All references must outlive the queue.
  RunQueue(net::EventLoop& loop, store::Store& store, const Clock& clock,
           const StateDirectory& state, RunLog& run_log, Log& log, Duration disk_retry,
           Handlers handlers);

  // Loads the run that an earlier process was at, on this thread: clients must not be heard before
  // their tasks are known again. A run fails whose job or models are damaged; one whose data cannot
  // be read waits for them and holds its place. Errors are those of the store.
  [[nodiscard]] Result<void> resume();
  // Loads the next pending run, unless one is being held.
  void load_next();
  // The run that was held has ended.
  void ended() {
    held_ = false;
    load_next();
  }

 private:
  struct Loading {
    Result<LoadedRun> run;
    Result<void> written;  // the initial model's file
  };

  void load(const store::Run& run);
  void loaded(const store::Run& run, Loading loading);
  void start(const store::Run& run, const LoadedRun& loaded);
  Result<void> resume(const store::Run& run);
  Result<void> resumed(const store::Run& run, const store::ModelRecord& last,
                       const LoadedRun& loaded);
  void wait_for_data(const store::Run& run, const store::ModelRecord& last, const Error& error);
  void resume_again(const store::Run& run, const store::ModelRecord& last);
  // These end the run that is held, once the disk has room for the record.
  void fail(RunId run, const Error& error);
  void stop(RunId run);
  void finish(RunId run, const store::RunEnd& end);
  void check(const Error& error);
  store::Checkpoints checkpoints(RunId run) const { return store::Checkpoints(state_.models(run)); }

  net::EventLoop& loop_;
  store::Store& store_;
  const Clock& clock_;
  const StateDirectory& state_;
  RunLog& run_log_;
  Log& log_;
  Duration disk_retry_;
  Handlers handlers_;
  bool held_ = false;      // a run is being loaded or held by the machine
  std::string complaint_;  // the last one about data that cannot be read
  std::function<void()> again_;
  net::Alarm retry_;
  const std::shared_ptr<int> alive_ = std::make_shared<int>(0);
  ComputePool thread_{1};
};

}  // namespace starling::coordinator
