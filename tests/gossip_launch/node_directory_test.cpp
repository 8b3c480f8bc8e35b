// SPDX-License-Identifier: Apache-2.0
#include "gossip/launch/node_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "core/base/durable_file.h"
#include "core/config/toml_reader.h"
#include "core/data/load.h"
#include "core/identity/identity_directory.h"
#include "gossip/simulation/experiment.h"
#include "tests/support/temporary_directory.h"

namespace starling::gossip {
namespace {

const WallTime kNow = *parse_rfc3339("2026-11-20T09:00:00Z");

std::string value_of(const std::string& toml, std::string_view key) {
  const auto entries = *config::read_toml_entries(toml, "edge.toml");
  const auto found = std::ranges::find(entries, key, &config::TomlEntry::key);
  EXPECT_NE(found, entries.end()) << key;
  return found == entries.end() ? "" : found->text;
}

TEST(NodeDirectory, EveryNodeHasItsOwnAddress) {
  const auto places = *plan_nodes(300, 7, "/states", "/logs");
  std::set<std::string> addresses;
  for (const NodePlace& place : places) {
    addresses.insert(place.address);
    EXPECT_NE(place.port, 0);
    EXPECT_EQ(place.shown, place.port);
  }
  EXPECT_EQ(addresses.size(), 300U);
  EXPECT_EQ(places[0].address, "127.8.1.1");
  EXPECT_EQ(places[299].address, "127.8.2.46");
  EXPECT_EQ(places[299].name, "node-0300");
  EXPECT_EQ(places[299].directory, "/states/node-0300");
  EXPECT_EQ(places[299].log, "/logs/node-0300.log");
}

TEST(NodeDirectory, HoldsWhoItIs) {
  const testing::TemporaryDirectory scratch;
  const auto authority = *identity::CertificateAuthority::make({.federation = "launch"}, kNow);
  auto places = *plan_nodes(2, 7, scratch.path(), scratch.path());
  places[1].shown = 12345;
  NetOptions options;
  options.topology.nodes = 2;
  const auto member = make_node_directory(places[1], 1, options, {}, authority,
                                          {.host = "127.0.0.1", .port = 999}, kNow);
  ASSERT_TRUE(member) << member.error().message();
  const auto identity = identity::IdentityDirectory::load(places[1].directory / "identity");
  ASSERT_TRUE(identity);
  EXPECT_EQ(identity->identity().uri(), "starling://launch/peer/node-0002");
  EXPECT_EQ(identity->coordinator().text(), "127.0.0.1:999");
  EXPECT_EQ(member->name, "node-0002");
  EXPECT_EQ(member->key, identity->credentials().certificate.public_key_digest());
  EXPECT_EQ(member->address, places[1].address + ":12345");
  const auto toml = *read_text_file(places[1].directory / "edge.toml", 1 << 16);
  EXPECT_EQ(value_of(toml, "gossip.bind"), places[1].address);
  EXPECT_EQ(value_of(toml, "gossip.listen"),
            places[1].address + ":" + std::to_string(places[1].port));
}

TEST(NodeDirectory, PathsWithQuotesAreStillToml) {
  NetOptions options;
  options.data.dataset = "csv:/a \"b\"\\c.csv";
  const auto toml = edge_toml({.address = "127.0.0.1"}, 0, options, {});
  ASSERT_TRUE(toml);
  EXPECT_EQ(value_of(*toml, "data.dataset"), options.data.dataset);
}

// Of data without a test split, which are evaluated on what the nodes hold out.
TEST(NodeDirectory, APeerHoldsOutWhatSimulateDoes) {
  NetOptions options;
  options.data.dataset = "csv:/rows.csv";
  options.evaluate.hold_out = 0.25;
  EXPECT_EQ(value_of(*edge_toml({.address = "127.0.0.1"}, 0, options, {}), "data.hold-out"),
            "0.25");
  for (const char* evaluation : {"none", "csv:/others.csv"}) {
    options.evaluate.dataset = evaluation;
    const auto toml = *edge_toml({.address = "127.0.0.1"}, 0, options, {});
    EXPECT_EQ(toml.find("hold-out"), toml.npos) << evaluation;
  }
}

// What the file says is what simulate gives the node, row by row.
TEST(NodeDirectory, APeerHoldsThePartThatSimulateGivesIt) {
  for (const char* scheme : {"iid", "shards:per-part=1", "dirichlet:alpha=1,min=2,seed=3",
                             "balanced-dirichlet:alpha=0.5", "pathological:classes=2", "linear",
                             "quantity:alpha=2,min=3"}) {
    NetOptions options;
    options.data.dataset = "synthetic:rows=300,features=4,classes=3";
    options.data.partition = scheme;
    options.topology.nodes = 4;
    options.topology.spec = "ring";
    const auto experiment = prepare(options);
    ASSERT_TRUE(experiment) << scheme << experiment.error().message();
    for (Node node = 0; node < 4; ++node) {
      const auto toml = *edge_toml({.address = "127.0.0.1"}, node, options, {});
      const auto spec = data::DatasetSpec::parse(value_of(toml, "data.dataset"));
      const auto part = data::PartitionSpec::parse(value_of(toml, "data.partition"));
      ASSERT_TRUE(spec && part) << scheme;
      const data::DatasetView held{*data::load_part(*spec, *part)};
      const data::DatasetView& wanted = experiment->parts[node];
      ASSERT_EQ(held.size(), wanted.size()) << scheme;
      for (std::size_t row = 0; row < held.size(); ++row) {
        ASSERT_EQ(held.label(row), wanted.label(row)) << scheme;
        const auto mine = held.features(row);
        const auto theirs = wanted.features(row);
        ASSERT_TRUE(std::ranges::equal(mine, theirs)) << scheme;
      }
    }
  }
}

}  // namespace
}  // namespace starling::gossip
