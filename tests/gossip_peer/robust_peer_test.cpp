// SPDX-License-Identifier: Apache-2.0
// Robust rules on peers: the bits of the simulation, and a liar that is named once.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "core/train/evaluator.h"
#include "gossip/peer/far_neighbours.h"
#include "gossip/peer/repeated_fault.h"
#include "tests/gossip/simulation_cases.h"
#include "tests/gossip_peer/peer_world.h"
#include "tests/gossip_peer/world_invariants.h"

namespace starling::gossip {
namespace {

using starling::testing::PeerWorld;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

NetOptions robust_network(const std::string& rule, const std::string& algorithm = "dpsgd") {
  NetOptions options = testing::small_network_of_steps(200, "complete", 5, algorithm);
  options.robust.rule = rule;
  return options;
}

std::vector<std::string> about_far(const PeerWorld& world, std::size_t index) {
  std::vector<std::string> lines;
  for (const std::string& line : world.said(index)) {
    if (line.find("robust.rule") != line.npos || line.find("too far") != line.npos) {
      lines.push_back(line);
    }
  }
  return lines;
}

TEST(RobustPeers, TheModelsAreThoseOfTheSimulation) {
  for (const std::string algorithm : {"dpsgd", "epidemic", "qg-dsgdm", "diloco"}) {
    for (const std::string rule : {"clip", "remove"}) {
      NetOptions options = robust_network(rule, algorithm);
      options.run.steps = 30;
      PeerWorld world(options, 5);
      world.begin();
      world.run_to_end();
      const auto simulated = testing::run_well(options);
      Sha256 checksums;
      std::vector<std::uint64_t> of_peers;
      for (std::size_t i = 0; i < world.peers.size(); ++i) {
        EXPECT_THAT(about_far(world, i), IsEmpty()) << algorithm << rule;
        of_peers.push_back(checksum(std::as_bytes(*world.training(i).model())));
      }
      checksums.update(std::as_bytes(std::span(of_peers)));
      EXPECT_EQ(std::move(checksums).finish(), simulated.models) << algorithm << rule;
    }
  }
}

// What the last of five peers does, the others name in two lines and survive.
void expect_named(const std::string& rule, const std::string& what,
                  const std::function<float(float)>& lie) {
  SCOPED_TRACE(rule + ' ' + what);
  PeerWorld world(robust_network(rule), 5);
  world.on_transfer = [&](std::size_t from, std::size_t, const protocol::VectorTransfer&,
                          SharedBytes& data) {
    if (from != 4 || data.empty()) return;
    std::vector<float> values(data.size() / sizeof(float));
    std::memcpy(values.data(), data.view().data(), data.size());
    std::ranges::transform(values, values.begin(), lie);
    data = SharedBytes::own(to_bytes(as_bytes(std::span(values))));
  };
  world.begin();
  world.run_to_end();
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_FALSE(world.peers[i]->shell().machine().failure());
    EXPECT_THAT(about_far(world, i),
                ElementsAre(AllOf(HasSubstr("robust.rule = " + rule), HasSubstr("in exchange")),
                            AllOf(HasSubstr("models of"), HasSubstr("were too far"))));
    const auto evaluated = train::evaluate(*world.experiment.model, *world.training(i).model(),
                                           world.experiment.parts.front());
    EXPECT_GT(evaluated->accuracy, 0.85);
  }
}

TEST(RobustPeers, AMemberThatLiesIsNamedOnceWithTheCountAtTheEnd) {
  for (const std::string rule : {"clip", "remove"}) {
    expect_named(rule, "1e38", [](float) { return 1e38F; });
    expect_named(rule, "3e38", [](float x) { return x < 0 ? 3e38F : -3e38F; });
    expect_named(rule, "not a number",
                 [](float) { return std::numeric_limits<float>::quiet_NaN(); });
    expect_named(rule, "outlier", [](float x) { return x + 100; });
  }
}

TEST(FarNeighbours, ALineWhenItBeginsAndTheCountOnceItHasEnded) {
  FarNeighbours far("clip", {"cam-0", "cam-1"});
  const Bounded wrong{.distance = 123, .kept = 0.25, .is_far = true};
  EXPECT_FALSE(far.note(1, 1, {.distance = 1}));
  EXPECT_EQ(far.note(1, 2, wrong),
            "the model of cam-1 in exchange 2 is 123 away from this peer's, much farther than the "
            "other neighbours': robust.rule = clip mixes 0.25 of its weight; a line follows when "
            "this ends");
  // Every second one: still the same case.
  for (Exchange exchange = 3; exchange <= 40; ++exchange) {
    EXPECT_FALSE(far.note(1, exchange, exchange % 2 == 0 ? wrong : Bounded{}));
  }
  for (Exchange exchange = 41; exchange < 56; ++exchange) EXPECT_FALSE(far.note(1, exchange, {}));
  EXPECT_EQ(far.note(1, 56, {}),
            "20 models of cam-1 from exchange 2 to 40 were too far from this peer's");
  EXPECT_FALSE(far.note(1, 57, {}));
  EXPECT_THAT(far.finish(), IsEmpty());
  const Bounded no_number{.distance = INFINITY, .kept = 0, .is_far = true};
  EXPECT_THAT(*far.note(0, 60, no_number), HasSubstr("has values that are not numbers or are too"));
  EXPECT_THAT(far.finish(), ElementsAre("1 model of cam-0 from exchange 60 to 60 were too far "
                                        "from this peer's"));
}

// Where no rule is set too: whoever lies in every exchange costs two lines, not one an exchange.
TEST(RepeatedFaults, AMemberThatSendsHugeNumbersFillsNoLog) {
  for (const std::string algorithm : {"dpsgd", "gradient-tracking", "ad-psgd"}) {
    for (const float number : {1e30F, std::numeric_limits<float>::quiet_NaN()}) {
      PeerWorld world(testing::small_network_of_steps(300, "ring", 4, algorithm), 5);
      world.options.patience_min = std::chrono::milliseconds(50);  // ad-psgd waits for replies
      world.on_transfer = [&](std::size_t from, std::size_t, const protocol::VectorTransfer&,
                              SharedBytes& data) {
        if (from != 3 || data.empty()) return;
        const std::vector<float> wrong(data.size() / sizeof(float), number);
        data = SharedBytes::own(to_bytes(as_bytes(std::span(wrong))));
      };
      world.begin();
      world.run_to_end();
      std::size_t counts = 0;
      for (const std::size_t i : {0U, 2U}) {
        std::size_t lines = 0;
        for (const std::string& line : world.said(i)) {
          if (line.find("node-04 sent") != line.npos) ++lines;
          if (line.find("messages of node-04 from exchange") != line.npos) ++counts;
        }
        EXPECT_EQ(lines, 1U) << algorithm << " " << number;
      }
      EXPECT_EQ(counts, 2U) << algorithm << " " << number << world.status();
    }
  }
}

// What the member sends has its size and is all zeros: of push-sum, totals of nothing.
void give_nothing(PeerWorld& world, std::size_t member) {
  world.on_transfer = [member](std::size_t from, std::size_t, const protocol::VectorTransfer&,
                               SharedBytes& data) {
    if (from == member && !data.empty()) data = SharedBytes::own(Bytes(data.size()));
  };
}

// It confirms what is pushed to it, and its own totals stay 0. Did the others go on giving, none
// would have a weight to mix with within a hundred exchanges.
TEST(RobustPeers, WhoTakesAllWeightIsNamedAndStopsNobody) {
  for (const std::string algorithm : {"sgp", "push-sum"}) {
    PeerWorld world(testing::small_network_of_steps(600, "complete", 5, algorithm), 5);
    give_nothing(world, 4);
    world.begin();
    world.run_to_end();
    float furthest = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      std::size_t lines = 0;
      for (const std::string& line : world.said(i)) {
        lines += line.find("node-05 took more of it than it gave back") != line.npos ? 1 : 0;
      }
      EXPECT_GE(lines, 1U) << algorithm << " " << i;
      EXPECT_LE(lines, 3U) << algorithm << " " << i;
      const std::vector<float> own(world.training(i).model()->begin(),
                                   world.training(i).model()->end());
      const auto first = *world.training(0).model();
      for (std::size_t k = 0; k < own.size(); ++k) {
        furthest = std::max(furthest, std::abs(own[k] - first[k]));
      }
      const auto evaluated =
          train::evaluate(*world.experiment.model, own, world.experiment.parts.front());
      ASSERT_TRUE(evaluated);
      EXPECT_GT(evaluated->accuracy.value(), 0.85) << algorithm << " " << i;
    }
    EXPECT_LT(furthest, 0.2F) << algorithm;
  }
}

