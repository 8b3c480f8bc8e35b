// SPDX-License-Identifier: Apache-2.0
#include "core/issuer/issuer_desk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "core/issuer/roster_parts.h"
#include "core/wire/codec.h"
#include "core/wire/frame_type.h"
#include "tests/issuer/signed_rosters.h"

namespace starling::issuer {
namespace {

using protocol::VectorTransfer;
using protocol::WholeModel;
using testing::RosterOwner;

constexpr SessionId kA{1}, kB{2}, kC{3}, kStranger{9};

struct Lines final : Log {
  void write(LogLevel, std::string_view line) override { lines.emplace_back(line); }
  std::vector<std::string> lines;
};

struct Sent {
  SessionId session;
  protocol::Envelope envelope;
};

struct Model {
  std::string member;
  protocol::Exchange exchange;
  std::vector<float> values;
};

// "a" and "b" cannot be dialled, "c" can.
class IssuerDeskTest : public ::testing::Test {
 public:
  static std::vector<identity::RosterMember> members() {
    return {RosterOwner::member("a"), RosterOwner::member("b"),
            RosterOwner::member("c", "10.0.0.3:7000")};
  }
  static std::vector<float> floats_of(const SharedBytes& values) {
    std::vector<float> floats(values.size() / sizeof(float));
    std::memcpy(floats.data(), values.view().data(), values.size());
    return floats;
  }
  void publish() {
    ASSERT_TRUE(desk.publish(owner.sign(1, members())));
    desk.opened(kA, "a");
    desk.opened(kB, "b");
    desk.opened(kC, "c");
    sent.clear();
  }
  template <class T>
  std::vector<T> sent_to(SessionId session) const {
    std::vector<T> found;
    for (const Sent& one : sent) {
      const auto* message = std::get_if<T>(&one.envelope.message);
      if (one.session == session && message) found.push_back(*message);
    }
    return found;
  }
  Result<void> take(SessionId session, const protocol::Message& message, ByteView payload = {}) {
    EXPECT_TRUE(desk.is_mine(session, message));
    return desk.take(session, {message, SharedBytes(nullptr, payload)});
  }
  // The code of the goodbye that ends the link from `peer`, as it came to `session`.
  std::string goodbye(SessionId session, const std::string& peer) const {
    const auto relays = sent_to<protocol::Relay>(session);
    if (relays.empty() || relays.back().peer != peer) return "";
    Bytes header = relays.back().header;
    const auto message = wire::decode_header(relays.back().type, header);
    const auto* bye = message ? std::get_if<protocol::Bye>(&*message) : nullptr;
    return bye ? bye->code : "";
  }
  VectorTransfer model_transfer(std::uint64_t floats, std::uint64_t transfer = 7) const {
    return {.id = TaskId(transfer),
            .epoch = 1,
            .content = WholeModel{.exchange = 50, .floats = floats}};
  }
  // Sends as the credit allows; the number of chunks.
  std::size_t hand_in(SessionId session, const std::vector<float>& values, TaskId transfer) {
    protocol::TransferSender sender(SharedBytes(nullptr, as_bytes(values)),
                                    protocol::kChunkBytesMax);
    std::size_t chunks = 0;
    EXPECT_TRUE(sender.start(0, 0));
    for (;;) {
      for (const auto& credit : sent_to<protocol::Credit>(session)) sender.extend(credit.limit);
      const auto piece = sender.next();
      if (!piece) return chunks;
      const Bytes frame = to_bytes(piece->bytes.view());
      EXPECT_TRUE(take(session, protocol::Chunk{transfer, piece->offset}, frame));
      ++chunks;
    }
  }

