// SPDX-License-Identifier: Apache-2.0
#include "coordinator/gossip_issuer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "coordinator/certificate_records.h"
#include "core/base/durable_file.h"
#include "core/identity/certificate_authority.h"
#include "core/identity/join_token.h"
#include "core/store/memory_store.h"
#include "tests/support/temporary_directory.h"

namespace starling::coordinator {
namespace {

using std::chrono::minutes;

struct HandClock final : Clock {
  TimePoint now() const override { return {}; }
  WallTime wall_now() const override { return wall; }
  WallTime wall = *parse_rfc3339("2026-11-20T09:00:00Z");
};

class GossipIssuerTest : public ::testing::Test {
 public:
  GossipIssuerTest() { issuer = make(); }

  std::unique_ptr<GossipIssuer> make() {
    auto made = std::make_unique<GossipIssuer>(
        GossipIssuer::Parts{loop, clock, *store, state, log}, "test",
        GossipIssuer::Handlers{
            .send = [this](SessionId session,
                           const protocol::Envelope&) { sent.push_back(session); },
            .queued_bytes = [](SessionId) { return std::size_t{0}; },
            .on_broken = [](const Error& error) { FAIL() << error.message(); }});
    made->set_credentials(hub);
    made->resume();
    return made;
  }
  void join(const std::string& name, store::Role role, std::vector<std::string> addresses = {}) {
    const auto token = identity::JoinToken::make({}, "h", 1);
    ASSERT_TRUE(store->create_token({.id = to_string(token.id),
                                     .client = name,
                                     .role = role,
                                     .addresses = std::move(addresses),
                                     .mac_key = to_bytes(token.key().bytes()),
                                     .created = clock.wall,
                                     .expires = clock.wall + minutes(60)}));
    const auto issue = [&](const store::Token&) -> Result<store::Certificate> {
      const auto made =
          authority.issue_credentials({.role = to_identity(role), .name = name}, clock.wall);
      return to_record(made->certificate, name);
    };
    ASSERT_TRUE(store->redeem_token(
        to_string(token.id), sha256(as_bytes(name + to_string(token.id))), clock.wall, issue));
    issuer->members_changed();
  }
  void revoke(const std::string& name) {
    ASSERT_TRUE(store->revoke_client(name, clock.wall));
    issuer->members_changed();
  }
  std::string start(const std::string& toml = "[topology]\nspec = \"ring\"\n") {
    const auto run = parse_gossip_run("faces", toml, "NET.toml");
    if (!run) return run.error().code();
    const auto started = issuer->start(*run, minutes(10));
    return started ? "started" : started.error().code();
  }
  std::string names() const {
    std::string all;
    for (const auto& member : issuer->roster()->members) all += member.name + " ";
    return all;
  }
  std::string setting(const std::string& key) const {
    for (const auto& [name, value] : issuer->roster()->settings) {
      if (name == key) return value;
    }
    return "";
  }
  std::uint64_t epoch() const { return issuer->roster()->epoch; }

