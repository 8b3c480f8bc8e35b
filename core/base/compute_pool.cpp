// SPDX-License-Identifier: Apache-2.0
#include "core/base/compute_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <latch>

#include "core/base/check.h"

namespace starling {

ComputePool::ComputePool(unsigned threads) {
  STARLING_CHECK(threads > 0);
  workers_.reserve(threads);
  for (unsigned i = 0; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
}

ComputePool::~ComputePool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    jobs_.clear();
  }
  wake_.notify_all();
}

void ComputePool::submit(Job job) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    jobs_.push_back(std::move(job));
  }
  wake_.notify_one();
}

void ComputePool::for_each(std::size_t count,
                           const std::function<void(std::size_t, unsigned)>& body) {
  const std::size_t jobs = std::min<std::size_t>(count, threads());
  if (jobs == 0) return;
  std::atomic<std::size_t> next = 0;
  std::latch done(static_cast<std::ptrdiff_t>(jobs));
  for (std::size_t j = 0; j < jobs; ++j) {
    submit([&](unsigned worker) {
      for (std::size_t i = next++; i < count; i = next++) body(i, worker);
      done.count_down();
    });
  }
  done.wait();
}

void ComputePool::work(unsigned worker) {
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job(worker);
  }
}

unsigned available_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    return static_cast<unsigned>(std::max(1, CPU_COUNT(&set)));
  }
  return std::max(1U, std::thread::hardware_concurrency());
}

}  // namespace starling