  RosterOwner owner;
  Lines log;
  std::vector<Sent> sent;
  std::vector<std::pair<std::string, protocol::PeerReport>> reports;
  std::vector<Model> models;
  std::uint64_t model_floats = 100'000;
  std::size_t waiting = 0;
  std::function<void(SessionId)> on_send;
  IssuerDesk desk{
      {.window_bytes = 128 * 1024,
       .open_model_bytes_max = 800'000,
       .relay_pairs = {.pairs_max = 1}},
      {.send =
           [this](SessionId session, const protocol::Envelope& envelope) {
             sent.push_back({session, envelope});
             if (on_send) on_send(session);
           },
       .queued_bytes = [this](SessionId) { return waiting; },
       .on_report = [this](
                        const std::string& name,
                        const protocol::PeerReport& report) { reports.emplace_back(name, report); },
       .wants_model = [this](const std::string&, const WholeModel& model) -> Result<void> {
         if (model.floats == model_floats) return {};
         return rejected("wrong-size", "the model is of another size");
       },
       .on_model =
           [this](const std::string& name, protocol::Exchange exchange, SharedBytes values) {
             models.push_back({name, exchange, floats_of(values)});
           }},
      log};
};

TEST_F(IssuerDeskTest, MembersGetTheRosterNowAndLater) {
  desk.opened(kA, "a");
  desk.opened(kStranger, "x");
  EXPECT_TRUE(sent.empty());
  const auto roster = owner.sign(1, members());
  ASSERT_TRUE(desk.publish(roster));
  desk.opened(kB, "b");
  for (const SessionId session : {kA, kB}) {
    RosterAssembler assembler;
    const auto parts = sent_to<protocol::RosterPart>(session);
    ASSERT_EQ(parts.size(), 1U);
    EXPECT_EQ(parts[0].epoch, 1U);
  }
  EXPECT_TRUE(std::ranges::equal(sent[0].envelope.payload.view(), roster.bytes().view()));
  EXPECT_EQ(sent_to<protocol::RosterPart>(kStranger).size(), 0U);
}

TEST_F(IssuerDeskTest, WhoIsLeftOutHearsItOnceAndStrangersNothing) {
  publish();
  desk.opened(kStranger, "x");
  ASSERT_TRUE(desk.publish(owner.sign(2, {RosterOwner::member("b")})));
  EXPECT_EQ(sent_to<protocol::RosterPart>(kA).size(), 1U);
  EXPECT_EQ(sent_to<protocol::RosterPart>(kB).size(), 1U);
  EXPECT_EQ(sent_to<protocol::RosterPart>(kStranger).size(), 0U);
  sent.clear();
  ASSERT_TRUE(take(kA, protocol::RosterAsk{}));
  ASSERT_TRUE(desk.publish(owner.sign(3, {RosterOwner::member("b")})));
  EXPECT_EQ(sent_to<protocol::RosterPart>(kA).size(), 0U);
  EXPECT_EQ(sent_to<protocol::RosterPart>(kB).size(), 1U);
}

TEST_F(IssuerDeskTest, ClientsThatAreLeftOutAreToldWhileTheyAre) {
  desk.set_left_out({"x", "y"});
  desk.opened(kStranger, "x");
  EXPECT_TRUE(sent.empty()) << "there is no roster";
  publish();
  ASSERT_TRUE(desk.publish(owner.sign(2, members())));
  EXPECT_EQ(sent_to<protocol::RosterPart>(kStranger).size(), 1U);
  ASSERT_TRUE(take(kStranger, protocol::RosterAsk{}));
  EXPECT_EQ(sent_to<protocol::RosterPart>(kStranger).size(), 2U);
  desk.opened(SessionId(19), "x");
  EXPECT_EQ(sent_to<protocol::RosterPart>(SessionId(19)).size(), 1U);
  sent.clear();
  desk.set_left_out({});
  ASSERT_TRUE(desk.publish(owner.sign(3, members())));
  EXPECT_EQ(sent_to<protocol::RosterPart>(SessionId(19)).size(), 0U);
  desk.set_left_out({"a", "x"});
  EXPECT_EQ(sent_to<protocol::RosterPart>(SessionId(19)).size(), 1U);
  EXPECT_EQ(sent_to<protocol::RosterPart>(kA).size(), 1U) << "members have it";
}

TEST_F(IssuerDeskTest, OnlyNewerRostersArePublished) {
  publish();
  EXPECT_EQ(desk.publish(owner.sign(1, members())).error().code(), "roster-old");
  EXPECT_TRUE(sent.empty());
  EXPECT_TRUE(desk.publish(owner.sign(1, members(), std::chrono::minutes(1))));
  EXPECT_EQ(sent.size(), 3U);
  EXPECT_TRUE(desk.publish(owner.sign(2, members())));
}

TEST_F(IssuerDeskTest, AsksAreAnsweredWhereOursIsNewer) {
  publish();
  ASSERT_TRUE(take(kA, protocol::RosterAsk{}));
  EXPECT_EQ(sent_to<protocol::RosterPart>(kA).size(), 1U);
  sent.clear();
  ASSERT_TRUE(take(kA, ask_for_newer(&desk.roster()->roster())));
  desk.opened(kStranger, "x");
  ASSERT_TRUE(take(kStranger, protocol::RosterAsk{}));
  EXPECT_TRUE(sent.empty());
}

TEST_F(IssuerDeskTest, ALargeRosterGoesOutInWindows) {
  const auto roster = owner.sign_large(1, 3'000'000);
  const std::string name = roster.roster().members[17].name;
  ASSERT_TRUE(desk.publish(roster));
  desk.opened(kA, name);
  RosterAssembler assembler;
  std::optional<Bytes> whole;
  for (std::size_t window = 1; !whole; ++window) {
    ASSERT_LE(window, 3U);
    std::uint64_t bytes = 0;
    std::optional<protocol::RosterAsk> ask;
    for (const Sent& one : std::exchange(sent, {})) {
      bytes += one.envelope.payload.size();
      auto taken = assembler.take(std::get<protocol::RosterPart>(one.envelope.message),
                                  one.envelope.payload.view(), nullptr);
      if (taken.whole) whole = std::move(taken.whole);
      if (taken.ask) ask = taken.ask;
    }
    EXPECT_LE(bytes, kRosterWindowBytes);
    if (ask) {
      ASSERT_TRUE(take(kA, *ask));
    }
  }
  EXPECT_TRUE(std::ranges::equal(*whole, roster.bytes().view()));
}

TEST_F(IssuerDeskTest, ASessionThatBreaksWhileItIsSentToEndsThere) {
  ASSERT_TRUE(desk.publish(owner.sign_large(1, 1'000'000)));
  on_send = [this](SessionId session) { desk.closed(session); };
  desk.opened(kA, desk.roster()->roster().members[0].name);
  EXPECT_EQ(sent.size(), 1U);
}

TEST_F(IssuerDeskTest, ReportsOfMembersArePassedOn) {
  publish();
  desk.opened(kStranger, "x");
  const protocol::PeerReport report{.epoch = 1, .step = 12, .state = "training"};
  ASSERT_TRUE(take(kC, report));
  ASSERT_TRUE(take(kStranger, report));
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0], std::pair(std::string("c"), report));
}

