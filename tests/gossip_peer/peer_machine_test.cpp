// SPDX-License-Identifier: Apache-2.0
// What a peer decides, event by event, without a network.
#include "gossip/peer/peer_machine.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/digest.h"
#include "core/issuer/roster_parts.h"
#include "gossip/algorithms/mass_ledger.h"
#include "gossip/collective/reduce_shape.h"
#include "gossip/fallback/fallback_terms.h"
#include "tests/gossip_peer/machine_bench.h"

namespace starling::gossip {
namespace {

using namespace std::chrono_literals;
using peer::Source;
using protocol::PeerHello;
using protocol::VectorTransfer;
using starling::testing::MachineBench;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pointwise;
using ::testing::SizeIs;
using ::testing::StartsWith;

// --- rosters ------------------------------------------------------------------------------------

TEST(PeerMachine, BeginsTheRunOfItsRoster) {
  MachineBench peer;
  peer.links = {{1, PeerHello{.software = "other"}}};
  EXPECT_EQ(peer.state(), "joining");
  EXPECT_EQ(peer.machine.next_deadline(), std::nullopt);
  peer.give(peer.world.roster(1));
  EXPECT_THAT(peer.of<peer::KeepRoster>(), SizeIs(1));
  EXPECT_THAT(peer.of<peer::SetRoster>(), SizeIs(1));
  ASSERT_THAT(peer.of<peer::Prepare>(), SizeIs(1));
  EXPECT_TRUE(peer.of<peer::Prepare>()[0].wants_checkpoint);
  EXPECT_EQ(peer.of<peer::KeepLinks>().back().members, (std::set<protocol::Member>{1, 2}));
  EXPECT_EQ(peer.trainings, 1);
  const auto hellos = peer.sent<PeerHello>(1);
  ASSERT_THAT(hellos, SizeIs(2)) << "of the roster, then of the run";
  EXPECT_EQ(hellos[0].epoch, 1U);
  EXPECT_TRUE(hellos[1].begun);
  EXPECT_THAT(peer.sent<protocol::RosterAsk>(1), SizeIs(1));
}

TEST(PeerMachine, AnOlderRosterChangesNothing) {
  MachineBench peer;
  const auto older = peer.world.roster(1);
  peer.give(peer.world.roster(2));
  peer.clear();
  peer.give(older);
  peer.give(older, Source::kOther);
  peer.give(peer.world.roster(2));
  EXPECT_THAT(peer.actions, IsEmpty());
  EXPECT_EQ(peer.machine.roster()->epoch, 2U);
}

TEST(PeerMachine, ARosterThatContradictsTheOneHeldIsNamedAndNotTaken) {
  MachineBench peer;
  peer.give(peer.world.roster(2));
  peer.clear();
  identity::Roster other = peer.world.roster(2, {0, 1}).roster();
  other.issued += 1s;
  peer.give(peer.world.sign(other));
  EXPECT_THAT(peer.of<peer::SetRoster>(), IsEmpty());
  EXPECT_TRUE(peer.said("says other things"));
  EXPECT_THAT(peer.machine.roster()->members, SizeIs(3));
}

TEST(PeerMachine, ARenewedRosterEndsNothing) {
  MachineBench peer;
  peer.give(peer.world.roster(2));
  const EpochSession* session = peer.machine.session();
  peer.clear();
  identity::Roster renewed = peer.world.roster(2).roster();
  renewed.issued += 1s;
  renewed.expires += 1s;
  peer.give(peer.world.sign(renewed));
  EXPECT_THAT(peer.of<peer::KeepRoster>(), SizeIs(1));
  EXPECT_THAT(peer.of<peer::SetRoster>(), SizeIs(1));
  EXPECT_EQ(peer.of<peer::KeepLinks>().back().members, (std::set<protocol::Member>{1, 2}));
  EXPECT_THAT(peer.of<peer::Prepare>(), IsEmpty());
  EXPECT_EQ(peer.machine.session(), session);
}

// Its local phase is trained once: it waits to be mixed in the next epoch.
TEST(PeerMachine, ANewerRosterWaitsForTheLocalPhaseAtWork) {
  MachineBench peer;
  peer.give(peer.world.roster(1));
  ASSERT_EQ(peer.trainings, 1);
  peer.clear();
  peer.links = {{1, PeerHello{}}};
  peer.give(peer.world.roster(2));
  EXPECT_THAT(peer.of<peer::SetRoster>(), SizeIs(1));
  EXPECT_THAT(peer.of<peer::Prepare>(), IsEmpty());
  EXPECT_EQ(peer.machine.hello().epoch, 2U);
  EXPECT_FALSE(peer.machine.hello().begun) << "it is in no run of that roster";
  EXPECT_FALSE(peer.machine.check(1, {.epoch = 1, .content = protocol::MixMessage{}}));
  // Members are those of the next epoch, of which the session knows nothing.
  peer.clear();
  peer.hear(1, protocol::ColumnsAsk{.epoch = 1, .begin = 0, .end = 4});
  peer.tick(5s);
  EXPECT_THAT(peer.of<peer::SendTransfer>(), IsEmpty());
  EXPECT_THAT(peer.of<peer::Reach>(), IsEmpty());
  peer.compute();
  ASSERT_THAT(peer.of<peer::Prepare>(), SizeIs(1));
  EXPECT_EQ(peer.machine.session()->epoch(), 2U);
  while (!peer.computations.empty()) peer.compute();
  EXPECT_EQ(peer.trainings, 1);
  EXPECT_EQ(peer.local_steps_made, 1) << "the order of batches continues";
  const auto messages = peer.transfers<protocol::MixMessage>();
  ASSERT_THAT(messages, SizeIs(2));
  EXPECT_EQ(messages[0].send.transfer.epoch, 2U);
  EXPECT_EQ(messages[0].content.exchange, 0U);
}

// Where the model of the phase is that of a session that ends, nothing is trained in it any more.
TEST(PeerMachine, NothingIsTrainedForAnEpochThatIsOver) {
  MachineBench peer;
  peer.give(peer.world.roster(1));
  peer.compute();
  peer.hear_model(1, 0);
  peer.hear_model(2, 0);
  ASSERT_THAT(peer.computations, SizeIs(1)) << "it mixes";
  peer.clear();
  peer.give(peer.world.roster(2));
  peer.compute();
  EXPECT_EQ(peer.machine.session()->epoch(), 2U);
  EXPECT_EQ(peer.exchange(), 1U);
  while (peer.trainings == 1) peer.compute();
  EXPECT_EQ(peer.trainings, 2);
  EXPECT_THAT(peer.of<peer::KeepCheckpoint>(), SizeIs(1));
}

TEST(PeerMachine, AnEpochThatIsOverBeforeItBeganIsPassedOver) {
  MachineBench peer;
  peer.prepares = false;
  peer.give(peer.world.roster(1));
  const auto first = peer.of<peer::Prepare>();
  ASSERT_THAT(first, SizeIs(1));
  peer.clear();
  peer.give(peer.world.roster(2));
  EXPECT_THAT(peer.of<peer::CancelPreparation>(), SizeIs(1));
  EXPECT_THAT(peer.of<peer::Prepare>(), IsEmpty()) << "one at a time";
  peer.feed(peer.prepared(first[0]));
  EXPECT_EQ(peer.machine.session(), nullptr);
  const auto second = peer.of<peer::Prepare>();
  ASSERT_THAT(second, SizeIs(1));
  EXPECT_EQ(second[0].roster->roster().epoch, 2U);
  peer.feed(peer.prepared(second[0]));
  ASSERT_NE(peer.machine.session(), nullptr);
  EXPECT_EQ(peer.machine.session()->epoch(), 2U);
}

TEST(PeerMachine, ARosterPassesFromPeerToPeer) {
  MachineBench peer;
  peer.give(peer.world.roster(1));
  peer.clear();
  const auto next = peer.world.roster(2);
  const auto ask = issuer::ask_for_newer(peer.machine.roster().get());
  for (const auto& part : issuer::roster_parts(next, ask)) {
    peer.feed(peer::MessageReceived{1, part});
  }
  EXPECT_EQ(peer.machine.roster()->epoch, 2U);
  peer.clear();
  peer.hear(2, ask);
  EXPECT_THAT(peer.sent<protocol::RosterPart>(2), SizeIs(1));
  peer.clear();
  peer.hear(2, issuer::ask_for_newer(peer.machine.roster().get()));
  EXPECT_THAT(peer.sent<protocol::RosterPart>(2), IsEmpty()) << "it holds that one";
}

// By turns, as its log compares no more than a line with the last one.
TEST(PeerMachine, AMemberThatSendsTwoKindsOfWrongRostersIsNamedOnce) {
  MachineBench peer;
  peer.give(peer.world.roster(1));
  const auto contradicting = peer.world.roster(1, {1, 2});
  const auto beyond = peer.world.roster(identity::kRosterEpochMax);
  for (const protocol::Member from : {1, 1, 1, 2}) {
    for (const auto& wrong : {contradicting, beyond}) {
      for (const auto& part : issuer::roster_parts(wrong, {})) {
        peer.feed(peer::MessageReceived{from, part});
      }
    }
  }
  std::vector<std::string> lines;
  for (const auto& said : peer.of<peer::Say>()) {
    if (said.line.find("is not taken") != std::string::npos) lines.push_back(said.line);
  }
  EXPECT_THAT(lines, ElementsAre(StartsWith("a roster that node-02 sent is not taken: "),
                                 StartsWith("a roster that node-03 sent is not taken: ")));
  EXPECT_EQ(peer.machine.roster()->epoch, 1U);
}

TEST(PeerMachine, WhoIsNoMemberWaitsForAnotherRoster) {
  MachineBench peer;
  peer.give(peer.world.roster(1, {1, 2}));
  EXPECT_THAT(peer.of<peer::Prepare>(), IsEmpty());
  EXPECT_EQ(peer.state(), "refused");
  EXPECT_EQ(peer.machine.report(peer.now, peer.wall).problem,
            "this device is not a member of run run-1: its operator sees why with "
            "'starling-coordinator gossip show'");
  peer.give(peer.world.roster(2));
  EXPECT_EQ(peer.state(), "training");
  EXPECT_EQ(peer.machine.report(peer.now, peer.wall).problem, "");
}

TEST(PeerMachine, WhoIsTakenOutAndInAgainTrainsNothingTwice) {
  MachineBench peer;
  peer.give(peer.world.roster(1));
  peer.compute();
  peer.give(peer.world.roster(2, {1, 2}));
  EXPECT_EQ(peer.machine.session(), nullptr);
  EXPECT_EQ(peer.of<peer::KeepLinks>().size(), 1U);
  peer.give(peer.world.roster(3));
  while (!peer.computations.empty()) peer.compute();
  EXPECT_EQ(peer.trainings, 1);
}

TEST(PeerMachine, AStoppedRunKeepsItsModelAndSaysHowFarItCame) {
  MachineBench peer;
  peer.give(peer.world.roster(1));
  peer.compute();
  peer.clear();
  peer.give(peer.world.stopped_roster(2));
  const auto kept = peer.of<peer::KeepCheckpoint>();
  ASSERT_THAT(kept, SizeIs(1));
  EXPECT_TRUE(kept[0].model_too);
  EXPECT_EQ(peer.machine.session(), nullptr);
  EXPECT_EQ(peer.state(), "ended");
}

// As where it holds a roster that was signed by hand, and its coordinator stops another network.
TEST(PeerMachine, SaysWhereItEndedThoughTheRosterStopsAnotherRun) {
  MachineBench peer;
  peer.give(peer.world.roster(1, {}, 24h, "other"));
  peer.compute();
  for (const protocol::Member member : {1, 2}) peer.hear_model(member, 0);
  peer.compute();
  peer.give(peer.world.stopped_roster(2));
  while (!peer.computations.empty()) peer.compute();
  const protocol::PeerReport report = peer.machine.report(peer.now, peer.wall);
  EXPECT_EQ(report.state, "ended");
  EXPECT_EQ(report.step, 1U);
  EXPECT_EQ(report.problem, "it ended in step 1 of run other");
}

// --- expiry and clocks --------------------------------------------------------------------------

TEST(PeerMachine, WhoseClockIsRightAgainRefusesNothing) {
  MachineBench peer;
  peer.give(peer.world.roster(1, {}, 1min));
  peer.wall += 48h;
  peer.tick(1s);
  peer.compute();  // the phase at work
  EXPECT_EQ(peer.state(), "refused");
  peer.wall -= 48h;
  peer.clear();
  peer.tick(1s);
  EXPECT_TRUE(peer.said("the roster holds by this device's clock"));
  const auto reports = peer.of<peer::Report>();
  EXPECT_FALSE(reports.empty());
  for (const auto& sent : reports) EXPECT_NE(sent.report.state, "refused");
}

TEST(PeerMachine, AnExpiredRosterSilencesUntilALaterOneComes) {
  MachineBench peer;
  peer.links = {{1, PeerHello{}}};
  peer.give(peer.world.roster(1, {}, 1min));
  ASSERT_EQ(peer.trainings, 1);
  peer.clear();
  peer.tick(61s);
  const auto set = peer.of<peer::SetRoster>();
  ASSERT_THAT(set, SizeIs(1));
  EXPECT_EQ(set[0].roster, nullptr);
  peer.links.clear();
  peer.clear();
  peer.compute();  // the phase at work
  peer.tick(10s);
  EXPECT_EQ(peer.machine.session(), nullptr);
  EXPECT_EQ(peer.state(), "refused");
  EXPECT_THAT(peer.machine.report(peer.now, peer.wall).problem,
              ::testing::StartsWith("the roster expired at"));
  EXPECT_THAT(peer.of<peer::Send>(), IsEmpty());
  EXPECT_THAT(peer.of<peer::SetRoster>(), IsEmpty()) << "once";
  identity::Roster later = peer.world.roster(2).roster();
  later.issued = std::chrono::floor<std::chrono::milliseconds>(peer.wall);
  peer.give(peer.world.sign(later), Source::kOther);
  while (!peer.computations.empty()) peer.compute();
  EXPECT_EQ(peer.trainings, 1) << "and goes on with the phase that is not mixed yet";
  EXPECT_EQ(peer.state(), "waiting");
  EXPECT_EQ(peer.machine.report(peer.now, peer.wall).problem, "");
}

TEST(PeerMachine, AClockThatWasAheadForAMomentSilencesForThatMomentOnly) {
  MachineBench peer;
  peer.links = {{1, PeerHello{}}};
  peer.give(peer.world.roster(1, {}, 1h), Source::kOther);
  peer.wall += 2h;
  peer.tick(1s);
  EXPECT_EQ(peer.of<peer::SetRoster>().back().roster, nullptr);
  peer.compute();
  EXPECT_EQ(peer.state(), "refused");
  peer.wall -= 2h;
  peer.tick(10s);
  EXPECT_NE(peer.of<peer::SetRoster>().back().roster, nullptr);
  while (!peer.computations.empty()) peer.compute();
  EXPECT_EQ(peer.trainings, 1) << "and goes on with the phase that is not mixed yet";
  EXPECT_EQ(peer.state(), "waiting");
  EXPECT_EQ(peer.machine.report(peer.now, peer.wall).problem, "");
}

TEST(PeerMachine, AClockThatIsAnHourOffSilencesNobodyWhomTheIssuerSpeaksTo) {
  for (const auto off : {1h, -1h}) {
    MachineBench peer;
    peer.wall += off;
    peer.give(peer.world.roster(1, {}, 10min));
    peer.tick(9min);
    EXPECT_EQ(peer.state(), "training");
    peer.tick(2min);
    EXPECT_EQ(peer.of<peer::SetRoster>().back().roster, nullptr);
  }
  MachineBench ahead;
  ahead.wall += 1h;
  ahead.give(ahead.world.roster(1, {}, 10min), Source::kOther);
  EXPECT_EQ(ahead.state(), "refused");
}

// --- computations -------------------------------------------------------------------------------

TEST(PeerMachine, ClosesOnceThePhaseAtWorkIsDone) {
  MachineBench peer;
  peer.give(peer.world.roster(1));
  peer.clear();
  peer.feed(peer::Close{});
  EXPECT_THAT(peer.of<peer::Closed>(), IsEmpty());
  peer.give(peer.world.roster(2));
  EXPECT_EQ(peer.machine.roster()->epoch, 1U);
  peer.compute();
  ASSERT_THAT(peer.of<peer::KeepCheckpoint>(), SizeIs(1));
  EXPECT_FALSE(peer.of<peer::KeepCheckpoint>()[0].model_too) << "the run is not over";
  ASSERT_THAT(peer.of<peer::Closed>(), SizeIs(1));
  EXPECT_TRUE(std::holds_alternative<peer::Closed>(peer.actions.back()));
  EXPECT_EQ(peer.trainings, 1);
  EXPECT_EQ(peer.machine.next_deadline(), std::nullopt);
}

TEST(PeerMachine, ClosesAnywayWhereThePhaseTakesTooLong) {
  MachineBench peer;
  peer.give(peer.world.roster(1));
  peer.clear();
  peer.feed(peer::Close{});
  EXPECT_EQ(peer.machine.next_deadline(), peer.now + PeerMachine::kLastComputation);
  peer.tick(PeerMachine::kLastComputation - 1ms);
  EXPECT_THAT(peer.of<peer::Closed>(), IsEmpty());
  peer.tick(1ms);
  EXPECT_THAT(peer.of<peer::Closed>(), SizeIs(1));
  peer.compute();
  EXPECT_THAT(peer.of<peer::Closed>(), SizeIs(1)) << "once";
}

TEST(PeerMachine, ClosesWhileARunIsPrepared) {
  MachineBench peer;
  peer.prepares = false;
  peer.give(peer.world.roster(1));
  const auto prepare = peer.of<peer::Prepare>();
  peer.clear();
  peer.feed(peer::Close{});
  EXPECT_THAT(peer.of<peer::CancelPreparation>(), SizeIs(1));
  EXPECT_THAT(peer.of<peer::Closed>(), IsEmpty());
  peer.feed(peer.prepared(prepare[0]));
  EXPECT_THAT(peer.of<peer::Closed>(), SizeIs(1));
  EXPECT_EQ(peer.machine.session(), nullptr);
}

TEST(PeerMachine, KeepsACheckpointNowAndThen) {
  MachineBench peer;
  peer.give(peer.world.roster(1));
  for (protocol::Exchange exchange = 0; exchange < 2; ++exchange) {
    EXPECT_THAT(peer.of<peer::KeepCheckpoint>(), IsEmpty());
    if (exchange == 1) peer.pass(31s);
    peer.compute();
    peer.hear_model(1, exchange);
    peer.hear_model(2, exchange);
    peer.compute();
  }
  const auto kept = peer.of<peer::KeepCheckpoint>();
  ASSERT_THAT(kept, SizeIs(1));
  EXPECT_EQ(kept[0].checkpoint->exchange, 2U);
  EXPECT_EQ(kept[0].checkpoint->run, peer.machine.roster()->run_identity());
}

// --- checkpoints --------------------------------------------------------------------------------

peer::CheckpointKept not_kept(const peer::KeepCheckpoint& asked) {
  return {asked.checkpoint, overloaded("disk-full", "no space left on device")};
}

// Of the two on a ring of three.
void finish_only_step(MachineBench& peer) {
  peer.compute();
  for (const protocol::Member neighbour : {1, 2}) peer.hear_model(neighbour, 0);
  peer.compute();
}

// Until then, whatever else is kept: the roster expires, and there is room again.
TEST(PeerMachine, AFinishedRunsModelIsOwedUntilItIsWritten) {
  MachineBench peer(testing::small_network_of_steps(1, "ring", 3));
  peer.give(peer.world.roster(1, {}, 10s));
  finish_only_step(peer);
  const auto asked = peer.of<peer::KeepCheckpoint>();
  ASSERT_THAT(asked, SizeIs(1));
  peer.feed(not_kept(asked[0]));
  peer.clear();
  peer.tick(40s);
  for (const auto& kept : peer.of<peer::KeepCheckpoint>()) EXPECT_TRUE(kept.model_too);
  EXPECT_FALSE(peer.of<peer::KeepCheckpoint>().empty());
}

TEST(PeerMachine, AFinishedRunIsKeptAgainUntilItSucceeds) {
  MachineBench peer(testing::small_network_of_steps(1, "ring", 3));
  peer.give(peer.world.roster(1));
  finish_only_step(peer);
  ASSERT_TRUE(peer.machine.is_finished());
  const auto asked = peer.of<peer::KeepCheckpoint>();
  ASSERT_THAT(asked, SizeIs(1));
  peer.feed(not_kept(asked[0]));
  const auto problem = [&] { return peer.machine.report(peer.now, peer.wall).problem; };
  EXPECT_THAT(problem(), HasSubstr("no space left on device; tried again every 30s"));
  for (int failures = 1; failures < 3; ++failures) {
    peer.clear();
    peer.tick(29s);
    EXPECT_THAT(peer.of<peer::KeepCheckpoint>(), IsEmpty());
    ASSERT_LE(peer.machine.next_deadline(), peer.now + 1s);
    peer.tick(1s);
    const auto again = peer.of<peer::KeepCheckpoint>();
    ASSERT_THAT(again, SizeIs(1));
    EXPECT_TRUE(again[0].model_too);
    EXPECT_EQ(again[0].checkpoint, asked[0].checkpoint);
    const std::string other = "cannot write another file: no space left on device";
    peer.feed(peer::CheckpointKept{again[0].checkpoint, overloaded("disk-full", other)});
    EXPECT_FALSE(peer.said("not kept")) << "once is enough";
    EXPECT_THAT(problem(), HasSubstr(other));
  }
  peer.clear();
  peer.feed(peer::CheckpointKept{asked[0].checkpoint, {}});
  EXPECT_EQ(problem(), "");
  EXPECT_TRUE(peer.said("the checkpoint is kept now"));
  peer.tick(10min);
  EXPECT_THAT(peer.of<peer::KeepCheckpoint>(), IsEmpty());
}

// Its session is over, so that nothing else remembers its model.
TEST(PeerMachine, AStoppedRunThatIsNotKeptIsKeptAtTheClose) {
  MachineBench peer;
  peer.give(peer.world.roster(1));
  peer.compute();
  peer.clear();
  peer.give(peer.world.stopped_roster(2));
  const auto asked = peer.of<peer::KeepCheckpoint>();
  ASSERT_THAT(asked, SizeIs(1));
  peer.feed(not_kept(asked[0]));
  peer.clear();
  peer.feed(peer::Close{});
  const auto again = peer.of<peer::KeepCheckpoint>();
  ASSERT_THAT(again, SizeIs(1));
  EXPECT_TRUE(again[0].model_too);
}

TEST(PeerMachine, AnAnswerForAnEarlierCheckpointChangesNothing) {
  MachineBench peer;
  peer.give(peer.world.roster(1));
  peer.compute();
  peer.clear();
  peer.give(peer.world.stopped_roster(2));
  peer.feed(peer::CheckpointKept{std::make_shared<const Checkpoint>(),
                                 overloaded("disk-full", "no space left on device")});
  EXPECT_EQ(peer.machine.report(peer.now, peer.wall).problem, "");
}

NetOptions without_learning(const std::string& algorithm = "dpsgd") {
  NetOptions options = testing::small_network("ring", 3, algorithm);
  options.train.train.learning_rate = 0;
  return options;
}

TEST(PeerMachine, GoesOnFromItsCheckpoint) {
  MachineBench peer(without_learning());
  const std::vector<float> model(peer.world.experiment.parameters(), 0.5F);
  const identity::SignedRoster roster = peer.world.roster(3);
  peer.kept = Checkpoint{.run = roster.roster().run_identity(),
                         .exchange = 7,
                         .model = model,
                         .support = {.minority = false, .quorum_seconds = 9}};
  peer.give(roster);
  EXPECT_EQ(peer.exchange(), 7U);
  EXPECT_TRUE(peer.said("goes on from exchange 7"));
  EXPECT_GE(peer.machine.hello().support.quorum_seconds, 9U);
  peer.compute();
  const auto sent = peer.transfers<protocol::MixMessage>();
  ASSERT_THAT(sent, SizeIs(2));
  EXPECT_EQ(sent[0].content.exchange, 7U);
  EXPECT_EQ(to_bytes(sent[0].send.data.view()), to_bytes(as_bytes(std::span(model))));
}

TEST(PeerMachine, AnotherRunsCheckpointIsNotUsed) {
  MachineBench peer(without_learning());
  peer.kept = Checkpoint{.run = "run-0",
                         .exchange = 7,
                         .model = std::vector<float>(peer.world.experiment.parameters(), 0.5F)};
  peer.give(peer.world.roster(3));
  EXPECT_EQ(peer.exchange(), 0U);
}

// The weight that one epoch's checkpoint was kept with means nothing in another.
TEST(PeerMachine, AWeightIsUsedInItsOwnEpochOnly) {
  const auto weight_of = [](const EpochSession& session) {
    const Bytes state = session.training().state();
    return load_little<std::uint64_t>(state.data() + state.size() - sizeof(std::uint64_t));
  };
  MachineBench before(without_learning("push-sum"));
  before.links = {{1, PeerHello{}}, {2, PeerHello{}}};
  before.give(before.world.roster(1));
  before.tick(61s);
  for (const protocol::Member member : {1, 2}) {  // it learns of an incarnation, so it pushes
    const VectorTransfer transfer{.epoch = 1, .content = protocol::Introduction{.edge = {77, 0}}};
    before.feed(peer::TransferReceived{member, {transfer, {}}});
  }
  before.compute();
  before.clear();
  before.feed(peer::Close{});
  while (!before.computations.empty()) before.compute();
  ASSERT_THAT(before.of<peer::KeepCheckpoint>(), SizeIs(1));
  const Checkpoint kept = *before.of<peer::KeepCheckpoint>()[0].checkpoint;
  for (const protocol::Epoch epoch : {1, 2}) {
    MachineBench peer(without_learning("push-sum"));
    peer.kept = kept;
    peer.give(peer.world.roster(epoch));
    constexpr std::uint64_t kOne = std::uint64_t{1} << 40;
    if (epoch == 1) {
      EXPECT_LT(weight_of(*peer.machine.session()), kOne);
    } else {
      EXPECT_EQ(weight_of(*peer.machine.session()), kOne);
    }
  }
}

// What was pushed to the process before is lost with it: its sender counts from 0 again.
TEST(PeerMachine, MassForAFormerProcessIsNotTaken) {
  MachineBench peer(without_learning("sgp"));
  peer.links = {{1, PeerHello{}}, {2, PeerHello{}}};
  peer.give(peer.world.roster(1));
  peer.compute();
  MassLedger sender(peer.world.experiment.parameters());
  const Bytes pushed = to_bytes(sender.push(0, 0.25));
  const auto hear_push = [&](protocol::Member from, std::uint32_t incarnation) {
    const VectorTransfer transfer{
        .epoch = 1,
        .content = protocol::MixMessage{.state = protocol::Incarnations{77, incarnation},
                                        .packed = pushed.size()}};
    peer.feed(peer::TransferReceived{from, {transfer, SharedBytes::own(Bytes(pushed))}});
  };
  const auto sent = peer.transfers<protocol::MixMessage>();
  ASSERT_FALSE(sent.empty());
  const std::uint32_t own = std::get<protocol::Incarnations>(sent[0].content.state).sender;
  for (const protocol::Member member : {1, 2}) hear_push(member, own + 2);
  EXPECT_THAT(peer.computations, IsEmpty()) << "it waits for theirs";
  for (const protocol::Member member : {1, 2}) hear_push(member, own);
  EXPECT_THAT(peer.computations, SizeIs(1)) << "it mixes";
}

// --- a run that cannot go on --------------------------------------------------------------------

TEST(PeerMachine, ARunThatFailsStaysFailedForItsEpoch) {
  MachineBench peer;
  peer.prepares = false;
  peer.give(peer.world.roster(1));
  peer.feed(peer::Prepared{1, rejected("no-data", "there is no data")});
  EXPECT_TRUE(peer.said("the run cannot go on: there is no data"));
  EXPECT_TRUE(peer.machine.failure());
  EXPECT_EQ(peer.state(), "refused");
  identity::Roster renewed = peer.world.roster(1).roster();
  renewed.issued += 1s;
  peer.clear();
  peer.give(peer.world.sign(renewed));
  EXPECT_THAT(peer.of<peer::Prepare>(), IsEmpty());
  EXPECT_EQ(peer.machine.report(peer.now, peer.wall).problem, "there is no data");
  peer.prepares = true;
  peer.give(peer.world.roster(2));
  EXPECT_FALSE(peer.machine.failure());
  EXPECT_EQ(peer.state(), "training");
  EXPECT_EQ(peer.machine.report(peer.now, peer.wall).problem, "");
}

TEST(PeerMachine, ItSaysWhyItTakesNoPart) {
  MachineBench peer;
  peer.prepares = false;
  peer.links = {{1, PeerHello{}}};
  peer.give(peer.world.roster(1));
  peer.clear();
  peer.feed(peer::Prepared{1, rejected("no-data", "there is no data")});
  ASSERT_THAT(peer.sent<PeerHello>(1), SizeIs(1));
  EXPECT_EQ(peer.sent<PeerHello>(1)[0].refusal, "there is no data");
  EXPECT_EQ(peer.machine.hello().refusal, "there is no data") << "on links to come";
  peer.clear();
  peer.give(peer.world.roster(2));
  for (const PeerHello& hello : peer.sent<PeerHello>(1)) EXPECT_EQ(hello.refusal, "");
}

// Feeds the greeting of a neighbour whose model has so many values more than the peer's.
void greet(MachineBench& peer, protocol::Member from, int more, std::string refusal = {}) {
  PeerHello hello = peer.hello_of(0);
  hello.elements = peer.world.experiment.parameters() + static_cast<std::uint64_t>(more);
  hello.refusal = std::move(refusal);
  peer.feed(peer::LinkUp{from, hello});
}

std::string problem_of(const MachineBench& peer) {
  return peer.machine.report(peer.now, peer.wall).problem;
}

TEST(PeerMachine, ANeighbourThatTakesNoPartIsNamedAndNotWaitedFor) {
  for (const auto& [more, refusal] : {std::pair(5, ""), {0, "there is no data"}}) {
    SCOPED_TRACE(refusal);
    MachineBench peer;
    peer.give(peer.world.roster(1));
    EXPECT_EQ(peer.machine.hello().elements, peer.world.experiment.parameters());
    greet(peer, 1, 0);
    greet(peer, 2, more, refusal);
    const std::string name = peer.world.peers[2]->name;
    EXPECT_EQ(peer.said("nothing is exchanged with " + name + ": its model has "), more > 0);
    EXPECT_EQ(peer.said(name + " takes no part in this run, and is not waited for: it says "
                               "\"there is no data\""),
              more == 0);
    EXPECT_THAT(problem_of(peer), HasSubstr(name));
    peer.clear();
    greet(peer, 2, more, refusal);
    EXPECT_THAT(peer.of<peer::Say>(), IsEmpty()) << "once";
    peer.compute();
    peer.hear_model(1, 0);
    for (int i = 0; i < 4; ++i) peer.tick(500ms);
    while (!peer.computations.empty() && peer.trainings < 2) peer.compute();
    EXPECT_EQ(peer.trainings, 2);
    // It is a neighbour again once it is mended.
    greet(peer, 2, 0);
    EXPECT_EQ(problem_of(peer), "");
    EXPECT_EQ(peer.machine.session()->training().progress().expected, 2U);
    EXPECT_FALSE(peer.machine.failure());
  }
}

// As if their link were cut, but for the failure detection.
TEST(PeerMachine, NothingPassesBetweenItAndWhoTakesNoPart) {
  MachineBench peer;
  peer.give(peer.world.roster(1));
  greet(peer, 1, 0);
  greet(peer, 2, 0);
  const std::size_t size = peer.world.experiment.parameters();
  const VectorTransfer model{.epoch = 1, .content = protocol::MixMessage{.first = size}};
  const auto exchanges_with = [&](protocol::Member member) {
    peer.clear();
    peer.hear(member, protocol::MixAsk{.epoch = 1, .exchange = 0});
    peer.hear(member, protocol::ColumnsAsk{.epoch = 1, .begin = 0, .end = size});
    return std::pair(peer.sent<protocol::MixAnswer>(member).size(),
                     peer.machine.check(member, model).has_value());
  };
  EXPECT_EQ(exchanges_with(2), std::pair(1UL, true));
  greet(peer, 2, 5);
  EXPECT_EQ(exchanges_with(2), std::pair(0UL, false));
  EXPECT_EQ(exchanges_with(1), std::pair(1UL, true));
  peer.clear();
  peer.hear(2, protocol::Swim{.epoch = 1, .sequence = 7, .target = 0});
  EXPECT_THAT(peer.sent<protocol::Swim>(2), SizeIs(1));
  peer.clear();
  peer.compute();
  const auto sent = peer.transfers<protocol::MixMessage>();
  ASSERT_THAT(sent, SizeIs(1));
  EXPECT_EQ(sent[0].send.to, 1U);
  peer.hear_model(2, 0);  // it was under way
  peer.hear_model(1, 0);
  peer.compute();
  EXPECT_EQ(peer.machine.session()->training().progress().heard, 1U);
  greet(peer, 2, 0);
  EXPECT_EQ(exchanges_with(2), std::pair(1UL, true));
}

TEST(PeerMachine, WhoAskedForTheModelAndTakesNoPartGetsNothing) {
  MachineBench peer;
  peer.give(peer.world.roster(1));
  greet(peer, 1, 0);
  greet(peer, 2, 0);
  peer.hear(2, protocol::ColumnsAsk{.epoch = 1, .begin = 0, .end = 5});
  greet(peer, 2, 5);
  peer.compute();
  EXPECT_THAT(peer.transfers<protocol::ModelColumns>(), IsEmpty());
}

TEST(PeerMachine, WhoseModelDiffersFromThatOfAllNeighboursRefuses) {
  MachineBench peer;
  peer.give(peer.world.roster(1));
  for (const protocol::Member member : {1, 2}) {  // before they have begun
    peer.feed(peer::LinkUp{member, peer.hello_of(0, false)});
  }
  greet(peer, 1, 5);
  EXPECT_FALSE(peer.machine.failure()) << "one neighbour's word";
  peer.clear();
  greet(peer, 2, 5);
  ASSERT_TRUE(peer.machine.failure());
  const std::size_t size = peer.world.experiment.parameters();
  EXPECT_THAT(
      peer.machine.failure()->message(),
      HasSubstr(fmt::format("this device's model has {} values, and that of {}, {} has {}", size,
                            peer.world.peers[1]->name, peer.world.peers[2]->name, size + 5)));
  EXPECT_THAT(peer.machine.failure()->message(),
              HasSubstr("start each device that was changed again, and this one"));
  EXPECT_EQ(peer.state(), "refused");
  ASSERT_THAT(peer.sent<PeerHello>(1), SizeIs(1));
  EXPECT_THAT(peer.sent<PeerHello>(1)[0].refusal, StartsWith("this device's model"));
  EXPECT_EQ(peer.sent<PeerHello>(1)[0].elements, size) << "others may hear it only now";
}

// So many of six that are all neighbours, in any order.
TEST(PeerMachine, ItRefusesWhereMostMembersHaveOneOtherModel) {
  MachineBench peer(testing::small_network("complete", 6));
  peer.give(peer.world.roster(1));
  for (const protocol::Member other : {2U, 3U, 4U}) greet(peer, other, 5);
  greet(peer, 1, 0);
  EXPECT_FALSE(peer.machine.failure()) << "three of six";
  greet(peer, 5, 5);
  EXPECT_TRUE(peer.machine.failure()) << "one is as it, but that is no majority";
  MachineBench divided(testing::small_network("complete", 6));
  divided.give(divided.world.roster(1));
  for (const protocol::Member other : {1U, 2U}) greet(divided, other, 5);
  for (const protocol::Member other : {3U, 4U, 5U}) greet(divided, other, 6);
  EXPECT_FALSE(divided.machine.failure()) << "no size is that of most";
}

// Who was mended meanwhile counts no more.
TEST(PeerMachine, ItGoesByWhatNeighboursSaidLast) {
  MachineBench peer(testing::small_network("complete", 5));
  peer.give(peer.world.roster(1));
  for (const protocol::Member other : {1U, 2U}) greet(peer, other, 5);
  for (const protocol::Member other : {1U, 2U}) greet(peer, other, 0);
  for (const protocol::Member other : {3U, 4U}) greet(peer, other, 5);
  EXPECT_FALSE(peer.machine.failure());
}

// Both would train alone, or wait, and none would say so.
TEST(PeerMachine, OfTwoWhoseModelsDifferBothRefuse) {
  MachineBench peer(testing::small_network("ring", 2));
  peer.give(peer.world.roster(1));
  greet(peer, 1, 5, "this device's model has another size");
  EXPECT_TRUE(peer.machine.failure());
  MachineBench before(testing::small_network("ring", 2));
  before.give(before.world.roster(1));
  greet(before, 1, 0);
  greet(before, 1, 5);
  EXPECT_FALSE(before.machine.failure()) << "the other one has changed";
  MachineBench leaf(testing::small_network("star", 3), 1);
  leaf.give(leaf.world.roster(1));
  ASSERT_THAT(leaf.machine.session()->training().neighbours(), SizeIs(1));
  greet(leaf, 0, 5);
  EXPECT_FALSE(leaf.machine.failure()) << "there are others, and it hears one of them";
}

// --- others -------------------------------------------------------------------------------------

TEST(PeerMachine, ANewLinkIsAskedForANewerRoster) {
  MachineBench peer;
  peer.give(peer.world.roster(1));
  peer.clear();
  peer.feed(peer::LinkUp{2, PeerHello{}});
  const auto asks = peer.sent<protocol::RosterAsk>(2);
  ASSERT_THAT(asks, SizeIs(1));
  EXPECT_EQ(asks[0].epoch, 1U);
  peer.clear();
  peer.hear(2, protocol::Ping{5});
  EXPECT_THAT(peer.sent<protocol::Pong>(2), ElementsAre(protocol::Pong{5}));
}

TEST(PeerMachine, ALinkThatIsLostIsNotWaitedForLong) {
  MachineBench peer;
  peer.give(peer.world.roster(1));
  for (const protocol::Member member : {1, 2}) peer.feed(peer::LinkUp{member, peer.hello_of(0)});
  peer.compute();
  peer.feed(peer::LinkDown{1});
  peer.feed(peer::LinkDown{2});
  ASSERT_TRUE(peer.machine.next_deadline());
  EXPECT_LE(*peer.machine.next_deadline(), peer.now + 1s);
  peer.tick(1001ms);
  EXPECT_THAT(peer.computations, SizeIs(1)) << "it mixes without them";
}

// Members that were never heard may be starting, but not for longer than that takes.
TEST(PeerMachine, ANeighbourThatCannotBeDialledIsNamedAfterAWhile) {
  MachineBench peer;
  peer.give(peer.world.roster(1));
  const auto problem = [&] { return peer.machine.report(peer.now, peer.wall).problem; };
  const std::string line = "peer-2 cannot be dialled: 127.0.0.1:28392: there is no answer";
  const peer::LinkDown down{1, not_connected("cannot-dial", line)};
  peer.feed(down);
  peer.tick(4s);
  EXPECT_FALSE(peer.said(line)) << "it may be starting";
  peer.feed(down);
  peer.tick(1s);
  EXPECT_TRUE(peer.said(line));
  EXPECT_EQ(problem(), line);
  peer.clear();
  peer.feed(down);
  peer.tick(1min);
  EXPECT_FALSE(peer.said(line)) << "once is enough";
  identity::Roster renewed = peer.world.roster(1).roster();
  renewed.issued += 1s;
  renewed.expires += 1s;
  peer.give(peer.world.sign(renewed));
  EXPECT_EQ(problem(), line) << "a renewal dials nobody anew";
  peer.feed(down);
  peer.tick(1min);
  EXPECT_FALSE(peer.said(line)) << "once an epoch";
  peer.feed(peer::LinkUp{1, peer.hello_of(0)});
  EXPECT_THAT(problem(), Not(HasSubstr(line)));
}

TEST(PeerMachine, WhoIsShutOutSaysSoWhateverElseIsWrong) {
  MachineBench peer;
  peer.give(peer.world.roster(1));
  peer.compute();
  const std::string line = "peer-2 refuses this device: peer-1 is not in the roster";
  peer.feed(peer::LinkDown{1, not_authorised("shut-out", line)});
  peer.tick(2min);  // nobody was heard
  EXPECT_TRUE(peer.said(line));
  EXPECT_EQ(peer.machine.report(peer.now, peer.wall).problem, line);
}

TEST(PeerMachine, WaitsForAStartNoLongerThanItsPatience) {
  MachineBench peer;
  peer.give(peer.world.roster(1));
  const TimePoint until = peer.now + peer.world.options.start_patience;
  peer.compute();
  ASSERT_EQ(peer.state(), "waiting");
  while (peer.state() == "waiting" && *peer.machine.next_deadline() <= until) {
    EXPECT_THAT(peer.computations, IsEmpty()) << "it mixes before its patience has ended";
    peer.tick(*peer.machine.next_deadline() - peer.now);
  }
  EXPECT_EQ(peer.now, until);
  EXPECT_THAT(peer.computations, SizeIs(1)) << "it mixes without them";
}

// Failure detection has deadlines of its own, which must not stand in for those of the protocol.
TEST(PeerMachine, IsCalledWhenItsProtocolIsDue) {
  MachineBench peer;
  peer.links = {{1, PeerHello{}}, {2, PeerHello{}}};
  peer.give(peer.world.roster(1));
  for (const protocol::Member member : {1, 2}) peer.feed(peer::LinkUp{member, peer.hello_of(0)});
  peer.compute();
  for (int i = 0; i < 20 && peer.state() == "waiting"; ++i) {
    const auto of_training = peer.machine.session()->training().next_deadline();
    ASSERT_TRUE(of_training);
    ASSERT_LE(*peer.machine.next_deadline(), *of_training);
    peer.tick(*peer.machine.next_deadline() - peer.now);
  }
}

// A probe of failure detection that finds no link goes out with the link that it asks for.
TEST(PeerMachine, AProbeWaitsForItsLink) {
  MachineBench peer;
  peer.give(peer.world.roster(1));
  peer.clear();
  while (peer.of<peer::Reach>().empty()) peer.tick(100ms);
  const protocol::Member member = peer.of<peer::Reach>()[0].member;
  EXPECT_THAT(peer.of<peer::Send>(), IsEmpty());
  peer.feed(peer::LinkUp{member, peer.hello_of(0)});
  EXPECT_THAT(peer.sent<protocol::Swim>(member), SizeIs(1));
  peer.clear();
  peer.feed(peer::LinkUp{member, peer.hello_of(0)});
  EXPECT_THAT(peer.sent<protocol::Swim>(member), IsEmpty()) << "once";
}

// Unlike who is reachable: all are, until failure detection has found one dead.
TEST(PeerMachine, ReportsTheLinksThatThereAre) {
  MachineBench peer;
  const auto linked = [&peer] { return peer.machine.report(peer.now, peer.wall).linked; };
  peer.give(peer.world.roster(1));
  EXPECT_EQ(linked(), 1U) << "itself alone";
  for (const protocol::Member member : {1, 2}) peer.feed(peer::LinkUp{member, peer.hello_of(0)});
  EXPECT_EQ(linked(), 3U);
  peer.feed(peer::LinkDown{2, std::nullopt});
  EXPECT_EQ(linked(), 2U);
}

// Who is silent and without a link is found dead, and its message not waited for.
TEST(PeerMachine, FailureDetectionIsListenedTo) {
  MachineBench peer;
  peer.give(peer.world.roster(1));
  for (const protocol::Member member : {1, 2}) peer.feed(peer::LinkUp{member, peer.hello_of(0)});
  for (int i = 0; i < 600 && peer.machine.report(peer.now, peer.wall).reachable > 1; ++i) {
    peer.tick(100ms);
  }
  EXPECT_EQ(peer.machine.report(peer.now, peer.wall).reachable, 1U);
  peer.clear();
  peer.compute();
  EXPECT_THAT(peer.computations, SizeIs(1)) << "nobody is waited for: it mixes at once";
  EXPECT_TRUE(peer.machine.hello().support.minority);
  peer.hear(1, protocol::MixAsk{.epoch = 1});
  const auto answers = peer.sent<protocol::MixAnswer>(1);
  ASSERT_THAT(answers, SizeIs(1));
  EXPECT_TRUE(answers[0].support.minority);
}

TEST(PeerMachine, APingIsAnswered) {
  MachineBench peer;
  peer.give(peer.world.roster(1));
  peer.feed(peer::LinkUp{1, peer.hello_of(0)});
  peer.clear();
  peer.hear(1, protocol::Swim{.kind = protocol::Swim::Kind::kPing, .epoch = 1, .sequence = 7});
  const auto answers = peer.sent<protocol::Swim>(1);
  ASSERT_THAT(answers, SizeIs(1));
  EXPECT_EQ(answers[0].kind, protocol::Swim::Kind::kAck);
  EXPECT_EQ(answers[0].sequence, 7U);
}

// So that it learns what is believed of it, and says that it lives.
TEST(PeerMachine, WhoWasFoundDeadIsProbedWhenItSpeaks) {
  MachineBench peer;
  peer.give(peer.world.roster(1));
  for (int i = 0; i < 600 && peer.machine.report(peer.now, peer.wall).reachable > 1; ++i) {
    peer.tick(100ms);
  }
  ASSERT_EQ(peer.machine.report(peer.now, peer.wall).reachable, 1U);
  peer.feed(peer::LinkUp{2, peer.hello_of(0)});
  for (int i = 0; i < 50; ++i) peer.tick(100ms);
  peer.clear();
  peer.hear(2, protocol::Swim{.kind = protocol::Swim::Kind::kPing, .epoch = 1, .sequence = 7});
  EXPECT_EQ(std::ranges::count(peer.sent<protocol::Swim>(2), protocol::Swim::Kind::kPing,
                               &protocol::Swim::kind),
            1);
}

TEST(PeerMachine, TheModelIsGivenWhenItMayBeRead) {
  MachineBench peer;
  peer.give(peer.world.roster(1));
  peer.feed(peer::LinkUp{1, peer.hello_of(0)});
  const std::size_t size = peer.world.experiment.parameters();
  for (int i = 0; i < 9; ++i) {
    peer.hear(1, protocol::ColumnsAsk{.epoch = 1, .begin = 1, .end = 3});
  }
  peer.hear(2, protocol::ColumnsAsk{.epoch = 1, .begin = 0, .end = size + 1});
  peer.hear(2, protocol::ColumnsAsk{.epoch = 2, .begin = 0, .end = size});
  EXPECT_THAT(peer.transfers<protocol::ModelColumns>(), IsEmpty()) << "it trains";
  peer.compute();
  const auto given = peer.transfers<protocol::ModelColumns>();
  EXPECT_THAT(given, SizeIs(4)) << "no more of one member's wait";
  for (const auto& [columns, send] : given) {
    EXPECT_EQ(send.to, 1U);
    EXPECT_EQ(columns.begin, 1U);
    EXPECT_EQ(columns.floats, 2U);
    EXPECT_EQ(send.urgency, TransferFlow::Urgency::kBackground);
  }
  peer.clear();
  peer.hear(1, protocol::ColumnsAsk{.epoch = 1, .begin = 0, .end = size});
  EXPECT_THAT(peer.transfers<protocol::ModelColumns>(), SizeIs(1)) << "while it waits: at once";
}

TEST(PeerMachine, WhoSaysThatItHasNoModelAndSendsOneIsGivenNone) {
  for (const bool sends : {false, true}) {
    MachineBench peer(testing::small_network("ring", 5));
    peer.give(peer.world.roster(1));
    peer.compute();
    peer.feed(peer::LinkUp{2, peer.hello_of(0, false)});
    const VectorTransfer message{.epoch = 1, .content = protocol::MixMessage{.first = 1}};
    EXPECT_FALSE(peer.machine.check(2, message)) << "it is no neighbour";
    if (sends) peer.feed(peer::TransferRefused{2, message});
    peer.hear(2, protocol::ColumnsAsk{.epoch = 1, .begin = 1, .end = 3});
    EXPECT_THAT(peer.transfers<protocol::ModelColumns>(), SizeIs(sends ? 0 : 1));
  }
}

TEST(PeerMachine, WhoAskedForTheModelAndIsGoneGetsNothing) {
  MachineBench peer;
  peer.give(peer.world.roster(1));
  peer.feed(peer::LinkUp{1, peer.hello_of(0)});
  peer.hear(1, protocol::ColumnsAsk{.epoch = 1, .begin = 1, .end = 3});
  peer.feed(peer::LinkDown{1});
  peer.compute();
  EXPECT_THAT(peer.transfers<protocol::ModelColumns>(), IsEmpty());
}

TEST(PeerMachine, ADonorThatIsLostIsReplaced) {
  MachineBench peer(testing::small_network_of_steps(200, "ring", 3));
  peer.links = {{1, PeerHello{}}, {2, PeerHello{}}};
  peer.give(peer.world.roster(1));
  peer.compute();
  peer.hear_model(1, 50);
  peer.hear_model(2, 50);
  peer.compute();
  const auto lost = peer.sent<protocol::ColumnsAsk>(1);
  ASSERT_THAT(lost, SizeIs(1));
  peer.clear();
  peer.feed(peer::LinkDown{1});
  EXPECT_THAT(peer.sent<protocol::ColumnsAsk>(2), ElementsAre(lost[0]));
  peer.feed(peer::LinkDown{2});
  EXPECT_TRUE(peer.said("no peer sent a model: continues with its own"));
}

// It is one of three on a ring, and its neighbours come to exchange 50 without it.
void fall_behind(MachineBench& peer) {
  peer.links = {{1, PeerHello{}}, {2, PeerHello{}}};
  peer.give(peer.world.roster(1));
  peer.compute();
  peer.pass(1s);  // in which the others can have come so far
  peer.hear_model(1, 50);
  peer.hear_model(2, 50);
  peer.compute();
  EXPECT_EQ(peer.state(), "catching-up");
}

TEST(PeerMachine, ADonorThatTakesNoPartIsReplaced) {
  MachineBench peer(testing::small_network_of_steps(200, "ring", 3));
  fall_behind(peer);
  const auto lost = peer.sent<protocol::ColumnsAsk>(1);
  ASSERT_THAT(lost, SizeIs(1));
  peer.clear();
  greet(peer, 1, 5);
  EXPECT_THAT(peer.sent<protocol::ColumnsAsk>(2), ElementsAre(lost[0]));
}

class WhoCopies : public ::testing::Test {
 protected:
  WhoCopies() : peer(testing::small_network_of_steps(200, "ring", 3)) { fall_behind(peer); }

