// SPDX-License-Identifier: Apache-2.0
// Means are named by their SHA-256: what is fetched is the one that was named, and an exchange ends
// with one mean also where a member changes what it passes on.
#include <gtest/gtest.h>

#include "tests/gossip/reduce_network.h"

namespace starling::collective {
namespace {

using testing::note;
using testing::ReduceNetwork;
using testing::sent_notes;
using testing::World;

Floats all_floats(float value) { return share(std::vector<float>(8, value)); }

Sha256Digest digest_of_floats(const Floats& floats) { return sha256(as_bytes(floats.values)); }

reduce::Commit commit_of(Members members, const Floats& mean, Member holder) {
  return {std::move(members), digest_of_floats(mean), 3, holder};
}

// Of attempt 1.
reduce::Standing standing(Members members, const Floats& mean, Member holder) {
  return {{1, std::move(members), digest_of_floats(mean)}, holder};
}

PieceReceived mean_from(Member from, std::uint32_t attempt, const Floats& mean) {
  return {from, 1, {}, attempt, place_of(Phase::kResult, 0), mean};
}

bool is_said_of(std::string_view who, const std::vector<Action>& actions) {
  return std::ranges::any_of(actions, [&](const Action& action) {
    const auto* said = std::get_if<Say>(&action);
    return said != nullptr && said->line.find(who) != std::string::npos;
  });
}

// Member 1 of 4, with gatherer 0.
class AFetchedMean : public ::testing::Test {
 protected:
  AFetchedMean() : machine_({}, 1, 1, testing::member_names(4)) {
    (void)on(Begin{testing::at(0), all_floats(9)});
  }

  std::vector<Action> on(Event event) { return machine_.on(std::move(event), TimePoint{}); }

  AllReduceMachine machine_;
};

TEST_F(AFetchedMean, OfACommitIsAskedForOfTheNextWhereItIsAnother) {
  const auto asked = on(note(0, commit_of({0, 2, 3}, all_floats(1), 2), 0, 3));
  ASSERT_EQ(sent_notes<reduce::Want>(asked, 2).size(), 1U);
  EXPECT_EQ(sent_notes<reduce::Want>(asked, 2)[0].sha256, digest_of_floats(all_floats(1)));
  const auto other = on(mean_from(2, 3, all_floats(2)));
  EXPECT_TRUE(is_said_of("member 2", other));
  EXPECT_EQ(sent_notes<reduce::Want>(other, 0).size(), 1U);
  EXPECT_TRUE(on(mean_from(2, 3, all_floats(1))).empty()) << "it is not asked any more";
  (void)on(note(3, commit_of({0, 2, 3}, all_floats(1), 2), 0, 3));
  const auto next = on(note(0, reduce::NotYet{}, 0, 0));
  EXPECT_TRUE(sent_notes<reduce::Want>(next, 2).empty());
  const auto ended = on(mean_from(0, 3, all_floats(1)));
  ASSERT_TRUE(std::holds_alternative<Finished>(ended.back()));
  EXPECT_EQ(std::get<Finished>(ended.back()).mean.values[0], 1.0F);
}

TEST_F(AFetchedMean, OfAListThatIsAnotherIsNotHeld) {
  const auto listed = [&](Attempt attempt, Member holder) {
    return on(note(0, standing({0, 2, 3}, all_floats(1), holder), 0, attempt));
  };
  ASSERT_EQ(sent_notes<reduce::Want>(listed(1, 2), 2).size(), 1U);
  const auto other = on(mean_from(2, 1, all_floats(2)));
  EXPECT_TRUE(is_said_of("member 2", other));
  EXPECT_TRUE(sent_notes<reduce::Done>(other, 0).empty());
  const auto again = sent_notes<reduce::Register>(other, 0);
  ASSERT_EQ(again.size(), 1U);
  EXPECT_FALSE(again[0].held);
  ASSERT_TRUE(again[0].blame);
  EXPECT_EQ(again[0].blame->member, 2U);
  // The next list names another who has it.
  const auto same = listed(again[0].attempt, 2);
  EXPECT_TRUE(sent_notes<reduce::Want>(same, 2).empty()) << "it is not asked again";
  const auto third = sent_notes<reduce::Register>(same, 0);
  ASSERT_EQ(third.size(), 1U);
  ASSERT_EQ(sent_notes<reduce::Want>(listed(third[0].attempt, 3), 3).size(), 1U);
  const auto done = sent_notes<reduce::Done>(on(mean_from(3, 1, all_floats(1))), 0);
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].sha256, digest_of_floats(all_floats(1)));
}

