// SPDX-License-Identifier: Apache-2.0
#include "coordinator/machine/client_sampler.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/base/rng.h"

namespace starling::coordinator {

std::vector<Participant> select_clients(const std::vector<std::string>& eligible, std::size_t count,
                                        const SelectionKey& key) {
  STARLING_CHECK(std::is_sorted(eligible.begin(), eligible.end()));
  Rng rng({.seed = key.seed,
           .purpose = Purpose::kSelection,
           .round = key.round,
           .attempt = key.attempt});
  std::vector<const std::string*> drawn;
  drawn.reserve(eligible.size());
  for (const std::string& client : eligible) drawn.push_back(&client);
  rng.shuffle(std::span(drawn));
  drawn.resize(std::min(count, drawn.size()));
  std::sort(drawn.begin(), drawn.end());  // as they lie in `eligible`: by name
  std::vector<Participant> participants;
  participants.reserve(drawn.size());
  for (const std::string* client : drawn) {
    participants.push_back({*client, task_id(key, *client)});
  }
  return participants;
}

// The run's number and key keep the tasks of two runs with one seed apart.
TaskId task_id(const SelectionKey& key, const std::string& client) {
  Rng rng({.seed = key.seed ^ (key.run.value() * 0x9E3779B97F4A7C15ULL) ^ key.run_key,
           .purpose = Purpose::kTask,
           .node = hash_name(client),
           .round = key.round,
           .attempt = key.attempt});
  std::uint64_t value = 0;
  // SQLite's integers are signed: 63 bits.
  while (value == 0) value = rng.next_u64() >> 1;
  return TaskId(value);
}

}  // namespace starling::coordinator
