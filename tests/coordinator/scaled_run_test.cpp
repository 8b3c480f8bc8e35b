// SPDX-License-Identifier: Apache-2.0
// The numbers that a run scales columns by: where they come from, where they stand, and what is
// refused.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <fstream>

#include "coordinator/job/job_text.h"
#include "coordinator/rounds/run_loader.h"
#include "coordinator/simulation/simulate.h"
#include "core/client/abilities.h"
#include "core/wire/codec.h"
#include "core/wire/limits.h"
#include "tests/support/temporary_directory.h"

namespace starling::coordinator {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

class ScaledRunTest : public ::testing::Test {
 protected:
  ScaledRunTest() {
    job_.training.model.kind = "softmax-regression";
    job_.training.data.scale = "standard";
    job_.evaluate.dataset = csv("rows.csv", "x,y,label\n1,10,0\n3,10,1\n");
  }
  // Writes the file and returns its data set.
  std::string csv(const std::string& name, const std::string& text) const {
    const auto path = directory_.path() / name;
    std::ofstream(path) << text;
    return "csv:" + path.string();
  }
  // What the job is refused for, at its submission.
  static std::string why(const std::string& toml) {
    const auto job = parse_job(toml, "job.toml");
    if (!job) return job.error().message();
    const auto tried = try_job(*job, prepare_context, std::nullopt);
    return tried ? "accepted" : tried.error().message();
  }

  testing::TemporaryDirectory directory_;
  Job job_;
};

TEST_F(ScaledRunTest, TheNumbersAreThoseOfTheEvaluationDataAndTravelWithEveryTask) {
  const auto run = prepare_run(job_, nullptr);
  ASSERT_TRUE(run) << run.error().message();
  EXPECT_THAT(run->settings(), IsSupersetOf(Settings{{"data.scale", "standard"},
                                                     {"data.scale-offsets", "2,10"},
                                                     {"data.scale-divisors", "1,1"}}))
      << "the second column is constant";
  EXPECT_THAT(run->evaluation->features(0), ElementsAre(-1.0F, 0.0F));
  EXPECT_THAT(run->evaluation->features(1), ElementsAre(1.0F, 0.0F));
  EXPECT_THAT(run->abilities(), Contains(client::kScaleAbility)) << "an earlier version has not";
  EXPECT_THAT(run->job_settings(), HasSubstr(R"("data.scale-offsets":"2,10")"));
  job_.training.data.scale = "minmax";
  job_.training.data.columns = {"y", "x"};
  const auto other = prepare_run(job_, nullptr);
  ASSERT_TRUE(other) << other.error().message();
  EXPECT_THAT(other->settings(), IsSupersetOf(Settings{{"data.scale-offsets", "10,1"},
                                                       {"data.scale-divisors", "1,2"}}))
      << "in the order of data.columns";
  EXPECT_THAT(other->evaluation->features(1), ElementsAre(0.0F, 1.0F));
}

TEST_F(ScaledRunTest, NumbersThatTheJobStatesAreUsedAsTheyAre) {
  job_.training.data.scale_offsets = {1, 0};
  job_.training.data.scale_divisors = {2, 0.1F};
  const auto run = prepare_run(job_, nullptr);
  ASSERT_TRUE(run) << run.error().message();
  EXPECT_THAT(run->settings(), IsSupersetOf(Settings{{"data.scale-offsets", "1,0"},
                                                     {"data.scale-divisors", "2,0.1"}}));
  EXPECT_THAT(run->evaluation->features(1), ElementsAre(1.0F, 10.0F / 0.1F));
  job_.data.match = kMatchPosition;
  EXPECT_THAT(prepare_run(job_, nullptr)->evaluation->features(1), ElementsAre(1.0F, 100.0F));
  job_.evaluate.dataset.clear();
  job_.training.data.classes = 2;
  const auto alone = prepare_run(job_, nullptr);
  ASSERT_TRUE(alone) << "they say the number of features";
  EXPECT_EQ(alone->for_clients.data.input, std::vector<int>{2});
  const auto read = read_job(job_to_toml(job_), "job.toml");
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->training.data.names(), job_.training.data.names());
}

TEST_F(ScaledRunTest, WithoutScalingNothingOfItTravels) {
  job_.training.data.scale = "none";
  const auto run = prepare_run(job_, nullptr);
  ASSERT_TRUE(run) << run.error().message();
  for (const auto& [key, value] : run->settings()) EXPECT_THAT(key, Not(HasSubstr("scale")));
  EXPECT_THAT(run->abilities(), Not(Contains(client::kScaleAbility)));
  EXPECT_THAT(run->evaluation->features(1), ElementsAre(3.0F, 10.0F));
}

