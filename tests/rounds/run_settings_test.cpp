// SPDX-License-Identifier: Apache-2.0
// What is shown of a run: its settings, what came of it, what an open attempt has so far.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "coordinator/commands/run_view.h"
#include "coordinator/job/job_text.h"
#include "coordinator/rounds/run_context.h"
#include "coordinator/rounds/run_json.h"
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

TEST(RunSettings, NamesSurviveTheJobsText) {
  Job job = small_job();
  job.training.data = {{2}, 2, {"width, in \"mm\"", "back\\slash\t"}, {"a", ""}};
  EXPECT_THAT(job_to_toml(job), HasSubstr("data.class-names = [\"a\", \"\"]"));
  const auto read = read_job(job_to_toml(job), "job.toml");
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->training.data.columns, job.training.data.columns);
  EXPECT_EQ(read->training.data.class_names, job.training.data.class_names);
}

TEST(RunSettings, ThoseThatTellARunApartAreNotTheDefaultsNorAShapeThatIsNotKnown) {
  Job job = small_job();
  EXPECT_THAT(
      telling_settings(job_settings(job)),
      ElementsAre(Pair("rounds", "7"), Pair("data.input", "1,28,28"), Pair("data.classes", "10")));
  EXPECT_THAT(telling_settings(job_settings(Job())), ElementsAre());
}

TEST(RunSettings, StandInTheRunsJson) {
  const json::value shown = run_to_json(run_of(small_job()), {});
  EXPECT_EQ(shown.at("settings").at("rounds"), json::value("7"));
  EXPECT_EQ(shown.at("settings").at("round.cohort"), json::value("10")) << "defaults, too";
  store::Run of_an_old_version = run_of(small_job());
  of_an_old_version.started = WallTime();
  of_an_old_version.settings.clear();
  of_an_old_version.job = job_to_toml(small_job());
  EXPECT_EQ(run_to_json(of_an_old_version, {}).at("settings").at("rounds"), json::value("7"))
      << "by its job";
}