// Member 0 of 3 gathers, and member 1 says that it ended with other bits.
TEST(AllReduceDigest, AnAttemptWithTwoMeansCommitsNone) {
  AllReduceMachine machine({.shape = {.choice = ShapeRule::Choice::kTree}}, 1, 0,
                           testing::member_names(3));
  const auto on = [&](Event event) { return machine.on(std::move(event), TimePoint{}); };
  (void)on(Begin{testing::at(0), all_floats(3)});
  for (const Member m : {1U, 2U}) (void)on(note(m, reduce::Register{}, 0, 1));
  (void)on(PieceReceived{1, 1, {}, 1, place_of(Phase::kUp, 0), all_floats(3)});
  (void)on(PieceReceived{2, 1, {}, 1, place_of(Phase::kUp, 1), all_floats(3)});
  const auto done = [&](Member from, Attempt attempt, float value) {
    return on(note(from, reduce::Done{digest_of_floats(all_floats(value))}, 0, attempt));
  };
  (void)done(1, 1, 4);
  const auto differ = done(2, 1, 3);
  EXPECT_TRUE(is_said_of("member 1", differ));
  EXPECT_FALSE(is_said_of("member 2", differ));
  for (const Member m : {1U, 2U}) EXPECT_TRUE(sent_notes<reduce::Commit>(differ, m).empty());
  const auto asks = sent_notes<reduce::Ask>(differ, 2);
  ASSERT_EQ(asks.size(), 1U);
  ASSERT_GT(asks[0].attempt, 1U);
  // Its own mean stands: it holds it, and so does member 2.
  const auto enrol = [&](Member from, float value) {
    const NamedMean held{1, {0, 1, 2}, digest_of_floats(all_floats(value))};
    return on(note(from, reduce::Register{.held = held}, 0, asks[0].attempt));
  };
  (void)enrol(1, 4);
  const auto listed = enrol(2, 3);
  const auto lists = sent_notes<reduce::Standing>(listed, 2);
  ASSERT_EQ(lists.size(), 1U);
  EXPECT_EQ(lists[0].mean.sha256, digest_of_floats(all_floats(3)));
  const auto ended = done(2, asks[0].attempt, 3);
  const auto commits = sent_notes<reduce::Commit>(ended, 1);
  ASSERT_EQ(commits.size(), 1U);
  EXPECT_EQ(commits[0].sha256, digest_of_floats(all_floats(3)));
}

// What the gatherer's list has said of a mean that is held, no other member's commit unsays.
TEST_F(AFetchedMean, CountsAsTheGathererSaysAndNotAsAnybodySays) {
  (void)on(note(0, standing({0, 1, 2}, all_floats(1), 2), 0, 1));
  ASSERT_EQ(sent_notes<reduce::Done>(on(mean_from(2, 1, all_floats(1))), 0).size(), 1U);
  reduce::Commit commit = commit_of({0, 1, 2}, all_floats(1), 2);
  commit.support = 1;
  EXPECT_TRUE(on(note(3, commit, 0, 1)).empty());
  commit.support = 3;
  const auto ended = on(note(3, commit, 0, 1));
  ASSERT_TRUE(std::holds_alternative<Finished>(ended.back()));
  EXPECT_EQ(std::get<Finished>(ended.back()).next, testing::at(1));
}

// The root of a tree has the mean when it has still to go all the way down: those who pass it on
// are waited for from then on.
TEST(AllReduceDigest, ARootWaitsForTheWayDownAsLongAsForTheWayUp) {
  AllReduceMachine machine({.shape = {.choice = ShapeRule::Choice::kTree}}, 1, 0,
                           testing::member_names(3));
  TimePoint now{};
  const auto on = [&](Event event) { return machine.on(std::move(event), now); };
  const auto end_exchange = [&](Exchange exchange, Duration up, Duration down) {
    const Progress at = testing::at(exchange);
    std::vector<Action> actions = on(Begin{at, all_floats(3)});
    for (const Member m : {1U, 2U}) actions = on(note(m, reduce::Register{}, exchange, 1));
    EXPECT_EQ(sent_notes<reduce::List>(actions, 2).size(), 1U);
    now += up;
    (void)on(PieceReceived{1, 1, at, 1, place_of(Phase::kUp, 0), all_floats(3)});
    (void)on(PieceReceived{2, 1, at, 1, place_of(Phase::kUp, 1), all_floats(3)});
    now += down;
    const auto waiting = on(Tick{});
    const auto asks = sent_notes<reduce::AskProgress>(waiting);
    ASSERT_EQ(asks.size(), waiting.size())
        << "all may be asked whether they are there, but no other attempt begins";
    const reduce::Done done{digest_of_floats(all_floats(3))};
    (void)on(note(1, done, exchange, 1));
    const auto ended = on(note(2, done, exchange, 1));
    EXPECT_TRUE(std::holds_alternative<Finished>(ended.back()));
  };
  end_exchange(0, std::chrono::milliseconds(100), std::chrono::milliseconds(100));
  for (Exchange exchange = 1; exchange < 4; ++exchange) {
    end_exchange(exchange, std::chrono::milliseconds(1500), std::chrono::milliseconds(1500));
  }
}

// Member 2 changes the means that it passes on: those behind it end with other bits.
TEST(AllReduceDigest, AllEndWithOneMeanWhereAMemberChangesIt) {
  for (const ShapeRule::Choice choice : {ShapeRule::Choice::kRing, ShapeRule::Choice::kTree}) {
    for (const std::size_t members : {3U, 5U, 6U}) {
      for (std::uint64_t seed = 1; seed <= 10; ++seed) {
        SCOPED_TRACE(::testing::Message() << members << " members, seed " << seed);
        World world{.seed = seed, .members = members, .floats = 13, .exchanges = 20};
        world.options.stragglers.min = std::chrono::seconds(10);
        world.options.shape.choice = choice;
        ReduceNetwork network(world);
        for (Member m = 0; m < members; ++m) network.change_means(2, m);
        ASSERT_EQ(network.run(), "") << network.trace();
        EXPECT_EQ(network.disagreement(), "") << network.trace();
        EXPECT_EQ(network.finished(0).size(), 20U);
        for (const double seconds : network.exchange_seconds()) EXPECT_LT(seconds, 5);
      }
    }
  }
}

}  // namespace
}  // namespace starling::collective
