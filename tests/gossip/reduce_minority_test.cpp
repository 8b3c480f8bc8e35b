// SPDX-License-Identifier: Apache-2.0
// All-reduce when half of the members or fewer are cut off and go on apart: however far they come,
// they give way to the majority, and nobody's word alone moves anybody. STARLING_SEEDS runs more
// seeds than those of every day.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <set>

#include "tests/gossip/reduce_network.h"

namespace starling::collective {
namespace {

using namespace std::chrono_literals;
using testing::ReduceNetwork;
using testing::World;

constexpr std::uint64_t kMinoritySeedsEveryDay = 40;

std::uint64_t minority_seeds() {
  const char* const said = std::getenv("STARLING_SEEDS");
  return said == nullptr ? kMinoritySeedsEveryDay : std::strtoull(said, nullptr, 10);
}

World paced_world(std::size_t members, Exchange exchanges, std::uint64_t seed) {
  World world{.seed = seed, .members = members, .floats = 5, .exchanges = exchanges};
  world.spread = 0.3;  // alone, half of it is what an exchange takes; among many, almost all
  world.options.stragglers = {.initial = std::chrono::seconds(1), .min = std::chrono::seconds(1)};
  return world;
}

// Nothing passes between these and the others for a while; all find out about each one by one.
void split(ReduceNetwork& network, const std::set<Member>& side, std::size_t members, double from,
           double seconds, Rng& rng) {
  for (const Member a : side) {
    for (Member b = 0; b < members; ++b) {
      if (side.contains(b)) continue;
      const double a_hears = from + 0.3 + rng.uniform();
      const double b_hears = from + 0.3 + rng.uniform();
      network.after(from, [&network, a, b, seconds] { network.disconnect(a, b, seconds); });
      network.after(a_hears, [&network, a, b, seconds] { network.suspect(a, b, seconds); });
      network.after(b_hears, [&network, a, b, seconds] { network.suspect(b, a, seconds); });
    }
  }
}

bool without_majority(const Finished& result) { return result.next.backed < result.next.exchange; }

// What a majority ended is in the models of all in the end, and no majority's member is drawn to
// what others did apart.
TEST(AllReduceMinority, WhoWasCutOffTakesTheMajoritysModelHoweverFarItCame) {
  constexpr std::size_t kMembers = 7;
  std::size_t came_further = 0;
  for (std::uint64_t seed = 1; seed <= minority_seeds(); ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Rng rng({.seed = seed, .purpose = Purpose::kTest, .node = 10});
    const World world = paced_world(kMembers, 120, seed);
    ReduceNetwork network(world);
    std::set<Member> side;
    while (side.size() < 1 + seed % 3) side.insert(static_cast<Member>(rng.below(kMembers)));
    split(network, side, kMembers, 3, 14, rng);
    ASSERT_EQ(network.run(), "");
    ASSERT_EQ(network.wrong_results(), "");
    Exchange furthest_apart = 0, majority_then = 0;
    for (Member m = 0; m < kMembers; ++m) {
      const auto& results = network.finished(m);
      ASSERT_EQ(results.back().next, testing::at(120)) << m;
      for (std::size_t i = 1; i < results.size(); ++i) {
        ASSERT_LT(results[i - 1].at, results[i].at) << m;  // never back in progress
      }
      if (side.contains(m)) {
        for (const Finished& result : results) {
          if (!without_majority(result)) continue;
          furthest_apart = std::max(furthest_apart, result.next.exchange);
        }
        continue;
      }
      // In the moment of the split views differ: a mean may have few members, and who misses two
      // of its own side's takes their model. Nobody of a majority is drawn further.
      EXPECT_LE(network.catch_ups(m).size(), 1U) << m;
      EXPECT_GE(results.size(), 117U) << m;
      // All have found out within 1.3 s.
      EXPECT_LE(std::ranges::count_if(results, without_majority), 5) << m;
      for (std::size_t i = 0; i < results.size(); ++i) {
        if (results[i].members.size() < kMembers)
          majority_then = std::max(majority_then, results[i].at.exchange);
      }
    }
    came_further += furthest_apart > majority_then;
  }
  EXPECT_GT(came_further, minority_seeds() / 4);  // it would have won by its number
}

// Of three parts none is a majority: all go on, and the furthest draws the others along.
TEST(AllReduceMinority, PartsOfWhichNoneIsAMajorityEndTogether) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Rng rng({.seed = seed, .purpose = Purpose::kTest, .node = 11});
    ReduceNetwork network(paced_world(6, 100, seed));
    split(network, {0, 1}, 6, 2, 10, rng);
    split(network, {2, 3}, 6, 2, 10, rng);
    ASSERT_EQ(network.run(), "");
    ASSERT_EQ(network.wrong_results(), "");
    for (Member m = 0; m < 6; ++m) {
      ASSERT_EQ(network.finished(m).back().next, testing::at(100)) << m;
      ASSERT_EQ(network.finished(m).back().members.size(), 6U) << m;
    }
  }
}

