// SPDX-License-Identifier: Apache-2.0
// What commands print, what they send, and what the README says of the keys.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <sstream>

#include "coordinator/commands/received_file.h"
#include "coordinator/commands/run_view.h"
#include "coordinator/commands/text_table.h"
#include "coordinator/job/job_text.h"
#include "coordinator/job/simulated_world.h"
#include "coordinator/service/coordinator_options.h"
#include "core/base/durable_file.h"
#include "core/base/rng.h"
#include "core/model/safetensors.h"
#include "tests/support/paths.h"

namespace starling::coordinator {
namespace {

namespace json = boost::json;

TEST(TextTable, AlignsTextsLeftAndNumbersRight) {
  TextTable table({"NAME", ">ROUNDS"});
  table.add({"a", "7"});
  table.add({"longer", "12345678"});
  EXPECT_EQ(table.text(),
            "NAME      ROUNDS\n"
            "a              7\n"
            "longer  12345678\n");
}

TEST(TextTable, CellsOfJson) {
  const json::value value = json::parse(
      R"({"text":"a\nb\u001b[31m","none":null,"yes":true,"count":12,"real":0.25,"bytes":4800000,
          "time":"2026-11-20T09:10:11.123Z","empty":""})");
  EXPECT_EQ(cell(value, "text"), "a\\nb\\x1b[31m")
      << "nothing of a log can move a terminal's cursor";
  EXPECT_EQ(cell(value, "none"), "-");
  EXPECT_EQ(cell(value, "missing"), "-");
  EXPECT_EQ(cell(value, "empty"), "-");
  EXPECT_EQ(cell(value, "yes"), "yes");
  EXPECT_EQ(cell(value, "count"), "12");
  EXPECT_EQ(cell(value, "real"), "0.25");
  EXPECT_EQ(cell(value, "real", 4), "0.2500");
  EXPECT_EQ(cell(value, "none", 4), "-");
  EXPECT_EQ(cell(json::value{{"loss", 1e100}}, "loss", 4), "1.00e+100");
  EXPECT_EQ(cell(json::value{{"loss", -2.5e6}}, "loss", 4), "-2.50e+06");
  EXPECT_EQ(cell(json::value{{"loss", 9999}}, "loss", 4), "9999.0000");
  EXPECT_EQ(bytes_cell(value, "bytes"), "4.8 MB");
  EXPECT_EQ(time_cell(value, "time"), "2026-11-20 09:10:11Z");
  EXPECT_EQ(time_cell(value, "none"), "-");
  EXPECT_EQ(cell(json::value(3), "text"), "-");
}

TEST(RunView, ShowsRoundsFailuresAndTheCurve) {
  const json::value run = json::parse(R"({"id":3,"name":"demo","state":"failed","seed":1,
    "submitted":"2026-11-20T09:10:11.123Z","started":null,"ended":null,
    "error":{"code":"diverged","message":"the model is not finite"},
    "rounds":[
      {"round":1,"attempt":1,"state":"abandoned","cohort":2,"updates":1,
       "failures":[{"client":"cam-7","code":"deadline","reason":"too late","bytes":0}],
       "train_loss":null,"eval_loss":null,"eval_accuracy":null,"seconds":1.5,
       "bytes_in":0,"bytes_out":0,
       "abandoned":{"code":"too-few-updates","reason":"1 of the 2 updates that were needed"}},
      {"round":1,"attempt":2,"state":"committed","cohort":2,"updates":2,"failures":[],
       "train_loss":0.5,"eval_loss":0.25,"eval_accuracy":0.75,"seconds":1.5,
       "bytes_in":1000,"bytes_out":2000},
      {"round":2,"attempt":1,"state":"committed","cohort":2,"updates":2,"failures":[],
       "train_loss":0.5,"eval_loss":0.25,"eval_accuracy":0.875,"seconds":1.5,
       "bytes_in":1000,"bytes_out":2000}]})");
  const std::string text = describe_run(run, {});
  EXPECT_NE(text.find("run 3 'demo': failed\nerror      the model is not finite\n"), text.npos);
  EXPECT_NE(text.find("\nround 1, attempt 1: abandoned: 1 of the 2 updates that were needed\n"),
            text.npos)
      << text;
  EXPECT_NE(text.find("who did not count, and why\n"
                      "ROUND  ATTEMPT  CLIENT  CODE      REASON\n"
                      "    1        1  cam-7   deadline  too late\n"),
            text.npos)
      << text;
  EXPECT_NE(text.find("0.7500"), text.npos);
  EXPECT_NE(text.find("accuracy: 0.8750 at round 2"), text.npos) << text;
  EXPECT_EQ(describe_end(run), "run 3 failed: the model is not finite\n");
}

TEST(RunView, SaysWhyTheLastAttemptOfARunThatIsUnderWayWasAbandoned) {
  const json::value run = json::parse(
      R"({"id":3,"name":"demo","state":"running","last_abandoned":"attempt 2 of round 7 was ..."})");
  EXPECT_NE(describe_run(run, {}).find("\nabandoned  attempt 2 of round 7 was ...\n"),
            std::string::npos);
  EXPECT_NE(describe_runs(json::array{run}, {}).find("\nrun 3: attempt 2 of round 7 was ...\n"),
            std::string::npos);
}

TEST(RunView, ShowsWhatTheClientsFoundOnTheirOwnData) {
  const json::value run = json::parse(R"({"id":3,"name":"demo","state":"running","rounds":[
      {"round":7,"attempt":1,"state":"committed","federated_state":"committed",
       "federated_asked":10,"federated_clients":9,"federated_weight":1200,
       "federated_loss":0.43849,"federated_accuracy":0.8421,"federated_seconds":0.25,
       "federated_bytes_out":4800000,
       "federated_failures":[{"client":"cam-7","code":"no-data","reason":"it has no rows"}]},
      {"round":8,"attempt":1,"state":"committed","federated_state":"abandoned",
       "federated_asked":2,"federated_clients":0,"federated_weight":0,"federated_loss":null,
       "federated_accuracy":null,"federated_seconds":60.0,"federated_bytes_out":0,
       "federated_abandoned":{"code":"too-few-updates","reason":"0 of the 1 evaluations"},
       "federated_failures":[{"client":"cam-8","code":"deadline","reason":"none came"}]},
      {"round":9,"attempt":1,"state":"open","federated_state":null,"federated_clients":null,
       "federated_weight":null,"federated_loss":null,"federated_accuracy":null,
       "federated_failures":[]}]})");
  const std::string text = describe_run(run, {});
  EXPECT_NE(text.find("evaluated by the clients, on their own data\n"
                      "ROUND  STATE      CLIENTS  WEIGHT    LOSS  ACCURACY    TIME     OUT\n"
                      "    7  committed     9/10    1200  0.4385    0.8421  0.25 s  4.8 MB\n"
                      "    8  abandoned      0/2       0       -         -  60.0 s     0 B\n"
                      "\nwho did not evaluate, and why\n"),
            text.npos)
      << text;
  EXPECT_NE(text.find("    7  cam-7   no-data   it has no rows\n"), text.npos) << text;
  EXPECT_NE(text.find("    8  cam-8   deadline  none came\n"), text.npos) << text;
  EXPECT_NE(text.find("\nround 8, evaluation by clients: abandoned: 0 of the 1 evaluations\n"),
            text.npos)
      << text;
  const json::value without = json::parse(R"({"id":3,"rounds":[{"round":7,"failures":[]}]})");
  EXPECT_EQ(describe_run(without, {}).find("evaluate"), std::string::npos);
}

