// SPDX-License-Identifier: Apache-2.0
// The thread that computes rounds: sums, makes and evaluates models, writes their files, strictly
// in the order of the calls. Everything goes in by value and comes back on the loop.
#pragma once

#include <functional>
#include <memory>

#include "coordinator/round_aggregate.h"
#include "core/base/compute_pool.h"
#include "core/net/event_loop.h"
#include "core/store/checkpoints.h"

namespace starling::coordinator {

// Called on the loop; never after the object that it was given to is gone.
template <class T>
using Completion = std::function<void(Result<T>)>;

class RoundExecutor {
 public:
  // `threads` evaluate models. The loop must outlive the executor.
  RoundExecutor(net::EventLoop& loop, unsigned threads);
  // Waits for the job that is running.
  ~RoundExecutor();

  // What the rounds from now on compute with, and start from.
  void use(std::shared_ptr<const RunContext> context, model::Snapshot base);
  void begin(update::Schema schema, std::optional<double> norm_max);
  // `payload` must stay where it is until `done`, which gets the update's norm.
  void add(update::ContributionHead head, SharedBytes payload, Completion<double> done);
  void finish(Round round, Completion<RoundOutcome> done);
  // Durably, as the file of `round`.
  void write(store::Checkpoints checkpoints, Round round, model::Snapshot model,
             Completion<void> done);
  bool busy() const { return running_ > 0; }

 private:
  struct Bench {  // touched by the one thread only
    std::shared_ptr<const RunContext> context;
    model::Snapshot base;
    Result<std::unique_ptr<RoundAggregate>> aggregate = std::unique_ptr<RoundAggregate>();
  };

  template <class T>
  void run(std::function<Result<T>()> work, Completion<T> done);

  net::EventLoop& loop_;
  const std::shared_ptr<int> alive_ = std::make_shared<int>(0);
  std::size_t running_ = 0;
  Bench bench_;
  ComputePool evaluators_;
  ComputePool thread_;
};

// Runs `work` on `pool`; `done` gets its result on the loop, unless `alive` has expired by then.
template <class T>
void compute(ComputePool& pool, net::EventLoop& loop, std::weak_ptr<int> alive,
             std::function<Result<T>()> work, Completion<T> done) {
  pool.submit(
      [&loop, alive = std::move(alive), work = std::move(work), done = std::move(done)](unsigned) {
        auto result = std::make_shared<Result<T>>(work());
        loop.post([alive, result, done] {
          if (!alive.expired()) done(std::move(*result));
        });
      });
}

}  // namespace starling::coordinator
