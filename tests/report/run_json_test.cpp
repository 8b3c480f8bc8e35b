// SPDX-License-Identifier: Apache-2.0
// Files of runs that were broken off, changed by hand or made to do harm.
#include "core/report/run_json.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/report/run_samples.h"

namespace starling::report {
namespace {

using ::testing::HasSubstr;

TEST(ParseSimulation, ReadsWhatSimulateWrites) {
  const auto run = parse_simulation(testing::summary(), testing::metrics_lines(10));
  ASSERT_TRUE(run) << run.error().message();
  EXPECT_EQ(run->kind, RunKind::kGossip);
  EXPECT_EQ(run->program, "starling-gossip simulate 0.1.0");
  EXPECT_EQ(run->nodes, 16);
  EXPECT_EQ(run->topology->slem, 0.949);
  EXPECT_EQ(run->topology->rounds_to_consensus, std::nullopt);
  EXPECT_EQ(run->setting("local-steps"), "1");
  ASSERT_EQ(run->evaluations.size(), 10U);
  EXPECT_TRUE(std::isnan(run->evaluations[0].at(Measure::kTrainLoss)));
  EXPECT_EQ(run->evaluations[9].at(Measure::kStep), 90);
  EXPECT_EQ(run->last(Measure::kNodesUp), 15);
}

// Its defaults stand in the settings, and no trainer reads them.
TEST(ParseSimulation, ARunWithATrainerHasNoDataSet) {
  const std::string data = R"("data.dataset": "fashion-mnist:/x", "data.partition": "iid")";
  for (const auto& [kind, has] : {std::pair("external", false), std::pair("mlp", true)}) {
    const auto run = parse_simulation(
        fmt::format(R"({{"settings": {{{}, "model.kind": "{}", "run.steps": "4"}}}})", data, kind),
        "");
    ASSERT_TRUE(run) << run.error().message();
    EXPECT_EQ(run->setting("data.dataset").has_value(), has) << kind;
    EXPECT_EQ(run->setting("data.partition").has_value(), has) << kind;
    EXPECT_EQ(run->setting("steps"), "4");
  }
}

TEST(ParseSimulation, MissingMembersAreNotMeasured) {
  const auto run = parse_simulation("{}", "{\"step\": 5}\n\n{\"step\": 6, \"unknown\": [1]}");
  ASSERT_TRUE(run) << run.error().message();
  ASSERT_EQ(run->evaluations.size(), 2U);
  EXPECT_FALSE(run->has(Measure::kEvalAccuracy));
  EXPECT_EQ(run->nodes, std::nullopt);
}

struct Refusal {
  std::string summary;
  std::string metrics;
  std::string sentence;
};

TEST(ParseSimulation, RefusesWithFileAndLine) {
  const std::string good = "{\"step\": 1}\n";
  const std::vector<Refusal> refusals = {
      {"", good, "summary.json: the JSON breaks off; the run may not have ended"},
      {"[]", good, "summary.json: not a JSON object"},
      {"{\"nodes\": \"many\"}", good, "summary.json: 'nodes' is not a number"},
      {"{\"topology\": {\"slem\": []}}", good, "summary.json, topology: 'slem' is not a number"},
      {"{\"settings\": 3}", good, "summary.json: 'settings' is not an object"},
      {"{}", good + "{\"step\": 2, \"eval_loss\": 0.1",
       "metrics.jsonl, line 2: the JSON breaks off"},
      {"{}", good + "nonsense\n", "metrics.jsonl, line 2: not JSON"},
      {"{}", good + "{\"step\": 2, \"eval_loss\": NaN}", "metrics.jsonl, line 2: not JSON"},
      {"{}", good + "{\"step\": 2, \"eval_loss\": 1e999}", "metrics.jsonl, line 2"},
      {"{}", good + "{\"step\": 2, \"eval_loss\": \"low\"}", "'eval_loss' is not a number"},
      {"{}", good + "{\"step\": 2, \"eval_metrics\": {\"mae\": \"low\"}}",
       "metrics.jsonl, line 2, eval_metrics: 'mae' is not a number"},
      {"{}", good + "{\"eval_loss\": 1}", "metrics.jsonl, line 2: it has no 'step'"},
      {"{}", good + "\n{\"step\": 0.5}", "metrics.jsonl, line 3: step 0.5 follows step 1"},
      {"{}", "{\"step\": -1}", "metrics.jsonl, line 1: it has no 'step' of 0 or more"},
      {"{\"final\": {\"step\": 20}}", good,
       "metrics.jsonl: its last evaluation is not that of step 20, as summary.json says: lines are "
       "missing"},
      {"{\"final\": {\"step\": 20}}", "", "metrics.jsonl: its last evaluation is not"},
      {"{}", std::string(100000, '['), "metrics.jsonl, line 1: not JSON"},
  };
  for (const Refusal& refusal : refusals) {
    const auto run = parse_simulation(refusal.summary, refusal.metrics);
    ASSERT_FALSE(run) << refusal.sentence;
    EXPECT_EQ(run.error().code(), "bad-run");
    EXPECT_THAT(run.error().message(), HasSubstr(refusal.sentence));
  }
}

TEST(ParseSimulation, TakesVeryManyLines) {
  const auto run = parse_simulation(testing::summary(), testing::metrics_lines(100000));
  ASSERT_TRUE(run) << run.error().message();
  EXPECT_EQ(run->evaluations.size(), 100000U);
}

TEST(ParseFederatedRun, CountsTheBytesOfEvaluationsByClients) {
  const auto run = parse_federated_run(
      R"({"name":"n","state":"running","seed":1,"rounds":[{"round":1,"state":"committed",
          "seconds":1,"bytes_in":100,"bytes_out":50,"federated_bytes_in":1,
          "federated_bytes_out":30}]})");
  ASSERT_TRUE(run) << run.error().message();
  EXPECT_EQ(run->evaluations.at(0).at(Measure::kBytesSent), 181);
}

