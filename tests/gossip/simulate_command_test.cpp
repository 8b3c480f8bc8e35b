// SPDX-License-Identifier: Apache-2.0
// starling-gossip simulate, as people and scripts use it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/App.hpp>
#include <boost/json.hpp>
#include <fstream>
#include <sstream>

#include "core/base/durable_file.h"
#include "core/config/command_line.h"
#include "core/linalg/kernels.h"
#include "core/report/file_sums.h"
#include "core/report/run_directory.h"
#include "core/telemetry/terminal.h"
#include "gossip/tool/commands.h"
#include "gossip/tool/run_text.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_directory.h"

namespace starling::gossip {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct Answer {
  int code = 0;
  std::string out;
  std::string err;
};

Answer run(std::vector<std::string> words) {
  words.insert(words.begin(), {"starling-gossip", "simulate"});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  std::ostringstream out;
  std::ostringstream err;
  const SystemClock clock;
  CommandContext context{clock, out, err, {}};
  CLI::App app("", "starling-gossip");
  config::set_up(app, "1.2.3");
  add_simulate_command(app, context);
  const auto done = config::parse(app, arguments, out, err);
  const int code = done ? *done : context.run();
  return {code, out.str(), err.str()};
}

// A run of a moment, with these flags after it.
Answer run_small(const std::vector<std::string>& flags) {
  const std::pair<const char*, const char*> usual[] = {
      {"--dataset", "synthetic:rows=120,features=6,classes=3"},
      {"--nodes", "6"},
      {"--steps", "8"},
      {"--every", "4"}};
  std::vector<std::string> words = flags;
  for (const auto& [flag, value] : usual) {
    const auto is_said = [&](const std::string& said) {
      return said == flag || said.starts_with(std::string(flag).substr(2) + "=");
    };
    if (std::ranges::none_of(flags, is_said)) words.insert(words.end(), {flag, value});
  }
  return run(std::move(words));
}

boost::json::value read_json(const std::filesystem::path& path) {
  const auto text = read_text_file(path, 1 << 20);
  EXPECT_TRUE(text) << path;
  return boost::json::parse(*text);
}

std::vector<boost::json::object> read_lines(const std::filesystem::path& path) {
  const auto text = read_text_file(path, 1 << 20);
  EXPECT_TRUE(text) << path;
  std::vector<boost::json::object> lines;
  std::istringstream stream(*text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(boost::json::parse(line).as_object());
  }
  return lines;
}

class SimulateCommand : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return (directory_.path() / name).string(); }
  std::string write(const std::string& name, const std::string& text) const {
    EXPECT_TRUE(write_durably(path(name), as_bytes(text)));
    return path(name);
  }

  starling::testing::TemporaryDirectory directory_;
};

TEST_F(SimulateCommand, CountsItsThreads) {
  EXPECT_THAT(run_small({"--threads", "1"}).out, HasSubstr(" on 1 thread, trace "));
  EXPECT_THAT(run_small({"--threads", "2"}).out, HasSubstr(" on 2 threads, trace "));
}

TEST_F(SimulateCommand, SaysEachEvaluationAndHowItEnded) {
  const Answer answer = run_small({"--topology", "ring"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  for (const char* line : {"[step 0/8]  accuracy ", "[step 4/8] train loss ", "[step 8/8] "}) {
    EXPECT_THAT(answer.err, HasSubstr(line));
  }
  EXPECT_THAT(answer.out, HasSubstr("accuracy, mean over nodes"));
  EXPECT_THAT(answer.out, HasSubstr("6 nodes, 8 steps: "));
  EXPECT_THAT(answer.out, HasSubstr(" in 96 messages\n"));
  EXPECT_THAT(answer.out, Not(HasSubstr("written:")));
}

TEST_F(SimulateCommand, SaysWhichRowsOfOnesOwnAreEvaluated) {
  std::string rows = "x,label\n";
  for (int row = 0; row < 40; ++row) rows += std::to_string(row) + "," + (row % 2 ? "a\n" : "b\n");
  const std::string data = "csv:" + write("rows.csv", rows);
  const auto words = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"--dataset", data, "--nodes", "4", "--steps", "4"});
    const Answer answer = run(std::move(more));
    EXPECT_EQ(answer.code, 0) << answer.err;
    return answer.err;
  };
  EXPECT_THAT(words({}),
              HasSubstr("evaluates on 8 rows that the nodes hold out (evaluate.hold-out = 0.2)\n"));
  EXPECT_THAT(words({"--hold-out", "0.05"}),
              HasSubstr("nothing is evaluated: with evaluate.hold-out = 0.05 none of the 4 nodes "
                        "holds rows out; raise it, or set evaluate.dataset\n"));
  EXPECT_THAT(words({"--hold-out", "0"}), HasSubstr("nothing is evaluated: set evaluate.dataset"));
  EXPECT_THAT(words({"--evaluate.dataset", "none"}), Not(HasSubstr("evaluate")));
  EXPECT_THAT(words({"--evaluate.dataset", data}), Not(HasSubstr("evaluates on")));
}

