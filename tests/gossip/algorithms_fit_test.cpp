// SPDX-License-Identifier: Apache-2.0
// Which pairs of algorithm and topology are refused, with which remedy, and what a plan holds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "gossip/algorithms/detag.h"
#include "gossip/algorithms/make_algorithm.h"
#include "tests/gossip/harness.h"
#include "tests/support/paths.h"

namespace starling::gossip {
namespace {

using ::testing::HasSubstr;
using topologies::Topology;

std::unique_ptr<const Topology> topology(const std::string& spec, Node nodes,
                                         const std::string& mixing = "own") {
  auto made = Topology::make({.spec = spec, .nodes = nodes, .mixing = mixing});
  EXPECT_TRUE(made) << (made ? "" : made.error().message());
  return std::move(*made);
}

struct FitCase {
  std::string algorithm;
  std::string spec;
  Node nodes = 8;
  std::string mixing = "own";
  bool lossy = false;
  std::string remedy = {};  // empty: fits
};

void expect_fit(const FitCase& c) {
  const auto made = topology(c.spec, c.nodes, c.mixing);
  const Result<void> fit =
      check_fit({.name = c.algorithm}, {.topology = made.get(), .lossy = c.lossy});
  const std::string which = c.algorithm + " on " + c.spec + ' ' + c.mixing;
  ASSERT_EQ(fit.has_value(), c.remedy.empty()) << which << (fit ? "" : fit.error().message());
  if (fit) return;
  EXPECT_EQ(fit.error().code(), c.lossy ? "algorithm-network" : "algorithm-topology") << which;
  EXPECT_THAT(fit.error().message(), HasSubstr(c.remedy));
  EXPECT_THAT(fit.error().message(), HasSubstr(c.algorithm));
}

TEST(CheckFit, TakesWhatTheProofsTake) {
  for (const std::string algorithm : {"dpsgd", "sgp", "gradient-tracking", "choco", "epidemic",
                                      "qg-dsgdm", "ad-psgd", "push-sum", "diloco", "detag"}) {
    expect_fit({algorithm, "ring"});
    expect_fit({algorithm, "hypercube"});
  }
  for (const std::string algorithm :
       {"dpsgd", "sgp", "gradient-tracking", "epidemic", "qg-dsgdm", "push-sum", "diloco"}) {
    expect_fit({algorithm, "exponential"});
    expect_fit({algorithm, "one-peer-exponential"});
    expect_fit({algorithm, "random-matching", 16});
  }
  expect_fit({"d2", "ring", 8, "lazy"});
  expect_fit({"d2", "complete"});
  expect_fit({"relaysgd", "path"});
  expect_fit({"relaysgd", "star"});
  expect_fit({"ad-psgd", "star", 7});
  expect_fit({"ad-psgd", "torus:4x4", 16});
  expect_fit({"sgp", "star", 8, "push"});
  expect_fit({"sgp", "epidemic:s=3,kind=local", 8, "push"});
  expect_fit({"push-sum", "epidemic:s=3,kind=local", 8, "push"});
  expect_fit({"diloco", "base-graph:k=2", 25});
  expect_fit({"epidemic", "epidemic:s=3"});
  expect_fit({"epidemic", "epidemic:s=3,kind=local"});
  for (const std::string algorithm : {"dpsgd", "sgp", "push-sum", "ad-psgd", "diloco"}) {
    expect_fit({algorithm, "ring", 8, "own", true});
  }
}

TEST(CheckFit, RefusesMatricesThatDoNotKeepTheMean) {
  for (const std::string algorithm : {"dpsgd", "gradient-tracking", "qg-dsgdm", "diloco"}) {
    expect_fit({algorithm, "star", 8, "uniform", false, "sgp"});
    expect_fit({algorithm, "epidemic:s=3,kind=local", 8, "own", false, "epidemic"});
  }
  for (const std::string algorithm : {"sgp", "push-sum"}) {
    expect_fit({algorithm, "star", 8, "uniform", false, "push"});
    expect_fit({algorithm, "epidemic:s=3,kind=local", 8, "own", false, "mixing \"push\""});
  }
  // Asynchronous push-sum takes steps by weight: the hub's data would count for more.
  expect_fit({"push-sum", "star", 8, "push", false, "metropolis"});
  // Plain means on a graph that stays and is not regular.
  expect_fit({"epidemic", "star", 8, "own", false, "metropolis"});
  expect_fit({"epidemic", "barabasi-albert", 8, "own", false, "metropolis"});
  expect_fit({"choco", "star", 8, "uniform", false, "metropolis"});
}

// A directed cycle on which every node sends all it has.
class Carousel final : public Topology {
 public:
  const std::string& name() const override { return name_; }
  Node nodes() const override { return 3; }
  bool directed() const override { return true; }
  std::uint64_t period() const override { return 1; }
  std::shared_ptr<const topologies::MixingMatrix> at(std::uint64_t) const override {
    auto made = topologies::MixingMatrix::make({0, 0, 0}, {{1, 0, 1}, {2, 1, 1}, {0, 2, 1}});
    return std::make_shared<const topologies::MixingMatrix>(std::move(*made));
  }

