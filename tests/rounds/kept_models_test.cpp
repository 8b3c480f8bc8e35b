// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <filesystem>
#include <set>

#include "coordinator/simulation/simulate.h"
#include "tests/support/temporary_directory.h"

namespace starling::coordinator {
namespace {

std::set<std::string> kept_by(const std::string& metric, boost::json::value& run) {
  const std::string text = R"(
rounds = 6
[model]
kind = "softmax-regression"
[train]
learning-rate = 3
[round]
cohort = 3
[data]
dataset = "synthetic:features=6,classes=3,rows=400"
hold-out = 0.2
[evaluate]
dataset = "synthetic:features=6,classes=3,rows=100,seed=2"
federated-every = 1
[checkpoint]
keep = 1
[stop]
metric = ")" + metric + "\"\npatience = 100\n";
  const testing::TemporaryDirectory directory;
  SimulateOptions options;
  options.clients = 4;
  options.out = directory.path() / "out";
  auto result = simulate(parse_job(text, "job").value(), options, SystemClock(), {});
  EXPECT_TRUE(result) << result.error().message();
  run = result->run;
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(*options.out / "models")) {
    files.insert(entry.path().filename().string());
  }
  return files;
}

// The first of the lowest (`sign` 1) or highest (-1).
std::string best_file(const boost::json::value& run, const char* key, double sign) {
  std::string best;
  double lowest = 0;
  for (const boost::json::value& round : run.at("rounds").as_array()) {
    const double value = sign * round.at(key).to_number<double>();
    if (!best.empty() && value >= lowest) continue;
    lowest = value;
    best = std::to_string(round.at("round").to_number<int>()) + ".safetensors";
  }
  return best;
}

TEST(KeptModels, AreTheFirstTheLastAndTheBestByTheMetricOfTheJob) {
  boost::json::value run;
  std::set<std::string> bests;
  const auto check = [&](const char* metric, const char* key, double sign) {
    const auto files = kept_by(metric, run);
    const std::string best = best_file(run, key, sign);
    bests.insert(best);
    EXPECT_EQ(files, (std::set<std::string>{"0.safetensors", best, "6.safetensors"})) << metric;
  };
  check("loss", "eval_loss", 1);
  check("accuracy", "eval_accuracy", -1);
  check("federated-loss", "federated_loss", 1);
  check("federated-accuracy", "federated_accuracy", -1);
  check("none", "eval_accuracy", -1);
  EXPECT_GT(bests.size(), 1U) << "else this proves nothing";
  EXPECT_EQ(run.at("settings").at("data.input"), boost::json::value("6"));
}

}  // namespace
}  // namespace starling::coordinator
