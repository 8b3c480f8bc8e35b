// SPDX-License-Identifier: Apache-2.0
#include "coordinator/service/gossip_issuer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/base/durable_file.h"
#include "core/net/deadline.h"
#include "tests/coordinator/gossip_issuer_fixture.h"
#include "tests/identity/earlier_roster.h"

namespace starling::coordinator {
namespace {

using std::chrono::minutes;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using GossipIssuerTest = GossipIssuerFixture;

net::Async<void> wait_for_epoch(net::EventLoop& loop, const GossipIssuer& issuer,
                                std::uint64_t epoch) {
  while (issuer.roster()->epoch < epoch) {
    const TimePoint next = loop.now() + std::chrono::milliseconds(1);
    co_await net::sleep_until(loop, next);
  }
}

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
  EXPECT_EQ(start("[topology]\nspec = \"d-cliques\"\n"), "algorithm-topology");
  join("cam-3", store::Role::kPeer);
  EXPECT_EQ(start("[topology]\nspec = \"ring\"\n[algorithm]\nname = \"relaysgd\"\n"),
            "algorithm-topology");
  EXPECT_EQ(issuer->stop().error().code(), "not-running");
  EXPECT_EQ(issuer->roster(), nullptr);
}

TEST_F(GossipIssuerTest, AMistypedTopologyIsNoMatterOfTheMembers) {
  join("cam-1", store::Role::kPeer);
  const auto run = parse_gossip_run("faces", "[topology]\nspec = \"rnig\"\n", "NET.toml");
  const std::string message = issuer->start(*run, std::chrono::minutes(10)).error().message();
  EXPECT_THAT(message, StartsWith("the topology 'rnig' is not known; there are "));
  EXPECT_THAT(message, EndsWith("did you mean 'ring'?"));
}

// Tokens of before that was checked may give one address twice.
TEST_F(GossipIssuerTest, TwoMembersWithOneAddressAreNamed) {
  join("cam-1", store::Role::kPeer, {"10.0.0.1:7000"});
  join("cam-2", store::Role::kDevice);
  join("cam-3", store::Role::kDevice);
  EXPECT_TRUE(issuer->check_addresses()) << "who has none shares none";
  join("cam-4", store::Role::kPeer, {"10.0.0.1:7000"});
  const auto checked = issuer->check_addresses();
  ASSERT_FALSE(checked);
  EXPECT_THAT(checked.error().message(), HasSubstr("10.0.0.1:7000 is the address of cam-1"));
  EXPECT_EQ(issuer->check_joining("cam-5", "10.0.0.1:7000").error().code(), "address-taken");
  EXPECT_TRUE(issuer->check_joining("cam-5", "10.0.0.1:7001"));
  revoke("cam-1");
  EXPECT_TRUE(issuer->check_addresses());
}

TEST_F(GossipIssuerTest, ADeviceWithDataOfAnotherShapeIsLeftOutAndNamed) {
  for (const char* name : {"p1", "p2", "p3", "p4"}) join(name, store::Role::kPeer);
  for (const char* name : {"p1", "p2", "p4"}) announce(name, {4}, 3);
  announce("p3", {3}, 3);
  ASSERT_EQ(start(), "started");
  EXPECT_EQ(names(), "p1 p2 p4 ");
  EXPECT_EQ(issuer->problem(),
            "1 of 4 clients cannot take part in this run (p3: its rows have another shape)");
  EXPECT_EQ(log.warnings, (std::vector<std::string>{"gossip network faces: " + issuer->problem()}));
  join("p5", store::Role::kPeer);
  join("p6", store::Role::kPeer);
  EXPECT_EQ(names(), "p1 p2 p4 p5 p6 ") << "they may be alike";
  announce("p5", {4}, 2);
  announce("p6", {4}, 4);
  issuer->members_changed();
  EXPECT_EQ(names(), "p1 p2 p4 ");
  EXPECT_EQ(issuer->problem(),
            "3 of 6 clients cannot take part in this run (p3: its rows have another shape, p5: it "
            "has fewer classes, p6: it has more classes)");
  // Mended, and connected again.
  announce("p3", {4}, 3);
  clock.time += GossipIssuer::kNewcomersEvery;
  issuer->greeted("p3");
  loop.run_task(wait_for_epoch(loop, *issuer, epoch() + 1));
  EXPECT_EQ(names(), "p1 p2 p3 p4 ");
}

TEST_F(GossipIssuerTest, AMemberThatConnectsWithAnotherShapeIsLeftOut) {
  for (const char* name : {"p1", "p2", "p3"}) {
    join(name, store::Role::kPeer);
    announce(name, {4}, 3);
  }
  ASSERT_EQ(start(), "started");
  issuer->greeted("p1");
  issuer->greeted("p2");
  announce("p2", {3}, 3);
  loop.run_task(wait_for_epoch(loop, *issuer, epoch() + 1));
  EXPECT_EQ(names(), "p1 p3 ");
  EXPECT_THAT(issuer->problem(), HasSubstr("p2: its rows have another shape"));
}

TEST_F(GossipIssuerTest, DevicesWithMoreColumnsThanTheRunNamesAreLeftOut) {
  for (const char* name : {"p1", "p2", "p3"}) {
    join(name, store::Role::kPeer);
    announce(name, {4}, 3);
  }
  announce("p3", {1, 2, 2}, 3);
  const std::string named = "[topology]\nspec = \"ring\"\n[data]\ncolumns = ";
  EXPECT_EQ(start(named + "[\"a\", \"b\", \"c\", \"d\"]\n"), "started");
  EXPECT_EQ(names(), "p1 p2 ");
  const auto run = parse_gossip_run("faces", named + "[\"a\", \"b\", \"c\"]\n", "NET.toml");
  ASSERT_TRUE(run) << run.error().message();
  announce("p3", {4}, 3);
  const auto refused = issuer->start(*run, minutes(10));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), "no-members");
  EXPECT_THAT(refused.error().message(),
              HasSubstr("p1: its rows have 4 columns, and data.columns names 3"));
}

