// SPDX-License-Identifier: Apache-2.0
// The commands as people and scripts use them: what they print, and with which code they end,
// against a running service.
#include "coordinator/commands/commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/App.hpp>
#include <boost/json.hpp>
#include <fstream>
#include <sstream>

#include "coordinator/commands/text_table.h"
#include "core/base/durable_file.h"
#include "core/base/word_wrap.h"
#include "core/data/load.h"
#include "core/identity/roster.h"
#include "core/linalg/kernels.h"
#include "core/model/safetensors.h"
#include "tests/coordinator/test_federation.h"

namespace starling::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using testing::TestFederation;

class CommandsTest : public ::testing::Test {
 protected:
  // Runs a command line; `out` and `err` hold what it printed.
  int run(std::vector<std::string> words) {
    words.insert(words.begin(), "starling-coordinator");
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    std::ostringstream out_stream;
    std::ostringstream err_stream;
    CommandContext context{federation.clock, out_stream, err_stream, {}, terminal};
    CLI::App app("", "starling-coordinator");
    config::set_up(app, "1.2.3");
    add_commands(app, context);
    const auto done = config::parse(app, arguments, out_stream, err_stream);
    const int code = done ? *done : context.run();
    out = out_stream.str();
    err = err_stream.str();
    return code;
  }
  // The same for the service of this test.
  int ask(std::vector<std::string> words) {
    words.insert(words.end(), {"--state", federation.state().root().string()});
    return run(std::move(words));
  }
  boost::json::value ask_json(std::vector<std::string> words) {
    words.insert(words.end(), {"--format", "json"});
    EXPECT_EQ(ask(std::move(words)), 0) << err;
    return boost::json::parse(out);
  }
  std::string write_job(const std::string& text) {
    const auto path = directory.path() / "job.toml";
    std::ofstream(path) << text;
    return path.string();
  }
  std::string tiny_job() {
    return write_job(
        "name = \"tiny\"\nrounds = 9\n[model]\nkind = \"softmax-regression\"\n"
        "[round]\ncohort = 1\n"
        "[evaluate]\ndataset = \"synthetic:rows=50,features=4,classes=2:test\"\n");
  }
  void start_client() {
    federation.start_device(
        "cam-7", {{data::load_dataset(
                       data::DatasetSpec::parse("synthetic:rows=60,features=4,classes=2").value())
                       .value()}});
  }

  testing::TemporaryDirectory directory;
  TestFederation federation;
  telemetry::Terminal terminal;
  std::string out;
  std::string err;
};

TEST_F(CommandsTest, WrongUseEndsWithTwoAndANearName) {
  EXPECT_EQ(run({}), 2);
  EXPECT_EQ(run({"tokn"}), 2);
  EXPECT_THAT(err, HasSubstr("did you mean 'token'"));
  EXPECT_EQ(run({"token", "new"}), 2);
  EXPECT_EQ(run({"run", "submit"}), 2);
  EXPECT_EQ(run({"run", "submit", write_job("[round]\ncohrt = 3\n")}), 2);
  EXPECT_THAT(err, HasSubstr("job.toml:2: unknown key 'round.cohrt'"));
  EXPECT_EQ(run({"run", "submit", tiny_job(), "--cohort", "many"}), 2);
  EXPECT_EQ(run({"run", "submit", tiny_job(), "--min-updates", "5"}), 2);
  EXPECT_THAT(err, HasSubstr("round.min-updates"));
  EXPECT_EQ(run({"run", "export", "1", "--to", "x", "--best", "--round", "2"}), 2);
  EXPECT_EQ(run({"--help"}), 0);
  EXPECT_EQ(run({"run", "submit", "--help"}), 0);
  EXPECT_THAT(out, HasSubstr("--learning-rate"));
  EXPECT_EQ(run({"--version"}), 0);
  EXPECT_EQ(out, "starling-coordinator 1.2.3\n");
}

// --- wrong configurations, by what reads them -------------------------------------------------
using Flags = std::vector<std::string>;

TEST_F(CommandsTest, AWrongSettingOfASimulationEndsWithTwo) {
  const Flags small = {"--rounds",       "1",
                       "--cohort",       "1",
                       "--wait-for",     "1",
                       "--model.kind",   "softmax-regression",
                       "--data.dataset", "synthetic:rows=60,features=4,classes=2",
                       "--clients",      "2"};
  for (const Flags& wrong : std::vector<Flags>{
           {"--strategy.name", "fedavgg"},
           {"--strategy", "fedavgg"},
           {"--model.kind", "perceptron"},
           {"--model.kind", "cnn"},
           {"--model.kind", "mlp", "--model.hidden", "0"},
           {"--data.input", "4,2"},
           {"--data.input", "5"},
           {"--data.classes", "1"},
           {"--data.dataset", "mnist"},
           {"--data.dataset", "synthetic:rows=60,features=none"},
           {"--data.dataset", ""},
           {"--partition", "dirichle"},
           {"--partition", "dirichlet:alpha=-1"},
           {"--partition", "shards:per-client=1000"},
           {"--evaluate.dataset", "csv"},
           {"--train.optimizer", "adamx"},
           {"--train.learning-rate", "fast"},
           {"--train.local-epochs", "0"},
           {"--rounds", "0"},
           {"--min-updates", "2"},
           {"--cohort", "3"},
           {"--round.value-max", "1e30", "--round.weight-max", "1e15"},
           {"--norm-max", "ten"},
           {"--deadline", "60"},
           {"--fallback.topology", "rign"},
           {"--network.latency", "20"},
           {"--network.loss", "1"},
           {"--network.coordinator-bandwidth", "uniform:1Mbit/s,2Mbit/s"},
           {"--network.coordinator-away", "soon"},
           {"--network.splits", "60s:2"},
           {"--nodes.speed", "uniform:2,1"},
           {"--clients", "0"},
           {"--threads", "0"},
       }) {
    Flags words = {"simulate", write_job("")};
    words.insert(words.end(), small.begin(), small.end());
    words.insert(words.end(), wrong.begin(), wrong.end());
    EXPECT_EQ(run(words), 2) << wrong.front() << ' ' << wrong.back() << ": " << err;
  }
  Flags words = {"simulate", write_job("")};
  words.insert(words.end(), small.begin(), small.end());
  EXPECT_EQ(run(words), 0) << err;
}

TEST_F(CommandsTest, AWrongSettingOfASubmittedJobEndsWithTwoWhereverItIsFound) {
  federation.start_service();
  const std::string right = "[round]\ncohort = 1\n[data]\ninput = [4]\nclasses = 2\n";
  for (const auto& [wrong, code] : std::vector<std::pair<std::string, std::string>>{
           {"[strategy]\nname = \"fedavgg\"\n", "fedavgg"},
           {"[data]\ninput = [4, 4]\nclasses = 2\n", "input"},
           {"[model]\nkind = \"cnn\"\n[data]\ninput = [4]\nclasses = 2\n", "the data are 1x1x4"},
           {"[evaluate]\ndataset = \"mnist\"\n", "mnist"},
           {"[evaluate]\ndataset = \"synthetic:rows=9\"\n[data]\ninput = [3]\n", "shape"},
           {"[fallback]\ntopology = \"rign\"\n" + right, "rign"},
       }) {
    EXPECT_EQ(ask({"run", "submit", write_job(wrong)}), 2) << wrong << err;
    EXPECT_THAT(err, HasSubstr(code));
  }
  EXPECT_EQ(ask({"run", "submit", write_job(right)}), 0) << err;
}

TEST_F(CommandsTest, AWrongArgumentOfARequestEndsWithTwo) {
  federation.start_service();
  for (const Flags& wrong : std::vector<Flags>{
           {"token", "new", "cam/7"},
           {"token", "new", "cam-7", "--valid", "soon"},
           {"token", "new", "cam-7", "--role", "admin"},
           {"token", "new", "cam-7", "--role", "peer", "--address", "nowhere"},
           {"run", "show", "first"},
           {"run", "wait", "1", "--timeout", "soon"},
           {"run", "export", "1", "--to", directory.path().string()},
           {"run", "submit", tiny_job(), "--submit-token", ""},
       }) {
    EXPECT_EQ(ask(wrong), 2) << wrong[1] << ' ' << wrong.back() << ": " << err;
  }
  for (const Flags& absent : std::vector<Flags>{
           {"run", "show", "99"}, {"client", "show", "nobody"}, {"token", "revoke", "nothing"}}) {
    EXPECT_EQ(ask(absent), 1) << absent[0] << ": " << err;
  }
  EXPECT_EQ(ask({"run", "submit", tiny_job(), "--submit-token", "monday"}), 0) << err;
  EXPECT_EQ(ask({"run", "submit", tiny_job(), "--rounds", "8", "--submit-token", "monday"}), 2);
  EXPECT_THAT(err, HasSubstr("belongs to run 1, which is another job"));
}

