// SPDX-License-Identifier: Apache-2.0
// Work that takes long and is done beside the turns of a process: threads in a service, and in a
// simulation the same work with a completion at a virtual time. Which thread computed what never
// shows in a result.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "core/base/compute_pool.h"
#include "core/base/error.h"
#include "core/base/scheduler.h"

namespace starling {

class Computation {
 public:
  // Learns which worker runs it (0, 1, ...), so that it can use that worker's scratch.
  using Work = std::function<void(unsigned worker)>;

  virtual ~Computation() = default;
  // Begins work in the order of submission, and calls `done`, which may be empty, in a turn after
  // the work has ended. Neither borrows anything of the submitter: it may be gone by then.
  virtual void submit(Work work, std::function<void()> done) = 0;
};

// On threads of its own. Destroying it drops what has not begun and waits for what has.
class PooledComputation final : public Computation {
 public:
  // Requires: `scheduler` takes post() from any thread, as an event loop does.
  PooledComputation(Scheduler& scheduler, unsigned threads)
      : scheduler_(scheduler), pool_(threads) {}

  void submit(Work work, std::function<void()> done) override {
    pool_.submit([this, work = std::move(work), done = std::move(done)](unsigned worker) mutable {
      work(worker);
      if (done) scheduler_.post(std::move(done));
    });
  }

  // Returns when what was submitted before has ended. Requires: one thread.
  void drain() {
    pool_.for_each(1, [](std::size_t, unsigned) {});
  }

 private:
  Scheduler& scheduler_;
  ComputePool pool_;
};

// Called in a turn of the process; never after the object that it was given to is gone.
template <class T>
using Completion = std::function<void(Result<T>)>;

// `done` gets the result of `work`, unless `alive` has expired by then: work whose owner crashed
// does not complete into its successor.
template <class T>
void compute(Computation& computation, std::weak_ptr<const void> alive,
             std::function<Result<T>(unsigned worker)> work, Completion<T> done) {
  const auto result = std::make_shared<std::optional<Result<T>>>();
  computation.submit(
      [result, work = std::move(work)](unsigned worker) { result->emplace(work(worker)); },
      [result, alive = std::move(alive), done = std::move(done)] {
        if (!alive.expired()) done(std::move(**result));
      });
}

}  // namespace starling