// Most die for good: who is left goes on, and the dead decide nothing.
TEST(AllReduceMinority, WhoIsLeftOfAMajorityGoesOn) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    ReduceNetwork network(paced_world(7, 60, seed));
    for (Member m : {0U, 2U, 4U, 5U, 6U}) {
      network.after(2 + 0.3 * m, [&network, m] { network.kill(m); });
    }
    ASSERT_EQ(network.run(), "");
    ASSERT_EQ(network.disagreement(), "");
    for (Member m : {1U, 3U}) {
      EXPECT_EQ(network.finished(m).size(), 60U);
      EXPECT_EQ(network.finished(m).back().members, (std::vector<Member>{1, 3}));
      EXPECT_LT(network.finished(m).back().next.backed, 60U);
      EXPECT_TRUE(network.catch_ups(m).empty());
    }
  }
}

NoteReceived over(Member from, Progress next, std::vector<Member> by) {
  return {from, {.epoch = 1, .at = next, .what = reduce::Ahead{std::move(by)}}};
}

bool catches_up(const std::vector<Action>& actions) {
  return std::ranges::any_of(
      actions, [](const Action& action) { return std::holds_alternative<CatchUp>(action); });
}

std::set<Member> told(const std::vector<Action>& actions) {
  std::set<Member> to;
  for (const Action& action : actions) {
    if (const auto* note = std::get_if<SendNote>(&action)) to.insert(note->to);
  }
  return to;
}

// A piece has 3 s from the first exchange on.
AllReduceOptions quick_pieces() {
  AllReduceOptions options;
  options.pieces.initial = 3s;
  return options;
}

// One member's machine; what the others do is told to it.
class OneMember {
 public:
  OneMember(Member self, std::size_t members, const AllReduceOptions& options = {})
      : machine_(options, 1, self, testing::member_names(members)) {
    for (Member m = 0; m < members; ++m) {
      if (m != self) others_.push_back(m);
    }
    for (const Member m : others_) (void)on(LinkUp{m, {}});
  }

  // Its exchanges from `first` on, with all others, so long each; then it begins the next.
  void keep_step(Exchange first, Exchange exchanges, Duration each = 1s) {
    begin(testing::at(first));
    for (Exchange e = first; e < first + exchanges; ++e) {
      end_by(others_.front(), testing::at(e));
      now += each;
      begin(testing::at(e + 1));
    }
  }

  std::vector<Action> begin(Progress at) { return on(Begin{at, share({1})}); }

  // `gatherer` has ended the exchange at hand with all others, in its first attempt, as it or
  // `teller` says.
  std::vector<Action> hear_end(Member gatherer, Progress at, std::optional<Member> teller = {}) {
    const reduce::Commit commit{.members = others_,
                                .sha256 = sha256(as_bytes(mean_.values)),
                                .support = static_cast<std::uint16_t>(others_.size()),
                                .holder = teller.value_or(gatherer)};
    return on(NoteReceived{commit.holder,
                           {.epoch = 1, .at = at, .attempt = gatherer + 1, .what = commit}});
  }

  // The same, and whoever is asked for the mean gives it: this member.
  Member end_by(Member gatherer, Progress at, std::optional<Member> teller = {}) {
    const Attempt attempt = gatherer + 1;
    const auto asked = hear_end(gatherer, at, teller);
    const auto* const ask = asked.empty() ? nullptr : std::get_if<SendNote>(&asked.back());
    if (ask == nullptr || !std::holds_alternative<reduce::Want>(ask->note.what)) {
      ADD_FAILURE() << "nobody is asked for the mean";
      return gatherer;
    }
    const auto ended =
        on(PieceReceived{ask->to, 1, at, attempt, place_of(Phase::kResult, 0), mean_});
    EXPECT_TRUE(!ended.empty() && std::holds_alternative<Finished>(ended.back()));
    return ask->to;
  }