TEST_F(CommandsTest, WrongConfigurationsOfAServiceEndWithTwo) {
  const auto init = [&](const std::string& name, Flags more) {
    more.insert(more.begin(), {"init", (directory.path() / name).string()});
    return run(more);
  };
  EXPECT_EQ(init("a", {"--federation", "my flock"}), 2) << err;
  EXPECT_EQ(init("a", {"--listen", "nowhere"}), 2) << err;
  EXPECT_EQ(init("a", {"--name", "not a name"}), 2) << err;
  ASSERT_EQ(init("a", {}), 0) << err;
  const auto file = directory.path() / "a" / "coordinator.toml";
  for (const char* wrong :
       {"[service]\nlisten = \"nowhere\"\n", "[service]\nlissen = \"0.0.0.0:1\"\n", "[service\n",
        "[service]\nthreads = -1\n", "[session]\nwindow-bytes = 1\n",
        "[service]\nnames = \"not a name\"\n"}) {
    std::ofstream(file) << wrong;
    EXPECT_EQ(run({"serve", (directory.path() / "a").string()}), 2) << wrong << err;
  }
}

TEST_F(CommandsTest, InitAndServeSayTheSameOfAnInterruptedInit) {
  const std::string lab = (directory.path() / "lab").string();
  ASSERT_EQ(run({"init", lab}), 0) << err;
  std::filesystem::remove(directory.path() / "lab" / "coordinator.toml");
  EXPECT_EQ(run({"init", lab}), 1);
  const std::string advice = err;
  EXPECT_THAT(advice, HasSubstr("remove " + lab + " and repeat: starling-coordinator init " + lab));
  EXPECT_EQ(run({"serve", lab}), 1);
  EXPECT_EQ(err, advice);
  const std::string other = directory.path().string();
  EXPECT_EQ(run({"serve", other}), 1);
  EXPECT_THAT(err, HasSubstr("make one with: starling-coordinator init NEW-DIR\n"));
  EXPECT_EQ(run({"serve", other + "/no where"}), 1);
  EXPECT_THAT(err, HasSubstr("init '" + other + "/no where'\n"));
}

// A command whose file is an argument takes no second one.
TEST_F(CommandsTest, ACommandOfAFileHasNoConfigOption) {
  for (std::vector<std::string> words : {std::vector<std::string>{"run", "submit"},
                                         {"gossip", "start"},
                                         {"gossip", "sign"},
                                         {"simulate"}}) {
    words.emplace_back("--help");
    EXPECT_EQ(run(words), 0);
    EXPECT_THAT(out, Not(HasSubstr("--config"))) << words.front();
  }
  EXPECT_EQ(run({"serve", "--help"}), 0);
  EXPECT_THAT(out, HasSubstr("--config FILE"));
}

TEST_F(CommandsTest, HelpFitsATerminal) {
  for (std::vector<std::string> words : {std::vector<std::string>{},
                                         {"serve"},
                                         {"token", "new"},
                                         {"run"},
                                         {"run", "submit"},
                                         {"gossip", "start"},
                                         {"simulate"}}) {
    words.emplace_back("--help");
    EXPECT_EQ(run(words), 0);
    std::istringstream stream(out);
    for (std::string line; std::getline(stream, line);) EXPECT_LE(columns_of(line), 80U) << line;
  }
}

// One file for both: a service's run has real links and real devices.
TEST_F(CommandsTest, AFileMayHoldTheWorldOfItsSimulation) {
  const std::string tiny =
      "rounds = 2\n[model]\nkind = \"softmax-regression\"\n[round]\ncohort = 1\n"
      "[evaluate]\ndataset = \"synthetic:rows=50,features=4,classes=2:test\"\n"
      "[data]\ndataset = \"synthetic:rows=60,features=4,classes=2\"\n";
  const std::string world = "[network]\nlatency = \"1s\"\n[nodes]\nstep-time = \"2s\"\n";
  EXPECT_EQ(ask({"run", "submit", write_job(tiny + world)}), 4) << "there is no service";
  EXPECT_THAT(err, StartsWith("note: [network] is of simulated networks and means nothing to real "
                              "devices\nnote: [nodes] is "));
  EXPECT_EQ(run({"run", "submit", write_job(tiny), "--network.latency", "1s"}), 2);
  const auto simulated = [this](std::vector<std::string> more) {
    more.insert(more.begin(), {"simulate", (directory.path() / "job.toml").string(), "--clients",
                               "1", "--deadline", "30s", "--format", "json"});
    EXPECT_EQ(run(std::move(more)), 0) << err;
    return boost::json::parse(out).at("rounds").at(1).as_object();
  };
  EXPECT_FALSE(simulated({}).contains("virtual_seconds"));
  EXPECT_GT(simulated({"--network.latency", "1s"}).at("virtual_seconds").as_double(), 12);
  EXPECT_THAT(err, HasSubstr(" s virtual"));
  write_job(tiny + world);
  EXPECT_GT(simulated({}).at("virtual_seconds").as_double(), 12 + 2 * 2 * 2);
}

TEST_F(CommandsTest, ASimulationReportsTheSettingsOfItsJob) {
  const std::string job = write_job(
      "rounds = 1\n[round]\ncohort = 1\n[data]\ndataset = \"synthetic:rows=9\"\n"
      "[nodes]\nslowdown = 2\n");
  const auto kept = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"simulate", job, "--clients", "1", "--format", "json"});
    EXPECT_EQ(run(std::move(more)), 0) << err;
    return boost::json::parse(out).at("settings").at("checkpoint.keep").as_string();
  };
  EXPECT_EQ(kept({}), "0") << "as the README says of simulate";
  EXPECT_THAT(err, StartsWith("warning: nodes.slowdown has no effect: nodes.stragglers is not"));
  EXPECT_EQ(kept({"--keep", "7"}), "7");
}

// Kernels of another instruction set round differently.
TEST_F(CommandsTest, AReplayWarnsOfAnotherInstructionSet) {
  const std::string job = write_job(
      "rounds = 2\n[model]\nkind = \"softmax-regression\"\n[round]\ncohort = 1\n"
      "[evaluate]\nevery = 0\n"
      "[data]\ndataset = \"synthetic:rows=60,features=4,classes=2\"\n");
  const auto simulate = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"simulate", job, "--clients", "1", "--format", "json"});
    EXPECT_EQ(run(std::move(more)), 0) << err;
    return boost::json::parse(out).as_object();
  };
  auto recorded = simulate({});
  EXPECT_EQ(recorded.at("instruction_set"), linalg::default_kernels().name);
  const std::string file = (directory.path() / "recorded.json").string();
  const auto replay = [&] {
    std::ofstream(file) << boost::json::serialize(recorded);
    simulate({"--replay", file});
  };
  replay();
  EXPECT_THAT(err, Not(HasSubstr("warning: ")));
  recorded["instruction_set"] = "v9";
  replay();
  EXPECT_THAT(err, HasSubstr("warning: the recorded run was trained with the instruction set v9"));
  recorded.erase("instruction_set");
  replay();
  EXPECT_THAT(err, Not(HasSubstr("warning: "))) << "as real runs are recorded";
}

TEST_F(CommandsTest, SimulateRefusesEvaluationsByClientsThatHoldNoRowsOut) {
  const std::string job = write_job(
      "rounds = 1\n[model]\nkind = \"softmax-regression\"\n[round]\ncohort = 1\n"
      "[evaluate]\nevery = 0\nfederated-every = 1\n[stop]\nmetric = \"federated-loss\"\n"
      "[data]\ndataset = \"synthetic:rows=60,features=4,classes=2\"\n");
  const auto simulate = [&](const std::string& hold_out) {
    return run({"simulate", job, "--clients", "2", "--hold-out", hold_out, "--format", "json"});
  };
  EXPECT_EQ(simulate("0"), 2);
  EXPECT_THAT(err, HasSubstr("evaluate.federated-every is set, and with data.hold-out = 0 none of "
                             "the 2 clients holds rows out: raise data.hold-out\n"));
  EXPECT_EQ(simulate("0.01"), 2) << "less than a row";
  EXPECT_EQ(simulate("0.1"), 0) << err;
  const boost::json::value round = boost::json::parse(out).at("rounds").at(0);
  EXPECT_EQ(round.at("federated_weight"), 3.0);
  EXPECT_EQ(round.at("federated_bytes_out"), 10 * 4) << "the model";
}

