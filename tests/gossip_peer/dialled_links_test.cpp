// SPDX-License-Identifier: Apache-2.0
// Links by dialling: what becomes of a dial that is late, fails or meets another.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/wire/codec.h"
#include "gossip/peer/frame_work.h"
#include "tests/gossip/simulation_cases.h"
#include "tests/gossip_peer/links_side.h"
#include "tests/net/raw_client.h"

namespace starling::gossip {
namespace {

using starling::testing::PeerCluster;
using starling::testing::RawListener;
using starling::testing::RawSocket;
using starling::testing::shared;
using starling::testing::Side;

// Two members that listen.
class TwoSides : public ::testing::Test {
 public:
  explicit TwoSides(PeerLinks::Options options = {}) {
    for (std::size_t i = 0; i < 2; ++i) {
      options.listen = identity::HostPort{"127.0.0.1", 0};
      sides.push_back(std::make_unique<Side>(cluster, i, options));
      EXPECT_TRUE(sides[i]->links->listen());
      cluster.peers[i]->port = sides[i]->links->port();
    }
  }
  void publish(std::uint64_t epoch) {
    const auto roster = shared(cluster.roster(epoch));
    for (const auto& side : sides) side->links->set_roster(roster);
  }
  void ping_both() {
    cluster.run_until(
        [&] {
          // Over a link that is about to give way to another a message may be lost.
          sides[0]->links->send(1, protocol::Ping{7});
          sides[1]->links->send(0, protocol::Ping{8});
          return !sides[0]->messages.empty() && !sides[1]->messages.empty();
        },
        "both hear each other");
  }
  bool both_up() const { return sides[0]->links->is_up(1) && sides[1]->links->is_up(0); }

