// SPDX-License-Identifier: Apache-2.0
#include "core/net/rate_limiter.h"

#include <algorithm>

#include "core/net/address_share.h"

namespace starling::net {

double RateLimiter::level_at(const Bucket& bucket, TimePoint now) const {
  return std::min(options_.burst,
                  bucket.level + to_seconds(now - bucket.updated) * options_.per_second);
}

bool RateLimiter::allow(const std::string& address, TimePoint now) {
  const std::string name = address_share(address);
  auto found = buckets_.find(name);
  if (found == buckets_.end()) {
    if (buckets_.size() >= options_.addresses_max) make_room(now);
    found = buckets_.emplace(name, Bucket{.level = options_.burst, .updated = now}).first;
  }
  Bucket& bucket = found->second;
  bucket.level = level_at(bucket, now);
  bucket.updated = now;
  if (bucket.level < 1) return false;
  bucket.level -= 1;
  return true;
}

void RateLimiter::make_room(TimePoint now) {
  // Looking through all of them is for once a second at most, however many addresses come.
  if (now >= next_purge_) {
    next_purge_ = now + std::chrono::seconds(1);
    std::erase_if(buckets_,
                  [&](const auto& entry) { return level_at(entry.second, now) >= options_.burst; });
  }
  if (buckets_.size() >= options_.addresses_max) buckets_.erase(buckets_.begin());
}

}  // namespace starling::net