// As starling-gossip simulate: on the fifth of its rows that each client holds out.
TEST_F(CommandsTest, SimulateEvaluatesADataSetOfOnesOwn) {
  const auto rows = directory.path() / "rows.csv";
  std::ofstream file(rows);
  file << "x,y,label\n";
  for (int row = 0; row < 100; ++row) file << row % 10 << "," << row % 7 << "," << row % 2 << "\n";
  file.close();
  const std::string job = write_job(
      "rounds = 2\n[model]\nkind = \"softmax-regression\"\n[round]\ncohort = 4\n"
      "[data]\ndataset = \"csv:" +
      rows.string() + "\"\n");
  const auto simulate = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"simulate", job, "--clients", "4", "--format", "json"});
    EXPECT_EQ(run(std::move(more)), 0) << err;
    EXPECT_THAT(err, Not(HasSubstr("warning: ")));
    return boost::json::parse(out);
  };
  const boost::json::value own = simulate({});
  EXPECT_THAT(err, HasSubstr("evaluates on 20 rows that 4 clients hold out (data.hold-out = 0.2)"));
  const auto weights = [](const boost::json::value& round) {
    double sum = 0;
    for (const auto& client : round.at("contributors").as_array()) {
      sum += client.at("weight").to_number<double>();
    }
    return sum;
  };
  EXPECT_EQ(own.at("settings").at("data.hold-out"), "0.2");
  const boost::json::value by_clients =
      simulate({"--evaluate.every", "0", "--federated-every", "1"});
  for (std::size_t i = 0; i < 2; ++i) {
    const boost::json::value& round = own.at("rounds").at(i);
    const boost::json::value& other = by_clients.at("rounds").at(i);
    EXPECT_EQ(weights(round), 80);
    EXPECT_EQ(round.at("model_sha256"), other.at("model_sha256"));
    EXPECT_EQ(other.at("federated_weight"), 20.0);
    EXPECT_NEAR(round.at("eval_loss").as_double(), other.at("federated_loss").as_double(), 1e-6);
    EXPECT_NEAR(round.at("eval_accuracy").as_double(), other.at("federated_accuracy").as_double(),
                1e-6);
  }
  EXPECT_TRUE(simulate({"--evaluate.every", "2"}).at("rounds").at(0).at("eval_loss").is_null());
  const std::string recorded = (directory.path() / "own.json").string();
  std::ofstream(recorded) << boost::json::serialize(own);
  EXPECT_EQ(simulate({"--replay", recorded}).at("rounds").at(1).at("model_sha256"),
            own.at("rounds").at(1).at("model_sha256"));
  for (const std::vector<std::string>& other :
       {std::vector<std::string>{"--hold-out", "0"},
        std::vector<std::string>{"--evaluate.dataset", "csv:" + rows.string()}}) {
    EXPECT_EQ(weights(simulate(other).at("rounds").at(0)), 100);
  }
  // No row that is evaluated on plays a part in the numbers to scale by.
  const auto offsets = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--scale", "standard"});
    return simulate(std::move(more)).at("settings").at("data.scale-offsets");
  };
  EXPECT_NE(offsets({}), offsets({"--hold-out", "0"}));
  const std::vector<std::string> stop = {"--stop.metric",   "loss", "--stop.min-change", "1000",
                                         "--stop.patience", "1",    "--rounds",          "9"};
  EXPECT_EQ(simulate(stop).at("rounds").as_array().size(), 2U);
  std::vector<std::string> none = {"simulate", job, "--clients", "4", "--hold-out", "0"};
  none.insert(none.end(), stop.begin(), stop.end());
  EXPECT_EQ(run(none), 2);
  EXPECT_THAT(err, HasSubstr("stop.metric = 'loss' needs evaluate.dataset"));
}

void write_bytes(const std::filesystem::path& path, const std::vector<int>& bytes) {
  std::ofstream file(path, std::ios::binary);
  for (const int byte : bytes) file.put(static_cast<char>(byte));
}

TEST_F(CommandsTest, SimulateHoldsRowsOfAnIdxDirectoryWithoutTestFilesOut) {
  std::vector<int> labels = {0, 0, 8, 1, 0, 0, 0, 20};
  std::vector<int> images = {0, 0, 8, 3, 0, 0, 0, 20, 0, 0, 0, 1, 0, 0, 0, 2};
  for (int row = 0; row < 20; ++row) {
    labels.push_back(row % 2);
    images.insert(images.end(), {row, 100 * (row % 2)});
  }
  write_bytes(directory.path() / "train-labels-idx1-ubyte", labels);
  write_bytes(directory.path() / "train-images-idx3-ubyte", images);
  const std::string job = write_job(
      "rounds = 1\n[model]\nkind = \"softmax-regression\"\n[round]\ncohort = 2\n"
      "[data]\ndataset = \"idx:" +
      directory.path().string() + "\"\n");
  EXPECT_EQ(run({"simulate", job, "--clients", "2"}), 0) << err;
  EXPECT_THAT(err, HasSubstr("evaluates on 4 rows that 2 clients hold out (data.hold-out = 0.2)"));
}

// The word of starling-gossip.
TEST_F(CommandsTest, SimulateEvaluatesNothingOnNone) {
  const std::string job = write_job(
      "rounds = 1\n[model]\nkind = \"softmax-regression\"\n[round]\ncohort = 2\n"
      "[data]\ndataset = \"synthetic:rows=60,features=4,classes=2\"\n");
  const std::vector<std::string> none = {"simulate",           job,   "--clients", "2",
                                         "--evaluate.dataset", "none"};
  EXPECT_EQ(run(none), 0) << err;
  EXPECT_THAT(err, Not(HasSubstr("evaluated")));
  EXPECT_THAT(err, Not(HasSubstr("warning")));
  std::vector<std::string> stops = none;
  stops.insert(stops.end(), {"--stop.metric", "loss"});
  EXPECT_EQ(run(stops), 2);
  EXPECT_THAT(err, HasSubstr("stop.metric = 'loss' needs evaluate.dataset"));
}

TEST_F(CommandsTest, SimulateSaysThatNothingIsEvaluated) {
  const auto rows = directory.path() / "rows.csv";
  std::ofstream(rows) << "x,label\n1,0\n2,1\n3,0\n4,1\n5,0\n6,1\n7,0\n8,1\n";
  const std::string job = write_job(
      "rounds = 1\n[model]\nkind = \"softmax-regression\"\n[round]\ncohort = 2\n"
      "[data]\ndataset = \"csv:" +
      rows.string() + "\"\n");
  const auto words = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"simulate", job, "--clients", "2"});
    EXPECT_EQ(run(std::move(more)), 0) << err;
    EXPECT_THAT(err, Not(HasSubstr("has no effect")));
    return err;
  };
  EXPECT_THAT(words({}), HasSubstr("nothing is evaluated: with data.hold-out = 0.2 none of the 2 "
                                   "clients holds rows out; raise it, lower --clients, or set "));
  EXPECT_THAT(words({"--hold-out", "0"}), HasSubstr("nothing is evaluated: set evaluate.dataset"));
  EXPECT_THAT(
      words({"--data.dataset", "synthetic:rows=60,features=4,classes=2", "--evaluate.every", "2"}),
      HasSubstr("nothing is evaluated: set evaluate.dataset"));
  EXPECT_THAT(words({"--evaluate.every", "0"}), Not(HasSubstr("nothing is evaluated")));
}

TEST_F(CommandsTest, SimulateEvaluatesATestSplitOfOnesOwn) {
  for (const std::string split : {"train", "t10k"}) {
    std::ofstream(directory.path() / (split + "-images-idx3-ubyte"), std::ios::binary)
        << std::string("\0\0\x08\x03\0\0\0\x04\0\0\0\x01\0\0\0\x01", 16) << "abcd";
    std::ofstream(directory.path() / (split + "-labels-idx1-ubyte"), std::ios::binary)
        << std::string("\0\0\x08\x01\0\0\0\x04\0\x01\0\x01", 12);
  }
  const std::string dataset = "idx:" + directory.path().string();
  const std::string job = write_job(
      "rounds = 1\n[model]\nkind = \"softmax-regression\"\n[round]\ncohort = 2\n"
      "[data]\ndataset = \"" +
      dataset + "\"\n");
  EXPECT_EQ(run({"simulate", job, "--clients", "2", "--format", "json"}), 0) << err;
  const boost::json::value value = boost::json::parse(out);
  EXPECT_EQ(value.at("settings").at("evaluate.dataset"), (dataset + ":test").c_str());
  EXPECT_TRUE(value.at("rounds").at(0).at("eval_loss").is_double());
}

