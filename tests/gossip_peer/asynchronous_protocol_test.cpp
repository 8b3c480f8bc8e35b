// SPDX-License-Identifier: Apache-2.0
// Asynchronous protocols: mass to the last bit while links come and go, nothing taken that was
// meant for a former process, who is done and who is far behind; and whole peers over TLS.
#include "gossip/peer/asynchronous_protocol.h"

#include <gtest/gtest.h>

#include <limits>

#include "core/train/evaluator.h"
#include "gossip/algorithms/push_sum.h"
#include "tests/gossip/simulation_cases.h"
#include "tests/gossip_peer/fake_network.h"
#include "tests/gossip_peer/peer_cluster.h"

namespace starling::gossip {
namespace {

using protocol::PairMessage;
using protocol::VectorTransfer;
using starling::testing::FakeNetwork;
using starling::testing::PeerCluster;
using starling::testing::simulated_models;

double accuracy(const Experiment& experiment, std::span<const float> model) {
  const auto evaluated = train::evaluate(*experiment.model, model, experiment.parts.front());
  EXPECT_TRUE(evaluated) << evaluated.error().message();
  return evaluated->accuracy.value();
}

const PairMessage& pair_of(const VectorTransfer& transfer) {
  return std::get<PairMessage>(transfer.content);
}

std::span<const float> model_of(const FakeNetwork& net, Member member) {
  return *net.peers[member]->training->model();
}

bool all_finished(const FakeNetwork& net) {
  return std::ranges::all_of(
      net.peers, [](const auto& peer) { return !peer->training || peer->training->is_finished(); });
}

void start_all(FakeNetwork& net) {
  for (Member member = 0; member < net.peers.size(); ++member) net.start(member, member + 1);
  net.connect_all();
}

// Every few milliseconds some link breaks, and comes back soon after.
void flap_links(FakeNetwork& net) {
  if (all_finished(net)) return;
  const auto draw = [&] { return static_cast<Member>(net.rng.below(net.peers.size())); };
  const Member a = draw();
  const Member b = draw();
  net.cut(a, b);
  net.at(net.now + from_seconds(net.rng.uniform(0, 0.03)), [&net, a, b] { net.connect(a, b); });
  net.at(net.now + from_seconds(net.rng.uniform(0, 0.01)), [&net] { flap_links(net); });
}

// --- who may ask --------------------------------------------------------------------------------

// A request with the receiver's own model.
TransferFlow::Whole request(const FakeNetwork& net, Member from, Member to) {
  const std::span<const float> model = model_of(net, to);
  return {{.content = PairMessage{.kind = PairMessage::Kind::kRequest,
                                  .number = 1,
                                  .sender_incarnation = from + 1,
                                  .receiver_incarnation = to + 1,
                                  .floats = model.size()}},
          SharedBytes::own(to_bytes(as_bytes(model)))};
}

TEST(AsynchronousProtocol, OnlyNeighboursAreAnswered) {
  FakeNetwork net(testing::small_network_of_steps(50, "ring", 6, "ad-psgd"), 1);
  start_all(net);
  const auto& training = *net.peers[0]->training;
  for (const Member from : {1U, 5U}) {
    EXPECT_TRUE(training.check(from, request(net, from, 0).transfer)) << from;
  }
  for (const Member from : {2U, 3U, 4U}) {
    EXPECT_FALSE(training.check(from, request(net, from, 0).transfer)) << from;
    const VectorTransfer greeting{.content = PairMessage{.sender_incarnation = from + 1}};
    EXPECT_TRUE(training.check(from, greeting)) << from;
  }
}

// Each answer draws the model half way to the sender's.
TEST(AsynchronousProtocol, ANeighbourIsAnsweredSixteenTimesBetweenTwoPhases) {
  FakeNetwork net(testing::small_network_of_steps(50, "ring", 6, "ad-psgd"), 1);
  start_all(net);
  int replies = 0;
  net.on_send = [&](Member, Member, const VectorTransfer& transfer) {
    replies += pair_of(transfer).kind == PairMessage::Kind::kReply && pair_of(transfer).number > 0;
  };
  for (int time = 0; time < 100; ++time) {  // one of the two answers
    net.peers[0]->training->take(1, request(net, 1, 0));
    net.peers[1]->training->take(0, request(net, 0, 1));
  }
  EXPECT_EQ(replies, 16);
}

// --- mass ---------------------------------------------------------------------------------------

const MassLedger* ledger_of(const FakeNetwork& net, Member member) {
  const auto* training =
      dynamic_cast<const AsynchronousProtocol*>(net.peers[member]->training.get());
  if (training == nullptr) return nullptr;
  return &*dynamic_cast<const PushSum<float>&>(training->algorithm()).ledger();
}

// What was pushed onto the edge and not yet taken from it, of the weight.
MassLedger::Fixed on_edge(const MassLedger& from, Member self, const MassLedger& to, Member other) {
  const auto pushed = from.pushed(other);
  const auto pulled = to.pulled(self);
  return (pushed.empty() ? 0 : pushed.back()) - (pulled.empty() ? 0 : pulled.back());
}

MassLedger::Fixed whole_weight(const FakeNetwork& net) {
  MassLedger::Fixed sum = 0;
  for (Member i = 0; i < net.peers.size(); ++i) {
    sum += ledger_of(net, i)->mass().back();
    for (Member j = 0; j < net.peers.size(); ++j) {
      if (i != j) sum += on_edge(*ledger_of(net, i), i, *ledger_of(net, j), j);
    }
  }
  return sum;
}

TEST(AsynchronousProtocol, NoWeightIsLostOrMadeWhileLinksComeAndGo) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    FakeNetwork net(testing::small_network_of_steps(150, "exponential", 6, "push-sum"), seed);
    start_all(net);
    flap_links(net);
    const MassLedger::Fixed whole = MassLedger::Fixed{6} << 40;
    std::uint64_t events = 0;
    net.run_until([&] {
      if (++events % 16 != 0) return false;
      EXPECT_EQ(whole_weight(net), whole) << "seed " << seed;
      return ::testing::Test::HasFailure();
    });
    ASSERT_TRUE(all_finished(net)) << "seed " << seed;
    EXPECT_EQ(whole_weight(net), whole) << "seed " << seed;
    for (Member member = 0; member < 6; ++member) {
      EXPECT_GT(ledger_of(net, member)->weight(), 0.5 * MassLedger::kLeastWeight)
          << "seed " << seed;
      EXPECT_GT(accuracy(net.experiment, model_of(net, member)), 0.85) << "seed " << seed;
    }
  }
}