  MachineBench peer;
};

TEST_F(WhoCopies, AsksAnotherInPlaceOfADonorThatCopiesItself) {
  const auto put_off = peer.sent<protocol::ColumnsAsk>(1);
  ASSERT_THAT(put_off, SizeIs(1));
  peer.clear();
  peer.hear(1, protocol::ColumnsPutOff{.epoch = 7});
  EXPECT_THAT(peer.sent<protocol::ColumnsAsk>(2), IsEmpty()) << "of another epoch";
  peer.hear(1, protocol::ColumnsPutOff{.epoch = 1});
  EXPECT_THAT(peer.sent<protocol::ColumnsAsk>(2), ElementsAre(put_off[0]));
  peer.clear();
  // Where all copy, they are waited for; one that is lost is none of them.
  peer.hear(2, protocol::ColumnsPutOff{.epoch = 1});
  EXPECT_THAT(peer.of<peer::Send>(), IsEmpty());
  peer.feed(peer::LinkDown{2});
  EXPECT_THAT(peer.sent<protocol::ColumnsAsk>(1), SizeIs(2)) << "the whole model";
  EXPECT_EQ(peer.state(), "catching-up");
}

// Once its pace is known, also in the middle of its part; a donor that sends is not silent, however
// long a large model takes.
TEST(PeerMachine, ADonorThatIsSilentIsReplacedAfterItsDeadlineAndOneThatSendsIsNot) {
  for (const auto& [begins, sends] : {std::pair(false, false), {true, false}, {true, true}}) {
    MachineBench peer(testing::small_network_of_steps(2000, "ring", 3));
    peer.links = {{1, PeerHello{}}, {2, PeerHello{}}};
    peer.give(peer.world.roster(1));
    for (protocol::Exchange exchange = 0; exchange < 12; ++exchange) {
      peer.pass(100ms);
      peer.compute();
      peer.hear_model(1, exchange);
      peer.hear_model(2, exchange);
      peer.compute();
    }
    peer.pass(60s);
    peer.hear_model(1, 500);
    peer.hear_model(2, 500);
    peer.compute();
    peer.clear();
    peer.compute();
    ASSERT_EQ(peer.state(), "catching-up");
    const auto asked = peer.sent<protocol::ColumnsAsk>(1);
    ASSERT_THAT(asked, SizeIs(1));
    const VectorTransfer transfer{
        .epoch = 1,
        .content = protocol::ModelColumns{
            .exchange = 500, .begin = asked[0].begin, .floats = asked[0].end - asked[0].begin}};
    const auto send_piece = [&] { peer.feed(peer::TransferProgressed{1, transfer}); };
    if (begins) send_piece();
    peer.hear_columns(2, 500, 0);
    peer.clear();
    peer.tick(2s);
    EXPECT_THAT(peer.sent<protocol::ColumnsAsk>(2), IsEmpty());
    if (sends) send_piece();
    peer.tick(1s);
    EXPECT_THAT(peer.sent<protocol::ColumnsAsk>(2), SizeIs(sends ? 0 : 1));
    for (int second = 3; second < 60; ++second) {
      if (sends) send_piece();
      peer.tick(1s);
    }
    EXPECT_THAT(peer.sent<protocol::ColumnsAsk>(2), SizeIs(1)) << "nor for ever";
  }
}

// Each donor gives a part; what the optimizer had learned of the former model is forgotten.
TEST(PeerMachine, TakesTheModelOfWhoIsFarAhead) {
  std::map<std::string, std::vector<float>> after;
  for (const std::string optimizer : {"sgd", "momentum"}) {
    NetOptions options = testing::small_network_of_steps(200, "ring", 3);
    options.train.train.optimizer = optimizer;
    MachineBench peer(options);
    fall_behind(peer);
    for (const protocol::Member member : {1, 2}) {
      const auto asks = peer.sent<protocol::ColumnsAsk>(member);
      ASSERT_THAT(asks, SizeIs(1));
      std::vector<float> columns;
      for (std::uint64_t at = asks[0].begin; at < asks[0].end; ++at) {
        columns.push_back(static_cast<float>(at));
      }
      const VectorTransfer transfer{
          .epoch = 1,
          .content = protocol::ModelColumns{
              .exchange = 50, .begin = asks[0].begin, .floats = columns.size()}};
      EXPECT_TRUE(peer.machine.check(member, transfer));
      EXPECT_FALSE(peer.machine.check(3 - member, transfer)) << "not asked for there";
      peer.feed(peer::TransferReceived{
          member, {transfer, SharedBytes::own(to_bytes(as_bytes(std::span(columns))))}});
    }
    EXPECT_EQ(peer.exchange(), 50U);
    peer.clear();
    peer.compute();
    const auto sent = peer.transfers<protocol::MixMessage>();
    ASSERT_THAT(sent, SizeIs(2));
    const auto* floats = reinterpret_cast<const float*>(sent[0].send.data.view().data());
    after[optimizer].assign(floats, floats + sent[0].content.first);
    for (std::size_t i = 0; i < after[optimizer].size(); ++i) {
      EXPECT_NEAR(after[optimizer][i], static_cast<float>(i), 0.5) << "column " << i;
    }
  }
  EXPECT_THAT(after["momentum"], Pointwise(FloatNear(1e-4F), after["sgd"]))
      << "the first step with momentum is that of SGD";
}

// Of numbers that may be of this run, but are far from this peer's own.
TEST(PeerMachine, ADonorWhoseModelMadeTheLossNoNumberIsNamed) {
  MachineBench peer(testing::small_network_of_steps(200, "ring", 3));
  const std::size_t size = peer.world.experiment.parameters();
  const identity::SignedRoster roster = peer.world.roster(1);
  peer.kept = Checkpoint{.run = roster.roster().run_identity(),
                         .exchange = 5,
                         .model = std::vector<float>(size, 1e37F)};
  peer.links = {{1, PeerHello{}}, {2, PeerHello{}}};
  peer.give(roster);
  peer.compute();
  peer.pass(1s);
  peer.hear_model(1, 57);
  peer.hear_model(2, 57);
  peer.compute();
  peer.hear_columns(1, 57, 1e37F);
  peer.hear_columns(2, 57, 3e38F);
  EXPECT_EQ(peer.exchange(), 57U);
  peer.compute();
  ASSERT_TRUE(peer.machine.failure());
  EXPECT_NE(peer.machine.failure()->message().find("node-03"), std::string::npos)
      << peer.machine.failure()->message();
}

// They do not greet again: a peer that did not believe them would train apart to the end.
TEST(PeerMachine, WhatOthersSaidInANewEpochHoldsWhenItComesThere) {
  MachineBench peer(testing::small_network_of_steps(200, "ring", 3));
  peer.links = {{1, PeerHello{}}, {2, PeerHello{}}};
  peer.give(peer.world.roster(1));
  peer.compute();
  peer.pass(1s);  // in which the others can have come so far
  for (auto& [member, said] : peer.links) {
    said = peer.hello_of(50);
    said.epoch = 2;
    peer.feed(peer::LinkUp{member, said});
  }
  peer.give(peer.world.roster(2));
  while (!peer.computations.empty()) peer.compute();
  EXPECT_EQ(peer.state(), "catching-up");
}

// --- what a process promised in an all-reduce ---------------------------------------------------

// A peer of three that mixes all at once and keeps its checkpoint once, early.
class AnAllReduce : public ::testing::Test {
 protected:
  AnAllReduce() : peer(options()) {
    peer.links = {{1, PeerHello{}}, {2, PeerHello{}}};
    peer.give(peer.world.roster(1));
    peer.compute();
    peer.pass(31s);
    end_exchange();  // after which it keeps a checkpoint
    EXPECT_THAT(peer.of<peer::KeepCheckpoint>(), SizeIs(1));
    end_exchange();
    end_exchange();
    EXPECT_EQ(peer.exchange(), 3U);
  }