TEST_F(CommandsTest, SimulateWritesIntoANewOrEmptyDirectoryOnly) {
  const std::string job = write_job(
      "rounds = 1\n[model]\nkind = \"softmax-regression\"\n[round]\ncohort = 1\n"
      "[data]\ndataset = \"synthetic:rows=60,features=4,classes=2\"\n");
  const auto simulate = [&](const std::filesystem::path& to) {
    return run({"simulate", job, "--clients", "1", "--out", to.string()});
  };
  const auto root = federation.state().root();
  std::filesystem::remove_all(StateDirectory(root).models());
  EXPECT_EQ(simulate(root), 1);
  EXPECT_THAT(err, HasSubstr(root.string() + " is not empty: name a new directory with --out\n"));
  EXPECT_FALSE(std::filesystem::exists(StateDirectory(root).models())) << "nothing was made";
  const auto study = directory.path() / "study";
  std::filesystem::create_directories(study / "models");
  std::ofstream(study / "models" / "run-1-round-1.safetensors") << "a model";
  EXPECT_EQ(simulate(study), 1);
  EXPECT_THAT(err, HasSubstr("holds an unfinished simulation: name a new directory"));
  std::filesystem::remove(study / "models" / "run-1-round-1.safetensors");
  EXPECT_EQ(simulate(study), 0) << err << "; what an interrupted one left is no obstacle";
  EXPECT_EQ(simulate(study), 0) << err;
  EXPECT_EQ(out, study.string() + " holds this run, finished: " + (study / "report.html").string() +
                     "\n");
  EXPECT_EQ(run({"simulate", job, "--clients", "2", "--out", study.string()}), 1);
  EXPECT_THAT(err, HasSubstr("holds a finished run with other settings (clients is 1 there and 2"));
}

// --- studies -----------------------------------------------------------------------------------

// Without what no two runs share, however alike, and the clock at which rounds began.
boost::json::value without_times(boost::json::value run) {
  for (boost::json::value& round : run.at("rounds").as_array()) {
    round.as_object().erase("seconds");
    round.as_object().erase("started");
  }
  for (const char* time : {"submitted", "started", "ended", "finished"}) {
    run.as_object().erase(time);
  }
  return run;
}

boost::json::value read_run_json(const std::filesystem::path& directory) {
  return boost::json::parse(read_text_file(directory / "run.json", 1 << 24).value());
}

constexpr const char* kStudyJob =
    "rounds = 2\n[model]\nkind = \"softmax-regression\"\n[round]\ncohort = 2\n"
    "[evaluate]\ndataset = \"synthetic:rows=60,features=4,classes=2:test\"\n"
    "[data]\ndataset = \"synthetic:rows=60,features=4,classes=2\"\n";

TEST_F(CommandsTest, EachRunOfAStudyIsThatOfTheSingleSimulation) {
  const std::string job = write_job(kStudyJob);
  const auto study = directory.path() / "study";
  const auto alone = directory.path() / "alone";
  const auto simulate = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"simulate", job});
    return run(std::move(more));
  };
  ASSERT_EQ(simulate({"--sweep", "strategy=fedavg,fedadam", "--sweep", "clients=3,4", "--sweep",
                      "network.latency=1s", "--seeds", "2..3", "--out", study.string()}),
            0)
      << err;
  EXPECT_THAT(err, HasSubstr("8 runs: strategy.name (2) x clients (2) x network.latency (1) x "
                             "seed (2)\n"));
  EXPECT_THAT(out, HasSubstr("\nfedadam   4  "));
  ASSERT_EQ(simulate({"--strategy", "fedadam", "--clients", "4", "--network.latency", "1s",
                      "--seed", "3", "--threads", "1", "--out", alone.string()}),
            0)
      << err;
  const auto of_study = study / "strategy.name=fedadam,clients=4,network.latency=1s,seed=3";
  EXPECT_EQ(without_times(read_run_json(of_study)), without_times(read_run_json(alone)));
  EXPECT_EQ(read_run_json(alone).at("simulation").at("clients"), "4");
  std::size_t compared = 0;
  for (const auto& model : std::filesystem::directory_iterator(alone / "models")) {
    EXPECT_EQ(*read_file(of_study / "models" / model.path().filename(), 1 << 20),
              *read_file(model.path(), 1 << 20));
    ++compared;
  }
  EXPECT_GE(compared, 3U);
  EXPECT_TRUE(std::filesystem::exists(study / "curves" / "accuracy-by-round.csv"));
}

TEST_F(CommandsTest, AStudyThatWasKilledGoesOnWhereItIs) {
  const std::string job = write_job(kStudyJob);
  const auto study = directory.path() / "study";
  const auto simulate = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"simulate", job, "--clients", "3", "--out", study.string()});
    return run(std::move(more));
  };
  ASSERT_EQ(simulate({"--seeds", "1..2"}), 0) << err;
  std::filesystem::remove(study / "seed=2" / "run.json");          // which comes last
  std::filesystem::create_directory(study / "seed=2" / "curves");  // of `report --csv`
  EXPECT_EQ(simulate({"--seeds", "1..3"}), 0) << err;
  EXPECT_THAT(err, HasSubstr("1 of them finished before, 2 to do"));
  EXPECT_EQ(simulate({"--seeds", "1..3", "--rounds", "3"}), 1);
  EXPECT_THAT(err, HasSubstr("finished run with other settings (rounds is 2 there and 3 here)"));
  EXPECT_EQ(simulate({"--seeds", "1..3", "--network.latency", "1s"}), 1);
  EXPECT_THAT(err, HasSubstr("(network.latency is 1ms there and 1s here)"));
}

TEST_F(CommandsTest, AStudyThatCannotBeginEndsWithTwo) {
  const std::string job = write_job(kStudyJob);
  const std::string to = (directory.path() / "study").string();
  const std::vector<std::pair<Flags, std::string>> cases = {
      {{"--seeds", "1..3"}, "--out DIR"},
      {{"--out", to, "--seeds", "3..1"}, "write 1..3"},
      {{"--out", to, "--seeds", "1..3", "--replay", "x.json"}, "--replay repeats one run"},
      {{"--out", to, "--sweep", "lerning-rate=1"}, "'train.learning-rate'"},
      {{"--out", to, "--sweep", "strategy=fedavg,fedavgg"}, "fedavgg"},
      {{"--out", to, "--sweep", "cohort=2,300"}, "--sweep round.cohort=300: "},
      {{"--out", to, "--sweep", "clients=0,3"}, "clients = '0'"},
      {{"--out", to, "--sweep", "network.loss=0,1"}, "network.loss = '1'"},
      {{"--out", to, "--sweep", "clients=2,3", "--clients", "3"}, "so does its own flag"},
      {{"--out", to, "--sweep", "partition=iid,dirichle"}, "did you mean 'dirichlet'?"},
      {{"--out", to, "--sweep", "model.kind=external"}, "its trainer evaluates such a model"}};
  for (const auto& [flags, said] : cases) {
    Flags words = {"simulate", job};
    const auto sweeps_clients = [](const std::string& w) { return w.starts_with("clients="); };
    if (std::ranges::none_of(flags, sweeps_clients)) {
      words.insert(words.end(), {"--clients", "3"});
    }
    words.insert(words.end(), flags.begin(), flags.end());
    EXPECT_EQ(run(words), 2) << flags.back() << ": " << err;
    EXPECT_THAT(err, StartsWith("error: "));
    EXPECT_THAT(err, HasSubstr(said));
    EXPECT_EQ(std::ranges::count(err, '\n'), 1) << err;
    EXPECT_FALSE(std::filesystem::exists(to));
  }
}

TEST_F(CommandsTest, WithoutAServiceTheyEndWithFour) {
  EXPECT_EQ(ask({"client", "list"}), 4);
  EXPECT_THAT(err, HasSubstr("starling-coordinator serve"));
  EXPECT_EQ(run({"client", "list", "--state", directory.path().string()}), 4);
  EXPECT_THAT(err, HasSubstr("--state or STARLING_HOME"));
  EXPECT_EQ(run({"serve", directory.path().string()}), 1);
  EXPECT_THAT(err, HasSubstr("starling-coordinator init"));
}