TEST(ParseFederatedRun, HasTheEvaluationsByClientsAndTheirTime) {
  const auto run = parse_federated_run(
      R"({"name":"n","state":"completed","rounds":[
          {"round":1,"state":"committed","seconds":1,"virtual_seconds":10,"federated_seconds":null},
          {"round":2,"state":"committed","seconds":2,"virtual_seconds":20,"eval_accuracy":0.5,
           "federated_loss":0.25,"federated_accuracy":0.75,"federated_seconds":4},
          {"round":3,"state":"committed","seconds":8,"virtual_seconds":30,
           "federated_seconds":16}]})");
  ASSERT_TRUE(run) << run.error().message();
  EXPECT_FALSE(std::isfinite(run->evaluations.at(0).at(Measure::kHeldOutLoss)));
  EXPECT_EQ(run->evaluations[1].at(Measure::kHeldOutLoss), 0.25);
  EXPECT_EQ(run->evaluations[1].at(Measure::kHeldOutAccuracy), 0.75);
  EXPECT_EQ(run->evaluations[1].at(Measure::kEvalAccuracy), 0.5);
  EXPECT_EQ(run->column(Measure::kWallSeconds), (std::vector<double>{1, 7, 31}));
  EXPECT_EQ(run->column(Measure::kVirtualSeconds), (std::vector<double>{10, 24, 46}));
  EXPECT_EQ(run->wall_seconds, 31);
  EXPECT_EQ(run->virtual_seconds, 46);
}

TEST(ParseFederatedRun, SaysWhichProgramWroteIt) {
  const auto simulated = parse_federated_run(
      R"({"program":"starling-coordinator simulate","version":"0.0.1","rounds":[]})");
  ASSERT_TRUE(simulated) << simulated.error().message();
  EXPECT_EQ(simulated->program, "starling-coordinator simulate 0.0.1");
  EXPECT_EQ(simulated->version, "0.0.1");
  const auto of_service = parse_federated_run(R"({"rounds":[]})");
  ASSERT_TRUE(of_service) << of_service.error().message();
  EXPECT_EQ(of_service->program, "starling-coordinator");
  EXPECT_EQ(of_service->version, "");
}

TEST(ParseFederatedRun, HasWhyItEndedAndItsBestRound) {
  const auto run = parse_federated_run(
      R"({"state":"completed","stopped_early":"loss has not improved","rounds":[],
          "best_round":{"round":3,"metric":"federated-loss","value":0.5}})");
  ASSERT_TRUE(run) << run.error().message();
  EXPECT_EQ(run->stopped_early, "loss has not improved");
  ASSERT_TRUE(run->best);
  EXPECT_EQ(run->best->round, 3);
  EXPECT_EQ(run->best->metric, "federated-loss");
  EXPECT_EQ(run->best->value, 0.5);
  const auto old = parse_federated_run(R"({"stopped_early":null,"best_round":null,"rounds":[]})");
  ASSERT_TRUE(old) << old.error().message();
  EXPECT_FALSE(old->best);
  EXPECT_EQ(old->stopped_early, "");
}

TEST(ParseFederatedRun, SumsBytesAndTimeOverAllAttempts) {
  const auto run = parse_federated_run(testing::federated_run(3));
  ASSERT_TRUE(run) << run.error().message();
  EXPECT_EQ(run->kind, RunKind::kFederated);
  EXPECT_EQ(run->name, "fashion");
  ASSERT_EQ(run->evaluations.size(), 3U);
  EXPECT_EQ(run->evaluations[0].at(Measure::kBytesSent), 150);
  EXPECT_EQ(run->evaluations[1].at(Measure::kBytesSent), 450);
  EXPECT_EQ(run->evaluations[2].at(Measure::kWallSeconds), 8);
  EXPECT_EQ(run->evaluations[2].at(Measure::kEvalAccuracy), 1 - 0.5 / 3);
  EXPECT_FALSE(run->has(Measure::kVirtualSeconds));
}

TEST(ParseFederatedRun, RefusesWithThePlace) {
  const auto refused = [](std::string_view text) {
    const auto run = parse_federated_run(text);
    EXPECT_FALSE(run);
    return run ? "" : run.error().message();
  };
  EXPECT_THAT(refused("{}"), HasSubstr("run.json: it has no list 'rounds'"));
  EXPECT_THAT(refused("{\"rounds\": [3]}"), HasSubstr("run.json, rounds[0]: not an object"));
  EXPECT_THAT(refused("{\"rounds\": [{\"round\": 1, \"state\": 4}]}"),
              HasSubstr("run.json, rounds[0]: 'state' is not a text"));
  EXPECT_THAT(refused("{\"rounds\": [{\"round\": \"x\"}]}"), HasSubstr("'round' is not a number"));
  EXPECT_THAT(refused("{\"rounds\": ["), HasSubstr("breaks off"));
  EXPECT_THAT(refused("{\"best_round\": 3, \"rounds\": []}"),
              HasSubstr("run.json: 'best_round' is not an object"));
  EXPECT_THAT(refused("{\"best_round\": {\"round\": \"x\"}, \"rounds\": []}"),
              HasSubstr("run.json, best_round: 'round' is not a number"));
}

}  // namespace
}  // namespace starling::report
