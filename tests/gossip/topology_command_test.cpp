// SPDX-License-Identifier: Apache-2.0
// starling-gossip topology, as people and scripts use it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/App.hpp>
#include <boost/json.hpp>
#include <sstream>

#include "core/config/command_line.h"
#include "gossip/tool/commands.h"

namespace starling::gossip {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Answer {
  int code = 0;
  std::string out;
  std::string err;
};

Answer run(std::vector<std::string> words) {
  words.insert(words.begin(), {"starling-gossip", "topology"});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  std::ostringstream out;
  std::ostringstream err;
  const SystemClock clock;
  CommandContext context{clock, out, err, {}};
  CLI::App app("", "starling-gossip");
  config::set_up(app, "1.2.3");
  add_topology_command(app, context);
  const auto done = config::parse(app, arguments, out, err);
  const int code = done ? *done : context.run();
  return {code, out.str(), err.str()};
}

boost::json::object json(std::vector<std::string> words) {
  words.insert(words.end(), {"--format", "json"});
  const Answer answer = run(std::move(words));
  EXPECT_EQ(answer.code, 0) << answer.err;
  return boost::json::parse(answer.out).as_object();
}

TEST(TopologyCommand, TextHasALineAFact) {
  const Answer answer = run({"ring", "--nodes", "16"});
  EXPECT_EQ(answer.code, 0);
  EXPECT_THAT(answer.out, HasSubstr("slem                  0.949253\n"));
  EXPECT_THAT(answer.out, HasSubstr("to an error of 0.001  133 steps\n"));
  EXPECT_THAT(run({"equidyn:kind=undirected", "--nodes", "9"}).out,
              HasSubstr("(from drawn steps)"));
}

TEST(TopologyCommand, ARoundingErrorIsPrintedAs0) {
  EXPECT_THAT(run({"complete", "--nodes", "8"}).out, HasSubstr("smallest eigenvalue   0\n"));
}

TEST(TopologyCommand, JsonHasEveryField) {
  const auto object = json({"base-graph:k=1", "--nodes", "25"});
  for (const char* key : {"name", "nodes", "edges", "directed", "time_varying", "period", "degree",
                          "diameter", "connected", "slem", "spectral_gap", "rounds_to_consensus",
                          "lambda_min", "finite_time", "bounds", "sampled", "robustness"}) {
    EXPECT_TRUE(object.contains(key)) << key;
  }
  EXPECT_EQ(object.at("name"), "base-graph:k=1");
  EXPECT_EQ(object.at("period"), 9);
  EXPECT_EQ(object.at("finite_time"), 9);
  EXPECT_EQ(object.at("degree").at("max"), 1);
  EXPECT_EQ(object.at("slem").to_number<double>(), 0);
  EXPECT_TRUE(object.at("lambda_min").is_null());
}

TEST(TopologyCommand, SaysHowManyLiarsATopologyBears) {
  EXPECT_THAT(run({"complete", "--nodes", "16"}).out,
              HasSubstr("mu2                   16\n"
                        "lying neighbours      clip bears 3 for sure, remove 1  (6 or more of each "
                        "node are too many for any rule to be sure)\n"));
  EXPECT_THAT(run({"ring", "--nodes", "16"}).out, HasSubstr("clip bears 0 for sure, remove 0"));
  EXPECT_THAT(run({"exponential", "--nodes", "16"}).out,
              HasSubstr("lying neighbours      -  (known for static"));
  const auto bears = json({"complete", "--nodes", "16"}).at("robustness");
  EXPECT_EQ(bears.at("clip_sure"), 3);
  EXPECT_EQ(bears.at("remove_sure"), 1);
  EXPECT_EQ(bears.at("possible"), 5);
  EXPECT_NEAR(bears.at("mu2").to_number<double>(), 16, 1e-9);
  EXPECT_TRUE(json({"exponential", "--nodes", "16"}).at("robustness").is_null());
}

TEST(TopologyCommand, JsonNamesWhatIsNotExact) {
  const auto sampled = json({"equidyn:kind=undirected", "--nodes", "9"});
  EXPECT_EQ(boost::json::serialize(sampled.at("sampled")),
            R"(["slem","rounds_to_consensus","spectral_gap"])");
  EXPECT_TRUE(sampled.at("diameter").is_null());
  EXPECT_EQ(boost::json::serialize(sampled.at("bounds")), "[]");
}

TEST(TopologyCommand, OneStepIsNoPlural) {
  EXPECT_THAT(run({"complete", "--nodes", "4"}).out, HasSubstr(" 1 step\n"));
}

TEST(TopologyCommand, CsvIsTheMatrixOfAStep) {
  EXPECT_EQ(run({"path", "--nodes", "2", "--format", "csv"}).out, "0.5,0.5\n0.5,0.5\n");
  EXPECT_EQ(run({"one-peer-exponential", "--nodes", "4", "--format", "csv", "--step", "1"}).out,
            "0.5,0,0.5,0\n0,0.5,0,0.5\n0.5,0,0.5,0\n0,0.5,0,0.5\n");
  EXPECT_THAT(run({"directed-ring", "--nodes", "1001", "--format", "csv"}).out,
              StartsWith("receiver,sender,weight\n0,0,0.5\n0,1000,0.5\n1,1,0.5\n1,0,0.5\n"));
  EXPECT_EQ(run({"ring", "--nodes", "2", "--mixing", "lazy", "--format", "csv"}).out,
            "0.75,0.25\n0.25,0.75\n");
}

TEST(TopologyCommand, SvgDrawsEveryFamily) {
  for (const char* spec :
       {"ring", "torus", "star", "path", "hypercube", "exponential", "base-graph:k=2",
        "d-cliques:m=4", "d-cliques:m=4,inter=ring", "random-regular:d=3", "epidemic:s=3"}) {
    const Answer answer = run({spec, "--nodes", "16", "--format", "svg"});
    EXPECT_EQ(answer.code, 0) << spec << answer.err;
    EXPECT_THAT(answer.out, StartsWith("<svg ")) << spec;
    EXPECT_THAT(answer.out, HasSubstr("16 nodes</title>")) << spec;
  }
  EXPECT_THAT(run({"base-graph:k=1", "--nodes", "25", "--format", "svg"}).out,
              HasSubstr("8 of 9 steps"));
}

TEST(TopologyCommand, WrongUseEndsWithTwo) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"rign", "--nodes", "3"},
                                                {"hypercube", "--nodes", "6"},
                                                {"ring"},
                                                {"ring", "--nodes", "4", "--mixing", "x"},
                                                {"ring", "--nodes", "4", "--consensus-error", "2"},
                                                {"ring", "--nodes", "4", "--format", "png"}}) {
    const Answer answer = run(words);
    EXPECT_EQ(answer.code, 2) << words[0];
    EXPECT_THAT(answer.err, StartsWith("error: ")) << words[0];
  }
}

}  // namespace
}  // namespace starling::gossip