TEST_F(CommandsTest, InitSaysWhatToDoNext) {
  const auto root = (directory.path() / "lab").string();
  EXPECT_EQ(run({"init", root, "--name", "lab.test", "--name", "10.0.0.1", "--format", "json"}), 0);
  const auto made = boost::json::parse(out);
  EXPECT_EQ(made.at("federation"), "lab");
  EXPECT_EQ(made.at("listen"), "0.0.0.0:7443");
  EXPECT_EQ(made.at("names"), boost::json::value({"lab.test", "10.0.0.1"}));
  EXPECT_EQ(run({"init", root}), 1);
  EXPECT_THAT(err, HasSubstr("is not empty"));
  EXPECT_EQ(run({"init", root + "2"}), 0);
  EXPECT_THAT(out, HasSubstr("starling-coordinator serve " + root + "2\n"));
  EXPECT_EQ(run({"init", root + " 3"}), 0);
  EXPECT_THAT(out, HasSubstr("starling-coordinator serve '" + root + " 3'\n"));
}

TEST_F(CommandsTest, TokensAndClients) {
  federation.start_service();
  const auto token = ask_json({"token", "new", "cam-7", "--valid", "10m"});
  for (const char* key : {"id", "client", "token", "command", "expires"}) {
    EXPECT_TRUE(token.at(key).is_string()) << key;
  }
  EXPECT_EQ(token.as_object().size(), 5U);
  const std::string text = token.at("token").as_string().c_str();
  EXPECT_EQ(token.at("command").as_string(), "starling-edge join " + text + " --state cam-7");
  EXPECT_THAT(text, StartsWith("STJ1-"));
  const std::string id = token.at("id").as_string().c_str();
  EXPECT_EQ(ask({"token", "revoke", id}), 0);
  EXPECT_EQ(ask_json({"token", "list"}).at(0).at("state"), "revoked");
  EXPECT_EQ(ask({"token", "new", "cam-8"}), 0);
  EXPECT_THAT(out, HasSubstr("\n  starling-edge join STJ1-"));
  EXPECT_EQ(ask({"token", "list"}), 0);
  EXPECT_THAT(out, HasSubstr("cam-8"));

  EXPECT_TRUE(ask_json({"client", "list"}).as_array().empty());
  federation.join("cam-9");
  const auto client = ask_json({"client", "list"}).at(0);
  EXPECT_EQ(client.at("name"), "cam-9");
  EXPECT_EQ(client.at("state"), "active");
  EXPECT_EQ(client.at("connected"), false);
  EXPECT_TRUE(client.at("last_seen").is_null());
  EXPECT_TRUE(parse_rfc3339(client.at("certificate_expires").as_string().c_str()));
  EXPECT_EQ(client.as_object().size(), 5U);
  EXPECT_EQ(ask({"client", "show", "cam-9"}), 0);
  EXPECT_EQ(ask({"client", "revoke", "cam-9"}), 0);
  EXPECT_EQ(ask_json({"client", "show", "cam-9"}).at("state"), "revoked");
  for (const char* command : {"show", "revoke"}) {
    EXPECT_EQ(ask({"client", command, "nobody"}), 1);
    EXPECT_THAT(err, HasSubstr("no client is named 'nobody'; 'client list' shows those who have"));
  }
  EXPECT_EQ(ask({"token", "new", "cam-7", "--valid", "soon"}), 2);
}

TEST_F(CommandsTest, ARunFromSubmissionToExport) {
  federation.start_service();
  start_client();
  EXPECT_EQ(ask({"run", "submit", tiny_job(), "--rounds", "3", "--seed", "5", "--wait"}), 0) << err;
  EXPECT_THAT(out, StartsWith("run 1 is submitted\n"));
  EXPECT_THAT(out, HasSubstr("[round 3/3] 1 update\n"));
  EXPECT_THAT(out, ::testing::EndsWith("run 1 completed\n"));
  const auto run = ask_json({"run", "show", "1"});
  EXPECT_EQ(run.at("seed"), 5) << "the flag wins";
  EXPECT_EQ(run.at("name"), "tiny");
  ASSERT_EQ(run.at("rounds").as_array().size(), 3U);
  EXPECT_EQ(ask({"run", "show", "1"}), 0);
  EXPECT_THAT(out, HasSubstr("accuracy: "));
  EXPECT_EQ(ask({"run", "log", "1"}), 0);
  EXPECT_THAT(out, HasSubstr("[round 1/3] selected 1 of 1 clients\n"));
  EXPECT_EQ(ask({"run", "wait", "1"}), 0);
  EXPECT_EQ(out, "run 1 completed\n") << "what was said before is not said again";
  EXPECT_EQ(ask({"run", "wait", "1", "--timeout", "0s"}), 0) << err;
  EXPECT_EQ(ask_json({"run", "wait", "1"}).at("state"), "completed");
  EXPECT_EQ(ask_json({"run", "list"}).at(0).at("rounds_committed"), 3);

  const auto file = (directory.path() / "model.safetensors").string();
  const auto exported = ask_json({"run", "export", "1", "--to", file});
  EXPECT_EQ(exported.at("round"), 3);
  EXPECT_EQ(exported.at("model_sha256"), run.at("rounds").at(2).at("model_sha256"));
  EXPECT_EQ(model::read_safetensors(file).value().sha256().hex(),
            exported.at("model_sha256").as_string().c_str());
  EXPECT_EQ(ask_json({"run", "export", "1", "--to", file, "--round", "0"}).at("round"), 0);
  EXPECT_EQ(ask({"run", "export", "1", "--to", file, "--best"}), 0);
  EXPECT_THAT(out, HasSubstr("\nSHA-256 of its values ")) << "not of the file";
  EXPECT_EQ(ask({"run", "export", "1", "--to", file, "--round", "4"}), 1);
  EXPECT_EQ(ask({"run", "export", "1", "--to", (directory.path() / "no/such").string()}), 1);
}

TEST_F(CommandsTest, TheInitialModelIsExportedOnlyWhereItIsAskedFor) {
  federation.start_service();
  federation.gate.close_from(1);
  start_client();
  ask_json({"run", "submit", tiny_job()});
  federation.gate.wait_for_training("cam-7", 1);
  const auto file = (directory.path() / "model.safetensors").string();
  EXPECT_EQ(ask({"run", "export", "1", "--to", file}), 1) << out;
  EXPECT_THAT(err, HasSubstr("no round yet; --round 0 takes its initial model"));
  EXPECT_FALSE(std::filesystem::exists(file));
  EXPECT_EQ(ask({"run", "export", "1", "--to", file, "--round", "0"}), 0) << err;
  federation.gate.open_all();
}

TEST_F(CommandsTest, ARunsJsonHasTheNumbersThatWereComputed) {
  federation.start_service();
  start_client();
  ASSERT_EQ(ask({"run", "submit", tiny_job(), "--rounds", "30", "--wait"}), 0) << err;
  ASSERT_EQ(ask({"run", "show", "1", "--format", "json"}), 0) << err;
  const std::string shown = out;
  EXPECT_EQ(shown,
            federation.connect_operator()->ask_text("run-show", {{"id", "1"}}).value() + "\n");
}

// As `simulate` shows them: of a line of facts those that fit.
TEST_F(CommandsTest, TheLinesOfAFollowedRunFitATerminal) {
  federation.start_service();
  start_client();
  terminal.line_max = 80;
  ASSERT_EQ(ask({"run", "submit", tiny_job(), "--wait"}), 0) << err;
  EXPECT_THAT(out, HasSubstr("\n[round 9/9] train loss "));
  EXPECT_THAT(out, HasSubstr("  accuracy "));
  std::istringstream stream(out);
  for (std::string line; std::getline(stream, line);) EXPECT_LE(columns_of(line), 80U) << line;
  ASSERT_EQ(ask({"run", "log", "1"}), 0) << err;
  EXPECT_THAT(out, HasSubstr("  out ")) << "the log is whole";
}

TEST_F(CommandsTest, WaitingTellsHowItEnded) {
  federation.start_service();
  const auto submitted = ask_json({"run", "submit", tiny_job()});  // and no client
  EXPECT_EQ(boost::json::serialize(submitted), R"({"id":1})");
  federation.log.wait_for("waiting for 1 client (0 connected)");
  EXPECT_EQ(ask({"run", "wait", "1", "--timeout", "20ms"}), 3);
  ask_json({"run", "submit", tiny_job()});
  EXPECT_EQ(ask({"run", "wait", "2", "--timeout", "20ms"}), 3);
  EXPECT_THAT(out, StartsWith("run 2 waits for ")) << "its turn has not come, and it logs nothing";
  EXPECT_EQ(ask({"run", "stop", "2"}), 0);
  EXPECT_EQ(ask({"run", "stop", "1"}), 0);
  EXPECT_EQ(ask({"run", "wait", "1"}), 1);
  EXPECT_THAT(out, HasSubstr("run 1 stopped\n"));
  EXPECT_EQ(ask({"run", "wait", "1", "--format", "json"}), 1);
  EXPECT_THAT(out, HasSubstr("\"state\":\"stopped\""));
  EXPECT_EQ(ask({"run", "submit", tiny_job(), "--evaluate.dataset", "idx:/nowhere", "--wait"}), 2);
  EXPECT_THAT(err, HasSubstr("there is neither /nowhere/t"));
  std::ofstream(directory.path() / "damaged.csv") << "a,b,y\n1,2\n";
  EXPECT_EQ(ask({"run", "submit", tiny_job(), "--evaluate.dataset",
                 "csv:" + (directory.path() / "damaged.csv").string(), "--wait"}),
            2);
  EXPECT_THAT(err, HasSubstr("error: evaluate.dataset: "));
  EXPECT_EQ(ask({"run", "wait", "9"}), 1);
  EXPECT_EQ(ask({"run", "show", "one"}), 2);
}