// Along one-way edges a node cannot see that the member it pushes to gives nothing to others.
TEST(RobustPeers, WhoTakesAllWeightAlongOneWayEdgesStopsNobody) {
  for (const std::string algorithm : {"sgp", "push-sum"}) {
    SCOPED_TRACE(algorithm);
    PeerWorld world(testing::small_network_of_steps(3000, "exponential", 8, algorithm), 5);
    give_nothing(world, 4);
    world.begin();
    world.run_to_end();
    EXPECT_TRUE(world.invariants().expect_all_mass());
    float furthest = 0;
    const auto first = *world.training(0).model();
    for (const std::size_t i : {1, 2, 3, 5, 6, 7}) {
      const auto own = *world.training(i).model();
      for (std::size_t k = 0; k < own.size(); ++k) {
        ASSERT_TRUE(std::isfinite(own[k]));
        furthest = std::max(furthest, std::abs(own[k] - first[k]));
      }
    }
    EXPECT_LT(furthest, 0.3F);
  }
}

// Over a new link what may be lost with the one before is sent again. A greeting over a link that
// is up is no new link.
TEST(RobustPeers, WhoGreetsAgainAndAgainIsSentNothingAgain) {
  PeerWorld world(testing::small_network_of_steps(100, "ring", 5, "dpsgd"), 5);
  constexpr std::size_t kGreets = 4;
  std::size_t sent = 0;
  world.on_transfer = [&](std::size_t, std::size_t to, const protocol::VectorTransfer& transfer,
                          SharedBytes&) {
    sent += to == kGreets && std::holds_alternative<protocol::MixMessage>(transfer.content);
  };
  std::size_t greetings = 0;
  std::function<void()> greet = [&] {
    gossip::PeerTransport* const links = world.invariants().links(kGreets);
    const protocol::PeerHello hello = world.session(kGreets).greeting();
    for (const protocol::Member neighbour : {0, 3}) links->send(neighbour, hello);
    ++greetings;
    world.scheduler.schedule(world.scheduler.now() + std::chrono::milliseconds(1), greet);
  };
  world.begin();
  world.run_until([&] { return world.progress(kGreets).exchange > 2; }, std::chrono::minutes(1),
                  "it runs");
  greet();
  world.run_to_end();
  EXPECT_GT(greetings, 50U);
  EXPECT_LE(sent, 2 * 100 + 10U);
}

TEST(RepeatedFaults, BeginAgainOnceTheyHaveEnded) {
  RepeatedFault fault("message", "were left out", {"cam-0", "cam-1"});
  EXPECT_FALSE(fault.ended(1, 1)) << "it never began";
  EXPECT_TRUE(fault.is_first(1, 2));
  EXPECT_FALSE(fault.is_first(1, 3));
  EXPECT_TRUE(fault.is_first(0, 3)) << "each member has its own";
  EXPECT_FALSE(fault.ended(1, 18));
  EXPECT_EQ(fault.ended(1, 19), "2 messages of cam-1 from exchange 2 to 3 were left out");
  EXPECT_TRUE(fault.is_first(1, 20));
  EXPECT_THAT(fault.finish(),
              ElementsAre("1 message of cam-0 from exchange 3 to 3 were left out",
                          "1 message of cam-1 from exchange 20 to 20 were left out"));
  EXPECT_THAT(fault.finish(), IsEmpty());
}

}  // namespace
}  // namespace starling::gossip
