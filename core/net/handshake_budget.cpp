// SPDX-License-Identifier: Apache-2.0
#include "core/net/handshake_budget.h"

#include "core/net/address_share.h"

namespace starling::net {

bool HandshakeBudget::allow(const std::string& address, TimePoint now) {
  if (!of_address_.allow(address, now)) return false;
  return members_at_.contains(address_share(address)) || of_strangers_.allow("", now);
}

void HandshakeBudget::know(const std::string& member, const std::string& address) {
  if (!known_.contains(member) && known_.size() == options_.members_max) return;
  std::deque<std::string>& theirs = known_[member];
  const std::string share = address_share(address);
  if (std::erase(theirs, share) == 0) ++members_at_[share];
  theirs.push_back(share);
  if (theirs.size() <= options_.known_max) return;
  const auto oldest = members_at_.find(theirs.front());
  if (--oldest->second == 0) members_at_.erase(oldest);
  theirs.pop_front();
}

}  // namespace starling::net
