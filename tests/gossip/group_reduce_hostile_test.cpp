// SPDX-License-Identifier: Apache-2.0
// What notes and pieces from outside a group, or of exchanges that are elsewhere, can do to a
// member that averages in groups.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "gossip/collective/group_reduce_machine.h"
#include "tests/gossip/reduce_network.h"

namespace starling::collective {
namespace {

using testing::member_names;
using testing::note;
using testing::sent_notes;

constexpr std::uint32_t kNetworkMembers = 12;
constexpr GroupDraw kDraw{.seed = 1, .members = kNetworkMembers, .size = 4};

// Member 0 at exchange 10 of a network that runs, linked with all.
class OneOfAGroup : public ::testing::Test {
 protected:
  OneOfAGroup()
      : machine_({}, 1, kDraw, 0, member_names(kNetworkMembers), at(10), {}, {}, TimePoint{}) {
    for (Member member = 1; member < kNetworkMembers; ++member) give(LinkUp{member, std::nullopt});
  }
  static Progress at(Exchange exchange) { return {.backed = exchange, .exchange = exchange}; }
  std::vector<Action> give(Event event) { return machine_.on(std::move(event), now_); }
  std::vector<Action> tell(Member from, reduce::What what, Exchange exchange) {
    return give(note(from, std::move(what), exchange, 1));
  }
  void begin() { give(Begin{at(10), share({1, 2, 3})}); }
  std::vector<Member> mates(Exchange exchange = 10) const {
    std::vector<Member> group = kDraw.group_of(0, exchange);
    std::erase(group, 0);
    return group;
  }
  Member stranger(Exchange exchange = 10) const {
    const std::vector<Member> group = kDraw.group_of(0, exchange);
    Member member = 1;
    while (std::ranges::binary_search(group, member)) ++member;
    return member;
  }
  template <class Wanted>
  static std::size_t count(const std::vector<Action>& actions) {
    return static_cast<std::size_t>(std::ranges::count_if(
        actions, [](const Action& action) { return std::holds_alternative<Wanted>(action); }));
  }

