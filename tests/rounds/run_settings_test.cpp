// SPDX-License-Identifier: Apache-2.0
// Where the settings of a run are shown.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "coordinator/commands/run_view.h"
#include "coordinator/job/job_text.h"
#include "coordinator/rounds/run_records.h"
#include "core/report/run_json.h"
#include "core/report/run_report.h"

namespace starling::coordinator {
namespace {

namespace json = boost::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

Job small_job() {
  Job job;
  job.job.rounds = 7;
  job.training.data = {{1, 28, 28}, 10};
  return job;
}

store::Run run_of(const Job& job) {
  return {.id = RunId(3),
          .name = "small",
          .state = store::RunState::kRunning,
          .settings = settings_to_json(job_settings(job))};
}

TEST(RunSettings, AreEveryKeyOfTheJobInItsOrder) {
  const Settings settings = job_settings(small_job());
  EXPECT_EQ(parse_settings(settings_to_json(settings)).value(), settings);
  EXPECT_THAT(settings, Contains(Pair("rounds", "7")));
  EXPECT_THAT(settings, Contains(Pair("data.input", "1,28,28")));
  EXPECT_EQ(parse_settings("[]").error().code(), "bad-settings");
  EXPECT_EQ(parse_settings(R"({"rounds": 7})").error().code(), "bad-settings");
  EXPECT_EQ(parse_settings("").error().code(), "bad-settings");
}

TEST(RunSettings, ThoseThatTellARunApartAreNotTheDefaultsButAlwaysTheShape) {
  Job job = small_job();
  EXPECT_THAT(
      telling_settings(job_settings(job)),
      ElementsAre(Pair("rounds", "7"), Pair("data.input", "1,28,28"), Pair("data.classes", "10")));
  job = Job();
  EXPECT_THAT(telling_settings(job_settings(job)),
              ElementsAre(Pair("data.input", ""), Pair("data.classes", "0")));
}

TEST(RunSettings, StandInTheRunsJsonOnceItHasBegun) {
  const json::value shown = run_to_json(run_of(small_job()), {});
  EXPECT_EQ(shown.at("settings").at("rounds"), json::value("7"));
  EXPECT_EQ(shown.at("settings").at("round.cohort"), json::value("10")) << "defaults, too";
  EXPECT_TRUE(run_to_json({.id = RunId(3)}, {}).at("settings").is_null());
}

TEST(RunSettings, AreShownWithTheClientsOfTheRun) {
  json::value shown = run_to_json(run_of(small_job()), {});
  shown.as_object()["clients"] = {{"admitted", 3},
                                  {"able", 2},
                                  {"connected", 1},
                                  {"left_out", {{{"client", "cam-3"}, {"reason", "too wide"}}}}};
  const std::string text = describe_run(shown, {});
  EXPECT_THAT(text, HasSubstr("clients    3 admitted, 1 connected; 2 can do this run\n"
                              "left out   cam-3: too wide\n"));
  EXPECT_THAT(text, HasSubstr("the shape of the data\nrounds = 7\ndata.input = 1,28,28\n"
                              "data.classes = 10\n"));
  EXPECT_THAT(text, Not(HasSubstr("round.cohort")));
}

TEST(RunSettings, StandInTheReport) {
  Job job = small_job();
  const std::string text = json::serialize(run_to_json(run_of(job), {}));
  const report::Run run = report::parse_federated_run(text).value();
  EXPECT_THAT(run.settings, Contains(Pair("rounds", "7")));
  const std::string page = report::render_report({&run, 1});
  EXPECT_THAT(page, HasSubstr("data.input"));
  EXPECT_THAT(page, HasSubstr("1,28,28"));
  EXPECT_THAT(page, HasSubstr("Federated run · running · iid · seed 0"))
      << "a data set that is not named is no part of the title";
}

TEST(BestModel, IsByTheMetricThatStopsTheRun) {
  const auto metric = [](std::string word) { return metric_of({.metric = std::move(word)}); };
  EXPECT_EQ(metric("none"), store::Metric::kAny);
  EXPECT_EQ(metric("accuracy"), store::Metric::kAccuracy);
  EXPECT_EQ(metric("loss"), store::Metric::kLoss);
  EXPECT_EQ(metric("federated-accuracy"), store::Metric::kFederatedAccuracy);
  EXPECT_EQ(metric("federated-loss"), store::Metric::kFederatedLoss);
}

}  // namespace
}  // namespace starling::coordinator
