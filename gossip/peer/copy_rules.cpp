// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/copy_rules.h"

#include <algorithm>

namespace starling::gossip {

// A minority may be further by its own count, and takes a majority's model all the same.
void CopyRules::greeted(protocol::Member member, const protocol::PeerHello& hello,
                        protocol::Exchange ours) {
  const bool is_behind = ours > options_.lag && hello.exchange < ours - options_.lag;
  accounts_[member].must_catch_up = !hello.begun || hello.support.minority || is_behind;
}

void CopyRules::heard(protocol::Member member, protocol::Exchange exchange,
                      protocol::Exchange ours) {
  accounts_[member].is_with_us = exchange + options_.lag >= ours;
}

void CopyRules::link_lost(protocol::Member member) { accounts_[member].is_with_us = false; }

CopyRules::Answer CopyRules::give(protocol::Member member, bool is_neighbour,
                                  const protocol::ColumnsAsk& columns, std::uint64_t size,
                                  TimePoint now) {
  if (columns.end > size || columns.begin >= columns.end) return Answer::kNotGiven;
  Account& account = accounts_[member];
  if (!is_neighbour && (!account.must_catch_up || account.is_with_us)) return Answer::kNotGiven;
  const Options::Allowance& may = is_neighbour ? options_.neighbours : options_.others;
  const double earned = to_seconds(now - account.at) / to_seconds(may.every);
  account.given = std::max(0.0, account.given - earned);
  account.at = now;
  const double part = static_cast<double>(columns.end - columns.begin) / static_cast<double>(size);
  if (account.given + part > may.at_once) return Answer::kTooOften;
  account.given += part;
  return Answer::kGiven;
}

}  // namespace starling::gossip
