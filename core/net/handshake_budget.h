// SPDX-License-Identifier: Apache-2.0
// Limits the rate of TLS handshakes of a listener: for each address, and for all strangers
// together. A handshake costs about a millisecond of computing, which strangers must not take from
// training. arrival_slots.h limits how many are under way at once; this limits how many there are a
// second.
#pragma once

#include <string>
#include <unordered_set>

#include "core/net/rate_limiter.h"

namespace starling::net {

class HandshakeBudget {
 public:
  struct Options {
    // Many may share an address, as processes of one machine do, and come at once.
    RateLimiter::Options of_address{.per_second = 10, .burst = 256};
    // Of all addresses from which nobody has authenticated.
    RateLimiter::Options of_strangers{.per_second = 40, .burst = 256, .addresses_max = 1};
    std::size_t known_max = 4096;  // addresses
  };

  explicit HandshakeBudget(const Options& options)
      : options_(options), of_address_(options.of_address), of_strangers_(options.of_strangers) {}

  // Whether a connection from `address` (numeric; IPv6 counts by its /64) may begin one now.
  bool allow(const std::string& address, TimePoint now);
  // A member has authenticated from this address, which is no stranger's from now on.
  void know(const std::string& address);

 private:
  Options options_;
  RateLimiter of_address_;
  RateLimiter of_strangers_;
  std::unordered_set<std::string> known_;
};

}  // namespace starling::net
