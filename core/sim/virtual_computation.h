// SPDX-License-Identifier: Apache-2.0
// Computation in virtual time. What is computed, and when it is there, never depends on threads.
#pragma once

#include <deque>
#include <future>
#include <set>

#include "core/base/computation.h"
#include "core/sim/virtual_scheduler.h"

namespace starling::sim {

// Work that takes no virtual time: done in the turn that submits it, completed in a later one.
class ImmediateComputation final : public Computation {
 public:
  explicit ImmediateComputation(Scheduler& scheduler) : scheduler_(scheduler) {}

  void submit(Work work, std::function<void()> done) override {
    work(0);
    if (done) scheduler_.post(std::move(done));
  }

 private:
  Scheduler& scheduler_;
};

// The processors that all simulated processes share. Work that is submitted at one virtual time is
// computed side by side, a few pieces ahead of the one whose completion is next, so that results
// do not pile up.
class SharedProcessors {
 public:
  // Both must outlive this.
  SharedProcessors(VirtualScheduler& scheduler, ComputePool& pool)
      : scheduler_(scheduler), pool_(pool) {}
  SharedProcessors(const SharedProcessors&) = delete;
  SharedProcessors& operator=(const SharedProcessors&) = delete;

 private:
  friend class TimedComputation;
  struct Job {
    Computation::Work work;
    std::function<void()> done;
    bool begun = false;
    bool over = false;  // completed, or its process is gone
    std::promise<void> computed;
  };

  void add(const std::shared_ptr<Job>& job);
  // Returns when the job is computed.
  void await(const std::shared_ptr<Job>& job);
  // Its room is for others.
  void end(Job& job);
  void begin(const std::shared_ptr<Job>& job);
  void begin_waiting();

  VirtualScheduler& scheduler_;
  ComputePool& pool_;
  std::deque<std::shared_ptr<Job>> waiting_;
  std::size_t begun_ = 0;  // and not over
};

// Work of one simulated process, each piece of which takes a virtual time. Nothing completes after
// the destructor.
class TimedComputation final : public Computation {
 public:
  // `takes` is asked once for each piece, in the order of submission.
  TimedComputation(SharedProcessors& processors, std::function<Duration()> takes)
      : processors_(processors), takes_(std::move(takes)) {}
  ~TimedComputation() override;
  TimedComputation(const TimedComputation&) = delete;
  TimedComputation& operator=(const TimedComputation&) = delete;

  void submit(Work work, std::function<void()> done) override;

 private:
  using JobPtr = std::shared_ptr<SharedProcessors::Job>;

  SharedProcessors& processors_;
  std::function<Duration()> takes_;
  std::set<JobPtr> jobs_;
};

}  // namespace starling::sim
