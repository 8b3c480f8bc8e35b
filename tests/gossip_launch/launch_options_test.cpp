// SPDX-License-Identifier: Apache-2.0
#include "gossip/launch/launch_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "core/base/durable_file.h"
#include "gossip/algorithms/algorithm_catalogue.h"
#include "gossip/launch/fault_script.h"
#include "tests/gossip_launch/readme_examples.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_directory.h"

namespace starling::gossip {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

TEST(LaunchOptions, TheReadmeHasEveryKey) {
  LaunchOptions launch;
  ChaosOptions chaos;
  config::Binder binder;
  binder.bind("launch", launch);
  binder.bind("chaos", chaos);
  const auto readme = read_text_file(testing::source_root() / "gossip/README.md", 1 << 20);
  ASSERT_TRUE(readme);
  const auto checked = config::check_documentation(binder.documents(), "launch", *readme);
  EXPECT_TRUE(checked) << checked.error().message() << "\n"
                       << config::to_markdown(binder.documents());
}

std::string option_refusal(std::string_view toml) {
  LaunchConfig config;
  config::Binder binder;
  config.bind(binder);
  const auto read = binder.read_toml(toml, "net.toml");
  EXPECT_TRUE(read) << read.error().message();
  const auto checked = check_launchable(binder, config.net);
  return checked ? "" : checked.error().message();
}

TEST(LaunchOptions, WhatOnlyASimulatedNetworkHasIsRefused) {
  EXPECT_EQ(option_refusal("steps = 10\n[network]\nlatency = \"5ms\"\nsplits = \"1s-2s:2\"\n"), "");
  EXPECT_THAT(option_refusal("[nodes]\npresence = \"presence.csv\"\n"),
              HasSubstr("nodes.presence describes simulated devices"));
  EXPECT_THAT(option_refusal("[attack]\nkind = \"alie\"\n"), HasSubstr("attack.kind"));
  EXPECT_THAT(option_refusal("virtual-time = \"10s\"\n"), HasSubstr("virtual-time"));
  EXPECT_THAT(option_refusal("[network]\nloss = 0.1\n"), HasSubstr("network.loss"));
  EXPECT_THAT(option_refusal("[network]\njitter = \"1ms\"\n"), HasSubstr("network.jitter"));
  EXPECT_THAT(option_refusal("[topology]\nnodes = 1001\n"), HasSubstr("at most 1000"));
}

TEST(LaunchOptions, AlgorithmsAndTopologiesOfTheProgramAreRefused) {
  AlgorithmCatalogue own;
  own.add("median", {.make = [](const Plan&, Node, std::span<const float>) { return nullptr; }});
  own.topologies().add("chords", [](const topologies::Request& request) {
    return Result<topologies::Blueprint>(request.impossible("it is never built"));
  });
  const auto refusal = [&](const std::string& algorithm, const std::string& topology) {
    LaunchConfig config;
    config.net.algorithm.own = &own;
    config::Binder binder;
    config.bind(binder);
    config.net.algorithm.name = algorithm;
    config.net.topology.spec = topology;
    const auto checked = check_launchable(binder, config.net);
    return checked ? "" : checked.error().message();
  };
  EXPECT_EQ(refusal("all-reduce:group=2", "exponential"), "");
  EXPECT_THAT(refusal("median", "ring"),
              HasSubstr("launch takes only built-in algorithms: its peers are starling-edge"));
  EXPECT_THAT(refusal("dpsgd", "chords:k=2"), HasSubstr("launch takes only built-in topologies"));
}

TEST(LaunchOptions, TheReadmesExamplesMayBeLaunched) {
  EXPECT_EQ(option_refusal(readme_network()), "");
  const auto script = read_fault_script(readme_events(), "faults.toml", 25, 1);
  EXPECT_TRUE(script) << script.error().message();
}

TEST(LaunchOptions, MembersAreToldWhatIsNotADefault) {
  NetOptions options;
  EXPECT_EQ(roster_settings(options, false), Settings({{"peers.lossy", "false"}}));
  options.run.seed = 7;
  options.topology.spec = "ring";
  options.train.train.local_steps = 4;
  EXPECT_THAT(roster_settings(options, true),
              UnorderedElementsAre(Pair("seed", "7"), Pair("topology.spec", "ring"),
                                   Pair("train.local-steps", "4"), Pair("peers.lossy", "true")));
}

TEST(LaunchOptions, LinksAreAsTheSimulatedNetworks) {
  NetOptions options;
  options.topology.nodes = 4;
  options.network.latency = "uniform:5ms,50ms";
  options.network.bandwidth = "8Mbit/s";
  options.network.splits = "10s-70s:2";
  const auto faults = network_faults(options);
  ASSERT_TRUE(faults);
  const auto network = sim::Network::make(options.network, 4, options.run.seed);
  EXPECT_EQ(faults->links.size(), 12U);
  for (const auto& [link, condition] : faults->links) {
    EXPECT_EQ(condition.delay, from_seconds(network->latency(link.first, link.second)));
    EXPECT_EQ(condition.bytes_per_second, 1e6);
    EXPECT_FALSE(condition.held);
  }
  ASSERT_EQ(faults->splits.size(), 1U);
  const FaultEvent& split = faults->splits[0];
  EXPECT_EQ(split.at, seconds(10));
  EXPECT_EQ(split.lasts, seconds(60));
  for (const auto& [from, to] : split.links) {
    EXPECT_TRUE(network->separated_until(from, to, 10.0));
  }
  EXPECT_EQ(split.links.size(), 2 * split.nodes.size() * (4 - split.nodes.size()));
}

TEST(LaunchOptions, LinksOfAFileAreTaken) {
  const starling::testing::TemporaryDirectory directory;
  NetOptions options;
  options.topology.nodes = 3;
  options.network.latency = "5ms";
  options.network.bandwidth = "8Mbit/s";
  options.network.links = (directory.path() / "links.csv").string();
  std::ofstream(options.network.links) << "from,to,latency,bandwidth\n0,1,70ms,100kB/s\n"
                                          "0,2,,9GB/s\n2,,,500kB/s\n";
  const auto links = network_faults(options).value().links;
  EXPECT_EQ(links.at({1, 0}).delay, milliseconds(70));
  EXPECT_EQ(links.at({1, 0}).bytes_per_second, 1e5);
  EXPECT_EQ(links.at({0, 2}).delay, milliseconds(5));
  EXPECT_EQ(links.at({0, 2}).bytes_per_second, 5e5);
  std::ofstream(options.network.links) << "from,to,loss\n0,1,0.1\n";
  EXPECT_THAT(network_faults(options).error().message(),
              HasSubstr("network.links has a loss from node 0 to node 1: losses are of simulated"));
  std::ofstream(options.network.links) << "from,to,time,latency\n0,1,5s,10ms\n";
  EXPECT_THAT(network_faults(options).error().message(),
              HasSubstr("network.links has a column time: links of real processes change by"));
}

}  // namespace
}  // namespace starling::gossip
