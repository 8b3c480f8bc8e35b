// SPDX-License-Identifier: Apache-2.0
// A trainer's process may die or hang, and do the task another time.
#pragma once

#include <atomic>
#include <string>

#include "core/base/error.h"
#include "core/base/log.h"

namespace starling::gossip {

struct Persistence {
  // How often a task is tried whose process failed. 0: until `stop`, with pauses of 1 s to 1 min,
  // also where the trainer itself says that it cannot do it now.
  int attempts_max = 3;
  const std::atomic<bool>& stop;
  Log& log;

  // Whether the attempt with this number, from 1, is followed by another; then logs `error` and
  // waits for it.
  bool goes_on(const std::string& client, const Error& error, int attempt) const;
};

// The first result of call() after which it does not go on.
template <class Call>
auto persist(const Persistence& persistence, const std::string& client, const Call& call)
    -> decltype(call()) {
  for (int attempt = 1;; ++attempt) {
    auto result = call();
    if (result) return result;
    if (persistence.goes_on(client, result.error(), attempt)) continue;
    return result.error();
  }
}

}  // namespace starling::gossip