  // The exchange ends so much later, and the next begins.
  std::vector<Action> begin_after(Progress at, Duration time) {
    now += time;
    end_by(others_.front(), at);
    return begin(testing::at(at.exchange + 1));
  }

  // Where it comes to.
  Progress train_alone(Progress at, Exchange exchanges, Duration each) {
    for (const Member m : others_) note_end(on(LinkDown{m}), at);
    note_end(after(std::chrono::seconds(1)), at);
    for (Exchange e = 0; e < exchanges; ++e) {
      note_end(after(each), at);
      note_end(begin(at), at);
    }
    for (const Member m : others_) (void)on(LinkUp{m, {}});
    (void)begin(at);
    return at;
  }

  std::vector<Action> hear(Member from, Progress next) { return on(over(from, next, {from})); }
  // To the question where it is.
  void answer(Member from, Progress at) {
    (void)on(NoteReceived{from, {.epoch = 1, .at = at, .what = reduce::Wait{}}});
  }
  std::vector<Action> ask(Member from, Progress at) {
    return on(NoteReceived{from, {.epoch = 1, .at = at, .what = reduce::AskProgress{}}});
  }

  // It is told each time that it waits for.
  std::vector<Action> after(Duration time) {
    std::vector<Action> all;
    const TimePoint end = now + time;
    const auto tick_at = [&](TimePoint when) {
      now = when;
      std::ranges::move(on(Tick{}), std::back_inserter(all));
    };
    while (machine_.next_deadline().value_or(end) < end) {
      tick_at(std::max(now, *machine_.next_deadline()));
    }
    tick_at(end);
    return all;
  }

  std::vector<Action> on(Event event) { return machine_.on(std::move(event), now); }

  TimePoint now{};

 private:
  static void note_end(const std::vector<Action>& actions, Progress& at) {
    for (const Action& action : actions) {
      if (const auto* finished = std::get_if<Finished>(&action)) at = finished->next;
    }
  }

  std::vector<Member> others_;
  const Floats mean_ = share({2});
  AllReduceMachine machine_;
};

// Member 3 of five, which has ended ten exchanges of a second each with all others, and begins one.
class AMemberInStep : public ::testing::Test {
 protected:
  AMemberInStep() { member_.keep_step(0, 10); }

  std::vector<Action> hear(Member from, Progress next) { return member_.hear(from, next); }

  OneMember member_{3, 5};
};

TEST_F(AMemberInStep, AsksTheOthersBeforeItBelievesOne) {
  const auto asked = hear(0, testing::at(15));
  EXPECT_FALSE(catches_up(asked));
  EXPECT_EQ(told(asked), (std::set<Member>{1, 2, 4}));
  EXPECT_TRUE(hear(0, testing::at(15)).empty());  // once
  const auto confirmed = hear(2, testing::at(14));
  ASSERT_TRUE(catches_up(confirmed));
  EXPECT_EQ(std::get<CatchUp>(confirmed.back()).next, testing::at(14));  // as far as both say
  EXPECT_EQ(std::get<CatchUp>(confirmed.back()).donors, std::vector<Member>{2});
}

TEST_F(AMemberInStep, BelievesOneAsFarAsTheTimeExplainsThatItTookItself) {
  EXPECT_FALSE(catches_up(hear(0, testing::at(15))));
  EXPECT_TRUE(catches_up(member_.after(std::chrono::seconds(6))));
}

