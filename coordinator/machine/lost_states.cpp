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

bool forget_lost(RunStart& start, const std::vector<std::string>& clients,
                 std::vector<std::string>& left_out) {
  for (const std::string& client : clients) {
    if (start.counted.lost(client) < CountedUpdates::kLossesMax) continue;
    const std::string reason =
        fmt::format("it lost what '{}' keeps on it {} times", start.job.training.strategy.name,
                    CountedUpdates::kLossesMax);
    if (start.failures.failed(client, reason, true)) left_out.push_back(client);
  }
  if (clients.empty() || !start.strategy->mirrors_client_states()) return false;
  start.counted.forget_all();
  return true;
}

}  // namespace starling::coordinator