TEST_F(CommandsTest, AGossipNetworkFromItsStartToItsEnd) {
  federation.start_service();
  EXPECT_EQ(ask({"token", "new", "cam-1", "--address", "10.0.0.1:7000"}), 2) << "not a peer";
  EXPECT_EQ(ask({"token", "new", "cam-1", "--role", "peer", "--address", "10.0.0.1"}), 2);
  EXPECT_EQ(ask({"token", "new", "cam-1", "--role", "peer", "--address", "0.0.0.0:7000"}), 2);
  EXPECT_EQ(ask({"token", "new", "cam-1", "--role", "per"}), 2);
  federation.join("cam-1", "peer", "127.0.0.1:7000");
  federation.join("cam-2");
  const std::string net = write_job("[topology]\nspec = \"ring\"\n");
  EXPECT_EQ(ask({"gossip", "show"}), 1);
  EXPECT_THAT(err, HasSubstr("gossip start NET.toml"));
  EXPECT_EQ(ask({"gossip", "start", net, "--algorithm.name", "choco", "--expires", "1s"}), 2);
  EXPECT_EQ(ask({"gossip", "start", net, "--expires", "-1m"}), 2);
  EXPECT_EQ(ask({"gossip", "start", net, "--run", "a/b"}), 2);
  EXPECT_EQ(ask({"gossip", "start", "--topology", "ring"}), 0) << "each key is a flag; " << err;
  EXPECT_THAT(out, StartsWith("gossip is running: epoch 1, "));
  EXPECT_EQ(ask({"gossip", "stop"}), 0) << err;
  EXPECT_EQ(ask({"gossip", "start", net, "--algorithm", "choco", "--run", "faces"}), 0) << err;
  EXPECT_THAT(out, StartsWith("faces is running: epoch 3, "));
  EXPECT_THAT(out, HasSubstr("LINKS"));
  EXPECT_THAT(out, Not(HasSubstr("REACHED"))) << "nobody knows that of most members";
  EXPECT_EQ(err, "");
  const auto network = ask_json({"gossip", "show"});
  EXPECT_EQ(network.at("settings").at("algorithm.name"), "choco");
  EXPECT_EQ(network.at("settings").at("topology.nodes"), "2");
  const auto& members = network.at("members").as_array();
  ASSERT_EQ(members.size(), 2U);
  EXPECT_EQ(members[0].at("address"), "127.0.0.1:7000");
  EXPECT_TRUE(members[1].at("address").is_null());
  EXPECT_EQ(members[1].at("key"), ask_json({"client", "show", "cam-2"}).at("key"));
  EXPECT_EQ(ask({"client", "revoke", "cam-2"}), 0);
  EXPECT_EQ(ask_json({"gossip", "show"}).at("members").as_array().size(), 1U);
  EXPECT_EQ(ask_json({"gossip", "stop"}).at("state"), "stopped");
  EXPECT_EQ(ask({"gossip", "start", net, "--network.latency", "5ms", "--virtual-time", "1h"}), 0);
  EXPECT_EQ(err,
            "note: [network] is of simulated networks and means nothing to real devices\n"
            "note: virtual-time is of simulated networks and means nothing to real devices\n");
  EXPECT_THAT(out, Not(HasSubstr("model.safetensors")));
  EXPECT_EQ(ask({"gossip", "stop"}), 0) << err;
  EXPECT_THAT(out, HasSubstr("\neach member keeps its model in gossip/model.safetensors of "));
  EXPECT_EQ(ask({"gossip", "start", net, "--nodes", "3", "--dataset", "csv:nix.csv",
                 "--algorithm.ratio", "0.3"}),
            0);
  EXPECT_EQ(err,
            "note: [data] is of simulated networks and means nothing to real devices\n"
            "note: topology.nodes is of simulated networks and means nothing to real devices\n"
            "warning: algorithm.ratio has no effect: algorithm.name is dpsgd (it needs choco)\n");
  EXPECT_EQ(ask({"gossip", "stop"}), 0) << err;
  std::string pixels = "pixel-0";
  for (int i = 1; i < 784; ++i) pixels += ",pixel-" + std::to_string(i);
  EXPECT_EQ(ask({"gossip", "start", net, "--data.columns", pixels}), 0) << err;
  EXPECT_EQ(err, "") << "devices match the columns of their own files";
  EXPECT_EQ(ask({"gossip", "stop"}), 0) << err;
  const auto copy = directory.path() / "copy";
  EXPECT_EQ(ask({"backup", "--to", copy.string()}), 0) << err;
  EXPECT_TRUE(std::filesystem::exists(copy / "gossip" / "roster")) << "whose epoch must last";
}

TEST_F(CommandsTest, ABackupIsMadeAndRestored) {
  federation.start_service();
  federation.join("cam-1");
  ASSERT_EQ(ask({"token", "new", "cam-2"}), 0) << err;
  const auto backup = (directory.path() / "backup").string();
  EXPECT_EQ(ask({"backup", "--to", backup}), 0) << err;
  EXPECT_THAT(out, HasSubstr("private key"));
  EXPECT_THAT(out, HasSubstr("restore " + backup));
  // coordinator.toml names another port than the one that is served, as with `serve --listen`.
  const std::string note = "--listen '127.0.0.1:" + std::to_string(federation.port()) + "'";
  EXPECT_THAT(out, HasSubstr("note: devices expect a service with " + note));
  EXPECT_EQ(ask({"backup", "--to", backup}), 1);
  EXPECT_THAT(err, HasSubstr("not an empty directory"));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(backup)) {
    const auto others = std::filesystem::perms::group_all | std::filesystem::perms::others_all;
    EXPECT_EQ(entry.status().permissions() & others, std::filesystem::perms::none) << entry.path();
  }
  const auto made = ask_json({"backup", "--to", backup + "-2"});
  EXPECT_EQ(made.at("federation"), "test");
  EXPECT_GT(made.at("files").to_number<int>(), 6);

  const std::string in_use = "127.0.0.1:" + std::to_string(federation.port());
  EXPECT_EQ(run({"serve", backup, "--listen", in_use}), 1);
  EXPECT_THAT(err, HasSubstr(backup + " is a backup; put it back with: starling-coordinator "));
  const auto restored = (directory.path() / "restored").string();
  EXPECT_EQ(run({"restore", backup, "--to", restored}), 0) << err;
  EXPECT_THAT(out, HasSubstr("serve " + restored));
  EXPECT_THAT(out, HasSubstr(note));
  const auto address = read_address(StateDirectory(restored));
  ASSERT_TRUE(address) << "without it nothing says at the next start that the port is another";
  EXPECT_EQ(address->port, federation.port());
  EXPECT_EQ(run({"restore", backup, "--to", restored}), 1);
  EXPECT_EQ(run({"restore", restored, "--to", restored + "-2"}), 1);
  EXPECT_THAT(err, HasSubstr("is not a backup"));
  federation.stop_service();
  const auto root = federation.state().root();
  std::filesystem::remove_all(root);
  std::filesystem::rename(restored, root);
  federation.start_service();
  EXPECT_EQ(ask_json({"client", "show", "cam-1"}).at("state"), "active");
  const auto tokens = ask_json({"token", "list"});
  for (const auto& token : tokens.as_array()) {
    EXPECT_EQ(token.at("state"), token.at("client") == "cam-1" ? "used" : "revoked");
  }
}

TEST_F(CommandsTest, AGossipNetworkSaysWhatIsWrongWithIt) {
  federation.start_service();
  federation.join("cam-1", "peer", "127.0.0.1:7000");
  federation.join("cam-2", "peer", "127.0.0.1:7001");
  const std::string net = write_job("[topology]\nspec = \"hypercube\"\n");
  EXPECT_EQ(ask({"gossip", "start", net, "--run", "faces"}), 0) << err;
  EXPECT_THAT(out, Not(HasSubstr("faces: ")));
  federation.join("cam-3");
  EXPECT_EQ(ask({"gossip", "show"}), 0) << err;
  EXPECT_THAT(out, HasSubstr("\nfaces: waiting to be members: cam-3; "));
  EXPECT_THAT(ask_json({"gossip", "show"}).at("problem").as_string().c_str(), HasSubstr("cam-3"));
}