// Without faults nothing is on any edge at the end.
TEST(AsynchronousProtocol, AtRestAllWeightIsWithThePeers) {
  FakeNetwork net(testing::small_network_of_steps(50, "ring", 4, "push-sum"), 4);
  start_all(net);
  net.run_to_rest();
  ASSERT_TRUE(all_finished(net));
  MassLedger::Fixed sum = 0;
  for (Member member = 0; member < 4; ++member) sum += ledger_of(net, member)->mass().back();
  EXPECT_EQ(sum, MassLedger::Fixed{4} << 40);
}

// Processes die and others take their place. Whoever took a total as more than what this very
// process put there would hold weight that nobody gave, or less than none.
TEST(AsynchronousProtocol, NothingIsTakenTwiceWhenProcessesRestart) {
  FakeNetwork net(testing::small_network_of_steps(400, "complete", 5, "push-sum"), 7);
  start_all(net);
  flap_links(net);
  std::uint32_t incarnation = 100;
  std::uint64_t events = 0;
  net.run_until([&] {
    if (++events % 200 == 0 && incarnation < 130) {
      const auto member = static_cast<Member>(net.rng.below(5));
      const auto left = net.peers[member]->training->model();
      ProtocolStart again{.exchange = net.peers[member]->training->progress().exchange,
                          .model = {left->begin(), left->end()}};
      net.stop(member);
      net.start(member, ++incarnation, std::move(again));
      net.connect_all();
    }
    for (Member i = 0; i < 5; ++i) {
      EXPECT_GT(ledger_of(net, i)->weight(), 0) << i;
      EXPECT_LT(ledger_of(net, i)->weight(), 10) << i;
    }
    return ::testing::Test::HasFailure();
  });
  EXPECT_EQ(incarnation, 130U);
  ASSERT_TRUE(all_finished(net));
  for (Member member = 0; member < 5; ++member) {
    EXPECT_GT(accuracy(net.experiment, model_of(net, member)), 0.85);
  }
}

// --- pairs --------------------------------------------------------------------------------------

