// SPDX-License-Identifier: Apache-2.0
#include "gossip/progress/era_plan.h"

#include <algorithm>

namespace starling::gossip {

using protocol::Exchange;
using protocol::Member;

bool EraPlan::begin(Exchange exchange) {
  if (next_ == 0 || exchange < next_) return false;
  current_ = static_cast<std::uint32_t>(exchange);
  begun_.push_back(exchange);
  if (begun_.size() > kFree) begun_.pop_front();
  const bool in_time = exchange == next_;
  next_ = 0;
  if (!in_time) plan(exchange);
  return true;
}

std::optional<EraPlan::TooOften> EraPlan::plan(Exchange exchange, std::optional<Member> asker) {
  if (!shares_) return std::nullopt;
  Exchange at_least = exchange + 1 + spread_;
  std::optional<TooOften> said;
  if (begins_too_often(exchange)) {
    at_least = (at_least + grid() - 1) / grid() * grid();
    if (asker) said = too_often(*asker, at_least);
  }
  next_ = std::max(next_, static_cast<std::uint32_t>(at_least));
  return said;
}

std::optional<EraPlan::TooOften> EraPlan::hear(Member from, protocol::Eras its, Exchange exchange) {
  if (!shares_) return std::nullopt;
  const bool planned = next_ > exchange;
  if (its.next > exchange && may_plan(its.next, exchange)) {
    // The earliest of those planned: a later one would let a member postpone it for ever.
    next_ = planned ? std::min(next_, its.next) : its.next;
    if (planned || !begins_too_often(exchange)) return std::nullopt;
    return too_often(from, its.next);
  }
  // Too late for that one, or too soon after others: one that all can reach. An era that is still
  // to come is a lie: no member is so far ahead.
  const std::uint32_t known = current_ == kAlone ? next_ : std::max(next_, current_);
  const bool missed = its.next > known && its.next <= plannable_until(exchange);
  const bool began = its.current > current_ && its.current <= exchange + spread_;
  if (planned || !(missed || began)) return std::nullopt;
  return plan(exchange, from);
}

void EraPlan::share_nothing(Exchange exchange) {
  if (!shares_) return;
  current_ = kAlone;
  next_ = 0;
  plan(exchange);
}

void EraPlan::go_to(Exchange exchange) {
  std::erase_if(begun_, [&](Exchange begun) { return begun > exchange; });
  share_nothing(exchange);
}

bool EraPlan::begins_too_often(Exchange exchange) const {
  return begun_.size() == kFree && begun_.front() + span() > exchange;
}

// A beginning is planned for when all have heard of it, and who plans it is ahead by the spread at
// most; a later one would keep all from any. Whoever is further ahead will be followed.
Exchange EraPlan::plannable_until(Exchange exchange) const { return exchange + 3 * (spread_ + 1); }

bool EraPlan::may_plan(Exchange next, Exchange exchange) const {
  const Exchange latest = plannable_until(exchange);
  if (next % grid() == 0) return next <= latest + grid();
  return next <= latest && !begins_too_often(exchange);
}

std::optional<EraPlan::TooOften> EraPlan::too_often(Member asker, Exchange next) {
  if (!askers_.insert(asker).second) return std::nullopt;
  return TooOften{asker, begun_.front(), next};
}

}  // namespace starling::gossip
