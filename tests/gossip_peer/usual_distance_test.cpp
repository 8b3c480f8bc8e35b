// SPDX-License-Identifier: Apache-2.0
// Numbers that would ruin a model at once are left out by their sender's name; honest training on
// data as different as they come never is.
#include "gossip/peer/usual_distance.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/train/evaluator.h"
#include "tests/gossip/simulation_cases.h"
#include "tests/gossip_peer/peer_world.h"

namespace starling::gossip {
namespace {

using starling::testing::PeerWorld;

TEST(UsualDistance, RefusesWhatIsFarBeyondTheUsualAndLearnsNothingOfIt) {
  const std::vector<float> own(100, 0.5F);
  const auto at = [&](float distance) {
    std::vector<float> theirs = own;
    theirs[7] += distance;
    return theirs;
  };
  UsualDistance usual;
  EXPECT_FALSE(usual.accepts(1, at(3e38F), own));
  for (int i = 0; i < 40; ++i) EXPECT_TRUE(usual.accepts(1, at(2), own));
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(usual.accepts(1, at(1e3F), own));
  EXPECT_EQ(usual.distance(), 1000);
  EXPECT_EQ(usual.limit(), 8 * (1 + 5));
  // Each sender's own usual counts, where algorithms send sums of many models.
  for (int i = 0; i < 40; ++i) EXPECT_TRUE(usual.accepts(2, at(40), own));
  EXPECT_TRUE(usual.accepts(2, at(600), own));
}

// A model that is copied may be as far from one's own as a trained one is from the initial one.
TEST(UsualDistance, WhatIsCopiedMayBeFarButNotOfAnotherWorld) {
  const std::vector<float> own(100, 0.0F);
  using Copied = UsualDistance::Copied;
  const auto judged = [&](float each, protocol::Exchange ours = 1) {
    return UsualDistance::judge_copied(std::vector<float>(100, each), own, ours);
  };
  EXPECT_EQ(judged(0), Copied::kNear);
  EXPECT_EQ(judged(-50), Copied::kSuspect);
  EXPECT_EQ(judged(0.5F, 9), Copied::kNear);
  EXPECT_EQ(judged(-50, 9), Copied::kRefused) << "its own is trained";
  EXPECT_EQ(judged(3e37F), Copied::kRefused);
  EXPECT_EQ(judged(std::numeric_limits<float>::infinity()), Copied::kRefused);
  EXPECT_EQ(judged(std::numeric_limits<float>::quiet_NaN()), Copied::kRefused);
}

bool says_far(const PeerWorld& world) {
  return std::ranges::any_of(world.lines, [](const std::string& line) {
    return line.find(" away from th") != line.npos || line.find("too far from") != line.npos;
  });
}

// The last of four peers sends what becomes of its vectors.
void falsify(PeerWorld& world, std::function<SharedBytes(const SharedBytes&)> lie) {
  world.on_transfer = [lie = std::move(lie)](std::size_t from, std::size_t,
                                             const protocol::VectorTransfer&, SharedBytes& data) {
    if (from == 3 && !data.empty()) data = lie(data);
  };
}

SharedBytes all_equal(const SharedBytes& data, float number) {
  const std::vector<float> values(data.size() / sizeof(float), number);
  return SharedBytes::own(to_bytes(as_bytes(std::span(values))));
}

TEST(UsualDistance, HonestTrainingOnSkewedDataIsNeverLeftOut) {
  using Setting = std::pair<const char*, const char*>;
  for (const auto& [algorithm, topology] : {Setting{"dpsgd", "ring"},
                                            {"gradient-tracking", "exponential"},
                                            {"relaysgd", "path"},
                                            {"qg-dsgdm", "ring"},
                                            {"sgp", "exponential"},
                                            {"diloco", "ring"},
                                            {"choco", "ring"},
                                            {"all-reduce", "ring"},
                                            {"diloco-all", "ring"},
                                            {"ad-psgd", "ring"},
                                            {"push-sum", "exponential"}}) {
    NetOptions options = testing::small_network_of_steps(400, topology, 8, algorithm);
    options.data.partition = "balanced-dirichlet:alpha=0.1";
    options.train.local_steps_from = 100;  // then eight steps between two mixings
    options.train.train.local_steps = 8;
    options.train.train.learning_rate = 0.5;
    PeerWorld world(options, 3);
    world.begin();
    world.run_to_end();
    EXPECT_FALSE(says_far(world)) << algorithm << world.status();
  }
}

// Runs four peers of which the last one lies.
void expect_unspoilt(PeerWorld& world, const std::string& what) {
  world.begin();
  world.run_to_end();
  EXPECT_TRUE(says_far(world)) << what;
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_FALSE(world.peers[i]->shell().machine().failure()) << what;
    const auto evaluated = train::evaluate(*world.experiment.model, *world.training(i).model(),
                                           world.experiment.parts.front());
    EXPECT_GT(evaluated->accuracy, 0.85) << what;
  }
}

TEST(UsualDistance, AMemberThatSendsHugeNumbersSpoilsNothing) {
  using Setting = std::pair<const char*, float>;
  for (const auto& [algorithm, number] : {Setting{"dpsgd", 3e38F},
                                          {"dpsgd", 1e30F},
                                          {"gradient-tracking", 1e30F},
                                          {"ad-psgd", 1e30F},
                                          {"all-reduce", 3e38F},
                                          {"all-reduce", 1e30F},
                                          {"diloco-all", 1e30F}}) {
    PeerWorld world(testing::small_network_of_steps(300, "ring", 4, algorithm), 5);
    falsify(world, [&](const SharedBytes& data) { return all_equal(data, number); });
    expect_unspoilt(world, fmt::format("{} {}", algorithm, number));
  }
}

// Of every algorithm: no peer's run ends, and whoever sends to a peer what is no number, or the
// largest there is, is named by it.
TEST(UsualDistance, WhoSendsWhatIsNoNumberIsNamedAndNobodysRunEnds) {
  using Setting = std::pair<const char*, const char*>;
  for (const auto& [algorithm, topology] : {Setting{"dpsgd", "ring"},
                                            {"gradient-tracking", "ring"},
                                            {"relaysgd", "path"},
                                            {"qg-dsgdm", "ring"},
                                            {"detag", "ring"},
                                            {"diloco", "ring"},
                                            {"ad-psgd", "ring"},
                                            {"choco", "ring"},
                                            {"sgp", "ring"},
                                            {"push-sum", "ring"}}) {
    for (const float number : {3e38F, -3e38F, std::numeric_limits<float>::infinity(),
                               std::numeric_limits<float>::quiet_NaN()}) {
      PeerWorld world(testing::small_network_of_steps(60, topology, 4, algorithm), 5);
      falsify(world, [&](const SharedBytes& data) {
        Bytes bytes = to_bytes(data.view());
        for (std::size_t at = 0; at + sizeof number <= bytes.size(); at += sizeof number) {
          std::memcpy(bytes.data() + at, &number, sizeof number);
        }
        return SharedBytes::own(std::move(bytes));
      });
      world.begin();
      world.run_to_end();
      bool named = false;
      for (std::size_t i = 0; i < 3; ++i) {
        const auto& failure = world.peers[i]->shell().machine().failure();
        EXPECT_FALSE(failure) << algorithm << " " << number << ": " << failure->message();
        named = named || std::ranges::any_of(world.said(i), [](const std::string& line) {
                  return line.find("node-04 sent") != line.npos;
                });
      }
      EXPECT_TRUE(named) << algorithm << " " << number;
    }
  }
}

TEST(UsualDistance, KnowsWhoMayHaveSpoiltAModel) {
  const std::vector<float> own(100, 0.5F);
  std::vector<float> theirs = own;
  UsualDistance usual;
  theirs[0] += 20;
  EXPECT_TRUE(usual.accepts(2, theirs, own));
  EXPECT_FALSE(usual.suspect());
  theirs[0] += 4000;
  EXPECT_TRUE(usual.accepts(3, theirs, own)) << "as long as little was seen";
  EXPECT_EQ(usual.suspect(), 3U);
  const std::string sentence = diverged(41, "node-3").message();
  EXPECT_NE(sentence.find("step 42, after node-3 sent"), std::string::npos);
  EXPECT_EQ(sentence.find("learning-rate"), std::string::npos);
  EXPECT_NE(diverged(41).message().find("learning-rate"), std::string::npos);
}

// In an all-reduce it costs the others one more attempt, and they agree all the same.
TEST(UsualDistance, WhoSendsHugeNumbersNowAndThenHoldsNobodyUp) {
  for (const float number : {3e38F, 1e30F, std::numeric_limits<float>::quiet_NaN()}) {
    PeerWorld world(testing::small_network_of_steps(300, "ring", 4, "all-reduce"), 5);
    int sent = 0;
    falsify(world, [&](const SharedBytes& data) {
      return ++sent % 50 != 0 || world.progress(3).exchange > 200 ? data : all_equal(data, number);
    });
    world.begin();
    world.run_to_end();
    EXPECT_TRUE(says_far(world)) << number;
    for (const std::size_t i : {1U, 2U}) EXPECT_EQ(world.model(i), world.model(0)) << number;
    EXPECT_LT(world.scheduler.now() - TimePoint{}, std::chrono::seconds(60)) << number;
  }
}

// Messages that are encoded are judged by what they would do.
TEST(UsualDistance, AMemberThatEncodesHugeNumbersSpoilsNothing) {
  struct Attack {
    const char* algorithm;
    const char* compressor;
    std::size_t at;  // of a number in the encoding
  };
  for (const Attack& attack :
       {Attack{"choco", "sign", 0}, Attack{"choco", "qsgd", 0}, Attack{"choco", "top-k", 4}}) {
    NetOptions options = testing::small_network_of_steps(300, "ring", 4, attack.algorithm);
    options.algorithm.compressor = attack.compressor;
    options.algorithm.ratio = 0.2;
    PeerWorld world(options, 5);
    falsify(world, [&](const SharedBytes& data) {
      Bytes bytes = to_bytes(data.view());
      const float huge = 1e30F;
      std::memcpy(bytes.data() + attack.at, &huge, sizeof huge);
      return SharedBytes::own(std::move(bytes));
    });
    expect_unspoilt(world, attack.compressor);
  }
}

// 2^18 in the first element of the total on each edge: within what the ledger can hold.
TEST(UsualDistance, AMemberThatPushesHugeMassSpoilsNothing) {
  for (const std::string algorithm : {"sgp", "push-sum"}) {
    PeerWorld world(testing::small_network_of_steps(300, "ring", 4, algorithm), 5);
    falsify(world, [&](const SharedBytes& data) {
      Bytes bytes = to_bytes(data.view());
      store_little<std::uint64_t>(bytes.data(),
                                  load_little<std::uint64_t>(bytes.data()) + (1ULL << 58));
      return SharedBytes::own(std::move(bytes));
    });
    expect_unspoilt(world, algorithm);
  }
}

// Members count the nodes of the tree beyond them. What none can have is not believed, nor passed
// on as one's own.
TEST(UsualDistance, AMemberThatCountsWhatIsNotThereSpoilsNothing) {
  for (const double count : {1e300, 1e3, 4.0, 1.5, 0.0, -1.0}) {
    PeerWorld world(testing::small_network_of_steps(300, "path", 4, "relaysgd"), 5);
    world.on_transfer = [&](std::size_t from, std::size_t, protocol::VectorTransfer& transfer,
                            SharedBytes&) {
      auto* const message = std::get_if<protocol::MixMessage>(&transfer.content);
      if (from == 3 && message != nullptr && message->scalar) message->scalar = count;
    };
    world.begin();
    world.run_to_end();
    for (const std::size_t i : {0U, 1U, 2U}) {
      EXPECT_FALSE(world.peers[i]->shell().machine().failure()) << count;
      const bool blames = std::ranges::any_of(world.said(i), [](const std::string& line) {
        return line.find("sent in exchange") != line.npos;
      });
      EXPECT_EQ(blames, i == 2) << count << ": only its neighbour, and only it";
      const auto evaluated = train::evaluate(*world.experiment.model, *world.training(i).model(),
                                             world.experiment.parts.front());
      EXPECT_GT(evaluated->accuracy, 0.85) << count;
    }
  }
}

// What is far is known from the epoch before, also of the first messages.
TEST(UsualDistance, AnotherEpochDoesNotForgetIt) {
  PeerWorld world(testing::small_network_of_steps(300, "ring", 4), 5);
  world.begin();
  world.run_to_exchange(0, 50);
  int sent = 0;
  world.on_transfer = [&](std::size_t from, std::size_t, const protocol::VectorTransfer& transfer,
                          SharedBytes& data) {
    const bool lies = from == 3 && transfer.epoch == 2 && !data.empty() && ++sent <= 2;
    if (lies) data = all_equal(data, 20);
  };
  world.publish(world.roster(2));
  world.run_to_exchange(0, 100);
  EXPECT_GE(sent, 2);
  EXPECT_TRUE(says_far(world));
}

}  // namespace
}  // namespace starling::gossip
