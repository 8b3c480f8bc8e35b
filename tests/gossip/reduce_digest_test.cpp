// SPDX-License-Identifier: Apache-2.0
// Means are named by their SHA-256: what is fetched is the one that was named, and an exchange ends
// with one mean also where a member changes what it passes on.
#include <gtest/gtest.h>

#include "tests/gossip/reduce_network.h"

namespace starling::collective {
namespace {

using testing::ReduceNetwork;
using testing::World;
using Kind = protocol::ReduceNote::Kind;

Floats all_floats(float value) { return share(std::vector<float>(8, value)); }

Sha256Digest digest_of_floats(const Floats& floats) { return sha256(as_bytes(floats.values)); }

NoteReceived note_of(Member from, Kind kind, std::uint32_t attempt,
                     std::vector<Member> members = {}) {
  return {from, {kind, 1, 0, attempt, 0, std::move(members)}};
}

NoteReceived naming(NoteReceived note, const Floats& mean, Member holder) {
  note.note.sha256 = digest_of_floats(mean);
  note.note.other = holder;
  note.note.count = note.note.kind == Kind::kCommit ? 3 : 0;
  return note;
}

PieceReceived mean_from(Member from, std::uint32_t attempt, const Floats& mean) {
  return {from, 1, {}, attempt, place_of(Phase::kResult, 0), mean};
}

std::vector<protocol::ReduceNote> notes_sent(Member to, Kind kind,
                                             const std::vector<Action>& actions) {
  std::vector<protocol::ReduceNote> sent_notes;
  for (const Action& action : actions) {
    const auto* sent = std::get_if<SendNote>(&action);
    if (sent != nullptr && sent->to == to && sent->note.kind == kind)
      sent_notes.push_back(sent->note);
  }
  return sent_notes;
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
  const auto asked = on(naming(note_of(0, Kind::kCommit, 3, {0, 2, 3}), all_floats(1), 2));
  ASSERT_EQ(notes_sent(2, Kind::kWant, asked).size(), 1U);
  EXPECT_EQ(notes_sent(2, Kind::kWant, asked)[0].sha256, digest_of_floats(all_floats(1)));
  const auto other = on(mean_from(2, 3, all_floats(2)));
  EXPECT_TRUE(is_said_of("member 2", other));
  EXPECT_EQ(notes_sent(0, Kind::kWant, other).size(), 1U);
  EXPECT_TRUE(on(mean_from(2, 3, all_floats(1))).empty()) << "it is not asked any more";
  (void)on(naming(note_of(3, Kind::kCommit, 3, {0, 2, 3}), all_floats(1), 2));
  const auto next = on({note_of(0, Kind::kNotYet, 0)});
  EXPECT_TRUE(notes_sent(2, Kind::kWant, next).empty());
  const auto ended = on(mean_from(0, 3, all_floats(1)));
  ASSERT_TRUE(std::holds_alternative<Finished>(ended.back()));
  EXPECT_EQ(std::get<Finished>(ended.back()).mean.values[0], 1.0F);
}

TEST_F(AFetchedMean, OfAListThatIsAnotherIsNotHeld) {
  NoteReceived list = naming(note_of(0, Kind::kList, 1, {0, 2, 3}), all_floats(1), 2);
  list.note.held = 1;
  ASSERT_EQ(notes_sent(2, Kind::kWant, on(list)).size(), 1U);
  const auto other = on(mean_from(2, 1, all_floats(2)));
  EXPECT_TRUE(is_said_of("member 2", other));
  EXPECT_TRUE(notes_sent(0, Kind::kDone, other).empty());
  const auto again = notes_sent(0, Kind::kRegister, other);
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].held, 0U);
  EXPECT_EQ(again[0].other, 2U);
  EXPECT_GT(again[0].count, 0U);
  // The next list names another who has it.
  list.note.attempt = again[0].attempt;
  const auto same = on(list);
  EXPECT_TRUE(notes_sent(2, Kind::kWant, same).empty()) << "it is not asked again";
  const auto third = notes_sent(0, Kind::kRegister, same);
  ASSERT_EQ(third.size(), 1U);
  list.note.attempt = third[0].attempt;
  list.note.other = 3;
  ASSERT_EQ(notes_sent(3, Kind::kWant, on(list)).size(), 1U);
  const auto done = notes_sent(0, Kind::kDone, on(mean_from(3, 1, all_floats(1))));
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].sha256, digest_of_floats(all_floats(1)));
}