TEST_F(CommandsTest, ANetworkThatCannotGoOnWithWhoIsLeftSaysSo) {
  federation.start_service();
  for (const char* name : {"cam-1", "cam-2", "cam-3", "cam-4"}) federation.join(name);
  const std::string net = write_job("[topology]\nspec = \"hypercube\"\n");
  EXPECT_EQ(ask({"gossip", "start", net, "--run", "faces"}), 0) << err;
  EXPECT_THAT(out, StartsWith("faces is running: "));
  EXPECT_EQ(ask({"client", "revoke", "cam-4"}), 0) << err;
  const std::string why = "cannot go on with 3 members: ";
  EXPECT_THAT(out, HasSubstr("\nthe gossip network faces: it " + why));
  EXPECT_EQ(ask({"gossip", "show"}), 0) << err;
  EXPECT_THAT(out, StartsWith("faces cannot go on: epoch 2, "));
  EXPECT_THAT(out, HasSubstr("\nfaces: it " + why));
  EXPECT_EQ(ask_json({"gossip", "show"}).at("state"), "refused");
  EXPECT_EQ(ask({"client", "revoke", "cam-3"}), 0) << err;
  EXPECT_EQ(out, "cam-3 is revoked; a new token lets the name join again\n") << "two suit it";
  EXPECT_EQ(ask_json({"gossip", "show"}).at("state"), "running");
}

// A member that has been silent for days must not look like one that reported a second ago.
TEST(RecentTimeCell, HasTheDateWhereItIsNotOfToday) {
  const boost::json::value report{{"time", "2026-11-20T09:10:11.500Z"}, {"none", nullptr}};
  const auto on = [&](const char* now) {
    return recent_time_cell(report, "time", *parse_rfc3339(now));
  };
  EXPECT_EQ(on("2026-11-20T09:10:12Z"), "09:10:11Z");
  EXPECT_EQ(on("2026-11-23T09:10:12Z"), "2026-11-20 09:10:11Z");
  EXPECT_EQ(recent_time_cell(report, "none", WallTime()), "-");
}

TEST_F(CommandsTest, ANetworkInPlaceOfARunningOneIsNoted) {
  federation.start_service();
  federation.join("cam-1", "peer", "127.0.0.1:7000");
  federation.join("cam-2");
  const std::string net = write_job("[topology]\nspec = \"ring\"\n");
  EXPECT_EQ(ask({"gossip", "start", net, "--run", "faces"}), 0) << err;
  EXPECT_EQ(err, "");
  EXPECT_EQ(ask({"gossip", "start", net, "--run", "cars"}), 0) << err;
  EXPECT_THAT(err, HasSubstr("note: takes the place of run faces (epoch 1), which was running"));
  EXPECT_EQ(ask({"gossip", "stop"}), 0) << err;
  EXPECT_EQ(ask({"gossip", "start", net, "--run", "faces"}), 0);
  EXPECT_EQ(err, "");
}

TEST_F(CommandsTest, TwoPeersWithOneAddressAreRefused) {
  federation.start_service();
  const std::vector<std::string> token = {"token", "new", "cam-2", "--role", "peer", "--address"};
  const auto at = [&](const std::string& address) {
    std::vector<std::string> words = token;
    words.push_back(address);
    return ask(words);
  };
  federation.join("cam-1", "peer", "127.0.0.1:7000");
  EXPECT_EQ(at("127.0.0.1:7000"), 1);
  EXPECT_THAT(err, HasSubstr("127.0.0.1:7000 is the address of cam-1, and peers dial each other "
                             "there: give cam-2 another"));
  EXPECT_EQ(at("127.0.0.1:7001"), 0) << err;
  EXPECT_EQ(at("127.0.0.1:7001"), 0) << "its own";
  EXPECT_EQ(ask({"token", "new", "cam-3", "--role", "peer", "--address", "127.0.0.1:7001"}), 1);
  EXPECT_THAT(err, HasSubstr("is the address of cam-2"));
}

TEST_F(CommandsTest, AnOwnerSignsARosterWithoutAService) {
  const std::string net = write_job("[topology]\nspec = \"ring\"\n");
  const auto members = (directory.path() / "members").string();
  std::ofstream(members) << "cam-1 " << std::string(64, '1') << " 10.0.0.1:7000\n"
                         << "cam-2 " << std::string(64, '2') << "\n";
  const auto file = (directory.path() / "roster").string();
  const std::vector<std::string> words = {"gossip", "sign", net,         "--members", members,
                                          "--to",   file,   "--expires", "5d"};
  EXPECT_EQ(ask(words), 0) << err;
  EXPECT_THAT(out, HasSubstr("epoch 1 of job with 2 members"));
  EXPECT_EQ(err, "");
  const auto owner = load_operator_identity(federation.state().root());
  const auto run_identity = [&] {
    return identity::SignedRoster::load(file, owner->credentials().authorities, "test")
        ->roster()
        .run_identity();
  };
  const std::string run = run_identity();
  EXPECT_THAT(run, StartsWith("job "));
  EXPECT_EQ(ask_json(words).at("epoch"), 2) << "it replaces the one that was there";
  EXPECT_EQ(run_identity(), run) << "and continues its run";
  for (const char* epoch : {"0", "-3", "18446744073709551615", "9007199254740993"}) {
    EXPECT_EQ(ask({"gossip", "sign", net, "--members", members, "--to", file, "--epoch", epoch}), 2)
        << epoch;
  }
  EXPECT_EQ(ask({"gossip", "sign", net, "--members", members, "--to", file, "--epoch", "2"}), 1);
  EXPECT_THAT(err, HasSubstr("is of epoch 2, so --epoch must be at least 3"));
  const auto roster = identity::SignedRoster::load(file, owner->credentials().authorities, "test");
  ASSERT_TRUE(roster) << roster.error().message();
  EXPECT_EQ(roster->signer().role, identity::Role::kIssuer);
  EXPECT_TRUE(roster->roster().revoked.empty());
  EXPECT_EQ(roster->roster().members[1].name, "cam-2");
  EXPECT_EQ(roster->roster().expires - roster->roster().issued, std::chrono::hours(24 * 5));
  EXPECT_EQ(ask({"gossip", "sign", "--members", members, "--to", file}), 2) << "of which network?";
  EXPECT_EQ(ask({"gossip", "sign", net, "--members", members, "--to", file, "--epoch", "9"}), 0);
  EXPECT_THAT(out, HasSubstr("epoch 9 of job"));
  EXPECT_EQ(err, "note: the run of epoch 2 goes on\n");
  EXPECT_EQ(run_identity(), run);
  EXPECT_EQ(ask({"gossip", "sign", net, "--members", members, "--to", file, "--seed", "7"}), 0);
  EXPECT_NE(run_identity(), run) << "another seed is another run";
  EXPECT_THAT(err,
              StartsWith("note: the run starts again, as its name or seed is not that of epoch "
                         "9: every device "));
  EXPECT_EQ(ask({"gossip", "sign", net, "--members", members, "--to", file, "--seed", "7",
                 "--topology", "complete", "--robust", "clip", "--robust.bad", "1"}),
            0);
  EXPECT_THAT(err, HasSubstr("warning: robust.rule = clip")) << "as gossip simulate says it";
  EXPECT_EQ(ask({"gossip", "sign", net, "--members", members, "--to", file, "--expires", "366d"}),
            2);
  EXPECT_THAT(err, HasSubstr("365 days"));
  EXPECT_EQ(ask({"gossip", "sign", net, "--members", members, "--to", file, "--expires", "0s"}), 2);
  std::filesystem::create_directories(federation.state().revoked().parent_path());
  std::ofstream(federation.state().revoked()) << "# the key that was stolen\n"
                                              << std::string(64, '3') << "  # in May\n";
  EXPECT_EQ(ask({"gossip", "sign", net, "--members", members, "--to", file}), 0) << err;
  EXPECT_EQ(identity::SignedRoster::load(file, owner->credentials().authorities, "test")
                ->roster()
                .revoked,
            std::vector{*Sha256Digest::parse(std::string(64, '3'))});
  std::ofstream(federation.state().revoked(), std::ios::app) << "33 33\n";
  EXPECT_EQ(ask({"gossip", "sign", net, "--members", members, "--to", file}), 2);
  EXPECT_THAT(err, HasSubstr("revoked:3: "));
  // What stands in the roster that is replaced stays revoked without the list.
  std::filesystem::remove(federation.state().revoked());
  const auto revoked = [&] {
    return identity::SignedRoster::load(file, owner->credentials().authorities, "test")
        ->roster()
        .revoked;
  };
  const std::string stolen(64, '3');
  EXPECT_EQ(ask({"gossip", "sign", net, "--members", members, "--to", file}), 0) << err;
  EXPECT_EQ(revoked(), std::vector{*Sha256Digest::parse(stolen)});
  const auto restore = [&](const std::string& key) {
    return ask({"gossip", "sign", net, "--members", members, "--to", file, "--restore", key});
  };
  EXPECT_EQ(restore("33"), 2);
  EXPECT_EQ(restore(std::string(64, '4')), 2);
  EXPECT_THAT(err, HasSubstr("is not revoked"));
  std::ofstream(federation.state().revoked()) << stolen << "\n";
  EXPECT_EQ(restore(stolen), 2);
  EXPECT_THAT(err, HasSubstr("remove its line there"));
  std::filesystem::remove(federation.state().revoked());
  EXPECT_EQ(restore(stolen), 0) << err;
  EXPECT_TRUE(revoked().empty());
  std::ofstream(file) << "damaged";
  EXPECT_EQ(ask({"gossip", "sign", net, "--members", members, "--to", file, "--epoch", "11"}), 1);
  EXPECT_THAT(err, HasSubstr("what is there is not replaced"));
  std::ofstream(members) << "cam-1\n";
  EXPECT_EQ(ask(words), 2);
  EXPECT_THAT(err, HasSubstr("members:1: the key, as 'client show' prints it, is 64 hexadecimal "
                             "digits, and there is none"));
  std::ofstream(members) << "cam-1 123\n";
  EXPECT_EQ(ask(words), 2);
  EXPECT_THAT(err, HasSubstr("digits, and not 123"));
  std::filesystem::remove(members);
  EXPECT_EQ(ask(words), 2) << "as without NET.toml";
}

