// SPDX-License-Identifier: Apache-2.0
#include "gossip/peer/relay_line.h"

#include <gtest/gtest.h>

#include <vector>

namespace starling::gossip {
namespace {

class RelayLineTest : public ::testing::Test {
 public:
  Result<std::size_t> send(std::uint64_t offset, std::size_t bytes = 1000) {
    return line.send("b", {protocol::Chunk{TaskId(1), offset}, SharedBytes::own(Bytes(bytes))});
  }

  std::size_t queued = 0;
  std::vector<protocol::Envelope> sent;
  RelayLine line{{.busy_bytes = 3000, .waiting_bytes_max = 10'000},
                 {.send =
                      [this](const protocol::Envelope& envelope) {
                        sent.push_back(envelope);
                        queued += envelope.payload.size();
                      },
                  .queued_bytes = [this] { return queued; }}};
};

TEST_F(RelayLineTest, IsClosedUntilTheIssuerIsThere) {
  EXPECT_EQ(send(0).error().code(), "closed");
  line.open();
  EXPECT_GT(*send(0), 1000U);
  EXPECT_EQ(sent.size(), 1U);
  RelayLine without({}, {});
  without.open();
  EXPECT_FALSE(without.is_open());
}

TEST_F(RelayLineTest, WhatFindsTheCarrierBusyWaitsInOrderWithinALimit) {
  line.open();
  std::uint64_t taken = 0;
  while (send(taken)) {
    ++taken;
    ASSERT_LE(line.waiting_bytes(), 10'000U);
  }
  EXPECT_EQ(sent.size(), 3U);
  EXPECT_GT(line.waiting_bytes(), 8'000U);
  EXPECT_FALSE(line.has_room());
  EXPECT_EQ(send(99).error().code(), "queue-full");
  EXPECT_TRUE(line.send("b", {protocol::Bye{"full", ""}, {}})) << "who is given up hears of it";

  line.flush();
  EXPECT_EQ(sent.size(), 3U) << "nothing has drained";
  while (line.waiting_bytes() > 0) {
    queued = 0;
    line.flush();
    EXPECT_LE(queued, 3000U);
  }
  ASSERT_EQ(sent.size(), taken + 1);
  for (const protocol::Envelope& one : sent) {
    EXPECT_EQ(std::get<protocol::Relay>(one.message).peer, "b");
  }
  EXPECT_EQ(std::get<protocol::Relay>(sent.back().message).type, 15) << "the goodbye came last";
}

TEST_F(RelayLineTest, ForgetsWhatWaitsWhenTheIssuerIsGone) {
  line.open();
  queued = 5000;
  ASSERT_TRUE(send(0));
  line.close();
  EXPECT_EQ(line.waiting_bytes(), 0U);
  queued = 0;
  line.open();
  line.flush();
  EXPECT_TRUE(sent.empty());
  EXPECT_TRUE(line.has_room());
}

}  // namespace
}  // namespace starling::gossip