TEST_F(AMemberInStep, BelievesTwoNoFurtherThanTheirPaceCanBe) {
  const Progress claim = testing::at(std::uint64_t{1} << 60);
  for (int i = 0; i < 600; ++i) {
    member_.now += std::chrono::seconds(1);
    EXPECT_FALSE(catches_up(hear(0, claim)));
    EXPECT_FALSE(catches_up(hear(1, claim)));
  }
  EXPECT_TRUE(catches_up(hear(4, testing::at(9'000))));  // all three say at least that
}

TEST_F(AMemberInStep, BelievesAMajority) {
  const Progress far = testing::at(1'000'000);  // its clock stood still, as that of a laptop does
  EXPECT_FALSE(catches_up(hear(0, far)));
  EXPECT_FALSE(catches_up(hear(1, far)));
  EXPECT_TRUE(catches_up(hear(2, far)));
}

// Fewer exchanges with more support are further.
TEST_F(AMemberInStep, ComesBackToFewerExchangesOfAMajority) {
  const Progress apart = member_.train_alone(testing::at(10), 30, Duration{});
  ASSERT_EQ(apart, (Progress{.backed = 10, .exchange = 41}));
  EXPECT_FALSE(catches_up(hear(0, {.backed = 10, .exchange = 30})));
  EXPECT_FALSE(catches_up(hear(1, {.backed = 10, .exchange = 30})));
  EXPECT_FALSE(catches_up(hear(0, testing::at(20))));
  const auto further = hear(1, testing::at(20));
  ASSERT_TRUE(catches_up(further));
  EXPECT_EQ(std::get<CatchUp>(further.back()).next, testing::at(20));
}

// Its word costs the time of asking the others once, not in each exchange.
TEST_F(AMemberInStep, GoesOnAtOnceWithoutWhomNobodyConfirms) {
  constexpr Exchange kFar = Exchange{1} << 60;
  EXPECT_FALSE(catches_up(hear(0, testing::at(kFar))));
  for (const Member m : {1U, 2U, 4U}) member_.answer(m, testing::at(10));
  std::set<Member> gatherers;
  for (int i = 0; i < 2; ++i) gatherers.merge(told(member_.after(std::chrono::seconds(2))));
  ASSERT_TRUE(gatherers.contains(1));
  for (Exchange e = 10; e < 15; ++e) {
    member_.end_by(1, testing::at(e));
    const auto to = told(member_.begin(testing::at(e + 1)));
    EXPECT_TRUE(to.contains(1));
    EXPECT_FALSE(to.contains(2));  // nobody is asked again
    EXPECT_TRUE(told(hear(0, testing::at(kFar + e))).empty());
  }
}

// A second has confirmed it when the time explains it; or nobody ever does.
TEST_F(AMemberInStep, FollowsThemInALaterExchangeOnceTheTimeExplainsIt) {
  EXPECT_FALSE(catches_up(hear(0, testing::at(14))));
  for (int i = 0; i < 2; ++i) (void)member_.after(std::chrono::seconds(1));
  member_.end_by(1, testing::at(10));
  member_.now += std::chrono::seconds(1);
  EXPECT_FALSE(catches_up(member_.begin(testing::at(11))));
  EXPECT_TRUE(catches_up(member_.after(std::chrono::seconds(4))));
}

// It may be heard, and not hear this member.
TEST_F(AMemberInStep, AsksThoseLastForTheMeanThatOweAnAnswer) {
  ASSERT_EQ(told(hear(0, testing::at(15))), (std::set<Member>{1, 2, 4}));
  EXPECT_EQ(member_.end_by(1, testing::at(10)), 0U);
  (void)member_.begin(testing::at(11));
  member_.answer(1, testing::at(11));
  EXPECT_EQ(member_.end_by(1, testing::at(11)), 1U);
  (void)member_.begin(testing::at(12));
  EXPECT_EQ(member_.end_by(2, testing::at(12)), 0U) << "it has sent a commit, but to all";
}

// It has ended later exchanges already, or answers what it was asked long ago, over a link that
// held this back.
TEST_F(AMemberInStep, AsksThoseLastForTheMeanThatSayInsteadThatTheyAreAhead) {
  ASSERT_EQ(testing::sent_notes<reduce::Want>(member_.hear_end(0, testing::at(10)), 0).size(), 1U);
  EXPECT_EQ(testing::sent_notes<reduce::Want>(hear(0, testing::at(12)), 1).size(), 1U);
  (void)member_.on(
      PieceReceived{1, 1, testing::at(10), 1, place_of(Phase::kResult, 0), share({2})});
  (void)member_.begin(testing::at(11));
  member_.answer(1, testing::at(11));
  EXPECT_EQ(member_.end_by(0, testing::at(11)), 1U);
}

// Who said once that it is ahead may give the next mean; who does not hear us cannot. The other is
// asked where it is as one is ahead.
TEST(AMemberThatLooksForAMean, AsksThoseThatWereAheadBeforeThoseThatOweAnAnswer) {
  OneMember member(2, 3);
  member.keep_step(0, 10);
  ASSERT_EQ(testing::sent_notes<reduce::Want>(member.hear_end(1, testing::at(10)), 1).size(), 1U);
  ASSERT_EQ(testing::sent_notes<reduce::Want>(member.hear(1, testing::at(12)), 0).size(), 1U);
  (void)member.on(PieceReceived{0, 1, testing::at(10), 2, place_of(Phase::kResult, 0), share({2})});
  (void)member.begin(testing::at(11));
  EXPECT_EQ(member.end_by(0, testing::at(11)), 1U);
}

// In a group all send the commit to those that are not in the mean, whether they hear them or not.
TEST(AMemberOfAGroup, TakesNoCommitForAnAnswer) {
  for (const bool is_group : {false, true}) {
    AllReduceOptions options;
    options.any_mean = is_group;
    OneMember member(3, 5, options);
    member.keep_step(0, 10);
    ASSERT_TRUE(told(member.hear(0, testing::at(15))).contains(1));
    member.answer(2, testing::at(10));
    EXPECT_EQ(member.end_by(0, testing::at(10), 1), is_group ? 2U : 1U);
  }
}

// Who was asked and was not heard since is silent in the next exchange, and asked again in each.
// What it said long ago does not change that, as when a link held it back.
TEST(AMemberThatIsAskedInVain, IsSilentUntilItIsHeardOfAnExchangeAtHand) {
  OneMember member(3, 5, quick_pieces());
  member.keep_step(0, 40);
  ASSERT_EQ(told(member.hear(0, testing::at(45))), (std::set<Member>{1, 2, 4}));
  member.answer(2, testing::at(40));
  member.answer(4, testing::at(40));
  EXPECT_FALSE(told(member.begin_after(testing::at(40), 100ms)).contains(1)) << "too soon";
  EXPECT_TRUE(told(member.begin_after(testing::at(41), 1900ms)).contains(1));
  (void)member.ask(1, testing::at(42 - AllReduceMachine::kNear - 1));
  EXPECT_TRUE(told(member.begin_after(testing::at(42), 0s)).contains(1));
  (void)member.ask(1, testing::at(43 - AllReduceMachine::kNear));
  EXPECT_FALSE(told(member.begin_after(testing::at(43), 0s)).contains(1));
}

// Where exchanges are quick, what a distant member says is many behind when it comes.
TEST(AMemberThatIsAskedInVain, IsHeardOfMoreExchangesWhereTheyAreQuick) {
  for (const Exchange behind : {800U, 1'300U}) {
    OneMember member(3, 5, quick_pieces());
    member.keep_step(0, 20'000, 1ms);
    ASSERT_TRUE(told(member.hear(0, testing::at(20'005))).contains(1));
    member.answer(2, testing::at(20'000));
    member.answer(4, testing::at(20'000));
    for (Exchange e = 20'000; e < 20'004; ++e) (void)member.begin_after(testing::at(e), 400ms);
    ASSERT_TRUE(told(member.begin_after(testing::at(20'004), 0s)).contains(1));
    (void)member.ask(1, testing::at(20'005 - behind));
    EXPECT_EQ(told(member.begin_after(testing::at(20'005), 0s)).contains(1), behind == 1'300U);
  }
}

// Its answer may come behind pieces, as where all are asked because of a wait.
TEST(AMemberThatIsAsked, HasHalfAPiecesDeadlineToAnswer) {
  OneMember member(3, 5);
  member.keep_step(0, 40);
  ASSERT_TRUE(told(member.hear(0, testing::at(45))).contains(1));
  EXPECT_FALSE(told(member.begin_after(testing::at(40), 500ms)).contains(1));
}

// Nor where this process did not run meanwhile: the answers are yet to be read.
TEST(AMemberThatIsAsked, HasTimeToAnswerAfterThisProcessWasStopped) {
  OneMember member(3, 5);
  member.keep_step(0, 40);
  ASSERT_TRUE(told(member.hear(0, testing::at(Exchange{1} << 60))).contains(1));
  EXPECT_FALSE(told(member.begin_after(testing::at(40), 60s)).contains(1));
}

TEST(AMemberThatIsAsked, IsThereIfItWasHeardShortlyBefore) {
  OneMember member(3, 5, quick_pieces());
  member.keep_step(0, 40);
  (void)member.ask(1, testing::at(40));
  member.now += 100ms;
  ASSERT_TRUE(told(member.hear(0, testing::at(Exchange{1} << 60))).contains(1));
  EXPECT_FALSE(told(member.begin_after(testing::at(40), 1900ms)).contains(1));
}

// What it says comes as late as all that its links held back, however many exchanges it ended
// alone.
TEST(AMemberThatIsAskedInVain, IsNotHeardOfExchangesThatItEndedAlone) {
  OneMember member(3, 5, quick_pieces());
  member.keep_step(0, 40);
  ASSERT_TRUE(told(member.hear(0, testing::at(Exchange{1} << 60))).contains(1));
  ASSERT_TRUE(told(member.begin_after(testing::at(40), 1900ms)).contains(1));
  (void)member.ask(1, {.backed = 5, .exchange = 41});
  EXPECT_TRUE(told(member.begin_after(testing::at(41), 0s)).contains(1));
  (void)member.ask(1, {.backed = 30, .exchange = 42});
  EXPECT_FALSE(told(member.begin_after(testing::at(42), 0s)).contains(1));
}

// Without a majority everybody counts who is there at all.
TEST(AMemberWithoutAMajority, HearsWhoIsFarBehind) {
  for (const std::set<Member>& absent : {std::set<Member>{1}, {0, 1, 2}}) {
    const Progress next{.backed = 0, .exchange = 50};
    AllReduceMachine machine({}, 1, 3, testing::member_names(5), next, absent);
    (void)machine.on(Begin{next, share({1})}, TimePoint{});
    ASSERT_TRUE(machine.is_silent(1));
    (void)machine.on(testing::note(1, reduce::AskProgress{}, 0, 0), TimePoint{} + 1s);
    EXPECT_EQ(machine.is_silent(1), absent.size() == 1);
  }
}

// All that a link held back would be answered else.
TEST(AMemberThatAsksAboutExchangesLongPast, IsToldOnceWhereOthersAreAndAgainAfterAWhile) {
  OneMember member(3, 5);
  member.keep_step(0, 40);
  EXPECT_EQ(told(member.ask(1, testing::at(5))), std::set<Member>{1});
  EXPECT_TRUE(member.ask(1, testing::at(6)).empty());
  EXPECT_EQ(told(member.ask(2, testing::at(6))), std::set<Member>{2});
  member.now += 1s;
  EXPECT_EQ(told(member.ask(1, testing::at(6))), std::set<Member>{1}) << "it may be lost";
  (void)member.begin_after(testing::at(40), 0s);
  EXPECT_EQ(told(member.ask(1, testing::at(6))), std::set<Member>{1});
  EXPECT_EQ(told(member.ask(1, testing::at(38))), std::set<Member>{1});
  EXPECT_EQ(told(member.ask(1, testing::at(38))), std::set<Member>{1}) << "it is near";
  EXPECT_TRUE(member.ask(1, testing::at(6)).empty());
  (void)member.on(LinkUp{1, {}});
  EXPECT_EQ(told(member.ask(1, testing::at(6))), std::set<Member>{1}) << "it may not know";
}

// Nobody gave it a model: they are asked again after a while, not in each moment.
TEST_F(AMemberInStep, DoesNotAskAgainAtOnceForAModelThatNobodyGave) {
  (void)hear(0, testing::at(14));
  ASSERT_TRUE(catches_up(hear(1, testing::at(14))));
  EXPECT_FALSE(catches_up(member_.begin(testing::at(10))));
  EXPECT_FALSE(catches_up(hear(0, testing::at(14))));
  EXPECT_FALSE(catches_up(hear(1, testing::at(14))));
  EXPECT_TRUE(catches_up(member_.after(std::chrono::seconds(3))));
}

// What it does alone is not the pace of the two, and does not hide how far the other can be.
TEST(OneOfTwoMembers, ThatTrainedAloneComesToTheOther) {
  OneMember member(1, 2);
  member.keep_step(0, 10);
  ASSERT_EQ(member.train_alone(testing::at(10), 100, std::chrono::seconds(1)), testing::at(111));
  EXPECT_TRUE(catches_up(member.hear(0, testing::at(410))));  // four times as fast
}

TEST(ExchangePace, IsFromEndToEndAndNotFromTheTakingOfAModel) {
  ExchangePace pace(0);
  TimePoint now{};
  pace.ended(0, now);
  EXPECT_FALSE(pace.usual());
  for (Exchange e = 1; e <= 5; ++e) pace.ended(e, now += std::chrono::seconds(1));
  for (Exchange e = 100; e < 2000; e += 100) {
    pace.took(e, now += std::chrono::seconds(1));
    pace.ended(e, now += std::chrono::milliseconds(1));
  }
  EXPECT_EQ(pace.usual(), Duration(std::chrono::seconds(1)));
}

}  // namespace
}  // namespace starling::collective