// --- relaying -----------------------------------------------------------------------------------

using wire::FrameType;

protocol::Relay relay_to(const std::string& peer, FrameType type = FrameType::kPeerHello) {
  return {
      .peer = peer, .type = static_cast<std::uint16_t>(type), .header = Bytes(16, std::byte{5})};
}

TEST_F(IssuerDeskTest, RelaysBetweenTwoThatCannotBeDialled) {
  publish();
  const Bytes payload(100, std::byte{7});
  ASSERT_TRUE(take(kA, relay_to("b"), payload));
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].session, kB);
  EXPECT_EQ(std::get<protocol::Relay>(sent[0].envelope.message), relay_to("a"));
  EXPECT_TRUE(std::ranges::equal(sent[0].envelope.payload.view(), payload));
  EXPECT_NE(sent[0].envelope.payload.view().data(), payload.data()) << "it outlives its frame";
  ASSERT_TRUE(take(kB, relay_to("a")));
  EXPECT_EQ(sent_to<protocol::Relay>(kA), std::vector{relay_to("b")});
  EXPECT_EQ(log.lines.size(), 1U) << "it says so once";
}

TEST_F(IssuerDeskTest, DoesNotRelayWhereAnyoneCanDial) {
  publish();
  desk.opened(kStranger, "x");
  for (const char* to : {"c", "x", "a", "nobody"}) {
    ASSERT_TRUE(take(kA, relay_to(to)));
    EXPECT_EQ(goodbye(kA, to), "not-relayed") << to;
  }
  ASSERT_TRUE(take(kC, relay_to("a")));
  EXPECT_EQ(goodbye(kC, "a"), "not-relayed");
  ASSERT_TRUE(take(kStranger, relay_to("a")));
  EXPECT_EQ(goodbye(kStranger, "a"), "not-relayed");
  EXPECT_EQ(sent_to<protocol::Relay>(kA).size(), 4U);
}

