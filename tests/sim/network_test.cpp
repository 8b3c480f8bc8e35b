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

// Message `number` of 1,000 bytes.
Network::Passage pass(const Network& network, std::uint32_t from, std::uint32_t to,
                      std::uint64_t number, double time) {
  return network.pass({.from = from, .to = to, .number = number, .bytes = 1000, .sent = time});
}

TEST(Network, ConstantsAreWhatWasSaid) {
  const Network network = make({.latency = "20ms", .bandwidth = "10Mbit/s"});
  EXPECT_DOUBLE_EQ(network.latency(3, 5), 0.02);
  EXPECT_DOUBLE_EQ(network.transfer_seconds(3, 1'250'000), 1);
  const auto passage = pass(network, 3, 5, 0, 0);
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
    const auto a = pass(one, 1, 2, number, 0);
    const auto b = pass(same, 1, 2, number, 1);
    EXPECT_EQ(a.seconds, b.seconds);
    EXPECT_EQ(a.lost, b.lost);
  }
  EXPECT_NE(pass(one, 1, 2, 0, 0).seconds, pass(one, 1, 2, 1, 0).seconds);
  EXPECT_NE(pass(one, 1, 2, 0, 0).seconds, pass(one, 2, 1, 0, 0).seconds);
}

TEST(Network, LosesAsOftenAsItSays) {
  const Network network = make({.loss = 0.1});
  int lost = 0;
  constexpr int kMessages = 20'000;
  for (int k = 0; k < kMessages; ++k) {
    lost += pass(network, 0, 1, static_cast<std::uint64_t>(k), 0).lost ? 1 : 0;
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
    const auto passage = pass(network, 0, 1, static_cast<std::uint64_t>(k), 0);
    ASSERT_FALSE(passage.lost);
    sum += passage.seconds;
  }
  // One loss is expected for each message, geometric with variance 2.
  EXPECT_NEAR(sum / kMessages, 0.11, 4 * 0.1 * std::sqrt(2.0 / kMessages));
  EXPECT_FALSE(network.lossy());
}

// 800 kB are 12 pieces: whole with probability 0.99^12.
TEST(Network, LargerMessagesAreLostMoreOften) {
  const Network network = make({.loss = 0.01});
  int lost = 0;
  constexpr int kMessages = 20'000;
  for (std::uint64_t k = 0; k < kMessages; ++k) {
    lost += network.pass({.from = 0, .to = 1, .number = k, .bytes = 800'000}).lost ? 1 : 0;
  }
  const double expected = 1 - std::pow(0.99, 12);
  EXPECT_NEAR(lost, expected * kMessages, 4 * std::sqrt(kMessages * expected * (1 - expected)));
}

// Every piece is lost p / (1 - p) times on average, and costs its bytes each time.
TEST(Network, RetransmissionCostsBytes) {
  const Network network = make({.loss = 0.2, .retransmit = true});
  double resent = 0;
  constexpr int kMessages = 5000;
  for (std::uint64_t k = 0; k < kMessages; ++k) {
    const auto passage = network.pass({.from = 0, .to = 1, .number = k, .bytes = 12 * kPieceBytes});
    EXPECT_EQ(passage.resent_bytes % kPieceBytes, 0U);
    resent += static_cast<double>(passage.resent_bytes);
  }
  const double pieces = resent / static_cast<double>(kPieceBytes) / kMessages;
  EXPECT_NEAR(pieces, 12 * 0.25, 4 * std::sqrt(12 * 0.2 / 0.64 / kMessages));
  EXPECT_EQ(pass(network, 0, 1, 1, 0).resent_bytes % 1000, 0U);
  for (std::uint64_t k = 0; k < 100; ++k) {  // 80,000 bytes are one piece, 110,000 are two
    const auto one = network.pass({.from = 0, .to = 1, .number = k, .bytes = 80'000});
    EXPECT_EQ(one.resent_bytes % 80'000, 0U);
    const auto two = network.pass({.from = 0, .to = 1, .number = k, .bytes = 110'000});
    EXPECT_EQ(two.resent_bytes % 55'000, 0U);
  }
  EXPECT_TRUE(network.resends());
}

TEST(Network, ALossIsKnownARoundTripAfterTheMessageWasDue) {
  const Network network = make({.latency = "10ms", .loss = 0.5, .splits = "5s-10s:4000000000"});
  for (std::uint64_t number = 0; number < 20; ++number) {
    EXPECT_DOUBLE_EQ(pass(network, 0, 1, number, 2).missed_at, 2.03);
    // Whoever is cut off is missed once, and for nothing that it sends later.
    const auto apart = pass(network, 0, 1, number, 8);
    EXPECT_TRUE(apart.lost);
    EXPECT_DOUBLE_EQ(apart.missed_at, 5.02);
  }
  EXPECT_FALSE(network.pass_reliably({.from = 0, .to = 1, .bytes = 1000, .sent = 8}).lost);
}

TEST(Network, RetransmissionBringsWhatIsNearlyAlwaysLost) {
  const Network network = make({.loss = 0.999, .retransmit = true});
  for (std::uint64_t number = 0; number < 1000; ++number) {
    ASSERT_FALSE(pass(network, 0, 1, number, 0).lost);
  }
}

TEST(Network, PartsOfASplitDoNotHearEachOther) {
  const Network network = make({.splits = "10s-20s:2;30s-40s:3"}, 64);
  int apart = 0;
  for (std::uint32_t node = 1; node < 64; ++node) {
    EXPECT_FALSE(pass(network, 0, node, 0, 9.9).lost);
    EXPECT_FALSE(pass(network, 0, node, 0, 20).lost);
    EXPECT_EQ(pass(network, 0, node, 0, 10).lost, pass(network, node, 0, 0, 19.9).lost);
    apart += pass(network, 0, node, 0, 15).lost ? 1 : 0;
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
