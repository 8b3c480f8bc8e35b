// SPDX-License-Identifier: Apache-2.0
// Links and nodes with values of their own: files that are read, and what is written of a world.
#include "core/sim/link_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "core/sim/link_queues.h"
#include "core/sim/written_values.h"
#include "tests/support/temporary_directory.h"

namespace starling::sim {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

class LinkFile : public ::testing::Test {
 protected:
  std::string write(const std::string& text, const std::string& name = "links.csv") const {
    std::string path = (directory_.path() / name).string();
    std::ofstream(path) << text;
    return path;
  }
  static Network make(const NetworkOptions& options, std::uint32_t nodes = 4) {
    auto network = Network::make(options, nodes, 1);
    EXPECT_TRUE(network) << network.error().message();
    return std::move(*network);
  }

 private:
  testing::TemporaryDirectory directory_;
};

TEST_F(LinkFile, ReplacesWhatIsDrawn) {
  const NetworkOptions drawn{.latency = "uniform:1ms,9ms", .bandwidth = "1MB/s", .loss = 0.1};
  NetworkOptions options = drawn;
  options.links = write(
      "from,to,latency,bandwidth,loss\n"
      "0,1,20ms,10kB/s,0.5\n"
      "2,0,30ms,,\n"
      "0,2,40ms,,0\n"
      "3,,,500kB/s,\n");
  const Network network = make(options);
  EXPECT_DOUBLE_EQ(network.latency(0, 1), 0.02);
  EXPECT_DOUBLE_EQ(network.latency(1, 0), 0.02);
  EXPECT_DOUBLE_EQ(network.latency(0, 2), 0.04);
  EXPECT_DOUBLE_EQ(network.latency(2, 0), 0.03);
  EXPECT_EQ(network.latency(1, 2), make(drawn).latency(1, 2));
  EXPECT_EQ(network.loss(1, 0), 0.5);
  EXPECT_EQ(network.loss(0, 2), 0);
  EXPECT_EQ(network.loss(2, 0), 0.1);
  EXPECT_DOUBLE_EQ(network.bandwidth(3), 500'000);
  EXPECT_DOUBLE_EQ(network.bandwidth(0), 1'000'000);
  EXPECT_DOUBLE_EQ(network.link_bandwidth(1, 0).value(), 10'000);
  EXPECT_FALSE(network.link_bandwidth(2, 0));
}

// The slowest of the sender's link, the way between and the receiver's link decides; callers count
// the two links.
TEST_F(LinkFile, AWayOfItsOwnBandwidthAddsWhatItIsSlower) {
  const std::string links = write("from,to,bandwidth\n0,1,10kB/s\n0,2,5MB/s\n3,,100kB/s\n");
  const Network network = make({.latency = "20ms", .bandwidth = "1MB/s", .links = links});
  const auto seconds = [&](std::uint32_t to) {
    return network.pass({.from = 0, .to = to, .bytes = 10'000}).seconds;
  };
  EXPECT_DOUBLE_EQ(seconds(1), 0.02 + 1 - 0.01);
  EXPECT_DOUBLE_EQ(seconds(2), 0.02);
  EXPECT_DOUBLE_EQ(seconds(3), 0.02);
}

TEST_F(LinkFile, MessagesPassASlowLinkOneAfterTheOther) {
  const std::string links = write("from,to,bandwidth\n0,1,10kB/s\n");
  const Network network = make({.links = links});
  LinkQueues queues;
  const Network::Message message{.from = 0, .to = 1, .bytes = 10'000};
  EXPECT_DOUBLE_EQ(queues.passes(network, message, 1.5), 1.5);
  EXPECT_TRUE(queues.busy(0, 1, 1.4));
  EXPECT_DOUBLE_EQ(queues.passes(network, message, 1.6), 2.5);
  EXPECT_FALSE(queues.busy(0, 1, 2.5));
  EXPECT_DOUBLE_EQ(queues.passes(network, message, 9), 9);
  EXPECT_DOUBLE_EQ(queues.passes(network, {.from = 2, .to = 3, .bytes = 10'000}, 1.6), 1.6);
}

TEST_F(LinkFile, ALossOfOneLinkMakesTheNetworkLossy) {
  const std::string links = write("from,to,loss\n0,1,0.5\n");
  EXPECT_TRUE(make({.links = links}).lossy());
  EXPECT_TRUE(make({.retransmit = true, .links = links}).resends());
  EXPECT_FALSE(make({.links = write("from,to,loss\n0,1,0\n")}).lossy());
}

// What is sent again meets the loss of then: once the link is whole, all of it comes.
TEST_F(LinkFile, WhatIsLostDuringAnOutageComesAfterIt) {
  const std::string links = write("from,to,time,loss\n0,1,10s,0.999\n0,1,30s,0\n");
  const Network network = make({.retransmit = true, .links = links});
  for (std::uint64_t number = 0; number < 100; ++number) {
    const auto passage =
        network.pass({.from = 0, .to = 1, .number = number, .bytes = 1000, .sent = 20});
    EXPECT_FALSE(passage.lost);
    EXPECT_LE(passage.seconds, 10 + 0.2 + 0.1);
  }
}

TEST_F(LinkFile, WrongFilesAreRefusedWithLineAndColumn) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"",
       "line 1: the first line has no column 'from'; the columns are from, to, time, "
       "latency, bandwidth, loss"},
      {"from,latency\n0,1ms\n", "line 1: the first line has no column 'to'"},
      {"from,to,delay\n",
       "line 1: the columns are from, to, time, latency, bandwidth, loss, and 'delay' "
       "is none of them"},
      {"from,to,to\n", "line 1: two columns are called 'to'"},
      {"from,to,latency\n0,1,1ms\n0,4,1ms\n",
       "line 3: column 'to': '4' is not a node; nodes count from 0 to 3"},
      {"from,to,latency\n-1,2,1ms\n", "line 2: column 'from': '-1' is not a node"},
      {"from,to,latency\n0,0,1ms\n", "column 'to': '0' is the node that the link comes from"},
      {"from,to,latency\n0,1,1ms\n0,1,2ms\n", "line 3: column 'to': '1' has a row of this link"},
      {"from,to,latency\n0,1,fast\n",
       "line 2: column 'latency': 'fast' is not a duration; write it as 20ms"},
      {"from,to,latency\n0,1,uniform:1ms,2ms\n", "line 2: there are 4 fields, and 3 columns"},
      {"from,to,latency\n0,1,\"uniform:1ms,2ms\"\n", "'uniform:1ms,2ms' is not a duration"},
      {"from,to,bandwidth\n0,1,0B/s\n", "column 'bandwidth': '0B/s' is not a rate"},
      {"from,to,loss\n0,1,1\n", "column 'loss': '1' is above 0.999"},
      {"from,to,loss\n0,1,-0.1\n", "column 'loss': '-0.1' is not a number"},
      {"from,to,latency\n0,,1ms\n", "'1ms' is of no link: column 'to' is empty"},
      {"from,to,bandwidth\n0,,\n", "column 'bandwidth': '' is no bandwidth"},
      {"from,to,time,latency\n0,1,soon,1ms\n", "column 'time': 'soon' is not a duration"},
      {"from,to,time,latency\n0,1,5s,1ms\n0,1,5s,2ms\n", "line 3: column 'to': '1' has a row"},
      {"from,to,time,latency\n0,1,5s,1ms\n0,1,4s,2ms\n",
       "line 3: column 'time': '4s' is before that of the link's row above"},
      {"from,to,time,bandwidth\n0,,5s,1MB/s\n",
       "column 'time': '5s' is of an access link, whose bandwidth does not change"},
      {"from,to,bandwidth\n0,,1MB/s\n0,,1MB/s\n", "line 3: column 'from': '0' has a row without"},
  };
  for (const auto& [text, said] : cases) {
    const auto network = Network::make({.links = write(text)}, 4, 1);
    ASSERT_FALSE(network) << text;
    EXPECT_THAT(network.error().message(), ::testing::StartsWith("network.links: ")) << text;
    EXPECT_THAT(network.error().message(), HasSubstr(said)) << text;
    EXPECT_EQ(network.error().category(), ErrorCategory::kUsage);
  }
  const auto missing = Network::make({.links = "/no/such/file.csv"}, 4, 1);
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message(), EndsWith("there is no file /no/such/file.csv"));
}

TEST_F(LinkFile, WrongSpeedsAreRefusedWithLineAndColumn) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"node\n0\n", "the first line has no column 'speed'"},
      {"node,speed\n4,1\n", "line 2: column 'node': '4' is not a node"},
      {"node,speed\n1,1\n1,2\n", "line 3: column 'node': '1' has a row already"},
      {"node,speed\n1,\n", "line 2: column 'speed': '' is not a number"},
      {"node,speed\n1,0\n", "column 'speed': '0' is not between 0.000001 and 1000000"},
      {"node,speed\n1,fast\n", "column 'speed': 'fast' is not a number"}};
  for (const auto& [text, said] : cases) {
    const auto population = Population::make({.speeds = write(text)}, 4, 1);
    ASSERT_FALSE(population) << text;
    EXPECT_THAT(population.error().message(), ::testing::StartsWith("nodes.speeds: ")) << text;
    EXPECT_THAT(population.error().message(), HasSubstr(said)) << text;
  }
}

// Another seed draws other links and nodes; the files bring back those of the first.
TEST_F(LinkFile, WhatIsWrittenIsReadAsTheSameWorld) {
  const std::string some =
      write("from,to,latency,bandwidth,loss\n0,1,20ms,123.4567kB/s,0.25\n1,0,,,\n");
  const NetworkOptions options{.latency = "lognormal:20ms,0.5",
                               .bandwidth = "uniform:1MB/s,9MB/s",
                               .loss = 0.1,
                               .links = some};
  const Network drawn = make(options);
  NetworkOptions given = options;
  given.links = write(links_to_csv(drawn, 4, all_pairs(4)), "written.csv");
  const Network read = *Network::make(given, 4, 2);
  for (std::uint32_t a = 0; a < 4; ++a) {
    EXPECT_EQ(read.bandwidth(a), drawn.bandwidth(a));
    for (std::uint32_t b = 0; b < 4; ++b) {
      if (a == b) continue;
      EXPECT_EQ(read.latency(a, b), drawn.latency(a, b));
      EXPECT_EQ(read.loss(a, b), drawn.loss(a, b));
      EXPECT_EQ(read.link_bandwidth(a, b), drawn.link_bandwidth(a, b));
    }
  }
  NodeOptions nodes{.speed = "lognormal:1,0.5", .stragglers = 0.25};
  const Population people = *Population::make(nodes, 4, 1);
  nodes.speeds = write(speeds_to_csv(people, 4), "speeds.csv");
  const Population same = *Population::make(nodes, 4, 2);
  for (std::uint32_t node = 0; node < 4; ++node) EXPECT_EQ(same.speed(node), people.speed(node));
}

TEST_F(LinkFile, NoNodeStandsStill) {
  const auto population = Population::make({.speed = "0"}, 4, 1);
  ASSERT_FALSE(population);
  EXPECT_THAT(population.error().message(), HasSubstr("nodes.speed: no node has a speed of 0"));
}

// Each row from its time on; both directions, unless the other has rows of its own.
TEST_F(LinkFile, ALinkChangesWithTime) {
  const Network network = make({.latency = "5ms",
                                .links = write("from,to,time,latency,bandwidth,loss\n"
                                               "0,1,10s,20ms,,0.5\n0,1,20s,,1MB/s,0\n"
                                               "2,3,0s,1ms,,\n2,3,30s,2ms,,\n3,2,,9ms,,\n")});
  EXPECT_TRUE(network.links_change());
  EXPECT_TRUE(network.lossy());
  for (const auto& [from, to] : {std::pair(0U, 1U), std::pair(1U, 0U)}) {
    EXPECT_EQ(network.latency(from, to, 9.999), 0.005);
    EXPECT_EQ(network.latency(from, to, 10), 0.02);
    EXPECT_EQ(network.loss(from, to, 19.9), 0.5);
    EXPECT_EQ(network.link_bandwidth(from, to, 19.9), std::nullopt);
    EXPECT_EQ(network.latency(from, to, 1e6), 0.02);
    EXPECT_EQ(network.loss(from, to, 20), 0);
    EXPECT_EQ(network.link_bandwidth(from, to, 20), 1e6);
  }
  EXPECT_EQ(network.latency(2, 3, 31), 0.002);
  EXPECT_EQ(network.latency(3, 2, 31), 0.009);
  EXPECT_EQ(network.pass({.from = 0, .to = 1, .bytes = 1'000'000, .sent = 25}).seconds,
            0.02 + 1 - 1e6 / network.bandwidth(0));
  const std::string text = links_to_csv(network, 4, {{0, 1}, {0, 2}, {2, 3}});
  EXPECT_THAT(text, ::testing::StartsWith("from,to,time,latency,bandwidth,loss\n"
                                          "0,1,0s,5ms,,0\n0,1,10s,20ms,,0.5\n"
                                          "0,1,20s,20ms,1MB/s,0\n0,2,0s,5ms,,0\n"
                                          "2,3,0s,1ms,,0\n2,3,30s,2ms,,0\n3,2,0s,9ms,,0\n"));
  const Network read = make({.links = write(text, "written.csv")});
  EXPECT_EQ(links_to_csv(read, 4, {{0, 1}, {0, 2}, {2, 3}}), text);
}

TEST_F(LinkFile, NodesAreThereAtTheTimesOfTheirRows) {
  const Population people = *Population::make(
      {.presence = write("node,joins,leaves\n0,0s,10s\n0,20s,30s\n1,5s,\n2,,\n")}, 4, 1);
  EXPECT_TRUE(people.churns());
  EXPECT_EQ(people.up_from(0, 0), 0);
  EXPECT_EQ(people.up_until(0, 3), 10);
  EXPECT_EQ(people.up_from(0, 10), 20);
  EXPECT_EQ(people.up_until(0, 20), 30);
  EXPECT_EQ(people.up_from(0, 30), kNever);
  EXPECT_EQ(people.up_from(1, 0), 5);
  EXPECT_EQ(people.up_until(1, 5), kNever);
  EXPECT_EQ(people.up_from(2, 0), kNever);
  EXPECT_EQ(people.up_until(3, 0), kNever);
  EXPECT_EQ(presence_to_csv(people, 4, 100),
            "node,joins,leaves\n0,0s,10s\n0,20s,30s\n1,5s,\n2,,\n3,0s,\n");
}

TEST_F(LinkFile, WrongTimesOfNodesAreRefusedWithLineAndColumn) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"node,joins\n", "the first line has no column 'leaves'"},
      {"node,joins,leaves\n4,0s,\n", "line 2: column 'node': '4' is not a node"},
      {"node,joins,leaves\n1,2s,1s\n", "column 'leaves': '1s' is not after it joins"},
      {"node,joins,leaves\n1,,1s\n", "column 'leaves': '1s' is not after it joins"},
      {"node,joins,leaves\n1,0s,4s\n1,3s,\n", "line 3: column 'joins': '3s' is not after it left"},
      {"node,joins,leaves\n1,0s,\n1,3s,\n", "line 3: column 'node': '1' does not leave in its row"},
      {"node,joins,leaves\n1,now,\n", "column 'joins': 'now' is not a duration"}};
  for (const auto& [text, said] : cases) {
    const auto population = Population::make({.presence = write(text)}, 4, 1);
    ASSERT_FALSE(population) << text;
    EXPECT_THAT(population.error().message(), ::testing::StartsWith("nodes.presence: ")) << text;
    EXPECT_THAT(population.error().message(), HasSubstr(said)) << text;
  }
}

