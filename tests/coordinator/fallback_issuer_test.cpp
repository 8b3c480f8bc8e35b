// SPDX-License-Identifier: Apache-2.0
#include "coordinator/service/fallback_issuer.h"

#include <gmock/gmock.h>

#include "gossip/fallback/fallback_terms.h"
#include "tests/coordinator/gossip_issuer_fixture.h"

namespace starling::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FallbackIssuerTest : public GossipIssuerFixture {
 public:
  static Job job(const std::string& topology = "ring") {
    Job job;
    job.training.data.classes = 10;
    job.fallback.topology = topology;
    job.fallback.lifetime = std::chrono::hours(2);
    return job;
  }
  // As the service tells of a client.
  void admit(const std::string& name) {
    join(name, store::Role::kPeer);
    fallback.members_changed();
  }
  // "NAME EPOCH", "NAME EPOCH stopped"
  std::string state() const {
    const identity::Roster* roster = issuer->roster();
    if (roster == nullptr) return "none";
    return roster->run + " " + std::to_string(roster->epoch) +
           (roster->stopped() ? " stopped" : "");
  }

  FallbackIssuer fallback{*issuer, log};
};

TEST_F(FallbackIssuerTest, TheRunsRosterStandsByFromItsStartToItsEnd) {
  admit("cam-1");
  fallback.run_trains(RunId(7), job());
  EXPECT_EQ(state(), "none") << "before the issuer has resumed";
  fallback.begin();
  EXPECT_EQ(state(), "fallback-of-run-7 1");
  const identity::Roster& roster = *issuer->roster();
  EXPECT_EQ(roster.expires - roster.issued, std::chrono::hours(2));
  const auto terms = gossip::read_fallback(roster.settings);
  ASSERT_TRUE(terms && *terms);
  EXPECT_EQ((*terms)->run, 7U);
  EXPECT_EQ((*terms)->classes, 10);
  admit("cam-2");
  EXPECT_EQ(state(), "fallback-of-run-7 2");
  EXPECT_EQ(names(), "cam-1 cam-2 ");
  fallback.run_trains(RunId(7), job());
  EXPECT_EQ(state(), "fallback-of-run-7 2") << "the same run again changes nothing";
  fallback.run_ended(RunId(6));
  EXPECT_EQ(state(), "fallback-of-run-7 2") << "another run";
  fallback.run_ended(RunId(7));
  EXPECT_EQ(state(), "fallback-of-run-7 3 stopped");
  admit("cam-3");
  EXPECT_TRUE(issuer->roster()->stopped()) << "nobody wants one any more";
}

TEST_F(FallbackIssuerTest, TheFirstRunKeepsItUntilItsEndAndTheNextOneFollows) {
  admit("cam-1");
  fallback.begin();
  for (int round = 0; round < 3; ++round) {
    fallback.run_trains(RunId(2), job());
    fallback.run_trains(RunId(1), job());
    fallback.run_trains(RunId(3), job(""));
    EXPECT_EQ(state(), "fallback-of-run-2 1") << round;
  }
  EXPECT_THAT(log.warnings, ElementsAre("run 1 has no fallback yet: that of run 2 goes first"));
  fallback.run_ended(RunId(3));
  EXPECT_EQ(state(), "fallback-of-run-2 1") << "a run without a fallback";
  fallback.run_ended(RunId(2));
  EXPECT_EQ(state(), "fallback-of-run-1 2");
  fallback.run_ended(RunId(1));
  EXPECT_EQ(state(), "fallback-of-run-1 3 stopped");
}

TEST_F(FallbackIssuerTest, ARunThatTrainsGoesBeforeOneThatWaitsForClients) {
  admit("cam-1");
  fallback.begin();
  fallback.run_loaded(RunId(1), job());
  EXPECT_EQ(state(), "fallback-of-run-1 1");
  fallback.run_loaded(RunId(2), job());
  EXPECT_EQ(state(), "fallback-of-run-1 1");
  fallback.run_trains(RunId(2), job());
  EXPECT_EQ(state(), "fallback-of-run-2 2");
  fallback.run_trains(RunId(1), job());
  EXPECT_EQ(state(), "fallback-of-run-2 2");
}