  static NetOptions options() {
    NetOptions options = testing::small_network_of_steps(200, "ring", 3, "all-reduce");
    options.train.train.learning_rate = 0;
    return options;
  }

  static protocol::ReduceNote ahead(protocol::Exchange exchange) {
    return {.epoch = 1,
            .at = {.backed = exchange, .exchange = exchange},
            .what = protocol::reduce::Ahead{{1, 2}}};
  }

  // The others did, without this peer, which takes their mean and trains on.
  void end_exchange() {
    const protocol::Exchange exchange = peer.exchange();
    const std::vector<float> mean(peer.world.experiment.parameters(), 0.25F);
    const protocol::reduce::Commit commit{
        .members = {1, 2}, .sha256 = sha256(as_bytes(std::span(mean))), .support = 2, .holder = 1};
    peer.hear(1, protocol::ReduceNote{.epoch = 1,
                                      .at = {.backed = exchange, .exchange = exchange},
                                      .attempt = 2,
                                      .what = commit});
    const VectorTransfer transfer{
        .epoch = 1,
        .content = protocol::ReducePiece{.exchange = exchange,
                                         .attempt = 2,
                                         .place = place_of(collective::Phase::kResult, 0),
                                         .floats = mean.size()},
        .support = {.backed = exchange}};
    peer.feed(peer::TransferReceived{
        1, {transfer, SharedBytes::own(to_bytes(as_bytes(std::span(mean))))}});
    peer.compute();  // mixes
    peer.compute();  // trains
  }