TEST_F(AFetchedMean, WithoutADigestIsAskedForByNobody) {
  EXPECT_TRUE(on(note_of(0, Kind::kCommit, 3, {0, 2, 3})).empty());
  NoteReceived list = note_of(0, Kind::kList, 1, {0, 2, 3});
  list.note.held = 1;
  list.note.other = 2;
  EXPECT_TRUE(on(list).empty());
}

// Member 0 of 3 gathers, and member 1 says that it ended with other bits.
TEST(AllReduceDigest, AnAttemptWithTwoMeansCommitsNone) {
  AllReduceMachine machine({.shape = {.choice = ShapeRule::Choice::kTree}}, 1, 0,
                           testing::member_names(3));
  const auto on = [&](Event event) { return machine.on(std::move(event), TimePoint{}); };
  (void)on(Begin{testing::at(0), all_floats(3)});
  (void)on(note_of(1, Kind::kRegister, 1));
  (void)on(note_of(2, Kind::kRegister, 1));
  (void)on(PieceReceived{1, 1, {}, 1, place_of(Phase::kUp, 0), all_floats(3)});
  (void)on(PieceReceived{2, 1, {}, 1, place_of(Phase::kUp, 1), all_floats(3)});
  (void)on(naming(note_of(1, Kind::kDone, 1), all_floats(4), 0));
  const auto differ = on(naming(note_of(2, Kind::kDone, 1), all_floats(3), 0));
  EXPECT_TRUE(is_said_of("member 1", differ));
  EXPECT_FALSE(is_said_of("member 2", differ));
  for (const Member m : {1U, 2U}) EXPECT_TRUE(notes_sent(m, Kind::kCommit, differ).empty());
  const auto asks = notes_sent(2, Kind::kAsk, differ);
  ASSERT_EQ(asks.size(), 1U);
  ASSERT_GT(asks[0].attempt, 1U);
  // Its own mean stands: it holds it, and so does member 2.
  const auto registration = [&](Member from, float value) {
    NoteReceived it =
        naming(note_of(from, Kind::kRegister, asks[0].attempt, {0, 1, 2}), all_floats(value), 0);
    it.note.held = 1;
    return it;
  };
  (void)on(registration(1, 4));
  const auto listed = on(registration(2, 3));
  const auto lists = notes_sent(2, Kind::kList, listed);
  ASSERT_EQ(lists.size(), 1U);
  EXPECT_EQ(lists[0].sha256, digest_of_floats(all_floats(3)));
  const auto ended = on(naming(note_of(2, Kind::kDone, asks[0].attempt), all_floats(3), 0));
  const auto commits = notes_sent(1, Kind::kCommit, ended);
  ASSERT_EQ(commits.size(), 1U);
  EXPECT_EQ(commits[0].sha256, digest_of_floats(all_floats(3)));
}

// What the gatherer's list has said of a mean that is held, no other member's commit unsays.
TEST_F(AFetchedMean, CountsAsTheGathererSaysAndNotAsAnybodySays) {
  NoteReceived list = naming(note_of(0, Kind::kList, 1, {0, 1, 2}), all_floats(1), 2);
  list.note.held = 1;
  (void)on(list);
  ASSERT_EQ(notes_sent(0, Kind::kDone, on(mean_from(2, 1, all_floats(1)))).size(), 1U);
  NoteReceived commit = naming(note_of(3, Kind::kCommit, 1, {0, 1, 2}), all_floats(1), 2);
  commit.note.count = 1;
  EXPECT_TRUE(on(commit).empty());
  commit.note.count = 3;
  const auto ended = on(commit);
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
    std::uint32_t attempt = 0;
    const auto say = [&](Member from, Kind kind) {
      NoteReceived note = note_of(from, kind, attempt);
      note.note.exchange = note.note.backed = exchange;
      return naming(note, all_floats(3), 0);
    };
    attempt = 1;
    for (const Member m : {1U, 2U}) {
      NoteReceived there = say(m, Kind::kRegister);
      there.note.sha256.reset();
      actions = on(there);
    }
    EXPECT_EQ(notes_sent(2, Kind::kList, actions).size(), 1U);
    now += up;
    (void)on(PieceReceived{1, 1, at, attempt, place_of(Phase::kUp, 0), all_floats(3)});
    (void)on(PieceReceived{2, 1, at, attempt, place_of(Phase::kUp, 1), all_floats(3)});
    now += down;
    for (const Action& action : on(Tick{})) {
      const auto* const sent = std::get_if<SendNote>(&action);
      ASSERT_TRUE(sent != nullptr && sent->note.kind == Kind::kAsk && sent->note.attempt == 0)
          << "all may be asked whether they are there, but no other attempt begins";
    }
    (void)on(say(1, Kind::kDone));
    const auto ended = on(say(2, Kind::kDone));
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
