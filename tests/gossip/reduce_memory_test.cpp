// SPDX-License-Identifier: Apache-2.0
// All-reduce among members that forget what they promised: restarted processes, models that were
// asked for and did not come, and changes of the epoch. At most one mean of an exchange is backed.
// STARLING_SEEDS runs more seeds than those of every day.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/gossip/reduce_network.h"

namespace starling::collective {
namespace {

using testing::note;
using testing::ReduceNetwork;
using testing::sent_notes;
using testing::World;

std::uint64_t memory_seeds() {
  const char* const said = std::getenv("STARLING_SEEDS");
  return said == nullptr ? 600 : std::strtoull(said, nullptr, 10);
}

// Member 1 of 3 holds a mean with member 0, has missed its commit, and was told that the others are
// further.
TEST(AllReduceMemory, WhoGivesUpACopyHoldsTheMeanThatItHeld) {
  AllReduceMachine machine({.shape = {.choice = ShapeRule::Choice::kTree}}, 1, 1,
                           testing::member_names(3));
  TimePoint now{};
  (void)machine.on(Begin{testing::at(0), share({1, 2})}, now);
  (void)machine.on(note(0, reduce::List{{0, 1}}, 0, 1), now);
  const PieceReceived mean{0, 1, testing::at(0), 1, place_of(Phase::kDown, 0), share({3, 4})};
  ASSERT_EQ(sent_notes<reduce::Done>(machine.on(mean, now)).size(), 1U);
  now += std::chrono::seconds(1);
  (void)machine.on(note(0, reduce::Ahead{{0, 2}}, 5, 0), now);
  const auto further = machine.on(note(2, reduce::Ahead{{0, 2}}, 5, 0), now);
  ASSERT_TRUE(std::holds_alternative<CatchUp>(further.back()));
  const auto again = machine.on(Begin{testing::at(0), share({1, 2})}, now);
  const auto registrations = sent_notes<reduce::Register>(again);
  ASSERT_EQ(registrations.size(), 1U);
  EXPECT_GT(registrations[0].attempt, 1U);
  ASSERT_TRUE(registrations[0].held);
  EXPECT_EQ(registrations[0].held->attempt, 1U);
  EXPECT_EQ(registrations[0].held->members, (Members{0, 1}));
}

// Member 0 of two was started again, and nobody else is there.
TEST(AllReduceMemory, OneOfTwoThatWasStartedAgainGoesOnAlone) {
  AllReduceMachine machine({}, 1, 0, testing::member_names(2), {}, {}, Memory::kNone);
  TimePoint now{};
  auto actions = machine.on(Begin{testing::at(0), share({1, 2})}, now);
  const auto has_finished = [&] {
    return std::ranges::any_of(actions,
                               [](const Action& a) { return std::holds_alternative<Finished>(a); });
  };
  for (int i = 0; i < 100 && !has_finished(); ++i) {
    const auto due = machine.next_deadline();
    ASSERT_TRUE(due);
    now = std::max(now, *due);
    actions = machine.on(Tick{}, now);
  }
  EXPECT_TRUE(has_finished());
}

// Gatherer 0 of 3 has sent the list; member 1 comes back, and has forgotten that it is in it.
TEST(AllReduceMemory, AListWithAMemberThatForgotItIsGivenUp) {
  AllReduceMachine machine({}, 1, 0, testing::member_names(3));
  const TimePoint now{};
  (void)machine.on(Begin{testing::at(0), share({1, 2})}, now);
  (void)machine.on(note(1, reduce::Register{}, 0, 1), now);
  const auto listed = machine.on(note(2, reduce::Register{}, 0, 1), now);
  ASSERT_EQ(sent_notes<reduce::List>(listed).size(), 2U);
  const auto again = machine.on(note(1, reduce::Register{}, 0, 1), now);
  EXPECT_EQ(sent_notes<reduce::List>(again).size(), 1U) << "its list was lost";
  const auto asked = machine.on(note(1, reduce::Register{.fresh = true}, 0, 1), now);
  EXPECT_TRUE(sent_notes<reduce::List>(asked).empty());
  const auto asks = sent_notes<reduce::Ask>(asked);
  ASSERT_FALSE(asks.empty());
  EXPECT_GT(asks[0].attempt, 1U);
}

// Member 0 of 4 gathers for the others before it begins. Its list came to nothing, and they
// register again: in one attempt there would be two means.
TEST(AllReduceMemory, AnAttemptIsGivenNoSecondList) {
  AllReduceMachine machine({}, 1, 0, testing::member_names(4));
  TimePoint now{};
  std::size_t lists = 0;
  const auto tick_until_it_is_given_up = [&] {
    for (auto due = machine.next_deadline(); due; due = machine.next_deadline()) {
      now = std::max(now, *due);
      for (const auto& list : sent_notes<reduce::List>(machine.on(Tick{}, now))) {
        if (list.attempt == 1) ++lists;
      }
    }
  };
  for (const Member m : {1U, 2U, 3U}) (void)machine.on(note(m, reduce::Register{}, 0, 1), now);
  tick_until_it_is_given_up();
  ASSERT_EQ(lists, 3U);
  for (const Member m : {1U, 2U, 3U}) {
    const auto asks = sent_notes<reduce::Ask>(machine.on(note(m, reduce::Register{}, 0, 1), now));
    ASSERT_EQ(asks.size(), 1U);
    EXPECT_GT(asks[0].attempt, 1U);
  }
  tick_until_it_is_given_up();
  EXPECT_EQ(lists, 3U);
}

World quick_world(std::size_t members, Exchange exchanges, std::uint64_t seed) {
  World world{.seed = seed, .members = members, .floats = 5, .exchanges = exchanges};
  world.spread = 0.3;
  world.options.stragglers = {.initial = std::chrono::seconds(1), .min = std::chrono::seconds(1)};
  return world;
}

std::size_t unbacked(const ReduceNetwork& network, Member member) {
  return static_cast<std::size_t>(std::ranges::count_if(
      network.finished(member),
      [](const Finished& result) { return result.next.backed < result.next.exchange; }));
}

// Nobody else is left who could hold another mean.
TEST(AllReduceMemory, AllThatWereStartedAgainBackTheirFirstMean) {
  const World world = quick_world(5, 20, 1);
  ReduceNetwork network(world);
  for (Member m = 0; m < 5; ++m) network.after(2, [&network, m] { network.restart(m, 2, 1); });
  ASSERT_EQ(network.run(), "") << network.trace();
  EXPECT_EQ(network.wrong_results(), "");
  for (Member m = 0; m < 5; ++m) EXPECT_LE(unbacked(network, m), 1U) << network.trace();
}

// A power cut: one checkpoint is newer than the others. Its member alone is further, and those who
// are behind end exchanges sooner than anybody has to answer.
TEST(AllReduceMemory, AllThatWereStartedAgainComeToTheOneThatIsFurther) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    World world = quick_world(5, 60, seed);
    world.spread = 0.1;
    ReduceNetwork network(world);
    for (Member m = 0; m < 5; ++m) {
      network.after(2, [&network, m] { network.restart(m, m == 4 ? 1 : 4, 1); });
    }
    ASSERT_EQ(network.run(), "") << network.trace();
    EXPECT_EQ(network.wrong_results(), "");
    for (Member m = 0; m < 5; ++m) {
      EXPECT_EQ(network.finished(m).back().next, testing::at(60)) << m << " " << seed;
      EXPECT_LE(unbacked(network, m), 20U) << m << " " << seed;
    }
  }
}

