// SPDX-License-Identifier: Apache-2.0
// The whole service with real devices over real sockets: runs, restarts, stops, and what operators
// see of them.
#include "coordinator/service/coordinator_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "coordinator/commands/backup_directory.h"
#include "coordinator/commands/received_file.h"
#include "coordinator/job/job_text.h"
#include "coordinator/rounds/run_loader.h"
#include "coordinator/simulation/simulate.h"
#include "core/base/durable_file.h"
#include "core/data/hold_out.h"
#include "core/data/load.h"
#include "core/data/partition.h"
#include "core/identity/certificate_authority.h"
#include "core/model/safetensors.h"
#include "core/store/sqlite_store.h"
#include "tests/coordinator/test_federation.h"
#include "tests/identity/earlier_roster.h"
#include "tests/support/free_port.h"

namespace starling::coordinator {
namespace {

using testing::TestFederation;

Job tiny_job(int clients) {
  Job job;
  job.job.name = "tiny";
  job.job.rounds = 4;
  job.training.model.kind = "softmax-regression";
  job.training.train.batch_size = 16;
  job.round.cohort = clients;
  job.round.min_updates = clients;
  job.round.wait_for = clients;
  job.evaluate.dataset = "synthetic:rows=200,features=6,classes=3:test";
  job.data.dataset = "synthetic:rows=300,features=6,classes=3";
  job.data.partition = "dirichlet:alpha=1";
  return job;
}

std::vector<data::DatasetView> parts_of(const Job& job, std::size_t clients) {
  const auto dataset =
      data::load_dataset(data::DatasetSpec::parse(job.data.dataset).value()).value();
  return data::partition_views(dataset, data::PartitionSpec::parse(job.data.partition).value(),
                               clients)
      .value();
}

boost::json::array simulated_rounds(const Job& job, std::size_t clients) {
  const auto result = simulate(job, {.clients = clients}, SystemClock(), {}).value();
  return result.run.at("rounds").get_array();
}

std::vector<std::string> simulated_models(const Job& job, std::size_t clients) {
  std::vector<std::string> hashes;
  for (const auto& round : simulated_rounds(job, clients)) {
    hashes.emplace_back(round.at("model_sha256").get_string().c_str());
  }
  return hashes;
}

class CoordinatorServiceTest : public ::testing::Test {
 protected:
  void start_clients(const Job& job, std::size_t count) {
    auto parts = parts_of(job, count);
    for (std::size_t k = count; k > 0; --k) {  // the order of joining plays no part
      data::Divided divided = data::hold_out(parts[k - 1], job.data.hold_out.value_or(0));
      federation.start_device("client-" + std::to_string(k),
                              {std::move(divided.training), std::move(divided.held_out)});
    }
  }
  std::string submit(const Job& job, Settings arguments = {}) {
    const auto answer = federation.ask("run-submit", std::move(arguments), job_to_toml(job));
    EXPECT_TRUE(answer) << answer.error().message();
    return std::to_string(answer->at("id").to_number<std::uint64_t>());
  }
  std::string waits_for(const std::string& run) {
    const auto runs = federation.ask("run-list").value();
    for (const auto& listed : runs.get_array()) {
      if (std::to_string(listed.at("id").to_number<std::uint64_t>()) != run) continue;
      const auto& why = listed.at("waits_for");
      return why.is_null() ? "nothing" : why.get_string().c_str();
    }
    return "not listed";
  }