TEST(RunSettings, OfAPendingRunAreThoseThatItWillBeginWith) {
  for (const char* strategy : {"fedavg", "scaffold"}) {
    Job job = small_job();
    job.training.strategy.name = strategy;
    const store::Run pending{.id = RunId(3), .job = job_to_toml(job)};
    store::Run active = pending;
    active.state = store::RunState::kRunning;
    active.started = WallTime();
    active.settings = prepare_run(job, nullptr)->job_settings();
    EXPECT_EQ(run_to_json(pending, {}).at("settings"), run_to_json(active, {}).at("settings"));
    EXPECT_THAT(describe_run(run_to_json(pending, {}), {}), HasSubstr("\nrounds = 7\n"));
  }
  const store::Run unreadable{.id = RunId(3), .job = "of-a-later-version = 1"};
  EXPECT_TRUE(run_to_json(unreadable, {}).at("settings").is_null());
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

// A run of 9 rounds that stops by the clients' accuracy; the coordinator evaluates, too.
struct StoppedRun {
  explicit StoppedRun(const std::vector<double>& accuracies) {
    Job job;
    job.job.rounds = 9;
    job.evaluate.federated_every = 1;
    job.stop = {.metric = "federated-accuracy", .patience = 2};
    run.job = job_to_toml(job);
    for (const double accuracy : accuracies) {
      const auto round = static_cast<Round>(rounds.size() + 1);
      const Sha256Digest model = sha256(as_bytes(std::to_string(round)));
      store::RoundRecord& trained = rounds.emplace_back();
      trained = {.key = {run.id, round, 1}, .state = store::RoundState::kCommitted, .model = model};
      trained.result.evaluation = {0.5, 0.1 * static_cast<double>(round)};
      store::RoundRecord& evaluated = evaluations.emplace_back();
      evaluated = {.key = {run.id, round, 1, store::PhaseKind::kEvaluate},
                   .state = store::RoundState::kCommitted,
                   .base_model = model};
      evaluated.result.evaluation = {0.5, accuracy};
    }
  }
  json::value shown() const { return run_to_json(run, rounds, evaluations); }

  store::Run run{.id = RunId(3), .name = "r", .state = store::RunState::kCompleted};
  std::vector<store::RoundRecord> rounds;
  std::vector<store::RoundRecord> evaluations;
};

TEST(RunOutcome, SaysWhyARunStoppedEarlyAndWhichModelIsTheBest) {
  StoppedRun stopped({0.5, 0.75, 0.7, 0.625});
  const json::value shown = stopped.shown();
  EXPECT_EQ(shown.at("stopped_early"),
            json::value("federated-accuracy has not improved for 2 evaluations since round 2 "
                        "(0.7500)"));
  EXPECT_EQ(shown.at("best_round"),
            json::value({{"round", 2}, {"metric", "federated-accuracy"}, {"value", 0.75}}));
  const std::string text = describe_run(shown, {});
  EXPECT_THAT(text, HasSubstr("\nearly stop federated-accuracy has not improved for 2 evaluations "
                              "since round 2 (0.7500)\n"));
  EXPECT_THAT(text, HasSubstr("\nbest       round 2 (federated-accuracy 0.7500)\n"));
  stopped.run.state = store::RunState::kStopped;
  EXPECT_TRUE(stopped.shown().at("stopped_early").is_null()) << "an operator stopped it";
  stopped.run.state = store::RunState::kRunning;
  EXPECT_TRUE(stopped.shown().at("stopped_early").is_null()) << "it has not ended yet";
}

TEST(RunOutcome, OfARunThatHeldAllItsRoundsIsNoEarlyStop) {
  const StoppedRun all({0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.6, 0.6});
  EXPECT_TRUE(all.shown().at("stopped_early").is_null());
  EXPECT_EQ(all.shown().at("best_round").at("round"), 7);
}

TEST(RunOutcome, WithoutAMetricTheBestIsTheCoordinatorsMostAccurate) {
  StoppedRun run({0.75, 0.5});
  run.run.job.clear();
  EXPECT_EQ(run.shown().at("best_round"),
            json::value({{"round", 2}, {"metric", "accuracy"}, {"value", 0.2}}));
  for (store::RoundRecord& record : run.rounds) record.result.evaluation = {};
  EXPECT_EQ(run.shown().at("best_round"),
            json::value({{"round", 1}, {"metric", "federated-accuracy"}, {"value", 0.75}}));
  run.evaluations.clear();
  EXPECT_TRUE(run.shown().at("best_round").is_null());
  EXPECT_THAT(describe_run(run.shown(), {}), Not(HasSubstr("best ")));
}

TEST(RunProgress, OfAnOpenAttemptIsWhatItsPhaseHasSoFar) {
  const auto count_one = [](RoundMachine& phase) {
    ASSERT_TRUE(phase.offered(TaskId(1), 10));
    phase.count_bytes(TaskId(1), 84, 168);
    ASSERT_TRUE(phase.received(TaskId(1)));
    ASSERT_EQ(phase.next_to_sum(), TaskId(1));
    phase.summed(TaskId(1), 1.0);
  };
  const std::vector<Participant> asked = {{"a", TaskId(1)}, {"b", TaskId(2)}};
  const store::RoundRecord abandoned{.key = {RunId(3), 1, 1},
                                     .state = store::RoundState::kAbandoned,
                                     .cohort = {{"a", TaskId(7)}, {"b", TaskId(8)}}};
  store::RoundRecord record{.key = {RunId(3), 1, 2},
                            .state = store::RoundState::kOpen,
                            .cohort = {{"a", TaskId(1)}, {"b", TaskId(2)}}};
  RoundMachine training({.round = 1, .attempt = 2, .updates_wanted = 2}, asked, {});
  count_one(training);
  json::value shown = run_to_json(run_of(small_job()), {abandoned, record});
  add_progress(training, shown);
  EXPECT_EQ(shown.at("rounds").at(0).at("updates"), 0);
  const json::value& open = shown.at("rounds").at(1);
  EXPECT_EQ(open.at("updates"), 1);
  EXPECT_EQ(open.at("bytes_in"), 84);
  EXPECT_EQ(open.at("bytes_out"), 168);

  store::RoundRecord evaluation = record;
  evaluation.base_model = sha256(as_bytes("model"));
  record.state = store::RoundState::kCommitted;
  record.model = evaluation.base_model;
  RoundMachine evaluating({.kind = protocol::TaskKind::kEvaluate, .round = 1, .updates_wanted = 2},
                          asked, {});
  count_one(evaluating);
  shown = run_to_json(run_of(small_job()), {record}, {evaluation});
  EXPECT_TRUE(shown.at("rounds").at(0).at("federated_clients").is_null());
  add_progress(evaluating, shown);
  EXPECT_EQ(shown.at("rounds").at(0).at("federated_clients"), 1);
  EXPECT_EQ(shown.at("rounds").at(0).at("federated_bytes_out"), 168);
  EXPECT_EQ(shown.at("rounds").at(0).at("bytes_out"), 0) << "of the training, which has ended";
}

TEST(BestModel, IsByTheMetricThatStopsTheRun) {
  const auto metric = [](std::string word) { return metric_of({.metric = std::move(word)}); };
  EXPECT_EQ(metric("none"), std::nullopt);
  EXPECT_EQ(metric("accuracy"), (store::Metric{"accuracy", false, true}));
  EXPECT_EQ(metric("loss"), (store::Metric{"loss", false, false}));
  EXPECT_EQ(metric("federated-accuracy"), (store::Metric{"accuracy", true, true}));
  EXPECT_EQ(metric("federated-loss"), (store::Metric{"loss", true, false}));
  EXPECT_EQ(metric_of({.metric = "federated-mae", .mode = "min"}),
            (store::Metric{"mae", true, false}));
  EXPECT_EQ(metric_of({.metric = "f1", .mode = "max"}), (store::Metric{"f1", false, true}));
  EXPECT_EQ(word_of({"mae", true, false}), "federated-mae");
}

}  // namespace
}  // namespace starling::coordinator