TEST_F(SimulateCommand, KeysWithoutEffectAreWarnedOf) {
  const Answer answer = run_small(
      {"--nodes.slowdown", "3", "--network.retransmit-after", "1s", "--nodes.return-after", "1s"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_THAT(answer.err,
              HasSubstr("warning: nodes.slowdown has no effect: nodes.stragglers is not set\n"));
  EXPECT_THAT(answer.err, HasSubstr("network.retransmit-after has no effect: network.loss is not"));
  EXPECT_THAT(answer.err, HasSubstr("nodes.return-after has no effect: nodes.crash-every is not"));
  EXPECT_THAT(run_small({"--nodes.slowdown", "3", "--nodes.stragglers", "0.5"}).err,
              Not(HasSubstr("warning")));
}

TEST_F(SimulateCommand, KeysOfOtherAlgorithmsAreWarnedOf) {
  const auto said = [](const std::vector<std::string>& flags) {
    const Answer answer = run_small(flags);
    EXPECT_EQ(answer.code, 0) << answer.err;
    return answer.err;
  };
  EXPECT_THAT(said({"--ratio", "0.5"}),
              HasSubstr("warning: algorithm.ratio has no effect: algorithm.name is dpsgd (it needs "
                        "choco)\n"));
  EXPECT_THAT(said({"--algorithm", "all-reduce:group=3", "--outer-rate", "0.5"}),
              HasSubstr("algorithm.outer-rate has no effect: algorithm.name is all-reduce:group=3 "
                        "(it needs diloco or diloco-all)"));
  EXPECT_THAT(said({"--algorithm", "choco", "--topology", "ring", "--bits", "8"}),
              HasSubstr("algorithm.bits has no effect: algorithm.compressor is top-k (it needs "
                        "qsgd)"));
  EXPECT_THAT(said({"--train.momentum", "0.5"}),
              HasSubstr("train.momentum has no effect: train.optimizer is sgd (it needs momentum "
                        "or nesterov)"));
  EXPECT_THAT(said({"--hidden", "8"}),
              HasSubstr("model.hidden has no effect: model.kind is softmax-regression (it needs "
                        "mlp)"));
  EXPECT_THAT(said({"--algorithm", "all-reduce", "--topology", "star", "--mixing", "uniform"}),
              AllOf(HasSubstr("topology.spec has no effect: with algorithm.name = all-reduce"),
                    HasSubstr("topology.mixing has no effect")));
  EXPECT_THAT(said({"--network.deadline", "1s"}),
              HasSubstr("network.deadline has no effect: no message is lost"));
  EXPECT_THAT(said({"--network.deadline", "1s", "--network.loss", "0.1"}),
              Not(HasSubstr("network.deadline")));
  EXPECT_THAT(said({"--local-steps-from", "3"}),
              HasSubstr("train.local-steps-from has no effect: train.local-steps is 1"));
  EXPECT_THAT(
      said({"--hold-out", "0.3"}),
      HasSubstr("warning: evaluate.hold-out has no effect: data.dataset has a test split\n"));
  EXPECT_THAT(said({"--hold-out", "0"}), Not(HasSubstr("warning")));
  EXPECT_THAT(said({"--data.columns", "a,b"}),
              HasSubstr("data.columns has no effect: data.dataset is no csv file"));
  EXPECT_THAT(said({"--algorithm", "choco", "--topology", "ring", "--ratio", "0.5", "--order",
                    "combine-while-adapt"}),
              Not(HasSubstr("warning")));
}

TEST_F(SimulateCommand, JsonIsTheMeasurementsAlone) {
  const Answer answer = run_small({"--format", "json"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  const boost::json::value value = boost::json::parse(answer.out);
  ASSERT_EQ(value.at("measurements").as_array().size(), 3);
  EXPECT_EQ(value.at("measurements").at(2).at("step"), 8);
  EXPECT_TRUE(value.at("measurements").at(0).at("train_loss").is_null());
  EXPECT_EQ(value.at("trace_sha256").as_string().size(), 64);
}

TEST_F(SimulateCommand, AnEvaluationOf80ColumnsHasTheConsensusDistance) {
  Measurement measurement;
  measurement.step = 12000;
  measurement.virtual_seconds = 754;
  measurement.train_loss = 12.3456;
  measurement.eval_accuracy = measurement.eval_accuracy_mean_model = 0.5;
  measurement.eval_loss = 1;
  measurement.consensus_distance = 0.0001234;
  measurement.nodes_up = 8;
  EXPECT_EQ(telemetry::leading_facts(describe(measurement, 20000, 8, " virtual"), 80),
            "[step 12000/20000] train loss 12.3456  accuracy 0.5000  consensus 0.000123");
  measurement.nodes_up = 5;
  EXPECT_THAT(describe(measurement, 20000, 8, ""),
              HasSubstr("[step 12000/20000, 5 of 8 nodes] train loss"));
}

TEST_F(SimulateCommand, ThreadsChangeNothing) {
  const auto trace = [](const char* threads) {
    const Answer answer = run_small({"--format", "json", "--threads", threads, "--loss", "0.2",
                                     "--topology", "one-peer-exponential"});
    EXPECT_EQ(answer.code, 0) << answer.err;
    return boost::json::parse(answer.out).at("trace_sha256");
  };
  EXPECT_EQ(trace("1"), trace("3"));
}

TEST_F(SimulateCommand, WholePeersEndWithTheSameModels) {
  const Answer peers = run_small({"--real-protocol", "--format", "json"});
  ASSERT_EQ(peers.code, 0) << peers.err;
  const Answer recurrence = run_small({"--format", "json"});
  EXPECT_EQ(boost::json::parse(peers.out).at("models_sha256"),
            boost::json::parse(recurrence.out).at("models_sha256"));
}

TEST_F(SimulateCommand, DrawsWhoIsGoneAtTheEndHollow) {
  const std::string out = path("leaving");
  const Answer answer = run_small({"--topology", "complete", "--nodes.leave-after", "20s",
                                   "--network.latency", "1s", "--out", out});
  ASSERT_EQ(answer.code, 0) << answer.err;
  const auto last = read_lines(std::filesystem::path(out) / "metrics.jsonl").back();
  const auto gone = 6 - last.at("nodes_up").to_number<std::size_t>();
  ASSERT_GT(gone, 0U) << "the test needs one that leaves";
  const std::string svg =
      read_text_file(std::filesystem::path(out) / "topology.svg", 1 << 20).value();
  std::size_t hollow = 0;
  for (auto at = svg.find("<circle fill"); at != svg.npos; at = svg.find("<circle fill", at + 1)) {
    ++hollow;
  }
  EXPECT_EQ(hollow, gone);
  EXPECT_THAT(svg, HasSubstr("hollow: not there at the end, or lying</text>"));
}

TEST_F(SimulateCommand, WritesWhatTheReadmeSays) {
  const std::string out = path("ring");
  const Answer answer = run_small({"--topology", "ring", "--out", out, "--seed", "7"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("written: " + out + "/report.html\n"));
  for (const char* name : {"model.safetensors", "report.html", "topology.svg"}) {
    EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(out) / name)) << name;
  }
  const boost::json::value summary = read_json(std::filesystem::path(out) / "summary.json");
  EXPECT_EQ(summary.at("seed"), 7);
  EXPECT_EQ(summary.at("instruction_set"), linalg::default_kernels().name);
  EXPECT_EQ(summary.at("settings").at("topology.spec"), "ring");
  EXPECT_EQ(summary.at("topology").at("name"), "ring");
  EXPECT_EQ(summary.at("parameters"), 21);
  EXPECT_EQ(summary.at("totals").at("messages"), 96);
  EXPECT_EQ(summary.at("trace_sha256").as_string().size(), 64);
  const auto lines = read_lines(std::filesystem::path(out) / "metrics.jsonl");
  ASSERT_EQ(lines.size(), 3);
  EXPECT_EQ(summary.at("final"), lines.back());
}

// Another seed draws other links and nodes; with the files of the first run it has them, and the
// first run's settings with its own files are the first run.
TEST_F(SimulateCommand, WhatWasDrawnIsWrittenAndGivesTheSameRun) {
  const std::vector<std::string> drawn = {"--latency",    "lognormal:20ms,0.5",
                                          "--bandwidth",  "uniform:10kB/s,1MB/s",
                                          "--loss",       "0.05",
                                          "--speed",      "lognormal:1,0.5",
                                          "--stragglers", "0.34"};
  const auto run_to = [&](const std::string& name, std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--out", path(name)});
    const Answer answer = run_small(flags);
    EXPECT_EQ(answer.code, 0) << answer.err;
    return read_json(path(name) + "/summary.json").at("trace_sha256").as_string();
  };
  const auto with_files = [&](std::vector<std::string> flags) {
    flags.insert(flags.end(),
                 {"--links", path("first/links.csv"), "--speeds", path("first/speeds.csv")});
    return flags;
  };
  const auto first = run_to("first", drawn);
  EXPECT_EQ(run_to("again", with_files(drawn)), first);
  EXPECT_EQ(run_to("given", with_files({"--loss", "0.05"})), first);
  EXPECT_NE(run_to("other", {"--loss", "0.05"}), first);
  EXPECT_EQ(read_text_file(path("again/links.csv"), 1 << 20).value(),
            read_text_file(path("first/links.csv"), 1 << 20).value());
  EXPECT_EQ(read_text_file(path("given/speeds.csv"), 1 << 20).value(),
            read_text_file(path("first/speeds.csv"), 1 << 20).value());
  EXPECT_FALSE(std::filesystem::exists(path("other/links.csv")));
}

TEST_F(SimulateCommand, NodesBeginApart) {
  const std::string out = path("apart");
  ASSERT_EQ(run_small({"--initial", "spread=1", "--out", out}).code, 0);
  const auto first = read_lines(std::filesystem::path(out) / "metrics.jsonl").front();
  EXPECT_NEAR(first.at("consensus_distance").as_double(), 0.9, 0.2);
}

// Every field that a line of metrics.jsonl has is explained in the README, and no other.
TEST_F(SimulateCommand, TheReadmeExplainsEveryMetric) {
  ASSERT_EQ(run_small({"--out", path("run")}).code, 0);
  const auto lines = read_lines(directory_.path() / "run" / "metrics.jsonl");
  ASSERT_FALSE(lines.empty());
  const auto readme = read_text_file(testing::source_root() / "gossip/README.md", 1 << 20);
  ASSERT_TRUE(readme);
  const std::size_t begin = readme->find("<!-- metrics -->\n");
  const std::size_t end = readme->find("<!-- /metrics -->");
  ASSERT_NE(end, std::string::npos);
  std::istringstream table(readme->substr(begin, end - begin));
  std::vector<std::string> explained;
  for (std::string row; std::getline(table, row);) {
    if (row.starts_with("| `")) explained.push_back(row.substr(3, row.find('`', 3) - 3));
  }
  std::vector<std::string> written;
  for (const auto& field : lines.front()) written.emplace_back(field.key());
  EXPECT_EQ(explained, written);
}

TEST_F(SimulateCommand, ADirectoryWithARunIsLeftAlone) {
  const std::string out = path("run");
  ASSERT_EQ(run_small({"--out", out}).code, 0);
  const auto before = read_text_file(out + "/metrics.jsonl", 1 << 20);
  const Answer again = run_small({"--out", out, "--seed", "2"});
  EXPECT_EQ(again.code, 1);
  EXPECT_EQ(again.err, "error: " + out +
                           " holds a finished run with other settings (seed is 1 there and 2 "
                           "here): name a new directory with --out, or remove that run\n");
  const Answer same = run_small({"--out", out});
  EXPECT_EQ(same.code, 0) << same.err;
  EXPECT_EQ(same.out, out + " holds this run, finished: " + out + "/report.html\n");
  EXPECT_EQ(*read_text_file(out + "/metrics.jsonl", 1 << 20), *before);
}

TEST_F(SimulateCommand, AFinishedRunWhoseFilesHaveChangedIsNotTakenForWhole) {
  const std::string out = path("run");
  ASSERT_EQ(run_small({"--out", out}).code, 0);
  ASSERT_TRUE(write_durably(out + "/topology.svg", as_bytes(std::string("<svg/>"))));
  const Answer drawing = run_small({"--out", out});
  EXPECT_EQ(drawing.code, 0);
  EXPECT_EQ(drawing.err,
            "note: " + out + ": topology.svg has changed since the run ended, or cannot be read\n");
  EXPECT_THAT(drawing.out, HasSubstr("holds this run, finished"));
  std::string metrics = *read_text_file(out + "/metrics.jsonl", 1 << 20);
  const std::size_t at = metrics.find("\"eval_accuracy\":0.") + 18;
  metrics[at] = metrics[at] == '9' ? '8' : '9';
  ASSERT_TRUE(write_durably(out + "/metrics.jsonl", as_bytes(metrics)));
  const Answer changed = run_small({"--out", out});
  EXPECT_EQ(changed.code, 1);
  EXPECT_EQ(changed.err, "error: " + out +
                             ": metrics.jsonl has changed since the run ended, or cannot be read; "
                             "restore it, or remove " +
                             out + " and run it again\n");
}

TEST_F(SimulateCommand, ARunOfLaunchIsCalledSo) {
  const std::string out = path("out");
  ASSERT_EQ(run_small({"--out", out}).code, 0);
  std::string record = *read_text_file(out + "/summary.json", 1 << 20);
  const std::string program = "starling-gossip simulate";
  record.replace(record.find(program), program.size(), "starling-gossip launch");
  ASSERT_TRUE(write_durably(out + "/summary.json", as_bytes(record)));
  EXPECT_THAT(run_small({"--out", out, "--steps", "9"}).err,
              HasSubstr(out + " holds a finished run of launch with other settings"));
}

TEST_F(SimulateCommand, ARunWhoseFilesHaveChangedSinceIsAnother) {
  const std::string links = write("links.csv", "from,to,latency\n0,1,20ms\n");
  const std::vector<std::string> one = {"--links", links, "--out", path("one")};
  const std::vector<std::string> study = {"--links", links, "--out", path("study"), "--seeds", "1"};
  ASSERT_EQ(run_small(one).code, 0);
  ASSERT_EQ(run_small(study).code, 0);
  EXPECT_EQ(run_small(one).code, 0);
  EXPECT_EQ(run_small(study).code, 0);
  write("links.csv", "from,to,latency\n0,1,40ms\n");
  for (const auto& command : {one, study}) {
    const Answer answer = run_small(command);
    EXPECT_EQ(answer.code, 1);
    EXPECT_THAT(answer.err, HasSubstr("(what network.links names has changed since)"));
  }
}

TEST_F(SimulateCommand, ADirectoryWithOtherFilesIsLeftAlone) {
  const std::string out = path("kitchen");
  std::filesystem::create_directories(out);
  std::ofstream(out + "/model.safetensors") << "mine";
  EXPECT_EQ(run_small({"--out", out}).err,
            "error: " + out + " is not empty: name a new directory with --out\n");
  EXPECT_EQ(*read_text_file(out + "/model.safetensors", 1 << 20), "mine");
}

TEST_F(SimulateCommand, TheFileIsReadAndTheFlagWins) {
  const std::string net = write("net.toml",
                                "steps = 2\n[topology]\nspec = \"star\"\nnodes = 5\n"
                                "[data]\ndataset = \"synthetic:rows=60,features=4,classes=2\"\n");
  const std::string out = path("run");
  const Answer answer = run({net, "--topology", "path", "--out", out});
  ASSERT_EQ(answer.code, 0) << answer.err;
  const boost::json::value settings =
      read_json(std::filesystem::path(out) / "summary.json").at("settings");
  EXPECT_EQ(settings.at("steps"), "2");
  EXPECT_EQ(settings.at("topology.nodes"), "5");
  EXPECT_EQ(settings.at("topology.spec"), "path");
}

TEST_F(SimulateCommand, WrongKeysNameTheNearest) {
  const std::string net = write("net.toml", "[topology]\nspc = \"ring\"\n");
  const Answer file = run({net});
  EXPECT_EQ(file.code, 2);
  EXPECT_EQ(file.err, "error: " + net +
                          ":2: unknown key 'topology.spc'; the nearest known key is "
                          "'topology.spec'\n");
  const Answer flag = run({"--topologgy", "ring"});
  EXPECT_EQ(flag.code, 2);
  EXPECT_THAT(flag.err, HasSubstr("did you mean '--topology'?"));
}

TEST_F(SimulateCommand, BadValuesAreOneSentenceAndExitCodeTwo) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--topology", "rign"}, "did you mean 'ring'?"},
      {{"--topology", "hypercube"}, "hypercube"},
      {{"--mixing", "none"}, "'none'"},
      {{"--algorithm", "dpsdg"}, "did you mean 'dpsgd'?"},
      {{"--algorithm", "relaysgd", "--topology", "ring"}, "relaysgd"},
      {{"--nodes", "0"}, "--topology.nodes = '0'"},
      {{"--steps", "many"}, "--steps = 'many'"},
      {{"--loss", "1"}, "--network.loss = '1'"},
      {{"--latency", "20"}, "network.latency: '20'"},
      {{"--bandwidth", "fast"}, "network.bandwidth: 'fast'"},
      {{"--splits", "60s:2"}, "network.splits: '60s:2'"},
      {{"--speed", "uniform:2,1"}, "nodes.speed: 'uniform:2,1'"},
      {{"--links", "/no/such/links.csv"}, "network.links: there is no file /no/such/links.csv"},
      {{"--speeds", "/no/such/speeds.csv"}, "nodes.speeds: there is no file"},
      {{"--initial", "apart"}, "write spread=DISTANCE"},
      {{"--partition", "dirichle"}, "did you mean 'dirichlet'?"},
      {{"--dataset", "mnist"}, "mnist"},
      {{"--partition", "shards:per-client=1000"}, "shards"},
      {{"--algorithm", "detag", "--optimizer", "momentum"}, "train.optimizer = sgd"},
      {{"--algorithm", "diloco", "--outer-rate", "3"}, "outer-rate"},
      {{"--algorithm", "choco", "--loss", "0.5"}, "choco"},
      {{"--model", "perceptron"}, "perceptron"},
      {{"--model", "cnn"}, "the rows of the data are 1x1x6"},
      {{"--optimizer", "adamx"}, "adamx"},
      {{"--topology", "file:/no/such/file"}, "no file"},
      {{"--dataset", "csv:/no/such/file"}, "no file"},
      {{"--threads", "0"}, "--threads"}};
  for (const auto& [flags, said] : cases) {
    const Answer answer = run_small(flags);
    EXPECT_EQ(answer.code, 2) << flags.back() << ": " << answer.err;
    EXPECT_THAT(answer.err, StartsWith("error: "));
    EXPECT_THAT(answer.err, HasSubstr(said));
    EXPECT_EQ(std::ranges::count(answer.err, '\n'), 1) << answer.err;
    EXPECT_EQ(answer.out, "");
  }
}

// Another seed would draw other links, speeds, crashes; the files of the first run bring its back.
TEST_F(SimulateCommand, ARunIsRepeatedFromTheFilesThatItWrote) {
  const std::string links =
      write("links.csv", "from,to,time,latency,loss\n0,1,0s,5ms,\n0,1,50ms,30ms,0.3\n");
  const auto run_as = [&](const std::string& out, const std::vector<std::string>& more) {
    std::vector<std::string> words{"--topology", "ring",    "--loss",  "0.1",
                                   "--out",      path(out), "--steps", "40"};
    words.insert(words.end(), more.begin(), more.end());
    return run_small(words);
  };
  const Answer drawn =
      run_as("drawn", {"--network.latency", "lognormal:5ms,0.5", "--speed", "lognormal:1,0.3",
                       "--crash-every", "200ms", "--return-after", "40ms", "--links", links});
  ASSERT_EQ(drawn.code, 0) << drawn.err;
  const Answer again =
      run_as("again", {"--links", path("drawn/links.csv"), "--speeds", path("drawn/speeds.csv"),
                       "--presence", path("drawn/presence.csv")});
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(read_json(path("again/summary.json")).at("trace_sha256"),
            read_json(path("drawn/summary.json")).at("trace_sha256"));
  for (const char* file : {"links.csv", "speeds.csv", "presence.csv"}) {
    EXPECT_EQ(*read_file(path("again") + "/" + file, 1 << 20),
              *read_file(path("drawn") + "/" + file, 1 << 20))
        << file;
  }
  const Answer refused = run_small({"--presence", "/no/such/presence.csv"});
  EXPECT_THAT(refused.err, HasSubstr("nodes.presence: there is no file"));
}

TEST_F(SimulateCommand, ARunThatDivergesSaysWhatToDo) {
  const Answer answer = run_small({"--learning-rate", "1e6", "--train.optimizer", "momentum",
                                   "--model", "mlp", "--hidden", "16,16", "--steps", "50"});
  EXPECT_EQ(answer.code, 1);
  EXPECT_THAT(answer.err, HasSubstr("lower train.learning-rate or set train.clip-norm"));
}

TEST_F(SimulateCommand, AnAttackOfRealPeersIsAWrongSetting) {
  const Answer answer = run_small({"--real-protocol", "--attack", "outlier", "--topology", "ring"});
  EXPECT_EQ(answer.code, 2);
  EXPECT_THAT(answer.err, HasSubstr("[attack] is of the simulated recurrence"));
}

TEST_F(SimulateCommand, ALossThatAnAttackMakesInfiniteIsNotTheLearningRates) {
  const Answer mild = run_small({"--topology", "ring", "--attack", "sign-flip"});
  EXPECT_THAT(mild.err, HasSubstr("[step 4/8] "));
  EXPECT_THAT(mild.err, Not(HasSubstr(" of 6 nodes"))) << "who lies is not away";
  const Answer answer = run_small({"--topology", "ring", "--attack", "outlier", "--attack.scale",
                                   "1e30", "--model", "mlp", "--hidden", "16"});
  EXPECT_EQ(answer.code, 1);
  EXPECT_THAT(answer.err, HasSubstr("the models of [attack] can do that; lower attack.scale"));
  EXPECT_THAT(answer.err, Not(HasSubstr("learning-rate")));
}

TEST_F(SimulateCommand, AFileOfFewerNodesSaysHowManyToSet) {
  const std::string file = write("edges.txt", "0 1\n1 2\n2 3\n");
  const Answer answer = run_small({"--topology", "file:" + file});
  EXPECT_EQ(answer.code, 2);
  EXPECT_THAT(answer.err, HasSubstr("the file has edges of 4 nodes, and the network 6 nodes; set "
                                    "--nodes 4"));
  EXPECT_EQ(run_small({"--topology", "file:" + file, "--nodes", "4"}).code, 0);
}

TEST_F(SimulateCommand, ADirectoryOfARunThatFailedSaysSo) {
  const std::string out = path("diverged");
  const auto at = [&](const char* rate) {
    return run_small({"--learning-rate", rate, "--train.optimizer", "momentum", "--model", "mlp",
                      "--hidden", "16,16", "--steps", "50", "--out", out});
  };
  EXPECT_EQ(at("1e6").code, 1);
  const auto failed = report::read_run(out);
  ASSERT_TRUE(failed) << failed.error().message();
  EXPECT_TRUE(failed->failed);
  EXPECT_THAT(failed->failure, HasSubstr("lower train.learning-rate"));
  const Answer other = at("0.1");
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.err, HasSubstr(out + " holds a failed run ("));
  EXPECT_THAT(other.err, HasSubstr("with other settings (train.learning-rate is 1e+06 there and "
                                   "0.1 here): name a new directory with --out, or remove it"));
  EXPECT_EQ(at("1e6").code, 1) << "the same command tries it again";
}

