// SPDX-License-Identifier: Apache-2.0
// starling-gossip launch with real starling-edge processes: the simulation's models to the bit, a
// ring that contracts as its second eigenvalue says, a peer that is killed and comes back, and the
// bytes that a step takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>
#include <csignal>
#include <fstream>
#include <numbers>
#include <sstream>
#include <thread>

#include "core/base/durable_file.h"
#include "core/model/safetensors.h"
#include "tests/gossip_launch/readme_examples.h"
#include "tests/support/paths.h"
#include "tests/support/process.h"
#include "tests/support/temporary_directory.h"

namespace starling::gossip {
namespace {

using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;
using Words = std::vector<std::string>;

class LaunchNetwork : public ::testing::Test {
 protected:
  // Runs `starling-gossip COMMAND ... --out NAME` with the same network; NAME is the command's
  // unless said.
  void run(const std::string& command, const Words& network, const Words& more = {},
           std::string name = {}) {
    if (name.empty()) name = command;
    Words words{testing::build_root() / "bin/starling-gossip", command};
    words.insert(words.end(), network.begin(), network.end());
    words.insert(words.end(), more.begin(), more.end());
    words.insert(words.end(), {"--out", (directory_.path() / name).string()});
    const auto finished = testing::run(words);
    ASSERT_EQ(finished.exit_code, 0) << finished.output << logs(name);
  }
  std::string logs(const std::string& command) const {
    std::ostringstream all;
    std::error_code none;
    for (const auto& entry :
         std::filesystem::directory_iterator(directory_.path() / command / "logs", none)) {
      all << entry.path() << "\n" << std::ifstream(entry.path()).rdbuf();
    }
    return all.str();
  }
  std::string models_digest(const std::string& command) const {
    const auto text = read_text_file(directory_.path() / command / "summary.json", 1 << 20);
    EXPECT_TRUE(text);
    return std::string(boost::json::parse(*text).as_object().at("models_sha256").as_string());
  }
  // The mean of the nodes' models.
  std::vector<float> mean_model(const std::string& command) const {
    const auto model = model::read_safetensors(directory_.path() / command / "model.safetensors");
    EXPECT_TRUE(model);
    if (!model) return {};
    const std::span<const float> values = model->values();
    return {values.begin(), values.end()};
  }
  double summary_total(const std::string& command, const std::string& name) const {
    const auto text = read_text_file(directory_.path() / command / "summary.json", 1 << 20);
    EXPECT_TRUE(text);
    const auto summary = boost::json::parse(*text).as_object();
    return summary.at("totals").as_object().at(name).to_number<double>();
  }
  std::vector<boost::json::object> metrics(const std::string& command) const {
    std::ifstream file(directory_.path() / command / "metrics.jsonl");
    std::vector<boost::json::object> lines;
    for (std::string line; std::getline(file, line);) {
      lines.push_back(boost::json::parse(line).as_object());
    }
    return lines;
  }
  std::filesystem::path write(const std::string& name, const std::string& text) const {
    auto path = directory_.path() / name;
    std::ofstream(path) << text;
    return path;
  }

