// SPDX-License-Identifier: Apache-2.0
// A federation whose coordinator is away for a while: what its clients make of it.
#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "coordinator/job/fallback_network.h"
#include "coordinator/simulation/simulate.h"
#include "gossip/fallback/fallback_terms.h"

namespace starling::coordinator {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kClients = 6;

Job learning_job(const std::string& topology) {
  Job job;
  job.job.rounds = 30;
  job.training.model.kind = "softmax-regression";
  job.training.train.local_steps = 10;
  job.training.train.batch_size = 20;
  job.training.train.learning_rate = 0.05;
  job.round.cohort = kClients;
  job.round.min_updates = kClients;
  job.evaluate.dataset = "synthetic:rows=5000,features=12,classes=4:test";
  job.data.dataset = "synthetic:rows=3000,features=12,classes=4";
  job.data.partition = "dirichlet:alpha=0.5";
  job.fallback.topology = topology;
  job.fallback.after = 2s;
  job.fallback.local_steps = 2;
  return job;
}

// A round takes about 0.2 s; the coordinator goes away in about the tenth.
WorldOptions world(const std::string& away) {
  WorldOptions options;
  options.network.latency = "10ms";
  options.coordinator_link.coordinator_away = away;
  return options;
}

boost::json::value run(const Job& job, const WorldOptions& options, unsigned threads = 1) {
  const SystemClock clock;
  const auto result =
      simulate(job, {.clients = kClients, .threads = threads, .world = options}, clock, {});
  EXPECT_TRUE(result) << result.error().message();
  EXPECT_FALSE(result->error) << result->error->message();
  return result->run;
}

std::vector<std::string> models(const boost::json::value& run) {
  std::vector<std::string> hashes;
  for (const auto& round : run.at("rounds").get_array()) {
    if (round.at("model_sha256").is_string()) {
      hashes.emplace_back(round.at("model_sha256").get_string().c_str());
    }
  }
  return hashes;
}

double last_accuracy(const boost::json::value& run) {
  return run.at("rounds").get_array().back().at("eval_accuracy").to_number<double>();
}

TEST(SimulatedFallback, TheSameSeedGivesTheSameModelsOnAnyThreads) {
  const auto once = models(run(learning_job("ring"), world("2s+60s")));
  EXPECT_EQ(once.size(), 30U);
  EXPECT_EQ(models(run(learning_job("ring"), world("2s+60s"), 2)), once);
  EXPECT_EQ(models(run(learning_job("ring"), world("2s+60s"), 3)), once);
}

TEST(SimulatedFallback, WhatWasTrainedMeanwhileIsMergedAndCostsLittle) {
  const auto undisturbed = run(learning_job("ring"), world(""));
  const auto waited = run(learning_job(""), world("2s+60s"));
  const auto merged = run(learning_job("ring"), world("2s+60s"));
  EXPECT_EQ(models(waited), models(undisturbed)) << "an absence alone changes no model";
  EXPECT_NE(models(merged), models(undisturbed));
  EXPECT_NEAR(last_accuracy(merged), last_accuracy(undisturbed), 0.005);
  std::size_t same = 0;
  while (models(merged)[same] == models(undisturbed)[same]) ++same;
  EXPECT_GT(same, 2U) << "nothing changes before the absence";
  EXPECT_LT(same, 29U);
}

TEST(SimulatedFallback, AnAbsenceThatIsTooShortChangesNothing) {
  Job patient = learning_job("ring");
  patient.fallback.after = 90s;
  EXPECT_EQ(models(run(patient, world("2s+60s"))), models(run(learning_job(""), world(""))));
  EXPECT_EQ(models(run(learning_job("ring"), world(""))), models(run(learning_job(""), world(""))));
}

// A client that comes back may be asked to evaluate before a round asks it to train.
TEST(SimulatedFallback, EvaluationsAreNotAnsweredWithAGossipModel) {
  Job job = learning_job("ring");
  job.round.cohort = 2;
  job.round.min_updates = 2;
  job.evaluate.federated_every = 1;
  job.data.hold_out = 0.2;
  const auto result = run(job, world("2s+60s"));
  EXPECT_NE(models(result), models(run(job, world("")))) << "something was merged";
  for (const auto& round : result.at("rounds").get_array()) {
    EXPECT_EQ(round.at("failures").get_array().size(), 0U) << round.at("failures");
    EXPECT_EQ(round.at("federated_failures").get_array().size(), 0U)
        << round.at("federated_failures");
  }
}

TEST(SimulatedFallback, TwoAbsencesAndASplitAreLivedThrough) {
  WorldOptions options = world("2s+40s;60s+40s");
  options.network.splits = "10s-20s:2";
  const auto once = run(learning_job("exponential"), options);
  EXPECT_EQ(models(once).size(), 30U);
  EXPECT_EQ(models(run(learning_job("exponential"), options, 2)), models(once));
}

TEST(SimulatedWorld, AnAbsenceHasATimeAndALength) {
  EXPECT_EQ(SimulatedWorld::make(world("5s+1m;70s+1s"), 2, 1)->absences().size(), 2U);
  for (const char* bad : {"5s", "5s+", "x+1s", "5s+0s", "5s+1m;60s+1s"}) {
    EXPECT_EQ(SimulatedWorld::make(world(bad), 2, 1).error().code(), "bad-absence") << bad;
  }
}

TEST(FallbackNetwork, AJobThatNamesNoGraphOrAnUnfitOneIsRefused) {
  EXPECT_TRUE(learning_job("").validate());
  EXPECT_TRUE(learning_job("torus").validate()) << "how many clients there will be nobody knows";
  EXPECT_EQ(learning_job("rong").validate().error().code(), "topology-spec");
  EXPECT_EQ(learning_job("d-cliques").validate().error().code(), "setting-invalid");
}

TEST(FallbackNetwork, TrainsAsTheJobSaysAndKeepsItsSchedule) {
  Job job = learning_job("ring");
  job.training.train.schedule = "cosine";
  job.training.train.warmup_rounds = 5;
  job.training.data.classes = 4;
  const gossip::NetOptions options = fallback_options(job);
  EXPECT_TRUE(options.validate());
  EXPECT_EQ(options.train.train.local_steps, 2);
  EXPECT_EQ(options.train.train.batch_size, 20);
  EXPECT_EQ(options.train.train.schedule, "cosine");
  EXPECT_EQ(options.train.train.warmup_rounds, 5);
  EXPECT_EQ(fallback_terms(RunId(3), job).run, 3U);
  EXPECT_EQ(fallback_terms(RunId(3), job).classes, 4);
}

}  // namespace
}  // namespace starling::coordinator
