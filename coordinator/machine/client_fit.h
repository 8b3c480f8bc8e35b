// SPDX-License-Identifier: Apache-2.0
// Whether a client can do the tasks of a run, by what it announced.
#pragma once

#include <string>
#include <vector>

#include "coordinator/machine/client_table.h"
#include "core/client/training_settings.h"

namespace starling::coordinator {

// What a run's clients must know beyond what the first version did, for the strategy's client half.
std::vector<std::string> needed_abilities(const std::string& client_half);

bool holds_rows_out(const Greeting& greeting);

// Why the client cannot; empty where it can, or has not said yet what it can.
std::string why_unfit(const ClientTable::Client& client, const std::vector<std::string>& abilities,
                      const client::DataShape& shape, protocol::TaskKind kind);

}  // namespace starling::coordinator
