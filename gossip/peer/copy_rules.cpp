// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/copy_rules.h"

#include <algorithm>

namespace starling::gossip {

CopyRules::Account& CopyRules::account_of(protocol::Member member) {
  return accounts_.try_emplace(member, Account{.models = options_.models_at_once}).first->second;
}

// A minority may be further by its own count, and takes a majority's model all the same.
void CopyRules::greeted(protocol::Member member, const protocol::PeerHello& hello,
                        protocol::Exchange ours) {
  const bool is_behind = ours > options_.lag && hello.exchange < ours - options_.lag;
  account_of(member).must_catch_up = !hello.begun || hello.support.minority || is_behind;
}

void CopyRules::heard(protocol::Member member, protocol::Exchange exchange,
                      protocol::Exchange ours) {
  account_of(member).is_with_us = exchange + options_.lag >= ours;
}

void CopyRules::link_lost(protocol::Member member) { account_of(member).is_with_us = false; }

bool CopyRules::give(protocol::Member member, bool is_neighbour,
                     const protocol::ColumnsAsk& columns, std::uint64_t size, TimePoint now) {
  if (columns.end > size || columns.begin >= columns.end) return false;
  Account& account = account_of(member);
  if (!is_neighbour && (!account.must_catch_up || account.is_with_us)) return false;
  const double earned = to_seconds(now - account.at) / to_seconds(options_.model_every);
  account.models = std::min(options_.models_at_once, account.models + earned);
  account.at = now;
  const double part = static_cast<double>(columns.end - columns.begin) / static_cast<double>(size);
  if (account.models < part) return false;
  account.models -= part;
  return true;
}

}  // namespace starling::gossip
