// SPDX-License-Identifier: Apache-2.0
// A member that does not take this device for one says so by a goodbye or a TLS alert.
#pragma once

#include <string>

#include "core/base/error.h"
#include "core/base/nearest_name.h"

namespace starling::gossip {

// "shut-out" where `why` is such a refusal; else `why`, and "goodbye" where the other side's word
// would pass for one of these.
inline Error as_shut_out(const std::string& name, const Error& why) {
  constexpr std::size_t kWhyBytesMax = 200;
  const std::string& code = why.code();
  if (code == "shut-out" || code == "cannot-dial") {
    return not_connected("goodbye", name + " ended the link: " + why.message());
  }
  if (code != "not-a-member" && !code.starts_with("refused-")) return why;
  // The alert of a peer whose roster lacks this device is the same as of a wrong peer.
  const bool unsure = code == "refused-wrong-federation";
  return not_authorised("shut-out",
                        name + " refuses this device: " + printable(why.message(), kWhyBytesMax) +
                            (unsure ? "; this device may not be in the newest roster, or another "
                                      "peer have that address"
                                    : ""));
}

// Of a dial that failed: "shut-out" or "cannot-dial".
inline Error as_not_dialled(const std::string& name, const Error& why) {
  Error refused = as_shut_out(name, why);
  if (refused.code() == "shut-out") return refused;
  const bool may_be_deaf = why.code() == "cannot-connect";
  return not_connected("cannot-dial", name + " cannot be dialled: " + why.message() +
                                          (may_be_deaf ? ", and its gossip.listen" : ""));
}

}  // namespace starling::gossip