 private:
  testing::TemporaryDirectory directory_;
};

TEST_F(LaunchNetwork, SixteenProcessesEndWithTheSimulationsBits) {
  const Words network{"--topology",  "exponential",
                      "--nodes",     "16",
                      "--algorithm", "dpsgd",
                      "--steps",     "60",
                      "--dataset",   "synthetic:rows=1600,features=12,classes=3"};
  run("simulate", network);
  run("launch", network);
  EXPECT_EQ(models_digest("launch"), models_digest("simulate")) << logs("launch");
}

// The simulation sums the models in another order.
TEST_F(LaunchNetwork, SixteenProcessesHoldOneMeanWhichIsTheSimulations) {
  for (const std::string algorithm : {"all-reduce", "diloco-all"}) {
    const Words network{"--algorithm",      algorithm,
                        "--nodes",          "16",
                        "--steps",          "60",
                        "--local-steps",    "2",
                        "--evaluate.every", "20",
                        "--dataset",        "synthetic:rows=1600,features=12,classes=3"};
    const std::string simulated = algorithm + "-simulated";
    const std::string launched = algorithm + "-launched";
    run("simulate", network, {}, simulated);
    run("launch", network, {}, launched);
    const auto lines = metrics(launched);
    ASSERT_EQ(lines.size(), 4U);
    for (const auto& line : lines) {
      EXPECT_EQ(line.at("consensus_distance").to_number<double>(), 0) << logs(launched);
    }
    EXPECT_THAT(mean_model(launched), Pointwise(FloatNear(1e-5F), mean_model(simulated)))
        << algorithm << "\n"
        << logs(launched);
  }
}

// All other synchronous algorithms that peers do not sum in another order.
TEST_F(LaunchNetwork, EverySynchronousAlgorithmEndsWithTheSimulationsBits) {
  const std::vector<Words> networks{
      {"sgp", "exponential"}, {"gradient-tracking", "exponential"},
      {"choco", "ring"},      {"d2", "ring", "--mixing", "lazy"},
      {"qg-dsgdm", "ring"},   {"epidemic", "epidemic:s=2"},
      {"relaysgd", "path"},   {"diloco", "one-peer-exponential", "--local-steps", "2"},
      {"detag", "ring"}};
  for (const Words& network : networks) {
    const std::string& algorithm = network[0];
    Words flags{"--algorithm", algorithm,
                "--topology",  network[1],
                "--nodes",     "4",
                "--steps",     "20",
                "--dataset",   "synthetic:rows=400,features=12,classes=3"};
    flags.insert(flags.end(), network.begin() + 2, network.end());
    run("simulate", flags, {}, algorithm + "-simulated");
    run("launch", flags, {}, algorithm + "-launched");
    EXPECT_EQ(models_digest(algorithm + "-launched"), models_digest(algorithm + "-simulated"))
        << algorithm << "\n"
        << logs(algorithm + "-launched");
  }
}

// Drawn alike by all, and summed in the same order.
TEST_F(LaunchNetwork, EightProcessesInGroupsEndWithTheSimulationsBits) {
  const Words network{"--algorithm", "all-reduce:group=3",
                      "--nodes",     "8",
                      "--steps",     "40",
                      "--dataset",   "synthetic:rows=800,features=12,classes=3"};
  run("simulate", network);
  run("launch", network);
  EXPECT_EQ(models_digest("launch"), models_digest("simulate")) << logs("launch");
}

TEST_F(LaunchNetwork, RobustRulesEndWithTheSimulationsBits) {
  for (const std::string rule : {"clip", "remove"}) {
    const Words network{
        "--topology", "complete", "--nodes",     "5",
        "--robust",   rule,       "--partition", "balanced-dirichlet:alpha=0.1",
        "--steps",    "20",       "--dataset",   "synthetic:rows=400,features=12,classes=3"};
    run("simulate", network, {}, rule + "-simulated");
    run("launch", network, {}, rule + "-launched");
    EXPECT_EQ(models_digest(rule + "-launched"), models_digest(rule + "-simulated"))
        << rule << "\n"
        << logs(rule + "-launched");
  }
}

// Peers begin with the models that simulate gives them, and train on the rows that it does not hold
// out.
TEST_F(LaunchNetwork, DifferentBeginningsAndDataOfOnesOwnAreTheSimulations) {
  std::string rows = "a,b,label\n";
  for (int row = 0; row < 200; ++row) {
    rows += std::to_string(row % 3 + row / 1000.0) + "," + std::to_string(row % 7) + "," +
            std::to_string(row % 3) + "\n";
  }
  const Words network{"--topology", "ring",
                      "--nodes",    "4",
                      "--steps",    "20",
                      "--initial",  "spread=1",
                      "--dataset",  "csv:" + write("rows.csv", rows).string()};
  run("simulate", network);
  run("launch", network);
  EXPECT_EQ(models_digest("launch"), models_digest("simulate")) << logs("launch");
  EXPECT_EQ(metrics("launch").front().at("consensus_distance"),
            metrics("simulate").front().at("consensus_distance"));
  EXPECT_EQ(metrics("launch").back().at("eval_accuracy"),
            metrics("simulate").back().at("eval_accuracy"));
}

// --- custom trainers ----------------------------------------------------------------------------

class LaunchedTrainers : public LaunchNetwork {
 protected:
  Words with_trainer(const std::string& mode, const Words& more) const {
    const auto script = testing::source_root() / "tests" / "client" / "fake_trainer.py";
    Words words{"--model", "external", "--trainer",
                "python3 -B " + script.string() + " " + mode + " " + memory_.path().string()};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::filesystem::path memory() const { return memory_.path(); }
  bool can_run() const {
    return testing::run({"/usr/bin/env", "python3", "--version"}).exit_code == 0;
  }

 private:
  testing::TemporaryDirectory memory_;  // of trainers that misbehave once
};

TEST_F(LaunchedTrainers, EndWithTheSimulationsBits) {
  if (!can_run()) GTEST_SKIP() << "python3 is not there";
  const std::vector<std::pair<std::string, Words>> networks{
      {"honest", {"--algorithm", "dpsgd", "--local-steps", "3"}},
      {"without-buffers", {"--algorithm", "gradient-tracking", "--clip-norm", "1"}},
      {"without-buffers", {"--algorithm", "sgp", "--optimizer", "adam"}}};
  for (const auto& [mode, flags] : networks) {
    Words network = with_trainer(mode, flags);
    network.insert(network.end(), {"--topology", "ring", "--nodes", "4", "--steps", "12"});
    const std::string& algorithm = flags[1];
    run("simulate", network, {"--workers", "2"}, algorithm + "-simulated");
    run("launch", network, {}, algorithm + "-launched");
    EXPECT_EQ(models_digest(algorithm + "-launched"), models_digest(algorithm + "-simulated"))
        << algorithm << "\n"
        << logs(algorithm + "-launched");
    EXPECT_EQ(metrics(algorithm + "-launched").back().at("eval_accuracy"), 0.75);
  }
}

// One process dies in its first task, and its peer with the next; nobody goes on without it.
TEST_F(LaunchedTrainers, ATrainerThatDiesAndAPeerThatIsKilledComeBack) {
  if (!can_run()) GTEST_SKIP() << "python3 is not there";
  const Words network{"--topology", "ring", "--nodes", "4", "--steps", "300"};
  run("simulate", with_trainer("honest", network), {}, "undisturbed");
  const auto events = write("events.toml", R"([crash]
step = 20
kind = "restart"
nodes = "2"
for = "500ms"
)");
  Words disturbed = with_trainer("dies", network);
  run("launch", disturbed, {"--events", events.string()});
  const auto loss = [&](const std::string& name) {
    return metrics(name).back().at("eval_loss").to_number<double>();
  };
  EXPECT_NEAR(loss("launch"), loss("undisturbed"), 0.01) << logs("launch");
}

TEST_F(LaunchedTrainers, AnInterruptWaitsForNoEvaluation) {
  if (!can_run()) GTEST_SKIP() << "python3 is not there";
  Words words{testing::build_root() / "bin/starling-gossip", "launch"};
  for (const std::string& word :
       with_trainer("evaluate:hangs", {"--topology", "ring", "--nodes", "3", "--steps", "3"})) {
    words.push_back(word);
  }
  testing::Process launch(words);
  const auto begun = memory() / "misbehaved";
  while (!std::filesystem::exists(begun) && !launch.wait(std::chrono::seconds(0))) {
    std::this_thread::yield();
  }
  launch.signal(SIGINT);
  EXPECT_EQ(launch.wait(std::chrono::seconds(30)), 1) << launch.output();
  EXPECT_NE(launch.output().find("the run was interrupted"), std::string::npos) << launch.output();
}

// As the test of the simulation: after 50 steps the rate is 0, and mixing alone contracts.
TEST_F(LaunchNetwork, ARingContractsByItsSecondEigenvalueAndKeepsItsMean) {
  const Words network{"--topology",       "ring",
                      "--nodes",          "32",
                      "--steps",          "650",
                      "--dataset",        "synthetic:rows=3200,features=40,classes=3",
                      "--partition",      "shards:per-part=1",
                      "--schedule",       "step",
                      "--step-every",     "50",
                      "--gamma",          "0",
                      "--evaluate.every", "50"};
  run("simulate", network);
  run("launch", network);
  const auto lines = metrics("launch");
  ASSERT_EQ(lines.size(), 14U);
  const auto distance = [&](std::size_t step) {
    return lines[step / 50].at("consensus_distance").to_number<double>();
  };
  const double factor = std::pow(distance(600) / distance(400), 1.0 / 200);
  const double slem = (1 + 2 * std::cos(2 * std::numbers::pi / 32)) / 3;
  EXPECT_NEAR(factor, slem, 1e-3 * slem);
  EXPECT_EQ(models_digest("launch"), models_digest("simulate")) << logs("launch");
}

TEST_F(LaunchNetwork, TheEventsOfTheReadmeHappenInItsNetwork) {
  const auto finished = testing::run({testing::build_root() / "bin/starling-gossip", "launch",
                                      write("net.toml", readme_network()).string(), "--events",
                                      write("faults.toml", readme_events()).string(), "--dataset",
                                      "synthetic:rows=2500,features=12,classes=3"});
  ASSERT_EQ(finished.exit_code, 0) << finished.output;
  EXPECT_THAT(finished.output, HasSubstr("one-comes-back is over\n"));
  EXPECT_THAT(finished.output, HasSubstr("two-halves is over\n"));
}

TEST_F(LaunchNetwork, AKilledPeerComesBackAndNothingIsLost) {
  const Words network{
      "--topology", "ring", "--nodes",   "5",
      "--steps",    "3000", "--dataset", "synthetic:rows=2500,features=20,classes=4"};
  run("simulate", network);
  const auto events = write("events.toml", R"([crash]
step = 300
kind = "restart"
nodes = "2"
for = "500ms"
)");
  run("launch", network, {"--events", events.string()});
  const auto accuracy = [&](const std::string& command) {
    return metrics(command).back().at("eval_accuracy").to_number<double>();
  };
  EXPECT_NEAR(accuracy("launch"), accuracy("simulate"), 0.005) << logs("launch");
}

// The proxy loses nothing, as TCP does not: what would be lost comes when it has been sent again.
// So links are slow by turns, and some stand still for as long as retransmissions take.
TEST_F(LaunchNetwork, WhatIsSentAgainComesLateAndCostsNoAccuracy) {
  const Words network{
      "--topology", "exponential", "--nodes",   "8",
      "--steps",    "150",         "--dataset", "synthetic:rows=1600,features=12,classes=3"};
  run("simulate", network);
  const auto events = write("events.toml", R"([slow]
at = "0s"
kind = "delay"
nodes = "all"
delay = "10ms"
jitter = "60ms"
[sent-again]
at = "2s"
kind = "stall"
nodes = "random:2"
for = "1s"
[sent-again-later]
at = "5s"
kind = "stall"
nodes = "random:2"
for = "3s"
)");
  run("launch", network, {"--events", events.string()});
  const auto last = [&](const std::string& command, const char* field) {
    return metrics(command).back().at(field).to_number<double>();
  };
  EXPECT_NEAR(last("launch", "eval_accuracy"), last("simulate", "eval_accuracy"), 0.01)
      << logs("launch");
  const double sent = last("launch", "messages");
  EXPECT_GE(sent, 8 * 150 * 3 * 0.9);
  EXPECT_GE(last("launch", "messages_arrived"), 0.95 * sent) << logs("launch");
  EXPECT_LE(last("launch", "messages_lost"), 0.05 * sent) << logs("launch");
}

// --- bytes --------------------------------------------------------------------------------------

struct Degree {
  std::string topology;
  int nodes;
  int neighbours;
};

class LaunchedBytes : public LaunchNetwork, public ::testing::WithParamInterface<Degree> {};

// What the links of all processes count as it leaves their sockets: TLS records, so handshakes,
// headers, credit and failure detection are in it. TLS itself adds 22 bytes to each record (header
// 5, tag 16, content type 1), of which a full one holds 16 KiB; handshakes have no allowance.
TEST_P(LaunchedBytes, AStepMovesTheModelOnceToEachNeighbourAndLittleElse) {
  constexpr double kParameters = 784 * 200 + 200 + 200 * 200 + 200 + 200 * 10 + 10;
  constexpr double kTls = 1 + 22.0 / 16384;
  constexpr int kSteps = 60;
  const auto& [topology, nodes, neighbours] = GetParam();
  run("launch",
      {"--topology", topology, "--nodes", std::to_string(nodes), "--steps", std::to_string(kSteps),
       "--model.kind", "mlp", "--model.hidden", "200,200", "--train.batch-size", "8",
       "--evaluate.every", "0", "--dataset", "synthetic:rows=600,features=784,classes=10"});
  const double messages = nodes * neighbours * kSteps;
  EXPECT_NEAR(summary_total("launch", "messages"), messages, 0.01 * messages);
  const double expected = messages * 4 * kParameters * kTls;
  EXPECT_NEAR(summary_total("launch", "bytes_sent"), expected, 0.02 * expected);
  RecordProperty("bytes_over_expected",
                 std::to_string(summary_total("launch", "bytes_sent") / expected));
}

INSTANTIATE_TEST_SUITE_P(Degrees, LaunchedBytes,
                         ::testing::Values(Degree{"ring", 4, 2}, Degree{"exponential", 6, 3}),
                         [](const auto& instance) { return instance.param.topology; });

}  // namespace
}  // namespace starling::gossip
