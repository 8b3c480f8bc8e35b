// SPDX-License-Identifier: Apache-2.0
// A fixed set of threads that take jobs in order of submission. Results go back by a completion
// that the job itself posts; one job runs on one thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace starling {

class ComputePool {
 public:
  // A job learns which worker runs it (0 .. threads-1), so that it can use that worker's scratch.
  using Job = std::function<void(unsigned worker)>;

  explicit ComputePool(unsigned threads);
  // Drops the jobs that have not started and waits for those that have.
  ~ComputePool();
  ComputePool(const ComputePool&) = delete;
  ComputePool& operator=(const ComputePool&) = delete;

  unsigned threads() const { return static_cast<unsigned>(workers_.size()); }
  void submit(Job job);

  // Runs body(i, worker) for i in [0, count), the calling thread waiting; any order, any thread.
  void for_each(std::size_t count, const std::function<void(std::size_t, unsigned)>& body);

 private:
  void work(unsigned worker);

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job> jobs_;
  bool stopping_ = false;
  std::vector<std::jthread> workers_;
};

// The number of processors this process may use (cgroup and affinity aware), at least 1.
unsigned available_processors();

}  // namespace starling
