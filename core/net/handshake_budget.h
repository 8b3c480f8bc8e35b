// SPDX-License-Identifier: Apache-2.0
// Limits the rate of TLS handshakes of a listener: for each address, and for all strangers
// together. A handshake costs about a millisecond of computing, which strangers must not take from
// training. arrival_slots.h limits how many are under way at once; this limits how many there are a
// second.
#pragma once

#include <deque>
#include <string>
#include <unordered_map>

#include "core/net/rate_limiter.h"

namespace starling::net {

class HandshakeBudget {
 public:
  struct Options {
    // Many may share an address, as processes of one machine do, and come at once.
    RateLimiter::Options of_address{.per_second = 10, .burst = 256};
    // Of all addresses from which nobody has authenticated.
    RateLimiter::Options of_strangers{.per_second = 40, .burst = 256, .addresses_max = 1};
    std::size_t members_max = 4096;
    std::size_t known_max = 4;  // addresses of each member: the last ones
  };

  explicit HandshakeBudget(const Options& options)
      : options_(options), of_address_(options.of_address), of_strangers_(options.of_strangers) {}

  // Whether a connection from `address` (numeric; IPv6 counts by its /64) may begin one now.
  bool allow(const std::string& address, TimePoint now);
  // This member has authenticated from this address, which is no stranger's until the member has
  // done so from several others: one that goes through many does not fill the list.
  void know(const std::string& member, const std::string& address);

 private:
  Options options_;
  RateLimiter of_address_;
  RateLimiter of_strangers_;
  std::unordered_map<std::string, std::deque<std::string>> known_;  // of each member, oldest first
  std::unordered_map<std::string, std::size_t> members_at_;         // of each known address
};

}  // namespace starling::net
