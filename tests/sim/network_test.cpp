// SPDX-License-Identifier: Apache-2.0
#include "core/sim/network.h"

#include <gtest/gtest.h>

#include <cmath>

namespace starling::sim {
namespace {

Network make(const NetworkOptions& options, std::uint32_t nodes = 16, std::uint64_t seed = 1) {
  auto network = Network::make(options, nodes, seed);
  EXPECT_TRUE(network) << network.error().message();
  return std::move(*network);
}

TEST(Network, ConstantsAreWhatWasSaid) {
  const Network network = make({.latency = "20ms", .bandwidth = "10Mbit/s"});
  EXPECT_DOUBLE_EQ(network.latency(3, 5), 0.02);
  EXPECT_DOUBLE_EQ(network.transfer_seconds(3, 1'250'000), 1);
  const auto passage = network.pass(3, 5, 0, 0);
  EXPECT_DOUBLE_EQ(passage.seconds, 0.02);
  EXPECT_FALSE(passage.lost);
  EXPECT_FALSE(network.lossy());
}

TEST(Network, DrawsDependOnSeedLinkAndNumberAlone) {
  const NetworkOptions options{.latency = "uniform:1ms,9ms",
                               .jitter = "exponential:1ms",
                               .bandwidth = "lognormal:1MB/s,1",
                               .loss = 0.3};
  const Network one = make(options);
  const Network same = make(options);
  const Network other = make(options, 16, 2);
  EXPECT_DOUBLE_EQ(one.latency(3, 5), one.latency(5, 3));
  EXPECT_NE(one.latency(3, 5), one.latency(3, 6));
  EXPECT_NE(one.latency(3, 5), other.latency(3, 5));
  EXPECT_NE(one.bandwidth(3), one.bandwidth(4));
  for (std::uint64_t number = 50; number-- > 0;) {
    const auto a = one.pass(1, 2, number, 0);
    const auto b = same.pass(1, 2, number, 1);
    EXPECT_EQ(a.seconds, b.seconds);
    EXPECT_EQ(a.lost, b.lost);
  }
  EXPECT_NE(one.pass(1, 2, 0, 0).seconds, one.pass(1, 2, 1, 0).seconds);
  EXPECT_NE(one.pass(1, 2, 0, 0).seconds, one.pass(2, 1, 0, 0).seconds);
}

TEST(Network, LosesAsOftenAsItSays) {
  const Network network = make({.loss = 0.1});
  int lost = 0;
  constexpr int kMessages = 20'000;
  for (int k = 0; k < kMessages; ++k) {
    lost += network.pass(0, 1, static_cast<std::uint64_t>(k), 0).lost ? 1 : 0;
  }
  EXPECT_NEAR(lost, 0.1 * kMessages, 4 * std::sqrt(kMessages * 0.09));
  EXPECT_TRUE(network.lossy());
}

TEST(Network, RetransmissionCostsTimeAndLosesNothing) {
  const Network network = make({.latency = "10ms",
                                .loss = 0.5,
                                .retransmit = true,
                                .retransmit_after = std::chrono::milliseconds(100)});
  double sum = 0;
  constexpr int kMessages = 20'000;
  for (int k = 0; k < kMessages; ++k) {
    const auto passage = network.pass(0, 1, static_cast<std::uint64_t>(k), 0);
    ASSERT_FALSE(passage.lost);
    sum += passage.seconds;
  }
  // One loss is expected for each message, geometric with variance 2.
  EXPECT_NEAR(sum / kMessages, 0.11, 4 * 0.1 * std::sqrt(2.0 / kMessages));
  EXPECT_FALSE(network.lossy());
}

TEST(Network, RetransmissionBringsWhatIsNearlyAlwaysLost) {
  const Network network = make({.loss = 0.999, .retransmit = true});
  for (std::uint64_t number = 0; number < 1000; ++number) {
    ASSERT_FALSE(network.pass(0, 1, number, 0).lost);
  }
}

TEST(Network, PartsOfASplitDoNotHearEachOther) {
  const Network network = make({.splits = "10s-20s:2;30s-40s:3"}, 64);
  int apart = 0;
  for (std::uint32_t node = 1; node < 64; ++node) {
    EXPECT_FALSE(network.pass(0, node, 0, 9.9).lost);
    EXPECT_FALSE(network.pass(0, node, 0, 20).lost);
    EXPECT_EQ(network.pass(0, node, 0, 10).lost, network.pass(node, 0, 0, 19.9).lost);
    apart += network.pass(0, node, 0, 15).lost ? 1 : 0;
  }
  EXPECT_GT(apart, 16);
  EXPECT_LT(apart, 48);
  EXPECT_TRUE(network.lossy());
}

TEST(Network, RefusesWrongSplits) {
  for (const char* text : {"10s", "10s-5s:2", "10s-20s", "10s-20s:1", "a-b:2", "10s-20s:x",
                           "10s-20s:2;;", "10s:2-20s"}) {
    const auto network = Network::make({.splits = text}, 4, 1);
    ASSERT_FALSE(network) << text;
    EXPECT_EQ(network.error().code(), "bad-split") << text;
  }
}

}  // namespace
}  // namespace starling::sim
