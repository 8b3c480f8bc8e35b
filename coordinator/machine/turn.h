// SPDX-License-Identifier: Apache-2.0
// One event of the coordinator's machine, as its parts see it: what time it is, and the actions
// that come of it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "coordinator/machine/coordinator_events.h"

namespace starling::coordinator {

struct Turn {
  TimePoint now{};
  std::vector<Action> actions;

  void act(Action action) { actions.push_back(std::move(action)); }
  void send(SessionId session, protocol::Message message, SharedBytes payload = {}) {
    act(Send{session, {std::move(message), std::move(payload)}});
  }
  void say(RunId run, std::string line) { act(Say{run, std::move(line)}); }
};

}  // namespace starling::coordinator
