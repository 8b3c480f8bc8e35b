// SPDX-License-Identifier: Apache-2.0
// Whether a client can do the tasks of a run, by what it announced.
#pragma once

#include <string>
#include <vector>

#include "coordinator/machine/client_table.h"
#include "core/client/training_settings.h"

namespace starling::coordinator {

// What a run's clients must know beyond what the first version did; `settings` has of the strategy
// what clients need. The model is named by no earlier version.
std::vector<std::string> needed_abilities(const client::TrainingSettings& settings);

bool holds_rows_out(const Greeting& greeting);
bool sends_sparse(const Greeting& greeting);

// Why the client cannot; empty where it can, or has not said yet what it can. What `shape` does not
// say excludes no client.
std::string why_unfit(const ClientTable::Client& client, const std::vector<std::string>& abilities,
                      const client::DataShape& shape, protocol::TaskKind kind);

struct AbleClients {
  std::size_t connected = 0;
  std::size_t free = 0;  // of them, not at work
};
// The connected clients that can train, by what they announced. Its cost is that of the distinct
// announcements, not of the clients.
AbleClients count_connected_able(const ClientTable& clients,
                                 const std::vector<std::string>& abilities,
                                 const client::DataShape& shape);

// Whether there are connected clients that can do the tasks of both of two runs, by what they
// announced. Cost as above.
struct ClientNeeds {
  const std::vector<std::string>& abilities;
  const client::DataShape& shape;
  protocol::TaskKind kind;
};
bool share_clients(const ClientTable& clients, const ClientNeeds& one, const ClientNeeds& other);

// "3 connected, 2 of them can do this run"; the second part only where not all of them can.
std::string describe_connected(std::size_t connected, std::size_t able);

}  // namespace starling::coordinator
