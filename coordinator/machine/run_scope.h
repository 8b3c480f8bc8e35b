// SPDX-License-Identifier: Apache-2.0
// What the parts of one run's machine work on. All of it outlives them.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "coordinator/machine/client_table.h"
#include "coordinator/machine/coordinator_events.h"
#include "coordinator/machine/turn.h"

namespace starling::coordinator {

inline constexpr std::size_t kNamedMax = 5;  // clients in a line of the log

struct RunScope {
  RunStart& start;
  const CoordinatorOptions& options;
  ClientTable& clients;
  Turn& turn;

  void say(std::string line) const { turn.say(start.id, std::move(line)); }
  std::string label(Round round) const {
    return fmt::format("[round {}/{}]", round, start.job.job.rounds);
  }
};

}  // namespace starling::coordinator
