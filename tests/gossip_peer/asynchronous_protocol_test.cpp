// SPDX-License-Identifier: Apache-2.0
// Asynchronous protocols: mass to the last bit while links come and go, nothing taken that was
// meant for a former process, who is done and who is far behind; and whole peers over TLS.
#include "gossip/peer/asynchronous_protocol.h"

#include <gtest/gtest.h>

#include <limits>

#include "core/train/evaluator.h"
#include "gossip/algorithms/push_sum.h"
#include "tests/gossip/simulation_cases.h"
#include "tests/gossip_peer/machine_bench.h"
#include "tests/gossip_peer/peer_cluster.h"
#include "tests/gossip_peer/peer_world.h"
#include "tests/gossip_peer/world_invariants.h"

namespace starling::gossip {
namespace {

using namespace std::chrono_literals;
using protocol::Confirmation;
using protocol::Introduction;
using protocol::PairMessage;
using protocol::VectorTransfer;
using starling::testing::PeerCluster;
using starling::testing::PeerWorld;
using starling::testing::run_of;
using starling::testing::simulated_models;

double accuracy(const Experiment& experiment, std::span<const float> model) {
  const auto evaluated = train::evaluate(*experiment.model, model, experiment.parts.front());
  EXPECT_TRUE(evaluated) << evaluated.error().message();
  return evaluated->accuracy.value();
}

double accuracy(const PeerWorld& world, std::size_t index) {
  return accuracy(world.experiment, *world.training(index).model());
}

// Of links that break often and members that come late, with a patience to match.
void use_short_patience(PeerWorld& world) {
  world.options.patience_min = 50ms;
  world.options.patience_max = 1s;
  world.options.start_patience = 200ms;
}

// Calls this with what is sent in pairs.
void watch_pairs(
    PeerWorld& world,
    std::function<void(std::size_t from, const PairMessage&, const SharedBytes&)> look) {
  world.on_transfer = [look = std::move(look)](std::size_t from, std::size_t,
                                               const VectorTransfer& transfer, SharedBytes& data) {
    if (const auto* pair = std::get_if<PairMessage>(&transfer.content)) look(from, *pair, data);
  };
}

// Every while some link breaks, and comes back soon after.
void flap_links(PeerWorld& world) {
  if (world.all_finished()) return;
  const auto draw = [&world] { return world.peers[world.rng.below(world.peers.size())]->name; };
  const std::string a = draw();
  const std::string b = draw();
  world.network.reset(a, b);
  world.scheduler.schedule(world.scheduler.now() + from_seconds(world.rng.uniform(0, 0.03)),
                           [&world] { flap_links(world); });
}

// --- who may ask --------------------------------------------------------------------------------

TEST(AsynchronousProtocol, OnlyNeighboursAreAnswered) {
  PeerWorld world(testing::small_network_of_steps(50, "ring", 6, "ad-psgd"), 1);
  world.begin();
  world.run_to_exchange(0, 1);
  const VectorTransfer request{.content = PairMessage{.kind = PairMessage::Kind::kRequest,
                                                      .number = 1,
                                                      .floats = world.experiment.parameters()}};
  const VectorTransfer greeting{.content = Introduction{.edge = {7, 0}}};
  for (const Member from : {1U, 5U}) EXPECT_TRUE(world.training(0).check(from, request)) << from;
  for (const Member from : {2U, 3U, 4U}) {
    EXPECT_FALSE(world.training(0).check(from, request)) << from;
    EXPECT_TRUE(world.training(0).check(from, greeting)) << from;
  }
}

// Each answer draws the model half way to the sender's.
TEST(AsynchronousProtocol, ANeighbourIsAnsweredSixteenTimesBetweenTwoPhases) {
  for (const Member self : {0U, 1U}) {
    starling::testing::MachineBench bench(testing::small_network_of_steps(50, "ring", 6, "ad-psgd"),
                                          self);
    const Member neighbour = 1 - self;
    bench.links = {{neighbour, protocol::PeerHello{}}};
    bench.give(bench.world.roster(1));
    const auto greetings = bench.transfers<Introduction>();
    ASSERT_FALSE(greetings.empty());
    const protocol::Incarnations edge{7, greetings[0].content.edge.sender};
    const auto hear = [&](const VectorTransfer::Content& content, std::size_t floats) {
      const std::vector<float> model(floats, 0.0F);
      bench.feed(peer::TransferReceived{neighbour,
                                        {{.epoch = 1, .content = content},
                                         SharedBytes::own(to_bytes(as_bytes(std::span(model))))}});
    };
    hear(Introduction{.edge = edge}, 0);
    const std::size_t floats = bench.world.experiment.parameters();
    for (std::uint32_t number = 1; number <= 100; ++number) {
      const PairMessage request{
          .kind = PairMessage::Kind::kRequest, .number = number, .edge = edge, .floats = floats};
      hear(request, floats);
    }
    const bool is_active = run_of(bench.world.experiment).plan.active[self] != 0;
    std::size_t replies = 0;
    for (const auto& [pair, send] : bench.transfers<PairMessage>()) {
      replies += pair.kind == PairMessage::Kind::kReply;
    }
    EXPECT_EQ(replies, is_active ? 0U : 16U);
  }
}

// --- mass ---------------------------------------------------------------------------------------

const AsynchronousProtocol& protocol_of(const PeerWorld& world, std::size_t index) {
  return dynamic_cast<const AsynchronousProtocol&>(world.training(index));
}

const MassLedger& ledger_of(const PeerWorld& world, std::size_t index) {
  return *dynamic_cast<const PushSum<float>&>(protocol_of(world, index).algorithm()).ledger();
}

// The world's invariants sum what is with the peers and on the edges.
TEST(AsynchronousProtocol, NoWeightIsLostOrMadeWhileLinksComeAndGo) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    PeerWorld world(testing::small_network_of_steps(300, "exponential", 6, "push-sum"), seed);
    use_short_patience(world);
    world.begin();
    flap_links(world);
    std::uint64_t events = 0;
    std::uint64_t counted = 0;
    const auto is_over = [&] {
      if (++events % 16 == 0) counted += world.invariants().expect_all_mass() ? 1 : 0;
      return world.all_finished() || ::testing::Test::HasFailure();
    };
    ASSERT_TRUE(world.run_until(is_over, 1h, "all have finished"));
    EXPECT_GT(counted, 100U);
    EXPECT_TRUE(world.invariants().expect_all_mass()) << "seed " << seed;
    for (std::size_t i = 0; i < 6; ++i) {
      EXPECT_GT(ledger_of(world, i).weight(), 0.5 * MassLedger::kLeastWeight) << "seed " << seed;
      EXPECT_GT(accuracy(world, i), 0.85) << "seed " << seed;
    }
  }
}