TEST(RunView, ShowsMetricsInATableOfTheirOwn) {
  const json::value run = json::parse(R"({"id":3,"name":"demo","state":"running","rounds":[
      {"round":7,"attempt":1,"state":"committed","federated_state":"committed",
       "federated_loss":-1.5,"federated_accuracy":null,"eval_metrics":null,
       "federated_metrics":{"mae":0.25,"r2":-3}},
      {"round":8,"attempt":1,"state":"committed","federated_metrics":{"mae":0.125}},
      {"round":9,"attempt":1,"state":"open","federated_metrics":null}]})");
  const std::string text = describe_run(run, {});
  EXPECT_NE(text.find("\nmetrics of the clients' evaluations\n"
                      "ROUND     mae       r2\n"
                      "    7  0.2500  -3.0000\n"
                      "    8  0.1250        -\n"),
            text.npos)
      << text;
  EXPECT_NE(text.find("-1.5000         -"), text.npos) << text;
  EXPECT_EQ(text.find("coordinator's evaluations"), text.npos);
  const json::value many = json::parse(R"({"id":3,"rounds":[{"round":7,
      "eval_metrics":{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1}}]})");
  const std::string cut = describe_run(many, {});
  EXPECT_NE(cut.find("\nmetrics of the coordinator's evaluations\nROUND"), cut.npos) << cut;
  EXPECT_NE(cut.find("\nand 2 more; --format json has all\n"), cut.npos) << cut;
}

TEST(RunView, AWarningCannotSteerTheTerminal) {
  const json::value run = json::parse(
      R"({"id":3,"name":"demo","state":"running","rounds":[
          {"round":1,"warnings":["the weight of cam-7\u001b[2K dominates"]}]})");
  EXPECT_NE(describe_run(run, {}).find("warning: round 1: the weight of cam-7\\x1b[2K dominates\n"),
            std::string::npos)
      << describe_run(run, {});
}