TEST(AsynchronousProtocol, AskersGoOnWhenRepliesAreLost) {
  FakeNetwork net(testing::small_network_of_steps(300, "ring", 4, "ad-psgd"), 5);
  start_all(net);
  flap_links(net);
  std::uint64_t replies = 0;
  net.on_send = [&](Member, Member, const protocol::VectorTransfer& transfer) {
    replies += pair_of(transfer).kind == PairMessage::Kind::kReply ? 1 : 0;
  };
  net.run_to_rest();
  ASSERT_TRUE(all_finished(net));
  EXPECT_GT(replies, 100U);
  for (Member member = 0; member < 4; ++member) {
    const auto* training =
        dynamic_cast<const AsynchronousProtocol*>(net.peers[member]->training.get());
    EXPECT_FALSE(training->algorithm().waiting());
    EXPECT_GT(accuracy(net.experiment, model_of(net, member)), 0.85);
  }
}

// A reply that does not come, though the link stays.
TEST(AsynchronousProtocol, GivesUpAReplyAfterItsPatience) {
  FakeNetwork net(testing::small_network_of_steps(1000, "ring", 2, "ad-psgd"), 6);
  net.patience.min = std::chrono::milliseconds(500);
  start_all(net);
  std::vector<TimePoint> requests;
  const Member asker = net.run.plan.active[0] != 0 ? 0 : 1;
  net.on_send = [&](Member, Member, const protocol::VectorTransfer& transfer) {
    if (pair_of(transfer).kind == PairMessage::Kind::kRequest) requests.push_back(net.now);
  };
  net.run_until([&] { return requests.size() == 1; });
  // The other one is frozen from now on: it never answers.
  const auto frozen = std::move(net.peers[1 - asker]->training);
  net.run_until([&] { return requests.size() == 3; });
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_GE(requests[1] - requests[0], std::chrono::milliseconds(500));
  EXPECT_LE(requests[2] - requests[0], std::chrono::seconds(3));
}

// Who is done by far the first still ends near the others, and in the end all is quiet.
TEST(AsynchronousProtocol, WhoIsDoneMixesWithThoseWhoTrain) {
  for (const std::string algorithm : {"ad-psgd", "push-sum"}) {
    FakeNetwork net(testing::small_network_of_steps(200, "ring", 4, algorithm), 8);
    for (const Member fast : {0, 1}) net.peers[fast]->phase = std::chrono::milliseconds(2);
    std::uint64_t sent_when_done = 0;
    net.on_send = [&](Member from, Member, const protocol::VectorTransfer& transfer) {
      if (pair_of(transfer).number > 0 && net.peers[from]->training->is_finished())
        ++sent_when_done;
    };
    start_all(net);
    net.run_to_rest();
    ASSERT_TRUE(all_finished(net)) << algorithm;
    EXPECT_GT(sent_when_done, 20U) << algorithm;
    for (const auto& peer : net.peers) EXPECT_EQ(peer->finishes, 1);
  }
}

// --- coming late --------------------------------------------------------------------------------

TEST(AsynchronousProtocol, WhoComesLateCopiesAModelBeforeItTellsItsOwn) {
  for (const std::string algorithm : {"ad-psgd", "push-sum"}) {
    FakeNetwork net(testing::small_network_of_steps(400, "ring", 4, algorithm), 9);
    for (const Member member : {0, 1, 2}) net.start(member, member + 1);
    net.connect_all();
    net.run_until([&] { return net.peers[0]->training->progress().exchange >= 100; });
    bool told_its_own = false;
    net.on_send = [&](Member from, Member, const protocol::VectorTransfer& transfer) {
      if (from != 3 || net.peers[3]->copies > 0 || pair_of(transfer).number == 0) return;
      told_its_own = true;
    };
    net.start(3, 4);
    net.connect_all();
    net.run_until([&] { return net.peers[3]->training->progress().exchange >= 20; });
    EXPECT_EQ(net.peers[3]->copies, 1) << algorithm;
    EXPECT_FALSE(told_its_own) << algorithm;
    EXPECT_GT(accuracy(net.experiment, model_of(net, 3)), 0.85) << algorithm;
    net.run_to_rest();
    EXPECT_EQ(net.peers[3]->copies, 1) << algorithm;
    EXPECT_TRUE(all_finished(net)) << algorithm;
  }
}

