// SPDX-License-Identifier: Apache-2.0
// Who is asked in a round: a uniform draw without replacement from the eligible clients in order of
// name, from the stream (seed, selection, round, attempt). The order of joining plays no part.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/machine/round_machine.h"
#include "core/base/ids.h"

namespace starling::coordinator {

struct SelectionKey {
  RunId run;
  std::uint64_t seed = 0;
  Round round = 1;
  Attempt attempt = 1;
  std::uint32_t run_key = 0;  // as of its models' versions
};

// In place of an attempt's number, which counts from 1: the draw of those that evaluate.
inline constexpr Attempt kEvaluationAttempt = ~Attempt{0};

// Draws min(count, eligible.size()) clients; they come back in order of name, each with its task
// id. Requires: `eligible` is sorted, without repetition.
std::vector<Participant> select_clients(const std::vector<std::string>& eligible, std::size_t count,
                                        const SelectionKey& key);

// The task that `client` gets in that attempt; never 0.
TaskId task_id(const SelectionKey& key, const std::string& client);

}  // namespace starling::coordinator
