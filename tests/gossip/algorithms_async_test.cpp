// SPDX-License-Identifier: Apache-2.0
// The asynchronous algorithms, driven by events: nodes of different speed, messages that take time
// and may be lost.
#include <gtest/gtest.h>

#include <functional>
#include <list>
#include <optional>

#include "core/sim/event_queue.h"
#include "gossip/algorithms/ad_psgd.h"
#include "gossip/algorithms/push_sum.h"
#include "tests/gossip/harness.h"

namespace starling::gossip {
namespace {

constexpr Node kNodes = 8;
constexpr std::size_t kSize = 5;

Plan ad_psgd() {
  Plan plan = plan_by_hand({.name = "ad-psgd"}, kNodes);
  for (Node i = 0; i < kNodes; ++i) plan.active.push_back(i % 2);
  return plan;
}
Plan push_sum(bool lossy = false) { return plan_by_hand({.name = "push-sum"}, kNodes, lossy); }

struct WorldOptions {
  double loss = 0;
  double spread = 0;  // node i takes 1 + spread * i / n for a local phase
  double noise = 0;
  std::optional<Node> mute = {};  // nothing comes from it
};

template <class T>
class World {
 public:
  using Messages = std::vector<AsyncSend<T>>;

  World(const Plan& plan, const Quadratics& problem, const Mesh& mesh, const Matrix& start,
        WorldOptions options = {})
      : mesh_(mesh), options_(options) {
    for (Node i = 0; i < plan.nodes; ++i) {
      const std::vector<T> model(start[i].begin(), start[i].end());
      nodes_.push_back(make_async_algorithm<T>(plan, i, model));
      training_.push_back(std::make_unique<QuadraticTraining<T>>(problem, i, options.noise));
      begin(i);
    }
  }

  void run(double until, double rate, int steps = 1) {
    rate_ = rate;
    steps_ = steps;
    const TimePoint end = TimePoint{} + from_seconds(until);
    events_.schedule(end, [] {});  // others come before it or after
    while (events_.now() < end) (*events_.pop())();
  }
  AsyncAlgorithm<T>& node(Node i) { return *nodes_[i]; }
  Matrix models() const {
    Matrix x;
    for (const auto& node : nodes_) x.emplace_back(node->model().begin(), node->model().end());
    return x;
  }
  // What is on its way, lost messages left out.
  const std::list<std::shared_ptr<const AsyncMessage<T>>>& in_transit() const {
    return in_transit_;
  }

 private:
  void after(double seconds, std::function<void()> work) {
    events_.schedule(events_.now() + from_seconds(seconds), std::move(work));
  }
  void begin(Node i) {
    const double takes = (1 + options_.spread * i / kNodes) * rng_.uniform(0.9, 1.1);
    const auto model = nodes_[i]->model();
    after(takes, [this, i, start = std::vector<T>(model.begin(), model.end())] {
      finish_phase(i, start);
    });
  }
  void send(Node from, const Messages& sends) {
    for (const AsyncSend<T>& s : sends) {
      if (rng_.uniform() < options_.loss || options_.mute == from) continue;
      in_transit_.push_back(s.message);
      after(rng_.uniform(0.05, 0.6), [this, from, to = s.to, at = std::prev(in_transit_.end())] {
        const auto message = *at;
        in_transit_.erase(at);
        send(to, nodes_[to]->receive(from, *message));
      });
    }
  }
  void finish_phase(Node i, const std::vector<T>& start) {
    std::vector<T> x = start;
    ASSERT_TRUE(training_[i]->steps(x, rate_, steps_));
    for (std::size_t k = 0; k < x.size(); ++k) x[k] -= start[k];
    const bool waited = nodes_[i]->waiting();
    send(i, nodes_[i]->trained(x, mesh_.links(i), rng_));
    begin(i);
    if (waited || !nodes_[i]->waiting()) return;
    after(2, [this, i, wait = ++waits_[i]] {
      if (nodes_[i]->waiting() && wait == waits_[i]) nodes_[i]->unanswered();
    });
  }