TEST_F(SimulateCommand, WhatARunWroteIsKnownByItsSums) {
  const std::string out = path("summed");
  ASSERT_EQ(run_small({"--out", out}).code, 0);
  EXPECT_THAT(report::changed_files(out), ::testing::ElementsAre());
  for (const char* name : {"metrics.jsonl", "model.safetensors", "summary.json"}) {
    std::ofstream(std::filesystem::path(out) / name, std::ios::app) << " ";
  }
  EXPECT_THAT(report::changed_files(out),
              ::testing::ElementsAre("metrics.jsonl", "model.safetensors", "summary.json"));
}

TEST_F(SimulateCommand, HelpHasASectionForEachTable) {
  const Answer answer = run({"--help"});
  EXPECT_EQ(answer.code, 0);
  for (const char* section :
       {"[topology]", "[algorithm]", "[train]", "[model]", "[data]", "[evaluate]", "[network]",
        "[nodes]", "--topology.spec,--topology ", "--data.dataset,--dataset "}) {
    EXPECT_THAT(answer.out, HasSubstr(section));
  }
}

// --- studies -------------------------------------------------------------------------------------

// What no two runs share, however alike.
boost::json::object without_times(boost::json::object line) {
  line.erase("wall_seconds");
  return line;
}

TEST_F(SimulateCommand, EachRunOfAStudyIsThatOfTheSingleCommand) {
  const std::string study = path("study");
  const Answer answer = run_small({"--sweep", "topology=ring,star", "--seeds", "2..3", "--loss",
                                   "0.1", "--out", study, "--threads", "2"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  EXPECT_THAT(answer.err, HasSubstr("4 runs: topology.spec (2) x seed (2)\n"));
  EXPECT_THAT(answer.out, HasSubstr("written: " + study + "/report.html"));
  const auto of_study = std::filesystem::path(study) / "topology.spec=star,seed=3";
  const auto alone = directory_.path() / "alone";
  ASSERT_EQ(run_small({"--topology", "star", "--seed", "3", "--loss", "0.1", "--out",
                       alone.string(), "--threads", "1"})
                .code,
            0);
  for (const char* name : {"model.safetensors", "topology.svg"}) {
    EXPECT_EQ(*read_file(of_study / name, 1 << 20), *read_file(alone / name, 1 << 20)) << name;
  }
  const auto ours = read_lines(of_study / "metrics.jsonl");
  const auto theirs = read_lines(alone / "metrics.jsonl");
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    EXPECT_EQ(without_times(ours[i]), without_times(theirs[i]));
  }
  for (const char* member : {"settings", "seed", "models_sha256", "trace_sha256", "topology"}) {
    EXPECT_EQ(read_json(of_study / "summary.json").at(member),
              read_json(alone / "summary.json").at(member))
        << member;
  }
}

TEST_F(SimulateCommand, AStudyThatWasKilledGoesOn) {
  const std::string study = path("study");
  const std::vector<std::string> command = {"--seeds", "1..3", "--out", study};
  ASSERT_EQ(run_small(command).code, 0);
  const auto second = std::filesystem::path(study) / "seed=2";
  const Bytes model = read_file(second / "model.safetensors", 1 << 20).value();
  std::filesystem::remove(second / "summary.json");  // which comes last
  std::filesystem::resize_file(second / "metrics.jsonl", 20);
  std::filesystem::create_directory(second / "curves");  // of `report --csv`
  const Answer again = run_small(command);
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("2 of them finished before, 1 to do"));
  EXPECT_THAT(again.err, HasSubstr("[1/1] seed=2  accuracy "));
  EXPECT_EQ(*read_file(second / "model.safetensors", 1 << 20), model);
  const Answer other = run_small({"--seeds", "1..3", "--out", study, "--learning-rate", "0.5"});
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.err, HasSubstr("seed=1 holds a finished run with other settings "
                                   "(train.learning-rate is 0.1 there and 0.5 here)"));
}

