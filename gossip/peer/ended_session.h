// SPDX-License-Identifier: Apache-2.0
// What is known of the session before the present one: how far it came, and which members were
// there.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "core/identity/roster.h"
#include "gossip/peer/training_protocol.h"

namespace starling::gossip {

struct EndedSession {
  std::string run_id;  // Roster::run_identity()
  std::string run_name;
  TrainingProgress progress;
  // By name, whether a member was reachable at the end; nothing: all may come back.
  std::optional<std::map<std::string, bool>> reachable;

  // Whether it was of this roster's run.
  bool is_of_run(const identity::Roster& roster) const;
  // Members of `roster` but `self` that were not reachable at the end: the next session does not
  // wait for them to start. A running network must not pay for a start at each change of epoch; a
  // run that has not begun, or a different one, does wait.
  std::set<Member> absent(const identity::Roster& roster, const std::string& self) const;
};

}  // namespace starling::gossip
