// SPDX-License-Identifier: Apache-2.0
// Loops over nodes on all threads, in parts that are worth a thread's waking.
#pragma once

#include <algorithm>
#include <cstddef>

#include "core/base/compute_pool.h"

namespace starling::gossip {

// Calls body(i, worker) for i in [0, count), `part` of them a job. A single part is done by the
// calling thread, as worker 0. Requires: the pool has no other jobs.
template <class Body>
void for_each_in(ComputePool& pool, std::size_t count, std::size_t part, const Body& body) {
  const std::size_t jobs = (count + part - 1) / part;
  const auto run = [&](std::size_t job, unsigned worker) {
    const std::size_t end = std::min(count, (job + 1) * part);
    for (std::size_t i = job * part; i < end; ++i) body(i, worker);
  };
  if (jobs == 1) {
    run(0, 0);
  } else {
    pool.for_each(jobs, run);
  }
}

}  // namespace starling::gossip