  TestFederation federation;
};

TEST_F(CoordinatorServiceTest, ARunGivesTheModelsOfItsSimulation) {
  federation.start_service();
  const Job job = tiny_job(3);
  start_clients(job, 3);
  const std::string run = submit(job);
  EXPECT_EQ(federation.wait_for_end(run), "completed");
  const auto models = federation.models(run);
  EXPECT_EQ(models.size(), 4U);
  EXPECT_EQ(models, simulated_models(job, 3));
  for (const auto& [task, count] : federation.gate.trainings()) EXPECT_EQ(count, 1);
}

// The devices' file has the large column first.
TEST_F(CoordinatorServiceTest, ScaledColumnsGiveTheModelsOfTheirSimulation) {
  const starling::testing::TemporaryDirectory directory;
  const auto csv = [&](const std::string& name, bool turned) {
    std::string text = turned ? "y,x,label\n" : "x,y,label\n";
    for (int i = 0; i < 90; ++i) {
      const int x = i % 7;
      const int y = 10000 * (i % 5);
      text += std::to_string(turned ? y : x) + "," + std::to_string(turned ? x : y) + "," +
              (x + i % 5 > 5 ? "1\n" : "0\n");
    }
    const auto path = directory.path() / name;
    EXPECT_TRUE(write_durably(path, as_bytes(text)));
    return "csv:" + path.string();
  };
  Job job = tiny_job(3);
  job.training.data.scale = "standard";
  job.data.dataset = job.evaluate.dataset = csv("rows.csv", false);
  Job of_devices = job;
  of_devices.data.dataset = csv("turned.csv", true);
  federation.start_service();
  start_clients(of_devices, 3);
  const std::string run = submit(job);
  EXPECT_EQ(federation.wait_for_end(run), "completed");
  EXPECT_EQ(federation.models(run), simulated_models(job, 3));
  const auto shown = federation.ask("run-show", {{"id", run}}).value();
  const auto simulated = simulated_rounds(job, 3);
  for (std::size_t i = 0; i < simulated.size(); ++i) {
    EXPECT_EQ(shown.at("rounds").at(i).at("eval_loss"), simulated[i].at("eval_loss"));
  }
  EXPECT_EQ(shown.at("settings").at("data.scale-offsets"), "2.9666667,20000")
      << "for those who use the model";
}

TEST_F(CoordinatorServiceTest, ARestartInTheMiddleOfARoundChangesNothing) {
  federation.start_service();
  const Job job = tiny_job(3);
  federation.gate.close("client-2");
  start_clients(job, 3);
  const std::string run = submit(job);
  federation.gate.wait_for_trainings(3);  // client-2 is asked, and held back
  const auto open = federation.ask("run-show", {{"id", run}}).value().at("rounds").at(0);
  EXPECT_EQ(open.at("state"), "open");
  EXPECT_EQ(open.at("bytes_out"), 3 * (6 * 3 + 3) * 4) << "so far";
  federation.stop_service();
  federation.start_service();
  federation.gate.open_all();
  EXPECT_EQ(federation.wait_for_end(run), "completed");
  EXPECT_EQ(federation.models(run), simulated_models(job, 3));
  const auto shown = federation.ask("run-show", {{"id", run}}).value();
  for (const auto& round : shown.at("rounds").get_array()) {
    EXPECT_EQ(round.at("attempt"), 1) << "an attempt that was open is resumed, not repeated";
    EXPECT_EQ(round.at("cohort"), 3);
    EXPECT_EQ(round.at("bytes_out"), 3 * (6 * 3 + 3) * 4) << "also what was sent before";
  }
  for (const auto& [task, count] : federation.gate.trainings()) {
    EXPECT_EQ(count, 1) << task.first << " trained again for round " << task.second;
  }
}

// SCAFFOLD: the server's control is of the same commit as the model, a client's advances with it.
// The clients evaluate each second model on rows that they hold out.
TEST_F(CoordinatorServiceTest, AStrategyWithStatesGivesTheModelsOfItsSimulationAcrossARestart) {
  federation.start_service();
  Job job = tiny_job(3);
  job.training.strategy.name = "scaffold";
  job.evaluate.federated_every = 2;
  job.data.hold_out = 0.2;
  federation.gate.close("client-2", 3);
  start_clients(job, 3);
  const std::string run = submit(job);
  federation.gate.wait_for_training("client-2", 3);
  federation.stop_service();
  federation.start_service();
  federation.gate.open_all();
  EXPECT_EQ(federation.wait_for_end(run), "completed");
  EXPECT_EQ(federation.models(run), simulated_models(job, 3));
  job.training.strategy.name = "fedavg";
  EXPECT_NE(federation.models(run), simulated_models(job, 3));
  job.training.strategy.name = "scaffold";
  const auto client = federation.ask("client-show", {{"name", "client-1"}}).value();
  EXPECT_GT(client.at("held_out").to_number<int>(), 0) << "as it said";
  const auto expected = simulated_rounds(job, 3);
  const auto shown = federation.ask("run-show", {{"id", run}}).value();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto& round = shown.at("rounds").at(i);
    for (const char* key : {"federated_clients", "federated_loss", "federated_accuracy"}) {
      EXPECT_EQ(round.at(key), expected[i].at(key)) << key << " of round " << i + 1;
      EXPECT_EQ(round.at(key).is_null(), i % 2 == 0);
    }
  }
}

// Its model is damaged while the round after it is open.
TEST_F(CoordinatorServiceTest, AWithdrawnRoundIsRunAgainAndTheRunGoesOn) {
  federation.start_service();
  const Job job = tiny_job(3);
  start_clients(job, 3);
  federation.gate.close_from(3);
  const std::string run = submit(job);
  federation.gate.wait_for_trainings(7);  // of which six are the first two rounds
  federation.stop_service();
  const auto file = federation.state().models(RunId(std::stoull(run))) / "2.safetensors";
  ASSERT_TRUE(write_durably(file, as_bytes("damaged")));
  federation.start_service();
  federation.gate.open_all();
  EXPECT_EQ(federation.wait_for_end(run), "completed");
  EXPECT_EQ(federation.models(run), simulated_models(job, 3));
  const auto shown = federation.ask("run-show", {{"id", run}}).value();
  std::vector<std::string> attempts;
  for (const auto& round : shown.at("rounds").get_array()) {
    attempts.push_back(std::to_string(round.at("round").to_number<Round>()) + "." +
                       std::to_string(round.at("attempt").to_number<Attempt>()) + " " +
                       round.at("state").get_string().c_str());
  }
  EXPECT_EQ(attempts,
            (std::vector<std::string>{"1.1 committed", "2.1 abandoned", "3.1 abandoned",
                                      "2.2 committed", "3.2 committed", "4.1 committed"}));
}

TEST_F(CoordinatorServiceTest, ARunningRunIsStoppedAndTheNextOneBegins) {
  federation.start_service();
  const Job job = tiny_job(2);
  federation.gate.close("client-1");
  start_clients(job, 2);
  const std::string first = submit(job);
  const std::string second = submit(job);
  federation.gate.wait_for_trainings(2);
  EXPECT_EQ(federation.ask("run-stop", {{"id", first}}).value().at("state"), "running");
  EXPECT_EQ(federation.wait_for_end(first), "stopped");
  federation.gate.open_all();
  EXPECT_EQ(federation.wait_for_end(second), "completed");
  EXPECT_EQ(federation.models(first).size(), 0U);
  EXPECT_EQ(federation.models(second), simulated_models(job, 2));
}

// Each of them needs one client, and a client works for one task at a time.
TEST_F(CoordinatorServiceTest, SoManyRunsAreActiveAtATimeAsRunsMaxSays) {
  federation.settings().service.runs_max = 2;
  federation.start_service();
  const Job job = tiny_job(1);
  federation.gate.close_from(1);
  start_clients(tiny_job(3), 3);
  const std::string first = submit(job);
  const std::string second = submit(job);
  federation.gate.wait_for_trainings(2);
  const std::string third = submit(job);
  EXPECT_EQ(waits_for(first), "nothing");
  EXPECT_EQ(waits_for(second), "nothing");
  EXPECT_EQ(waits_for(third), "its turn") << "though a client is free";
  EXPECT_EQ(federation.ask("run-state", {{"id", third}}).value().at("state"), "pending");
  federation.gate.open_all();
  for (const std::string& run : {first, second, third}) {
    EXPECT_EQ(federation.wait_for_end(run), "completed");
    EXPECT_EQ(federation.models(run).size(), 4U);
  }
}

// One waits for three clients, the other needs one.
class WaitingRunTest : public CoordinatorServiceTest {
 protected:
  WaitingRunTest() : parts(parts_of(tiny_job(3), 3)) {
    federation.start_service();
    waiting = submit(tiny_job(3));
    federation.log.wait_for("run " + waiting + ": [round 1/4] waiting for 3 clients");
    federation.start_device("client-1", {parts[0]});
  }
  void complete_waiting() {
    federation.start_device("client-2", {parts[1]});
    federation.start_device("client-3", {parts[2]});
    EXPECT_EQ(federation.wait_for_end(waiting), "completed");
    EXPECT_EQ(federation.models(waiting), simulated_models(tiny_job(3), 3));
    EXPECT_EQ(waits_for(waiting), "nothing");
  }