// Whatever hides its record from us: it is not removed.
TEST_F(SimulateCommand, AStudyLeavesARunAloneThatItCannotRead) {
  const std::string study = path("study");
  const std::vector<std::string> command = {"--seeds", "1..2", "--out", study};
  ASSERT_EQ(run_small(command).code, 0);
  const auto record = std::filesystem::path(study) / "seed=2" / "summary.json";
  std::ofstream(record) << "{";
  const Answer again = run_small(command);
  EXPECT_EQ(again.code, 1);
  EXPECT_THAT(again.err, HasSubstr("the JSON breaks off"));
  EXPECT_EQ(std::filesystem::file_size(record), 1U);
}

// One node is always at no distance from itself, of which a logarithmic axis has no point.
TEST_F(SimulateCommand, AStudyOfOneNodeHasCurves) {
  const Answer answer =
      run_small({"--nodes", "1", "--topology", "ring", "--seeds", "1..2", "--out", path("study")});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_TRUE(std::filesystem::exists(path("study") + "/curves/accuracy-by-step.svg"));
}

TEST_F(SimulateCommand, AStudyOfWholePeersIsAnother) {
  const std::string study = path("study");
  ASSERT_EQ(run_small({"--seeds", "1", "--out", study}).code, 0);
  const Answer other = run_small({"--seeds", "1", "--out", study, "--real-protocol"});
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.err, HasSubstr("(real-protocol is not set there and true here)"));
  const std::string real = path("real");
  const Answer answer = run_small({"--seeds", "1", "--out", real, "--real-protocol"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(read_json(real + "/seed=1/summary.json").at("settings").at("real-protocol"), "true");
  EXPECT_THAT(run_small({"--seeds", "1", "--out", real}).err,
              HasSubstr("(real-protocol is true there and not set here)"));
}

TEST_F(SimulateCommand, ARunOfAStudyThatDivergesDoesNotStopTheOthers) {
  const Answer answer =
      run_small({"--sweep", "learning-rate=1e6,0.1", "--train.optimizer", "momentum", "--model",
                 "mlp", "--hidden", "16,16", "--steps", "50", "--out", path("study")});
  EXPECT_EQ(answer.code, 1);
  EXPECT_THAT(answer.err, HasSubstr("error: 1 of 2 runs failed: train.learning-rate=1e+06: "));
  EXPECT_THAT(answer.err, HasSubstr("[2/2] train.learning-rate=0.1  accuracy "));
}

TEST_F(SimulateCommand, AStudyThatCannotBeginIsOneSentence) {
  const std::string out = path("study");
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--seeds", "1..3"}, "--out DIR"},
      {{"--out", out, "--seeds", "3..1"}, "write 1..3"},
      {{"--out", out, "--seeds", "1..3", "--sweep", "seed=1,2"}, "seed is swept twice"},
      {{"--out", out, "--sweep", "topologgy=ring"}, "'topology.spec'"},
      {{"--out", out, "--sweep", "topolgy=ring"}, "'topology.spec'"},
      {{"--out", out, "--sweep", "algoritm=dpsgd"}, "'algorithm.name'"},
      {{"--out", out, "--sweep", "topology=ring,rign"}, "did you mean 'ring'?"},
      {{"--out", out, "--sweep", "topology=ring,hypercube"}, "--sweep topology.spec=hypercube: "},
      {{"--out", out, "--sweep", "topology=watts-strogatz:k=4,beta=0.1"}, "in double quotes"},
      {{"--out", out, "--sweep", "latency=lognormal:20ms,0.5"}, "in double quotes"},
      {{"--out", out, "--sweep", "algorithm=dpsgd,dpsdg"}, "did you mean 'dpsgd'?"},
      {{"--out", out, "--sweep", "steps=10,many"}, "steps = 'many'"},
      {{"--out", out, "--sweep", "network.latency=1ms,20"}, "network.latency: '20'"},
      {{"--out", out, "--sweep", "partition=iid,dirichle"}, "did you mean 'dirichlet'?"},
      {{"--out", out, "--sweep", "model=external"}, "--trainer"},
      {{"--out", out, "--sweep", "dataset=synthetic,csv:/no/such/file"}, "no file /no/such/file"},
      {{"--out", out, "--sweep", "evaluate.dataset=auto,idx:/no/such"},
       "there is neither /no/such/"},
      {{"--out", out, "--sweep", "links=/no/such/links.csv"}, "no file /no/such/links.csv"},
      {{"--out", out, "--seeds", "1..2", "--optimizer", "adamx"}, "adamx"}};
  for (const auto& [flags, said] : cases) {
    const Answer answer = run_small(flags);
    EXPECT_EQ(answer.code, 2) << flags.back() << ": " << answer.err;
    EXPECT_THAT(answer.err, StartsWith("error: "));
    EXPECT_THAT(answer.err, HasSubstr(said));
    EXPECT_EQ(std::ranges::count(answer.err, '\n'), 1) << answer.err;
    EXPECT_FALSE(std::filesystem::exists(out));
  }
}