// It could not tell a network that runs without it from one that does not run.
TEST_F(GossipIssuerTest, WhoIsLeftOutIsSentTheRosters) {
  for (const char* name : {"p1", "p2", "p3"}) {
    join(name, store::Role::kPeer);
    announce(name, {4}, 3);
  }
  announce("p3", {3}, 3);
  issuer->desk().opened(SessionId(3), "p3");
  ASSERT_EQ(start(), "started");
  EXPECT_EQ(std::ranges::count(sent, SessionId(3)), 1);
  issuer->members_changed();
  EXPECT_EQ(std::ranges::count(sent, SessionId(3)), 1) << "nothing is new";
  ASSERT_TRUE(issuer->stop());
  EXPECT_EQ(std::ranges::count(sent, SessionId(3)), 2);
  issuer->desk().opened(SessionId(4), "p3");
  EXPECT_EQ(std::ranges::count(sent, SessionId(4)), 0) << "no run leaves it out any more";
}

TEST_F(GossipIssuerTest, ARunOfWhichNoShapeIsThatOfMostIsRefused) {
  for (const char* name : {"p1", "p2"}) join(name, store::Role::kPeer);
  announce("p1", {4}, 3);
  announce("p2", {1, 28, 28}, 10);
  EXPECT_EQ(start(), "shapes-differ");
  const auto run = parse_gossip_run("faces", "[topology]\nspec = \"ring\"\n", "NET.toml");
  EXPECT_THAT(issuer->start(*run, minutes(10)).error().message(),
              HasSubstr("[1, 28, 28], 10 classes (p2), [4], 3 classes (p1)"));
  EXPECT_EQ(start("[model]\nkind = \"external\"\n"), "no-members") << "none has a trainer";
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

TEST_F(GossipIssuerTest, NewcomersShareAnEpochAndARevocationWaitsForNobody) {
  constexpr auto kPeer = store::Role::kPeer;
  join("cam-1", kPeer);
  ASSERT_EQ(start(), "started");
  join_at_once("cam-2", kPeer);
  EXPECT_EQ(epoch(), 2U) << "the first one for long";
  join_at_once("cam-3", kPeer);
  join_at_once("cam-4", kPeer);
  EXPECT_EQ(epoch(), 2U);
  clock.time += GossipIssuer::kNewcomersEvery;
  issuer->members_changed();
  EXPECT_EQ(epoch(), 3U);
  EXPECT_EQ(names(), "cam-1 cam-2 cam-3 cam-4 ");
  join_at_once("cam-5", kPeer);
  EXPECT_EQ(epoch(), 3U);
  revoke("cam-1");
  EXPECT_EQ(epoch(), 4U);
  EXPECT_EQ(names(), "cam-2 cam-3 cam-4 cam-5 ");
  clock.time += GossipIssuer::kNewcomersEvery - std::chrono::milliseconds(1);
  join_at_once("cam-6", kPeer);
  EXPECT_EQ(epoch(), 4U);
  clock.time += std::chrono::milliseconds(1);
  loop.run_task(wait_for_epoch(loop, *issuer, 5));  // nobody calls it
  EXPECT_EQ(names(), "cam-2 cam-3 cam-4 cam-5 cam-6 ");
}

constexpr const char* kHypercube = "[topology]\nspec = \"hypercube\"\n";

TEST_F(GossipIssuerTest, ANewcomerWaitsWhereTheGraphCannotBeFormedWithIt) {
  join("cam-2", store::Role::kPeer);
  join("cam-3", store::Role::kPeer);
  ASSERT_EQ(start(kHypercube), "started");
  join("cam-1", store::Role::kDevice);
  EXPECT_EQ(epoch(), 1U);
  EXPECT_EQ(names(), "cam-2 cam-3 ");
  issuer->members_changed();
  ASSERT_EQ(log.warnings.size(), 1U) << "once";
  EXPECT_THAT(log.warnings[0], HasSubstr("faces: waiting to be members: cam-1; it could not go on "
                                         "with 3 members: "));
  EXPECT_THAT(issuer->problem(), HasSubstr("cam-1"));
  clock.wall += minutes(6);
  issuer->members_changed();
  EXPECT_EQ(epoch(), 1U);
  EXPECT_EQ(issuer->roster()->issued, clock.wall) << "the members' roster is renewed meanwhile";
  join("cam-4", store::Role::kDevice);
  EXPECT_EQ(epoch(), 2U);
  EXPECT_EQ(names(), "cam-1 cam-2 cam-3 cam-4 ");
  EXPECT_EQ(issuer->problem(), "");
}

TEST_F(GossipIssuerTest, ARevocationGoesThroughAndWhoWaitedTakesThePlace) {
  for (const char* name : {"cam-1", "cam-2", "cam-3", "cam-4"}) join(name, store::Role::kPeer);
  ASSERT_EQ(start(kHypercube), "started");
  revoke("cam-2");
  EXPECT_EQ(names(), "cam-1 cam-3 cam-4 ") << "though the network cannot go on";
  EXPECT_THAT(issuer->problem(), HasSubstr("it cannot go on with 3 members: "));
  issuer = make();
  EXPECT_THAT(issuer->problem(), HasSubstr("it cannot go on with 3 members: "));
  join("cam-5", store::Role::kPeer);
  EXPECT_EQ(issuer->problem(), "");
  join("cam-6", store::Role::kPeer);
  join("cam-7", store::Role::kPeer);
  EXPECT_EQ(names(), "cam-1 cam-3 cam-4 cam-5 ");
  revoke("cam-4");
  EXPECT_EQ(names(), "cam-1 cam-3 cam-5 cam-6 ");
  EXPECT_THAT(issuer->problem(), HasSubstr("waiting to be members: cam-7; "));
  revoke("cam-6");
  EXPECT_EQ(names(), "cam-1 cam-3 cam-5 cam-7 ");
  EXPECT_EQ(issuer->problem(), "");
}

TEST_F(GossipIssuerTest, WhenNobodyIsLeftItIsStoppedOnceAndLeftToExpire) {
  join("cam-1", store::Role::kPeer);
  join("cam-2", store::Role::kPeer);
  ASSERT_EQ(start(), "started");
  ASSERT_TRUE(store->revoke_client("cam-1", clock.wall));
  revoke("cam-2");
  EXPECT_EQ(epoch(), 2U);
  EXPECT_TRUE(issuer->roster()->stopped());
  EXPECT_THAT(log.warnings, ::testing::ElementsAre(HasSubstr("it has no member left")));
  const WallTime issued = issuer->roster()->issued;
  clock.wall += minutes(8);
  issuer->members_changed();
  issuer = make();
  EXPECT_EQ(issuer->roster()->issued, issued);
  EXPECT_EQ(epoch(), 2U);
  EXPECT_EQ(log.warnings.size(), 1U);
  join("cam-3", store::Role::kPeer);
  EXPECT_EQ(names(), "cam-3 ");
  EXPECT_TRUE(issuer->roster()->stopped());
  EXPECT_EQ(start(), "started");
  EXPECT_EQ(epoch(), 4U);
}

TEST_F(GossipIssuerTest, ARejoinedNameHasANewKeyAndSoANewEpoch) {
  join("cam-1", store::Role::kPeer, {"10.0.0.1:7000"});
  join("cam-2", store::Role::kPeer);
  ASSERT_EQ(start(), "started");
  const Sha256Digest key = issuer->roster()->members[0].key;
  ASSERT_TRUE(store->revoke_client("cam-1", clock.wall));  // the issuer hears of both at once
  clock.wall += minutes(1);
  join("cam-1", store::Role::kPeer, {"10.0.0.1:7001"});
  EXPECT_EQ(epoch(), 2U);
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

// Devices keep checkpoints by the run's identity: what changes within a run keeps it, and a start
// begins another, whatever its name.
TEST_F(GossipIssuerTest, EveryStartBeginsARunOfItsOwn) {
  join("cam-1", store::Role::kPeer);
  ASSERT_EQ(start(), "started");
  const std::string first = issuer->roster()->run_identity();
  EXPECT_THAT(first, ::testing::StartsWith("faces "));
  join("cam-2", store::Role::kPeer);
  issuer = make();
  EXPECT_EQ(epoch(), 2U);
  EXPECT_EQ(issuer->roster()->run_identity(), first);
  ASSERT_TRUE(issuer->stop());
  ASSERT_EQ(start(), "started");
  EXPECT_EQ(issuer->roster()->run, "faces");
  const std::string second = issuer->roster()->run_identity();
  EXPECT_NE(second, first);
  ASSERT_EQ(start(), "started") << "in place of one that runs";
  EXPECT_NE(issuer->roster()->run_identity(), second);
}

TEST_F(GossipIssuerTest, RevokedKeysStandInEveryLaterRoster) {
  join("cam-1", store::Role::kPeer);
  ASSERT_EQ(start(), "started");
  EXPECT_TRUE(issuer->roster()->revoked.empty());
  const std::string stolen(64, '7');
  ASSERT_TRUE(write_durably(state.revoked(), as_bytes(stolen + "  # the first server\n")));
  issuer->members_changed();
  EXPECT_EQ(epoch(), 2U);
  EXPECT_EQ(issuer->roster()->revoked, std::vector{*Sha256Digest::parse(stolen)});
  issuer->members_changed();
  EXPECT_EQ(epoch(), 2U) << "nothing is new";
  ASSERT_TRUE(write_durably(state.revoked(), as_bytes(std::string("cam-2\n"))));
  issuer->members_changed();
  EXPECT_EQ(epoch(), 2U) << "what cannot be read changes nothing";
  EXPECT_EQ(start(), "revoked-malformed");
  std::filesystem::remove(state.revoked());
  ASSERT_TRUE(issuer->stop());
  EXPECT_EQ(issuer->roster()->revoked.size(), 1U) << "members take none that leaves it out";
}

TEST_F(GossipIssuerTest, ARevokedKeySignsNothingUntilItIsReplaced) {
  join("cam-1", store::Role::kPeer);
  ASSERT_EQ(start(), "started");
  const auto stolen = issuer->desk().roster()->signer_key();
  ASSERT_TRUE(write_durably(state.revoked(), as_bytes(stolen.hex() + "\n")));
  issuer->members_changed();
  EXPECT_EQ(epoch(), 1U);
  EXPECT_EQ(start(), "roster-revoked");
  const Error why = issuer->stop().error();
  EXPECT_NE(why.message().find("remove issuer-key.pem"), std::string::npos) << why.message();
  issuer->set_credentials(
      *authority.issue_credentials({.role = identity::Role::kIssuer, .name = "hub"}, clock.wall));
  issuer->members_changed();
  EXPECT_EQ(epoch(), 2U);
  EXPECT_EQ(issuer->roster()->revoked, std::vector{stolen});
  EXPECT_NE(issuer->desk().roster()->signer_key(), stolen);
}

// Devices that have an update too, and do not hold it yet, would not take it.
TEST_F(GossipIssuerTest, ARosterThatTheServersKeySignedIsRenewedAtOnce) {
  join("cam-1", store::Role::kPeer);
  ASSERT_EQ(start(), "started");
  const auto coordinator = *authority.issue_credentials(
      {.role = identity::Role::kCoordinator, .name = "coordinator", .addresses = {"h"}},
      clock.wall);
  for (const bool stopped : {false, true}) {
    if (stopped) {
      ASSERT_TRUE(issuer->stop());
    }
    const identity::Roster before = *issuer->roster();
    const std::string earlier = testing::signed_again(*issuer->desk().roster(), coordinator);
    ASSERT_TRUE(write_durably(state.roster(), as_bytes(earlier)));
    issuer = make();
    EXPECT_EQ(issuer->desk().roster()->signer().role, identity::Role::kIssuer);
    EXPECT_EQ(issuer->roster()->epoch, before.epoch + 1)
        << "none of the same instant takes its place in its epoch";
    ASSERT_TRUE(write_durably(state.roster(), as_bytes(earlier)));
    clock.wall += minutes(1);
    issuer = make();
    const identity::SignedRoster& renewed = *issuer->desk().roster();
    EXPECT_EQ(renewed.signer().role, identity::Role::kIssuer);
    EXPECT_TRUE(renewed.roster().replaces(before)) << "so members go on within their epoch";
    EXPECT_EQ(renewed.roster().epoch, before.epoch);
    EXPECT_TRUE(identity::SignedRoster::load(state.roster(), std::span(&authority.certificate(), 1),
                                             "test"));
  }
}

// It may have to reach members that take no roster of this service.
TEST_F(GossipIssuerTest, ARosterThatTheOwnerSignedIsRenewedAtHalfOfItsLife) {
  join("cam-1", store::Role::kPeer);
  ASSERT_EQ(start(), "started");
  const auto owner = *authority.issue_credentials(
      {.role = identity::Role::kIssuer, .name = std::string(identity::kOwnerName)}, clock.wall);
  ASSERT_TRUE(identity::SignedRoster::sign(*issuer->roster(), owner)->save(state.roster()));
  clock.wall += minutes(1);
  issuer = make();
  EXPECT_EQ(issuer->desk().roster()->signer().name, identity::kOwnerName);
  clock.wall += minutes(4);
  issuer->members_changed();
  EXPECT_EQ(issuer->desk().roster()->signer().name, "coordinator");
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

// A peer that waits, or is at the end of the run, reports no steps.
TEST_F(GossipIssuerTest, KeepsTheLastLossOfEachForTheRun) {
  join("cam-1", store::Role::kPeer);
  join("cam-2", store::Role::kPeer);
  ASSERT_EQ(start(), "started");
  issuer->desk().opened(SessionId(1), "cam-1");
  const auto loss_after = [&](const protocol::PeerReport& report) {
    EXPECT_TRUE(issuer->desk().take(SessionId(1), {report, {}}));
    const protocol::PeerReport& kept = issuer->reports().at("cam-1").report;
    return kept.loss_steps > 0 ? kept.loss : -1;
  };
  EXPECT_EQ(loss_after({.epoch = 1}), -1);
  EXPECT_EQ(loss_after({.epoch = 1, .loss = 0.5, .loss_steps = 10}), 0.5);
  EXPECT_EQ(loss_after({.epoch = 1, .state = "finished"}), 0.5);
  revoke("cam-2");
  EXPECT_EQ(loss_after({.epoch = 2, .state = "finished"}), 0.5);
  ASSERT_EQ(start(), "started");
  EXPECT_EQ(loss_after({.epoch = 3}), -1) << "of another run";
}

TEST_F(GossipIssuerTest, AMemberThatCountsEpochsUpGetsOneLine) {
  join("cam-1", store::Role::kPeer);
  ASSERT_EQ(start(), "started");
  issuer->desk().opened(SessionId(1), "cam-1");
  const std::size_t before = log.warnings.size();
  for (std::uint64_t epoch = 30; epoch < 80; ++epoch) {
    ASSERT_TRUE(issuer->desk().take(
        SessionId(1), {protocol::PeerReport{.epoch = epoch, .state = "training"}, {}}));
  }
  EXPECT_EQ(log.warnings.size(), before + 1);
  EXPECT_NE(issuer->problem().find("cam-1 holds a roster of epoch 79"), std::string::npos);
}

// An owner may have signed rosters without this service.
TEST_F(GossipIssuerTest, MembersOfALaterEpochAreNamedAndOvertaken) {
  join("cam-1", store::Role::kPeer);
  ASSERT_EQ(start(), "started");
  issuer->desk().opened(SessionId(1), "cam-1");
  const auto report = [&](std::uint64_t epoch) {
    ASSERT_TRUE(issuer->desk().take(
        SessionId(1), {protocol::PeerReport{.epoch = epoch, .state = "training"}, {}}));
  };
  report(30);
  EXPECT_TRUE(issuer->reports().empty()) << "it is of another network";
  EXPECT_NE(issuer->problem().find("cam-1 holds a roster of epoch 30"), std::string::npos);
  ASSERT_EQ(start(), "started");
  EXPECT_EQ(issuer->roster()->epoch, 31U);
  EXPECT_EQ(issuer->problem(), "");
  report(30);
  EXPECT_EQ(issuer->problem(), "") << "it has not heard yet";
  report(31);
  EXPECT_EQ(issuer->reports().size(), 1U);
  report(std::uint64_t{1} << 53);
  ASSERT_EQ(start(), "started");
  EXPECT_EQ(issuer->roster()->epoch, 1'000'031U) << "no claim uses up the epochs";
}

TEST(GossipRun, EveryKeyTravelsAndComesBack) {
  gossip::NetOptions options;
  options.algorithm.name = "choco";
  options.robust.rule = "clip";
  options.robust.bad = 2;
  options.train.train.learning_rate = 0.1234567;
  options.data.dataset = "csv:C:\\data\\\"a\".csv";
  options.model.kind = "external";
  options.trainer.settings = R"({"hidden":200})";
  options.network.links = "links.csv";
  options.nodes.speeds = "speeds.csv";
  options.nodes.presence = "presence.csv";
  options.evaluate.hold_out = 0.5;
  const auto run = parse_gossip_run("faces", gossip_run_to_toml(options), "NET.toml");
  ASSERT_TRUE(run) << run.error().message();
  config::Binder binder;
  options.bind(binder);
  gossip::NetOptions at_device;
  config::Binder of_device;
  at_device.bind(of_device);
  ASSERT_TRUE(of_device.set(run->settings));
  EXPECT_EQ(of_device.settings(), binder.settings());
  EXPECT_LE(run->settings.size(), identity::kRosterSettingsMax);
  EXPECT_EQ(parse_gossip_run("a b", "", "NET.toml").error().code(), "bad-name");
  // Devices of an earlier version do not know them.
  const auto without =
      parse_gossip_run("faces", "[attack]\nkind = \"alie\"\n[robust]\nbad = 1", "NET.toml");
  for (const auto& [key, value] : without->settings) {
    EXPECT_FALSE(key.starts_with("robust.") || key.starts_with("attack.") ||
                 key == "trainer.settings" || key == "network.links" || key == "nodes.speeds" ||
                 key == "nodes.presence" || key == "evaluate.hold-out")
        << key;
  }
}

TEST(GossipRun, ModelsBeginApartOrAsTheTrainersMakeThem) {
  EXPECT_TRUE(parse_gossip_run("faces", "[model]\ninitial = \"spread=1\"", "NET.toml"));
  for (const char* model : {"initial = \"m\"", "kind = \"external\"\ninitial = \"m\"",
                            "kind = \"external\"\ninitial = \"spread=1\""}) {
    const auto run = parse_gossip_run("faces", std::string("[model]\n") + model, "NET.toml");
    EXPECT_EQ(run.error().code(), "setting-invalid") << model;
  }
}

TEST(GossipRun, MembersAreReadFromLines) {
  const std::string key(64, 'a');
  const std::string other(64, 'b');
  const auto members = parse_members(
      "# who\ncam-1 " + key + " 10.0.0.1:7000\n\ncam-2 " + other + "  # no address\n", "members");
  ASSERT_TRUE(members) << members.error().message();
  ASSERT_EQ(members->size(), 2U);
  EXPECT_EQ((*members)[0].address, "10.0.0.1:7000");
  EXPECT_EQ((*members)[1].name, "cam-2");
  EXPECT_EQ((*members)[1].address, "");
  for (const std::string& bad :
       std::vector<std::string>{"cam-1\n", "cam-1 abc\n", "a/b " + key, "cam-1 " + key + " x y",
                                "cam-1 " + key + " 10.0.0.1", "cam-0 " + key, "cam-1 " + other,
                                "cam-1 " + key + " 0.0.0.0:7000", "cam-1 " + key + " a:7000"}) {
    const auto read = parse_members("cam-0 " + other + " a:7000\n" + bad, "members");
    ASSERT_FALSE(read) << bad;
    EXPECT_EQ(read.error().code(), "members-malformed");
    EXPECT_THAT(read.error().message(), HasSubstr("members:2")) << bad;
  }
  EXPECT_THAT(parse_members("# nobody\n", "members").error().message(),
              HasSubstr("members names no members"));
}

}  // namespace
}  // namespace starling::coordinator