  std::vector<data::DatasetView> parts;
  std::string waiting;
};

TEST_F(WaitingRunTest, HoldsUpNobodyAndSaysWhyItWaits) {
  const std::string next = submit(tiny_job(1));
  EXPECT_EQ(federation.wait_for_end(next), "completed");
  EXPECT_EQ(waits_for(waiting), "3 clients (1 connected)");
  const std::string large = submit(tiny_job(4));
  EXPECT_EQ(waits_for(large), "4 clients (1 connected)");
  EXPECT_EQ(federation.ask("run-stop", {{"id", large}}).value().at("state"), "stopped");
  complete_waiting();
}

TEST_F(WaitingRunTest, BothSurviveARestartInTheMiddleOfTheOther) {
  federation.gate.close_from(3);
  const std::string next = submit(tiny_job(1));
  federation.gate.wait_for_trainings(3);  // the third round of the other run is open
  EXPECT_EQ(waits_for(waiting), "3 clients (1 connected, 1 at work for other runs)");
  federation.stop_service();
  federation.start_service();
  federation.gate.open_all();
  EXPECT_EQ(federation.wait_for_end(next), "completed");
  EXPECT_EQ(federation.models(next).size(), 4U);
  complete_waiting();
}

TEST_F(CoordinatorServiceTest, APendingRunIsStoppedAtOnceAndARestartLeavesItSo) {
  federation.start_service();
  const std::string held = submit(tiny_job(2));  // waits for clients
  const std::string pending = submit(tiny_job(2));
  EXPECT_EQ(federation.ask("run-stop", {{"id", pending}}).value().at("state"), "stopped");
  federation.stop_service();
  federation.start_service();
  EXPECT_TRUE(federation.ask("run-stop", {{"id", held}}));  // running, or still being loaded
  EXPECT_EQ(federation.wait_for_end(held), "stopped");
  EXPECT_EQ(federation.wait_for_end(pending), "stopped");
}

TEST_F(CoordinatorServiceTest, ARunWhoseDataAreDamagedWhileItWaitsFailsByName) {
  federation.start_service();
  const testing::TemporaryDirectory directory;
  const auto file = directory.path() / "rows.csv";
  ASSERT_TRUE(write_durably(file, as_bytes("a,b,y\n1,2,0\n3,4,1\n")));
  const std::string held = submit(tiny_job(2));  // waits for clients
  Job job = tiny_job(1);
  job.evaluate.dataset = "csv:" + file.string();
  const std::string run = submit(job);
  ASSERT_TRUE(write_durably(file, as_bytes("a,b,y\n1,2\n")));
  EXPECT_TRUE(federation.ask("run-stop", {{"id", held}}));
  EXPECT_EQ(federation.wait_for_end(run), "failed");
  const auto state = federation.ask("run-state", {{"id", run}}).value();
  EXPECT_EQ(state.at("error").at("code"), "dataset-malformed");
}

TEST_F(CoordinatorServiceTest, ARunWhoseInitialModelIsExchangedWhileItWaitsFailsByName) {
  federation.start_service();
  const testing::TemporaryDirectory directory;
  const auto file = directory.path() / "initial.safetensors";
  model::Parameters initial(model::external_layout({{.name = "a", .shape = {3}}}).value());
  ASSERT_TRUE(model::write_safetensors(file, initial));
  const std::string submitted = sha256(read_file(file, 1 << 20).value()).hex();
  const std::string held = submit(tiny_job(2));  // waits for clients
  Job job;
  job.training.model.kind = "external";
  job.training.model.initial = file.string();
  job.evaluate.dataset = kByTrainer;
  EXPECT_EQ(federation.refusal("run-submit", {}, job_to_toml(job)), "no-trainer");
  job.evaluate.dataset.clear();
  const std::string run = submit(job);
  initial.values()[0] = 1;
  ASSERT_TRUE(model::write_safetensors(file, initial));
  EXPECT_EQ(federation.ask("run-show", {{"id", run}})->at("initial_sha256"), submitted.c_str());
  EXPECT_TRUE(federation.ask("run-stop", {{"id", held}}));
  EXPECT_EQ(federation.wait_for_end(run), "failed");
  const auto state = federation.ask("run-state", {{"id", run}}).value();
  EXPECT_EQ(state.at("error").at("code"), "initial-differs");
  EXPECT_TRUE(federation.ask("run-show", {{"id", held}})->at("initial_sha256").is_null());
}

TEST_F(CoordinatorServiceTest, AJobThatCannotWorkIsRefusedAtItsSubmission) {
  federation.start_service();
  const auto refusal = [this](const Job& job) {
    const auto answer = federation.ask("run-submit", {}, job_to_toml(job));
    return answer ? "accepted" : answer.error().code() + ": " + answer.error().message();
  };
  Job job = tiny_job(1);
  job.evaluate.dataset = "csv:/nowhere/rows.csv";
  EXPECT_EQ(refusal(job), "dataset-missing: evaluate.dataset: there is no file /nowhere/rows.csv");
  for (const char* missing : {"idx:/nowhere", "fashion-mnist:/nowhere"}) {
    job.evaluate.dataset = missing;
    EXPECT_THAT(refusal(job), ::testing::StartsWith("dataset-missing: evaluate.dataset: "));
  }
  const testing::TemporaryDirectory directory;
  ASSERT_TRUE(write_durably(directory.path() / "damaged.csv", as_bytes("a,b,y\n1,2\n")));
  for (const char* name : {"t10k-labels-idx1-ubyte", "t10k-images-idx3-ubyte"}) {
    ASSERT_TRUE(write_durably(directory.path() / name, as_bytes("no idx file")));
  }
  for (const std::string& damaged : {"csv:" + directory.path().string() + "/damaged.csv",
                                     "idx:" + directory.path().string() + ":test"}) {
    job.evaluate.dataset = damaged;
    EXPECT_THAT(refusal(job), ::testing::StartsWith("dataset-malformed: evaluate.dataset: "));
  }
  job.evaluate.dataset = "cvs:rows.csv";
  EXPECT_THAT(refusal(job), ::testing::StartsWith("dataset-spec: evaluate.dataset: "));
  EXPECT_THAT(refusal(job), ::testing::HasSubstr("did you mean 'csv'?"));
  job.evaluate.dataset = "";
  job.training.data = {{1, 5, 5}, 3};
  job.training.model.kind = "cnn";
  job.training.model.channels = {4, 4, 4};
  EXPECT_THAT(refusal(job), ::testing::StartsWith("bad-model-spec: "));
  EXPECT_EQ(federation.ask("run-list").value().as_array().size(), 0U);
  job.training.model.kind = "softmax-regression";
  EXPECT_EQ(refusal(job), "accepted");
}

class RunWithoutItsDataTest : public CoordinatorServiceTest {
 protected:
  // A run is running, and the service starts again without the file of its evaluation data.
  RunWithoutItsDataTest() {
    federation.settings().service.disk_retry = std::chrono::milliseconds(20);
    write_data();
    federation.start_service();
    job.evaluate.dataset = "csv:" + file.string();
    job.data.dataset = job.evaluate.dataset;
    run = submit(job);
    federation.log.wait_for("run " + run + ": [round 1/4] waiting for");
    federation.stop_service();
    std::filesystem::remove(file);
    federation.start_service();
    federation.log.wait_for("run " + run +
                            ": cannot go on yet: evaluate.dataset: there is no file");
    EXPECT_EQ(federation.ask("run-state", {{"id", run}}).value().at("state"), "running");
    EXPECT_THAT(
        waits_for(run),
        ::testing::StartsWith("its files to be readable: evaluate.dataset: there is no file"));
  }
  void write_data() const {
    std::string text = "a,b,y\n";
    for (int row = 0; row < 30; ++row) {
      text += std::to_string(row) + ",1," + std::to_string(row % 3) + "\n";
    }
    ASSERT_TRUE(write_durably(file, as_bytes(text)));
  }

