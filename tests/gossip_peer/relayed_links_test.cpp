// SPDX-License-Identifier: Apache-2.0
// Relayed links by themselves: how they begin and end, what a hostile other end can do to them
// (nothing beyond its own link), and that no queue grows with a slow receiver or a slow issuer.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/link/relayed_frame.h"
#include "core/wire/codec.h"
#include "tests/gossip/simulation_cases.h"
#include "tests/gossip_peer/links_side.h"
#include "tests/gossip_peer/relay_hub.h"

namespace starling::gossip {
namespace {

using protocol::Bye;
using protocol::PairMessage;
using protocol::PeerHello;
using protocol::Swim;
using protocol::VectorTransfer;
using starling::testing::PeerCluster;
using starling::testing::RelayHub;
using starling::testing::shared;
using starling::testing::Side;

constexpr std::size_t kFloats = 250'000;   // of a transfer
constexpr std::size_t kFrame = 70 * 1024;  // the largest, with room

void send_transfers(Side& side, Member to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::vector<float> values(kFloats, static_cast<float>(to * 100 + i));
    side.links->send_transfer(to, {.content = PairMessage{.number = i, .floats = kFloats}},
                              SharedBytes::own(to_bytes(as_bytes(std::span<const float>(values)))),
                              TransferFlow::Urgency::kNow);
  }
}

// --- one side, and a script for the others ------------------------------------------------------

// node-01 and node-02 cannot be dialled, node-03 can.
class OneSide : public ::testing::Test {
 public:
  OneSide() {
    cluster.undialled = {0, 1};
    cluster.peers[2]->port = 1;
    side.links->set_roster(shared(cluster.roster(1)));
    side.links->issuer_up();
  }
  void take(const std::string& from, const protocol::Message& message, std::size_t payload = 0) {
    take(*link::to_relay(from, message), payload);
  }
  void take(const protocol::Relay& relay, std::size_t payload = 0) {
    const Bytes bytes(payload);
    side.links->take_relayed(relay, SharedBytes(nullptr, bytes));
  }
  // What was sent since the last call; goodbyes by their code.
  std::vector<std::string> said() {
    std::vector<std::string> words;
    for (const protocol::Envelope& one : std::exchange(sent, {})) {
      const auto& relay = std::get<protocol::Relay>(one.message);
      const auto message = wire::decode_header(relay.type, relay.header);
      EXPECT_TRUE(message);
      const auto* bye = std::get_if<Bye>(&*message);
      words.push_back(relay.peer + (bye ? " bye " + bye->code : " " + std::to_string(relay.type)));
    }
    return words;
  }
  using Words = std::vector<std::string>;

