// SPDX-License-Identifier: Apache-2.0
#include "core/sim/virtual_computation.h"

namespace starling::sim {

void SharedProcessors::add(const std::shared_ptr<Job>& job) {
  waiting_.push_back(job);
  begin_waiting();
}

void SharedProcessors::begin_waiting() {
  while (!waiting_.empty() && begun_ < 2 * std::size_t{pool_.threads()}) {
    const std::shared_ptr<Job> job = std::move(waiting_.front());
    waiting_.pop_front();
    if (!job->begun && !job->over) begin(job);
  }
}

void SharedProcessors::begin(const std::shared_ptr<Job>& job) {
  job->begun = true;
  ++begun_;
  pool_.submit([job](unsigned worker) {
    job->work(worker);
    job->work = nullptr;
    job->computed.set_value();
  });
}

void SharedProcessors::await(const std::shared_ptr<Job>& job) {
  if (!job->begun) begin(job);
  job->computed.get_future().wait();
}

void SharedProcessors::end(Job& job) {
  if (job.begun) {
    --begun_;
  } else {
    job.work = nullptr;
  }
  job.over = true;
  begin_waiting();
}

TimedComputation::~TimedComputation() {
  for (const JobPtr& job : jobs_) job->over = true;  // so that ending one begins no other
  for (const JobPtr& job : jobs_) processors_.end(*job);
}

void TimedComputation::submit(Work work, std::function<void()> done) {
  const auto job = std::make_shared<SharedProcessors::Job>();
  job->work = std::move(work);
  job->done = std::move(done);
  jobs_.insert(job);
  processors_.add(job);
  VirtualScheduler& scheduler = processors_.scheduler_;
  scheduler.schedule(scheduler.now() + takes_(), [this, job] {
    if (job->over) return;
    processors_.await(job);
    processors_.end(*job);
    jobs_.erase(job);
    if (job->done) job->done();
  });
}

}  // namespace starling::sim