TEST(RunView, FitsATerminal) {
  const json::value run = json::parse(R"({"id":3,"name":"demo","state":"completed","seed":1,
    "submitted":"2026-11-20T09:10:11.123Z","started":null,"ended":null,"error":null,
    "rounds":[
      {"round":12345,"attempt":12,"state":"committed","cohort":100,"updates":100,
       "failures":[{"client":"cam-7","code":"no-data",
                    "reason":"the file /data/rows-of-last-week.csv is not there; restore it from the backup of 2026-11-19","bytes":0}],
       "train_loss":0.1234567,"eval_loss":0.1234567,"eval_accuracy":0.1234567,"seconds":123.456,
       "bytes_in":123400000,"bytes_out":123400000}]})");
  json::value diverged = run;
  for (const char* loss : {"train_loss", "eval_loss"}) {
    diverged.at("rounds").at(0).as_object()[loss] = 1e100;
  }
  const json::value runs = json::parse(R"([{"id":12,"name":"fashion-2nn","state":"completed",
    "seed":12345,"rounds_committed":20,"submitted":"2026-11-20T09:10:11.123Z",
    "started":"2026-11-20T09:10:11.123Z","ended":"2026-11-20T09:10:11.123Z"}])");
  const telemetry::Terminal terminal{.line_max = 80};
  for (const std::string& text : {describe_run(run, terminal), describe_run(diverged, terminal),
                                  describe_runs(runs, terminal)}) {
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) EXPECT_LE(line.size(), 80U) << text;
  }
  EXPECT_NE(describe_run(run, terminal).find("123.5 s 123.4 MB 123.4 MB\n"), std::string::npos)
      << describe_run(run, terminal);
  EXPECT_NE(describe_runs(runs, terminal).find("2026-11-20 09:10:11Z 2026-11-20 09:10:11Z\n"),
            std::string::npos)
      << describe_runs(runs, terminal);
}

TEST(RunView, TakesWhatItDoesNotKnow) {
  for (const char* text : {"{}", "[]", "7", R"({"rounds":7})", R"({"rounds":[3,null]})"}) {
    EXPECT_FALSE(describe_run(json::parse(text), {}).empty()) << text;
    EXPECT_FALSE(describe_runs(json::parse(text), {}).empty()) << text;
    EXPECT_FALSE(describe_end(json::parse(text)).empty()) << text;
  }
}

TEST(ModelHasher, HashesTheValuesHoweverTheFileComesInPieces) {
  const auto layout = model::Layout::make({{.name = "w", .shape = {5, 3}}}).value();
  model::Parameters parameters(layout);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    parameters.values()[i] = static_cast<float>(i);
  }
  Bytes file = model::safetensors_header(*layout, {{"note", "x"}});
  const ByteView values = as_bytes(parameters.values());
  file.insert(file.end(), values.begin(), values.end());
  Rng rng({.seed = 3});
  for (int trial = 0; trial < 50; ++trial) {
    ModelHasher hasher;
    for (ByteView rest = file; !rest.empty();) {
      const auto size = static_cast<std::size_t>(rng.below(std::min<std::size_t>(rest.size(), 20)));
      hasher.update(rest.first(size + 1));
      rest = rest.subspan(size + 1);
    }
    EXPECT_EQ(std::move(hasher).finish(), parameters.sha256());
  }
}

TEST(JobText, IsReadAsTheSameJob) {
  Job job;
  job.job.name = "a \"quoted\" \\ name\twith a tab, ü and \x01";
  job.job.seed = 8'999'999'999'999'999'999ULL;
  job.training.model.hidden = {3, 4};
  job.training.train.learning_rate = 0.1 + 0.2;
  job.round.deadline = std::chrono::milliseconds(1500);
  job.evaluate.dataset = "csv:C:\\data\\\"a\".csv";
  const std::string text = job_to_toml(job);
  const auto read = parse_job(text, "job");
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(job_to_toml(*read), text);
  EXPECT_EQ(parse_job("seed = 9100000000000000000", "job").error().code(), "setting-invalid")
      << "what a flag takes, a file must be able to say: TOML has 63 bits";
  EXPECT_EQ(read->job.name, job.job.name);
  EXPECT_EQ(read->job.seed, job.job.seed);
  EXPECT_EQ(read->evaluate.dataset, job.evaluate.dataset);
  EXPECT_EQ(read->training.train.learning_rate, job.training.train.learning_rate);
}

TEST(Documentation, TheReadmesTablesAreThoseOfTheCode) {
  const std::string readme =
      read_text_file(testing::source_root() / "coordinator/README.md", 1 << 20).value();
  CoordinatorSettings settings;
  config::Binder of_settings;
  settings.bind(of_settings);
  Job job;
  config::Binder of_job;
  job.bind(of_job);
  WorldOptions world;
  config::Binder of_world;
  world.bind(of_world);
  for (const auto& checked :
       {config::check_documentation(of_settings.documents(), "coordinator.toml", readme),
        config::check_documentation(of_job.documents(), "job", readme),
        config::check_documentation(of_world.documents(), "simulate", readme)}) {
    EXPECT_TRUE(checked) << checked.error().message();
  }
}

}  // namespace
}  // namespace starling::coordinator