  PeerCluster cluster{testing::small_network("ring", 3)};
  std::vector<protocol::Envelope> sent;
  std::size_t queued = 0;
  Side side{cluster,
            0,
            {.greeting_deadline = std::chrono::milliseconds(200)},
            {.send = [this](const protocol::Envelope& e) { sent.push_back(e); },
             .queued_bytes = [this] { return queued; }}};
};

TEST_F(OneSide, GreetsFirstWhereItWantsTheLinkAndWaitsForTheAnswer) {
  side.links->keep({1, 2});
  EXPECT_EQ(said(), Words{"node-02 18"});
  EXPECT_FALSE(side.links->is_up(1));
  take("node-02", PeerHello{.epoch = 1});
  EXPECT_TRUE(side.links->is_up(1));
  EXPECT_EQ(side.ups, std::vector<Member>{1});
  EXPECT_TRUE(said().empty());
  take("node-02", PeerHello{.epoch = 1, .exchange = 4});  // a later one is a message
  EXPECT_EQ(side.messages.size(), 1U);
  take("node-02", Bye{"stopping", ""});
  EXPECT_EQ(side.downs, Words{"stopping"});
  EXPECT_TRUE(said().empty()) << "a goodbye is not answered";
  cluster.run_until([&] { return !sent.empty(); }, "it tries again after a while");
}

TEST_F(OneSide, AnswersWhoGreetsFirst) {
  take("node-02", PeerHello{.epoch = 1});
  EXPECT_TRUE(side.links->is_up(1));
  EXPECT_EQ(said(), Words{"node-02 18"});
  const auto before = side.links->counters();
  side.links->send(1, Swim{.epoch = 1});
  EXPECT_EQ(said(), Words{"node-02 21"});
  EXPECT_GT(side.links->counters().wire_bytes_out, before.wire_bytes_out);
  EXPECT_GT(before.wire_bytes_in, 0U);
}

TEST_F(OneSide, TriesAgainWhileTheOtherIsAwayOrSilent) {
  side.links->keep({1});
  take("node-02", Bye{"peer-away", ""});
  EXPECT_EQ(side.downs, Words{"peer-away"});
  said();
  cluster.run_until([&] { return side.downs.size() == 2; }, "the next greeting has expired");
  EXPECT_EQ(side.downs[1], "deadline");
  const Words words = said();
  ASSERT_GE(words.size(), 2U);
  EXPECT_EQ(words[0], "node-02 18");
  EXPECT_EQ(words[1], "node-02 bye deadline");
}

TEST_F(OneSide, AllEndsWithTheIssuersLinkAndBeginsWithIt) {
  side.links->keep({1});
  take("node-02", PeerHello{.epoch = 1});
  said();
  side.links->issuer_down();
  EXPECT_EQ(side.downs, Words{"issuer-away"});
  take("node-02", PeerHello{.epoch = 1});
  EXPECT_FALSE(side.links->is_up(1));
  EXPECT_TRUE(said().empty());
  side.links->issuer_up();
  EXPECT_EQ(said(), Words{"node-02 18"});
}

TEST_F(OneSide, ALinkEndsWhereTheNewRosterLetsOneDialTheOther) {
  take("node-02", PeerHello{.epoch = 1});
  side.links->set_roster(shared(cluster.roster(2)));
  EXPECT_TRUE(side.links->is_up(1));
  cluster.undialled = {0};
  cluster.peers[1]->port = 1;
  said();
  side.links->set_roster(shared(cluster.roster(3)));
  EXPECT_EQ(said(), Words{"node-02 bye not-relayed"});
  EXPECT_EQ(side.downs, Words{"not-relayed"});
}

TEST_F(OneSide, RefusesWhomItsRosterDoesNotHaveRelayed) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"node-03", "not-relayed"}, {"stranger", "not-a-member"}, {"node-01", "not-a-member"}};
  for (const auto& [name, code] : cases) {
    for (const protocol::Message& message :
         {protocol::Message(PeerHello{.epoch = 1}), protocol::Message(Swim{.epoch = 1})}) {
      take(name, message);
      EXPECT_EQ(said(), Words{name + " bye " + code});
    }
    take(name, Bye{"stopping", ""});
    EXPECT_TRUE(said().empty()) << name;
  }
  side.links->set_roster(nullptr);
  take("node-02", PeerHello{.epoch = 1});
  EXPECT_EQ(said(), Words{"node-02 bye no-roster"});
  EXPECT_TRUE(side.ups.empty());
  EXPECT_TRUE(side.downs.empty());
}

std::vector<std::pair<protocol::Relay, std::size_t>> hostile_frames() {
  const auto relay = [](int type, std::size_t bytes, int fill) {
    return protocol::Relay{.peer = "node-02",
                           .type = static_cast<std::uint16_t>(type),
                           .header = Bytes(bytes, static_cast<std::byte>(fill))};
  };
  std::vector<std::pair<protocol::Relay, std::size_t>> frames;
  for (const int type : {0, 1, 2, 3, 26, 27, 999, 65535}) frames.push_back({relay(type, 16, 1), 0});
  for (const int type : {18, 21, 22, 5, 24}) {  // hello, swim, transfer, chunk, note
    frames.push_back({relay(type, 0, 0), 0});
    frames.push_back({relay(type, 64, 0xff), 0});
    frames.push_back({relay(type, 48 * 1024, 0x41), 0});
  }
  frames.push_back({*link::to_relay("node-02", PeerHello{.epoch = 1}), 1});
  frames.push_back({*link::to_relay("node-02", PeerHello{.version_min = 7, .version_max = 9}), 0});
  frames.push_back({*link::to_relay("node-02", Swim{}), 1});
  frames.push_back(
      {*link::to_relay("node-02", protocol::Chunk{TaskId(1), 0}), protocol::kChunkBytesMax + 1});
  return frames;
}