  testing::TemporaryDirectory directory;
  const StateDirectory state{directory.path()};
  HandClock clock;
  NullLog log;
  net::EventLoop loop;
  const identity::CertificateAuthority authority =
      *identity::CertificateAuthority::make({.federation = "test"}, clock.wall);
  const identity::Credentials hub = *authority.issue_credentials(
      {.role = identity::Role::kCoordinator, .name = "hub", .addresses = {"h"}}, clock.wall);
  const std::unique_ptr<store::Store> store = store::make_memory_store();
  std::vector<SessionId> sent;
  std::unique_ptr<GossipIssuer> issuer;
};

TEST_F(GossipIssuerTest, TheMembersAreThoseWhoWereAdmitted) {
  join("cam-2", store::Role::kDevice);
  join("cam-1", store::Role::kPeer, {"10.0.0.1:7000"});
  join("boss", store::Role::kOperator);
  join("cam-3", store::Role::kPeer);
  revoke("cam-3");
  EXPECT_EQ(issuer->roster(), nullptr) << "nobody has started a network";
  EXPECT_EQ(start("[topology]\nspec = \"ring\"\n[algorithm]\nname = \"choco\"\n"), "started");
  const identity::Roster& roster = *issuer->roster();
  EXPECT_EQ(roster.run, "faces");
  EXPECT_EQ(roster.epoch, 1U);
  EXPECT_EQ(roster.expires - roster.issued, minutes(10));
  ASSERT_EQ(roster.members.size(), 2U);
  EXPECT_EQ(roster.members[0].name, "cam-1");
  EXPECT_EQ(roster.members[0].address, "10.0.0.1:7000");
  EXPECT_EQ(roster.members[0].key, store->find_client("cam-1").value()->certificate_fingerprint);
  EXPECT_EQ(roster.members[1].name, "cam-2");
  EXPECT_EQ(roster.members[1].address, "");
  EXPECT_EQ(setting("algorithm.name"), "choco");
  EXPECT_EQ(setting("topology.nodes"), "2") << "whatever the file says";
}

TEST_F(GossipIssuerTest, WhatCannotRunIsRefused) {
  EXPECT_EQ(start(), "no-members");
  join("cam-1", store::Role::kPeer);
  join("cam-2", store::Role::kPeer);
  EXPECT_EQ(start("[topology]\nspec = \"torus:8x8\"\n"), "topology-impossible");
  EXPECT_EQ(start("[topology]\nspek = \"ring\"\n"), "unknown-key");
  EXPECT_EQ(issuer->stop().error().code(), "not-running");
  EXPECT_EQ(issuer->roster(), nullptr);
}

TEST_F(GossipIssuerTest, WhoComesOrGoesBeginsAnEpoch) {
  join("cam-1", store::Role::kPeer);
  join("cam-2", store::Role::kPeer);
  ASSERT_EQ(start(), "started");
  issuer->desk().opened(SessionId(1), "cam-1");
  issuer->desk().opened(SessionId(2), "cam-2");
  sent.clear();
  join("cam-3", store::Role::kDevice);
  EXPECT_EQ(epoch(), 2U);
  EXPECT_EQ(names(), "cam-1 cam-2 cam-3 ");
  EXPECT_EQ(setting("topology.nodes"), "3");
  EXPECT_EQ(sent, (std::vector{SessionId(1), SessionId(2)})) << "at once";
  revoke("cam-1");
  EXPECT_EQ(epoch(), 3U);
  EXPECT_EQ(names(), "cam-2 cam-3 ");
  issuer->members_changed();
  EXPECT_EQ(epoch(), 3U) << "nothing has changed";
}

TEST_F(GossipIssuerTest, ARejoinedNameHasANewKeyAndSoANewEpoch) {
  join("cam-1", store::Role::kPeer, {"10.0.0.1:7000"});
  join("cam-2", store::Role::kPeer);
  ASSERT_EQ(start(), "started");
  const Sha256Digest key = issuer->roster()->members[0].key;
  revoke("cam-1");
  clock.wall += minutes(1);
  join("cam-1", store::Role::kPeer, {"10.0.0.1:7001"});
  EXPECT_EQ(epoch(), 3U);
  EXPECT_NE(issuer->roster()->members[0].key, key);
  EXPECT_EQ(issuer->roster()->members[0].address, "10.0.0.1:7001");
}

TEST_F(GossipIssuerTest, IsRenewedAtHalfOfItsLifeUnderTheSameEpoch) {
  join("cam-1", store::Role::kPeer);
  ASSERT_EQ(start(), "started");
  const WallTime issued = issuer->roster()->issued;
  clock.wall += minutes(4);
  issuer->members_changed();
  EXPECT_EQ(issuer->roster()->issued, issued);
  clock.wall += minutes(1);
  issuer->members_changed();
  EXPECT_EQ(issuer->roster()->issued, issued + minutes(5));
  EXPECT_EQ(issuer->roster()->expires, issued + minutes(15));
  EXPECT_EQ(epoch(), 1U);
}

TEST_F(GossipIssuerTest, ARestartGoesOnWhereItWas) {
  join("cam-1", store::Role::kPeer);
  join("cam-2", store::Role::kPeer);
  ASSERT_EQ(start(), "started");
  const identity::Roster before = *issuer->roster();
  issuer = make();
  ASSERT_NE(issuer->roster(), nullptr);
  EXPECT_EQ(*issuer->roster(), before);
  ASSERT_TRUE(store->revoke_client("cam-2", clock.wall));  // and then the process ended
  issuer = make();
  EXPECT_EQ(epoch(), 2U);
  EXPECT_EQ(names(), "cam-1 ");
}

TEST_F(GossipIssuerTest, AStopIsSaidWithAnEpochOfItsOwn) {
  join("cam-1", store::Role::kPeer);
  ASSERT_EQ(start(), "started");
  ASSERT_TRUE(issuer->stop());
  EXPECT_TRUE(issuer->roster()->stopped());
  EXPECT_EQ(epoch(), 2U);
  EXPECT_EQ(issuer->stop().error().code(), "not-running");
  issuer = make();
  EXPECT_TRUE(issuer->roster()->stopped());
  join("cam-2", store::Role::kPeer);
  EXPECT_TRUE(issuer->roster()->stopped());
  EXPECT_EQ(start(), "started");
  EXPECT_EQ(epoch(), 4U);
  EXPECT_FALSE(issuer->roster()->stopped());
}

TEST_F(GossipIssuerTest, AFileThatCannotBeVerifiedIsNotOverwritten) {
  join("cam-1", store::Role::kPeer);
  ASSERT_EQ(start(), "started");
  std::string text = read_text_file(state.roster(), 1 << 20).value();
  text[text.size() / 2] ^= 1;
  ASSERT_TRUE(write_durably(state.roster(), as_bytes(text)));
  issuer = make();
  EXPECT_EQ(issuer->roster(), nullptr);
  EXPECT_EQ(start(), "bad-roster");
  EXPECT_EQ(issuer->stop().error().code(), "bad-roster");
  EXPECT_EQ(read_text_file(state.roster(), 1 << 20).value(), text);
}

TEST_F(GossipIssuerTest, KeepsTheLastReportOfEach) {
  join("cam-1", store::Role::kPeer);
  ASSERT_EQ(start(), "started");
  issuer->desk().opened(SessionId(1), "cam-1");
  for (const std::uint64_t step : {7, 8}) {
    const protocol::PeerReport report{.epoch = 1, .step = step, .state = "training"};
    ASSERT_TRUE(issuer->desk().take(SessionId(1), {report, {}}));
  }
  ASSERT_EQ(issuer->reports().size(), 1U);
  EXPECT_EQ(issuer->reports().at("cam-1").report.step, 8U);
}

TEST(GossipRun, EveryKeyTravelsAndComesBack) {
  gossip::NetOptions options;
  options.algorithm.name = "choco";
  options.train.train.learning_rate = 0.1234567;
  options.data.dataset = "csv:C:\\data\\\"a\".csv";
  const auto run = parse_gossip_run("faces", gossip_run_to_toml(options), "NET.toml");
  ASSERT_TRUE(run) << run.error().message();
  config::Binder binder;
  options.bind(binder);
  EXPECT_EQ(run->settings, binder.settings());
  EXPECT_LE(run->settings.size(), identity::kRosterSettingsMax);
  EXPECT_EQ(parse_gossip_run("a b", "", "NET.toml").error().code(), "bad-name");
}

TEST(GossipRun, MembersAreReadFromLines) {
  const std::string key(64, 'a');
  const auto members = parse_members(
      "# who\ncam-1 " + key + " 10.0.0.1:7000\n\ncam-2 " + key + "  # no address\n", "members");
  ASSERT_TRUE(members) << members.error().message();
  ASSERT_EQ(members->size(), 2U);
  EXPECT_EQ((*members)[0].address, "10.0.0.1:7000");
  EXPECT_EQ((*members)[1].name, "cam-2");
  EXPECT_EQ((*members)[1].address, "");
  for (const std::string& bad :
       std::vector<std::string>{"cam-1\n", "cam-1 abc\n", "a/b " + key, "cam-1 " + key + " x y"}) {
    const auto read = parse_members("\n" + bad, "members");
    ASSERT_FALSE(read) << bad;
    EXPECT_EQ(read.error().code(), "members-malformed");
    EXPECT_NE(read.error().message().find("members:2"), std::string::npos);
  }
}

}  // namespace
}  // namespace starling::coordinator