  bool remembers() const { return peer.machine.session()->training().remembers(); }

  MachineBench peer;
};

TEST_F(AnAllReduce, GoesOnInTheNextEpochWhereItWas) {
  peer.give(peer.world.roster(2));
  EXPECT_EQ(peer.exchange(), 3U);
  EXPECT_TRUE(remembers());
}

// The model that it copied was of no exchange: its checkpoint is what the next epoch begins with,
// and it promised more since.
TEST_F(AnAllReduce, ThatCopiesAModelWhenAnEpochEndsForgetsWhatItPromisedSinceItsCheckpoint) {
  for (const protocol::Member member : {1, 2}) {
    peer.hear(member, ahead(6));
  }
  ASSERT_EQ(peer.state(), "catching-up");
  peer.give(peer.world.roster(2));
  EXPECT_EQ(peer.exchange(), 1U);
  EXPECT_FALSE(remembers());
  peer.give(peer.world.roster(3));
  EXPECT_FALSE(remembers()) << "still";
}

// Else members that copy from one another would all wait for nothing.
TEST_F(AnAllReduce, SaysOnceThatItCopiesToWhoeverAsksItForItsModel) {
  const protocol::ColumnsAsk ask{.epoch = 1, .begin = 1, .end = 3};
  for (const protocol::Member member : {1, 2}) {
    peer.hear(member, ahead(6));
  }
  ASSERT_EQ(peer.state(), "catching-up");
  peer.hear(2, ask);
  EXPECT_THAT(peer.sent<protocol::ColumnsPutOff>(2), ElementsAre(protocol::ColumnsPutOff{1}));
  peer.tick(100ms);
  EXPECT_THAT(peer.sent<protocol::ColumnsPutOff>(2), SizeIs(1));
}

// While it copies its own model is of no exchange, and yet the measure.
TEST_F(AnAllReduce, TakesNoDonorsNumbersThatWouldRuinItsModel) {
  peer.clear();
  for (const protocol::Member member : {1, 2}) {
    peer.hear(member, ahead(6));
  }
  ASSERT_EQ(peer.state(), "catching-up");
  peer.hear_columns(1, 6, 3e38F, {.backed = 6});
  EXPECT_TRUE(peer.said("node-02 gives a model that is none of this run"));
  peer.hear_columns(2, 6, 0.5F, {.backed = 6});
  EXPECT_EQ(peer.exchange(), 6U);
  peer.compute();
  EXPECT_FALSE(peer.machine.failure());
}

// --- while the coordinator is gone --------------------------------------------------------------

class Fallbacks : public ::testing::Test {
 protected:
  void SetUp() override { peer.give(fallback_roster(1)); }
  identity::SignedRoster fallback_roster(protocol::Epoch epoch) const {
    identity::Roster roster = peer.world.roster(epoch).roster();
    for (const auto& setting : fallback_settings({.run = 1, .classes = 3})) {
      roster.settings.push_back(setting);
    }
    return peer.world.sign(roster);
  }
  peer::BeginFallback begin() const {
    const std::vector<float> model(peer.world.experiment.parameters(), 0.25F);
    fallback::Begin begin;
    begin.from.model = SharedBytes::own(to_bytes(as_bytes(std::span(model))));
    begin.pace = {.round = 1, .rounds = 100, .steps = 1, .per_round = 1s, .from = peer.now};
    return {begin};
  }
  // Goes on when its pace allows.
  void train() {
    while (peer.computations.empty()) peer.tick(100ms);
    peer.compute();
  }

