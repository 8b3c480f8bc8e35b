// SPDX-License-Identifier: Apache-2.0
#include "coordinator/machine/lost_states.h"

#include <fmt/format.h>

#include "coordinator/machine/coordinator_events.h"

namespace starling::coordinator {

void CountedUpdates::counted(const std::string& client, const protocol::CountedTask& update) {
  last_[client] = update;
}

protocol::CountedTask CountedUpdates::last_of(const std::string& client) const {
  const auto found = last_.find(client);
  return found == last_.end() ? protocol::CountedTask() : found->second;
}

int CountedUpdates::lost(const std::string& client) {
  last_.erase(client);
  return ++losses_[client];
}

Forgotten forget_lost(RunStart& start, const std::vector<std::string>& clients) {
  Forgotten forgotten;
  for (const std::string& client : clients) {
    if (start.counted.lost(client) < CountedUpdates::kLossesMax) continue;
    const std::string reason =
        fmt::format("it said {} times that it lost what '{}' keeps on it",
                    CountedUpdates::kLossesMax, start.job.training.strategy.name);
    if (start.failures.failed(client, reason, true)) forgotten.left_out.push_back(client);
  }
  if (clients.empty() || !start.strategy->mirrors_client_states()) return forgotten;
  start.counted.forget_all();
  start.norms = start.first_norms;
  forgotten.all = true;
  return forgotten;
}

}  // namespace starling::coordinator
