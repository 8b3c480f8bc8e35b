// SPDX-License-Identifier: Apache-2.0
// `starling-edge join TOKEN`: one command that makes the device's key, fetches its certificate and
// says what to do next.
#pragma once

#include <iosfwd>
#include <string>

#include "core/base/clock.h"
#include "core/config/command_line.h"
#include "core/enrol/join.h"
#include "edge_client/state_directory.h"

namespace starling::edge_client {

struct JoinRequest {
  StateDirectory state;
  std::string token;
  // Takes a new identity although there is one; the old one stays in identity.old.
  bool replace = false;
  enrol::JoinOptions options;
};

// Fills the state directory. After a crash or a lost reply the same call finishes the work. Beyond
// the errors of enrol::join: "bad-token", "already-running".
[[nodiscard]] Result<identity::IdentityDirectory> join_federation(net::EventLoop& loop,
                                                                  const JoinRequest& request,
                                                                  const Clock& clock);

// Prints what came of it; returns the exit code.
int join(JoinRequest request, const Clock& clock, config::OutputFormat format, std::ostream& out,
         std::ostream& err);

}  // namespace starling::edge_client