TEST_F(OneSide, HostileFramesEndAtMostTheirOwnLink) {
  for (const auto& [relay, payload] : hostile_frames()) {
    SCOPED_TRACE("type " + std::to_string(relay.type));
    take(relay, payload);  // no link
    EXPECT_TRUE(side.ups.empty());
    EXPECT_FALSE(side.links->is_up(1));
    take("node-02", PeerHello{.epoch = 1});
    ASSERT_EQ(side.ups, std::vector<Member>{1});
    side.messages.clear();
    take(relay, payload);  // a link
    for (const auto& message : side.messages) {
      EXPECT_TRUE(std::holds_alternative<PeerHello>(message)) << "of another version, only";
    }
    take("node-02", Bye{});
    EXPECT_FALSE(side.links->is_up(1));
    side.ups.clear();
    said();
  }
  EXPECT_TRUE(side.transfers.empty());
}

TEST_F(OneSide, NothingCountsBeforeTheHello) {
  const std::vector<protocol::Message> early{
      Swim{.epoch = 1}, protocol::Ping{1}, protocol::RosterAsk{},
      VectorTransfer{.id = TaskId(1), .epoch = 1, .content = PairMessage{.floats = 1}}};
  for (const protocol::Message& message : early) {
    take("node-02", message);
    EXPECT_EQ(said(), Words{"node-02 bye no-link"});
  }
  side.links->keep({1});  // greeted, not answered: what comes is of the link before
  EXPECT_EQ(said(), Words{"node-02 18"});
  for (const protocol::Message& message : early) take("node-02", message);
  EXPECT_TRUE(said().empty());
  EXPECT_TRUE(side.messages.empty());
  EXPECT_TRUE(side.transfers.empty());
  take("node-02", PeerHello{.epoch = 1});
  EXPECT_TRUE(side.links->is_up(1)) << "and does no harm";
}

TEST_F(OneSide, AFullLineIsNotFilledWithRefusals) {
  queued = 1 << 20;
  for (int i = 0; i < 100; ++i) take("stranger", Swim{});
  queued = 0;
  side.links->issuer_drained();
  EXPECT_TRUE(said().empty());
}

// --- several sides, and a desk between them -----------------------------------------------------

class ManySides : public ::testing::Test {
 public:
  ManySides() {
    cluster.undialled = {0, 1, 2, 3};
    const auto roster = cluster.roster(1);
    hub.publish(roster);
    for (std::size_t i = 0; i < 4; ++i) {
      const std::string& name = cluster.peers[i]->name;
      sides.push_back(std::make_unique<Side>(cluster, i, PeerLinks::Options(), hub.carrier(name)));
      PeerLinks* const links = sides.back()->links.get();
      hub.attach(name, {.up = [links] { links->issuer_up(); },
                        .down = [links] { links->issuer_down(); },
                        .drained = [links] { links->issuer_drained(); },
                        .take = [links](const protocol::Relay& relay,
                                        const SharedBytes& p) { links->take_relayed(relay, p); }});
      links->set_roster(shared(roster));
      hub.connect(name);
    }
  }
  ~ManySides() override {
    for (const auto& peer : cluster.peers) hub.disconnect(peer->name);
  }
  void join(std::size_t one, Member other) {
    sides[one]->links->keep({other});
    cluster.run_until(
        [&] {
          return sides[one]->links->is_up(other) &&
                 sides[other]->links->is_up(static_cast<Member>(one));
        },
        "the link is up");
  }
  void settle() {
    cluster.run_until([&] { return hub.is_quiet(); }, "nothing moves any more");
  }

