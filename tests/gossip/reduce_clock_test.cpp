// SPDX-License-Identifier: Apache-2.0
// Virtual time of an all-reduce against times worked out by hand from what peers send.
#include "gossip/simulation/reduce_clock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "tests/support/temporary_directory.h"

namespace starling::gossip {
namespace {

constexpr double kReduceTolerance = 1e-9;

// All of them ready at once with idle links.
ReduceClock begun(const sim::Network& network, std::uint32_t nodes, double ready = 0) {
  ReduceClock clock(network);
  for (std::uint32_t node = 0; node < nodes; ++node) clock.add(node, ready, 0, 0);
  return clock;
}

sim::Network make_reduce_network(const sim::NetworkOptions& options, std::uint32_t nodes = 16) {
  return *sim::Network::make(options, nodes, 1);
}

// To the gatherer, back, 2 (P - 1) pieces of d / P, to the gatherer, back.
TEST(ReduceClock, ARingTakesTwoTurnsOfSegmentsAndFourWords) {
  constexpr std::uint64_t kBytes = 16'000'000;
  const sim::Network network = make_reduce_network({.latency = "20ms", .bandwidth = "10MB/s"});
  ReduceClock clock = begun(network, 16, 0.01);
  const Traffic traffic = clock.run(kBytes, 0);
  for (const ReduceClock::Member& member : clock.members()) {
    const double committed = 0.01 + 3 * 0.02 + 30 * (0.1 + 0.02);
    EXPECT_NEAR(member.ready, member.node == 0 ? committed : committed + 0.02, kReduceTolerance);
  }
  EXPECT_EQ(traffic.messages, 30U * 16);
  EXPECT_EQ(traffic.arrived, traffic.messages);
  EXPECT_EQ(traffic.bytes_sent, 30U * kBytes);
}

// Every piece passes the ring's slowest link, one after the other: the last leaves it when all
// have.
TEST(ReduceClock, ARingIsAsFastAsItsSlowestLink) {
  constexpr std::uint64_t kBytes = 16'000'000;
  const starling::testing::TemporaryDirectory directory;
  const std::string links = (directory.path() / "links.csv").string();
  std::ofstream(links) << "from,to,bandwidth\n3,4,1MB/s\n";
  const sim::Network network =
      make_reduce_network({.latency = "0s", .bandwidth = "1GB/s", .links = links});
  ReduceClock clock = begun(network, 16);
  (void)clock.run(kBytes, 0);
  EXPECT_NEAR(clock.members()[4].ready, 30, 0.5);
}

// Up along 15 -> 14 -> 12 -> 8 -> 0, and down again: ceil(log2 P) transfers of d each way.
TEST(ReduceClock, ShortVectorsGoUpAndDownATree) {
  const sim::Network network = make_reduce_network({.latency = "20ms", .bandwidth = "1MB/s"});
  ReduceClock clock = begun(network, 16);
  const Traffic traffic = clock.run(40'000, 0);
  EXPECT_NEAR(clock.members()[15].ready, 4 * 0.02 + 8 * (0.04 + 0.02), kReduceTolerance);
  EXPECT_EQ(traffic.messages, 30U);
  EXPECT_EQ(traffic.bytes_sent, 30U * 40'000);
}

// Everybody begins with the last one.
TEST(ReduceClock, TheLastToFinishHoldsUpAll) {
  const sim::Network network = make_reduce_network({.latency = "0s", .bandwidth = "1GB/s"});
  ReduceClock clock(network);
  clock.add(0, 1, 0, 0);
  clock.add(1, 7, 0, 0);
  clock.gatherer_waits_until(9);
  (void)clock.run(0, 0);
  EXPECT_NEAR(clock.members()[0].ready, 9, kReduceTolerance);
}

TEST(ReduceClock, TwoMembersTradeHalves) {
  const sim::Network network =
      make_reduce_network({.latency = "0s", .bandwidth = "uniform:1MB/s,2MB/s"});
  ReduceClock clock = begun(network, 2);
  (void)clock.run(1'000'000, 0);
  // Either half passes the slower link each time.
  const double slower = std::min(network.bandwidth(0), network.bandwidth(1));
  EXPECT_NEAR(clock.members()[0].ready, 2 * 500'000 / slower, kReduceTolerance);
}

// The ring stands still at the cut until it is over, and then goes on where it was.
TEST(ReduceClock, ASplitHoldsItUp) {
  const sim::NetworkOptions calm{.latency = "20ms", .bandwidth = "10MB/s"};
  sim::NetworkOptions cut = calm;
  cut.splits = "1s-60s:2";
  const sim::Network whole = make_reduce_network(calm);
  const sim::Network parted = make_reduce_network(cut);
  ReduceClock undisturbed = begun(whole, 16);
  ReduceClock disturbed = begun(parted, 16);
  (void)undisturbed.run(16'000'000, 0);
  (void)disturbed.run(16'000'000, 0);
  const double took = undisturbed.members()[0].ready;
  EXPECT_GT(disturbed.members()[0].ready, 60);
  EXPECT_LE(disturbed.members()[0].ready, 60 + took);
}

// Every piece is sent 1 / (1 - p) times on average; a wait each time holds up the whole ring.
TEST(ReduceClock, LossCostsBytesAndTimeWhetherOrNotOthersSendAgain) {
  for (const bool retransmit : {false, true}) {
    const sim::Network network =
        make_reduce_network({.latency = "1ms",
                             .bandwidth = "100MB/s",
                             .loss = 0.1,
                             .retransmit = retransmit,
                             .retransmit_after = std::chrono::milliseconds(100)});
    double bytes = 0;
    double elapsed = 0;
    for (std::uint64_t exchange = 0; exchange < 50; ++exchange) {
      ReduceClock clock = begun(network, 16);
      const Traffic traffic = clock.run(1'000'000, exchange);
      EXPECT_EQ(traffic.lost, 0U);
      bytes += static_cast<double>(traffic.bytes_sent);
      elapsed += clock.members()[0].ready;
    }
    EXPECT_NEAR(bytes / (50 * 30 * 1e6), 1 / 0.9, 0.01);
    // 30 hops of 0.1 s / 9 on average for each segment, and the slowest of 16 decides.
    EXPECT_GT(elapsed / 50, 0.3);
  }
}

TEST(ReduceClock, JitterIsDrawnForEveryPieceAndExchange) {
  const sim::Network network =
      make_reduce_network({.latency = "1ms", .jitter = "uniform:0s,20ms", .bandwidth = "1GB/s"});
  const auto took = [&](std::uint64_t exchange) {
    ReduceClock clock = begun(network, 16);
    (void)clock.run(16'000'000, exchange);
    return clock.members()[0].ready;
  };
  EXPECT_NE(took(0), took(1));
  EXPECT_EQ(took(3), took(3));
  // At least the mean of a segment's 30 hops, at most all of them.
  EXPECT_GT(took(0), 30 * 0.012);
  EXPECT_LT(took(0), 34 * 0.0221);
}

TEST(ReduceClock, OneMemberWaitsForNobody) {
  const sim::Network network = make_reduce_network({.latency = "1s"});
  ReduceClock clock = begun(network, 1, 3);
  EXPECT_EQ(clock.run(1000, 0).messages, 0U);
  EXPECT_EQ(clock.members()[0].ready, 3);
}

}  // namespace
}  // namespace starling::gossip