 private:
  std::string name_ = "carousel";
};

TEST(CheckFit, RefusesPushSumWhereANodeKeepsNothing) {
  const Carousel carousel;
  const auto fit = check_fit({.name = "sgp"}, {.topology = &carousel});
  ASSERT_FALSE(fit);
  EXPECT_THAT(fit.error().message(), HasSubstr("a part for itself"));
}

TEST(CheckFit, RefusesWhereAMatrixMustStayAndBeSymmetric) {
  for (const std::string algorithm : {"choco", "d2", "detag"}) {
    expect_fit({algorithm, "one-peer-exponential", 8, "own", false, "gradient-tracking"});
    expect_fit({algorithm, "exponential", 8, "own", false, "gradient-tracking"});
    expect_fit({algorithm, "random-matching", 8, "own", false, "static"});
  }
}

// Even rings are exactly at -1/3, tori and hypercubes below.
TEST(CheckFit, RefusesD2AtOrBelowAThird) {
  expect_fit({"d2", "ring", 8, "own", false, "lazy"});
  expect_fit({"d2", "torus:4x4", 16, "own", false, "-0.6"});
  expect_fit({"d2", "hypercube", 16, "own", false, "lazy"});
  expect_fit({"d2", "ring", 7});
}

TEST(CheckFit, RefusesRelaysOffATreeAndPairsOffABipartiteGraph) {
  expect_fit({"relaysgd", "ring", 8, "own", false, "path"});
  expect_fit({"relaysgd", "random-matching", 8, "own", false, "path"});
  expect_fit({"ad-psgd", "ring", 7, "own", false, "even"});
  expect_fit({"ad-psgd", "complete", 8, "own", false, "push-sum"});
  expect_fit({"ad-psgd", "random-matching", 8, "own", false, "push-sum"});
  expect_fit({"ad-psgd", "exponential", 8, "own", false, "push-sum"});
}

TEST(CheckFit, RefusesLossWhereNeighboursWouldDisagreeForEver) {
  for (const std::string algorithm : {"gradient-tracking", "choco", "d2", "detag"}) {
    expect_fit({algorithm, "ring", 8, "lazy", true, "network.retransmit = true"});
  }
  for (const std::string algorithm : {"sgp", "push-sum"}) {
    expect_fit({algorithm, "random-matching", 8, "own", true, "one-peer-exponential"});
  }
}

TEST(CheckFit, RefusesOuterRatesThatBlowUpDisagreement) {
  const auto ring = topology("ring", 8);
  const AlgorithmOptions options = {.name = "diloco", .outer_rate = 2, .outer_momentum = 0.5};
  const auto fit = check_fit(options, {.topology = ring.get()});
  ASSERT_FALSE(fit);
  EXPECT_EQ(fit.error().code(), "algorithm-options");
  EXPECT_THAT(fit.error().message(), HasSubstr("1.5"));
}

TEST(CheckFit, RefusesMomentumThatDrivesNodesApartAndNamesOneThatDoesNot) {
  struct Case {
    AlgorithmOptions options;
    std::string spec;
  };
  for (const Case& c : {Case{{.name = "diloco", .outer_momentum = 0.9}, "exponential"},
                        Case{{.name = "diloco", .outer_momentum = 0.9}, "one-peer-exponential"},
                        Case{{.name = "diloco", .outer_momentum = 0.9}, "one-peer-hypercube"},
                        Case{{.name = "diloco", .outer_momentum = 0.9}, "random-matching"},
                        Case{{.name = "diloco", .outer_momentum = 0.5}, "directed-ring"},
                        Case{{.name = "qg-dsgdm"}, "directed-ring"}}) {
    const auto made = topology(c.spec, 16);
    const auto fit = check_fit(c.options, {.topology = made.get()});
    ASSERT_FALSE(fit) << c.options.name << c.spec;
    const bool outer = c.options.name == "diloco";
    const std::string key = outer ? "algorithm.outer-momentum = " : "algorithm.momentum = ";
    const std::string why = fit.error().message();
    ASSERT_THAT(why, HasSubstr(key));
    AlgorithmOptions followed = c.options;
    (outer ? followed.outer_momentum : followed.momentum) =
        std::stod(why.substr(why.find(key) + key.size()));
    EXPECT_TRUE(check_fit(followed, {.topology = made.get()})) << why;
  }
}

TEST(CheckFit, TakesD2WithoutEigenvaluesWhereNodesKeepEnough) {
  const auto large = topology("random-regular:d=4", 20000, "lazy");
  EXPECT_TRUE(check_fit({.name = "d2"}, {.topology = large.get()}));
}

TEST(PlanAlgorithm, HoldsWhatFollowsFromTheTopology) {
  const auto ring = topology("ring", 16);
  const Plan detag = plan_algorithm({.name = "detag"}, {.topology = ring.get()}, 16, 5).value();
  EXPECT_NEAR(detag.slem, 0.949253, 1e-6);
  EXPECT_EQ(detag.options.gossip_rounds, accelerated_rounds(detag.slem));
  EXPECT_EQ(detag.seed, 5U);
  const Plan pairs = plan_algorithm({.name = "ad-psgd"}, {.topology = ring.get()}, 16, 1).value();
  ASSERT_EQ(pairs.active.size(), 16U);
  for (Node i = 0; i < 16; ++i) EXPECT_NE(pairs.active[i], pairs.active[(i + 1) % 16]);
  const Setting lossy = {.topology = ring.get(), .lossy = true};
  EXPECT_TRUE(plan_algorithm({.name = "sgp"}, lossy, 16, 1).value().traits.per_receiver);
  EXPECT_FALSE(
      plan_algorithm({.name = "sgp"}, {.topology = ring.get()}, 16, 1).value().traits.per_receiver);
}

TEST(PlanAlgorithm, KnowsWhereTheGraphKeepsEveryWeightAtOne) {
  const auto is_balanced = [](const std::string& spec, const std::string& mixing, bool lossy) {
    const auto made = topology(spec, 8, mixing);
    const Setting setting = {.topology = made.get(), .lossy = lossy};
    return plan_algorithm({.name = "sgp"}, setting, 8, 1).value().balanced;
  };
  EXPECT_TRUE(is_balanced("exponential", "own", true));
  EXPECT_TRUE(is_balanced("one-peer-exponential", "own", true));
  EXPECT_TRUE(is_balanced("star", "metropolis", true));
  EXPECT_FALSE(is_balanced("star", "push", true));
  EXPECT_FALSE(is_balanced("exponential", "own", false)) << "no ledger is kept";
}

TEST(PlanAlgorithm, EveryNameHasTraitsAndAnObject) {
  for (const std::string_view name : kAlgorithms) {
    const AlgorithmOptions options = {.name = std::string(name)};
    const auto made = topology(name == "relaysgd" ? "path" : "ring", 8,
                               name == "d2" || name == "detag" ? "lazy" : "own");
    const auto plan = plan_algorithm(options, {.topology = made.get()}, 8, 1);
    ASSERT_TRUE(plan) << plan.error().message();
    EXPECT_EQ(plan->traits.name, name);
    const std::vector<float> model = {1, 2, 3};
    if (plan->traits.pattern == Pattern::kPairs) {
      const auto node = make_async_algorithm<float>(*plan, 1, model);
      EXPECT_EQ(std::vector<float>(node->model().begin(), node->model().end()), model);
    } else {
      const auto node = make_algorithm<float>(*plan, 1, model);
      EXPECT_EQ(std::vector<float>(node->model().begin(), node->model().end()), model);
    }
  }
}

TEST(PlanAlgorithm, TakesANetworkOfOneNode) {
  const auto alone = topology("complete", 1);
  const Quadratics problem(1, 4);
  for (const std::string_view name : kAlgorithms) {
    const auto plan = plan_algorithm({.name = std::string(name)}, {.topology = alone.get()}, 1, 1);
    ASSERT_TRUE(plan) << plan.error().message();
    if (plan->traits.pattern == Pattern::kPairs) continue;
    Fleet<double> fleet(*plan, problem, zeros(1, 4));
    fleet.run(complete(1), 3000, 0.05);
    EXPECT_LT(distance(fleet.models(), problem.optima()), 1e-6) << name;
  }
}

// The row of `name` in the README's table, as its cells.
std::vector<std::string> documented(std::string_view name) {
  std::ifstream file(testing::source_root() / "gossip/README.md");
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with("| `" + std::string(name) + "` |")) continue;
    std::vector<std::string> cells;
    std::istringstream row(line.substr(2));
    for (std::string cell; std::getline(row, cell, '|');) {
      const std::size_t end = cell.find_last_not_of(' ');
      const std::size_t begin = cell.find_first_not_of(' ');
      cells.push_back(end == std::string::npos ? "" : cell.substr(begin, end - begin + 1));
    }
    return cells;
  }
  return {};
}

TEST(Readme, TableSaysWhatTheTraitsSay) {
  for (const std::string_view name : kAlgorithms) {
    const AlgorithmTraits t = traits({.name = std::string(name)});
    const auto cells = documented(name);
    ASSERT_EQ(cells.size(), 7U) << name;
    EXPECT_EQ(cells[4], t.loss_safe ? "yes" : "no") << name;
    EXPECT_EQ(cells[5].substr(0, cells[5].find(' ')), std::to_string(t.state_vectors)) << name;
  }
}

}  // namespace
}  // namespace starling::gossip