TEST_F(IssuerDeskTest, SaysWhenTheOtherEndIsAway) {
  publish();
  ASSERT_TRUE(take(kA, relay_to("b")));
  desk.closed(kB);
  EXPECT_EQ(goodbye(kA, "b"), "peer-away");
  sent.clear();
  ASSERT_TRUE(take(kA, relay_to("b")));
  EXPECT_EQ(goodbye(kA, "b"), "peer-away");
}

TEST_F(IssuerDeskTest, ASessionThatAnotherReplacesEndsItsRelayedLinks) {
  publish();
  ASSERT_TRUE(take(kA, relay_to("b")));
  ASSERT_TRUE(desk.publish(owner.sign(2, members())));  // the link lives on
  sent.clear();
  desk.opened(SessionId{4}, "b");
  EXPECT_EQ(goodbye(kA, "b"), "peer-away");
  desk.closed(kB);  // the earlier one, at last
  ASSERT_TRUE(take(kA, relay_to("b")));
  EXPECT_EQ(sent.back().session, SessionId{4});
}

TEST_F(IssuerDeskTest, RelayingIsBounded) {
  ASSERT_TRUE(desk.publish(owner.sign(
      1, {RosterOwner::member("a"), RosterOwner::member("b"), RosterOwner::member("d")})));
  desk.opened(kA, "a");
  desk.opened(kB, "b");
  desk.opened(kC, "d");
  ASSERT_TRUE(take(kA, relay_to("b")));
  sent.clear();
  ASSERT_TRUE(take(kA, relay_to("d")));  // a second pair
  EXPECT_EQ(goodbye(kA, "d"), "relay-full");
  desk.closed(kB);  // which makes room
  sent.clear();
  ASSERT_TRUE(take(kA, relay_to("d")));
  EXPECT_EQ(sent_to<protocol::Relay>(kC), std::vector{relay_to("a")});
}

TEST_F(IssuerDeskTest, AFullReceiverHearsOnceThatALinkIsBroken) {
  publish();
  ASSERT_TRUE(take(kA, relay_to("b")));
  waiting = 3 << 20;
  sent.clear();
  ASSERT_TRUE(take(kA, relay_to("b", FrameType::kSwim)));
  EXPECT_EQ(goodbye(kA, "b"), "relay-full");
  EXPECT_EQ(goodbye(kB, "a"), "relay-full");
  for (const FrameType type : {FrameType::kSwim, FrameType::kBye, FrameType::kPeerHello}) {
    ASSERT_TRUE(take(kA, relay_to("b", type)));
  }
  EXPECT_EQ(sent_to<protocol::Relay>(kA).size(), 3U) << "a goodbye is not answered";
  EXPECT_EQ(goodbye(kA, "b"), "relay-full");
  EXPECT_EQ(sent_to<protocol::Relay>(kB).size(), 1U) << "nothing more where too much waits";
}