  testing::TemporaryDirectory directory;
  const std::filesystem::path file = directory.path() / "evaluation.csv";
  Job job = tiny_job(1);
  std::string run;
};

TEST_F(RunWithoutItsDataTest, GoesOnWhenTheDataAreBack) {
  write_data();
  start_clients(job, 1);
  EXPECT_EQ(federation.wait_for_end(run), "completed");
  EXPECT_EQ(federation.models(run).size(), 4U);
}

TEST_F(CoordinatorServiceTest, ARunWaitsForTheDiskOfItsModels) {
  federation.settings().service.disk_retry = std::chrono::milliseconds(20);
  federation.start_service();
  const Job job = tiny_job(1);
  const std::string run = submit(job);
  federation.log.wait_for("run " + run + ": [round 1/4] waiting for");
  federation.stop_service();
  const auto models = federation.state().models();
  const auto away = federation.state().root() / "away";
  std::filesystem::rename(models, away);
  federation.start_service();
  federation.log.wait_for("run " + run + ": cannot go on yet: no model of run");
  std::filesystem::remove_all(models);
  std::filesystem::rename(away, models);
  start_clients(job, 1);
  EXPECT_EQ(federation.wait_for_end(run), "completed");
}

TEST_F(RunWithoutItsDataTest, IsStoppedWhereItWaits) {
  EXPECT_TRUE(federation.ask("run-stop", {{"id", run}}));
  EXPECT_EQ(federation.wait_for_end(run), "stopped");
  const std::string next = submit(tiny_job(1));
  EXPECT_TRUE(federation.ask("run-stop", {{"id", next}}));
  EXPECT_EQ(federation.wait_for_end(next), "stopped");
}

TEST_F(CoordinatorServiceTest, ASubmitTokenGivesTheSameRunAgain) {
  federation.start_service();
  const Job job = tiny_job(1);
  const std::string run = submit(job, {{"submit-token", "monday"}});
  EXPECT_EQ(submit(job, {{"submit-token", "monday"}}), run);
  EXPECT_NE(submit(job), run);
  Job other = job;
  other.job.seed = 7;
  EXPECT_EQ(federation.refusal("run-submit", {{"submit-token", "monday"}}, job_to_toml(other)),
            "submit-token-reused");
}

TEST_F(CoordinatorServiceTest, AnExportedModelIsTheRecordedOne) {
  federation.start_service();
  Job job = tiny_job(1);
  job.checkpoint.keep = 1;
  start_clients(job, 1);
  const std::string run = submit(job);
  EXPECT_EQ(federation.wait_for_end(run), "completed");
  const auto operators = federation.connect_operator();
  const auto model = operators->ask("run-model", {{"id", run}}).value();
  const std::string round = std::to_string(model.at("round").to_number<int>());
  EXPECT_EQ(round, "4");
  const testing::TemporaryDirectory directory;
  const auto path = directory.path() / "model.safetensors";
  ModelHasher hasher;
  const auto bytes = receive_file(
      *operators, {.command = "run-export", .arguments = {{"id", run}, {"round", round}}}, path,
      [&](ByteView piece) { hasher.update(piece); }, [] { return Result<void>(); });
  ASSERT_TRUE(bytes) << bytes.error().message();
  const std::string expected = model.at("model_sha256").get_string().c_str();
  EXPECT_EQ(expected, federation.models(run).back());
  EXPECT_EQ(std::move(hasher).finish().hex(), expected);
  EXPECT_EQ(model::read_safetensors(path).value().sha256().hex(), expected);

  // What fails leaves no file behind.
  const auto other = directory.path() / "other.safetensors";
  const auto refuse = [] { return Result<void>(rejected("model-damaged", "")); };
  EXPECT_FALSE(receive_file(
      *operators, {.command = "run-export", .arguments = {{"id", run}, {"round", round}}}, other,
      [](ByteView) {}, refuse));
  EXPECT_FALSE(std::filesystem::exists(other));
  EXPECT_EQ(federation.refusal("run-model", {{"id", run}, {"round", "9"}}), "round-unknown");
}

TEST_F(CoordinatorServiceTest, WhatOperatorsAskWronglyIsRefusedByName) {
  federation.start_service();
  EXPECT_EQ(federation.refusal("run-paint"), "unknown-command");
  EXPECT_EQ(federation.refusal("run-show"), "argument-missing");
  EXPECT_EQ(federation.refusal("run-show", {{"id", "-1"}}), "argument-invalid");
  EXPECT_EQ(federation.refusal("run-show", {{"id", "99999999999999999999"}}), "argument-invalid");
  EXPECT_EQ(federation.refusal("run-show", {{"id", "7"}}), "run-unknown");
  EXPECT_EQ(federation.refusal("run-log", {{"id", "7"}}), "run-unknown");
  EXPECT_EQ(federation.refusal("run-stop", {{"id", "7"}}), "run-unknown");
  EXPECT_EQ(federation.refusal("run-submit", {}, "rounds = 0"), "setting-invalid");
  EXPECT_EQ(federation.refusal("run-submit", {}, "round = 3\nrouns = 2"), "unknown-key");
  EXPECT_EQ(federation.refusal("run-submit", {}, "= ="), "toml-malformed");
  EXPECT_EQ(federation.refusal("token-new", {{"client", "../etc"}}), "bad-name");
  for (const char* role : {"king", "issuer", "coordinator"}) {
    EXPECT_EQ(federation.refusal("token-new", {{"client", "a"}, {"role", role}}), "role-unknown");
  }
  EXPECT_EQ(federation.refusal("token-new", {{"client", "a"}, {"valid", "9000d"}}),
            "setting-invalid");
  EXPECT_EQ(federation.refusal("token-revoke", {{"id", "xyz"}}), "bad-token-id");
  EXPECT_EQ(federation.refusal("token-revoke", {{"id", "0123456789abcdef"}}), "token-unknown");
  EXPECT_EQ(federation.refusal("client-show", {{"name", "nobody"}}), "client-unknown");
  EXPECT_EQ(federation.refusal("client-revoke", {{"name", "nobody"}}), "client-unknown");
  EXPECT_EQ(federation.refusal("client-revoke", {{"name", "operator"}}), "own-identity");
}

TEST_F(CoordinatorServiceTest, ARequestThatNobodyWaitsForAnyMoreDoesNoHarm) {
  federation.start_service();
  const std::string run = submit(tiny_job(1));
  {
    const auto impatient = federation.connect_operator();
    const auto followed = impatient->stream(
        "run-log", {{"id", run}, {"follow", "true"}}, {}, [](ByteView) { return Result<void>(); },
        impatient->now());
    EXPECT_EQ(followed.error().code(), "deadline");
  }
  EXPECT_TRUE(federation.ask("run-stop", {{"id", run}}));
  EXPECT_EQ(federation.wait_for_end(run), "stopped");
}

TEST_F(CoordinatorServiceTest, TheFallbackIsTheRunsAndComesBackAfterAnOperatorsNetwork) {
  federation.start_service();
  federation.join("cam-1", "peer", "127.0.0.1:7000");
  Job job = tiny_job(3);  // which waits for two more
  job.fallback.topology = "ring";
  const std::string run = submit(job);
  federation.log.wait_for("gossip network fallback-of-run-" + run + ": epoch 1");
  EXPECT_EQ(federation.refusal("gossip-stop"), "fallback-network");
  ASSERT_TRUE(federation.ask("gossip-start", {{"run", "faces"}}, "[topology]\nspec = \"ring\"\n"));
  EXPECT_EQ(federation.ask("gossip-stop").value().at("state"), "stopped");
  const auto shown = federation.ask("gossip-show").value();
  EXPECT_EQ(std::string_view(shown.at("run").as_string()), "fallback-of-run-" + run);
  EXPECT_EQ(shown.at("state"), "running");
  EXPECT_TRUE(federation.ask("run-stop", {{"id", run}}));
  EXPECT_EQ(federation.wait_for_end(run), "stopped");
  EXPECT_EQ(federation.ask("gossip-show").value().at("state"), "stopped");
}

TEST_F(CoordinatorServiceTest, AStateDirectoryOfAnEarlierVersionGoesOnUnderAnIssuersKey) {
  federation.start_service();
  federation.join("cam-1", "peer", "127.0.0.1:7000");
  ASSERT_TRUE(federation.ask("gossip-start", {{"run", "faces"}}, "[topology]\nspec = \"ring\"\n"));
  federation.stop_service();
  const auto ca = federation.state().authority();
  const auto authority = identity::CertificateAuthority::load(ca).value();
  const auto kept = [&] {
    return identity::SignedRoster::load(federation.state().roster(),
                                        std::span(&authority.certificate(), 1),
                                        authority.federation())
        .value();
  };
  // As it was: the server's key signed, and there was no other.
  const identity::Roster before = kept().roster();
  const identity::Credentials server{
      identity::PrivateKey::load(ca / "server-key.pem").value(),
      identity::Certificate::load(ca / "server-certificate.pem").value(),
      {authority.certificate()}};
  const auto serial = server.certificate.serial();
  ASSERT_TRUE(
      write_durably(federation.state().roster(), as_bytes(testing::signed_again(kept(), server))));
  std::filesystem::remove(ca / "issuer-key.pem");
  std::filesystem::remove(ca / "issuer-certificate.pem");

  federation.start_service();
  federation.stop_service();
  const identity::SignedRoster renewed = kept();
  EXPECT_EQ(renewed.signer().role, identity::Role::kIssuer);
  EXPECT_TRUE(renewed.roster().replaces(before));
  EXPECT_EQ(renewed.roster().epoch, before.epoch);
  EXPECT_EQ(identity::Certificate::load(ca / "server-certificate.pem")->serial(), serial);
}

TEST_F(CoordinatorServiceTest, AStolenIssuersKeyIsReplaced) {
  federation.start_service();
  federation.join("cam-1", "peer", "127.0.0.1:7000");
  const auto start = [&] {
    return federation.refusal("gossip-start", {{"run", "faces"}}, "[topology]\nspec = \"ring\"\n");
  };
  const auto ca = federation.state().authority();
  const auto key = [&] {
    return identity::Certificate::load(ca / "issuer-certificate.pem")->public_key_digest();
  };
  const Sha256Digest stolen = key();
  ASSERT_TRUE(make_directory(federation.state().revoked().parent_path()));
  ASSERT_TRUE(write_durably(federation.state().revoked(), as_bytes(stolen.hex() + "\n")));
  EXPECT_EQ(start(), "roster-revoked");
  federation.stop_service();
  std::filesystem::remove(ca / "issuer-key.pem");
  std::filesystem::remove(ca / "issuer-certificate.pem");
  federation.start_service();
  EXPECT_NE(key(), stolen);
  EXPECT_TRUE(federation.ask("gossip-start", {{"run", "faces"}}, "[topology]\nspec = \"ring\"\n"));
}

// A run of twelve rounds with three clients, which is held in its middle.
class BackupTest : public CoordinatorServiceTest {
 protected:
  void start_run(int keep) {
    job_ = tiny_job(3);
    job_.job.rounds = 12;
    job_.checkpoint.keep = keep;
    federation.start_service();
    start_clients(job_, 3);
    run_ = submit(job_);
  }
  // Until `round` is open and cannot be committed.
  void hold_in(Round round) {
    federation.gate.close("client-2", round);
    federation.gate.wait_for_training("client-2", round);
  }
  void back_up(const std::string& name) {
    auto receiver = BackupReceiver::create(copy(name));
    ASSERT_TRUE(receiver) << receiver.error().message();
    const auto received = federation.connect_operator()->stream(
        "backup-directory", {}, {}, [&](ByteView piece) { return receiver->take(piece); });
    ASSERT_TRUE(received) << received.error().message();
    const auto listing = std::move(*receiver).finish();
    ASSERT_TRUE(listing) << listing.error().message();
  }
  std::filesystem::path copy(const std::string& name) const { return directory_.path() / name; }
  void expect_the_models_of_an_undisturbed_run() {
    federation.gate.open_all();
    EXPECT_EQ(federation.wait_for_end(run_), "completed");
    EXPECT_EQ(federation.models(run_), simulated_models(job_, 3));
  }

