// SPDX-License-Identifier: Apache-2.0
// Clients that have lost what the strategy of a run kept on them: a damaged disk, a device set up
// again, a coordinator restored from an old backup. They say so (client::kStateLost) instead of
// training from nothing in silence, and what they contributed is forgotten: they begin again as in
// their first round. Where the server's state stands for those of all clients, everybody does, the
// server too, because nothing else makes it right again. All of it follows from the records of the
// attempts, so that a restart finds the same.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "core/client/client_machine.h"
#include "core/protocol/messages.h"

namespace starling::coordinator {

struct RunStart;

// The last update of each client that counted, to which its state belongs.
class CountedUpdates {
 public:
  // A client that loses its state again and again keeps the others from having any.
  static constexpr int kLossesMax = 3;

  void counted(const std::string& client, const protocol::CountedTask& update);
  bool contains(const std::string& client) const { return last_.contains(client); }
  protocol::CountedTask last_of(const std::string& client) const;  // {}: none
  // The state of the client is gone. Returns how often that happened so far.
  int lost(const std::string& client);
  void forget_all() { last_.clear(); }

 private:
  std::map<std::string, protocol::CountedTask> last_;
  std::map<std::string, int> losses_;
};

// The clients that say in the failures of a training that a state is gone which they had.
template <class Failures>
std::vector<std::string> who_lost(const Failures& failures, const CountedUpdates& updates) {
  std::vector<std::string> clients;
  for (const auto& failure : failures) {
    if (failure.code == client::kStateLost && updates.contains(failure.client)) {
      clients.push_back(failure.client);
    }
  }
  return clients;
}

struct Forgotten {
  bool all = false;  // the run goes on from where it stands with the first state of its strategy
  std::vector<std::string> left_out = {};  // who lost theirs once too often
};
// When the training attempt is over in which these said so. With the strategy's first state honest
// updates are as large again as in the first rounds, so that their norms bound them.
Forgotten forget_lost(RunStart& start, const std::vector<std::string>& clients);

}  // namespace starling::coordinator