TEST_F(SimulateCommand, DataThatCannotBeReadAreRefusedBeforeAStudyBegins) {
  const std::string damaged = path("damaged.csv");
  ASSERT_TRUE(write_durably(damaged, as_bytes(std::string("x,y,label\n0,1,0\n2,three,1\n"))));
  for (const char* key : {"--dataset", "--evaluate.dataset"}) {
    const Answer answer =
        run_small({key, "csv:" + damaged, "--seeds", "1..3", "--out", path("never")});
    EXPECT_EQ(answer.code, 1);
    EXPECT_THAT(answer.err, HasSubstr("damaged.csv"));
    EXPECT_EQ(std::ranges::count(answer.err, '\n'), 1) << answer.err;
    EXPECT_FALSE(std::filesystem::exists(path("never")));
  }
}

TEST_F(SimulateCommand, AKeyThatIsSweptIsNoFlagToo) {
  const Answer answer = run_small(
      {"--sweep", "learning-rate=0.1,0.2", "--learning-rate", "0.3", "--out", path("study")});
  EXPECT_EQ(answer.code, 2);
  EXPECT_EQ(
      answer.err,
      "error: --sweep says the values of train.learning-rate, and so does its own flag: leave "
      "one of the two out\n");
}

TEST_F(SimulateCommand, AStudyWarnsOnceOfKeysWithoutEffect) {
  const Answer answer = run_small({"--seeds", "1..2", "--sweep", "topology=ring,star",
                                   "--nodes.slowdown", "3", "--out", path("study")});
  EXPECT_EQ(answer.code, 0) << answer.err;
  const std::string warning = "warning: nodes.slowdown has no effect";
  const std::size_t first = answer.err.find(warning);
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(answer.err.find(warning, first + 1), std::string::npos);
}