  Mesh mesh_;
  WorldOptions options_;
  std::vector<std::unique_ptr<AsyncAlgorithm<T>>> nodes_;
  std::vector<std::unique_ptr<QuadraticTraining<T>>> training_;
  sim::EventQueue<std::function<void()>> events_;
  std::list<std::shared_ptr<const AsyncMessage<T>>> in_transit_;
  std::array<std::uint64_t, kNodes> waits_ = {};
  Rng rng_{{.seed = 5, .purpose = Purpose::kNetwork}};
  double rate_ = 0;
  int steps_ = 1;
};

Row mean_of(const Matrix& x) {
  Row mean(x[0].size());
  for (const Row& row : x) {
    for (std::size_t k = 0; k < row.size(); ++k) mean[k] += row[k] / static_cast<double>(x.size());
  }
  return mean;
}

TEST(AdPsgd, PairsAverageToTheSameBitsAndNobodyWaitsInACircle) {
  const Row a = {1, 2}, b = {3, -2};
  AdPsgd<double> active(true, a), passive(false, b);
  const Mesh pair = circulant(2, {1}, 0.5);
  Rng rng({.seed = 1});
  const Row update = {0.5, 0};
  EXPECT_TRUE(passive.trained(update, pair.links(1), rng).empty());
  EXPECT_FALSE(passive.waiting());
  const auto asked = active.trained(update, pair.links(0), rng);
  ASSERT_EQ(asked.size(), 1U);
  EXPECT_EQ(asked[0].to, 1U);
  EXPECT_EQ(asked[0].message->bytes(), 8U);
  EXPECT_TRUE(active.waiting());
  const auto replied = passive.receive(0, *asked[0].message);
  ASSERT_EQ(replied.size(), 1U);
  EXPECT_TRUE(active.receive(1, *replied[0].message).empty());
  EXPECT_FALSE(active.waiting());
  // Average, then step: what was found before the question comes on top of the mean.
  EXPECT_EQ(Row(active.model().begin(), active.model().end()), (Row{2.75, 0}));
  EXPECT_EQ(Row(passive.model().begin(), passive.model().end()), (Row{2.25, 0}));
}

// Algorithm 1 of the paper, written out for two nodes whose messages take no time: g at x_i, both
// take the mean, x_i less rate * g.
TEST(AdPsgd, AveragesAndThenStepsAsThePaperDoes) {
  const Quadratics problem(2, kSize);
  Matrix x = scattered(2, kSize);
  AdPsgd<double> active(true, x[0]), passive(false, x[1]);
  QuadraticTraining<double> training(problem, 0, 0);
  QuadraticTraining<double> other(problem, 1, 0);
  const Mesh pair = circulant(2, {1}, 0.5);
  Rng rng({.seed = 1});
  constexpr double kRate = 0.1;
  const auto gradient = [&](Node i) {
    Row g(kSize);
    EXPECT_TRUE((i == 0 ? training : other).gradient(x[i], g));
    return g;
  };
  const auto update = [&](const Row& g) {
    Row u(kSize);
    for (std::size_t k = 0; k < kSize; ++k) u[k] = -kRate * g[k];
    return u;
  };
  for (int t = 0; t < 50; ++t) {
    const Row u = update(gradient(0));
    for (std::size_t k = 0; k < kSize; ++k) {
      const double mean = 0.5 * (x[0][k] + x[1][k]);
      x[0][k] = mean + u[k];
      x[1][k] = mean;
    }
    const auto asked = active.trained(u, pair.links(0), rng);
    ASSERT_EQ(asked.size(), 1U);
    const auto replied = passive.receive(0, *asked[0].message);
    ASSERT_EQ(replied.size(), 1U);
    (void)active.receive(1, *replied[0].message);
    const Row v = update(gradient(1));
    (void)passive.trained(v, pair.links(1), rng);
    for (std::size_t k = 0; k < kSize; ++k) x[1][k] += v[k];
    EXPECT_LT(distance({Row(active.model().begin(), active.model().end()),
                        Row(passive.model().begin(), passive.model().end())},
                       x),
              1e-12);
  }
}

// The half that a reply brings is not lost because it was given up on.
TEST(AdPsgd, TakesALateReplyWhereverItIsNow) {
  AdPsgd<double> active(true, Row{1, 2}), passive(false, Row{3, -2});
  const Mesh pair = circulant(2, {1}, 0.5);
  Rng rng({.seed = 1});
  const auto asked = active.trained(Row{0, 0}, pair.links(0), rng);
  const auto late = passive.receive(0, *asked[0].message);
  active.unanswered();
  const auto again = active.trained(Row{0.5, 0}, pair.links(0), rng);
  ASSERT_EQ(again.size(), 1U);
  EXPECT_TRUE(active.receive(1, *late[0].message).empty());
  EXPECT_TRUE(active.waiting());
  EXPECT_EQ(Row(active.model().begin(), active.model().end()), (Row{2.5, 0}));
  EXPECT_TRUE(active.receive(1, *late[0].message).empty());  // once
  EXPECT_EQ(active.model()[0], 2.5);
}

TEST(AdPsgd, IgnoresWhatItDidNotAskFor) {
  const Row a = {1, 2};
  AdPsgd<double> active(true, a);
  const Mesh pair = circulant(2, {1}, 0.5);
  Rng rng({.seed = 1});
  const auto first = active.trained(Row{0, 0}, pair.links(0), rng);
  AsyncMessage<double> reply = {.kind = AsyncMessage<double>::Kind::kReply,
                                .number = first[0].message->number,
                                .vector = {9, 9}};
  active.unanswered();
  EXPECT_TRUE(active.receive(0, reply).empty());  // of another node
  const auto dropped = active.trained(Row{0, 0}, pair.links(0), rng);
  EXPECT_EQ(dropped.size(), 1U);
  active.unanswered();
  const auto second = active.trained(Row{0, 0}, pair.links(0), rng);
  EXPECT_TRUE(active.receive(1, reply).empty());  // of two requests before
  EXPECT_TRUE(active.waiting());
  EXPECT_EQ(active.model()[0], 1);
  reply.number = second[0].message->number;
  reply.vector = {9};
  EXPECT_TRUE(active.receive(1, reply).empty());  // of another model
  EXPECT_TRUE(active.waiting());
  AsyncMessage<double> request = {.kind = AsyncMessage<double>::Kind::kRequest, .vector = {9, 9}};
  EXPECT_TRUE(active.receive(1, request).empty());
  EXPECT_EQ(active.model()[0], 1);
  active.restart(Row{4, 4});
  EXPECT_FALSE(active.waiting());
  EXPECT_EQ(active.model()[0], 4);
}

TEST(AdPsgd, KeepsTheMeanWhereRepliesComeAndFindsIt) {
  const Quadratics problem(kNodes, kSize);
  const Matrix start = scattered(kNodes, kSize);
  World<double> world(ad_psgd(), problem, ring(kNodes), start);
  world.run(400, 0);
  // At the end at most one reply a node is on its way; by then all models are the mean.
  EXPECT_LT(distance(world.models(), Matrix(kNodes, mean_of(start))), 1e-12);
}

// What an asker learns between its question and the reply is neither lost nor halved.
TEST(AdPsgd, TrainsOnWhileAReplyIsOnItsWay) {
  AdPsgd<double> active(true, Row{1, 2}), passive(false, Row{3, -2});
  const Mesh pair = circulant(2, {1}, 0.5);
  Rng rng({.seed = 1});
  const auto asked = active.trained(Row{0, 0}, pair.links(0), rng);
  ASSERT_EQ(asked.size(), 1U);
  EXPECT_TRUE(active.trained(Row{0.5, -1}, pair.links(0), rng).empty());  // one request at a time
  EXPECT_EQ(active.model()[0], 1.5);
  const auto replied = passive.receive(0, *asked[0].message);
  EXPECT_TRUE(passive.trained(Row{1, 1}, pair.links(1), rng).empty());
  (void)active.receive(1, *replied[0].message);
  EXPECT_EQ(Row(active.model().begin(), active.model().end()), (Row{2.5, -1}));
  EXPECT_EQ(Row(passive.model().begin(), passive.model().end()), (Row{3, 1}));
  EXPECT_EQ(active.trained(Row{0, 0}, pair.links(0), rng).size(), 1U);
}

// Were nodes that ask to wait for replies before they train, their data would count for less: this
// world's messages take a third of a local phase on average.
TEST(AdPsgd, SettlesNearTheOptimumOfAllDataThoughHalfOfTheNodesAsk) {
  const Quadratics problem(kNodes, kSize);
  Quadratics waiting = problem;
  for (Node i = 1; i < kNodes; i += 2) {
    waiting.a[i] = sum(zeros(kSize, kSize), problem.a[i], 1 / 1.65);
  }
  EXPECT_GT(distance(waiting.optima(), problem.optima()), 0.1);
  World<double> world(ad_psgd(), problem, ring(kNodes), zeros(kNodes, kSize));
  world.run(20000, 0.001);
  EXPECT_LT(distance(world.models(), problem.optima()), 0.03);
}

TEST(AdPsgd, SettlesNearTheOptimumAlsoUnderLoss) {
  const Quadratics problem(kNodes, kSize);
  for (const double loss : {0.0, 0.01, 0.1}) {
    World<double> world(ad_psgd(), problem, ring(kNodes), zeros(kNodes, kSize), {.loss = loss});
    world.run(3000, 0.005);
    EXPECT_LT(distance(world.models(), problem.optima()), 0.3) << loss;
  }
}

TEST(PushSum, KeepsMassOnItsWayCountedAndFindsTheMean) {
  const Quadratics problem(kNodes, kSize);
  const Matrix start = scattered(kNodes, kSize);
  World<double> world(push_sum(), problem, uneven(kNodes), start, {.spread = 3});
  for (int t = 1; t <= 200; ++t) {
    world.run(t, 0);
    double weight = 0;
    Row mass(kSize);
    const auto add = [&](double w, std::span<const double> z) {
      weight += w;
      for (std::size_t k = 0; k < kSize; ++k) mass[k] += w * z[k] / kNodes;
    };
    for (Node i = 0; i < kNodes; ++i) {
      add(dynamic_cast<PushSum<double>&>(world.node(i)).weight(), world.node(i).model());
    }
    for (const auto& message : world.in_transit()) add(message->scalar, message->vector);
    ASSERT_NEAR(weight, kNodes, 1e-12);
    ASSERT_LT(distance({mass}, {mean_of(start)}), 1e-13);
  }
  EXPECT_LT(distance(world.models(), Matrix(kNodes, mean_of(start))), 1e-10);
}

TEST(PushSum, LosesNoMassToLossOrOvertaking) {
  const Quadratics problem(kNodes, kSize);
  const Matrix start = scattered(kNodes, kSize);
  for (const double loss : {0.01, 0.1}) {
    World<double> world(push_sum(true), problem, uneven(kNodes), start, {.loss = loss});
    std::vector<MassLedger::Fixed> first;
    for (int t = 1; t <= 300; ++t) {
      world.run(t, 0);
      std::vector<MassLedger::Fixed> total(kSize + 1);
      for (Node i = 0; i < kNodes; ++i) {
        const auto ledger = [&](Node j) -> const MassLedger& {
          return *dynamic_cast<PushSum<double>&>(world.node(j)).ledger();
        };
        for (std::size_t k = 0; k <= kSize; ++k) {
          total[k] += ledger(i).mass()[k];
          for (Node j = 0; j < kNodes; ++j) {
            if (!ledger(i).pushed(j).empty()) total[k] += ledger(i).pushed(j)[k];
            if (!ledger(j).pulled(i).empty()) total[k] -= ledger(j).pulled(i)[k];
          }
        }
      }
      if (first.empty()) first = total;
      ASSERT_EQ(total, first) << t;
      ASSERT_EQ(total.back(), MassLedger::Fixed{kNodes} << 40);
    }
    EXPECT_LT(distance(world.models(), Matrix(kNodes, mean_of(start))), 1e-8) << loss;
  }
}

// Up to five times slower at one end than at the other. Were every node counted as often as it
// trains, they would settle at the optimum with data weighted by speed.
TEST(PushSum, SettlesNearTheOptimumOfAllDataWhateverTheSpeeds) {
  const Quadratics problem(kNodes, kSize);
  Quadratics by_speed = problem;
  for (Node i = 0; i < kNodes; ++i) {
    by_speed.a[i] = sum(zeros(kSize, kSize), problem.a[i], 1 / (1 + 4.0 * i / kNodes));
  }
  EXPECT_GT(distance(by_speed.optima(), problem.optima()), 0.2);
  for (const bool lossy : {false, true}) {
    World<double> world(push_sum(lossy), problem, ring(kNodes), zeros(kNodes, kSize),
                        {.loss = lossy ? 0.1 : 0, .spread = 4});
    world.run(20000, 0.001);
    EXPECT_LT(distance(world.models(), problem.optima()), 0.03) << lossy;
  }
}

// Nodes that push to it along one-way edges cannot know that it only takes. Slow nodes or fast
// ones, the others still mix.
TEST(PushSum, WhoOnlyTakesEndsNoMixing) {
  constexpr Node kTaker = 3;
  const Quadratics problem(kNodes, kSize);
  for (const double spread : {0.0, 8.0}) {
    World<double> world(push_sum(true), problem, exponential(kNodes), zeros(kNodes, kSize),
                        {.spread = spread, .mute = kTaker});
    double apart = 0;
    for (int t = 1; t <= 100; ++t) {
      world.run(20 * t, 0.01);
      if (t < 50) continue;
      apart = std::max(apart, apart_without(world.models(), kTaker));
    }
    EXPECT_LT(apart, 0.3) << spread;
  }
}

TEST(PushSum, IsBiasedWhereColumnsAloneSumToOneAsItsRefusalSays) {
  const Quadratics problem(kNodes, kSize);
  World<double> world(push_sum(), problem, uneven(kNodes), zeros(kNodes, kSize));
  world.run(10000, 0.001);
  EXPECT_GT(distance(world.models(), problem.optima()), 0.1);
}

TEST(PushSum, SharesOneMessageAmongReceiversOfEqualShares) {
  const Row model(kSize, 1);
  PushSum<float> node(false, 8, std::vector<float>(kSize, 1));
  Rng rng({.seed = 1});
  const Mesh mesh = exponential(kNodes);
  const auto sends = node.trained(std::vector<float>(kSize), mesh.links(0), rng);
  ASSERT_EQ(sends.size(), 3U);
  EXPECT_EQ(sends[0].message, sends[2].message);
  EXPECT_EQ(sends[0].message->bytes(), 4 * kSize + 8);
  EXPECT_DOUBLE_EQ(node.weight(), 0.25);
  node.restart(std::vector<float>(kSize, 3));
  EXPECT_EQ(node.weight(), 1);
  EXPECT_EQ(node.model()[0], 3);
}

TEST(PushSum, ANodeThatHearsNothingKeepsTheRestOfItsMass) {
  for (const bool lossy : {false, true}) {
    PushSum<double> node(lossy, 8, Row(kSize, 1));
    Rng rng({.seed = 1});
    const Mesh mesh = exponential(kNodes);
    for (int t = 0; t < 200; ++t) {
      (void)node.trained(Row(kSize, 0.01), mesh.links(0), rng);
    }
    EXPECT_GT(node.weight(), 0x1p-19);
    EXPECT_LT(node.weight(), 0x1p-16);
    EXPECT_NEAR(node.model()[0], 3, lossy ? 1e-4 : 1e-12);
  }
}

}  // namespace
}  // namespace starling::gossip
