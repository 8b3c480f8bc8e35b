// SPDX-License-Identifier: Apache-2.0
// Around a client's machine, on a device and in a simulation: takes its events, performs its
// actions in order, wakes it at its deadlines. Training and files are computed beside its turns.
// It decides nothing.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "core/base/computation.h"
#include "core/client/client_machine.h"
#include "core/client/link.h"
#include "core/client/pending_store.h"
#include "core/client/trainer.h"

namespace starling::client {

// What a training task computes; `instead` replaces the client's own trainer where it is not null.
// Called on `worker`'s thread of the training; ends soon, with "stopped", after `stop` is set.
using MakeUpdate = std::function<Result<PendingUpdate>(
    const Train& task, Trainer* instead, const std::atomic<bool>& stop, unsigned worker)>;

class ClientShell {
 public:
  // All references must outlive the shell. What `make_update` borrows must outlive `training`.
  struct World {
    Scheduler& scheduler;
    Link& link;
    const PendingStore& pending;
    Computation& disk;  // one worker, so that files change in the order of the actions
    Computation& training;
    MakeUpdate make_update;
  };
  struct Handlers {
    // Before any other action of the event, so that lines which follow can be judged by it.
    std::function<void(const Error& reason)> on_hang_up = [](const Error&) {};
    std::function<void(const Say&)> on_say = [](const Say&) {};
    // What contributes in place of the client's own trainer; null: nothing does.
    std::function<std::shared_ptr<Trainer>(const Train&)> on_train = [](const Train&) {
      return nullptr;
    };
    // After a failed fsync or a broken disk nothing that this process believes to be stored can be
    // trusted: it should end, and the next one read what is really there.
    std::function<void(const Error&)> on_disk_broken = [](const Error&) {};
    std::function<void()> on_handled = [] {};  // an event, with all its actions
  };

  ClientShell(World world, ClientOptions options, Rng backoff, Leftovers leftovers,
              Handlers handlers);
  // Stops the trainings that run; nothing of them comes back.
  ~ClientShell();
  ClientShell(const ClientShell&) = delete;
  ClientShell& operator=(const ClientShell&) = delete;

  // The first event is a Tick, which dials.
  void handle(Event event);
  const ClientMachine& machine() const { return machine_; }

 private:
  void perform(Dial&);
  void perform(HangUp&);
  void perform(Send&);
  void perform(Train&);
  void perform(CancelTraining&);
  void perform(StoreUpdate&);
  void perform(KeepState&);
  void perform(ForgetUpdate&);
  void perform(RestoreState&);
  void perform(ForgetState&);
  void perform(Say&);
  void stored(TaskId task, const Result<void>& result);
  void changed(const char* what, const Result<void>& result);
  void check_disk(const Error& error);
  void set_timer();

  World world_;
  Handlers handlers_;
  ClientMachine machine_;
  const std::unique_ptr<Timer> timer_;
  std::optional<TimePoint> timer_set_;
  std::map<TaskId, std::shared_ptr<std::atomic<bool>>> trainings_;  // set: it is to stop
  // Tasks whose states could not be kept: their updates' files stay. Touched by the disk's work.
  const std::shared_ptr<std::map<TaskId, RunId>> unkept_ =
      std::make_shared<std::map<TaskId, RunId>>();
  const std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace starling::client