// Also where the evaluation data have changed since.
TEST_F(ScaledRunTest, ARestartKeepsTheNumbersThatTheRunBeganWith) {
  SystemDisk disk;
  const store::Checkpoints checkpoints(disk, directory_.path() / "models");
  std::filesystem::create_directories(directory_.path() / "models");
  store::Run run{.id = RunId(3), .seed = 1, .job = job_to_toml(job_)};
  const auto begun = load_new_run(run);
  ASSERT_TRUE(begun) << begun.error().message();
  run.settings = begun->context->job_settings();
  const auto record = write_position(checkpoints, begun->at, run.settings).value();
  csv("rows.csv", "x,y,label\n100,10,0\n300,70,1\n");
  const auto again =
      load_running_run(run, strategy::builtin_strategies(), prepare_context, checkpoints, record);
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(again->context->settings(), begun->context->settings());
  EXPECT_THAT(again->context->evaluation->features(0), ElementsAre(98.0F, 0.0F));
}

TEST_F(ScaledRunTest, WhereNothingSaysTheNumbersTheJobIsRefused) {
  const std::string scaled = "data.scale = \"standard\"\n";
  EXPECT_EQ(why(scaled),
            "data.scale = \"standard\" has no numbers: set data.scale-offsets and "
            "data.scale-divisors, or an evaluate.dataset to compute them from, with evaluate.every "
            "above 0")
      << "also where the clients say the shape";
  EXPECT_THAT(why(scaled + "data.input = [2]\ndata.classes = 2\n"), HasSubstr("has no numbers"));
  EXPECT_THAT(why(scaled +
                  "data.input = [2]\ndata.classes = 2\nevaluate.every = 0\n"
                  "evaluate.dataset = \"" +
                  job_.evaluate.dataset + "\"\n"),
              HasSubstr("has no numbers"));
}

TEST_F(ScaledRunTest, WhatIsNoTableOfNumbersIsRefused) {
  const std::string scaled = "data.scale = \"standard\"\n";
  const std::string numbers =
      scaled + "data.scale-offsets = [1, 2]\ndata.scale-divisors = [1, 2]\n";
  EXPECT_EQ(why(numbers + "data.classes = 2\n"), "accepted");
  EXPECT_THAT(why(scaled + "evaluate.dataset = \"synthetic:rows=9,features=2\"\n"),
              HasSubstr("evaluate.dataset: data.scale = \"standard\" is for the columns of csv"));
  EXPECT_THAT(why(numbers + "evaluate.dataset = \"synthetic:rows=9,features=2\"\n"),
              HasSubstr("the data are of another kind"));
  EXPECT_THAT(why(scaled + "data.input = [1, 28, 28]\ndata.classes = 2\n"),
              HasSubstr("data.input is the shape of images"));
  EXPECT_THAT(why(numbers + "model.kind = \"external\"\n"), HasSubstr("have to scale them"));
  EXPECT_THAT(why(numbers + "fallback.topology = \"ring\"\n"), HasSubstr("fallback.topology"));
}

TEST_F(ScaledRunTest, NumbersThatDoNotFitAreRefused) {
  const auto numbers = [](const std::string& offsets, const std::string& divisors) {
    return why(
        "data.scale = \"minmax\"\ndata.input = [2]\ndata.classes = 2\n"
        "data.scale-offsets = [" +
        offsets + "]\ndata.scale-divisors = [" + divisors + "]\n");
  };
  EXPECT_EQ(numbers("1, 2.5", "1, 1e-3"), "accepted");
  EXPECT_EQ(numbers("1, 2", "1"), "data.scale-offsets has 2 numbers, and data.scale-divisors 1");
  EXPECT_EQ(numbers("1", "1"), "data.scale-offsets has 1 number, and data.input says 2 features");
  EXPECT_THAT(numbers("1, 2", "1, 0"), HasSubstr("data.scale-divisors has 0, and each must be"));
  EXPECT_THAT(numbers("1, 2", "1, -2"), HasSubstr("has -2"));
  EXPECT_THAT(numbers("1, nan", "1, 2"), HasSubstr("data.scale-offsets = '1,nan' is not a finite"));
  EXPECT_THAT(why("data.scale-offsets = [1]\ndata.scale-divisors = [1]\n"),
              HasSubstr("need data.scale"));
}

