// SPDX-License-Identifier: Apache-2.0
// What the owner of a device can do about a failure that goes on until somebody does something.
#pragma once

#include <map>
#include <string>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/identity/identity_directory.h"
#include "edge_client/state_directory.h"

namespace starling::edge_client {

// A sentence, or nothing where waiting is right.
std::string advice_for(const Error& error, const identity::IdentityDirectory& identity,
                       const StateDirectory& state);

// What a Bye says against this device's certificate, as net::connect reports it ("refused-*"): the
// bare code is our judgement of the coordinator's. Any other error is returned as it is.
Error as_refusal(const Error& said);

// What `status` says of a gossip peer that the operator revoked and that has no link with a member.
std::string revoked_peer_advice(const StateDirectory& state, bool trains);

// A sentence where the device's own certificate has less than a fifth of its life left; its end
// shuts the device out.
std::string expiry_warning(const identity::IdentityDirectory& identity, const StateDirectory& state,
                           WallTime now);

// Whether a reason is worth saying now: not if it was said within the last hour, so that a week
// without a coordinator does not fill the device's log. It is one reason, whichever side gives it.
class OccasionalReasons {
 public:
  bool worth_saying(std::string code, TimePoint now);

 private:
  std::map<std::string, TimePoint> said_;
};

}  // namespace starling::edge_client