// More than half were not: they back what they reduce with the others, whoever gathered before.
TEST(AllReduceMemory, WhoWasStartedAgainTakesPartAmongAMajorityThatWasNot) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    ReduceNetwork network(quick_world(5, 30, seed));
    network.after(1, [&network] { network.kill(4); });  // all are not there again
    network.after(3, [&network] { network.restart(0, 0, 0.5); });
    ASSERT_EQ(network.run(), "") << network.trace();
    EXPECT_EQ(network.wrong_results(), "");
    for (const Member m : {1U, 2U, 3U}) {
      EXPECT_EQ(network.finished(m).back().members.size(), 4U) << network.trace();
      EXPECT_EQ(network.finished(m).back().next, testing::at(30));
    }
  }
}

// A majority cannot be found without those that were started again, and one is gone: they go on
// with means that are not backed.
TEST(AllReduceMemory, WithoutAMajorityThatRemembersTheyGoOnUnbacked) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    ReduceNetwork network(quick_world(5, 30, seed));
    network.after(1, [&network] { network.kill(4); });
    for (const Member m : {0U, 1U}) {
      network.after(3, [&network, m] { network.restart(m, 0, 0.5); });
    }
    ASSERT_EQ(network.run(), "") << network.trace();
    EXPECT_EQ(network.wrong_results(), "");
    for (Member m = 0; m < 4; ++m) {
      const Finished& last = network.finished(m).back();
      EXPECT_EQ(last.members.size(), 4U) << network.trace();
      EXPECT_LT(last.next.backed, last.next.exchange) << network.trace();
    }
    EXPECT_LT(network.exchange_seconds().size(), 30U);
  }
}

