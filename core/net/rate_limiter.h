// SPDX-License-Identifier: Apache-2.0
// A token bucket per remote address: so many attempts a second on average, so many at once.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>

#include "core/base/clock.h"

namespace starling::net {

class RateLimiter {
 public:
  struct Options {
    double per_second = 10;
    double burst = 10;
    std::size_t addresses_max = 65536;  // beyond: those with full buckets are forgotten, then any
  };

  explicit RateLimiter(const Options& options) : options_(options) {}

  // Takes one attempt of `address` (numeric; IPv6 counts by its /64), or says no.
  bool allow(const std::string& address, TimePoint now);
  std::size_t addresses() const { return buckets_.size(); }

 private:
  struct Bucket {
    double level = 0;
    TimePoint updated;
  };
  double level_at(const Bucket& bucket, TimePoint now) const;
  void make_room(TimePoint now);

  Options options_;
  std::unordered_map<std::string, Bucket> buckets_;
  TimePoint next_purge_;
};

}  // namespace starling::net
