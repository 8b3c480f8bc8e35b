// SPDX-License-Identifier: Apache-2.0
// The device's half of joining. The key is made here first and never leaves; whatever crashes or is
// repeated, the same token ends in one identity.
#pragma once

#include <filesystem>
#include <functional>

#include "core/base/backoff.h"
#include "core/base/clock.h"
#include "core/identity/identity_directory.h"
#include "core/identity/join_token.h"
#include "core/net/connect.h"

namespace starling::enrol {

struct JoinOptions {
  // What the program can be: a token of another role is refused ("token-role") and stays good.
  identity::RoleSet roles = {identity::Role::kDevice, identity::Role::kPeer};
  Duration deadline = std::chrono::seconds(30);          // for all of it, with further attempts
  Duration attempt_deadline = std::chrono::seconds(10);  // for each
  Backoff::Options backoff{.minimum = std::chrono::milliseconds(250),
                           .maximum = std::chrono::seconds(4)};
  // Told when there will be another attempt, and after which pause; may be null.
  std::function<void(const Error& error, Duration pause)> on_retry = nullptr;
  net::ConnectOptions connect;
};

// Fills `directory` (see identity::IdentityDirectory) and returns it loaded. "already-joined" if it
// holds an identity. Nothing is sent before the server has shown the pinned authority
// ("unknown-authority"). The coordinator's refusals: token-unknown, token-expired, token-used,
// token-locked, token-revoked, token-role, bad-mac, rate-limited. Where the coordinator is too busy
// or the connection breaks, it is tried again until the deadline. After a kRetry error call again:
// with the same token the same key is used, and the same certificate comes back; another token
// begins anew.
net::Async<Result<identity::IdentityDirectory>> join(net::EventLoop& loop,
                                                     identity::JoinToken token,
                                                     std::filesystem::path directory,
                                                     const Clock& clock, JoinOptions options);

// "not joined yet (too-many-enrolments: ...); trying again in 812ms", for on_retry.
std::string describe_retry(const Error& error, Duration pause);

// Whether joining into `directory`, finished or not, began with this token (file `token`: its id).
bool begun_with(const std::filesystem::path& directory, const identity::JoinToken& token);

}  // namespace starling::enrol