// One exchange of a new epoch is not backed where not all take part; none where all do.
TEST(AllReduceMemory, ANewEpochCostsOneExchangeThatIsNotBackedAtMost) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    for (const bool one_is_gone : {false, true}) {
      World world = quick_world(5, 30, seed);
      if (!one_is_gone) world.options.stragglers.min = std::chrono::seconds(10);
      ReduceNetwork network(world);
      if (one_is_gone) network.after(1, [&network] { network.kill(4); });
      network.after(4, [&network] { network.change_epoch(0.2); });
      ASSERT_EQ(network.run(), "") << network.trace();
      EXPECT_EQ(network.wrong_results(), "");
      for (Member m = 0; m < 4; ++m) {
        EXPECT_LE(unbacked(network, m), one_is_gone ? 1U : 0U) << m << "\n" << network.trace();
        EXPECT_EQ(network.finished(m).back().next, testing::at(30));
      }
    }
  }
}

TEST(AllReduceMemory, RandomRestartsFailedCopiesAndEpochs) {
  for (std::uint64_t seed = 1; seed <= memory_seeds(); ++seed) {
    Rng rng({.seed = seed, .purpose = Purpose::kTest, .node = 12});
    World world = quick_world(3 + rng.below(5), 14, seed);
    world.options.stragglers.min = std::chrono::milliseconds(20 + rng.below(500));
    world.options.shape.choice =
        rng.below(2) == 0 ? ShapeRule::Choice::kRing : ShapeRule::Choice::kTree;
    world.copies_fail = rng.below(2) == 0 ? 0.5 : 0;
    world.latency = rng.below(2) == 0 ? 0.005 : 0.05;
    world.spread = 0.02 + 0.3 * rng.uniform();
    ReduceNetwork network(world);
    const auto any = [&] { return static_cast<Member>(rng.below(world.members)); };
    for (std::uint64_t i = 2 + rng.below(8); i > 0; --i) {
      const Member a = any();
      const auto b = static_cast<Member>((a + 1 + rng.below(world.members - 1)) % world.members);
      const double when = rng.uniform() * 5;
      const double length = rng.uniform() * 3;
      switch (rng.below(6)) {
        case 0:
        case 1:
        case 2: {
          const std::uint64_t exchanges = rng.below(4);
          network.after(when, [&network, a, exchanges, length] {
            network.restart(a, exchanges, length / 3);
          });
          break;
        }
        case 3:
          network.after(when, [&network, length] { network.change_epoch(length / 3); });
          break;
        case 4:
          network.after(when, [&network, a, b, length] { network.disconnect(a, b, length); });
          break;
        default:
          network.after(when, [&network, a, length] { network.pause(a, length); });
      }
    }
    if (rng.below(2) == 0) {  // a part without a majority
      const double when = rng.uniform() * 4;
      for (Member a = 0; a < world.members / 2; ++a) {
        for (auto b = static_cast<Member>(world.members / 2); b < world.members; ++b) {
          network.after(when, [&network, a, b] { network.disconnect(a, b, 5); });
        }
      }
    }
    ASSERT_EQ(network.run(), "") << "seed " << seed << "\n" << network.trace();
    ASSERT_EQ(network.wrong_results(), "") << "seed " << seed << "\n" << network.trace();
  }
}

}  // namespace
}  // namespace starling::collective