  PeerCluster cluster{testing::small_network("ring", 2)};
  std::vector<std::unique_ptr<Side>> sides;
};

TEST_F(TwoSides, ThatDialEachOtherAtOnceHaveOneLink) {
  publish(1);
  sides[0]->links->reach(1);
  sides[1]->links->reach(0);
  cluster.run_until([&] { return both_up(); }, "they are linked");
  ping_both();
  const auto links = [](const Side& side) { return side.ups.size() - side.downs.size(); };
  EXPECT_EQ(links(*sides[0]), 1U);
  EXPECT_EQ(links(*sides[1]), 1U);
}

TEST_F(TwoSides, AFailedDialIsNoLossWhereTheOtherHasDialledMeanwhile) {
  const RawListener other;
  cluster.peers[1]->port = other.port();
  publish(1);
  sides[0]->links->reach(1);
  cluster.run_until([&] { return other.waits(); }, "the first dials");
  RawSocket dialled = other.accept();
  sides[1]->links->reach(0);
  cluster.run_until([&] { return both_up(); }, "the second has dialled the first");
  dialled.send("this is no TLS");
  cluster.run_until([&] { return dialled.ended(); }, "the dial has failed");
  ping_both();
  EXPECT_TRUE(sides[0]->downs.empty()) << sides[0]->downs.front();
}

TEST_F(TwoSides, ADialThatFailsAloneIsALoss) {
  auto silent = std::make_unique<RawListener>();
  cluster.peers[1]->port = silent->port();
  publish(1);
  sides[0]->links->reach(1);
  silent.reset();
  cluster.run_until([&] { return !sides[0]->downs.empty(); }, "the dial has failed");
  EXPECT_EQ(sides[0]->downs.front(), "cannot-dial");
}

TEST_F(TwoSides, WhoIsInNoRosterOfTheOtherHearsThatItIsShutOut) {
  sides[0]->links->set_roster(shared(cluster.roster(1)));
  sides[1]->links->set_roster(shared(cluster.roster(2, {1})));
  sides[0]->links->reach(1);
  cluster.run_until([&] { return !sides[0]->downs.empty(); }, "it is told");
  EXPECT_EQ(sides[0]->downs.front(), "shut-out");
}

TEST_F(TwoSides, WhoIsLeftOutOfTheNextRosterHearsThatItIsShutOut) {
  publish(1);
  sides[0]->links->reach(1);
  cluster.run_until([&] { return both_up(); }, "they are linked");
  sides[1]->links->set_roster(shared(cluster.roster(2, {1})));
  cluster.run_until([&] { return !sides[0]->downs.empty(); }, "it is told");
  EXPECT_EQ(sides[0]->downs.front(), "shut-out");
}

class TwoSidesWithALimit : public TwoSides {
 public:
  TwoSidesWithALimit()
      : TwoSides(PeerLinks::Options{.frames_per_second = 200, .named_after = {}}) {}
  // Each sends one vector, and both have come.
  void exchange_vectors(const protocol::VectorTransfer::Content& content) {
    const std::size_t before = sides[0]->transfers.size();
    const SharedBytes data = SharedBytes::own(Bytes(sizeof(float)));
    for (const std::size_t from : {0, 1}) {
      sides[from]->links->send_transfer(static_cast<Member>(1 - from),
                                        {.epoch = 1, .content = content}, data,
                                        TransferFlow::Urgency::kNow);
    }
    const auto has_come = [&](const auto& side) { return side->transfers.size() == before + 1; };
    cluster.run_until([&] { return std::ranges::all_of(sides, has_come); }, "both have come");
  }
};

TEST_F(TwoSidesWithALimit, SoManyFramesASecondAreReadOfAMember) {
  publish(1);
  sides[0]->links->reach(1);
  cluster.run_until([&] { return both_up(); }, "they are linked");
  const TimePoint begin = cluster.loop.now();
  for (std::uint64_t i = 0; i < 400; ++i) sides[0]->links->send(1, protocol::Pong{i});
  cluster.run_until([&] { return sides[1]->messages.size() == 400; }, "all have come");
  // Half of a second's worth came at once; the greeting was the other half.
  EXPECT_GE(to_seconds(cluster.loop.now() - begin), 1.4);
}

// In a ring of an all-reduce each sends as many pieces as come to it, and to a neighbour as many
// messages. Other frames do not come faster for them.
TEST_F(TwoSidesWithALimit, WhoSendsAsManyVectorsAsItIsSentIsNotLimited) {
  publish(1);
  sides[0]->links->reach(1);
  cluster.run_until([&] { return both_up(); }, "they are linked");
  for (std::size_t i = 1; i <= 400; ++i) {
    if (i % 2 == 0) {
      exchange_vectors(protocol::ReducePiece{.exchange = i, .floats = 1});
    } else {
      exchange_vectors(protocol::MixMessage{.exchange = i, .first = 1});
    }
  }
  EXPECT_EQ(cluster.log.count("frames a second"), 0U);
  const TimePoint begin = cluster.loop.now();
  for (std::uint64_t i = 0; i < 400; ++i) sides[0]->links->send(1, protocol::Pong{i});
  cluster.run_until([&] { return sides[1]->messages.size() == 400; }, "all have come");
  EXPECT_GE(to_seconds(cluster.loop.now() - begin), 0.9);
  EXPECT_EQ(cluster.log.count("frames a second"), 1U);
}

// Each connection brings a greeting, which counts before it is taken.
TEST_F(TwoSidesWithALimit, SoManyGreetingsASecondAreTakenOfAMember) {
  publish(1);
  const TimePoint begin = cluster.loop.now();
  for (std::uint64_t epoch = 2; epoch <= 6; ++epoch) {
    const std::size_t ups = sides[1]->ups.size();
    sides[0]->links->reach(1);
    cluster.run_until([&] { return sides[1]->ups.size() > ups && both_up(); }, "they are linked");
    for (const auto& side : sides) side->links->set_roster(nullptr);
    publish(epoch);
  }
  EXPECT_GE(to_seconds(cluster.loop.now() - begin), 1.4)
      << "two greetings a second, and two at once";
}

TEST(FrameWork, HeartbeatsCountByTheirLength) {
  const auto work = [](std::size_t members) {
    const auto header =
        wire::encode_header(protocol::Swim{.beats = std::vector<std::uint64_t>(members)});
    return work_of({.type = static_cast<std::uint16_t>(wire::FrameType::kSwim), .header = *header});
  };
  EXPECT_LT(work(4), 1.2);
  EXPECT_NEAR(work(128), 2, 0.3);
  EXPECT_NEAR(work(4096), 33, 0.5);
}

// A renewal comes while a dial is under way.
TEST_F(TwoSides, ARenewedRosterDialsNobodyTwice) {
  const RawListener silent;
  cluster.peers[1]->port = silent.port();
  publish(1);
  sides[0]->links->keep({1});
  cluster.clock.put_forward(std::chrono::hours(1));
  publish(1);
  sides[0]->links->keep({1});
  cluster.run_until([&] { return silent.waits(); }, "a dial has come");
  const auto first = silent.accept();
  EXPECT_FALSE(silent.waits());
}

class TwoSidesThatEndIdleLinks : public TwoSides {
 public:
  TwoSidesThatEndIdleLinks()
      : TwoSides(PeerLinks::Options{.idle_max = std::chrono::milliseconds(50)}) {
    publish(1);
    for (const auto& side : sides) side->links->end_idle_links(true);
  }
};

TEST_F(TwoSidesThatEndIdleLinks, WhoDialledOneSaysSo) {
  sides[0]->links->reach(1);
  cluster.run_until([&] { return sides[1]->downs.size() == 1 && sides[0]->downs.size() == 1; },
                    "the link was there and has ended");
  EXPECT_EQ(sides[0]->downs.front(), "not-needed");
  EXPECT_EQ(sides[1]->downs.front(), "not-needed");
}

// Of what is kept by either side, and dialled by it, the link stays; greetings are no use of
// others.
TEST_F(TwoSidesThatEndIdleLinks, ThatAreNotKept) {
  sides[0]->links->keep({1});
  cluster.run_until([&] { return both_up(); }, "they are linked");
  const TimePoint later = cluster.loop.now() + std::chrono::milliseconds(200);
  cluster.run_until(
      [&] {
        sides[1]->links->send(0, protocol::Ping{7});
        return cluster.loop.now() >= later;
      },
      "four times as long has passed");
  EXPECT_TRUE(both_up());
  EXPECT_TRUE(sides[0]->downs.empty());
  sides[0]->links->keep({});
  cluster.run_until(
      [&] {
        sides[1]->links->send(0, protocol::Ping{7});
        return !sides[0]->downs.empty();
      },
      "pings do not hold what nobody keeps");
}

}  // namespace
}  // namespace starling::gossip