  PeerCluster cluster{testing::small_network("ring", 4)};
  RelayHub hub{cluster.loop};
  std::vector<std::unique_ptr<Side>> sides;
};

TEST_F(ManySides, TwoThatGreetAtOnceHaveOneLink) {
  sides[0]->links->keep({1});
  sides[1]->links->keep({0});
  settle();
  EXPECT_EQ(sides[0]->ups, std::vector<Member>{1});
  EXPECT_EQ(sides[1]->ups, std::vector<Member>{0});
  EXPECT_TRUE(sides[0]->downs.empty());
  EXPECT_TRUE(sides[1]->messages.empty());
}

TEST_F(ManySides, ASlowReceiverFillsNoQueueAndLosesNothing) {
  for (std::size_t i = 0; i < 3; ++i) join(i, 3);
  hub.hold_out("node-04", true);
  for (std::size_t i = 0; i < 3; ++i) send_transfers(*sides[i], 3, 4);
  settle();
  EXPECT_LE(hub.waiting_out_most("node-04"), 3 * (256 * 1024 + kFrame)) << "a window each";
  EXPECT_GE(hub.waiting_out_most("node-04"), 3U * 256 * 1024);
  hub.hold_out("node-04", false);
  cluster.run_until([&] { return sides[3]->transfers.size() == 12; }, "all transfers are there");
  for (const auto& [from, whole] : sides[3]->transfers) {
    const auto* values = reinterpret_cast<const float*>(whole.data.view().data());
    const auto expected =
        static_cast<float>(300 + std::get<PairMessage>(whole.transfer.content).number);
    EXPECT_TRUE(std::all_of(values, values + kFloats, [&](float v) { return v == expected; }));
  }
  for (const auto& side : sides) EXPECT_TRUE(side->downs.empty());
}

TEST_F(ManySides, ASlowIssuerIsNotFloodedAndServesTheLinksInTurn) {
  for (const Member to : {1U, 2U, 3U}) join(0, to);
  sides[0]->links->keep({1, 2, 3});
  hub.hold_in("node-01", true);
  for (const Member to : {1U, 2U, 3U}) send_transfers(*sides[0], to, 2);
  EXPECT_LE(hub.waiting_in_most("node-01"), 256 * 1024 + kFrame);
  hub.hold_in("node-01", false);
  cluster.run_until(
      [&] {
        for (std::size_t i = 1; i < 4; ++i) {
          if (sides[i]->transfers.size() < 2) return false;
          EXPECT_GE(sides[1]->transfers.size() + 1, sides[i]->transfers.size());
        }
        return true;
      },
      "all transfers are there");
  EXPECT_LE(hub.waiting_in_most("node-01"), 256 * 1024 + kFrame);
  EXPECT_TRUE(sides[0]->downs.empty());
}

TEST_F(ManySides, AFloodEndsTheLinkInsteadOfGrowing) {
  join(0, 1);
  hub.hold_in("node-01", true);
  const SharedBytes piece = SharedBytes::own(Bytes(60'000));
  for (int i = 0; i < 100; ++i) {
    sides[0]->links->send(1, protocol::RosterPart{.epoch = 1, .total = 100'000}, piece);
  }
  cluster.run_until([&] { return !sides[0]->downs.empty(); }, "the link is broken off");
  EXPECT_EQ(sides[0]->downs[0], "queue-full");
  EXPECT_LE(hub.waiting_in_most("node-01"), 256 * 1024 + kFrame);
  hub.hold_in("node-01", false);
  cluster.run_until([&] { return sides[0]->ups.size() == 2 && !sides[1]->downs.empty(); },
                    "the other end has heard of it, and there is a new link");
  EXPECT_LE(sides[1]->messages.size(), (1024 * 1024 + 256 * 1024) / 60'000 + 2);
  settle();
  sides[0]->links->send(1, Swim{.epoch = 1});
  const std::size_t before = sides[1]->messages.size();
  cluster.run_until([&] { return sides[1]->messages.size() > before; }, "it carries messages");
}

}  // namespace
}  // namespace starling::gossip