// A lost operator's key signs nothing.
TEST_F(CommandsTest, AnOperatorElsewhereSignsNoRoster) {
  federation.start_service();
  const auto token = ask_json({"token", "new", "ops-2", "--role", "operator"});
  const auto state = directory.path().string();
  EXPECT_EQ(run({"join", token.at("token").as_string().c_str(), "--state", state}), 0) << err;
  const std::string net = write_job("[topology]\nspec = \"ring\"\n");
  const auto members = (directory.path() / "members").string();
  std::ofstream(members) << "cam-1 " << std::string(64, '1') << "\n"
                         << "cam-2 " << std::string(64, '2') << "\n";
  EXPECT_NE(run({"gossip", "sign", net, "--members", members, "--to", state + "/roster", "--state",
                 state}),
            0);
  EXPECT_THAT(err, HasSubstr("rosters are signed with the authority's key"));
}

TEST_F(CommandsTest, AnOperatorJoinsFromAnotherMachine) {
  federation.start_service();
  const auto token = ask_json({"token", "new", "ops-2", "--role", "operator"});
  const std::string command = token.at("command").as_string().c_str();
  EXPECT_THAT(command, StartsWith("starling-coordinator join STJ1-"));
  const auto state = directory.path().string();
  EXPECT_EQ(run({"join", token.at("token").as_string().c_str(), "--state", state}), 0) << err;
  EXPECT_EQ(run({"client", "list", "--role", "operator", "--state", state}), 0) << err;
  EXPECT_THAT(out, HasSubstr("ops-2"));
  EXPECT_EQ(run({"join", "STJ1-RUBBISH", "--state", state}), 2);
}

TEST_F(CommandsTest, ASimulationThatFailsSaysWhyOnce) {
  EXPECT_EQ(run({"simulate", write_job("rounds = 2\n"), "--clients", "2", "--cohort", "2",
                 "--data.dataset", "synthetic:rows=60,features=4,classes=2", "--learning-rate",
                 "1000000"}),
            1);
  EXPECT_THAT(err, HasSubstr("\nerror: round "));
  EXPECT_THAT(err, ::testing::Not(HasSubstr("\nrun failed: ")));
}

TEST_F(CommandsTest, ADirectoryOfASimulationThatFailedSaysSo) {
  const auto out_directory = (directory.path() / "failed").string();
  const auto at = [&](const char* rate) {
    return run({"simulate", write_job("rounds = 2\n"), "--clients", "2", "--cohort", "2",
                "--data.dataset", "synthetic:rows=60,features=4,classes=2", "--learning-rate", rate,
                "--out", out_directory});
  };
  EXPECT_EQ(at("1000000"), 1);
  for (const char* rate : {"0.1", "1000000"}) {
    EXPECT_EQ(at(rate), 1);
    EXPECT_THAT(err, HasSubstr(out_directory + " holds a failed run (round "));
    EXPECT_THAT(err, HasSubstr("): name a new directory with --out, or remove it"));
  }
}

TEST_F(CommandsTest, WrongInputOfASimulationEndsWithTwo) {
  const auto simulate = [&](const std::string& job, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"simulate", write_job(job), "--clients", "2", "--cohort", "2"});
    return run(std::move(more));
  };
  EXPECT_EQ(run({"simulate", "nowhere.toml"}), 2);
  EXPECT_THAT(err, HasSubstr("nowhere.toml"));
  EXPECT_EQ(simulate("[data]\ndataset = \"csv:/nowhere/rows.csv\"\n"), 2);
  EXPECT_THAT(err, HasSubstr("/nowhere/rows.csv"));
  EXPECT_EQ(simulate("", {"--trainer", "python3 train.py"}), 2);
  EXPECT_THAT(err, HasSubstr("--trainer is for models of your own: set model.kind = \"external\" "
                             "(it is \"mlp\")"));
  EXPECT_EQ(simulate("[data]\ndataset = \"synthetic\"\n", {"--replay", "nowhere.json"}), 2);
  EXPECT_EQ(simulate("", {"--beta1", "0.5"}), 2);
  EXPECT_THAT(err, HasSubstr("the flag '--beta1' of starling-coordinator simulate is ambiguous; "
                             "write --train.beta1 or --strategy.beta1"));
  EXPECT_EQ(simulate("[data]\ndataset = \"synthetic:features=3\"\n"
                     "[evaluate]\ndataset = \"synthetic:features=4\"\n"),
            2);
  EXPECT_THAT(err, HasSubstr("has the shape [3], 4 classes; evaluate.dataset = "
                             "synthetic:features=4 says [4], 4 classes"));
  EXPECT_EQ(simulate("[data]\ndataset = \"synthetic:features=3\"\ninput = [4]\nclasses = 4\n"), 2);
  EXPECT_THAT(err, HasSubstr("the job (data.input, data.classes) says [4], 4 classes"));
}

TEST_F(CommandsTest, DataThatCannotBeReadAreRefusedBeforeAStudyBegins) {
  const auto file = directory.path() / "rows.csv";
  const auto study = directory.path() / "study";
  const auto simulate = [&] {
    return run({"simulate", write_job("rounds = 1\n"), "--clients", "2", "--cohort", "2",
                "--data.dataset", "csv:" + file.string(), "--seeds", "1..4", "--out",
                study.string()});
  };
  EXPECT_EQ(simulate(), 2);
  EXPECT_THAT(err, StartsWith("error: data.dataset: "));
  ASSERT_TRUE(write_durably(file, as_bytes("x,y,label\n0,1,0\n2,three,1\n")));
  EXPECT_EQ(simulate(), 2);
  EXPECT_THAT(err, HasSubstr("rows.csv"));
  EXPECT_EQ(std::ranges::count(err, '\n'), 1) << err;
  EXPECT_FALSE(std::filesystem::exists(study));
}

TEST_F(CommandsTest, KeysWithoutEffectAreWarnedOf) {
  federation.start_service();
  const std::string unused = "rounds = 1\n[strategy]\nmu = 0.5\n[round]\ncohort = 1\n[data]\n";
  const char* warning =
      "warning: strategy.mu is used by fednova and fedprox only; strategy.name is fedavg: it has "
      "no "
      "effect\n";
  EXPECT_EQ(
      run({"simulate", write_job(unused + "dataset = \"synthetic:rows=9\"\n"), "--clients", "1"}),
      0)
      << err;
  EXPECT_THAT(err, StartsWith(warning)) << "before the first round";
  ASSERT_EQ(ask({"run", "submit", write_job(unused + "input = [3]\nclasses = 2\n")}), 0) << err;
  EXPECT_EQ(err, warning);
}

}  // namespace
}  // namespace starling::coordinator
