// SPDX-License-Identifier: Apache-2.0
// Algorithms that a program adds, in networks beside the built-in ones.
#include "gossip/algorithms/algorithm_catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gossip/algorithms/dpsgd.h"
#include "gossip/algorithms/push_sum.h"
#include "tests/gossip/simulation_cases.h"

namespace starling::gossip {
namespace {

using testing::run_well;
using testing::small_network;

// D-PSGD and push-sum under other names.
class Catalogue : public ::testing::Test {
 protected:
  Catalogue() {
    OwnAlgorithm mine;
    mine.make = [](const Plan&, Node, std::span<const float> model) {
      return std::make_unique<Dpsgd<float>>(true, RobustOptions{}, model);
    };
    own_.add("mine", mine);
    OwnAlgorithm pairs;
    pairs.traits.pattern = Pattern::kPairs;
    pairs.sums = Sums::kColumns;
    pairs.make_async = [](const Plan& plan, Node, std::span<const float> model) {
      return std::make_unique<PushSum<float>>(plan.lossy, plan.nodes, model);
    };
    own_.add("pairs", pairs);
  }
  NetOptions network(const std::string& topology, const std::string& algorithm) const {
    NetOptions options = small_network(topology, 8, algorithm);
    options.algorithm.own = &own_;
    return options;
  }

  AlgorithmCatalogue own_;
};

TEST_F(Catalogue, RunsAsBuiltInOnes) {
  EXPECT_EQ(run_well(network("ring", "mine")).trace, run_well(network("ring", "dpsgd")).trace);
  EXPECT_EQ(run_well(network("exponential", "pairs")).trace,
            run_well(network("exponential", "push-sum")).trace);
}

// Of the same program: the same models in the recurrence and among whole peers.
TEST_F(Catalogue, TopologiesRunAsBuiltInOnes) {
  own_.topologies().add("loop", [](const topologies::Request& request) {
    const Node n = request.nodes();
    const topologies::Shift shifts[] = {{1, 1.0 / 3}, {n - 1, 1.0 / 3}};
    return Result<topologies::Blueprint>(
        topologies::Blueprint::fixed("loop", topologies::circulant(n, 1.0 / 3, shifts)));
  });
  const NetOptions options = network("loop", "mine");
  const auto own = run_well(options);
  EXPECT_EQ(own.models, run_well(network("ring", "dpsgd")).models);
  const auto experiment = prepare(options);
  ASSERT_TRUE(experiment);
  const SystemClock clock;
  const auto peers = simulate(*experiment, 1, clock, {}, Simulated::kPeers);
  ASSERT_TRUE(peers) << peers.error().message();
  EXPECT_EQ(peers->models, own.models);
  NetOptions without = network("loop", "dpsgd");
  without.algorithm.own = nullptr;
  EXPECT_FALSE(prepare(without));
}

TEST_F(Catalogue, WhatItNeedsOfATopologyIsChecked) {
  const auto refused = prepare(network("star", "mine"));
  EXPECT_TRUE(refused) << refused.error().message();
  NetOptions pushed = network("star", "mine");
  pushed.topology.mixing = "push";
  const auto unfit = prepare(pushed);
  ASSERT_FALSE(unfit);
  EXPECT_THAT(unfit.error().message(), ::testing::HasSubstr("mine cannot run on star"));
}

TEST_F(Catalogue, ItsNamesAreChoicesBesideTheBuiltInOnes) {
  NetOptions options;
  options.algorithm.own = &own_;
  config::Binder binder;
  options.bind(binder);
  EXPECT_TRUE(binder.set({{"algorithm.name", "mine"}}));
  EXPECT_EQ(options.algorithm.name, "mine");
  EXPECT_TRUE(binder.set({{"algorithm.name", "sgp"}}));
  const auto wrong = binder.set({{"algorithm.name", "mien"}});
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().message(), ::testing::HasSubstr("mine"));
  NetOptions built_in;
  config::Binder of_built_in;
  built_in.bind(of_built_in);
  EXPECT_FALSE(of_built_in.set({{"algorithm.name", "mine"}}));
}

// What follows the name is read with the name alone as a choice; what it means, check_fit() says.
TEST_F(Catalogue, AllReduceTakesAGroupAfterItsName) {
  const auto planned = [](const std::string& name) -> Result<Plan> {
    NetOptions options;
    config::Binder binder;
    options.bind(binder);
    STARLING_TRY(binder.set({{"algorithm.name", name}}));
    return plan_algorithm(options.algorithm, {}, 16, 3);
  };
  EXPECT_EQ(planned("all-reduce").value().group, 0U);
  const auto plan = planned("all-reduce:group=8");
  ASSERT_TRUE(plan) << plan.error().message();
  EXPECT_EQ(plan->group, 8U);
  EXPECT_EQ(plan->traits.name, "all-reduce");
  EXPECT_EQ(plan->traits.pattern, Pattern::kMean);
  struct Wrong {
    const char* name;
    const char* says;
  };
  for (const Wrong& wrong :
       {Wrong{"all-reduce:group=1", "must be 2 to"}, Wrong{"all-reduce:group=x", "not an integer"},
        Wrong{"all-reduce:group=-3", "must be 2 to"}, Wrong{"all-reduce:group=2.5", "integer"},
        Wrong{"all-reduce:", "write all-reduce:group=8"}, Wrong{"all-reduce:groups=8", "group"},
        Wrong{"all-reduce:group", "group=VALUE"}, Wrong{"all-reduce:group=4,group=4", "twice"},
        Wrong{"diloco-all:group=8", "diloco-all does not average in groups"},
        Wrong{"dpsgd:group=8", "dpsgd takes no parameters"},
        Wrong{"all-reduced:group=8", "all-reduce"}}) {
    const auto refused = planned(wrong.name);
    ASSERT_FALSE(refused) << wrong.name;
    EXPECT_THAT(refused.error().message(), ::testing::HasSubstr(wrong.says));
  }
}

}  // namespace
}  // namespace starling::gossip
