// SPDX-License-Identifier: Apache-2.0
// A trainer's process may die or hang, and do the task another time.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "core/base/error.h"

namespace starling::gossip {

struct Retries {
  // How often a task is tried whose process failed. 0: until `stop`, with pauses of 1 s to 1 min,
  // also where the trainer itself says that it cannot do it now.
  int attempts_max = 3;
  const std::atomic<bool>& stop;
  // Told of each failure that is followed by another attempt.
  std::function<void(const std::string& line)> warn;

  // Whether another attempt follows the one with this number, from 1; waits for its time.
  bool follows(const std::string& client, const Error& error, int attempt) const;
};

// The first result of call() that no other attempt follows.
template <class Call>
auto with_retries(const Retries& retries, const std::string& client, const Call& call)
    -> decltype(call()) {
  for (int attempt = 1;; ++attempt) {
    auto result = call();
    if (result || !retries.follows(client, result.error(), attempt)) return result;
  }
}

}  // namespace starling::gossip
