// SPDX-License-Identifier: Apache-2.0
// Who is no member, repeats what it recorded or sends garbage changes nothing: beside each attack
// the peers arrive at the bits of the simulation. A member gone bad loses its own link, no more.
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <cstring>
#include <future>

#include "core/base/rng.h"
#include "core/issuer/roster_parts.h"
#include "core/net/frame_assembler.h"
#include "core/wire/codec.h"
#include "tests/gossip/simulation_cases.h"
#include "tests/gossip_peer/peer_cluster.h"
#include "tests/identity/earlier_roster.h"
#include "tests/net/raw_client.h"

namespace starling::gossip {
namespace {

using identity::CertificateAuthority;
using identity::Credentials;
using identity::Role;
using protocol::PairMessage;
using protocol::PeerHello;
using protocol::VectorTransfer;
using starling::testing::PeerCluster;
using starling::testing::RawListener;
using starling::testing::RawSocket;
using starling::testing::simulated_models;
using starling::testing::talk_tls;

constexpr const char* kPeerAlpn = "starling-peer/1";

// --- what is said -------------------------------------------------------------------------------

std::string frame(std::uint16_t type, const std::string& header, std::size_t payload = 0) {
  const auto head = net::FrameHead{.payload_bytes = static_cast<std::uint32_t>(payload),
                                   .header_words = static_cast<std::uint16_t>(header.size() / 8),
                                   .type = type}
                        .encode();
  return std::string(reinterpret_cast<const char*>(head.data()), head.size()) + header +
         std::string(payload, 'x');
}

std::string frame(const protocol::Message& message, std::size_t payload = 0) {
  const auto encoded = wire::encode_header(message);
  EXPECT_TRUE(encoded) << message.index() << ": " << encoded.error().message();
  const Bytes header = encoded ? *encoded : Bytes();
  return frame(static_cast<std::uint16_t>(wire::frame_type(message)),
               std::string(reinterpret_cast<const char*>(header.data()), header.size()), payload);
}

std::string noise(std::size_t bytes, std::uint64_t seed) {
  Rng rng({.seed = seed, .purpose = Purpose::kBackoff});
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(rng());
  return text;
}

// --- attacks beside the training ----------------------------------------------------------------

// Attacks every peer in turn, each in a thread of its own, until they are called off; each has been
// round at least twice.
class Attacks {
 public:
  explicit Attacks(PeerCluster& cluster) : cluster_(cluster) {
    for (const auto& peer : cluster.peers) ports_.push_back(peer->port);
  }
  // Returns an unexpected answer, or nothing.
  using Attack = std::function<std::string(std::uint16_t port)>;
  void begin(const std::string& name, Attack attack) {
    running_.emplace_back(name, std::async(std::launch::async, [this, attack] {
                            std::string answer;
                            for (int round = 0; round < 2 || !called_off_; ++round) {
                              for (const std::uint16_t port : ports_) answer += attack(port);
                            }
                            return answer;
                          }));
  }
  void call_off() {
    called_off_ = true;
    for (auto& [name, attack] : running_) {
      EXPECT_EQ(cluster_.run_until_ready(attack, name + " has ended"), "") << name;
    }
  }