TEST_F(IssuerDeskTest, AGreetingOpensABrokenLinkAndNothingElseDoes) {
  publish();
  ASSERT_TRUE(take(kA, relay_to("b", FrameType::kSwim)));
  EXPECT_EQ(goodbye(kA, "b"), "no-link");
  ASSERT_TRUE(take(kA, relay_to("b")));
  waiting = 3 << 20;
  ASSERT_TRUE(take(kB, relay_to("a", FrameType::kBye)));
  EXPECT_EQ(goodbye(kA, "b"), "relay-full") << "it stands for the goodbye that is lost";
  waiting = 0;
  sent.clear();
  ASSERT_TRUE(take(kA, relay_to("b", FrameType::kSwim)));
  EXPECT_EQ(goodbye(kA, "b"), "no-link");
  EXPECT_TRUE(sent_to<protocol::Relay>(kB).empty());
  ASSERT_TRUE(take(kB, relay_to("a")));
  ASSERT_TRUE(take(kA, relay_to("b", FrameType::kSwim)));
  EXPECT_EQ(sent_to<protocol::Relay>(kA).back(), relay_to("b"));
  EXPECT_EQ(sent_to<protocol::Relay>(kB), std::vector{relay_to("a", FrameType::kSwim)});
}

TEST(RelayPairs, AMemberHasNoMoreThanItsShare) {
  RelayPairs pairs({.pairs_max = 4, .per_member_max = 2});
  EXPECT_TRUE(pairs.insert("a", "b"));
  EXPECT_TRUE(pairs.insert("c", "a"));
  EXPECT_FALSE(pairs.insert("a", "d"));
  EXPECT_FALSE(pairs.insert("d", "a")) << "whoever begins";
  EXPECT_TRUE(pairs.insert("b", "a")) << "it is there already";
  EXPECT_TRUE(pairs.insert("b", "c"));
  EXPECT_TRUE(pairs.insert("d", "e"));
  EXPECT_FALSE(pairs.insert("f", "g")) << "four in all";
  EXPECT_EQ(pairs.size(), 4U);
  EXPECT_EQ(pairs.erase("b"), (std::set<std::string>{"a", "c"}));
  EXPECT_EQ(pairs.size(), 2U);
  EXPECT_FALSE(pairs.contains("a", "b"));
  EXPECT_TRUE(pairs.insert("a", "d"));
  EXPECT_TRUE(pairs.erase("d", "a"));
  EXPECT_FALSE(pairs.erase("a", "d"));
  pairs.keep([](const std::string& name) { return name != "e"; });
  EXPECT_EQ(pairs.size(), 1U);
  EXPECT_TRUE(pairs.contains("a", "c"));
}

// --- models -------------------------------------------------------------------------------------

TEST_F(IssuerDeskTest, AModelIsHandedInUnderCredit) {
  publish();
  std::vector<float> values(model_floats);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) * 0.5F;
  ASSERT_TRUE(take(kA, model_transfer(model_floats)));
  const auto credit = sent_to<protocol::Credit>(kA);
  ASSERT_EQ(credit.size(), 1U);
  EXPECT_EQ(credit[0].limit, 128U * 1024);
  EXPECT_EQ(hand_in(kA, values, TaskId(7)), 7U);  // 400,000 bytes
  ASSERT_EQ(models.size(), 1U);
  EXPECT_EQ(models[0].member, "a");
  EXPECT_EQ(models[0].exchange, 50U);
  EXPECT_EQ(models[0].values, values);
  EXPECT_EQ(sent_to<protocol::UpdateReceived>(kA).size(), 1U);
  EXPECT_FALSE(desk.is_mine(kA, protocol::Chunk{TaskId(7), 0}));
}

TEST_F(IssuerDeskTest, ASmallModelOutlivesItsFrame) {
  publish();
  model_floats = 3;
  ASSERT_TRUE(take(kA, model_transfer(3)));
  hand_in(kA, {1, 2, 3}, TaskId(7));
  ASSERT_EQ(models.size(), 1U);
  EXPECT_EQ(models[0].values, (std::vector<float>{1, 2, 3}));
}