// Without faults nothing is on any edge at the end.
TEST(AsynchronousProtocol, AtRestAllWeightIsWithThePeers) {
  PeerWorld world(testing::small_network_of_steps(50, "ring", 4, "push-sum"), 4);
  world.begin();
  world.run_to_end();
  world.run_for(10s);
  MassLedger::Fixed sum = 0;
  for (std::size_t i = 0; i < 4; ++i) sum += ledger_of(world, i).mass().back();
  EXPECT_EQ(sum, MassLedger::Fixed{4} << 40);
}

// While it is not known that two are cut off, the others do hundreds of phases: had each pushed to
// them, none would have had a weight to mix with.
TEST(AsynchronousProtocol, WhoIsCutOffTakesLittleMassAlong) {
  PeerWorld world(testing::small_network_of_steps(100'000, "exponential", 8, "push-sum"), 5);
  world.phase = [] { return 10ms; };
  world.begin();
  world.run_for(5s);
  const std::set<std::size_t> away = {1, 2};
  const auto least_weight = [&] {
    double least = 8;
    for (std::size_t i = 0; i < 8; ++i) {
      if (!away.contains(i)) least = std::min(least, ledger_of(world, i).weight());
    }
    return least;
  };
  world.cut_off(away);
  for (int i = 0; i < 300; ++i) {
    world.run_for(100ms);
    ASSERT_GT(least_weight(), 1e-3) << i;
  }
  world.mend(away);
  world.run_for(30s);
  EXPECT_TRUE(world.invariants().expect_all_mass());
  EXPECT_GT(least_weight(), 0.05);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(world.progress(i).heard, 3U) << i;
}

// Its links stay whole, and what was pushed and confirmed meanwhile is lost.
TEST(AsynchronousProtocol, WhoIsBackIsPushedToWhateverWasLost) {
  PeerWorld world(testing::small_network_of_steps(100'000, "ring", 4, "push-sum"), 3);
  bool is_lost = false;
  int pushes = 0;  // of it
  world.on_transfer = [&](std::size_t from, std::size_t to, VectorTransfer& transfer,
                          SharedBytes&) {
    if (is_lost && (from == 3 || to == 3)) transfer.epoch = 0;
    if (from == 3 && std::holds_alternative<PairMessage>(transfer.content)) ++pushes;
  };
  world.begin();
  world.run_for(5s);
  EXPECT_GT(pushes, 10);
  is_lost = true;
  world.run_for(1s);
  world.cut_off({3});
  world.run_for(8s);
  is_lost = false;
  world.mend({3});
  world.run_for(2s);
  pushes = 0;
  world.run_for(2s);
  EXPECT_GT(pushes, 10);
}

// A hub of which most links are cut counts itself a minority; its other leaves hear of all by way
// of each other. Were mass to travel between them, the leaves' would come to the hub, since nothing
// that it learns may go back.
TEST(AsynchronousProtocol, AMinorityThatIsLinkedToAQuorumDrainsNoMass) {
  constexpr std::size_t kMembers = 12;
  PeerWorld world(testing::small_network_of_steps(100'000, "star", kMembers, "push-sum"), 5);
  world.phase = [] { return 10ms; };
  world.begin();
  world.run_for(5s);
  const auto each_cut_way = [&](auto change) {
    for (std::size_t leaf = 1; leaf <= 7; ++leaf) {
      change(world.peers[0]->name, world.peers[leaf]->name);
      change(world.peers[leaf]->name, world.peers[0]->name);
    }
  };
  each_cut_way([&](const auto& from, const auto& to) { world.network.cut(from, to); });
  bool was_apart = false;
  for (int i = 0; i < 300; ++i) {
    world.run_for(100ms);
    was_apart |= world.session(0).support().minority && !world.session(8).support().minority;
    for (std::size_t leaf = 8; leaf < kMembers; ++leaf) {
      ASSERT_GT(ledger_of(world, leaf).weight(), 1e-3) << leaf << " after " << i;
    }
  }
  EXPECT_TRUE(was_apart);
  each_cut_way([&](const auto& from, const auto& to) { world.network.mend(from, to); });
  world.run_for(60s);
  EXPECT_TRUE(world.invariants().expect_all_mass());
  EXPECT_FALSE(world.session(0).support().minority);
  for (std::size_t i = 0; i < kMembers; ++i) {
    EXPECT_GT(ledger_of(world, i).weight(), 0.01) << i;
    EXPECT_GT(accuracy(world, i), 0.85) << i;
  }
}

// Nobody had a quorum, and local phases are longer than it takes all to have one again: what each
// said last of itself is not true any more, and nothing else would tell the others.
TEST(AsynchronousProtocol, HalvesThatMeetAgainTalkToEachOther) {
  for (const std::string algorithm : {"ad-psgd", "push-sum"}) {
    PeerWorld world(testing::small_network_of_steps(100'000, "ring", 4, algorithm), 5);
    world.phase = [] { return 4s; };
    world.begin();
    world.run_for(30s);
    world.cut_off({0, 1});
    world.run_for(90s);
    EXPECT_TRUE(world.session(0).support().minority);
    world.mend({0, 1});
    world.run_for(90s);
    std::set<std::pair<std::size_t, std::size_t>> edges;
    world.on_transfer = [&](std::size_t from, std::size_t to, const VectorTransfer&,
                            const SharedBytes& data) {
      if (!data.empty()) edges.insert(std::minmax(from, to));
    };
    world.run_for(120s);
    EXPECT_EQ(edges.size(), 4U) << algorithm;
  }
}

// Processes die and others take their place. Whoever took a total as more than what this very
// process put there would hold weight that nobody gave, or less than none.
TEST(AsynchronousProtocol, NothingIsTakenTwiceWhenProcessesRestart) {
  PeerWorld world(testing::small_network_of_steps(1000, "complete", 5, "push-sum"), 7);
  use_short_patience(world);
  world.options.checkpoint_every = 100ms;
  world.begin();
  flap_links(world);
  int restarts = 0;
  std::uint64_t events = 0;
  const auto is_over = [&] {
    if (++events % 300 == 0 && restarts < 30) {
      const std::size_t victim = world.rng.below(5);
      world.kill(victim);
      world.start(victim);
      ++restarts;
    }
    for (std::size_t i = 0; i < 5; ++i) {
      if (world.peers[i]->shell().machine().session() == nullptr) continue;
      EXPECT_GT(ledger_of(world, i).weight(), 0) << i;
      EXPECT_LT(ledger_of(world, i).weight(), 10) << i;
    }
    return world.all_finished() || ::testing::Test::HasFailure();
  };
  ASSERT_TRUE(world.run_until(is_over, 1h, "all have finished"));
  EXPECT_EQ(restarts, 30);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_GT(accuracy(world, i), 0.85);
  // A process that begins its totals anew is no liar.
  for (const std::string& line : world.lines) {
    EXPECT_EQ(line.find("no message of push-sum"), std::string::npos) << line;
  }
}

// --- pairs --------------------------------------------------------------------------------------

TEST(AsynchronousProtocol, AskersGoOnWhenRepliesAreLost) {
  PeerWorld world(testing::small_network_of_steps(1000, "ring", 4, "ad-psgd"), 5);
  use_short_patience(world);
  std::uint64_t replies = 0;
  watch_pairs(world, [&](std::size_t, const PairMessage& pair, const SharedBytes&) {
    replies += pair.kind == PairMessage::Kind::kReply ? 1 : 0;
  });
  world.begin();
  flap_links(world);
  world.run_to_end();
  world.run_for(10s);
  EXPECT_GT(replies, 100U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_FALSE(protocol_of(world, i).algorithm().waiting());
    EXPECT_GT(accuracy(world, i), 0.85);
  }
}

// A reply that does not come, though the link stays.
TEST(AsynchronousProtocol, GivesUpAReplyAfterItsPatience) {
  PeerWorld world(testing::small_network_of_steps(1000, "ring", 2, "ad-psgd"), 6);
  world.options.patience_min = 500ms;
  std::vector<TimePoint> requests;
  watch_pairs(world, [&](std::size_t, const PairMessage& pair, const SharedBytes&) {
    if (pair.kind == PairMessage::Kind::kRequest) requests.push_back(world.scheduler.now());
  });
  const std::size_t asker = run_of(world.experiment).plan.active[0] != 0 ? 0 : 1;
  world.begin();
  world.run_until([&] { return requests.size() == 1; }, 1min, "a request");
  world.freeze(1 - asker);
  world.run_until([&] { return requests.size() == 3; }, 1min, "two more");
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_GE(requests[1] - requests[0], 500ms);
  EXPECT_LE(requests[2] - requests[0], 3s);
}

// A neighbour says for ever that it did no phase. What it sends once all others have been done for
// a while changes nobody's model.
TEST(AsynchronousProtocol, WhatComesLongAfterTheRunChangesNothing) {
  for (const std::string algorithm : {"ad-psgd", "push-sum"}) {
    PeerWorld world(testing::small_network_of_steps(200, "ring", 4, algorithm), 8);
    world.on_transfer = [&](std::size_t from, std::size_t, VectorTransfer& transfer, SharedBytes&) {
      if (from != 3) return;
      if (auto* pair = std::get_if<PairMessage>(&transfer.content)) pair->phases = 0;
      if (auto* its = std::get_if<Introduction>(&transfer.content)) its->exchange = 0;
      if (auto* its = std::get_if<Confirmation>(&transfer.content)) its->phases = 0;
    };
    world.begin();
    world.run_to_end();
    world.run_for(3min);
    std::size_t sent = 0;
    watch_pairs(world, [&](std::size_t from, const PairMessage&, const SharedBytes& data) {
      sent += from != 3 && !data.empty() ? 1 : 0;
    });
    std::vector<std::vector<float>> models;
    for (std::size_t i = 0; i < 3; ++i) {
      models.emplace_back(world.training(i).model()->begin(), world.training(i).model()->end());
    }
    world.run_for(1min);
    EXPECT_EQ(sent, 0U) << algorithm;
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(std::ranges::equal(models[i], *world.training(i).model())) << algorithm;
    }
  }
}

// Who is done by far the first still ends near the others, and in the end all is quiet.
TEST(AsynchronousProtocol, WhoIsDoneMixesWithThoseWhoTrain) {
  for (const std::string algorithm : {"ad-psgd", "push-sum"}) {
    PeerWorld world(testing::small_network_of_steps(200, "ring", 4, algorithm), 8);
    for (const std::size_t fast : {0, 1}) world.peers[fast]->training_time = [] { return 2ms; };
    std::uint64_t sent = 0;
    std::uint64_t sent_when_done = 0;
    watch_pairs(world, [&](std::size_t from, const PairMessage&, const SharedBytes&) {
      ++sent;
      if (world.training(from).is_finished()) ++sent_when_done;
    });
    world.begin();
    world.run_to_end();
    EXPECT_GT(sent_when_done, 20U) << algorithm;
    world.run_for(10s);
    const std::uint64_t at_rest = sent;
    world.run_for(1min);
    EXPECT_EQ(sent, at_rest) << algorithm;
  }
}

// It does not know its pace any more.
TEST(AsynchronousProtocol, WhoIsStartedAgainWhenDoneSendsLittle) {
  PeerWorld world(testing::small_network_of_steps(200, "ring", 4, "push-sum"), 8);
  for (std::size_t i = 0; i < 4; ++i) {
    world.peers[i]->training_time = [i] { return i == 0 ? 2ms : 500ms; };
  }
  std::uint64_t sent = 0;
  watch_pairs(world, [&](std::size_t from, const PairMessage&, const SharedBytes&) {
    if (from == 0) ++sent;
  });
  world.begin();
  const auto is_done = [&] {
    return world.progress(0).exchange > 0 && world.training(0).is_finished();
  };
  ASSERT_TRUE(world.run_until(is_done, 1min, "the first is done"));
  world.stop(0);
  world.start(0);
  ASSERT_TRUE(world.run_until(is_done, 1min, "it is done still"));
  sent = 0;
  world.run_for(20s);
  ASSERT_FALSE(world.all_finished());
  EXPECT_GT(sent, 5U);
  EXPECT_LT(sent, 300U);  // answers too
}

// --- coming late --------------------------------------------------------------------------------

// All but one, until the first is at exchange 100.
void start_without(PeerWorld& world, std::size_t late) {
  use_short_patience(world);
  for (std::size_t i = 0; i < world.peers.size(); ++i) {
    if (i != late) world.start(i);
  }
  world.publish(world.roster(1));
  world.run_to_exchange(late == 0 ? 1 : 0, 100);
}

void start_late(PeerWorld& world, std::size_t late) {
  world.options.start_patience = 60s;  // the others dial it when they next try
  world.start(late);
  world.give(late, world.roster(1));
}

TEST(AsynchronousProtocol, WhoComesLateCopiesAModelBeforeItTellsItsOwn) {
  for (const std::string algorithm : {"ad-psgd", "push-sum"}) {
    PeerWorld world(testing::small_network_of_steps(1000, "ring", 4, algorithm), 9);
    start_without(world, 3);
    bool told_its_own = false;
    watch_pairs(world, [&](std::size_t from, const PairMessage&, const SharedBytes&) {
      if (from == 3 && world.copies_begun(3) == 0) told_its_own = true;
    });
    start_late(world, 3);
    world.run_to_exchange(3, 20);
    EXPECT_EQ(world.copies_begun(3), 1) << algorithm;
    EXPECT_FALSE(told_its_own) << algorithm;
    EXPECT_GT(accuracy(world, 3), 0.85) << algorithm;
    world.run_to_end();
    EXPECT_EQ(world.copies_begun(3), 1) << algorithm;
  }
}

// Who asks first thing after copying asks with the model that it copied.
TEST(AsynchronousProtocol, WhatIsReplacedIsToldToNobody) {
  PeerWorld world(testing::small_network_of_steps(1000, "ring", 4, "ad-psgd"), 9);
  const auto run = run_of(world.experiment);
  const std::size_t late = run.plan.active[3] != 0 ? 3 : 2;
  start_without(world, late);
  std::vector<float> first;
  watch_pairs(world, [&](std::size_t from, const PairMessage&, const SharedBytes& data) {
    if (from != late || data.empty() || !first.empty() || world.copies_begun(late) == 0) return;
    first.resize(data.size() / sizeof(float));
    std::memcpy(first.data(), data.view().data(), data.size());
  });
  start_late(world, late);
  world.run_until([&] { return !first.empty(); }, 1min, "it tells its model");
  const auto initial = run.initial.values();
  ASSERT_EQ(first.size(), initial.size());
  EXPECT_FALSE(std::ranges::equal(first, initial));
}

// Cut off for a while, as a laptop that sleeps: the second absence is as any other.
TEST(AsynchronousProtocol, WhoReturnsFarBehindCopiesEachTime) {
  PeerWorld world(testing::small_network_of_steps(20'000, "ring", 4, "push-sum"), 12);
  use_short_patience(world);
  world.begin();
  world.run_to_exchange(3, 10);
  world.peers[3]->training_time = [] { return 10s; };
  Exchange others = 100;
  for (int absence = 1; absence <= 2; ++absence, others *= 8) {
    for (std::size_t i = 0; i < 3; ++i) world.network.reset(world.peers[i]->name, "node-04");
    world.cut_off({3});
    world.run_to_exchange(0, others);
    world.mend({3});
    world.run_until([&] { return world.copies_begun(3) == absence; }, 1min, "it copies");
  }
}

TEST(AsynchronousProtocol, NobodyGivesAModelAndItTrainsFromItsOwn) {
  PeerWorld world(testing::small_network_of_steps(400, "ring", 4, "ad-psgd"), 10);
  start_without(world, 3);
  start_late(world, 3);
  world.run_until([&] { return world.copies_begun(3) == 1; }, 1min, "it asks for a model");
  for (const std::size_t i : {0U, 1U, 2U}) world.kill(i);
  world.run_until([&] { return world.peers[3]->shell().is_finished(); }, 1h, "it finishes");
  EXPECT_EQ(world.peers[3]->columns_taken, 0U);
  EXPECT_FALSE(world.peers[3]->shell().machine().failure());
}

// --- what others may send -----------------------------------------------------------------------

TEST(AsynchronousProtocol, RefusesWhatIsNotOfThisModelAndIgnoresWhatIsNoNumber) {
  PeerWorld world(testing::small_network_of_steps(400, "ring", 2, "ad-psgd"), 11);
  std::map<std::size_t, std::uint32_t> incarnations;
  watch_pairs(world, [&](std::size_t from, const PairMessage& pair, const SharedBytes&) {
    incarnations[from] = pair.edge.sender;
  });
  world.begin();
  world.run_to_exchange(0, 5);
  // From now on nobody learns, so that only what is sent changes a model.
  for (const auto& peer : world.peers) peer->training_time = [] { return 1h; };
  world.run_for(5s);
  const auto run = run_of(world.experiment);
  const Member passive = run.plan.active[0] != 0 ? 1 : 0;
  const Member asker = 1 - passive;
  const TrainingProtocol& training = world.training(passive);
  const std::uint64_t size = run.initial.size();
  const auto refused = [&](const VectorTransfer::Content& content) {
    return !training.check(asker, {.content = content});
  };
  const auto request = PairMessage::Kind::kRequest;
  EXPECT_TRUE(refused(protocol::MixMessage{.exchange = 1, .first = size}));
  EXPECT_TRUE(refused(PairMessage{.kind = request, .number = 1, .floats = size + 1}));
  EXPECT_TRUE(refused(PairMessage{.number = 1, .packed = 8 * size}));
  EXPECT_TRUE(refused(PairMessage{.number = 1}));
  EXPECT_FALSE(refused(PairMessage{.kind = request, .number = 1, .floats = size}));
  EXPECT_FALSE(refused(PairMessage{.number = 1, .packed = 8 * (size + 1)}));
  EXPECT_TRUE(refused(PairMessage{.floats = size})) << "none of the algorithm's";
  EXPECT_FALSE(refused(Introduction{}));
  EXPECT_FALSE(refused(Confirmation{})) << "nothing of it is taken";
  EXPECT_TRUE(refused(Confirmation{.number = 1})) << "nothing was pushed";

  const auto model = [&] {
    return std::vector<float>(training.model()->begin(), training.model()->end());
  };
  PairMessage pair{.kind = request,
                   .number = 1,
                   .edge = {incarnations.at(asker), incarnations.at(passive)},
                   .floats = size};
  const auto send = [&](const std::vector<float>& values) {
    world.peers[asker]->shell().transport().send_transfer(
        passive, {.epoch = 1, .content = pair},
        SharedBytes::own(to_bytes(as_bytes(std::span(values)))), TransferFlow::Urgency::kNow);
    world.run_for(1s);
  };
  const std::vector<float> before = model();
  std::vector<float> poison(size, 1.0F);
  poison[size / 2] = std::numeric_limits<float>::quiet_NaN();
  send(poison);
  EXPECT_EQ(model(), before);
  // The same for a former process.
  const std::vector<float> zeros(size);
  pair.edge.receiver += 77;
  send(zeros);
  EXPECT_EQ(model(), before);
  // What is meant for this one counts.
  pair.edge.receiver = incarnations.at(passive);
  send(zeros);
  EXPECT_NE(model(), before);
}

// --- whole peers --------------------------------------------------------------------------------

class AsyncPeers : public ::testing::TestWithParam<std::pair<std::string, std::string>> {};

TEST_P(AsyncPeers, TrainAsWellAsTheSimulation) {
  const auto& [algorithm, topology] = GetParam();
  PeerCluster cluster(testing::small_network_of_steps(300, topology, 4, algorithm), true);
  cluster.start_all();
  cluster.publish(cluster.roster(1));
  cluster.run_until_finished();
  const auto expected = simulated_models(cluster.experiment);
  for (std::size_t i = 0; i < 4; ++i) {
    ASSERT_FALSE(cluster.model(i).empty());
    EXPECT_NEAR(accuracy(cluster.experiment, cluster.model(i)),
                accuracy(cluster.experiment, expected[i]), 0.05)
        << cluster.peers[i]->name;
  }
}

TEST_P(AsyncPeers, OneStopsAndComesBack) {
  const auto& [algorithm, topology] = GetParam();
  PeerCluster cluster(testing::small_network_of_steps(20'000, topology, 4, algorithm), true);
  cluster.options.patience_min = std::chrono::milliseconds(100);
  cluster.options.patience_max = std::chrono::seconds(2);
  cluster.start_all();
  cluster.publish(cluster.roster(1));
  const auto report = [&](std::size_t index) {
    return cluster.peers[index]->node->peer().report();
  };
  cluster.run_until([&] { return report(1).step >= 50; }, "the second has done 50 steps");
  cluster.stop(1);
  const auto path = cluster.peers[1]->directory / "gossip" / "checkpoint.safetensors";
  SystemDisk disk;
  const auto kept = load_checkpoint(disk, path, cluster.experiment.model->layout());
  ASSERT_TRUE(kept) << kept.error().message();
  const auto state = load_state(disk, path, *kept, algorithm);
  ASSERT_TRUE(state) << state.error().message();
  EXPECT_EQ(state->bytes.empty(), algorithm == "ad-psgd");
  cluster.run_until([&] { return report(2).neighbours == 1; },
                    "the third hears one neighbour less");
  cluster.start(1);
  EXPECT_GE(report(1).step, 50U);
  cluster.run_until(
      [&] {
        for (std::size_t i = 0; i < 4; ++i) {
          if (report(i).neighbours != report(i).expected) return false;
        }
        return true;
      },
      "all are heard by all their neighbours again");
}

INSTANTIATE_TEST_SUITE_P(AsynchronousProtocol, AsyncPeers,
                         ::testing::Values(std::pair("ad-psgd", "ring"),
                                           std::pair("push-sum", "exponential")),
                         [](const auto& instance) {
                           return instance.param.first == "ad-psgd" ? "ad_psgd" : "push_sum";
                         });

}  // namespace
}  // namespace starling::gossip
