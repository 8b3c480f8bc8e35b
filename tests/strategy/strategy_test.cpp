// SPDX-License-Identifier: Apache-2.0
// What holds for every strategy, and their edges.
#include "core/strategy/strategy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/strategy/federation.h"

namespace starling::strategy {
namespace {

constexpr double kHuge = 1e30;  // finite in float; its square is not

class EachStrategy : public ::testing::TestWithParam<std::string> {
 protected:
  Setting setting() const { return {.options = {.name = GetParam()}}; }
};
INSTANTIATE_TEST_SUITE_P(All, EachStrategy, ::testing::ValuesIn(kStrategies),
                         [](const auto& param) { return param.param; });

// A report of one value each for models of one element.
aggregate::Report report_of(const ServerStrategy<float>& server, double value) {
  aggregate::Report report{.weight = 1, .contributions = 1};
  for (std::size_t i = 0; i < server.receives().size(); ++i) {
    report.vectors.push_back(aggregate::Means{value});
  }
  for (const std::string& name : server.scalars()) report.scalars[name] = 1;
  return report;
}

std::string outcome(const Result<void>& result) { return result ? "ok" : result.error().code(); }

TEST_P(EachStrategy, StatesAreAllThatItRemembers) {
  for (const double momentum : {0.0, 0.5}) {
    Setting with = setting();
    with.sgd.momentum = momentum;
    Federation<float> whole(with);
    whole.rounds(3);
    Federation<float> first(with);
    first.rounds(2);
    Federation<float> second(with);
    second.x = first.x;
    second.server_state = first.server_state;
    second.client_states = first.client_states;
    second.rounds(1);
    EXPECT_EQ(second.x, whole.x);
    EXPECT_EQ(second.server_state, whole.server_state);
    EXPECT_EQ(second.client_states, whole.client_states);
  }
}

TEST_P(EachStrategy, ForgettingAStateChangesTheModel) {
  Setting with = setting();
  with.sgd.momentum = 0.5;
  Federation<float> whole(with), forgetful(with);
  whole.rounds(3);
  forgetful.rounds(1);
  const State<float> at_first = make_server<float>(with)->initial_state(2);
  const bool remembers = !(forgetful.server_state == at_first);
  EXPECT_EQ(remembers, !at_first.empty());
  forgetful.server_state = at_first;
  forgetful.rounds(2);
  EXPECT_EQ(forgetful.x == whole.x, !remembers);
}

TEST_P(EachStrategy, AClientIsStatefulIfItHasAState) {
  Setting with = setting();
  with.sgd.momentum = 0.5;
  Federation<float> federation(with);
  federation.rounds(1);
  for (const State<float>& state : federation.client_states) {
    EXPECT_EQ(make_client<float>(with)->state_vectors() > 0, !state.empty());
    EXPECT_GE(make_client<float>(with)->state_vectors(), state.vectors.size());
    for (const auto& [name, vector] : state.vectors) EXPECT_EQ(vector.size(), 2U) << name;
  }
  for (const auto& name : make_server<float>(with)->sends()) {
    EXPECT_EQ(federation.server_state.vectors.at(name).size(), 2U);
  }
}

TEST_P(EachStrategy, AModelThatNobodyChangesStaysTheSame) {
  Federation<float> federation(setting(), {{.a = {1, 1}, .b = {0.3F, -7}, .steps = 3}});
  federation.x = {0.3F, -7};
  federation.rounds(2);
  EXPECT_EQ(federation.x, (std::vector<float>{0.3F, -7}));
}

TEST_P(EachStrategy, OneClientWithOneStepMovesDownhill) {
  Federation<double> federation(setting(), {{.a = {1, 2}, .b = {1, -1}}});
  federation.rounds(1);
  EXPECT_GT(federation.x[0], 0);
  EXPECT_LE(federation.x[0], 1);
  EXPECT_LT(federation.x[1], 0);
  EXPECT_GE(federation.x[1], -1);
}

TEST_P(EachStrategy, ValuesThatAreNotFiniteDiverge) {
  const auto server = make_server<float>(setting());
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double value : {1e300, infinity, -infinity, std::nan("")}) {
    std::vector<float> model = {1};
    State<float> state = server->initial_state(1);
    const auto report = report_of(*server, value);
    EXPECT_EQ(outcome(apply(*server, model, state, report, 1)), "diverged") << value;
  }
}

TEST(FedAdagrad, AStateThatIsNotFiniteDivergesThoughTheModelIs) {
  const auto server = make_server<float>({.options = {.name = "fedadagrad"}});
  std::vector<float> model = {1};
  State<float> state = server->initial_state(1);
  const auto report = report_of(*server, kHuge);
  EXPECT_EQ(outcome(apply(*server, model, state, report, 1)), "diverged");
}

TEST_P(EachStrategy, AMissingOrWrongScalarIsNamed) {
  const auto server = make_server<float>(setting());
  for (const std::string& name : server->scalars()) {
    std::vector<float> model = {1};
    State<float> state = server->initial_state(1);
    auto report = report_of(*server, 1);
    for (const double value : {0.0, -1.0, std::numeric_limits<double>::infinity()}) {
      report.scalars[name] = value;
      EXPECT_EQ(outcome(apply(*server, model, state, report, 1)), "bad-scalar");
    }
    report.scalars.erase(name);
    const auto result = apply(*server, model, state, report, 1);
    EXPECT_EQ(outcome(result), "missing-scalar");
    EXPECT_NE(result.error().message().find(name), std::string::npos);
    EXPECT_EQ(model, (std::vector<float>{1}));
  }
}

TEST_P(EachStrategy, AStateOfAnotherModelIsNamed) {
  const auto server = make_server<float>(setting());
  if (!server->initial_state(1).empty()) {
    const auto report = report_of(*server, 1);
    for (State<float> state : {State<float>{}, server->initial_state(2)}) {
      std::vector<float> model = {1};
      EXPECT_EQ(outcome(apply(*server, model, state, report, 1)), "bad-state");
    }
  }
  Federation<float> federation(setting());
  federation.rounds(1);
  for (State<float>& state : federation.client_states) {
    for (auto& [name, vector] : state.vectors) {
      vector.push_back(0);
      EXPECT_EQ(outcome(federation.round()), "bad-state") << name;
    }
  }
}

TEST(Scaffold, AnInputThatTheServerDoesNotSendIsNamed) {
  const auto client = make_client<float>({.options = {.name = "scaffold"}});
  QuadraticTraining<float> training(kTwoClients[0], {});
  const std::vector<float> x(2), other(3);
  const State<float> state;
  EXPECT_EQ(client->round({.model = x, .state = state}, training).error().code(), "missing-input");
  EXPECT_EQ(client->round({.model = x, .inputs = {{"control", other}}, .state = state}, training)
                .error()
                .code(),
            "missing-input");
}

TEST(Strategies, ThatDivideByTheLearningRateNeedOne) {
  for (const auto& name : kStrategies) {
    Federation<float> federation({.options = {.name = name}, .sgd = {.rate = 0}});
    const bool divides = name == "scaffold" || name == "qfedavg";
    EXPECT_EQ(outcome(federation.round()), divides ? "setting-invalid" : "ok") << name;
  }
}

TEST(FedNova, RefusesAProximalTermThatOvershoots) {
  Federation<float> federation({.options = {.name = "fednova", .mu = 10.5}});
  EXPECT_EQ(outcome(federation.round()), "setting-invalid");
  Federation<float> edge({.options = {.name = "fednova", .mu = 10}});
  EXPECT_EQ(outcome(edge.round()), "ok");
}

std::vector<float> after_rounds(const Setting& setting, bool equal_rows = false) {
  std::vector<Quadratic> clients = kTwoClients;
  if (equal_rows) clients[0].rows = clients[1].rows;
  Federation<float> federation(setting, clients);
  federation.rounds(5);
  return federation.x;
}

TEST(Strategies, ThatAreFedAvgInALimitAreSoToTheBit) {
  const Setting fedavg = {.options = {.name = "fedavg"}};
  const auto weighted = after_rounds(fedavg);
  EXPECT_EQ(after_rounds({.options = {.name = "fedprox", .mu = 0}}), weighted);
  EXPECT_EQ(after_rounds({.options = {.name = "fedavgm"}, .server = {.momentum = 0}}), weighted);
  const auto uniform = after_rounds(fedavg, true);
  EXPECT_EQ(after_rounds({.options = {.name = "qfedavg", .q = 0}}), uniform);
  EXPECT_EQ(
      after_rounds({.options = {.name = "diloco"}, .server = {.learning_rate = 1, .momentum = 0}}),
      uniform);
  EXPECT_NE(weighted, uniform);
}

TEST(FedNova, IsFedAvgWhereAllMakeOneStep) {
  std::vector<Quadratic> clients = kTwoClients;
  for (Quadratic& client : clients) client.steps = 1;
  Federation<float> fednova({.options = {.name = "fednova"}}, clients);
  Federation<float> fedavg({.options = {.name = "fedavg"}}, clients);
  fednova.rounds(3);
  fedavg.rounds(3);
  EXPECT_EQ(fednova.x, fedavg.x);
}

TEST(QFedAvg, AClientWithoutLossCounts) {
  for (const double q : {0.5, 1.0, 3.0}) {
    std::vector<Quadratic> clients = kTwoClients;
    clients[0].b = {0, 0};  // at its optimum: F = 0
    Federation<double> federation({.options = {.name = "qfedavg", .q = q}}, clients);
    federation.rounds(1);
    EXPECT_LT(federation.x[0], 0);
    EXPECT_GT(federation.x[0], -1);
  }
}

// With losses of about `loss`.
template <class T>
Federation<T> fair_federation(double q, double loss) {
  std::vector<Quadratic> clients = kTwoClients;
  for (Quadratic& client : clients) {
    for (double& a : client.a) a *= loss;
  }
  return Federation<T>({.options = {.name = "qfedavg", .q = q}, .sgd = {.rate = 0.1 / loss}},
                       clients);
}

TEST(QFedAvg, StepsAreRightHoweverSmallTheLosses) {
  for (const auto& [q, loss] : {std::pair{1.0, 1e-8}, {5.0, 1e-3}, {5.0, 1e-6}, {15.0, 0.03}}) {
    auto exact = fair_federation<double>(q, loss);
    auto summed = fair_federation<float>(q, loss);
    exact.rounds(1);
    summed.rounds(1);
    for (std::size_t i = 0; i < exact.x.size(); ++i) {
      EXPECT_NEAR(summed.x[i], exact.x[i], 1e-6 * std::abs(exact.x[i])) << q << ", " << loss;
    }
  }
}

TEST(QFedAvg, RefusesLossesWhosePowerFloat32DoesNotHold) {
  for (const auto& [q, loss] : {std::pair{15.0, 1e-3}, {100.0, 0.01}}) {
    auto federation = fair_federation<float>(q, loss);
    EXPECT_EQ(outcome(federation.round()), "values-too-small") << q << ", " << loss;
  }
}

// Only a part of the clients took part: what they send changes the server's mean by their share.
TEST(Strategies, ControlAndGradientTakeTheShareOfThePopulation) {
  for (const std::string name : {"scaffold", "feddyn"}) {
    const Setting setting = {.options = {.name = name, .alpha = 1}};
    const auto server = make_server<float>(setting);
    const std::string vector = name == "scaffold" ? "control" : "gradient";
    const float sign = name == "scaffold" ? 1 : -1;
    const auto report = report_of(*server, 8);
    for (const auto& [population, expected] : {std::pair{1, 8.0F}, {4, 2.0F}, {0, 8.0F}}) {
      std::vector<float> model = {0};
      State<float> state = server->initial_state(1);
      ASSERT_TRUE(apply(*server, model, state, report, static_cast<std::uint64_t>(population)));
      EXPECT_EQ(state.vectors.at(vector)[0], sign * expected) << name << ", N " << population;
    }
  }
}

TEST(DiLoCo, ClientsContinueTheirInnerOptimizer) {
  const Setting setting = {.options = {.name = "diloco"}, .sgd = {.momentum = 0.5}};
  Federation<double> federation(setting);
  federation.rounds(2);
  const State<double>& state = federation.client_states[0];
  EXPECT_EQ(state.scalars.at("optimizer.steps"), 6);
  EXPECT_FALSE(state.vectors.contains("optimizer.second"));
  // The velocity of client 0 after its second round, step by step from both rounds' models.
  Federation<double> again(setting);
  double velocity = 0;
  for (int round = 0; round < 2; ++round) {
    double y = again.x[0];
    for (int step = 0; step < 3; ++step) {
      velocity = 0.5 * velocity + (y - 1);
      y -= 0.1 * velocity;
    }
    again.rounds(1);
  }
  EXPECT_DOUBLE_EQ(state.vectors.at("optimizer.first")[0], velocity);
}

TEST(DiLoCo, RefusesACountOfStepsThatIsNone) {
  for (const double steps : {-1.0, 1e300, std::nan("")}) {
    Federation<float> federation({.options = {.name = "diloco"}});
    federation.client_states[0].scalars["optimizer.steps"] = steps;
    EXPECT_EQ(outcome(federation.round()), "bad-state");
  }
}

TEST(FedAvg, ContributesWhatTrainingChanged) {
  const auto client = make_client<float>({.options = {.name = "fedavg"}});
  QuadraticTraining<float> training({.a = {1, 1, 1}, .b = {2, 2, -1}}, {.rate = 0.5});
  const std::vector<float> x = {1, 2, 3};
  const State<float> state;
  const auto result = client->round({.model = x, .state = state}, training);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->payload, (linalg::AlignedVector<float>{0.5F, 0, -2}));
  EXPECT_EQ(result->work.steps, 1U);
  EXPECT_TRUE(result->state.empty());
}

TEST(FedAvg, AddsTheMeanTimesTheLearningRate) {
  const auto server =
      make_server<float>({.options = {.name = "fedavg"}, .server = {.learning_rate = 0.5}});
  std::vector<float> model = {1};
  State<float> state;
  ASSERT_TRUE(apply(*server, model, state, report_of(*server, 4), 1));
  EXPECT_EQ(model[0], 3);
}

}  // namespace
}  // namespace starling::strategy