// What a network with a trainer of its own trains is tested in trainer_network_test.cpp.
TEST(SimulateWithTrainer, ItsModelMustBeExternal) {
  EXPECT_THAT(run({"--model", "external"}).err,
              HasSubstr("model.kind = \"external\" needs the program that trains it"));
  EXPECT_THAT(run({"--trainer", "python3 train.py"}).err,
              HasSubstr("--trainer is for models of your own: set model.kind = \"external\""));
  EXPECT_THAT(run_small({"--model", "external", "--trainer", "python3 train.py"}).err,
              HasSubstr("[data] means nothing with a trainer"));
  EXPECT_THAT(run({"--workers", "2"}).err, HasSubstr("--trainer"));
  const Answer none = run({"--model", "external", "--trainer", "exit 3"});
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.err, HasSubstr("error: the trainer"));
}

TEST(SimulateWithTrainer, ItsSettingsAreATableOfTheNetwork) {
  const testing::TemporaryDirectory directory;
  const auto script = testing::source_root() / "tests" / "client" / "fake_trainer.py";
  const auto file = directory.path() / "net.toml";
  std::ofstream(file) << "steps = 4\n[topology]\nnodes = 3\nspec = \"ring\"\n[model]\nkind = "
                         "\"external\"\n[trainer]\necho = [1, 2]\n";
  const Answer answer =
      run({file, "--trainer",
           "python3 -B " + script.string() + " honest " + directory.path().string()});
  if (answer.err.find("python3: not found") != std::string::npos) GTEST_SKIP();
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_THAT(answer.err, HasSubstr(R"("settings": {"echo": [1, 2]})"));
  EXPECT_THAT(answer.err, HasSubstr(R"("client": "node-0003")"));
}

TEST(SimulateWithTrainer, ARepeatedStudyKnowsItsRuns) {
  const testing::TemporaryDirectory directory;
  const auto script = directory.path() / "trainer.py";
  std::filesystem::copy_file(testing::source_root() / "tests" / "client" / "fake_trainer.py",
                             script);
  const std::vector<std::string> command = {
      "--model",    "external",
      "--nodes",    "3",
      "--topology", "ring",
      "--steps",    "4",
      "--seeds",    "1..2",
      "--out",      (directory.path() / "study").string(),
      "--trainer",  "python3 -B " + script.string() + " honest " + directory.path().string()};
  const Answer first = run(command);
  if (first.err.find("python3: not found") != std::string::npos) GTEST_SKIP();
  EXPECT_EQ(first.code, 0) << first.err;
  const Answer again = run(command);
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("2 of them finished before, 0 to do"));
  std::ofstream(script, std::ios::app) << "# changed\n";
  const Answer changed = run(command);
  EXPECT_EQ(changed.code, 1);
  EXPECT_THAT(changed.err, HasSubstr("(what trainer.command names has changed since)"));
}

}  // namespace
}  // namespace starling::gossip