// What was drawn of crashes and joins, up to a time, is read as the same.
TEST_F(LinkFile, PresenceThatWasDrawnIsReadAsTheSame) {
  const NodeOptions options{.join_within = std::chrono::seconds(5),
                            .leave_after = std::chrono::seconds(300),
                            .crash_every = std::chrono::seconds(10),
                            .return_after = std::chrono::seconds(3)};
  const Population drawn = *Population::make(options, 6, 1);
  const Population read = *Population::make(
      {.presence = write(presence_to_csv(*Population::make(options, 6, 1), 6, 100))}, 6, 2);
  for (std::uint32_t node = 0; node < 6; ++node) {
    for (double time = 0; time <= 100; time += 0.37) {
      EXPECT_EQ(read.up_from(node, time), drawn.up_from(node, time));
      EXPECT_EQ(read.up_until(node, time), drawn.up_until(node, time));
    }
  }
}

TEST_F(LinkFile, NothingIsWrittenWhereAllAreAlike) {
  EXPECT_EQ(links_to_csv(make({}), 4, {{0, 1}}), "");
  EXPECT_EQ(speeds_to_csv(*Population::make({}, 4, 1), 4), "");
  EXPECT_EQ(links_to_csv(make({.links = write("from,to,latency\n0,1,20ms\n")}), 4, {{0, 1}}),
            "from,to,latency,bandwidth,loss\n0,1,20ms,,0\n");
}

}  // namespace
}  // namespace starling::sim