TEST_F(FallbackIssuerTest, ARunWhoseGraphCannotBeFormedLeavesItToTheNext) {
  for (const char* name : {"cam-1", "cam-2", "cam-3"}) admit(name);
  fallback.begin();
  fallback.run_trains(RunId(1), job());
  fallback.run_trains(RunId(2), job("hypercube"));
  fallback.run_trains(RunId(3), job());
  fallback.run_ended(RunId(1));
  EXPECT_EQ(state(), "fallback-of-run-3 2");
  fallback.run_ended(RunId(3));
  EXPECT_EQ(state(), "fallback-of-run-3 3 stopped");
}

TEST_F(FallbackIssuerTest, WhatAnEarlierProcessLeftEndsWhereNoRunWantsIt) {
  admit("cam-1");
  fallback.begin();
  fallback.run_trains(RunId(1), job());
  issuer = make();
  FallbackIssuer next(*issuer, log);
  next.begin();
  EXPECT_EQ(state(), "fallback-of-run-1 2 stopped");
}

TEST_F(FallbackIssuerTest, WhatAnEarlierProcessLeftGoesOnWithItsRun) {
  admit("cam-1");
  fallback.begin();
  fallback.run_trains(RunId(1), job());
  issuer = make();
  FallbackIssuer next(*issuer, log);
  next.run_trains(RunId(1), job());
  next.begin();
  EXPECT_EQ(state(), "fallback-of-run-1 1");
}

TEST_F(FallbackIssuerTest, ARestartLeavesItWithTheRunThatHadIt) {
  admit("cam-1");
  fallback.begin();
  fallback.run_trains(RunId(2), job());
  fallback.run_trains(RunId(1), job());
  issuer = make();
  FallbackIssuer next(*issuer, log);
  next.run_trains(RunId(1), job());
  next.run_trains(RunId(2), job());
  next.begin();
  EXPECT_EQ(state(), "fallback-of-run-2 1");
}

TEST_F(FallbackIssuerTest, AnOperatorsNetworkGoesFirst) {
  admit("cam-1");
  ASSERT_EQ(start(), "started");
  fallback.begin();
  fallback.run_trains(RunId(1), job());
  fallback.members_changed();
  EXPECT_EQ(state(), "faces 1");
  EXPECT_THAT(log.warnings, ElementsAre(HasSubstr("run 1 has no fallback yet: the gossip network "
                                                  "faces is running")));
  ASSERT_TRUE(issuer->stop());
  fallback.network_stopped();
  EXPECT_EQ(state(), "fallback-of-run-1 3");
  ASSERT_EQ(start(), "started") << "and again";
  EXPECT_EQ(state(), "faces 4");
  fallback.run_ended(RunId(1));
  EXPECT_EQ(state(), "faces 4") << "it is not the run's";
}

TEST_F(FallbackIssuerTest, ItIsTriedAgainWhenSomebodyJoins) {
  fallback.begin();
  fallback.run_trains(RunId(1), job());
  EXPECT_EQ(state(), "none");
  EXPECT_THAT(log.warnings,
              ElementsAre(HasSubstr("run 1 has no fallback yet: no device has joined")));
  admit("cam-1");
  EXPECT_EQ(state(), "fallback-of-run-1 1");
}

TEST_F(FallbackIssuerTest, WhoeverIsLastToGoTakesItAlong) {
  admit("cam-1");
  fallback.begin();
  fallback.run_trains(RunId(1), job());
  revoke("cam-1");
  fallback.members_changed();
  EXPECT_EQ(state(), "fallback-of-run-1 2 stopped");
  admit("cam-2");
  EXPECT_EQ(state(), "fallback-of-run-1 4");
  EXPECT_EQ(names(), "cam-2 ");
}

}  // namespace
}  // namespace starling::coordinator