// Who asks first thing after copying asks with the model that it copied.
TEST(AsynchronousProtocol, WhatIsReplacedIsToldToNobody) {
  FakeNetwork net(testing::small_network_of_steps(400, "ring", 4, "ad-psgd"), 9);
  const Member late = net.run.plan.active[3] != 0 ? 3 : 2;
  for (Member member = 0; member < 4; ++member) {
    if (member != late) net.start(member, member + 1);
  }
  net.connect_all();
  net.run_until([&] { return net.peers[0]->training->progress().exchange >= 100; });
  std::vector<float> first;
  net.falsify = [&](Member from, SharedBytes data) {
    if (from != late || data.size() == 0 || !first.empty() || net.peers[late]->copies == 0) {
      return data;
    }
    first.resize(data.size() / sizeof(float));
    std::memcpy(first.data(), data.view().data(), data.size());
    return data;
  };
  net.start(late, 4);
  net.connect_all();
  net.run_until([&] { return !first.empty(); });
  const auto initial = net.run.initial.values();
  ASSERT_EQ(first.size(), initial.size());
  EXPECT_FALSE(std::ranges::equal(first, initial));
}

// Cut off for a while, as a laptop that sleeps: the second absence is as any other.
TEST(AsynchronousProtocol, WhoReturnsFarBehindCopiesEachTime) {
  FakeNetwork net(testing::small_network_of_steps(4000, "ring", 4, "push-sum"), 12);
  start_all(net);
  net.run_until([&] { return net.peers[3]->training->progress().exchange >= 10; });
  net.peers[3]->phase = std::chrono::seconds(10);
  protocol::Exchange others = 100;
  for (int absence = 1; absence <= 2; ++absence, others *= 8) {
    for (const Member member : {0, 2}) net.cut(member, 3);
    net.run_until([&] { return net.peers[0]->training->progress().exchange >= others; });
    for (const Member member : {0, 2}) net.connect(member, 3);
    net.run_until([&] { return net.peers[3]->copies == absence; });
  }
}

TEST(AsynchronousProtocol, NobodyGivesAModelAndItTrainsFromItsOwn) {
  FakeNetwork net(testing::small_network_of_steps(400, "ring", 4, "ad-psgd"), 10);
  for (const Member member : {0, 1, 2}) net.start(member, member + 1);
  net.connect_all();
  net.run_until([&] { return net.peers[0]->training->progress().exchange >= 100; });
  net.start(3, 4);
  net.connect_all();
  net.run_until([&] { return net.peers[3]->copies == 1; });
  for (const Member member : {0, 1, 2}) net.stop(member);
  net.run_to_rest();
  EXPECT_TRUE(net.peers[3]->training->is_finished());
  EXPECT_FALSE(net.peers[3]->failure);
}

// --- what others may send -----------------------------------------------------------------------

TEST(AsynchronousProtocol, RefusesWhatIsNotOfThisModelAndIgnoresWhatIsNoNumber) {
  FakeNetwork net(testing::small_network_of_steps(400, "ring", 2, "ad-psgd"), 11);
  start_all(net);
  net.run_until([&] { return net.peers[0]->training->progress().exchange >= 5; });
  const Member passive = net.run.plan.active[0] != 0 ? 1 : 0;
  const Member asker = 1 - passive;
  TrainingProtocol& training = *net.peers[passive]->training;
  const std::uint64_t size = net.run.initial.size();
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
  EXPECT_FALSE(refused(PairMessage{}));

  const std::vector<float> before(model_of(net, passive).begin(), model_of(net, passive).end());
  std::vector<float> poison(size, 1.0F);
  poison[size / 2] = std::numeric_limits<float>::quiet_NaN();
  PairMessage pair{.kind = request,
                   .number = 1,
                   .sender_incarnation = asker + 1,
                   .receiver_incarnation = passive + 1,
                   .floats = size};
  training.take(asker,
                {{.content = pair}, SharedBytes::own(to_bytes(as_bytes(std::span(poison))))});
  EXPECT_EQ(std::vector<float>(model_of(net, passive).begin(), model_of(net, passive).end()),
            before);
  // The same for a former process.
  pair.receiver_incarnation = passive + 77;
  training.take(asker, {{.content = pair}, SharedBytes::own(Bytes(4 * size))});
  EXPECT_EQ(std::vector<float>(model_of(net, passive).begin(), model_of(net, passive).end()),
            before);
  // What is meant for this one counts.
  pair.receiver_incarnation = passive + 1;
  training.take(asker, {{.content = pair}, SharedBytes::own(Bytes(4 * size))});
  EXPECT_NE(std::vector<float>(model_of(net, passive).begin(), model_of(net, passive).end()),
            before);
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