  Job job_;
  std::string run_;

 private:
  testing::TemporaryDirectory directory_;
};

TEST_F(BackupTest, ARestoreInTheMiddleOfARunEndsWithTheModelsOfAnUndisturbedOne) {
  federation.gate.close("client-2", 5);
  start_run(1);
  hold_in(5);
  back_up("backup");
  hold_in(9);
  EXPECT_EQ(federation.models(run_).size(), 8U);
  federation.stop_service();
  const auto root = federation.state().root();
  EXPECT_TRUE(std::filesystem::is_empty(federation.state().spool()));
  std::filesystem::rename(root, copy("lost"));
  ASSERT_TRUE(restore_backup(copy("backup"), root));
  federation.start_service();
  EXPECT_EQ(federation.models(run_).size(), 4U);
  EXPECT_EQ(federation.ask("client-show", {{"name", "client-1"}}).value().at("state"), "active");
  expect_the_models_of_an_undisturbed_run();
}

// Every commit removes the model before.
TEST_F(BackupTest, WhatIsTakenWhileRoundsAreCommittedHasTheModelsThatItsDatabaseNames) {
  start_run(1);
  for (const Round round : {2, 4, 6, 8}) {
    federation.gate.wait_for_training("client-1", round);
    const std::string name = "backup-" + std::to_string(round);
    back_up(name);
    const auto store = store::open_sqlite_store(copy(name) / "starling.db", {});
    ASSERT_TRUE(store) << store.error().message();
    const store::ModelRecord last = (*store)->models(RunId(1)).value().back();
    SystemDisk disk;
    const store::Checkpoints checkpoints(disk, StateDirectory(copy(name)).models(RunId(1)));
    const auto recovery = store::recover_run(**store, checkpoints, RunId(1), hash_model_file);
    ASSERT_TRUE(recovery) << recovery.error().message();
    EXPECT_EQ(recovery->model, last);
    EXPECT_TRUE(recovery->complaints.empty());
  }
  expect_the_models_of_an_undisturbed_run();
}

TEST_F(BackupTest, NewerModelsThanTheDatabaseKnowsAreSetAsideAndNamed) {
  federation.gate.close("client-2", 5);
  start_run(0);
  hold_in(5);
  back_up("backup");
  hold_in(9);
  federation.stop_service();
  // Somebody restores the database alone.
  const std::string database = federation.state().database().string();
  std::filesystem::remove(database + "-wal");
  std::filesystem::remove(database + "-shm");
  std::filesystem::copy_file(copy("backup") / "starling.db", database,
                             std::filesystem::copy_options::overwrite_existing);
  federation.start_service();
  for (int round = 5; round <= 8; ++round) {
    federation.log.wait_for("set-aside/" + std::to_string(round) + "-");
  }
  const auto aside = federation.state().models(RunId(1)) / "set-aside";
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(aside), {}), 4);
  expect_the_models_of_an_undisturbed_run();
}

TEST_F(CoordinatorServiceTest, AStateDirectoryIsServedOnce) {
  federation.start_service();
  net::EventLoop loop;
  testing::SharedLog log;
  const auto second = CoordinatorService::start(loop, SystemClock(), log, federation.state(), {},
                                                [](const Error&) {});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), "state-in-use");
}

// A supervisor may start it again and again meanwhile.
TEST_F(CoordinatorServiceTest, AStartThatCannotListenLeavesNoTraceInTheRunsLogs) {
  federation.start_service();
  const std::string run = submit(tiny_job(1));  // waits for a client
  federation.log.wait_for("[round 1/4] waiting for 1 client");
  federation.stop_service();
  net::EventLoop loop;
  for (int i = 0; i < 2; ++i) {
    const testing::TakenPort taken(federation.port());
    const auto refused =
        CoordinatorService::start(loop, federation.clock, federation.log, federation.state(),
                                  federation.settings(), [](const Error&) {});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), "cannot-listen");
  }
  EXPECT_EQ(federation.log.count("resumed after round"), 0U);
  federation.start_service();
  EXPECT_EQ(federation.log.count("resumed after round"), 1U);
}

}  // namespace
}  // namespace starling::coordinator