TEST_F(IssuerDeskTest, ModelsThatAreNotWantedAreRefused) {
  publish();
  desk.opened(kStranger, "x");
  const auto refusal = [&](SessionId session, const VectorTransfer& transfer) {
    EXPECT_TRUE(take(session, transfer));
    const auto ended = sent_to<protocol::TaskEnded>(session);
    return ended.empty() ? "" : ended.back().code;
  };
  EXPECT_EQ(refusal(kA, model_transfer(5)), "wrong-size");
  EXPECT_EQ(refusal(kStranger, model_transfer(model_floats)), "not-a-member");
  EXPECT_TRUE(take(kA, model_transfer(model_floats)));
  EXPECT_TRUE(take(kB, model_transfer(model_floats)));
  EXPECT_EQ(refusal(kC, model_transfer(model_floats)), "too-many-models");
  EXPECT_FALSE(desk.is_mine(kC, protocol::Chunk{TaskId(7), 0}));
  VectorTransfer other = model_transfer(model_floats);
  other.content = protocol::MixMessage{.first = model_floats};
  EXPECT_EQ(desk.take(kA, {other, {}}).error().code(), "bad-message");
  EXPECT_EQ(desk.take(kA, {model_transfer(0), {}}).error().code(), "bad-message");
}

TEST_F(IssuerDeskTest, AModelThatIsNotFiniteIsRefused) {
  publish();
  model_floats = 2;
  ASSERT_TRUE(take(kA, model_transfer(2)));
  hand_in(kA, {1, std::numeric_limits<float>::quiet_NaN()}, TaskId(7));
  EXPECT_TRUE(models.empty());
  const auto ended = sent_to<protocol::TaskEnded>(kA);
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].code, "not-finite");
}

TEST_F(IssuerDeskTest, ANewHandInReplacesTheOneBefore) {
  publish();
  const std::vector<float> values(model_floats, 1.0F);
  ASSERT_TRUE(take(kA, model_transfer(model_floats, 7)));
  const Bytes piece(65'536, std::byte{0});
  ASSERT_TRUE(take(kA, protocol::Chunk{TaskId(7), 0}, piece));
  sent.clear();
  ASSERT_TRUE(take(kA, model_transfer(model_floats, 8)));
  EXPECT_FALSE(desk.is_mine(kA, protocol::Chunk{TaskId(7), 65'536}));
  hand_in(kA, values, TaskId(8));
  ASSERT_EQ(models.size(), 1U);
  EXPECT_EQ(models[0].values, values);
}

TEST_F(IssuerDeskTest, GapsAndFloodsCloseTheSession) {
  publish();
  ASSERT_TRUE(take(kA, model_transfer(model_floats)));
  const Bytes piece(65'536, std::byte{0});
  EXPECT_EQ(take(kA, protocol::Chunk{TaskId(7), 65'536}, piece).error().code(), "bad-chunk");
  const Bytes flood(256 * 1024, std::byte{0});
  EXPECT_EQ(take(kA, protocol::Chunk{TaskId(7), 0}, flood).error().code(), "bad-chunk");
}

TEST_F(IssuerDeskTest, AReconnectedMemberBeginsAnew) {
  publish();
  ASSERT_TRUE(take(kA, model_transfer(model_floats)));
  constexpr SessionId kAgain{11};
  desk.opened(kAgain, "a");
  EXPECT_FALSE(desk.is_mine(kA, protocol::Chunk{TaskId(7), 0}));
  EXPECT_FALSE(desk.is_mine(kAgain, protocol::Chunk{TaskId(7), 0}));
  ASSERT_TRUE(desk.take(kA, {protocol::RosterAsk{}, {}}));  // still in flight
  desk.closed(kA);
  EXPECT_TRUE(desk.is_connected("a"));
  desk.closed(kAgain);
  EXPECT_FALSE(desk.is_connected("a"));
}

}  // namespace
}  // namespace starling::issuer