  MachineBench peer;
};

TEST_F(Fallbacks, StandByUntilTheyBegin) {
  EXPECT_THAT(peer.of<peer::Prepare>(), IsEmpty());
  EXPECT_EQ(peer.state(), "fallback-roster");
  EXPECT_TRUE(peer.machine.standby(peer.now, peer.wall));
  EXPECT_FALSE(peer.machine.gossiped());
  peer.feed(begin());
  const auto prepare = peer.of<peer::Prepare>();
  ASSERT_THAT(prepare, SizeIs(1));
  EXPECT_EQ(prepare[0].held, peer.world.experiment.parameters());
  EXPECT_FALSE(prepare[0].wants_checkpoint);
  EXPECT_EQ(peer.trainings, 0) << "its first step is due in a second";
  train();
  EXPECT_EQ(peer.trainings, 1);
}

TEST_F(Fallbacks, SayWhatCameOfThemAndKeepNoCheckpoint) {
  peer.feed(begin());
  train();
  peer.hear_model(1, 0, 0.25F);
  peer.hear_model(2, 0, 0.25F);
  peer.compute();  // mixes
  const auto gossiped = peer.machine.gossiped();
  ASSERT_TRUE(gossiped);
  EXPECT_EQ(gossiped->exchanges, 1U);
  EXPECT_EQ(gossiped->steps, 1U);
  peer.clear();
  peer.feed(peer::EndFallback{});
  EXPECT_EQ(peer.machine.session(), nullptr);
  EXPECT_THAT(peer.of<peer::KeepLinks>().back().members, IsEmpty());
  EXPECT_THAT(peer.of<peer::KeepCheckpoint>(), IsEmpty());
  EXPECT_EQ(peer.state(), "fallback-roster");
}

TEST_F(Fallbacks, ThatEndBeforeTheyArePreparedDoNotBegin) {
  peer.prepares = false;
  peer.feed(begin());
  const auto wanted = peer.of<peer::Prepare>();
  ASSERT_THAT(wanted, SizeIs(1));
  peer.feed(peer::EndFallback{});
  EXPECT_THAT(peer.of<peer::CancelPreparation>(), SizeIs(1));
  peer.feed(peer.prepared(wanted[0]));
  EXPECT_EQ(peer.machine.session(), nullptr);
  EXPECT_EQ(peer.state(), "fallback-roster");
  EXPECT_FALSE(peer.machine.gossiped());
}

// What is being prepared for the first was cancelled.
TEST_F(Fallbacks, ThatBeginAgainArePreparedWhenThePreparationBeforeHasEnded) {
  peer.prepares = false;
  peer.feed(begin());
  peer.feed(peer::EndFallback{});
  peer.feed(begin());
  const auto first = peer.of<peer::Prepare>();
  ASSERT_THAT(first, SizeIs(1));
  peer.clear();
  peer.feed(peer::Prepared{1, rejected("cancelled", "no task any more"), std::nullopt});
  EXPECT_FALSE(peer.machine.failure());
  const auto second = peer.of<peer::Prepare>();
  ASSERT_THAT(second, SizeIs(1));
  peer.feed(peer.prepared(second[0]));
  EXPECT_NE(peer.machine.session(), nullptr);
}

// What an ended session had computed is nothing to the next one.
TEST_F(Fallbacks, AComputationOfAnEndedSessionIsIgnored) {
  peer.feed(begin());
  while (peer.computations.empty()) peer.tick(100ms);
  const peer::Compute old = peer.computations.front();
  peer.computations.clear();
  peer.feed(peer::EndFallback{});
  peer.clear();
  old.work();
  peer.feed(peer::Computed{old.session});
  EXPECT_THAT(peer.actions, IsEmpty());
  peer.feed(begin());
  while (peer.computations.empty()) peer.tick(100ms);
  peer.clear();
  peer.feed(peer::Computed{old.session});
  EXPECT_THAT(peer.actions, IsEmpty());
  EXPECT_EQ(peer.state(), "training");
  peer.compute();
  EXPECT_EQ(peer.state(), "waiting");
}

}  // namespace
}  // namespace starling::gossip