  TimePoint now_{std::chrono::seconds(100)};
  GroupReduceMachine machine_;
};

// However far it has come: a minority copies the model of a member with a quorum, which would wait
// for it if it copied the minority's.
TEST_F(OneOfAGroup, ItsGroupIsFollowedOnlyWhereItHasAQuorum) {
  const auto greet = [&](Progress where) {
    std::size_t copies = 0;
    for (const Member member : mates()) copies += count<CatchUp>(give(LinkUp{member, where}));
    return copies;
  };
  begin();
  EXPECT_EQ(greet({.backed = 3, .exchange = 20}), 0U);
  EXPECT_EQ(greet(at(20)), 1U);
}

// The members that have a quorum may all have been started again, and be behind.
TEST_F(OneOfAGroup, AMinorityThatWasFurtherBeforeItWasOneDrawsAMemberAlong) {
  begin();
  const auto tell_all = [&](const Progress& where) {
    std::size_t copies = 0;
    for (const Member member : mates()) {
      copies += count<CatchUp>(
          give(NoteReceived{member, {.epoch = 1, .at = where, .what = reduce::Ahead{{0, 1}}}}));
    }
    return copies;
  };
  EXPECT_EQ(tell_all({.backed = 10, .exchange = 20}), 0U);
  EXPECT_EQ(tell_all({.backed = 11, .exchange = 20}), 1U);
}

// Of the others it is not known whether they are of the quorum: their models may be no further.
TEST_F(OneOfAGroup, AMinorityCopiesTheModelOfTheMemberThatHasAQuorum) {
  GroupReduceMachine minority({}, 1, kDraw, 0, member_names(kNetworkMembers),
                              {.backed = 3, .exchange = 10}, {}, {.minority = true, .backed = 3},
                              now_);
  for (Member member = 1; member < kNetworkMembers; ++member) {
    (void)minority.on(LinkUp{member, std::nullopt}, now_);
  }
  (void)minority.on(Begin{{.backed = 3, .exchange = 10}, share({1, 2, 3})}, now_);
  const auto actions = minority.on(note(5, reduce::Register{}, 6, 1), now_);
  ASSERT_EQ(count<CatchUp>(actions), 1U);
  EXPECT_THAT(std::get<CatchUp>(actions.back()).donors, ::testing::ElementsAre(5U));
  EXPECT_EQ(std::get<CatchUp>(actions.back()).next, at(6));
}

// Also where the quorum is at an exchange of the same number: a mean that the minority held in it
// is not offered to those with a quorum.
TEST_F(OneOfAGroup, AMinorityThatCopiedTheModelOfAQuorumForgetsTheMeanThatItHeld) {
  const Progress where{.backed = 3, .exchange = 10};
  const Member mate = mates()[0];
  std::map<Member, GroupReduceMachine> minority;
  for (const Member self : {Member{0}, mate}) {
    auto& machine = minority
                        .emplace(std::piecewise_construct, std::tuple(self),
                                 std::tuple(GroupReduceMachine::Options{}, Epoch{1}, kDraw, self,
                                            member_names(kNetworkMembers), where,
                                            std::set<Member>{mates()[1], mates()[2]},
                                            protocol::Support{.minority = true, .backed = 3}, now_))
                        .first->second;
    for (Member member = 0; member < kNetworkMembers; ++member) {
      const bool is_absent = member == mates()[1] || member == mates()[2];
      if (!is_absent) (void)machine.on(LinkUp{member, std::nullopt}, now_);
    }
  }
  std::vector<std::pair<Member, Action>> sent;
  const auto act = [&](Member self, Event event) {
    for (Action& action : minority.at(self).on(std::move(event), now_))
      sent.emplace_back(self, action);
  };
  for (const Member self : {mate, Member{0}}) act(self, Begin{where, share({1, 2, 3})});
  while (!sent.empty()) {
    const auto [from, action] = std::move(sent.front());
    sent.erase(sent.begin());
    if (const auto* its = std::get_if<SendNote>(&action)) {
      const bool is_done = std::holds_alternative<reduce::Done>(its->note.what);
      if (is_done || !minority.contains(its->to)) continue;  // nobody commits
      act(its->to, NoteReceived{from, its->note});
    } else if (const auto* piece = std::get_if<SendPiece>(&action)) {
      act(piece->to,
          PieceReceived{from, 1, piece->at, piece->attempt, piece->place, piece->floats});
    }
  }
  auto& ours = minority.at(mate);
  const auto leaves = ours.on(note(stranger(), reduce::Register{}, 10, 1), now_);
  ASSERT_EQ(count<CatchUp>(leaves), 1U);
  (void)ours.on(Copied{}, now_);
  const auto begun = sent_notes<reduce::Register>(ours.on(Begin{at(10), share({4, 5, 6})}, now_));
  ASSERT_FALSE(begun.empty());
  for (const auto& its : begun) EXPECT_FALSE(its.held.has_value());
}

// At the start two links may be made between two members, one of which ends.
TEST_F(OneOfAGroup, AMemberWhoseLinkIsBeingReplacedIsWaitedFor) {
  const auto lists = [](const std::vector<Action>& actions) {
    std::vector<std::size_t> sizes;
    for (const auto& list : sent_notes<reduce::List>(actions)) sizes.push_back(list.members.size());
    return sizes;
  };
  const auto enrol = [&](Member from) { return lists(tell(from, reduce::Register{}, 10)); };
  const std::vector<Member> others = mates();
  give(LinkDown{others[0]});
  begin();
  EXPECT_THAT(enrol(others[1]), ::testing::IsEmpty());
  EXPECT_THAT(enrol(others[2]), ::testing::IsEmpty());
  now_ += MemberLiveness::kRelink / 2;
  give(LinkUp{others[0], std::nullopt});
  EXPECT_THAT(enrol(others[0]), ::testing::AllOf(::testing::SizeIs(3), ::testing::Each(4U)))
      << "the list has all of them";
}

// A member that comes over one link after the other, and sends nothing over them, is waited for
// once.
TEST(GroupReduceMachine, WhoOnlyDialsAgainIsNotWaitedForAgain) {
  constexpr Member kDials = 1;
  const GroupDraw pairs{.seed = 1, .members = 6, .size = 2};
  TimePoint now{std::chrono::seconds(100)};
  GroupReduceMachine machine({}, 1, pairs, 0, member_names(6), {}, {kDials}, {}, now);
  const auto give = [&](Event event) {
    const auto actions = machine.on(std::move(event), now);
    return std::ranges::any_of(
        actions, [](const Action& action) { return std::holds_alternative<Finished>(action); });
  };
  for (Member member = 2; member < 6; ++member) give(LinkUp{member, std::nullopt});
  Exchange exchange = 0;
  const auto begin = [&] {  // the next one with it
    while (std::ranges::count(pairs.group_of(0, exchange), kDials) == 0) ++exchange;
    const Progress at{.backed = exchange, .exchange = exchange};
    ++exchange;
    return give(Begin{at, share({1, 2, 3})});
  };
  EXPECT_TRUE(begin()) << "it is absent";
  give(LinkUp{kDials, std::nullopt});
  ASSERT_FALSE(begin());
  bool is_over = false;
  while (!is_over && now < TimePoint{std::chrono::seconds(200)}) {
    now = std::max(now, machine.next_deadline().value_or(now + std::chrono::seconds(1)));
    is_over = give(Tick{});
  }
  ASSERT_TRUE(is_over);
  give(LinkDown{kDials});
  give(LinkUp{kDials, std::nullopt});
  EXPECT_TRUE(begin());
}

// Who may just have started itself: the others would be left behind.
TEST_F(OneOfAGroup, OneMembersWordDoesNotEndTheWaitForTheStart) {
  constexpr Member kSelf = kNetworkMembers - 1;  // never the gatherer of an exchange at its start
  for (const Member met : {3U, 7U}) {
    SCOPED_TRACE(met);
    GroupReduceMachine starting({.exchange = {}, .start = std::chrono::seconds(60)}, 1, kDraw,
                                kSelf, member_names(kNetworkMembers), at(0), {}, {}, now_);
    for (Member member = 0; member < met; ++member) {
      (void)starting.on(LinkUp{member, std::nullopt}, now_);
    }
    (void)starting.on(Begin{at(0), share({1, 2, 3})}, now_);
    const auto begins = [&](const Event& event) {
      return !sent_notes<reduce::Register>(starting.on(event, now_)).empty();
    };
    const reduce::Ahead ahead{{0, 1}};
    const bool leaves_most_behind = 2 * met < kNetworkMembers;
    EXPECT_NE(begins(note(1, ahead, 1, 0)), leaves_most_behind);
    if (!leaves_most_behind) continue;
    EXPECT_FALSE(begins(note(1, ahead, 2, 0)));
    EXPECT_FALSE(begins(LinkUp{1, at(2)}));
    EXPECT_TRUE(begins(note(2, ahead, 1, 0)));
  }
}

// One of a group of four alone, or of another group, is not believed before the pace is known.
class OneThatTellsAGroup : public OneOfAGroup, public ::testing::WithParamInterface<bool> {};

TEST_P(OneThatTellsAGroup, OfFarExchangesAllocatesNothingAndMovesNothing) {
  begin();
  const std::size_t machines = machine_.machines();
  const Members both = {0, 1};
  const std::vector<reduce::What> all = {reduce::Register{.lost = both},
                                         reduce::List{both},
                                         reduce::Standing{{1, both}},
                                         reduce::Done{},
                                         reduce::Commit{both},
                                         reduce::Want{},
                                         reduce::Ask{},
                                         reduce::AskProgress{},
                                         reduce::NotYet{},
                                         reduce::Wait{},
                                         reduce::Ahead{both}};
  const Member from = GetParam() ? mates()[0] : stranger();
  for (const reduce::What& what : all) {
    for (const Exchange far : {11 + GroupReduceMachine::kAhead, Exchange{1} << 40, ~Exchange{0}}) {
      EXPECT_EQ(count<CatchUp>(tell(from, what, far)), 0U);
      EXPECT_EQ(machine_.machines(), machines);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(MateOrNot, OneThatTellsAGroup, ::testing::Bool());

TEST_F(OneOfAGroup, WhateverIsSentThereAreAFewMachinesOnly) {
  begin();
  for (Exchange exchange = 0; exchange < 200; ++exchange) {
    for (Member from = 1; from < kNetworkMembers; ++from) tell(from, reduce::Register{}, exchange);
  }
  EXPECT_LE(machine_.machines(), 1 + GroupReduceMachine::kKept + GroupReduceMachine::kAhead);
}

TEST_F(OneOfAGroup, PiecesOfOthersThanTheGroupAreRefused) {
  begin();
  for (Member from = 1; from < kNetworkMembers; ++from) {
    const bool is_mate = std::ranges::count(mates(), from) == 1;
    EXPECT_EQ(machine_.takes_part(from, at(10)), is_mate);
    EXPECT_FALSE(machine_.takes_part(from, at(500)));
  }
  EXPECT_TRUE(give(PieceReceived{.from = stranger(),
                                 .epoch = 1,
                                 .at = at(10),
                                 .attempt = 1,
                                 .place = 0,
                                 .floats = share({1})})
                  .empty());
}

// Three in four register, then the group ends without the one that only strangers spoke for.
TEST_F(OneOfAGroup, AStrangersNotesDoNotCountAsTheGroups) {
  begin();
  const auto answer = tell(stranger(), reduce::Register{}, 10);
  EXPECT_EQ(count<SendNote>(answer), 0U);
  EXPECT_EQ(count<SendPiece>(answer), 0U);
  EXPECT_EQ(count<Finished>(answer), 0U);
}

// Whichever group they are in: one is not believed before the pace is known, and two are.
TEST_F(OneOfAGroup, AnyTwoMembersThatAreFurtherDrawAMemberAlong) {
  begin();
  for (const Exchange said : {30U, 31U, 30U}) {
    EXPECT_EQ(count<CatchUp>(tell(stranger(), reduce::Ahead{{0, 1}}, said)), 0U);
  }
  const auto moved = tell(mates()[0], reduce::Ahead{{0, 1}}, 40);
  ASSERT_EQ(count<CatchUp>(moved), 1U);
  const auto& catch_up = std::get<CatchUp>(*std::ranges::find_if(
      moved, [](const Action& action) { return std::holds_alternative<CatchUp>(action); }));
  EXPECT_EQ(catch_up.next, at(30)) << "to which both of them have come";
  EXPECT_THAT(catch_up.donors, ::testing::UnorderedElementsAre(stranger(), mates()[0]));
}

// As from those who are behind, where somebody said that this member is there.
TEST_F(OneOfAGroup, AnswersThatNameAFarExchangeSayNothingOfWhereMembersAre) {
  begin();
  for (Member from = 1; from < kNetworkMembers; ++from) {
    EXPECT_TRUE(tell(from, reduce::Wait{}, 30).empty());
    EXPECT_TRUE(tell(from, reduce::NotYet{}, 30).empty());
  }
  EXPECT_EQ(count<CatchUp>(tell(1, reduce::Ahead{{0, 1}}, 40)), 0U);
}

// What it promised in the exchange that it left holds, and the word of who led it away is doubted.
TEST_F(OneOfAGroup, WhereNobodyGivesAModelItGoesOnWithWhatItPromised) {
  const auto place_of_self = [&] {
    const std::vector<Member> group = kDraw.group_of(0, 10);
    return static_cast<std::size_t>(std::ranges::find(group, 0U) - group.begin());
  };
  ASSERT_EQ(place_of_self(), 0U) << "the first gatherer";
  begin();
  // The last one of the group gathers the next attempt.
  const auto group_size = static_cast<Attempt>(mates().size() + 1);
  const Member last = mates().back();
  EXPECT_EQ(
      sent_notes<reduce::Register>(give(note(last, reduce::Ask{}, 10, group_size)), last).size(),
      1U);
  const Member first = mates()[0];
  (void)tell(stranger(), reduce::Ahead{{0, 1}}, 30);
  ASSERT_EQ(count<CatchUp>(tell(first, reduce::Ahead{{0, 1}}, 30)), 1U);
  const auto resumed = give(Begin{at(10), share({1, 2, 3})});
  EXPECT_EQ(count<CatchUp>(resumed), 0U);
  const auto asked = tell(first, reduce::Register{}, 10);  // in attempt 1
  const auto answers = sent_notes<reduce::Ask>(asked, first);
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_GE(answers[0].attempt, group_size);
  EXPECT_EQ(count<CatchUp>(tell(stranger(), reduce::Ahead{{0, 1}}, 30)), 0U);
  EXPECT_EQ(count<CatchUp>(tell(first, reduce::Ahead{{0, 1}}, 30)), 0U);
}

// A member that is always late is named and not waited for any more, also where the exchanges that
// it holds up are left for the model of others, who have gone on meanwhile.
TEST_F(OneOfAGroup, WhoIsLateIsChargedAlsoInAnExchangeThatIsLeft) {
  Exchange exchange = 10;
  const Member late = mates(exchange).back();
  bool is_named = false;
  for (int i = 0; i < 20 && !is_named; ++i) {
    while (std::ranges::count(mates(exchange), late) == 0) ++exchange;
    for (const Action& action : give(Begin{at(exchange), share({1, 2, 3})})) {
      const auto* const said = std::get_if<Say>(&action);
      is_named = is_named || (said != nullptr &&
                              said->line.find("has held up the others") != std::string::npos);
    }
    std::vector<Member> in_time = mates(exchange);
    std::erase(in_time, late);
    for (const Member mate : in_time) (void)tell(mate, reduce::Register{}, exchange);
    now_ += std::chrono::milliseconds(900);
    const Exchange next = exchange + 5;
    std::size_t copies = 0;  // of most members' word: theirs alone would be doubted in the end
    for (Member m = 0; m < kDraw.members; ++m) {
      if (m == 0 || m == late) continue;
      copies += count<CatchUp>(tell(m, reduce::Ahead{{0, 1}}, next));
    }
    ASSERT_EQ(copies, 1U) << exchange;
    give(Copied{});
    exchange = next;
  }
  EXPECT_TRUE(is_named);
}

// They may have registered with it while it was behind, or have ended the exchange. Whoever waits
// for it in one that it passed over hears where it is.
TEST_F(OneOfAGroup, WhoCopiedAModelAsksItsGroupAtOnce) {
  (void)tell(stranger(30), reduce::Ahead{{0, 1}}, 30);
  begin();
  const Member waits = mates(28)[0];
  const auto moved = tell(waits, reduce::Register{}, 28);
  EXPECT_EQ(sent_notes<reduce::Wait>(moved, waits).size(), 1U);
  ASSERT_EQ(count<CatchUp>(moved), 1U);
  give(Copied{});
  const auto begun = give(Begin{at(30), share({1, 2, 3})});
  EXPECT_FALSE(sent_notes<reduce::Ahead>(begun, waits).empty()) << "it is passed over";
  ASSERT_EQ(kDraw.group_of(0, 30).front(), 0U) << "it gathers";
  for (const Member mate : mates(30)) {
    EXPECT_EQ(sent_notes<reduce::Ask>(begun, mate).size(), 1U) << mate;
  }
}

// Who asks for a mean that is gone is told where this member is.
TEST_F(OneOfAGroup, WhoIsFarBehindIsToldSo) {
  begin();
  const auto answer = tell(stranger(), reduce::Register{}, 3);
  ASSERT_EQ(answer.size(), 1U);
  const auto sent = sent_notes<reduce::Ahead>(answer, stranger());
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].at, at(10));
  EXPECT_TRUE(tell(stranger(), reduce::Ahead{{0, 1}}, 3).empty()) << "no answer to an answer";
}

}  // namespace
}  // namespace starling::collective
