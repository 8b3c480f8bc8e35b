// SPDX-License-Identifier: Apache-2.0
#include "core/base/clock.h"

#include <gtest/gtest.h>

#include "core/base/backoff.h"

namespace starling {
namespace {

using namespace std::chrono_literals;

TEST(Clock, Rfc3339RoundTrips) {
  const WallTime time(1'795'166'011'123ms);
  EXPECT_EQ(parse_rfc3339(format_rfc3339(time)).value(), time);
  EXPECT_EQ(format_rfc3339(WallTime(0ms)), "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(parse_rfc3339("1970-01-01T01:00:00+01:00").value(), WallTime(0ms));
  for (const char* bad : {"", "now", "1970-13-01T00:00:00Z", "1970-01-01T00:00:00", "1970-01-01"}) {
    EXPECT_FALSE(parse_rfc3339(bad)) << bad;
  }
}

TEST(Clock, DurationsParseAndFormat) {
  EXPECT_EQ(parse_duration("60s").value(), 60s);
  EXPECT_EQ(parse_duration("1.5h").value(), 90min);
  EXPECT_EQ(format_duration(60s), "1m");
  EXPECT_EQ(format_duration(250ms), "250ms");
  EXPECT_EQ(format_duration(0s), "0s");
  for (const char* bad : {"", "60", "s", "-1s", "1y", "1e300d", "nans"}) {
    EXPECT_FALSE(parse_duration(bad)) << bad;
  }
}

TEST(Clock, WhatNoDurationHoldsIsFarAway) {
  EXPECT_EQ(from_seconds(1.5), 1500ms);
  EXPECT_EQ(from_seconds(1e300), 9'000'000'000s);
  EXPECT_EQ(from_seconds(-1e300), -9'000'000'000s);
}

TEST(Backoff, GrowsWithJitterUpToItsMaximum) {
  Backoff backoff({.minimum = 100ms, .maximum = 1s}, Rng({.seed = 1}));
  Duration ceiling = 200ms;
  for (int i = 0; i < 100; ++i) {
    const Duration delay = backoff.next();
    EXPECT_GE(delay, 100ms);
    EXPECT_LE(delay, ceiling);
    ceiling = std::min<Duration>(ceiling * 2, 1s);
  }
  backoff.reset();
  EXPECT_LE(backoff.next(), 200ms);
}

}  // namespace
}  // namespace starling