 private:
  PeerCluster& cluster_;
  std::vector<std::uint16_t> ports_;
  std::atomic<bool> called_off_ = false;
  std::vector<std::pair<std::string, std::future<std::string>>> running_;
};

void expect_the_simulations_bits(const PeerCluster& cluster) {
  const auto expected = simulated_models(cluster.experiment);
  for (std::size_t i = 0; i < cluster.peers.size(); ++i) {
    EXPECT_EQ(cluster.model(i), expected[i]) << cluster.peers[i]->name;
  }
}

TEST(HostilePeers, StrangersChangeNothing) {
  PeerCluster cluster(testing::small_network_of_steps(1000, "ring", 4));
  const WallTime now = cluster.clock.wall_now();
  const auto issue = [&](const CertificateAuthority& authority, Role role, const char* name) {
    identity::CertificateProfile profile{.role = role, .name = name};
    const bool may_serve = role != Role::kOperator && role != Role::kIssuer;
    if (may_serve) profile.addresses = {"127.0.0.1"};
    auto issued = authority.issue_credentials(profile, now);
    EXPECT_TRUE(issued) << issued.error().message();
    return *issued;
  };
  const auto other = *CertificateAuthority::make({.federation = "kitchen"}, now);
  // Who they say they are, and what the peers say of it.
  struct Stranger {
    Credentials credentials;
    std::string refusal;
  };
  const std::vector<Stranger> strangers{
      {issue(other, Role::kPeer, "node-02"), "unknown-authority"},
      {issue(cluster.authority, Role::kPeer, "node-99"), "not-a-member"},
      {issue(cluster.authority, Role::kPeer, "node-02"), "not-a-member"},
      {issue(cluster.authority, Role::kOperator, "owner"), "wrong-role"},
      {issue(cluster.authority, Role::kCoordinator, "coordinator"), "wrong-role"},
      {issue(cluster.authority, Role::kIssuer, "issuer"), "wrong-role"},
  };
  cluster.start_all();
  cluster.publish(cluster.roster(1));
  cluster.run_until([&] { return cluster.peers[0]->node->peer().report().step > 0; }, "they train");

  Attacks attacks(cluster);
  const std::string greeting = frame(PeerHello{.epoch = 1, .exchange = 1'000'000, .begun = true});
  for (const Stranger& stranger : strangers) {
    attacks.begin(
        stranger.credentials.certificate.identity()->name,
        [&greeting, who = &stranger.credentials](std::uint16_t port) {
          return talk_tls(port, {.alpn = kPeerAlpn, .credentials = who}, greeting).received;
        });
  }
  attacks.begin("nobody", [&greeting](std::uint16_t port) {
    return talk_tls(port, {.alpn = kPeerAlpn}, greeting).received;
  });
  attacks.begin("a member in the coordinator's protocol",
                [&greeting, who = &cluster.peers[3]->identity->credentials()](std::uint16_t port) {
                  return talk_tls(port, {.credentials = who}, greeting).received;
                });
  attacks.begin("no TLS", [&](std::uint16_t port) {
    RawSocket socket(port);
    socket.send(greeting + noise(4096, port));
    return std::string();  // an alert, or nothing
  });
  cluster.run_until_finished();
  attacks.call_off();
  expect_the_simulations_bits(cluster);
  EXPECT_EQ(cluster.log.count("no message from"), 0U) << cluster.log.all();
  for (const Stranger& stranger : strangers) {
    EXPECT_GT(cluster.log.count(stranger.refusal), 0U) << stranger.refusal;
  }
}

// --- replays ------------------------------------------------------------------------------------

// Passes connections on to a port, one at a time, and keeps what the dialler sent over each.
class Recorder {
 public:
  explicit Recorder(std::uint16_t target)
      : target_(target), serving_(std::async(std::launch::async, [this] { serve(); })) {}
  ~Recorder() {
    stopping_ = true;
    RawSocket wake(listener_.port());
    serving_.wait();
  }
  std::uint16_t port() const { return listener_.port(); }
  // Of the first connection, so far.
  std::string recording() const {
    const std::scoped_lock lock(mutex_);
    return recording_;
  }

 private:
  void serve() {
    bool is_first = true;
    while (!stopping_) {
      const RawSocket near = listener_.accept();
      if (stopping_) return;
      const RawSocket far(target_);
      while (!stopping_ && pass(near, far, is_first) && pass(far, near, false)) {
        pollfd ends[] = {{near.fd(), POLLIN, 0}, {far.fd(), POLLIN, 0}};
        ::poll(ends, 2, 100);
      }
      is_first = false;
    }
  }
  // What there is to be read; false at the end.
  bool pass(const RawSocket& from, const RawSocket& to, bool is_kept) {
    char piece[16384];
    const ssize_t count = ::recv(from.fd(), piece, sizeof piece, MSG_DONTWAIT);
    if (count < 0) return errno == EAGAIN;
    if (count == 0) return false;
    if (is_kept) {
      const std::scoped_lock lock(mutex_);
      recording_.append(piece, static_cast<std::size_t>(count));
    }
    return ::send(to.fd(), piece, static_cast<std::size_t>(count), MSG_NOSIGNAL) == count;
  }

