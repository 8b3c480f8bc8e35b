// SPDX-License-Identifier: Apache-2.0
#include "core/net/handshake_budget.h"

#include "core/net/address_share.h"

namespace starling::net {

bool HandshakeBudget::allow(const std::string& address, TimePoint now) {
  if (!of_address_.allow(address, now)) return false;
  return known_.contains(address_share(address)) || of_strangers_.allow("", now);
}

void HandshakeBudget::know(const std::string& address) {
  if (known_.size() < options_.known_max) known_.insert(address_share(address));
}

}  // namespace starling::net
