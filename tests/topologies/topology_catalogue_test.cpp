// SPDX-License-Identifier: Apache-2.0
// Topologies of one's own: known by name beside the built-in ones, and checked where they are made.
#include "topologies/topology_catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace starling::topologies {
namespace {

using ::testing::HasSubstr;

// A ring as the built-in one, with a parameter that does nothing.
Result<Blueprint> loop(const Request& request) {
  Node width = 1;
  FieldCollector visit("");
  visit("width", width, {.help = "nothing", .min = 1, .max = 9});
  STARLING_ASSIGN(std::string name, request.read(std::move(visit).take()));
  if (request.nodes() < 3) return request.impossible("it takes three at least");
  const Shift shifts[] = {{1, 1.0 / 3}, {request.nodes() - 1, 1.0 / 3}};
  return Blueprint::fixed(std::move(name), circulant(request.nodes(), 1.0 / 3, shifts));
}

Result<Blueprint> pairs(const Request& request) {
  STARLING_ASSIGN(std::string name, request.read({}));
  return Blueprint{std::move(name), 0, false,
                   [n = request.nodes(), draws = request.draws()](std::uint64_t t) {
                     std::vector<Node> order(n);
                     std::iota(order.begin(), order.end(), Node{0});
                     Rng rng = draws(t);
                     rng.shuffle(std::span(order));
                     Step step = Step::idle(n);
                     for (Node i = 0; i + 1 < n; i += 2) step.exchange(order[i], order[i + 1], 0.5);
                     return step;
                   }};
}

class OwnTopologies : public ::testing::Test {
 protected:
  OwnTopologies() {
    own_.add("loop", loop);
    own_.add("pairs", pairs);
  }
  Result<std::unique_ptr<const Topology>> make(const std::string& spec, Node nodes,
                                               std::uint64_t seed = 1) const {
    return Topology::make({.spec = spec, .nodes = nodes, .seed = seed, .own = &own_});
  }
  // What making it fails with where its only step is this one.
  std::string refused(Step step, std::uint64_t period = 1) {
    TopologyCatalogue own;
    own.add("bad", [&](const Request&) -> Result<Blueprint> {
      return Blueprint{"bad", period, false, [&](std::uint64_t) { return step; }};
    });
    const auto made = Topology::make({.spec = "bad", .nodes = 3, .own = &own});
    EXPECT_FALSE(made);
    return made ? "" : made.error().message();
  }

  TopologyCatalogue own_;
};

std::vector<double> weights(const MixingMatrix& matrix) {
  std::vector<double> all;
  for (Node node = 0; node < matrix.nodes(); ++node) {
    all.push_back(matrix.self(node));
    for (const Weight& sender : matrix.senders(node)) {
      all.push_back(sender.node);
      all.push_back(sender.weight);
    }
  }
  return all;
}

TEST_F(OwnTopologies, HaveParametersAndMixAsBuiltInOnes) {
  const auto own = make("loop", 6);
  ASSERT_TRUE(own) << own.error().message();
  EXPECT_EQ((*own)->name(), "loop:width=1");
  const auto ring = make("ring", 6);
  ASSERT_TRUE(ring);
  EXPECT_THAT(weights(*(*own)->at(0)),
              ::testing::Pointwise(::testing::DoubleEq(), weights(*(*ring)->at(0))));
  const auto lazy = Topology::make({.spec = "loop", .nodes = 6, .mixing = "lazy", .own = &own_});
  ASSERT_TRUE(lazy);
  EXPECT_DOUBLE_EQ((*lazy)->at(0)->self(0), 2.0 / 3);
}

TEST_F(OwnTopologies, AreDrawnFromTheSeedAndTheStep) {
  const auto one = make("pairs", 8, 5), same = make("pairs", 8, 5), other = make("pairs", 8, 6);
  ASSERT_TRUE(one && same && other);
  EXPECT_TRUE((*one)->time_varying());
  EXPECT_EQ(weights(*(*one)->at(9)), weights(*(*same)->at(9)));
  EXPECT_NE(weights(*(*one)->at(9)), weights(*(*one)->at(10)));
  EXPECT_NE(weights(*(*one)->at(9)), weights(*(*other)->at(9)));
}

TEST_F(OwnTopologies, WrongSpecsAreRefusedAsOfBuiltInOnes) {
  EXPECT_THAT(make("lop", 6).error().message(), HasSubstr("did you mean 'loop'"));
  EXPECT_THAT(make("loop:width=12", 6).error().message(), HasSubstr("width"));
  EXPECT_THAT(make("loop", 2).error().message(), HasSubstr("it takes three at least"));
  EXPECT_THAT(make("pairs:k=2", 6).error().message(), HasSubstr("takes no parameters"));
  EXPECT_FALSE(Topology::make({.spec = "loop", .nodes = 6}));
}

TEST_F(OwnTopologies, WhatCannotBeAMixingIsRefusedByName) {
  EXPECT_THAT(refused(Step::idle(2)), HasSubstr("'bad' of this program is wrong at step 0"));
  EXPECT_THAT(refused({{1, 1, 1}, {{.receiver = 0, .sender = 7, .weight = 0}}}),
              HasSubstr("a message from node 7 to node 0"));
  EXPECT_THAT(refused({{0.5, 1, 1}, {{.receiver = 0, .sender = 1, .weight = 0.2}}}),
              HasSubstr("wrong at step 0"));
  EXPECT_THAT(refused({{0.5, 1, 1}, {{.receiver = 0, .sender = 1, .weight = 0.5}}}, 0),
              HasSubstr("it is directed, and the blueprint does not say so"));
  TopologyCatalogue own;
  int calls = 0;
  own.add("fickle", [&](const Request&) -> Result<Blueprint> {
    return Blueprint{"fickle", 0, false, [&](std::uint64_t) {
                       Step step = Step::idle(3);
                       step.exchange(0, ++calls % 2 == 0 ? 1 : 2, 0.5);
                       return step;
                     }};
  });
  const auto fickle = Topology::make({.spec = "fickle", .nodes = 3, .own = &own});
  ASSERT_FALSE(fickle);
  EXPECT_THAT(fickle.error().message(), HasSubstr("another one when it is asked for again"));
}

}  // namespace
}  // namespace starling::topologies