  std::uint16_t target_;
  RawListener listener_;
  std::atomic<bool> stopping_ = false;
  mutable std::mutex mutex_;
  std::string recording_;
  std::future<void> serving_;
};

TEST(HostilePeers, WhatWasRecordedChangesNothingWhenItIsSentAgain) {
  PeerCluster cluster(testing::small_network_of_steps(1000, "ring", 4));
  cluster.start_all();
  const std::uint16_t second = cluster.peers[1]->port;
  const Recorder recorder(second);
  cluster.peers[1]->port = recorder.port();  // where the roster sends those who dial it
  cluster.publish(cluster.roster(1));
  cluster.run_until([&] { return recorder.recording().size() > 20'000; },
                    "a greeting and some exchanges are recorded");

  Attacks attacks(cluster);
  attacks.begin("replay", [&recorder, second](std::uint16_t) {
    RawSocket socket(second);
    socket.send(recorder.recording());
    socket.receive_all();
    return std::string();
  });
  cluster.run_until_finished();
  attacks.call_off();
  expect_the_simulations_bits(cluster);
  EXPECT_EQ(cluster.log.count("no message from"), 0U) << cluster.log.all();
  EXPECT_GT(cluster.log.count("refused 127.0.0.1"), 0U);
}

TEST(HostilePeers, AnOldRosterBringsNobodyBack) {
  PeerCluster cluster(testing::small_network_of_steps(100'000, "ring", 4), true);
  cluster.start_all();
  const auto with_all = cluster.roster(1);
  cluster.publish(with_all);
  cluster.run_until([&] { return cluster.peers[0]->node->peer().report().neighbours == 2; },
                    "they train");
  const auto without_the_last = cluster.roster(2, {0, 1, 2});
  for (std::size_t i = 0; i < 3; ++i) {
    cluster.peers[i]->node->peer().take_roster(without_the_last, PeerShell::Source::kIssuer);
  }
  // By whoever passes it on, whatever it claims to be.
  for (std::size_t i = 0; i < 3; ++i) {
    cluster.peers[i]->node->peer().take_roster(with_all, PeerShell::Source::kOther);
    cluster.peers[i]->node->peer().take_roster(with_all, PeerShell::Source::kIssuer);
    EXPECT_EQ(cluster.peers[i]->node->peer().report().epoch, 2U);
  }
  cluster.run_until([&] { return cluster.peers[3]->node->peer().report().neighbours == 0; },
                    "the last is heard by nobody");
}

// --- a member gone bad --------------------------------------------------------------------------

// Frames that an authenticated member can send and an honest one never does.
std::vector<std::string> garbage() {
  std::vector<std::string> all{
      noise(4096, 7),
      frame(999, ""),
      frame(65535, std::string(64, 'A')),
      frame(0, ""),
      std::string("\xff\xff\xff\xff\xff\xff\x16\x00", 8),  // 4 GiB of transfer
      frame(PeerHello{.version_min = 7, .version_max = 9}),
      frame(protocol::RosterAsk{.epoch = 9, .offset = 100'000}),
      frame(protocol::RosterPart{.epoch = 1ULL << 52, .total = 60'000}, 60'000),
      frame(protocol::RosterPart{.epoch = 2, .total = 100}, 100),
      frame(protocol::RosterPart{.epoch = 2, .offset = 50'000, .total = 60'000}, 10'000),
      frame(protocol::ColumnsAsk{.epoch = 1, .begin = 0, .end = 1ULL << 30}),
      frame(protocol::ColumnsAsk{.epoch = 7, .begin = 0, .end = 1}),
      frame(protocol::Chunk{TaskId(77), 0}, 60'000),
      frame(protocol::Credit{TaskId(77), 1ULL << 50}),
      frame(protocol::TaskEnded{TaskId(77), "no-such", "task"}),
      frame(protocol::Ping{1}),
      frame(protocol::PeerReport{.epoch = 1}),
      frame(protocol::Relay{.peer = "node-01", .type = 18, .header = Bytes(16)}),
      frame(protocol::Hello{}),
  };
  const std::vector<protocol::reduce::What> notes = {
      protocol::reduce::Register{.lost = {0, 1}},
      protocol::reduce::List{{0, 1}},
      protocol::reduce::Standing{.mean = {1, {0, 1}}},
      protocol::reduce::Commit{{0, 1}},
      protocol::reduce::Want{},
      protocol::reduce::Ask{},
      protocol::reduce::AskProgress{},
      protocol::reduce::Ahead{{0, 1}}};
  for (const protocol::reduce::What& what : notes) {
    all.push_back(frame(protocol::ReduceNote{
        .epoch = 1, .at = {.exchange = 1ULL << 40}, .attempt = 1 << 30, .what = what}));
  }
  all.push_back(frame(protocol::MixAsk{.epoch = 1, .exchange = 1ULL << 40}));
  all.push_back(frame(
      protocol::MixAnswer{.epoch = 1, .exchange = 1ULL << 40, .asked = 1ULL << 50, .sent = true}));
  for (const auto state : {protocol::SwimNews::State::kSuspect, protocol::SwimNews::State::kDead}) {
    for (const std::uint32_t incarnation : {0U, 1000U, (1U << 30) - 1}) {
      protocol::Swim swim{.kind = protocol::Swim::Kind::kPing, .epoch = 1, .sequence = 1};
      for (const protocol::Member member : {0U, 1U, 2U, 3U, 4000U}) {
        swim.news.push_back(
            {.member = member, .state = state, .incarnation = incarnation, .by = 3});
      }
      all.push_back(frame(swim));
    }
  }
  for (const std::uint64_t floats : {1ULL, 39ULL, 1ULL << 28}) {
    std::vector<VectorTransfer::Content> contents{
        protocol::MixMessage{.exchange = 3, .state = protocol::Eras{1U << 31, 1}, .first = floats},
        protocol::MixMessage{
            .exchange = 3, .state = protocol::Incarnations{1U << 31, 1}, .first = floats},
        protocol::Introduction{.edge = {1U << 31, 1}, .exchange = 1ULL << 60},
        protocol::Confirmation{.number = 1ULL << 60, .edge = {1U << 31, 1}, .phases = floats},
        protocol::ReducePiece{.exchange = 3, .attempt = 1, .floats = floats},
        protocol::ModelColumns{.exchange = 3, .floats = floats},
        protocol::WholeModel{.exchange = 3, .floats = floats}};
    for (const auto kind :
         {PairMessage::Kind::kPush, PairMessage::Kind::kRequest, PairMessage::Kind::kReply}) {
      contents.emplace_back(
          PairMessage{.kind = kind, .number = 3, .edge = {1U << 31, 1}, .floats = floats});
    }
    for (const VectorTransfer::Content& content : contents) {
      const VectorTransfer transfer{.id = TaskId(5), .epoch = 1, .content = content};
      const auto bytes = static_cast<std::size_t>(std::min<std::uint64_t>(4 * floats, 60'000));
      all.push_back(frame(transfer) + frame(protocol::Chunk{TaskId(5), 0}, bytes));
    }
  }
  return all;
}

TEST(HostilePeers, AMemberGoneBadLosesItsOwnLinkAndNoMore) {
  PeerCluster cluster(testing::small_network_of_steps(1'000'000, "ring", 4), true);
  cluster.shorten_timeouts();
  for (const std::size_t i : {0U, 1U, 2U}) cluster.start(i);
  cluster.peers[3]->port = 1;  // nobody is there; it dials
  cluster.publish(cluster.roster(1));
  const auto step_of = [&](std::size_t i) { return cluster.peers[i]->node->peer().report().step; };
  cluster.run_until([&] { return step_of(0) > 10; }, "three train");

  const Credentials& credentials = cluster.peers[3]->identity->credentials();
  const std::string hello = frame(PeerHello{.epoch = 1, .exchange = 20, .begun = true});
  const std::string bye = frame(protocol::Bye{"stopping", ""});
  std::size_t number = 0;
  for (const std::string& bad : garbage()) {
    SCOPED_TRACE("garbage " + std::to_string(number++));
    for (const std::string& words :
         {bad + bye, hello + bad + bye, hello + hello + bad + bad + bye}) {
      const std::uint16_t port = cluster.peers[number % 3]->port;
      auto talk = std::async(std::launch::async, [&] {
        return talk_tls(port, {.alpn = kPeerAlpn, .credentials = &credentials}, words);
      });
      EXPECT_TRUE(cluster.run_until_ready(talk, "the link has ended").handshake);
    }
  }
  const std::uint64_t before = step_of(1);
  cluster.run_until(
      [&] {
        for (const std::size_t i : {0U, 1U, 2U}) {
          const auto report = cluster.peers[i]->node->peer().report();
          if (report.epoch != 1 || report.step < before + 50) return false;
          // The ring of four without the fourth is a path.
          if (report.neighbours != (i == 1 ? 2U : 1U)) return false;
        }
        return true;
      },
      "the three train on with one another");
  const std::string refused = "refused " + cluster.peers[3]->name + ": ";
  EXPECT_GT(cluster.log.count(refused), 0U) << "who begins with garbage is named";
  EXPECT_LT(cluster.log.count(refused), 100U) << "not for each connection";
}

// --- a member that floods, lies and asks for what is not its own --------------------------------

// Three of a ring of four; the fourth is a member whose key a test has.
class AHostileMember : public ::testing::Test {
 protected:
  void begin() {
    cluster.shorten_timeouts();
    for (const std::size_t i : {0U, 1U, 2U}) cluster.start(i);
    cluster.peers[3]->port = 1;  // nobody is there; it dials
    cluster.publish(cluster.roster(1));
    cluster.run_until([&] { return step_of(0) > 10; }, "three train");
  }
  std::uint64_t step_of(std::size_t i) { return cluster.peers[i]->node->peer().report().step; }
  // What it is answered until the link ends.
  std::string say(std::size_t to, const std::string& words) {
    auto talk = std::async(std::launch::async, [&] {
      return talk_tls(
          cluster.peers[to]->port,
          {.alpn = kPeerAlpn, .credentials = &cluster.peers[3]->identity->credentials()}, words);
    });
    return cluster.run_until_ready(talk, "the link has ended").received;
  }
  void expect_that_three_train_on() {
    const std::uint64_t before = step_of(1);
    cluster.run_until([&] { return step_of(0) > before + 50 && step_of(2) > before + 50; },
                      "the three train on");
  }
  // A greeting of who is at `exchange`.
  static std::string hello(protocol::Exchange exchange) {
    return frame(PeerHello{.epoch = 1, .exchange = exchange, .begun = true});
  }
  static std::string frames_of(const identity::SignedRoster& roster) {
    std::string frames;
    for (const auto& part : issuer::roster_parts(roster, {})) {
      const std::string head = frame(part.message, part.payload.size());
      frames += head.substr(0, head.size() - part.payload.size());
      frames += std::string(as_text(part.payload.view()));
    }
    return frames;
  }
  static std::size_t count(const std::string& answer, wire::FrameType type) {
    std::size_t found = 0;
    for (std::size_t at = 0; at + net::kHeadBytes <= answer.size();) {
      std::array<std::byte, net::kHeadBytes> bytes{};
      std::memcpy(bytes.data(), answer.data() + at, bytes.size());
      const auto head = net::FrameHead::decode(bytes);
      found += head.type == static_cast<std::uint16_t>(type) ? 1 : 0;
      at += net::kHeadBytes + head.header_bytes() + head.payload_bytes;
    }
    return found;
  }
  const std::string bye = frame(protocol::Bye{"stopping", ""});

  PeerCluster cluster{testing::small_network_of_steps(1'000'000, "ring", 4), true};
};

TEST_F(AHostileMember, ThatFloodsIsReadAtItsRateAndNamedOnce) {
  cluster.options.links.frames_per_second = 2000;
  cluster.options.links.named_after = std::chrono::seconds(1);
  begin();
  std::string flood;
  for (int i = 0; i < 6000; ++i) flood += frame(protocol::Ping{1});
  const TimePoint began = cluster.loop.now();
  const std::uint64_t before = step_of(1);
  const std::string answer = say(1, hello(20) + flood + bye);
  const double took = to_seconds(cluster.loop.now() - began);
  EXPECT_GE(took, 1.9) << "2,000 at once, then 2,000 a second";
  EXPECT_GT(count(answer, wire::FrameType::kPong), 5000U)
      << "what is queued at a goodbye is dropped";
  EXPECT_GT(step_of(1), before) << "it trained meanwhile";
  EXPECT_EQ(cluster.log.count("node-04 sends more than 2000 frames a second"), 1U);
  expect_that_three_train_on();
}

// A greeting may be answered with models, so it costs more than a ping.
TEST_F(AHostileMember, ThatGreetsWithoutEndIsReadSlower) {
  cluster.options.links.frames_per_second = 2000;
  begin();
  std::string flood;
  for (int i = 0; i < 60; ++i) flood += hello(20);
  const TimePoint began = cluster.loop.now();
  say(1, hello(20) + flood + bye);
  EXPECT_GE(to_seconds(cluster.loop.now() - began), 1.9) << "60 times 100, of 2,000 a second";
  expect_that_three_train_on();
}

TEST_F(AHostileMember, ThatClaimsAnExchangeFarAwayMovesNobody) {
  begin();
  for (const protocol::Exchange claim :
       {protocol::Exchange{1} << 60, protocol::Exchange{999'999}}) {
    for (const std::size_t to : {0U, 1U, 2U}) {
      const std::string transfer =
          frame(VectorTransfer{.id = TaskId(5),
                               .epoch = 1,
                               .content = protocol::MixMessage{.exchange = claim, .first = 1}});
      say(to, hello(claim) + hello(claim) + transfer + bye);
    }
  }
  expect_that_three_train_on();
  for (const std::size_t i : {0U, 1U, 2U}) {
    EXPECT_LT(cluster.peers[i]->node->peer().report().exchange, 500'000U);
  }
}

// Member 1 is no neighbour of member 3 in the ring.
TEST_F(AHostileMember, ThatIsNoNeighbourIsNotGivenTheModel) {
  begin();
  const std::uint64_t size = cluster.experiment.initial.size();
  const std::string ask = frame(protocol::ColumnsAsk{.epoch = 1, .begin = 0, .end = size});
  // While these are read local phases end, and questions are answered.
  std::string pings;
  for (int i = 0; i < 500; ++i) pings += frame(protocol::Ping{1});
  const std::string answer = say(1, hello(1'000'000) + ask + ask + pings + ask + pings + bye);
  EXPECT_GT(count(answer, wire::FrameType::kPong), 500U) << "the first questions were read";
  EXPECT_EQ(count(answer, wire::FrameType::kVectorTransfer), 0U);
  expect_that_three_train_on();
}

// It says each time that it has no model.
TEST_F(AHostileMember, ThatCopiesTheModelAgainAndAgainIsNamed) {
  begin();
  const std::uint64_t size = cluster.experiment.initial.size();
  const std::string greeting = frame(PeerHello{.epoch = 1, .begun = false});
  const std::string ask = frame(protocol::ColumnsAsk{.epoch = 1, .begin = 0, .end = size});
  std::string pings;
  for (int i = 0; i < 500; ++i) pings += frame(protocol::Ping{1});
  const auto named = [&] {
    return cluster.log.count("node-04 asks for this peer's model again and again");
  };
  std::size_t given = 0;
  // A question whose link has ended before the peer has a model to give is none.
  for (int i = 0; i < 5 || (named() == 0 && i < 50); ++i) {
    given += count(say(1, greeting + ask + pings + bye), wire::FrameType::kVectorTransfer);
  }
  EXPECT_EQ(given, 3U);
  EXPECT_EQ(named(), 1U);
  expect_that_three_train_on();
}

TEST_F(AHostileMember, ThatForgesLinesWithItsGoodbyeDoesNotForgeAny) {
  begin();
  say(1,
      hello(20) + frame(protocol::Bye{"stop\x1b[2J", "gone\n2026-11-26 error: forged \xc2\x9b"}));
  cluster.run_until([&] { return cluster.log.count("forged") > 0; }, "its goodbye is told");
  EXPECT_EQ(cluster.log.count("\x1b"), 0U) << cluster.log.all();
  EXPECT_EQ(cluster.log.count("\n2026"), 0U);
  EXPECT_EQ(cluster.log.count("\xc2\x9b"), 0U);
  EXPECT_GT(cluster.log.count("\\n2026"), 0U);
}

// It may have stolen the service's key: an epoch does not jump, and what was revoked counts no
// more. The roster comes again and again; one line says that it is not taken.
TEST_F(AHostileMember, ThatPassesOnARosterOfTheLastEpochIsRefused) {
  begin();
  const auto last = cluster.roster(identity::kRosterEpochMax, {3});
  for (int i = 0; i < 3; ++i) {
    say(1, hello(20) + frames_of(last) + bye);
  }
  EXPECT_EQ(cluster.peers[1]->node->peer().report().epoch, 1U);
  EXPECT_EQ(cluster.log.count(" sent is not taken: the roster of epoch 9007199254740992 is more "
                              "than 1000000 epochs later"),
            1U)
      << cluster.log.all();
  expect_that_three_train_on();
  cluster.publish(cluster.roster(2));
  EXPECT_EQ(cluster.peers[1]->node->peer().report().epoch, 2U);
}

// As services of earlier versions signed theirs; a stolen server's key signs no more.
TEST_F(AHostileMember, ThatPassesOnARosterThatAServersKeySignedIsRefused) {
  begin();
  const auto coordinator = *cluster.authority.issue_credentials(
      {.role = Role::kCoordinator, .name = "coordinator", .addresses = {"127.0.0.1"}},
      cluster.clock.wall_now());
  const std::string text = starling::testing::signed_again(cluster.roster(2, {3}), coordinator);
  const auto forged = *identity::SignedRoster::verify(as_bytes(text), coordinator.authorities,
                                                      "kitchen", identity::RosterOrigin::kOwnDisk);
  for (int i = 0; i < 3; ++i) say(1, hello(20) + frames_of(forged) + bye);
  EXPECT_EQ(cluster.peers[1]->node->peer().report().epoch, 1U);
  EXPECT_EQ(cluster.log.count("of an earlier version: update its service first"), 1U)
      << cluster.log.all();
  expect_that_three_train_on();
}

// Whoever can connect can make a peer compute: so many strangers a second, and no more.
TEST(HostilePeers, StrangersThatBeginHandshakesAreLimitedAndNamed) {
  PeerCluster cluster(testing::small_network_of_steps(3000, "ring", 4));
  cluster.options.links.handshakes.of_address = {.per_second = 10, .burst = 30};
  cluster.start_all();
  cluster.publish(cluster.roster(1));
  cluster.run_until([&] { return cluster.peers[0]->node->peer().report().step > 0; }, "they train");
  std::atomic<int> handshakes = 0;
  std::atomic<int> tries = 0;
  const TimePoint began = cluster.loop.now();
  Attacks attacks(cluster);
  const auto other =
      *CertificateAuthority::make({.federation = "kitchen"}, cluster.clock.wall_now());
  const auto stranger =
      *other.issue_credentials({.role = Role::kPeer, .name = "node-02", .addresses = {"127.0.0.1"}},
                               cluster.clock.wall_now());
  for (int thread = 0; thread < 2; ++thread) {
    attacks.begin("a flood of handshakes", [&](std::uint16_t port) {
      for (int i = 0; i < 30; ++i) {
        ++tries;
        const auto outcome = talk_tls(port, {.alpn = kPeerAlpn, .credentials = &stranger}, "");
        handshakes += outcome.handshake ? 1 : 0;
      }
      return std::string();
    });
  }
  cluster.run_until_finished();
  attacks.call_off();
  const double took = to_seconds(cluster.loop.now() - began);
  EXPECT_LE(handshakes, 4 * (30 + 10 * took) + 4) << "of " << tries;
  EXPECT_LT(handshakes, tries);
  EXPECT_GE(cluster.log.count("rate-limited"), 1U);
  expect_the_simulations_bits(cluster);
}

}  // namespace
}  // namespace starling::gossip