// A thousand columns, each with a number of nine digits.
TEST_F(ScaledRunTest, NumbersThatNoMessageCarriesAreRefused) {
  const auto table = [&](int columns) {
    std::string text = "label";
    std::string one = "0";
    std::string other = "1";
    for (int i = 0; i < columns; ++i) {
      text += fmt::format(",c{}", i);
      one += ",0.123456789";
      other += ",0.987654321";
    }
    return csv("wide.csv", text + "\n" + one + "\n" + other + "\n");
  };
  job_.evaluate.dataset = table(1000);
  EXPECT_TRUE(prepare_run(job_, nullptr));
  job_.evaluate.dataset = table(2000);
  EXPECT_THAT(prepare_run(job_, nullptr).error().message(),
              HasSubstr("data.scale-offsets has 2000 numbers"));
}

TEST_F(ScaledRunTest, TheLargestListsOfARunTravelInOneTask) {
  client::TrainingSettings settings;
  client::DataShape& shape = settings.data;
  shape.scale = "standard";
  shape.columns = {std::string(client::kNamesBytesMax, 'c')};
  shape.class_names = {std::string(client::kNamesBytesMax, 'n')};
  shape.scale_offsets.assign((client::kScaleBytesMax + 1) / 2, 1);
  shape.scale_divisors = shape.scale_offsets;
  ASSERT_TRUE(shape.check_names());
  ASSERT_TRUE(shape.check_scaling());
  protocol::RoundPlan plan;
  plan.task = TaskId(1);
  plan.run = RunId(1);
  plan.run_name = std::string(wire::kNameBytesMax, 'r');
  plan.round = 1;
  plan.attempt = 1;
  plan.rounds = 1;
  plan.settings = settings.to_settings();
  const auto header = wire::encode_header(plan);
  EXPECT_TRUE(header) << header.error().message();
  shape.scale_offsets.push_back(1);
  shape.scale_divisors.push_back(1);
  EXPECT_THAT(shape.check_scaling().error().message(), HasSubstr("scale the files themselves"));
}

// The simulated clients hold the rows of data.dataset, whose columns may stand in another order.
TEST_F(ScaledRunTest, ASimulationScalesByTheSameNumbersWhateverTheOrderOfTheColumns) {
  std::string evaluation = "x,y,label\n";
  std::string rows = "x,y,label\n";
  std::string turned = "y,x,label\n";
  for (int i = 0; i < 60; ++i) {
    const int x = i % 7;
    const int y = 10000 * (i % 5);
    const int label = x + i % 5 > 5 ? 1 : 0;
    evaluation += fmt::format("{},{},{}\n", x + 1, y + 5000, label);
    rows += fmt::format("{},{},{}\n", x, y, label);
    turned += fmt::format("{},{},{}\n", y, x, label);
  }
  job_.job.rounds = 3;
  job_.round.cohort = 2;
  job_.training.train.local_epochs = 20;
  job_.training.train.batch_size = 8;
  job_.evaluate.dataset = csv("evaluation.csv", evaluation);
  const auto simulated = [&](const std::string& dataset) {
    job_.data.dataset = dataset;
    const auto result = simulate(job_, {.clients = 2}, SystemClock(), {});
    EXPECT_TRUE(result) << result.error().message();
    return result->run;
  };
  const auto models = [](const boost::json::value& run) {
    std::vector<std::string> hashes;
    for (const auto& round : run.at("rounds").as_array()) {
      hashes.push_back(boost::json::serialize(round.at("model_sha256")));
    }
    return hashes;
  };
  const auto run = simulated(csv("rows.csv", rows));
  EXPECT_EQ(models(simulated(csv("turned.csv", turned))), models(run));
  EXPECT_GT(run.at("rounds").at(2).at("eval_accuracy").to_number<double>(), 0.8);
  job_.evaluate.dataset.clear();
  job_.data.hold_out = 0;
  const auto alone = simulated(csv("rows.csv", rows));
  const auto& settings = alone.at("settings");
  EXPECT_EQ(settings.at("data.scale-offsets"), "2.9,20000")
      << "without rows to evaluate on, of all rows of data.dataset";
  job_.training.data.scale = "none";
  EXPECT_NE(models(simulated(csv("rows.csv", rows))), models(alone));
}

}  // namespace
}  // namespace starling::coordinator
